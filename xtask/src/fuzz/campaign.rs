//! `cargo xtask fuzz --all`: runs every target up to a number of executions, one or several at a
//! time.
//!
//! Completed runs are stored in a [progress file](super::progress), so an interrupted campaign
//! resumes where it stopped. Rows of earlier commits do not count, unless `--since` names the
//! commit since which the decoders are unchanged. A target that finds a crash is reported and does
//! not stop the others; the command fails at the end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::progress::{self, Row};
use super::{Bound, EXECUTIONS, USAGE};
use crate::failure::Failure;
use crate::numbers::grouped;
use crate::saved::{self, Made};
use crate::workspace::Workspace;
use crate::{process, setup};

/// Targets that are not decoders: they run for a time, independent of the requested number.
const BY_TIME: [(&str, u32); 1] = [("operation_sequences", 300)];

/// Executions of each decoder that the specification requires.
const GOAL: u64 = 100_000_000;

/// Maximum number of targets that run concurrently; the machines used for measuring have two cores.
const JOBS_MAX: usize = 8;

/// The parsed command line of a campaign.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// Executions of each target; if absent, nothing runs and the present figures are shown.
    runs: Option<u64>,
    jobs: usize,
    /// Rows of this commit or later count; `HEAD` by default.
    since: String,
    progress: Option<PathBuf>,
    saves: bool,
}

pub(super) fn run(arguments: &[String], targets: &[String]) -> Result<(), Failure> {
    let wanted = parse(arguments)?;
    let made = Made::now("fuzz --all", arguments)?;
    let workspace = Workspace::load()?;
    let file = wanted.progress.clone().unwrap_or_else(|| workspace.target.join("fuzz-progress"));
    let commit = git(&workspace.root, &["rev-parse", "--short=12", "HEAD"])?;
    let rows = || -> Result<Vec<Row>, Failure> {
        let mut rows = progress::load(&file)?;
        let mut counts = Counting::new(&workspace.root, &wanted.since);
        rows.retain(|row| counts.counts(&row.commit));
        Ok(rows)
    };
    let found = match wanted.runs {
        Some(runs) => {
            let pending = pending(targets, &rows()?, runs);
            run_all(&workspace, pending, &wanted, &file, &commit)?
        }
        None => Vec::new(),
    };
    let rows = rows()?;
    let table = format!("{}\n{}\n", progress::table(&rows), summary(targets, &rows));
    println!("{table}");
    if wanted.saves {
        saved::FUZZ
            .save(&table, &made.remarking("Each row has the date and commit of its runs."))?;
    }
    if found.is_empty() {
        return Ok(());
    }
    let what = format!("{} found something", found.join(", "));
    Err(Failure::new(
        what,
        "an input is in verify/fuzz/artifacts",
        "keep the input as a seed, then fix the decoder",
    ))
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut wanted =
        Wanted { runs: None, jobs: 1, since: "HEAD".to_owned(), progress: None, saves: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let missing = || Failure::usage("fuzz", format!("{word} needs a value"), USAGE);
            words.next().ok_or_else(missing)
        };
        match word.as_str() {
            "--save" => wanted.saves = true,
            "--runs" => wanted.runs = Some(number(value()?)?),
            "--jobs" => wanted.jobs = usize::try_from(number(value()?)?).unwrap_or(JOBS_MAX),
            "--since" => value()?.clone_into(&mut wanted.since),
            "--progress" => wanted.progress = Some(PathBuf::from(value()?)),
            _ => {
                return Err(Failure::usage(
                    "fuzz",
                    format!("`{word}` is not a valid argument"),
                    USAGE,
                ));
            }
        }
    }
    if wanted.jobs > JOBS_MAX {
        return Err(Failure::usage("fuzz", format!("at most {JOBS_MAX} jobs are allowed"), USAGE));
    }
    Ok(wanted)
}

