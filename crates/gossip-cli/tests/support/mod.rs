//! Runs the real binary in a temporary directory.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]
#![allow(dead_code, reason = "each file of tests uses its part of it")]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Upper bound of every wait, on the slowest machine.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(120);

/// Polling interval of a wait.
const POLL: Duration = Duration::from_millis(5);

/// File system in memory, if the system has one.
const MEMORY: &str = "/dev/shm";

/// The directory of a test and that of its store; both are removed on drop.
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
        let scratch = Self { store: path.clone(), path };
        write_key(&scratch.job_key(), 'a');
        scratch
    }

    /// Keeps the store in memory, for leases of a second: one flush to a busy disk can take longer.
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

    /// Returns the file of the key that signs commands. It is beside the directory, which may be a
    /// source.
    pub(crate) fn job_key(&self) -> PathBuf {
        self.path.with_extension("job-key")
    }

    /// Returns the path of the store.
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

    /// Returns a command of the binary with the store of this test and a clean environment.
    pub(crate) fn gossip<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gossip"));
        command.args(args);
        command
    }

    /// Returns a command of another program in the same environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        // A background job of a shell ignores SIGINT, and one of `nohup` SIGHUP. The program would
        // inherit that, so the signals are reset before it starts.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(program);
        piped(&mut command).current_dir(&self.path).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("GOSSIP_STORE", format!("sqlite:{}", self.store().display()));
        command.env("GOSSIP_JOB_KEY_FILE", self.job_key());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        finish(self.gossip(args).spawn().unwrap())
    }

    /// Returns the lines that handlers have written to a file of this test.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failed removal must not hide the failure of the test.
        let _ = std::fs::remove_dir_all(&self.path);
        let _ = std::fs::remove_dir_all(&self.store);
        let _ = std::fs::remove_file(self.job_key());
    }
}

/// Writes a key of one digit, for its user only.
pub(crate) fn write_key(path: &Path, digit: char) {
    std::fs::write(path, digit.to_string().repeat(64)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Closes the input of a command and captures its output.
pub(crate) fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Result of a finished process.
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

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < MAX_WAIT, "{what} did not happen");
        thread::sleep(POLL);
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Returns whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Returns the watchers among the children of a process.
pub(crate) fn watchers_of(parent: u32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.parse::<u32>().is_ok().then_some(name)
    });
    let is_watcher = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let ours = format!(" {parent} ");
        stat.split_once("(gossip-watcher)").is_some_and(|(_, rest)| rest[2..].starts_with(&ours))
    };
    processes.filter(is_watcher).collect()
}
