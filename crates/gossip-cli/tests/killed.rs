//! The same command again after its process was killed.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::fs::File;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use support::{Scratch, is_alive, signal, wait_until, watchers_of};

/// As long as no test may take: a test that passes did not wait for the end of a lease.
const LEASE: &str = "10m";

/// A command that sleeps, as does a process that it starts; once `go` exists it ends at once.
const SCRIPT: &str = "test -e go && { echo $1 >> seen; exit; }; echo $$ >> commands; \
                      sleep 600 & echo $! >> started; wait";

/// A worker that was killed while its commands sleep.
struct Killed {
    scratch: Scratch,
    /// Its process id.
    worker: u32,
    commands: Vec<String>,
    /// Started by the commands.
    started: Vec<String>,
    watcher: Pid,
}

impl Killed {
    /// Starts a worker, sends a signal to its watcher when its commands run, and kills it.
    fn new(to_watcher: Option<Signal>) -> Self {
        let scratch = Scratch::new();
        let mut child = spawn(&scratch, "first");
        wait_until("the commands", || scratch.lines("started").len() == 2);
        wait_until("the entry in the registry", || {
            scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout.lines().count() == 1
        });
        let watcher = watchers_of(child.id()).remove(0).parse().unwrap();
        let watcher = Pid::from_raw(watcher).unwrap();
        if let Some(signal) = to_watcher {
            kill_process(watcher, signal).unwrap();
        }
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        File::create(scratch.path().join("go")).unwrap();
        let (commands, started) = (scratch.lines("commands"), scratch.lines("started"));
        assert_eq!(commands.len(), 2, "{commands:?}");
        Self { scratch, worker: child.id(), commands, started, watcher }
    }

    /// Waits for the end of the second worker, which must complete the run.
    fn completes(&self, mut child: Child) {
        wait_until("the end of the second worker", || child.try_wait().unwrap().is_some());
        let messages = self.messages();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{messages}");
        assert_eq!(self.scratch.lines("seen").len(), 100, "{messages}");
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("second")).unwrap()
    }
}

/// Starts the command; its messages go to a file.
fn spawn(scratch: &Scratch, messages: &str) -> Child {
    let args = ["exec", "range:0..100", "--shards", "2", "-j", "2", "--lease", LEASE];
    let mut command = scratch.gossip(&args);
    let messages = File::create(scratch.path().join(messages)).unwrap();
    command.args(["--", "sh", "-c", SCRIPT, "sh", "{}"]).stdout(Stdio::null());
    command.stderr(messages).spawn().unwrap()
}

#[test]
fn leases_of_a_killed_worker_are_not_waited_for() {
    let killed = Killed::new(None);
    killed.completes(spawn(&killed.scratch, "second"));
    let left: Vec<_> = killed.commands.iter().chain(&killed.started).collect();
    assert!(!left.iter().any(|pid| is_alive(pid)), "a command ran beside its repetition");
}

#[test]
fn leases_are_kept_while_commands_of_a_killed_worker_may_run() {
    let killed = Killed::new(Some(Signal::STOP));
    let second = spawn(&killed.scratch, "second");
    wait_until("the message", || killed.messages().contains("its commands are still being ended"));
    let messages = killed.messages();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holder = format!(" s for {host}:{}, gone, but its commands", killed.worker);
    assert!(messages.contains("waiting ") && messages.contains(&holder), "{messages}");
    // The process itself is gone, so it is no other worker.
    assert!(messages.contains(": resuming"), "{messages}");
    assert!(killed.started.iter().all(|pid| is_alive(pid)), "{messages}");
    assert_eq!(killed.scratch.lines("seen").len(), 0, "{messages}");
    kill_process(killed.watcher, Signal::CONT).unwrap();
    killed.completes(second);
    assert!(!killed.started.iter().any(|pid| is_alive(pid)));
}

/// What a command has started can outlive both; nothing else is known of it (ADR 70).
#[test]
fn leases_of_a_worker_that_was_killed_with_its_watcher_are_not_waited_for() {
    let killed = Killed::new(Some(Signal::KILL));
    killed.completes(spawn(&killed.scratch, "second"));
    assert!(!killed.commands.iter().any(|pid| is_alive(pid)), "a command outlived its worker");
    for pid in &killed.started {
        // Nothing else ends it.
        let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL);
    }
}

/// While other shards are free no worker is idle: the leases are revoked before the work begins,
/// and the killed process is no other worker.
#[test]
fn leases_of_a_killed_worker_are_revoked_while_other_shards_are_free() {
    let scratch = Scratch::new();
    let spawn = |jobs: &str, messages: &str| {
        let args = ["exec", "range:0..100", "--shards", "6", "-j", jobs, "--lease", LEASE];
        let mut command = scratch.gossip(&args);
        command.args(["--no-split", "--", "sh", "-c", "echo >> started; exec sleep 600"]);
        command.stderr(File::create(scratch.path().join(messages)).unwrap());
        command.spawn().unwrap()
    };
    let leased = || {
        let shown = scratch.run(&["run", "list", "-o", "jsonl"]).stdout;
        let value: serde_json::Value = serde_json::from_str(shown.trim()).unwrap();
        value["leased"].as_u64().unwrap()
    };
    let states = || scratch.run(&["worker", "list", "--sample", "0s", "-o", "jsonl"]).stdout;
    let mut first = spawn("3", "first");
    wait_until("the commands", || scratch.lines("started").len() == 3);
    assert_eq!(leased(), 3);
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    wait_until("the end of its watcher", || states().contains("\"state\":\"gone\""));
    let mut second = spawn("1", "second");
    wait_until("a command", || scratch.lines("started").len() == 4);
    assert_eq!(leased(), 1);
    let messages = std::fs::read_to_string(scratch.path().join("second")).unwrap();
    assert!(messages.contains(": resuming") && !messages.contains("joining"), "{messages}");
    signal(&second, Signal::KILL);
    second.wait().unwrap();
}
