//! The real binary in a directory of its own.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]
#![allow(dead_code, reason = "each file of tests uses its part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing that these tests wait for takes longer, on the slowest machine.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(120);

/// How often something is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// Where the system keeps files in memory, if it does.
const MEMORY: &str = "/dev/shm";

/// A directory of one test, and one for its store; both are removed with it.
pub(crate) struct Scratch {
    path: PathBuf,
    store: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gossip-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("tree")).unwrap();
        Self { store: path.clone(), path }
    }

    /// With its store in memory, for leases of a second: a disk that is busy takes longer for one
    /// flush.
    pub(crate) fn with_short_leases() -> Self {
        let mut scratch = Self::new();
        let memory = Path::new(MEMORY).join(scratch.path.file_name().unwrap());
        if std::fs::create_dir(&memory).is_ok() {
            scratch.store = memory;
        }
        scratch
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the store, once there is one.
    pub(crate) fn store(&self) -> PathBuf {
        self.store.join("store.db")
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    /// Writes a file below the tree.
    pub(crate) fn file(&self, name: impl AsRef<Path>, content: &str) {
        let path = self.tree().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The binary, with the store of this test and none of the caller's settings.
    pub(crate) fn gossip<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gossip"));
        command.args(args);
        command
    }

    /// Another program in the same place.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        piped(&mut command).current_dir(&self.path).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("GOSSIP_STORE", format!("sqlite:{}", self.store().display()));
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        finish(self.gossip(args).spawn().unwrap())
    }

    /// The lines that handlers have written into a file of this test.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed says so itself.
        let _ = std::fs::remove_dir_all(&self.path);
        let _ = std::fs::remove_dir_all(&self.store);
    }
}

/// A program without input, whose output is read.
pub(crate) fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// How a run of the binary ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn finish(child: Child) -> Ran {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < MAX_WAIT, "{what} did not come about");
        thread::sleep(LOOK);
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
