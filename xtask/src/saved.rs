//! Figures in the documentation, written by the command that made them.
//!
//! A [`Block`] is a section of a page for figures, between two marks; [`BLOCKS`] lists all blocks.
//! A command replaces only the text between the marks of its blocks, and writes below the figures
//! the command, the date and the commit that produced them, and the hash of the sources they depend
//! on ([`Made`]). `cargo xtask tidy` rejects a block without command, date and commit, and lists
//! those whose sources have changed ([`crate::figures`]).

use std::fs;
use std::process::Command;

use crate::failure::Failure;
use crate::figures;
use crate::process;
use crate::workspace::Workspace;

/// Start of the line that names the origin of figures.
const MADE_BY: &str = "Made by `";
/// Start of a block without figures.
const NOT_RUN: &str = "Not run yet";
/// Start of the hash of the sources.
const SOURCES: &str = ", sources ";
/// Number of commit digits that are written, enough to identify it.
const COMMIT_DIGITS: &str = "--short=12";
const COMMIT_DIGITS_MIN: usize = 7;
/// Suffix of a commit if files were changed since.
const CHANGED: &str = "-changed";

/// A section for figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The page, relative to the root.
    pub(crate) page: &'static str,
    /// The name in its marks; unique within the page.
    pub(crate) name: &'static str,
}

const MODEL: &str = "docs/reliability-model.md";
const SIMULATION: &str = "docs/reliability-simulation.md";
const RELIABILITY: &str = "docs/reliability.md";
const STORES: &str = "docs/benchmarks-stores.md";
const END_TO_END_PAGE: &str = "docs/benchmarks-end-to-end.md";
const SCHEDULING: &str = "docs/scheduling.md";
/// The page that explains the specification.
pub(crate) const SPECIFICATION: &str = "specs/coordination/README.md";

pub(crate) const BENCHMARKS: Block = Block { page: "docs/benchmarks.md", name: "benchmarks" };
pub(crate) const STORES_SQLITE: Block = Block { page: STORES, name: "stores-sqlite" };
pub(crate) const STORES_ETCD: Block = Block { page: STORES, name: "stores-etcd" };
pub(crate) const END_TO_END: Block = Block { page: END_TO_END_PAGE, name: "end-to-end" };
pub(crate) const MODEL_STATES: Block = Block { page: MODEL, name: "states" };
pub(crate) const MODEL_PAIRS: Block = Block { page: MODEL, name: "pairs" };
pub(crate) const MODEL_UNREACHABLE: Block = Block { page: MODEL, name: "unreachable" };
pub(crate) const SIM_CAMPAIGN: Block = Block { page: SIMULATION, name: "campaign" };
pub(crate) const SIM_RATE: Block = Block { page: SIMULATION, name: "rate" };
pub(crate) const SIM_SAME: Block = Block { page: SIMULATION, name: "same" };
pub(crate) const SIM_PAIRS: Block = Block { page: SIMULATION, name: "pairs" };
pub(crate) const SIM_FAULTS: Block = Block { page: SIMULATION, name: "faults" };
pub(crate) const SIM_OUTCOMES: Block = Block { page: SIMULATION, name: "outcomes" };
pub(crate) const MUTANTS: Block = Block { page: RELIABILITY, name: "mutants" };
pub(crate) const MUTATION: Block = Block { page: RELIABILITY, name: "mutation" };
pub(crate) const ETCD_FAULTS: Block = Block { page: RELIABILITY, name: "etcd-faults" };
pub(crate) const ETCD_NETWORK: Block = Block { page: RELIABILITY, name: "etcd-network" };
pub(crate) const FUZZ: Block = Block { page: RELIABILITY, name: "fuzz" };
pub(crate) const CHECK_HANDOFF: Block = Block { page: RELIABILITY, name: "check-handoff" };
pub(crate) const CHECK_HANDOFF_BUGS: Block =
    Block { page: RELIABILITY, name: "check-handoff-bugs" };
pub(crate) const SIM_HANDOFF: Block = Block { page: RELIABILITY, name: "sim-handoff" };
pub(crate) const SIM_HANDOFF_BUGS: Block = Block { page: RELIABILITY, name: "sim-handoff-bugs" };
pub(crate) const HANDOFF: Block = Block { page: RELIABILITY, name: "handoff" };
pub(crate) const KILL_SQLITE: Block = Block { page: RELIABILITY, name: "kill-sqlite" };
pub(crate) const POWER_LOSS: Block = Block { page: RELIABILITY, name: "power-loss" };
pub(crate) const KILL_WORKER: Block = Block { page: RELIABILITY, name: "kill-worker" };
pub(crate) const FLEET: Block = Block { page: RELIABILITY, name: "fleet" };
pub(crate) const POISON: Block = Block { page: RELIABILITY, name: "poison" };
pub(crate) const SOAK: Block = Block { page: RELIABILITY, name: "soak" };
pub(crate) const SIM_WORKER: Block = Block { page: RELIABILITY, name: "sim-worker" };
pub(crate) const MAKESPAN: Block = Block { page: SCHEDULING, name: "makespan" };
pub(crate) const COSTS: Block = Block { page: SCHEDULING, name: "costs" };
pub(crate) const SCAN: Block = Block { page: "docs/benchmarks-scan.md", name: "scan" };
pub(crate) const SCAN_TRIAL: Block = Block { page: "docs/benchmarks-scan.md", name: "scan-trial" };
pub(crate) const TLA_CONFIGURATIONS: Block = Block { page: SPECIFICATION, name: "configurations" };
pub(crate) const NIGHTLY: Block = Block { page: "docs/nightly.md", name: "nightly" };
pub(crate) const TLA_MUTATIONS: Block = Block { page: SPECIFICATION, name: "mutations" };

