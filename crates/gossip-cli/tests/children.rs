//! The commands of `gossip exec` as processes: signals of a terminal, closed output, and the death
//! of their worker.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rstest::rstest;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use support::{Ran, Scratch, finish, is_alive, signal, wait_until, watchers_of};
use terminal::{CTRL_C, CTRL_Z, Terminal};

const GOSSIP: &str = env!("CARGO_BIN_EXE_gossip");

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec"], args, &["--"], command].concat()
}

/// Returns the only run of a store as JSON.
fn only_run(scratch: &Scratch) -> serde_json::Value {
    let listed = scratch.run(&["run", "list", "-o", "jsonl"]);
    let run: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let shown = scratch.run(&["run", "show", run["run"].as_str().unwrap(), "-o", "jsonl"]);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Several trials: a Ctrl-C kills a child only if it comes before the child's exec.
#[test]
fn ctrl_c_on_a_terminal_fails_no_item() {
    for trial in 0..8 {
        let scratch = Scratch::new();
        let args = exec(&["range:0..5000", "-j", "4", "--tries", "1"], &["true", "{}"]);
        let words = [&[GOSSIP], args.as_slice()].concat();
        let mut terminal = Terminal::start(&scratch.command(GOSSIP), &words);
        wait_until("the progress line", || terminal.screen().contains(" of 5,000 keys"));
        thread::sleep(Duration::from_millis(trial * 10));
        terminal.press(CTRL_C);
        let (code, screen) = terminal.finish();
        assert_eq!(code, Some(130), "{screen}");
        assert!(!screen.contains("failed"), "{screen}");
        assert_eq!(only_run(&scratch)["parked"], 0, "{screen}");
    }
}

/// How often Ctrl-Z is pressed.
const PRESSES: usize = 100;

/// The shell continues gossip in the foreground whenever it was stopped.
#[test]
fn ctrl_z_on_a_terminal_stops_gossip_and_no_command() {
    let scratch = Scratch::new();
    // Not a loop: bash leaves a loop whose command was stopped.
    let script = format!("set -m; \"$@\"; {}", "fg %1 2>/dev/null; ".repeat(PRESSES));
    let args = exec(&["range:0..1000", "-j", "4", "--tries", "1"], &["true", "{}"]);
    let words = [&["bash", "-c", &script, "bash", GOSSIP], args.as_slice()].concat();
    let mut terminal = Terminal::start(&scratch.command(GOSSIP), &words);
    for _ in 0..PRESSES {
        if terminal.child.try_wait().unwrap().is_none() {
            terminal.press(CTRL_Z);
        }
        thread::sleep(Duration::from_millis(20));
    }
    wait_until("the end", || terminal.child.try_wait().unwrap().is_some());
    let (_, screen) = terminal.finish();
    assert!(screen.contains("Stopped"), "{screen}");
    assert!(screen.contains("complete: 1,000 keys"), "{screen}");
}

/// A supervisor stops a service by a signal to each of its processes, the commands among them.
#[rstest]
#[case::term(Signal::TERM)]
#[case::interrupt(Signal::INT)]
#[case::hangup(Signal::HUP)]
fn death_by_a_signal_during_a_drain_is_not_a_failure(#[case] how: Signal) {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "echo $$ >> pids; sleep 1; echo $1 >> seen", "sh", "{}"];
    let args = exec(&["range:0..20", "-j", "2", "--tries", "1"], &slow);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("two commands", || scratch.lines("pids").len() >= 2);
    for pid in scratch.lines("pids") {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        // The shell may have finished meanwhile.
        let _ = kill_process(pid, how);
    }
    signal(&child, how);
    let drained = finish(child);
    assert_eq!(drained.code, Some(130), "{}", drained.stderr);
    assert!(!drained.stderr.contains("failed"), "{}", drained.stderr);
    let run = only_run(&scratch);
    assert_eq!(run["parked"], 0, "{run}");
}

/// Without a drain the same death is a failure of the item.
#[test]
fn death_by_a_signal_without_a_drain_is_a_failure() {
    let scratch = Scratch::new();
    let ran = scratch
        .run(&exec(&["range:0..2", "-j", "1", "--tries", "1"], &["sh", "-c", "kill -TERM $$"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("killed by signal 15"), "{}", ran.stderr);
}

fn closed_stderr(scratch: &Scratch, args: &[&str]) -> Ran {
    let mut child = scratch.gossip(args).spawn().unwrap();
    drop(child.stderr.take());
    finish(child)
}

/// `gossip exec … 2>&1 >/dev/null | head -1`.
#[rstest]
#[case::by_a_signal(&["sh", "-c", "exec echo \"k $1\" >&2", "sh", "{}"])]
#[case::by_a_status(&["sh", "-c", "(echo \"k $1\" >&2) || exit 1", "sh", "{}"])]
#[case::quiet(&["sh", "-c", "echo \"k $1\" >&2", "sh", "{}", "-q"])]
fn closed_stderr_parks_nothing(#[case] command: &[&str]) {
    let scratch = Scratch::new();
    let args = exec(&["range:0..2000", "-j", "2", "--tries", "1"], command);
    let ran = closed_stderr(&scratch, &args);
    assert_eq!(ran.code, Some(130), "{}", ran.stdout);
    let run = only_run(&scratch);
    assert_eq!((&run["parked"], &run["status"]), (&0.into(), &"active".into()), "{run}");
}

#[test]
fn handler_that_dies_of_closed_stderr_parks_nothing() {
    let scratch = Scratch::new();
    let handler = "while read -r line; do echo \"$line\" >&2 || exit 1; done";
    let args =
        exec(&["range:0..40", "--stream", "-j", "2", "--tries", "1"], &["sh", "-c", handler]);
    let ran = closed_stderr(&scratch, &args);
    assert_eq!(ran.code, Some(130), "{}", ran.stdout);
    assert_eq!(only_run(&scratch)["parked"], 0);
}

/// The commands write nothing; gossip itself notices that its messages are not read.
#[test]
fn gossip_drains_when_its_own_messages_are_not_read() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "sleep 0.2", "sh", "{}"];
    let ran = closed_stderr(&scratch, &exec(&["range:0..200", "-v", "-j", "2"], &slow));
    assert_eq!(ran.code, Some(130), "{}", ran.stdout);
    assert_eq!(only_run(&scratch)["status"], "active");
}

/// Another process has made the shared pipe non-blocking, and it is full.
#[test]
fn output_to_a_full_non_blocking_pipe_waits_for_its_reader() {
    let scratch = Scratch::new();
    let args = exec(&["range:0..4000", "--shards", "500", "-q"], &["true", "{}"]);
    let made = scratch.run(&[&["run", "create"], &args[1..]].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let list = ["shard", "list", made.stdout.trim(), "-o", "json"];
    let whole = scratch.run(&list).stdout;
    let (mut reader, writer) = std::io::pipe().unwrap();
    let capacity = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    assert!(whole.len() > 2 * capacity, "{} bytes fit the pipe", whole.len());
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut command = scratch.gossip(&list);
    let mut child = command.stdout(Stdio::from(writer)).spawn().unwrap();
    // The command has its own copy of the write end.
    drop(command);
    thread::sleep(Duration::from_millis(300));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((child.wait().unwrap().code(), text.len()), (Some(0), whole.len()));
}

/// It is found when the run is created, and cannot be executed any more when it is started.
#[rstest]
#[case::removed("rm command", "not found")]
#[case::not_executable("chmod -x command", "is not executable")]
fn command_that_cannot_be_executed_any_more_stops_the_run(#[case] change: &str, #[case] why: &str) {
    let scratch = Scratch::new();
    let path = scratch.path().join("command");
    let script = format!("#!/bin/sh\ntest $1 -lt 7 || {change} 2>/dev/null\nexit 0\n");
    std::fs::write(&path, script).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&path).status().unwrap().success());
    let args = ["range:0..50", "-j", "1", "--shards", "1", "--tries", "1"];
    let ran = scratch.run(&exec(&args, &["./command", "{}"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    let run = only_run(&scratch);
    assert_eq!((&run["parked"], &run["keys"]), (&0.into(), &8.into()), "{run}");
}

/// Returns a command of gossip that runs under a shell which ignores some signals.
fn ignoring(scratch: &Scratch, signals: &str, args: &[&str]) -> Command {
    let mut command = scratch.command("sh");
    let script = format!("trap '' {signals}; exec \"$@\"");
    command.args(["-c", &script, "sh", GOSSIP]).args(args);
    command
}

#[test]
fn hangup_that_was_ignored_at_the_start_stays_ignored() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "sleep 0.05; echo $1 >> seen", "sh", "{}"];
    let child =
        ignoring(&scratch, "HUP", &exec(&["range:0..40", "-j", "2"], &slow)).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 4);
    signal(&child, Signal::HUP);
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), 40);
}

