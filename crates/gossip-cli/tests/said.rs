//! What is said is true: nothing unread is called done, JSON is JSON, and a slip of the finger is
//! told before anything is made.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::os::unix::fs::{PermissionsExt as _, symlink};

use rstest::rstest;
use serde_json::Value;

use support::{Ran, Scratch, finish};

/// The value that standard output is, all of it.
fn value(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// A script in a directory of the scratch, which leaves its mark when it runs.
fn script(scratch: &Scratch, directory: &str, mark: &str) {
    let directory = scratch.path().join(directory);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("note.sh");
    let mark = scratch.path().join(mark);
    std::fs::write(&path, format!("#!/bin/sh\necho $1 >> {}\n", mark.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[rstest]
#[case::bundle(&["bash", "-ce", "echo {}"])]
#[case::dashes(&["sh", "-c", "--", "echo {}"])]
#[case::options_behind(&["bash", "-c", "-e", "echo {}"])]
#[case::options_before(&["sh", "-o", "noclobber", "-ceu", "echo {}"])]
#[case::behind_another(&["env", "sh", "-c", "echo {}"])]
#[case::behind_two(&["timeout", "5", "nice", "sh", "-c", "echo {}"])]
#[case::at_the_end(&["sh", "-c"])]
fn a_name_never_runs_as_code(#[case] command: &[&str]) {
    let scratch = Scratch::new();
    scratch.file("$(touch PWNED)", "");
    let ran = scratch.run(&[&["exec", "tree", "--"], command].concat());
    assert!(!scratch.path().join("PWNED").exists(), "{command:?}");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("would let a name run as code"), "{}", ran.stderr);
    assert!(!scratch.store().exists(), "nothing was begun");
}

/// What could not be read is told by everything that tells of the run.
#[test]
fn what_was_not_read_is_not_called_done() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    symlink("nowhere", scratch.tree().join("link")).unwrap();
    let args = ["exec", "tree", "--follow-links", "--", "true"];
    for said in
        ["incomplete: 1 key could not be read, 1 key done", "already over, incomplete: 1 key could"]
    {
        let ran = scratch.run(&args);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("--restart"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("already done"), "{}", ran.stderr);
    }
    let listed = scratch.run(&["run", "list"]).stdout;
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["RUN", "STATUS", "KEYS", "UNREAD"]);
    assert_eq!(lines[1][1..4], ["incomplete", "2", "1"]);
    let shown = scratch.run(&["run", "show", lines[1][0]]);
    assert!(shown.stdout.contains("incomplete"), "{}", shown.stdout);
    assert!(shown.stderr.contains("1 key could not be read"), "{}", shown.stderr);
}

#[test]
fn what_is_set_aside_and_what_was_not_read_are_counted_apart() {
    let scratch = Scratch::new();
    ["a", "b", "c"].iter().for_each(|name| scratch.file(name, ""));
    symlink("nowhere", scratch.tree().join("link")).unwrap();
    let command = ["--", "sh", "-c", "case $1 in */b) exit 1;; esac", "sh", "{}"];
    let ran =
        scratch.run(&[&["exec", "tree", "--follow-links", "--tries", "1"], &command[..]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let said = "incomplete: 1 shard set aside, 1 key could not be read, 2 keys done;";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

#[rstest]
#[case::exec("json")]
#[case::lines("jsonl")]
fn with_json_standard_output_is_json_and_the_rest_is_beside_it(#[case] format: &str) {
    let scratch = Scratch::new();
    let ran = scratch.run(&["exec", "range:0..6", "-o", format, "--", "echo", "hi", "{}"]);
    assert_eq!((ran.code, value(&ran)["keys"].as_u64()), (Some(0), Some(6)), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("hi ").count(), 6, "{}", ran.stderr);
    let made = scratch.run(&["-q", "run", "create", "range:0..3", "--", "echo", "ho"]);
    let joined = scratch.run(&["worker", "-o", format, made.stdout.trim()]);
    assert_eq!(value(&joined)["keys_here"].as_u64(), Some(3), "{}", joined.stderr);
    assert_eq!(joined.stderr.matches("ho ").count(), 3, "{}", joined.stderr);
}

#[rstest]
#[case::by_path("/no/such/program", "was not found")]
#[case::by_name("no-such-program", "was not found")]
#[case::no_program("./tree/file", "may not be run")]
fn a_program_that_is_not_there_leaves_nothing_behind(#[case] program: &str, #[case] why: &str) {
    let scratch = Scratch::new();
    scratch.file("file", "");
    let slip = scratch.run(&["exec", "tree", "--", program, "-c"]);
    assert_eq!(slip.code, Some(1), "{}", slip.stderr);
    assert!(slip.stderr.contains(why) && slip.stderr.contains("nothing was begun"), "{slip:?}");
    let mended = scratch.run(&["exec", "tree", "--", "wc", "-c"]);
    assert_eq!(mended.code, Some(0), "{}", mended.stderr);
}

#[test]
fn the_same_words_in_another_directory_are_another_program() {
    let scratch = Scratch::new();
    script(&scratch, "one", "seen-one");
    script(&scratch, "two", "seen-two");
    let exec = ["exec", "range:0..3", "--", "./note.sh", "{}"];
    for directory in ["one", "two", "one"] {
        let mut command = scratch.gossip(&exec);
        command.current_dir(scratch.path().join(directory));
        let ran = finish(command.spawn().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!([scratch.lines("seen-one").len(), scratch.lines("seen-two").len()], [3, 3]);
    // Whoever joins from elsewhere finds the program.
    let mut create = scratch.gossip(&["-q", "run", "create", "range:0..5", "--", "./note.sh"]);
    let made = finish(create.current_dir(scratch.path().join("one")).spawn().unwrap());
    let joined = scratch.run(&["worker", made.stdout.trim()]);
    assert_eq!((joined.code, scratch.lines("seen-one").len()), (Some(0), 8), "{}", joined.stderr);
}

#[rstest]
#[case::lines("lines:tree/list", "list")]
#[case::rows("tree/list.csv", "list.csv")]
fn a_line_that_is_too_long_is_told_so(#[case] source: &str, #[case] name: &str) {
    let scratch = Scratch::new();
    scratch.file(name, &format!("a\nb\n{}\nc\n", "x".repeat(1024 * 1024 + 1)));
    let ran = scratch.run(&["exec", source, "--", "true", "{}"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("longer than 1048576 bytes"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("the system refuses"), "{}", ran.stderr);
}

#[rstest]
#[case::command(&["--", "true"], "not the same: the command\n")]
#[case::lease(&["--lease", "9s", "--", "false"], "not the same: --lease\n")]
#[case::more(&["--retries", "9", "--stream", "--", "cat"], "the command, --stream, --retries\n")]
fn a_refusal_of_other_settings_names_them(#[case] args: &[&str], #[case] said: &str) {
    let scratch = Scratch::new();
    let first = ["exec", "range:0..5", "--tries", "1", "--", "false"];
    assert_eq!(scratch.run(&first).code, Some(3));
    let refused = scratch.run(&[&["exec", "range:0..5"], args].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
}

/// A store that is named and not there is not made by whoever only looks.
#[rstest]
#[case::runs(&["run", "list"])]
#[case::shards(&["shard", "list", "0123456789abcdef"])]
#[case::moves(&["handoff", "workers"])]
#[case::worker(&["worker", "0123456789abcdef"])]
fn a_mistyped_store_is_told_and_not_made(#[case] args: &[&str]) {
    let scratch = Scratch::new();
    let ran = scratch.run(&[&["--store", "sqlite:typo.db"], args].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("typo.db: there is no such file"), "{}", ran.stderr);
    assert!(!scratch.path().join("typo.db").exists(), "nothing was made");
}
