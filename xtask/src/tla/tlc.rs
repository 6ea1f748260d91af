//! Runs TLC and parses its output.
//!
//! It uses one worker and breadth-first search, so that the counts, the depth and the first broken
//! law are reproducible. All output goes below the target directory.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::spec::DIRECTORY;
use super::write;
use crate::failure::Failure;
use crate::workspace::Workspace;

/// Enough memory for every configuration (TLC spills to disk), and JVM options for runs of seconds:
/// most end before a better compiler would pay off.
const JAVA: [&str; 3] = ["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// The law of a violated temporal property: TLC does not name it, and there is only one.
const TEMPORAL_LAW: &str = "NeverFinishes";

/// TLC and its directories.
pub(super) struct Tlc {
    jar: PathBuf,
    /// The modules.
    specification: PathBuf,
    /// The output directory.
    directory: PathBuf,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The queue is empty, and no law was broken.
    Kept,
    /// This law was broken.
    Broken(String),
    /// Neither: the search did not terminate.
    Unfinished,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("every law holds"),
            Self::Broken(law) => write!(f, "{law} was broken"),
            Self::Unfinished => f.write_str("the search did not end"),
        }
    }
}

/// The counts and the result of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) generated: u64,
    pub(super) distinct: u64,
    /// Unknown if a temporal law was broken: TLC does not print it then.
    pub(super) depth: Option<u64>,
    pub(super) time: Duration,
    /// The complete output of TLC.
    pub(super) log: PathBuf,
}

impl Outcome {
    pub(super) fn figures(&self) -> String {
        let Self { generated, distinct, depth, .. } = self;
        let depth = depth.map_or_else(|| "unknown".to_owned(), |depth| depth.to_string());
        let seconds = self.time.as_secs_f64();
        format!("{distinct} distinct of {generated} states, depth {depth}, {seconds:.0} s")
    }
}

impl Tlc {
    pub(super) fn new(workspace: &Workspace, jar: PathBuf) -> Result<Self, Failure> {
        let directory = workspace.target.join("tla");
        let specification = workspace.root.join(DIRECTORY);
        let temporary = directory.join("tmp");
        fs::create_dir_all(&temporary).map_err(|error| {
            let what = format!("{} was not created", temporary.display());
            Failure::new(what, error.to_string(), "make its parent writable")
        })?;
        Ok(Self { jar, specification, directory })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs `module` with the configuration `text`.
    pub(super) fn run(&self, name: &str, module: &str, text: &str) -> Result<Outcome, Failure> {
        let configuration = self.directory.join(format!("{name}.cfg"));
        write(&configuration, text)?;
        let began = Instant::now();
        let output = self.command(name, module, &configuration).output().map_err(|error| {
            Failure::new("java could not be run", error.to_string(), "cargo xtask setup tla")
        })?;
        let time = began.elapsed();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let log = configuration.with_extension("log");
        write(&log, &output)?;
        // State files are useless after the run.
        drop(fs::remove_dir_all(self.states(name)));
        read(&output, time, &log)
    }

    fn states(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.states"))
    }

    fn command(&self, name: &str, module: &str, configuration: &Path) -> Command {
        let temporary = self.directory.join("tmp");
        let mut java = Command::new("java");
        java.current_dir(&self.specification).stdin(Stdio::null()).stderr(Stdio::inherit());
        java.args(JAVA);
        java.arg(format!("-Djava.io.tmpdir={}", temporary.display()));
        java.arg("-cp").arg(&self.jar).args(["tlc2.TLC", "-workers", "1", "-deadlock"]);
        java.arg("-metadir").arg(self.states(name)).arg("-config").arg(configuration);
        java.arg(format!("{module}.tla"));
        java
    }
}

/// Parses the output of TLC. Missing parts make the run a failure: a search that did not happen
/// must not look like one without violations.
fn read(output: &str, time: Duration, log: &Path) -> Result<Outcome, Failure> {
    let [generated, distinct, left] = counts(output).ok_or_else(|| not_understood(log))?;
    let depth = depth(output);
    let kept = output.contains("No error has been found.") && left == 0 && depth.is_some();
    let verdict = match broken(output) {
        Some(law) => Verdict::Broken(law.to_owned()),
        None if kept => Verdict::Kept,
        None => Verdict::Unfinished,
    };
    Ok(Outcome { verdict, generated, distinct, depth, time, log: log.to_owned() })
}

fn not_understood(log: &Path) -> Failure {
    Failure::new(
        "TLC did not search",
        "its output has no count of states",
        format!("read {}", log.display()),
    )
}

/// Returns states generated, distinct states, and states left on the queue.
fn counts(output: &str) -> Option<[u64; 3]> {
    let is_last = |line: &&str| line.contains(" states generated, ") && line.ends_with("on queue.");
    let line = output.lines().rev().find(|line| is_last(line) && !line.starts_with("Progress"))?;
    let numbers = line.split(", ").map(|part| part.split(' ').next()?.parse().ok());
    numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()
}

fn depth(output: &str) -> Option<u64> {
    let words = "The depth of the complete state graph search is ";
    let line = output.lines().find_map(|line| line.strip_prefix(words))?;
    line.trim_end_matches('.').parse().ok()
}

/// Returns the broken law, if any.
fn broken(output: &str) -> Option<&str> {
    let mut errors = output.lines().filter_map(|line| line.strip_prefix("Error: "));
    let first = errors.next()?;
    if first.starts_with("Temporal properties were violated") {
        return Some(TEMPORAL_LAW);
    }
    first.strip_prefix("Invariant ")?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "Progress(3) at x: 9 states generated, 5 distinct states found, 2 states \
        left on queue.\nModel checking completed. No error has been found.\n\
        1422 states generated, 490 distinct states found, 0 states left on queue.\n\
        The depth of the complete state graph search is 18.\n";

    fn verdict(output: &str) -> Option<Verdict> {
        let outcome = read(output, Duration::ZERO, Path::new("log"));
        outcome.ok().map(|outcome| outcome.verdict)
    }

    #[test]
    fn a_search_that_ended_is_read() {
        let outcome = read(KEPT, Duration::from_secs(3), Path::new("log")).unwrap();
        assert_eq!(outcome.verdict, Verdict::Kept);
        assert_eq!(outcome.figures(), "490 distinct of 1422 states, depth 18, 3 s");
    }

    #[test]
    fn a_broken_law_is_named() {
        let broken = KEPT.replace(
            "Model checking completed. No error has been found.",
            "Error: Invariant Tiling is violated.",
        );
        assert_eq!(verdict(&broken), Some(Verdict::Broken("Tiling".to_owned())));
        let temporal = broken.replace("Invariant Tiling is", "Temporal properties were");
        let temporal = temporal.replace("The depth", "The length");
        assert_eq!(verdict(&temporal), Some(Verdict::Broken(TEMPORAL_LAW.to_owned())));
    }

    #[test]
    fn an_unfinished_search_is_not_a_success() {
        let left = KEPT.replace(", 0 states left", ", 7 states left");
        assert_eq!(verdict(&left), Some(Verdict::Unfinished));
        for part in ["No error has been found.", "The depth"] {
            assert_eq!(verdict(&KEPT.replace(part, "")), Some(Verdict::Unfinished), "{part}");
        }
        assert_eq!(verdict("Error: parse error"), None);
    }
}
