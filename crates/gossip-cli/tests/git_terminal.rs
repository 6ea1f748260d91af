//! Keys of a terminal while `git` lists and reads a repository for gossip.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use support::{Scratch, finish, wait_until};
use terminal::{CTRL_C, CTRL_Z, Terminal};

const GOSSIP: &str = env!("CARGO_BIN_EXE_gossip");

const SCAN: [&str; 8] =
    ["scan", "git:tree", "--secret-key-file", "key", "-j", "1", "--progress", "none"];

/// A `git` that waits before it lists or reads, until the test creates the file `go`. It notes what
/// it is to do, its process id and its session.
const SLOW_GIT: &str = r#"#!/bin/sh
case "$*" in
*rev-list*) step=list ;;
*"cat-file --batch") step=read ;;
*) exec REAL "$@" ;;
esac
echo "$$ $(cut -d ' ' -f 6 /proc/$$/stat)" >> DIR/$step
while ! test -e DIR/go.$step; do sleep 0.01; done
exec REAL "$@"
"#;

/// A repository with some blobs, and a slow `git`.
fn repository() -> Scratch {
    let scratch = Scratch::new();
    let key = scratch.path().join("key");
    std::fs::write(&key, "07".repeat(32) + "\n").unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    for number in 0..40 {
        scratch.file(format!("{number}"), &format!("content {number}\n"));
    }
    let git = |args: &[&str]| {
        let mut command = scratch.command("git");
        command.args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-C", "tree"]);
        let ran = finish(command.args(args).spawn().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    git(&["init", "--quiet"]);
    git(&["add", "-A"]);
    git(&["commit", "--quiet", "-m", "all"]);
    let found = finish(scratch.command("sh").args(["-c", "command -v git"]).spawn().unwrap());
    let script = SLOW_GIT.replace("REAL", found.stdout.trim());
    let script = script.replace("DIR", scratch.path().to_str().unwrap());
    std::fs::create_dir(scratch.path().join("bin")).unwrap();
    let path = scratch.path().join("bin/git");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    scratch
}

/// Returns a command in whose `PATH` the slow git is the first.
fn with_slow_git(scratch: &Scratch) -> Command {
    let mut command = scratch.command(GOSSIP);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", scratch.path().join("bin").display()));
    command
}

/// Waits until git is at this step, and checks that the terminal cannot reach it.
fn wait_for(scratch: &Scratch, step: &str) {
    wait_until(step, || !scratch.lines(step).is_empty());
    for line in scratch.lines(step) {
        let (process, session) = line.split_once(' ').unwrap();
        assert_eq!(process, session, "git is in the session of the terminal");
    }
}

fn proceed(scratch: &Scratch, step: &str) {
    File::create(scratch.path().join(format!("go.{step}"))).unwrap();
}

#[test]
fn ctrl_z_stops_no_git_and_the_scan_continues() {
    let scratch = repository();
    // The shell continues gossip when the test has seen that it stopped.
    let script = "set -m; \"$@\"; while ! test -e continue; do sleep 0.01; done; fg %1";
    let words = [&["bash", "-c", script, "bash", GOSSIP], &SCAN[..]].concat();
    let mut terminal = Terminal::start(&with_slow_git(&scratch), &words);
    wait_for(&scratch, "list");
    terminal.press(CTRL_Z);
    wait_until("the stop", || terminal.screen().contains("Stopped"));
    // It lists while gossip is stopped.
    proceed(&scratch, "list");
    File::create(scratch.path().join("continue")).unwrap();
    wait_for(&scratch, "read");
    proceed(&scratch, "read");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains("failed"), "{screen}");
}

#[test]
fn ctrl_c_kills_no_git_and_fails_no_blob() {
    let scratch = repository();
    let words = [&["env", "--default-signal", GOSSIP], &SCAN[..]].concat();
    let mut terminal = Terminal::start(&with_slow_git(&scratch), &words);
    wait_for(&scratch, "list");
    proceed(&scratch, "list");
    wait_for(&scratch, "read");
    terminal.press(CTRL_C);
    wait_until("the drain", || terminal.screen().contains("stopping"));
    proceed(&scratch, "read");
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(130), "{screen}");
    assert!(!screen.contains("failed"), "{screen}");
    let again = finish(with_slow_git(&scratch).args(SCAN).spawn().unwrap());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    // One process was enough for the rest.
    assert!(scratch.lines("read").len() <= 2, "{:?}", scratch.lines("read"));
}
