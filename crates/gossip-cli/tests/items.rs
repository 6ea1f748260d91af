//! Items are named by what the user typed: in messages, in `failed`, and for `why` and `retry`.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use support::{Ran, Scratch, finish};

/// Fails for items that contain `bad`, until there is a file `fixed`.
const HANDLER: [&str; 5] =
    ["sh", "-c", "case $1 in *bad*) test -e fixed || exit 7;; esac", "sh", "{}"];

fn run(scratch: &Scratch, args: &[&str], input: &[u8]) -> Ran {
    let mut command = scratch.gossip(args);
    command.stdin(Stdio::piped()).env("XDG_STATE_HOME", scratch.path().join("state"));
    let mut child = command.spawn().unwrap();
    // The binary may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    finish(child)
}

/// Fails one item of a source, and names it in every way of `typed`.
fn check(source: &[&str], input: &[u8], name: &str, typed: &[&str]) {
    for typed in typed {
        let scratch = Scratch::new();
        scratch.file("a/good.jpg", "x");
        scratch.file("a/bad.jpg", "x");
        fs::write(scratch.path().join("urls.txt"), "https://ok/1\nhttps://bad/2\n").unwrap();
        fs::write(scratch.path().join("parts"), b"ok\0bad part\0").unwrap();
        fs::write(scratch.path().join("table.csv"), "name\nok\nbad\n").unwrap();
        let words = [&["exec"][..], source, &["-j", "1", "--tries", "1", "--"], &HANDLER].concat();
        let ran = run(&scratch, &words, input);
        assert_eq!(ran.code, Some(3), "{source:?}: {ran:?}");
        let line = format!("failed: {name}: exit status 7\n");
        assert!(ran.stderr.contains(&line), "{source:?}: {ran:?}");
        let failed = run(&scratch, &["failed", "@last", "-o", "json"], b"");
        let item = format!("\"item\": \"{name}\"");
        assert!(failed.stdout.contains(&item), "{source:?}: {failed:?}");
        let why = run(&scratch, &["why", "@last", typed, "-o", "json"], b"");
        assert!(why.stdout.contains("\"incident\": \"item-failed\""), "{typed}: {why:?}");
        assert!(why.stdout.contains(&format!("failed for {name}: exit status 7")), "{why:?}");
        assert!(why.stdout.contains("fix the cause, then gossip retry "), "{why:?}");
        let retry = run(&scratch, &["retry", "@last", typed], b"");
        assert_eq!(retry.code, Some(0), "{typed}: {retry:?}");
        assert!(retry.stderr.contains("1 item to be tried again"), "{typed}: {retry:?}");
        fs::write(scratch.path().join("fixed"), "").unwrap();
        let again = run(&scratch, &words, input);
        assert_eq!(again.code, Some(0), "{source:?}: {again:?}");
    }
}

#[test]
fn lines_of_a_file() {
    let name = "urls.txt:2 https://bad/2";
    let typed = [name, "urls.txt:2", "https://bad/2", "./urls.txt:2", "2"];
    check(&["@urls.txt"], b"", name, &typed);
}

#[test]
fn parts_of_a_file() {
    check(&["lines0:parts"], b"", "parts:2 bad part", &["bad part", "parts:2"]);
}

#[test]
fn rows_of_a_table() {
    check(&["table.csv"], b"", "table.csv:3", &["table.csv:3", "3", "bad"]);
}

#[test]
fn files_below_a_directory() {
    let typed = ["tree/a/bad.jpg", "./tree/a/bad.jpg", "a/bad.jpg"];
    check(&["tree"], b"", "tree/a/bad.jpg", &typed);
}

#[test]
fn files_of_a_pattern_and_of_several_paths() {
    check(&["tree/a/*.jpg"], b"", "tree/a/bad.jpg", &["tree/a/bad.jpg"]);
    check(&["tree/a/good.jpg", "tree/a/bad.jpg"], b"", "tree/a/bad.jpg", &["tree/a/bad.jpg"]);
}

#[test]
fn standard_input() {
    check(&["-"], b"fine\nbad one\n", "stdin:2 bad one", &["bad one", "stdin:2"]);
    check(&["-", "-0"], b"fine\0bad: 2\0", "bad: 2", &["bad: 2"]);
}

/// A name can be typed where the source is not: the record has it.
#[test]
fn items_of_a_source_that_is_gone_are_named_by_their_records() {
    let scratch = Scratch::new();
    scratch.file("bad.jpg", "x");
    let args = ["exec", "tree", "-j", "1", "--tries", "1", "--"];
    let ran = scratch.run(&[&args[..], &HANDLER].concat());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    fs::remove_dir_all(scratch.tree()).unwrap();
    let why = scratch.run(&["why", "@last", "tree/bad.jpg"]);
    assert!(why.stdout.contains("gossip retry"), "{why:?}");
    let retry = scratch.run(&["retry", "@last", "tree/bad.jpg"]);
    assert!(retry.stderr.contains("1 item to be tried again"), "{retry:?}");
}

#[test]
fn items_of_one_exit_status_are_retried() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..4", "-j", "1", "--tries", "1", "--"];
    let ran = scratch.run(&[&args[..], &["sh", "-c", "exit $(($1 % 3))", "sh", "{}"]].concat());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let retry = |status: &str| scratch.run(&["retry", "@last", "--status", status]).stderr;
    assert!(retry("7").contains("no item to retry"));
    assert!(retry("2").contains("1 item to be tried again"));
    let failed = scratch.run(&["failed", "@last", "-o", "jsonl"]).stdout;
    assert_eq!(failed.lines().count(), 1, "{failed}");
    assert!(failed.contains("\"item\":\"1\"") && failed.contains("\"exit_code\":1"), "{failed}");
}
