//! One layer in a process of its own: its command line, its result, its time limit.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_mutants::catalog::Layer;
use gossip_mutants::{GUARDS_VARIABLE, OFF, VARIABLE};

use crate::engine::{self, Finding};

/// The word of the command line that runs one layer in this process.
pub(crate) const RUN: &str = "--run";

/// Time after which a layer is stopped. A suite that never ends has found the mutant too.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How often a running layer is looked at.
const POLL: Duration = Duration::from_millis(5);

/// The tests of a package that are run unless a mutant names others. They take seconds, and none
/// of them runs the simulator, the model checker, the golden scripts or the conformance suite.
const ORDINARY: [(&str, &[&str]); 1] = [(
    "gossip-coordination",
    &[
        "protocol::",
        "validation_tests",
        "scenario_tests",
        "session_tests",
        "op_log_tests",
        "run_tests",
        "shard_limits_tests",
        "split_execution_tests",
        "workers_tests",
        "store::codec",
        "store::deletion_tests",
        "store::unresolved_tests",
        "store::key_tests",
        "store::registration_tests",
        "store::purge_tests",
        "store::gc_tests",
    ],
)];

/// A task of a hunt.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A layer that looks for a mutant of the catalog.
    Layer(Layer),
    /// The simulator with a mutant of its store.
    StoreMutant(String),
    /// The search of handoffs with a mutant of a participant.
    HandoffMutant(String),
}

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) finding: Option<Finding>,
    pub(crate) time: Duration,
}

/// Where the unit tests of a package were built.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run them.
    pub(crate) directory: PathBuf,
}

/// What tasks need to know beside themselves.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) programs: Vec<TestProgram>,
    /// Worlds that the simulator runs at most.
    pub(crate) seeds: u64,
}

impl Task {
    /// The words behind [`RUN`]; absent for tests, which are programs of their own.
    fn words(&self, seeds: u64) -> Option<Vec<String>> {
        let words = match self {
            Self::Layer(Layer::Conformance) => vec!["conformance"],
            Self::Layer(Layer::Scripts) => vec!["scripts"],
            Self::Layer(Layer::Model { configuration, .. }) => vec!["model", configuration],
            Self::Layer(Layer::Simulator { .. }) => vec!["simulator"],
            Self::Layer(Layer::Faults { list, .. }) => vec!["faults", list],
            Self::Layer(Layer::WorkerSimulator { .. }) => vec!["worker-simulator"],
            Self::Layer(Layer::Tests { .. }) => return None,
            Self::StoreMutant(name) => vec!["store-mutant", name],
            Self::HandoffMutant(name) => vec!["handoff-mutant", name],
        };
        let seeds = seeds.to_string();
        Some([RUN, &seeds].into_iter().chain(words).map(str::to_owned).collect())
    }

    /// The rule by which the mutant must be found.
    pub(crate) const fn expected_rule(&self) -> Option<&'static str> {
        match self {
            Self::Layer(
                Layer::Model { rule, .. }
                | Layer::Simulator { rule }
                | Layer::Faults { rule, .. }
                | Layer::WorkerSimulator { rule },
            ) => *rule,
            Self::Layer(Layer::Conformance | Layer::Scripts | Layer::Tests { .. })
            | Self::StoreMutant(_)
            | Self::HandoffMutant(_) => None,
        }
    }

    /// Runs it in another process with `mutant` active.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or the task does not exist.
    pub(crate) fn run(
        &self,
        mutant: Option<&str>,
        guards: bool,
        setting: &Setting,
    ) -> Result<Outcome, String> {
        let mut command = match (self.words(setting.seeds), self) {
            (Some(words), _) => {
                let mut command = Command::new(this_program()?);
                command.args(words);
                command
            }
            (None, Self::Layer(Layer::Tests { package, filters })) => {
                tests(setting, package, filters)?
            }
            (None, _) => return Err("it has no command".to_owned()),
        };
        command.env_remove(VARIABLE).env_remove(GUARDS_VARIABLE).env("RUST_BACKTRACE", "0");
        if let Some(mutant) = mutant {
            command.env(VARIABLE, mutant);
        }
        // Tests are run as they are: a guard that stops a mutant makes them fail.
        if !guards && self.words(0).is_some() {
            command.env(GUARDS_VARIABLE, OFF);
        }
        let begun = Instant::now();
        let ended = run_limited(&mut command)?;
        Ok(Outcome { finding: self.finding(ended)?, time: begun.elapsed() })
    }

    fn finding(&self, ended: Ended) -> Result<Option<Finding>, String> {
        let found = |rule: &str, after: &str| {
            Ok(Some(Finding { rule: rule.to_owned(), after: after.to_owned() }))
        };
        let Ended::Exit { code, output } = ended else {
            return found("", "no end");
        };
        if self.words(0).is_none() {
            return match (code, failed_tests(&output)) {
                (Some(0), Some(_)) => Ok(None),
                (Some(_), Some(failed)) => found("", &format!("{failed} tests")),
                // Before a test could report: a panic in a destructor, a full stack.
                (_, None) => found("", "the tests aborted"),
                (None, Some(_)) => found("", "the tests were killed"),
            };
        }
        let last = output.lines().last().unwrap_or_default();
        let words: Vec<&str> = last.split('\t').collect();
        match (code, &words[..]) {
            (Some(0), ["found", rule, after]) => found(rule, after),
            (Some(0), ["missed"]) => Ok(None),
            (Some(2), ["error", why]) => Err((*why).to_owned()),
            _ => found("", "the process aborted"),
        }
    }
}

