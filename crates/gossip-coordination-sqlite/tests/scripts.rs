//! Golden scripts by several real processes on one file: each command goes to the next process,
//! which knows nothing of the commands before it but what lies in the file.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a file of tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gossip_coordination::testscript::{Casting, Line, Troupe, check_scripts_on};

const CAMPAIGN: &str = env!("CARGO_BIN_EXE_sqlite-campaign");

/// Processes: not one, so that they differ, and not too many, so that each comes again.
const PROCESSES: usize = 3;

/// A process that says nothing for so long never will: the longest command takes a second.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

/// Where the system keeps files in memory, if it does: processes race there as on a disk.
const MEMORY: &str = "/dev/shm";

/// A directory of one test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let memory = Path::new(MEMORY);
        let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let path = root.join(format!("gossip-scripts-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that performs what it is told. It ends with its input, and at the latest with this.
struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(CAMPAIGN);
        command.arg("act").arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (say, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, answers }
    }

    fn answer(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
        self.answers.recv_timeout(ANSWERS_WITHIN).expect("a process that lives answers")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn golden_scripts_by_processes_in_turn_are_answered_as_written() {
    let scratch = Scratch::new();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&scratch.0)).collect();
    let lines =
        processes.iter_mut().map(|process| Box::new(|line: &str| process.answer(line)) as Line<'_>);
    let mut troupe = Troupe::new(lines.collect(), Casting::InTurn);
    let report = check_scripts_on(&mut troupe, false).expect("the scripts can be read");
    println!("{} played, {} skipped", report.files.len(), report.skipped.len());
    let failures = report.failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| name.contains("slab")), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}
