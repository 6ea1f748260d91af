//! Figures in the documentation, written by the command that made them.
//!
//! A [`Block`] is the place of some figures in a page, between two marks, and [`BLOCKS`] is the
//! list of them. A command replaces what stands between the marks of its blocks and nothing else,
//! and writes below the figures which command made them, when, and from which commit ([`Made`]).
//! `cargo xtask tidy` refuses a block that does not say so.

use std::fs;
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// How the line begins that tells where figures come from.
const MADE_BY: &str = "Made by `";
/// How a block begins that has no figures yet.
const NOT_RUN: &str = "Not run yet";
/// How many digits of a commit are written, and how many are enough to know it by.
const COMMIT_DIGITS: &str = "--short=12";
const COMMIT_DIGITS_MIN: usize = 7;
/// What is added to a commit in one word, if files were changed since.
const CHANGED: &str = "-changed";

/// A place for figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The page, relative to the root.
    pub(crate) page: &'static str,
    /// What stands in its marks; of one block of the page.
    pub(crate) name: &'static str,
}

const MODEL: &str = "docs/reliability-model.md";
const SIMULATION: &str = "docs/reliability-simulation.md";
const RELIABILITY: &str = "docs/reliability.md";
const SCHEDULING: &str = "docs/scheduling.md";
/// The page that explains the specification.
pub(crate) const SPECIFICATION: &str = "specs/coordination/README.md";

pub(crate) const BENCHMARKS: Block = Block { page: "docs/benchmarks.md", name: "benchmarks" };
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
pub(crate) const ETCD_FAULTS: Block = Block { page: RELIABILITY, name: "etcd-faults" };
pub(crate) const FUZZ: Block = Block { page: RELIABILITY, name: "fuzz" };
pub(crate) const CHECK_HANDOFF: Block = Block { page: RELIABILITY, name: "check-handoff" };
pub(crate) const CHECK_HANDOFF_BUGS: Block =
    Block { page: RELIABILITY, name: "check-handoff-bugs" };
pub(crate) const SIM_HANDOFF: Block = Block { page: RELIABILITY, name: "sim-handoff" };
pub(crate) const SIM_HANDOFF_BUGS: Block = Block { page: RELIABILITY, name: "sim-handoff-bugs" };
pub(crate) const HANDOFF: Block = Block { page: RELIABILITY, name: "handoff" };
pub(crate) const KILL_SQLITE: Block = Block { page: RELIABILITY, name: "kill-sqlite" };
pub(crate) const KILL_WORKER: Block = Block { page: RELIABILITY, name: "kill-worker" };
pub(crate) const FLEET: Block = Block { page: RELIABILITY, name: "fleet" };
pub(crate) const POISON: Block = Block { page: RELIABILITY, name: "poison" };
pub(crate) const SIM_WORKER: Block = Block { page: RELIABILITY, name: "sim-worker" };
pub(crate) const MAKESPAN: Block = Block { page: SCHEDULING, name: "makespan" };
pub(crate) const COSTS: Block = Block { page: SCHEDULING, name: "costs" };
pub(crate) const TLA_CONFIGURATIONS: Block = Block { page: SPECIFICATION, name: "configurations" };
pub(crate) const TLA_MUTATIONS: Block = Block { page: SPECIFICATION, name: "mutations" };

/// Every block that there is.
pub(crate) const BLOCKS: [Block; 27] = [
    BENCHMARKS,
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
    ETCD_FAULTS,
    FUZZ,
    CHECK_HANDOFF,
    CHECK_HANDOFF_BUGS,
    SIM_HANDOFF,
    SIM_HANDOFF_BUGS,
    HANDOFF,
    KILL_SQLITE,
    KILL_WORKER,
    FLEET,
    POISON,
    SIM_WORKER,
    MAKESPAN,
    COSTS,
    TLA_CONFIGURATIONS,
    TLA_MUTATIONS,
];