/// Every block that there is.
pub(crate) const BLOCKS: &[Block] = &[
    BENCHMARKS,
    STORES_SQLITE,
    STORES_ETCD,
    END_TO_END,
    MODEL_STATES,
    MODEL_PAIRS,
    MODEL_UNREACHABLE,
    SIM_CAMPAIGN,
    SIM_RATE,
    SIM_SAME,
    SIM_PAIRS,
    SIM_FAULTS,
    SIM_OUTCOMES,
    MUTANTS,
    MUTATION,
    ETCD_FAULTS,
    ETCD_NETWORK,
    FUZZ,
    CHECK_HANDOFF,
    CHECK_HANDOFF_BUGS,
    SIM_HANDOFF,
    SIM_HANDOFF_BUGS,
    HANDOFF,
    KILL_SQLITE,
    POWER_LOSS,
    KILL_WORKER,
    FLEET,
    POISON,
    SOAK,
    SIM_WORKER,
    MAKESPAN,
    COSTS,
    NIGHTLY,
    SCAN,
    SCAN_TRIAL,
    TLA_CONFIGURATIONS,
    TLA_MUTATIONS,
];

impl Block {
    /// Writes `figures` between the marks, with their origin below them.
    pub(crate) fn save(self, figures: &str, made: &Made) -> Result<(), Failure> {
        let Self { page, name } = self;
        let failed = |why: String| {
            Failure::new(format!("{page} was not written"), why, format!("git checkout {page}"))
        };
        let path = Workspace::load()?.root.join(page);
        let old = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        let text = format!("{}\n\n{}", figures.trim(), made.line(self));
        let new = self
            .replaced(&old, &text)
            .ok_or_else(|| failed(format!("the marks around the figures `{name}` are missing")))?;
        fs::write(&path, new).map_err(|error| failed(error.to_string()))
    }

    /// Returns the text between the marks.
    pub(crate) fn find(self, page: &str) -> Option<&str> {
        let [begin, end] = self.marks();
        Some(page.split_once(&begin)?.1.split_once(&end)?.0)
    }

    fn replaced(self, page: &str, text: &str) -> Option<String> {
        let [begin, end] = self.marks();
        let (before, rest) = page.split_once(&begin)?;
        let (_, after) = rest.split_once(&end)?;
        Some(format!("{before}{begin}\n\n{text}\n\n{end}{after}"))
    }

    fn marks(self) -> [String; 2] {
        ["begin", "end"].map(|which| format!("<!-- {}: {which} -->", self.name))
    }
}

/// The origin of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The command as typed.
    command: String,
    date: String,
    /// Followed by `-changed` if files were changed since.
    commit: String,
    /// The hashes of the sources of every command ([`figures::hashes`]); empty if they are not
    /// known any more.
    sources: Vec<u64>,
    /// A sentence about the build or the machine, if it matters.
    remark: &'static str,
}

impl Made {
    /// Returns the origin for `cargo xtask COMMAND WORDS`, today, from the present checkout. Call
    /// it before a long run: the checkout may change during the run.
    pub(crate) fn now(command: &str, words: &[String]) -> Result<Self, Failure> {
        let workspace = Workspace::load()?;
        Ok(Self {
            date: stdout_of("date", &["-u", "+%F"])?,
            sources: figures::hashes(&workspace, &workspace.files()?),
            ..Self::of(command, words, &commit()?)
        })
    }

    /// Returns the origin for `commit` at the time when `file` was last written. Sources are known
    /// only if that is still the commit of the checkout.
    pub(crate) fn when_written(
        file: &str,
        commit: &str,
        command: &str,
        words: &[String],
    ) -> Result<Self, Failure> {
        let date = stdout_of("date", &["-u", "+%F", "-r", file])?;
        let now = Self::now(command, words)?;
        let sources = if now.commit == commit { now.sources } else { Vec::new() };
        Ok(Self { date, sources, ..Self::of(command, words, commit) })
    }

    fn of(command: &str, words: &[String], commit: &str) -> Self {
        let mut typed = format!("cargo xtask {command}");
        for word in words {
            // Local paths must not appear in the documentation.
            typed.push(' ');
            typed.push_str(if word.contains('/') { "FILE" } else { word });
        }
        Self {
            command: typed,
            date: String::new(),
            commit: commit.to_owned(),
            sources: Vec::new(),
            remark: "",
        }
    }