/// Returns a sentence with the number of decoder targets that have reached the goal.
fn summary(targets: &[String], rows: &[Row]) -> String {
    let is_decoder = |target: &&String| BY_TIME.iter().all(|(name, _)| name != target);
    let is_met = |target: &&String| progress::executions(rows, target) >= GOAL;
    let decoders = || targets.iter().filter(is_decoder);
    let (met, all) = (decoders().filter(is_met).count(), decoders().count());
    format!("{met} of {all} targets of decoders were run {} times or more.", grouped(GOAL))
}

fn number(word: &str) -> Result<u64, Failure> {
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Failure::usage("fuzz", "a number above 0 is expected", USAGE))
}

/// Returns the targets that are not at their goal, with the remaining bound.
fn pending(targets: &[String], rows: &[Row], runs: u64) -> VecDeque<(String, Bound)> {
    let left = |target: &String| {
        let done = progress::executions(rows, target);
        let bound = match BY_TIME.iter().find(|(name, _)| name == target) {
            Some(_) if done > 0 => return None,
            Some((_, seconds)) => Bound::Seconds(*seconds),
            None => Bound::Runs(u32::try_from(runs.checked_sub(done)?).unwrap_or(u32::MAX)),
        };
        (!matches!(bound, Bound::Runs(0))).then(|| (target.clone(), bound))
    };
    targets.iter().filter_map(left).collect()
}

/// Whether the rows of a commit count, cached for each commit.
struct Counting<'a> {
    root: &'a Path,
    since: &'a str,
    known: Vec<(String, bool)>,
}

impl<'a> Counting<'a> {
    const fn new(root: &'a Path, since: &'a str) -> Self {
        Self { root, since, known: Vec::new() }
    }

    fn counts(&mut self, commit: &str) -> bool {
        if let Some((_, counts)) = self.known.iter().find(|(known, _)| known == commit) {
            return *counts;
        }
        let arguments = ["merge-base", "--is-ancestor", self.since, commit];
        let counts = git(self.root, &arguments).is_ok();
        self.known.push((commit.to_owned(), counts));
        counts
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("git");
    command.current_dir(root).args(arguments);
    Ok(process::capture(&mut command, "look at the repository")?.trim().to_owned())
}

/// Runs the pending targets and returns those that found a crash.
fn run_all(
    workspace: &Workspace,
    pending: VecDeque<(String, Bound)>,
    wanted: &Wanted,
    file: &Path,
    commit: &str,
) -> Result<Vec<String>, Failure> {
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    setup::packages_for("fuzz", workspace)?;
    setup::cargo_tool("cargo-fuzz")?;
    build(&workspace.root)?;
    let queue = Mutex::new(pending);
    let ended: Mutex<(Vec<String>, Option<Failure>)> = Mutex::default();
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((target, bound)) = next else { return };
            let result = run_one(&workspace.root, &target, bound, commit);
            let result = result.and_then(|row| progress::add(file, &row).map(|()| row));
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(row) if row.crashes > 0 => ended.0.push(target),
                Ok(_) => {}
                Err(failure) => ended.1 = Some(failure),
            }
        }
    };
    thread::scope(|scope| (0..wanted.jobs).for_each(|_| drop(scope.spawn(work))));
    let (found, failure) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(found), Err)
}

/// Builds every target and writes the seeds of the laws where libFuzzer reads its inputs.
fn build(root: &Path) -> Result<(), Failure> {
    let mut command = process::cargo_of("stable");
    command.args(["fuzz", "build", "--fuzz-dir", super::DIRECTORY, "-s", "none", "-O"]);
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(root);
    process::run(&mut command, "fix the error above")?;
    let mut seeds = process::cargo();
    seeds.args(["run", "--quiet", "--package", "gossip-decoder-laws"]);
    seeds.args(["--example", "write_seeds", "--", super::CORPUS]).current_dir(root);
    process::run(&mut seeds, "fix the compile errors above")
}