/// A closed terminal sends SIGHUP more than once.
#[test]
fn second_hangup_does_not_kill_the_commands() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "echo $1 >> begun; sleep 1; echo $1 >> seen", "sh", "{}"];
    let args = exec(&["range:0..40", "-j", "2"], &slow);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("two commands", || scratch.lines("begun").len() >= 2);
    signal(&child, Signal::HUP);
    thread::sleep(Duration::from_millis(100));
    signal(&child, Signal::HUP);
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), scratch.lines("begun").len());
}

#[test]
fn command_has_three_blocking_descriptors_and_the_signals_of_the_start() {
    let scratch = Scratch::new();
    let script = "ls /proc/self/fd | tr '\\n' ' '; echo; cat /proc/self/fdinfo/1 /proc/self/fdinfo/2 \
                  /proc/self/status";
    let args = exec(&["range:0..1", "-q"], &["sh", "-c", script, "sh", "{}"]);
    let ran = finish(ignoring(&scratch, "HUP QUIT", &args).spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let listed = ran.stdout.lines().next().unwrap();
    let given = |number: &&str| !is_inherited(number);
    let given: Vec<_> = listed.split_whitespace().filter(given).collect();
    // The one more is the listing itself.
    assert_eq!(given.len(), 1, "{listed}");
    let values = |name: &str| {
        let lines = ran.stdout.lines().filter(|line| line.contains(name));
        let values: Vec<_> = lines.map(|line| line.rsplit('\t').next().unwrap()).collect();
        values
    };
    let flags: Vec<_> =
        values("flags:").iter().map(|flags| u32::from_str_radix(flags, 8).unwrap()).collect();
    assert_eq!(flags.len(), 2, "{}", ran.stdout);
    assert!(flags.iter().all(|flags| flags & OFlags::NONBLOCK.bits() == 0), "{flags:?}");
    assert_eq!(values("SigBlk:"), ["0000000000000000"]);
    // SIGHUP is 1 and SIGQUIT is 3.
    let ignored: Vec<_> = values("SigIgn:").iter().map(|set| signals(set)).collect();
    assert_eq!(ignored, [0b101]);
}

/// Parses a set of signals. Those above 31 do not count: `posix_spawn` of the C library, which
/// started the tests, ignores two of them.
fn signals(set: &str) -> u64 {
    u64::from_str_radix(set, 16).unwrap() & 0x7fff_ffff
}

/// Returns whether a descriptor of this process is one that programs inherit: 0, 1, 2, and those
/// that the process which started the tests left open.
fn is_inherited(number: &str) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.map(|flags| u32::from_str_radix(flags.trim(), 8).unwrap());
    flags.is_some_and(|flags| flags & OFlags::CLOEXEC.bits() == 0)
}