/// Runs a task in this process; the line that [`Task::run`] reads, and the exit code.
pub(crate) fn run_here(words: &[&str]) -> (String, u8) {
    let result = match *words {
        [seeds, ref task @ ..] => match (seeds.parse(), task) {
            (Ok(_), ["conformance"]) => Ok(engine::conformance()),
            (Ok(_), ["scripts"]) => engine::scripts(),
            (Ok(_), ["model", name]) => engine::model(name),
            (Ok(seeds), ["simulator"]) => engine::simulator(None, seeds),
            (Ok(seeds), ["faults", list]) => engine::simulator(Some(list), seeds),
            (Ok(_), ["worker-simulator"]) => Ok(engine::worker_simulator()),
            (Ok(seeds), ["store-mutant", name]) => engine::store_mutant(name, seeds),
            (Ok(_), ["handoff-mutant", name]) => engine::handoff_mutant(name),
            _ => Err("no such task".to_owned()),
        },
        [] => Err("no task".to_owned()),
    };
    match result {
        Ok(Some(finding)) => (format!("found\t{}\t{}", finding.rule, finding.after), 0),
        Ok(None) => ("missed".to_owned(), 0),
        Err(why) => (format!("error\t{why}"), 2),
    }
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))
}

fn tests(setting: &Setting, package: &str, filters: &str) -> Result<Command, String> {
    let program = setting.programs.iter().find(|program| program.package == package);
    let program = program.ok_or_else(|| format!("the tests of {package} were not built"))?;
    let mut command = Command::new(&program.path);
    let ordinary = ORDINARY.iter().find(|(name, _)| *name == package);
    let own: Vec<&str> = filters.split_whitespace().collect();
    let filters = if own.is_empty() { ordinary.map_or(&[][..], |(_, all)| all) } else { &own };
    command.args(filters).arg("--quiet").current_dir(&program.directory);
    Ok(command)
}

/// The number in `test result: FAILED. 12 passed; 3 failed; …`.
fn failed_tests(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.starts_with("test result: "))?;
    let failed = line.split("; ").find_map(|part| part.strip_suffix(" failed"))?;
    failed.parse().ok()
}

/// How a process ended.
enum Ended {
    /// Without a code if a signal ended it.
    Exit {
        code: Option<i32>,
        output: String,
    },
    TimedOut,
}

fn run_limited(command: &mut Command) -> Result<Ended, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(failed)?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // On a read error the output so far is used.
        drop(stdout.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            let output = reader.join().unwrap_or_default();
            return Ok(Ended::Exit { code: status.code(), output });
        }
        if begun.elapsed() >= TIMEOUT {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Ok(Ended::TimedOut);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_counted() {
        let line = "running\ntest result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured\n";
        assert_eq!(failed_tests(line), Some(3));
        assert_eq!(failed_tests("no result"), None);
    }

    #[test]
    fn an_unknown_task_is_an_error() {
        assert_eq!(run_here(&["1", "magic"]), ("error\tno such task".to_owned(), 2));
        assert_eq!(run_here(&["1", "model", "none"]).1, 2);
        assert_eq!(run_here(&["1", "faults", "no-such-fault"]).1, 2);
    }
}
