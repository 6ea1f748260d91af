//! Children as real processes: their inheritance, their end, and the removal of all their traces.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use gossip_stdx::spawn::{Child, Command, running};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, test_kill_process};

/// Nothing here takes longer, on the slowest machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn words(words: &[&str]) -> Vec<CString> {
    words.iter().map(|word| CString::new(*word).unwrap()).collect()
}

/// Starts a shell with `script`, with nothing in its environment but a variable.
fn shell(script: &str, output: &File) -> Child {
    spawn(c"/bin/sh", &["sh", "-c", script], output).unwrap()
}

fn spawn(program: &CStr, arguments: &[&str], output: &File) -> std::io::Result<Child> {
    let null = File::open("/dev/null").unwrap();
    let stderr = std::io::stderr();
    Command {
        program,
        arguments: &words(arguments),
        environment: &[c"NAME=a value"],
        stdio: [null.as_fd(), output.as_fd(), stderr.as_fd()],
        has_session: true,
        is_helper: false,
    }
    .spawn()
}

/// Runs a shell to its end and returns its output.
fn output_of(script: &str) -> String {
    let (output, its_output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let its_output = File::from(its_output);
    let mut child = shell(script, &its_output);
    drop(its_output);
    let mut text = String::new();
    File::from(output).read_to_string(&mut text).unwrap();
    assert!(child.wait(MAX_WAIT).unwrap().unwrap().success(), "{text}");
    text
}

fn null() -> File {
    File::options().write(true).open("/dev/null").unwrap()
}

fn is_gone(id: u32) -> bool {
    test_kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap()).is_err()
}

#[test]
fn child_gets_its_arguments_environment_and_descriptors_only() {
    assert_eq!(output_of("echo \"$NAME\""), "a value\n");
    let listed = output_of("exec /bin/ls /proc/self/fd");
    let given = |number: &&str| !is_inherited(number.parse().unwrap());
    let given: Vec<_> = listed.lines().filter(given).collect();
    // The process that started this test may have left descriptors open; the other one is that of
    // the listing itself.
    assert_eq!(given.len(), 1, "{listed}");
}

/// Returns whether a descriptor of this process is one that programs inherit.
fn is_inherited(number: i32) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.map(|flags| u32::from_str_radix(flags.trim(), 8).unwrap());
    flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
}

/// `O_CLOEXEC`, as the kernel shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// No signal is blocked, and none is ignored that this process did not ignore when it started. The
/// start code of Rust ignores SIGPIPE, which is not passed on.
#[test]
fn child_has_no_blocked_or_newly_ignored_signals() {
    let status = output_of("exec /bin/cat /proc/self/status");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    for name in ["SigPnd:", "ShdPnd:", "SigBlk:"] {
        assert_eq!(signals(&status, name), 0, "{name}");
    }
    // A shell ignores SIGINT and SIGQUIT in its background jobs, and `nohup` SIGHUP.
    assert_eq!(signals(&status, "SigIgn:"), signals(&own, "SigIgn:") & !SIGPIPE);
}

/// SIGPIPE in a mask of signals.
const SIGPIPE: u64 = 1 << (13 - 1);

/// Returns the signals 1 to 31 of the mask `name` in the text of `/proc/PID/status`.
fn signals(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let mask = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
    // `posix_spawn` of the C library, which started this test, ignores two of those above 31.
    mask & 0x7fff_ffff
}

#[test]
fn child_leads_a_session_and_a_group_without_a_terminal() {
    let stat = output_of("exec /bin/cat /proc/self/stat");
    let fields: Vec<&str> = stat.split(' ').collect();
    let (id, group, session, terminal) = (fields[0], fields[4], fields[5], fields[6]);
    assert_eq!((group, session, terminal), (id, id, "0"), "{stat}");
}

#[test]
fn status_and_signal_of_a_child_are_returned() {
    let mut child = shell("exit 7", &null());
    assert_eq!(child.wait(MAX_WAIT).unwrap().unwrap().code(), Some(7));
    let mut child = shell("kill -TERM $$", &null());
    assert_eq!(child.wait(MAX_WAIT).unwrap().unwrap().signal(), Some(15));
}

#[test]
fn waiting_ends_after_the_given_time_and_the_child_runs_on() {
    let mut child = shell("sleep 600", &null());
    assert_eq!(child.wait(Duration::from_millis(10)).unwrap(), None);
    assert!(!child.has_ended() && running() > 0);
    child.kill_group();
    assert_eq!(child.wait(MAX_WAIT).unwrap().unwrap().signal(), Some(9));
    assert!(child.has_ended() && is_gone(child.id()));
}

#[test]
fn dropped_child_is_gone() {
    let child = shell("sleep 600", &null());
    let id = child.id();
    drop(child);
    assert!(is_gone(id));
}

#[test]
fn program_that_cannot_be_executed_is_an_error() {
    let run = |program: &CStr| spawn(program, &["name"], &null()).unwrap_err().kind();
    assert_eq!(run(c"/no/such/program"), ErrorKind::NotFound);
    assert_eq!(run(c"/etc/passwd"), ErrorKind::PermissionDenied);
    let long = "x".repeat(1 << 20);
    let error = spawn(c"/bin/true", &["true", &long], &null()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentListTooLong);
}

/// Threads start children at the same time; none of them is lost, and each gets its own status.
#[test]
fn threads_spawn_concurrently() {
    std::thread::scope(|scope| {
        for status in 1..=8 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut child = shell(&format!("exit {status}"), &null());
                    assert_eq!(child.wait(MAX_WAIT).unwrap().unwrap().code(), Some(status));
                }
            });
        }
    });
}
