//! Workers whose wall clock is set by hours while they run (DESIGN Q7, ADR 84).
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use support::{Scratch, signal, wait_until, watchers_of};

/// Shorter than the hours by which clocks are set, and long enough for a busy disk.
const LEASE: &str = "3s";
const ITEMS: usize = 200;

/// A command that notes its item.
const SCRIPT: &str = "echo $1 >> seen";

/// The wall clock of a process, which reads its difference from the true time in a file. Its
/// monotonic clock is true.
struct FakedClock<'s> {
    scratch: &'s Scratch,
    file: PathBuf,
}

impl<'s> FakedClock<'s> {
    fn new(scratch: &'s Scratch, ahead: &str) -> Self {
        let clock = Self { scratch, file: scratch.path().join("clock") };
        clock.set(ahead);
        clock
    }

    /// Sets the clock; the process may read it at any moment.
    fn set(&self, ahead: &str) {
        let next = self.scratch.path().join("clock.next");
        std::fs::write(&next, format!("{ahead}\n")).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }

    fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// Returns the library of the Debian package `faketime` (`cargo xtask setup test`).
fn library() -> PathBuf {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| path.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
    };
    below(Path::new("/usr/lib")).expect("the Debian package faketime is installed")
}

/// Starts a worker; its messages go to a file.
fn spawn(scratch: &Scratch, messages: &str, rate: &str, clock: Option<&FakedClock<'_>>) -> Child {
    let items = format!("range:0..{ITEMS}");
    let args = ["exec", &items, "--shards", "2", "-j", "2", "--lease", LEASE, "--rate", rate];
    let mut command = scratch.gossip(&args);
    command.args(["--", "sh", "-c", SCRIPT, "sh", "{}"]).stdout(Stdio::null());
    clock.into_iter().for_each(|clock| clock.apply(&mut command));
    let messages = File::create(scratch.path().join(messages)).unwrap();
    command.stderr(messages).spawn().unwrap()
}

/// Waits for the end of a worker, which must complete the run.
fn completes(scratch: &Scratch, mut child: Child, messages: &str) {
    wait_until("the end of the worker", || child.try_wait().unwrap().is_some());
    let messages = std::fs::read_to_string(scratch.path().join(messages)).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{messages}");
    let mut seen = scratch.lines("seen");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), ITEMS, "{messages}");
}

/// Returns the largest deadline of a lease. RFC 3339 in UTC sorts by time.
fn latest_deadline(scratch: &Scratch) -> Option<String> {
    let runs = scratch.run(&["run", "list", "-o", "jsonl"]).stdout;
    let run = field(runs.lines().next()?, "run")?;
    let shards = scratch.run(&["shard", "list", &run, "-o", "jsonl"]).stdout;
    shards.lines().filter_map(|line| field(line, "lease_until").filter(|it| it != "null")).max()
}

/// Returns a field of a JSON object, without quotation marks.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
    let end = rest.find([',', '}'])?;
    Some(rest[..end].trim().trim_matches('"').to_owned())
}

/// Returns the true time in two hours, as the command line prints times.
fn in_two_hours() -> String {
    let mut date = Command::new("date");
    let printed = date.args(["-u", "-d", "+2 hours", "+%Y-%m-%dT%H:%M:%S.000Z"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

/// The story: a worker's clock is three hours ahead, is corrected, and the worker continues. Then
/// it is killed. Its deadlines stay three hours ahead, and used to lock its shards for so long.
#[test]
fn clock_that_was_hours_ahead_and_is_set_back_locks_nothing() {
    let scratch = Scratch::with_short_leases();
    let clock = FakedClock::new(&scratch, "+3h");
    let mut first = spawn(&scratch, "first", "10", Some(&clock));
    wait_until("the first items", || scratch.lines("seen").len() >= 5);
    let deadline = latest_deadline(&scratch).unwrap();
    assert!(deadline > in_two_hours(), "the clock of the worker is ahead");
    clock.set("+0");
    // Ten at once, then ten per second: the rest need a clock that advances.
    let before = scratch.lines("seen").len();
    wait_until("items after the step", || scratch.lines("seen").len() >= before + 30);
    assert_eq!(latest_deadline(&scratch), Some(deadline), "a renewal shortens no lease");

    // Its watcher is stopped, so that its leases are not revoked (ADR 70), and their end counts.
    let watcher = watchers_of(first.id()).remove(0).parse().unwrap();
    let watcher = Pid::from_raw(watcher).unwrap();
    kill_process(watcher, Signal::STOP).unwrap();
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    let second = spawn(&scratch, "second", "1000", None);
    completes(&scratch, second, "second");
    // Nothing else ends it.
    kill_process(watcher, Signal::KILL).unwrap();
}

#[test]
fn worker_whose_clock_is_set_forward_by_hours_completes_the_run() {
    let scratch = Scratch::with_short_leases();
    let clock = FakedClock::new(&scratch, "+0");
    let first = spawn(&scratch, "first", "40", Some(&clock));
    wait_until("the first items", || scratch.lines("seen").len() >= 45);
    clock.set("+3h");
    completes(&scratch, first, "first");
}
