//! Runs programs of tests with one mutant.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::build::Built;
use crate::rewrite::VARIABLE;

/// A mutant may take this many times as long as the tests without one.
const LIMIT_FACTOR: u32 = 5;

/// And this much longer, because short programs vary more.
const LIMIT_MORE: Duration = Duration::from_secs(20);

/// Kilobytes of data: a mutant that allocates without end must not take the machine's memory. Files
/// that are mapped do not count; an etcd server maps ten gigabytes.
const MEMORY_KB: &str = "6000000";

/// How a mutant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Caught,
    TimedOut,
    Missed,
}

impl Outcome {
    pub(crate) const ALL: [Self; 3] = [Self::Caught, Self::TimedOut, Self::Missed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::TimedOut => "timed-out",
            Self::Missed => "missed",
        }
    }
}

/// A program with the time that it may take.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    built: Built,
    limit: Duration,
}

impl Limited {
    /// Runs the program without a mutant to measure it.
    ///
    /// # Errors
    ///
    /// If a test fails, because then every mutant would count as caught.
    pub(crate) fn measure(built: Built, scratch: &Path) -> Result<Self, String> {
        let started = Instant::now();
        let one = Self { built, limit: Duration::from_secs(600) };
        match one.run(0, scratch)? {
            (Outcome::Missed, _) => {}
            (outcome, by) => {
                return Err(format!(
                    "without a mutant {by} of {} {}",
                    one.built.program.package,
                    outcome.name()
                ));
            }
        }
        let took = started.elapsed();
        let limit = (took * LIMIT_FACTOR).max(took + LIMIT_MORE);
        Ok(Self { limit, ..one })
    }

    /// Runs the program until a test fails; the outcome, and the test.
    pub(crate) fn run(&self, mutant: u32, scratch: &Path) -> Result<(Outcome, String), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.built.path.display());
        fs::create_dir_all(scratch).map_err(failed)?;
        let mut command = Command::new("sh");
        let script = format!("ulimit -d {MEMORY_KB}; exec nice \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(&self.built.path).args(self.built.program.words);
        command.current_dir(&self.built.directory);
        command.env(VARIABLE, mutant.to_string()).env("TMPDIR", scratch);
        command.env("RUST_BACKTRACE", "0");
        // A case that one mutant failed would be tried with every later one.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut group = Group(command.process_group(0).spawn().map_err(failed)?);
        let ended = group.follow(Instant::now() + self.limit);
        drop(group);
        fs::remove_dir_all(scratch).map_err(failed)?;
        Ok(ended)
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at most {} s each", self.built.program, self.limit.as_secs())
    }
}

/// A process and those that it started.
struct Group(Child);

impl Group {
    fn follow(&mut self, deadline: Instant) -> (Outcome, String) {
        let stdout = self.0.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        // The thread ends with the stream, which the end of the group closes.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            for line in lines {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let mut running = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(test) = failed_test(&line) {
                        return (Outcome::Caught, test.to_owned());
                    }
                    if line.starts_with("test result: ok") {
                        return (Outcome::Missed, String::new());
                    }
                    running = line;
                }
                Err(RecvTimeoutError::Timeout) => return (Outcome::TimedOut, running),
                // It died without a result: an abort, or an exit that no test expects.
                Err(RecvTimeoutError::Disconnected) => {
                    return (Outcome::Caught, "the end of the program".to_owned());
                }
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let id = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It fails if all of the group has ended.
            let _ = kill_process_group(id, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Returns the test of a line such as `test a::b ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let (test, _) = line.strip_prefix("test ")?.split_once(" ... FAILED")?;
    Some(test)
}