#[rstest]
#[case::per_item(&[])]
#[case::kept_running(&["--stream"])]
fn killed_worker_takes_its_commands_and_their_descendants_with_it(#[case] more: &[&str]) {
    let scratch = Scratch::with_short_leases();
    let script = "sleep 600 & echo $! >> pids; sh -c 'sleep 601 & echo $! >> pids; wait' & \
                  echo $! >> pids; echo $$ >> pids; wait";
    let args = [&["range:0..1000", "--shards", "2", "-j", "2", "--lease", "1s"], more].concat();
    let mut child = scratch.gossip(&exec(&args, &["sh", "-c", script])).spawn().unwrap();
    wait_until("two commands", || scratch.lines("pids").len() >= 8);
    let watchers = watchers_of(child.id());
    assert_eq!(watchers.len(), 1, "{watchers:?}");
    let pids: BTreeSet<_> = scratch.lines("pids").into_iter().collect();
    assert!(pids.len() >= 8 && pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("the end of all processes", || pids.iter().all(|pid| !is_alive(pid)));
    wait_until("the end of the watcher", || watchers.iter().all(|pid| !is_alive(pid)));
}

/// The watcher is not left behind for process 1 to wait for.
#[test]
fn watcher_ends_with_a_worker_that_ends() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "sleep 0.05", "sh", "{}"];
    let child = scratch.gossip(&exec(&["range:0..40"], &slow)).spawn().unwrap();
    let id = child.id();
    wait_until("the watcher", || !watchers_of(id).is_empty());
    let watcher = watchers_of(id).remove(0);
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!std::path::Path::new(&format!("/proc/{watcher}")).exists());
}