    pub(crate) const fn remarking(mut self, remark: &'static str) -> Self {
        self.remark = remark;
        self
    }

    fn line(&self, block: Block) -> String {
        let Self { command, date, commit, remark, .. } = self;
        let sources = self.sources_of(block).map(|hash| format!("{SOURCES}{hash:016x}"));
        let sources = sources.unwrap_or_default();
        let (commit, changes) = match commit.strip_suffix(CHANGED) {
            Some(commit) => (commit, " with changes"),
            None => (commit.as_str(), ""),
        };
        let line =
            format!("{MADE_BY}{command}`, {date}, commit {commit}{changes}{sources}. {remark}");
        line.trim_end().to_owned()
    }

    /// Returns the hash of the sources of a block; a block of several commands depends on all.
    fn sources_of(&self, block: Block) -> Option<u64> {
        let maker = figures::MAKERS.iter().position(|maker| maker.blocks.contains(&block));
        match maker {
            Some(maker) => self.sources.get(maker).copied(),
            None if self.sources.is_empty() => None,
            None => Some(figures::combined(&self.sources)),
        }
    }
}

/// Returns the commit of the checkout as one word, with a suffix if a file other than a page was
/// changed since: previously saved figures do not affect the next ones.
pub(crate) fn commit() -> Result<String, Failure> {
    let id = stdout_of("git", &["rev-parse", COMMIT_DIGITS, "HEAD"])?;
    let pages = ["--", ":/", ":(top,exclude)*.md"];
    let changed = stdout_of(
        "git",
        &[&["status", "--porcelain", "--untracked-files=no"], &pages[..]].concat(),
    )?;
    Ok(if changed.is_empty() { id } else { format!("{id}{CHANGED}") })
}

fn stdout_of(program: &str, words: &[&str]) -> Result<String, Failure> {
    let output =
        process::capture(Command::new(program).args(words), "run it inside a git checkout")?;
    Ok(output.trim().to_owned())
}

/// Returns the output of a program below the line `## TITLE`, up to the next such line.
pub(crate) fn section<'t>(output: &'t str, title: &str) -> Result<&'t str, Failure> {
    let (_, rest) = output.split_once(&format!("## {title}\n")).ok_or_else(|| {
        let why = format!("the output has no section `## {title}`");
        Failure::new("no figures were saved", why, "check the output above")
    })?;
    Ok(rest.split_once("\n## ").map_or(rest, |(section, _)| section).trim())
}

/// The origin that a block names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin<'p> {
    pub(crate) commit: &'p str,
    /// The hash of the sources; blocks of older versions of xtask have none.
    pub(crate) sources: Option<u64>,
}

/// Returns the origin of the figures in the text of a block; `None` if it has none.
pub(crate) fn origin(block: &str) -> Option<Origin<'_>> {
    let line = block.lines().find(|line| is_made(line))?;
    let (_, rest) = line.split_once(", commit ")?;
    let commit = rest.split(|it: char| !it.is_ascii_hexdigit()).next()?;
    let sources = rest.split_once(SOURCES).and_then(|(_, rest)| rest.get(..16));
    Some(Origin { commit, sources: sources.and_then(|hash| u64::from_str_radix(hash, 16).ok()) })
}

/// A block in a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found<'p> {
    pub(crate) name: &'p str,
    /// Line number of its start, from one.
    pub(crate) line: usize,
    /// The problem, if it is not in the form that [`Block::save`] writes.
    pub(crate) problem: Option<&'static str>,
}

/// Returns the blocks of a page.
pub(crate) fn found(page: &str) -> Vec<Found<'_>> {
    let lines: Vec<&str> = page.lines().collect();
    let begun = lines.iter().enumerate().filter_map(|(place, line)| {
        let (name, _) = line.strip_prefix("<!-- ")?.split_once(": begin")?;
        Some((place, name))
    });
    let block = |(place, name): (usize, _)| {
        let end = format!("<!-- {name}: end -->");
        let rest = &lines[place + 1..];
        let body = rest.iter().position(|line| *line == end).map(|end| &rest[..end]);
        Found { name, line: place + 1, problem: problem(body) }
    };
    begun.map(block).collect()
}

fn problem(body: Option<&[&str]>) -> Option<&'static str> {
    let Some(body) = body else { return Some("has no end mark") };
    let is_said = body.iter().any(|line| line.starts_with(NOT_RUN) || is_made(line));
    (!is_said).then_some("does not name the command, date and commit that made it")
}

/// Returns whether a line has the form that [`Made`] writes.
fn is_made(line: &str) -> bool {
    let parts = line.strip_prefix(MADE_BY).and_then(|rest| {
        let (_, rest) = rest.split_once("`, ")?;
        rest.split_once(", commit ")
    });
    parts.is_some_and(|(date, rest)| {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let is_whole = rest[digits..].starts_with([' ', '.', ',']);
        is_date(date) && digits >= COMMIT_DIGITS_MIN && is_whole
    })
}

/// Returns whether it looks like `2026-11-15`.
pub(crate) fn is_date(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "saved_tests.rs"]
mod tests;
