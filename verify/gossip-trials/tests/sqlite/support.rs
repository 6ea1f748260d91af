//! Processes of the campaign program that answer line by line, and their scratch directory.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub(crate) const CAMPAIGN: &str = env!("CARGO_BIN_EXE_sqlite-campaign");

/// Number of processes: more than one, so that they differ, and few, so that each is used again.
pub(crate) const PROCESSES: usize = 3;

/// Timeout of an answer: the longest command takes a second.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

/// The in-memory file system, if there is one: races are the same there as on a disk.
const MEMORY: &str = "/dev/shm";

/// A directory of one test, removed with it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory, in memory if possible. Each test has a different `name`.
    pub(crate) fn in_memory(name: &str) -> Self {
        let memory = Path::new(MEMORY);
        if memory.is_dir() { Self::below(memory, name) } else { Self::on_disk(name) }
    }

    /// Creates a directory on a file system that syncs, as most temporary directories are.
    pub(crate) fn on_disk(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    fn below(root: &Path, name: &str) -> Self {
        let path = root.join(format!("gossip-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test may have removed the write permission.
        let _ = fs::set_permissions(&self.0, Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that answers request lines. It ends with its input, at the latest on drop.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    /// Runs a command of the campaign program on the files in `directory`.
    pub(crate) fn start(name: &str, directory: &Path) -> Self {
        let mut command = Command::new(CAMPAIGN);
        command.arg(name).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
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

    /// Sends a line and waits for the reply line.
    pub(crate) fn answer(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
        self.answers.recv_timeout(ANSWERS_WITHIN).expect("the process answers in time")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
