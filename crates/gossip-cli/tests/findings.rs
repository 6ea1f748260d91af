//! What handlers find: counted once whatever crashes, and told by the exit code if that is asked.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use support::{Ran, Scratch, signal, wait_until};

/// Finds something in every tenth number.
const ONE_BY_ONE: [&str; 5] = ["sh", "-c", "case $1 in *0) exit 10;; esac", "sh", "{}"];

/// The same, kept running; two findings each.
const RUNNING: [&str; 3] = [
    "sh",
    "-c",
    "while read -r line; do id=${line#*\\\"id\\\":}; id=${id%%,*}; \
     case $line in *'0\",\"type\"'*) found=2;; *) found=0;; esac; \
     echo \"{\\\"type\\\":\\\"done\\\",\\\"id\\\":$id,\\\"findings\\\":$found}\"; done",
];

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec", "-o", "jsonl"], args, &["--"], command].concat()
}

fn findings(ran: &Ran) -> u64 {
    let said: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    said["findings"].as_u64().unwrap()
}

#[rstest]
#[case::one_by_one(&["--found-status", "10"], &ONE_BY_ONE, 3)]
#[case::running(&["--stream"], &RUNNING, 6)]
fn findings_are_counted_and_fail_only_if_asked(
    #[case] more: &[&str],
    #[case] command: &[&str],
    #[case] number: u64,
) {
    let scratch = Scratch::new();
    let args = [&["range:0..30"], more].concat();
    let ran = scratch.run(&exec(&args, command));
    assert_eq!((ran.code, findings(&ran)), (Some(0), number), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("30 keys, {number} findings")), "{}", ran.stderr);
    let failing = [&args[..], &["--fail-on", "findings"]].concat();
    let again = scratch.run(&exec(&failing, command));
    assert_eq!((again.code, findings(&again)), (Some(10), number), "{}", again.stderr);
    let anew = scratch.run(&exec(&[&failing[..], &["--restart"]].concat(), command));
    assert_eq!(anew.code, Some(10), "{}", anew.stderr);
}

#[test]
fn nothing_found_fails_nothing_and_what_is_missing_beats_what_is_found() {
    let scratch = Scratch::new();
    let nothing = exec(&["range:1..9", "--fail-on", "findings"], &["true"]);
    assert_eq!(scratch.run(&nothing).code, Some(0));
    let args = ["range:0..9", "--found-status", "10", "--fail-on", "findings", "--tries", "1"];
    let script = "case $1 in 0) exit 10;; 3) exit 1;; esac";
    let ran = scratch.run(&exec(&args, &["sh", "-c", script, "sh", "{}"]));
    assert_eq!((ran.code, findings(&ran)), (Some(3), 1), "{}", ran.stderr);
}

/// Without the flag an exit status is a failure like any other, and nonsense is no number.
#[rstest]
#[case::status(&["range:0..1"], &["sh", "-c", "exit 10"], "exit status 10")]
#[case::nonsense(
    &["range:0..1", "--stream"],
    &["sh", "-c", "read -r l; echo '{\"type\":\"done\",\"id\":0,\"findings\":\"many\"}'; cat"],
    "answered nonsense"
)]
fn what_nobody_named_is_no_finding(
    #[case] args: &[&str],
    #[case] command: &[&str],
    #[case] needle: &str,
) {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&[args, &["--tries", "1"]].concat(), command));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(needle), "{}", ran.stderr);
}

/// The number travels with the cursor: what is done again is not counted again.
#[test]
fn a_finding_counts_once_whatever_crashes() {
    let scratch = Scratch::with_short_leases();
    let script = "echo $1 >> seen; sleep 0.01; case $1 in *0) exit 10;; esac";
    let settings = ["range:0..200", "--lease", "1s", "--jobs", "2", "--checkpoint-keys", "7"];
    let args = [&settings[..], &["--found-status", "10", "--fail-on", "findings"]].concat();
    let args = exec(&args, &["sh", "-c", script, "sh", "{}"]);
    for stop_at in [30, 90] {
        let mut child = scratch.gossip(&args).spawn().unwrap();
        wait_until("some keys", || scratch.lines("seen").len() >= stop_at);
        signal(&child, Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }
    let ran = scratch.run(&args);
    assert_eq!((ran.code, findings(&ran)), (Some(10), 20), "{}", ran.stderr);
}
