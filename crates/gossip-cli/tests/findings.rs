//! Findings: counted once across crashes, and reported by the exit code on request.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use gossip::prelude::*;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use support::{Ran, Scratch, finish, signal, wait_until};

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

/// Findings are stored with the cursor, so repeated items are neither counted nor listed twice.
#[rstest]
#[case::one_by_one(
    &["--found-status", "10"],
    &["sh", "-c", "echo $1 >> seen; sleep 0.01; echo found $1; case $1 in *0) exit 10;; esac",
      "sh", "{}"],
)]
#[case::running(
    &["--stream=lines"],
    &["sh", "-c", "while read -r n; do echo $n >> seen; sleep 0.01; \
       case $n in *0) echo found 1 found $n;; *) echo ok;; esac; done"],
)]
fn finding_counts_once_across_crashes(#[case] more: &[&str], #[case] command: &[&str]) {
    let scratch = Scratch::with_short_leases();
    let settings = ["range:0..200", "--lease", "1s", "--jobs", "2", "--checkpoint-keys", "7"];
    let args = [&settings[..], more, &["--fail-on", "findings"]].concat();
    let args = exec(&args, command);
    for stop_at in [30, 90] {
        let mut child = scratch.gossip(&args).spawn().unwrap();
        wait_until("some keys", || scratch.lines("seen").len() >= stop_at);
        signal(&child, Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }
    let ran = scratch.run(&args);
    assert_eq!((ran.code, findings(&ran)), (Some(10), 20), "{}", ran.stderr);
    let shown = scratch.run(&["findings", "@last", "-o", "jsonl", "--fail-on", "findings"]);
    assert_eq!((shown.code, findings(&shown)), (Some(10), 20), "{}", shown.stderr);
    let found = stored(&shown);
    let said: Vec<_> = found.iter().map(|it| it["text"].as_str().unwrap().trim_end()).collect();
    let expected: Vec<_> = (0..20).map(|tens| format!("found {}", tens * 10)).collect();
    assert_eq!(said, expected);
}

/// Returns the findings that were listed.
fn stored(ran: &Ran) -> Vec<Value> {
    let values = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    values.filter(|it| it["type"] == "finding").collect()
}

/// With `-q`, and with `--ungroup`, there is no output to store.
#[rstest]
#[case::with_text(&[], &["grep", "password", "{}"], "password = x\npassword = y\n")]
#[case::quiet(&[], &["grep", "-q", "password", "{}"], "")]
#[case::not_captured(&["--ungroup"], &["grep", "password", "{}"], "")]
fn findings_of_commands_are_listed(
    #[case] more: &[&str],
    #[case] command: &[&str],
    #[case] text: &str,
) {
    let scratch = Scratch::new();
    scratch.file("p1", "password = x\npassword = y\n");
    scratch.file("p2", "nothing\n");
    let paths = ["p1", "p2"].map(|name| scratch.tree().join(name).display().to_string());
    let args = [&paths[0], &paths[1], "--ok-status", "0,1", "--found-status", "0"];
    let mut gossip = scratch.gossip(&exec(&[&args, more].concat(), command));
    // Several paths are kept as a list there.
    let ran = finish(gossip.env("XDG_STATE_HOME", scratch.path()).spawn().unwrap());
    assert!(ran.stderr.contains("2 keys, 1 finding"), "{}", ran.stderr);
    let shown = scratch.run(&["findings", "@last", "-o", "jsonl"]);
    assert_eq!((shown.code, findings(&shown)), (Some(0), 1), "{}", shown.stderr);
    let [found] = &stored(&shown)[..] else { panic!("{}", shown.stdout) };
    assert!(found["item"].as_str().unwrap().contains("p1"), "{found}");
    assert_eq!((&found["exit_code"], &found["text"]), (&Value::from(0), &Value::from(text)));
    let table = scratch.run(&["findings", "@last"]);
    let line = table.stdout.lines().nth(1).unwrap();
    assert!(line.contains("p1") && line.contains("exit 0"), "{}", table.stdout);
    assert_eq!(line.contains("password = x"), !text.is_empty(), "{}", table.stdout);
    assert_eq!(table.stderr.lines().last(), Some("1 finding"), "{}", table.stderr);
}

#[test]
fn replies_with_findings_are_listed_with_their_number() {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&["range:0..30", "--stream"], &RUNNING));
    assert_eq!(findings(&ran), 6, "{}", ran.stderr);
    let shown = scratch.run(&["findings", "@last", "-o", "jsonl"]);
    assert_eq!(findings(&shown), 6, "{}", shown.stderr);
    let items: Vec<_> = stored(&shown).iter().map(|it| it["item"].clone()).collect();
    assert_eq!(items, ["0", "10", "20"]);
    let table = scratch.run(&["findings", "@last"]);
    assert!(table.stdout.contains("reply"), "{}", table.stdout);
    assert!(table.stderr.ends_with("6 findings\n"), "{}", table.stderr);
}

/// A closure counts findings and stores none; so did `exec` of older versions.
#[test]
fn findings_that_were_only_counted_are_not_denied() {
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.store().display());
    let counting = Scan::of("range:0..3").store(store).each(|item| {
        item.add_findings(2);
        Ok(())
    });
    assert_eq!(counting.unwrap().totals.findings, 6);
    let shown = scratch.run(&["findings", "@last", "--fail-on", "findings"]);
    assert_eq!((shown.code, &*shown.stdout), (Some(10), ""), "{}", shown.stderr);
    let said = "6 findings; 6 only counted: their items are not stored\n";
    assert!(shown.stderr.ends_with(said), "{}", shown.stderr);
}

#[test]
fn options_of_a_scan_are_refused_for_findings_of_commands() {
    let scratch = Scratch::new();
    let none = scratch.run(&exec(&["range:0..3", "--found-status", "10"], &["true"]));
    assert_eq!(none.code, Some(0), "{}", none.stderr);
    let shown = scratch.run(&["findings", "@last"]);
    assert_eq!((shown.code, &*shown.stderr), (Some(0), "0 findings\n"));
    let refused = scratch.run(&["findings", "@last", "-o", "sarif"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("-o sarif needs a scan"), "{}", refused.stderr);
}