/// Runs one target; of libFuzzer's output only the parts for the row are kept.
fn run_one(root: &Path, target: &str, bound: Bound, commit: &str) -> Result<Row, Failure> {
    println!("{target}: begins");
    super::make_corpus(root, target)?;
    let mut command = super::command(root, target, bound, super::Sanitizer::None);
    let started = Instant::now();
    let not_run = |error: std::io::Error| {
        Failure::new(format!("{target} could not be started"), error.to_string(), "run it alone")
    };
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(not_run)?;
    let mut said = Said::default();
    for line in child.stderr.take().into_iter().flat_map(|it| BufReader::new(it).lines()) {
        said.hear(&line.map_err(not_run)?);
    }
    let status = child.wait().map_err(not_run)?;
    let crashes = u64::from(!status.success());
    if crashes > 0 {
        said.last.iter().for_each(|line| eprintln!("{line}"));
    }
    let row = Row {
        target: target.to_owned(),
        commit: commit.to_owned(),
        date: process::capture(Command::new("date").args(["-u", "+%F"]), "check the clock")?
            .trim()
            .to_owned(),
        executions: said.executions,
        seconds: started.elapsed().as_secs(),
        edges: said.edges,
        corpus: said.corpus,
        crashes,
    };
    println!("{target}: {} executions in {} s, {crashes} crashes", row.executions, row.seconds);
    Ok(row)
}

/// Number of output lines shown if a run found a crash.
const LAST_LINES: usize = 40;

/// Parsed output of libFuzzer.
#[derive(Default)]
struct Said {
    executions: u64,
    edges: u64,
    corpus: u64,
    last: VecDeque<String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let number = |text: &str| text.split(['/', ' ']).find_map(|word| word.parse().ok());
        let after = |mark: &str| line.split_once(mark).and_then(|(_, rest)| number(rest));
        self.edges = after(" cov: ").unwrap_or(self.edges);
        self.corpus = after(" corp: ").unwrap_or(self.corpus);
        self.executions = after(EXECUTIONS).unwrap_or(self.executions);
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_checked() {
        let wanted = parse(&words("--runs 5 --jobs 2 --since abc --progress f --save")).unwrap();
        assert_eq!((wanted.runs, wanted.jobs, wanted.saves), (Some(5), 2, true));
        assert_eq!((wanted.since.as_str(), wanted.progress), ("abc", Some("f".into())));
        assert_eq!(parse(&[]).unwrap().runs, None);
        for bad in ["--runs", "--runs 0", "--jobs 9", "--jobs 0", "5", "--runs many"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    fn row(target: &str, executions: u64) -> Row {
        Row {
            target: target.to_owned(),
            commit: String::new(),
            date: String::new(),
            executions,
            seconds: 1,
            edges: 1,
            corpus: 1,
            crashes: 0,
        }
    }

    #[test]
    fn targets_at_their_goal_are_counted() {
        let targets = words("a b c operation_sequences");
        let rows = [row("a", GOAL - 1), row("a", 1), row("b", GOAL - 1)];
        let expected = "1 of 3 targets of decoders were run 100,000,000 times or more.";
        assert_eq!(summary(&targets, &rows), expected);
    }

    #[test]
    fn only_remaining_executions_are_run() {
        let targets = words("a b c operation_sequences");
        let rows = [row("a", 10), row("b", 4), row("b", 3)];
        let left = pending(&targets, &rows, 10);
        let left: Vec<(&str, Bound)> = left.iter().map(|(name, it)| (name.as_str(), *it)).collect();
        assert_eq!(
            left,
            [
                ("b", Bound::Runs(3)),
                ("c", Bound::Runs(10)),
                ("operation_sequences", Bound::Seconds(300)),
            ]
        );
        let rows = [row("operation_sequences", 1)];
        assert!(pending(&targets[3..], &rows, 10).is_empty());
    }

    #[test]
    fn figures_are_read_from_the_output_of_libfuzzer() {
        let mut said = Said::default();
        said.hear("#8388608\tpulse  cov: 33 ft: 34 corp: 23/441b lim: 128 exec/s: 1 rss: 27Mb");
        said.hear("stat::number_of_executed_units: 100000000");
        assert_eq!((said.executions, said.edges, said.corpus), (100_000_000, 33, 23));
    }
}