impl Block {
    /// Puts `figures` between the marks, and below them how they were made.
    pub(crate) fn save(self, figures: &str, made: &Made) -> Result<(), Failure> {
        let Self { page, name } = self;
        let failed = |why: String| {
            Failure::new(format!("{page} was not written"), why, format!("git checkout {page}"))
        };
        let path = Workspace::load()?.root.join(page);
        let old = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        let text = format!("{}\n\n{}", figures.trim(), made.line());
        let new = self
            .replaced(&old, &text)
            .ok_or_else(|| failed(format!("the marks around the figures `{name}` are gone")))?;
        fs::write(&path, new).map_err(|error| failed(error.to_string()))
    }

    /// What stands between the marks.
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

/// How figures were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// As one types it.
    command: String,
    date: String,
    /// With `-changed` behind it if files were changed since.
    commit: String,
    /// A sentence about the build or the machine, if it matters.
    remark: &'static str,
}

impl Made {
    /// By `cargo xtask COMMAND WORDS`, today, from what is checked out. Whoever works for long asks
    /// for it first: what is checked out at the end may be something else.
    pub(crate) fn now(command: &str, words: &[String]) -> Result<Self, Failure> {
        Ok(Self { date: told("date", &["-u", "+%F"])?, ..Self::of(command, words, &commit()?) })
    }

    /// The same from `commit` at the time when `file` was last written.
    pub(crate) fn when_written(
        file: &str,
        commit: &str,
        command: &str,
        words: &[String],
    ) -> Result<Self, Failure> {
        let date = told("date", &["-u", "+%F", "-r", file])?;
        Ok(Self { date, ..Self::of(command, words, commit) })
    }

    fn of(command: &str, words: &[String], commit: &str) -> Self {
        let mut typed = format!("cargo xtask {command}");
        for word in words {
            // Where somebody keeps files is nobody's business.
            typed.push(' ');
            typed.push_str(if word.contains('/') { "FILE" } else { word });
        }
        Self { command: typed, date: String::new(), commit: commit.to_owned(), remark: "" }
    }

    pub(crate) const fn remarking(mut self, remark: &'static str) -> Self {
        self.remark = remark;
        self
    }

    fn line(&self) -> String {
        let Self { command, date, commit, remark } = self;
        let (commit, changes) = match commit.strip_suffix(CHANGED) {
            Some(commit) => (commit, " with changes"),
            None => (commit.as_str(), ""),
        };
        let line = format!("{MADE_BY}{command}`, {date}, commit {commit}{changes}. {remark}");
        line.trim_end().to_owned()
    }
}

/// The commit that is checked out, as one word, with a mark if a file was changed since that is
/// more than a page: figures that were saved before do not change the next ones.
pub(crate) fn commit() -> Result<String, Failure> {
    let id = told("git", &["rev-parse", COMMIT_DIGITS, "HEAD"])?;
    let pages = ["--", ":/", ":(top,exclude)*.md"];
    let changed =
        told("git", &[&["status", "--porcelain", "--untracked-files=no"], &pages[..]].concat())?;
    Ok(if changed.is_empty() { id } else { format!("{id}{CHANGED}") })
}

fn told(program: &str, words: &[&str]) -> Result<String, Failure> {
    let told = process::capture(Command::new(program).args(words), "run it inside a git checkout")?;
    Ok(told.trim().to_owned())
}

/// What a program printed below the line `## TITLE`, up to the next such line.
pub(crate) fn section<'t>(told: &'t str, title: &str) -> Result<&'t str, Failure> {
    let (_, rest) = told.split_once(&format!("## {title}\n")).ok_or_else(|| {
        let why = format!("what was printed has no part `## {title}`");
        Failure::new("no figures were saved", why, "look at what was printed above")
    })?;
    Ok(rest.split_once("\n## ").map_or(rest, |(section, _)| section).trim())
}

/// A block as it stands in a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found<'p> {
    pub(crate) name: &'p str,
    /// Where it begins, counted from one.
    pub(crate) line: usize,
    /// What is wrong with it, if it is not as [`Block::save`] writes it.
    pub(crate) problem: Option<&'static str>,
}

/// The blocks of a page.
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
    let Some(body) = body else { return Some("has no end") };
    let is_said = body.iter().any(|line| line.starts_with(NOT_RUN) || is_made(line));
    (!is_said).then_some("does not say by which command, when and from which commit it was made")
}

/// Whether a line is one that [`Made`] writes.
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

/// Whether it looks like `2026-11-15`.
fn is_date(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "saved_tests.rs"]
mod tests;
