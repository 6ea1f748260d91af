//! Findings: counted once across crashes, and reported by the exit code on request.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use support::{Ran, Scratch, signal, wait_until};

/// Reports a finding for every tenth number.
const ONE_BY_ONE: [&str; 5] = ["sh", "-c", "case $1 in *0) exit 10;; esac", "sh", "{}"];

/// The same as a stream handler, with two findings each.
const RUNNING: [&str; 3] = [
    "sh",
    "-c",
    "while read -r line; do id=${line#*\\\"id\\\":}; id=${id%%,*}; \
     case $line in *'0\",\"text\":'*) found=2;; *) found=0;; esac; \
     echo \"{\\\"type\\\":\\\"done\\\",\\\"id\\\":$id,\\\"findings\\\":$found}\"; done",
];

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec", "-o", "jsonl"], args, &["--"], command].concat()
}

fn findings(ran: &Ran) -> u64 {
    let summary: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    summary["findings"].as_u64().unwrap()
}

#[rstest]
#[case::one_by_one(&["--found-status", "10"], &ONE_BY_ONE, 3)]
#[case::running(&["--stream"], &RUNNING, 6)]
fn findings_are_counted_and_fail_only_on_request(
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
    let restarted = scratch.run(&exec(&[&failing[..], &["--restart"]].concat(), command));
    assert_eq!(restarted.code, Some(10), "{}", restarted.stderr);
}

#[test]
fn no_findings_do_not_fail_and_incomplete_takes_precedence() {
    let scratch = Scratch::new();
    let nothing = exec(&["range:1..9", "--fail-on", "findings"], &["true"]);
    assert_eq!(scratch.run(&nothing).code, Some(0));
    let args = ["range:0..9", "--found-status", "10", "--fail-on", "findings", "--tries", "1"];
    let script = "case $1 in 0) exit 10;; 3) exit 1;; esac";
    let ran = scratch.run(&exec(&args, &["sh", "-c", script, "sh", "{}"]));
    assert_eq!((ran.code, findings(&ran)), (Some(3), 1), "{}", ran.stderr);
}

/// Without the flag an exit status is a failure, and findings must be a number.
#[rstest]
#[case::status(&["range:0..1"], &["sh", "-c", "exit 10"], "exit status 10")]
#[case::not_a_number(
    &["range:0..1", "--stream"],
    &["sh", "-c", "read -r l; echo '{\"type\":\"done\",\"id\":0,\"findings\":\"many\"}'; cat"],
    "handler wrote an invalid reply"
)]
fn only_declared_findings_count(
    #[case] args: &[&str],
    #[case] command: &[&str],
    #[case] needle: &str,
) {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&[args, &["--tries", "1"]].concat(), command));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(needle), "{}", ran.stderr);
}

/// Findings are stored with the cursor, so repeated items are not counted twice.
#[test]
fn finding_counts_once_across_crashes() {
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
