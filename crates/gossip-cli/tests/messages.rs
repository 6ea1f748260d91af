//! Messages are accurate: unread items are not done, JSON output is only JSON, and mistyped
//! arguments are reported before anything is created.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::os::unix::fs::{PermissionsExt as _, symlink};

use rstest::rstest;
use serde_json::Value;

use support::{Ran, Scratch, finish};

/// Parses the whole standard output as one value.
fn value(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Writes a script that appends its argument to the file `seen`.
fn script(scratch: &Scratch, directory: &str, seen: &str) {
    let directory = scratch.path().join(directory);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("note.sh");
    let seen = scratch.path().join(seen);
    std::fs::write(&path, format!("#!/bin/sh\necho $1 >> {}\n", seen.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[rstest]
#[case::bundle(&["bash", "-ce", "echo {}"])]
#[case::dashes(&["sh", "-c", "--", "echo {}"])]
#[case::options_after(&["bash", "-c", "-e", "echo {}"])]
#[case::options_before(&["sh", "-o", "noclobber", "-ceu", "echo {}"])]
#[case::after_env(&["env", "sh", "-c", "echo {}"])]
#[case::after_two_programs(&["timeout", "5", "nice", "sh", "-c", "echo {}"])]
#[case::at_the_end(&["sh", "-c"])]
fn a_name_never_runs_as_code(#[case] command: &[&str]) {
    let scratch = Scratch::new();
    scratch.file("$(touch PWNED)", "");
    let ran = scratch.run(&[&["exec", "tree", "--"], command].concat());
    assert!(!scratch.path().join("PWNED").exists(), "{command:?}");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("would let a name run as code"), "{}", ran.stderr);
    assert!(!scratch.store().exists(), "no store was created");
}

/// Every command that reports on a run reports its unread items.
#[test]
fn unread_item_is_not_reported_as_done() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    symlink("nowhere", scratch.tree().join("link")).unwrap();
    let args = ["exec", "tree", "--follow-links", "--", "true"];
    for text in ["incomplete: 1 item unread, 1 done", "already finished, incomplete: 1 item unread"]
    {
        let ran = scratch.run(&args);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains(text) && ran.stderr.contains("--restart"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("already done"), "{}", ran.stderr);
    }
    let listed = scratch.run(&["run", "list"]).stdout;
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..2], ["NAME", "STATUS"]);
    assert_eq!(lines[1][1], "incomplete");
    let shown = scratch.run(&["run", "show", lines[1][0]]);
    assert!(shown.stdout.contains("incomplete"), "{}", shown.stdout);
    assert!(shown.stderr.contains("1 item could not be read"), "{}", shown.stderr);
}

#[test]
fn failed_and_unread_items_are_counted_separately() {
    let scratch = Scratch::new();
    ["a", "b", "c"].iter().for_each(|name| scratch.file(name, ""));
    symlink("nowhere", scratch.tree().join("link")).unwrap();
    let command = ["--", "sh", "-c", "case $1 in */b) exit 1;; esac", "sh", "{}"];
    let ran =
        scratch.run(&[&["exec", "tree", "--follow-links", "--tries", "1"], &command[..]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let text = "incomplete: 1 item failed, 1 unread, 2 done. List: ";
    assert!(ran.stderr.contains(text), "{}", ran.stderr);
    // Also where the whole run is counted: two of four keys are done, however many were passed.
    let run = value(&scratch.run(&["-o", "json", "run", "list"]))[0]["run"].clone();
    let shown = scratch.run(&["run", "show", run.as_str().unwrap()]);
    assert!(shown.stdout.contains("2 of 4 keys (50 %), 1 unread"), "{}", shown.stdout);
    let counts = value(&scratch.run(&["-o", "json", "run", "show", run.as_str().unwrap()]));
    assert_eq!((&counts["keys"], &counts["unread"]), (&Value::from(2), &Value::from(1)));
}

/// Two names that differ in one byte that is not UTF-8.
#[test]
fn names_that_are_not_utf8_are_distinguished() {
    use std::os::unix::ffi::OsStrExt as _;
    let scratch = Scratch::new();
    for name in [b"a\xFE", b"a\xFF"] {
        scratch.file(std::ffi::OsStr::from_bytes(name), "");
    }
    let ran = scratch.run(&["exec", "tree", "--tries", "1", "--", "false"]);
    for line in ["failed: tree/a\\xfe: exit status 1", "failed: tree/a\\xff: exit status 1"] {
        assert!(ran.stderr.contains(line), "{}", ran.stderr);
    }
}

#[test]
fn quiet_prints_failures_and_nothing_else() {
    let scratch = Scratch::new();
    let failed = scratch.run(&["-q", "exec", "range:0..2", "--tries", "1", "--", "false"]);
    assert_eq!(failed.code, Some(3));
    for text in ["failed: 0: exit status 1", "failed: 1: ", "incomplete: 2 items failed, 0 done"] {
        assert!(failed.stderr.contains(text), "{}", failed.stderr);
    }
    assert_eq!(failed.stderr.lines().count(), 3, "{}", failed.stderr);
    // A try that fails and is repeated is not a failure.
    let flaky = "test -e tried$1 || { : > tried$1; exit 1; }";
    let retried = ["-q", "exec", "range:5..7", "--", "sh", "-c", flaky, "sh", "{}"];
    let retried = scratch.run(&retried);
    assert_eq!((retried.code, retried.stderr.as_str()), (Some(0), ""));
}

#[rstest]
#[case::exec("json")]
#[case::lines("jsonl")]
fn json_output_contains_nothing_but_json(#[case] format: &str) {
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
#[case::by_path("/no/such/program", "not found")]
#[case::by_name("no-such-program", "not found")]
#[case::no_program("./tree/file", "is not executable")]
fn missing_program_leaves_no_run_behind(#[case] program: &str, #[case] why: &str) {
    let scratch = Scratch::new();
    scratch.file("file", "");
    let mistyped = scratch.run(&["exec", "tree", "--", program, "-c"]);
    assert_eq!(mistyped.code, Some(2), "{}", mistyped.stderr);
    assert!(
        mistyped.stderr.contains(why) && mistyped.stderr.contains("no run was created"),
        "{mistyped:?}"
    );
    let fixed = scratch.run(&["exec", "tree", "--", "wc", "-c"]);
    assert_eq!(fixed.code, Some(0), "{}", fixed.stderr);
}

#[test]
fn relative_program_in_another_directory_is_another_command() {
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
    // A worker in another directory finds the program.
    let mut create = scratch.gossip(&["-q", "run", "create", "range:0..5", "--", "./note.sh"]);
    let made = finish(create.current_dir(scratch.path().join("one")).spawn().unwrap());
    let joined = scratch.run(&["worker", made.stdout.trim()]);
    assert_eq!((joined.code, scratch.lines("seen-one").len()), (Some(0), 8), "{}", joined.stderr);
}

#[rstest]
#[case::lines("lines:tree/list", "list")]
#[case::rows("tree/list.csv", "list.csv")]
fn line_that_is_too_long_is_reported(#[case] source: &str, #[case] name: &str) {
    let scratch = Scratch::new();
    scratch.file(name, &format!("a\nb\n{}\nc\n", "x".repeat(1024 * 1024 + 1)));
    let ran = scratch.run(&["exec", source, "--", "true", "{}"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("longer than the limit of 1048576 bytes"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("the system rejects"), "{}", ran.stderr);
}

#[rstest]
#[case::command(&["--", "true"], "settings differ: the command\n")]
#[case::lease(&["--lease", "9s", "--", "false"], "settings differ: --lease\n")]
#[case::more(&["--retries", "9", "--stream", "--", "cat"], "the command, --stream, --retries\n")]
fn error_for_other_settings_names_them(#[case] args: &[&str], #[case] text: &str) {
    let scratch = Scratch::new();
    let first = ["exec", "range:0..5", "--tries", "1", "--", "false"];
    assert_eq!(scratch.run(&first).code, Some(3));
    let refused = scratch.run(&[&["exec", "range:0..5"], args].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains(text), "{}", refused.stderr);
}

/// Commands that only read do not create a missing store.
#[rstest]
#[case::runs(&["run", "list"])]
#[case::shards(&["shard", "list", "0123456789abcdef"])]
#[case::moves(&["handoff", "workers"])]
#[case::worker(&["worker", "0123456789abcdef"])]
fn mistyped_store_is_reported_and_not_created(#[case] args: &[&str]) {
    let scratch = Scratch::new();
    let ran = scratch.run(&[&["--store", "sqlite:typo.db"], args].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("typo.db: no such file"), "{}", ran.stderr);
    assert!(!scratch.path().join("typo.db").exists(), "no file was created");
}

#[test]
fn man_pages_are_printed_and_written() {
    let scratch = Scratch::new();
    let whole = scratch.run(&["man"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(whole.stdout.contains(".TH gossip 1"), "{whole:?}");
    let one = scratch.run(&["man", "retry"]);
    assert_eq!(one.code, Some(0), "{one:?}");
    assert!(one.stdout.contains(".TH ") && one.stdout.contains("\\-\\-status"), "{one:?}");
    let none = scratch.run(&["man", "run", "nothing"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("no such command: run nothing"), "{none:?}");
    assert_eq!(scratch.run(&["man", "--to", "pages"]).code, Some(0));
    let pages = std::fs::read_dir(scratch.path().join("pages")).unwrap();
    let pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    assert!(pages.len() >= 20, "{pages:?}");
    for name in ["gossip.1", "gossip-exec.1", "gossip-run-list.1"] {
        assert!(pages.iter().any(|page| page.ends_with(name)), "{name}: {pages:?}");
    }
    for page in &pages {
        assert!(std::fs::read_to_string(page).unwrap().contains(".TH "), "{page:?}");
    }
}

/// The file of rows is corrected: the advice of every command is `--restart`, and it works, also if
/// the run is not finished because of another item.
#[rstest]
#[case::finished("true", false)]
#[case::unfinished("test \"$1\" != 3", true)]
fn advice_for_unread_rows_agrees_and_works(#[case] script: &str, #[case] is_unfinished: bool) {
    let scratch = Scratch::new();
    scratch.file("rows.jsonl", "{\"a\":1}\nno json\n{\"a\":3}\n");
    let script = format!("test -e fixed || {script}");
    let args = ["exec", "tree/rows.jsonl", "--tries", "1", "--"];
    let args = [&args[..], &["sh", "-c", &script, "sh", "{a}"]].concat();
    let first = scratch.run(&args);
    assert_eq!(first.code, Some(3), "{first:?}");
    for command in [&["failed", "@last"][..], &["retry", "@last", "--all"]] {
        let ran = scratch.run(command);
        assert!(ran.stderr.contains("then repeat the command with --restart"), "{ran:?}");
    }
    scratch.file("rows.jsonl", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
    scratch.file("../fixed", "");
    let refused = scratch.run(&args);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("next: add --restart to"), "{refused:?}");
    let mut restart = args.clone();
    restart.insert(1, "--restart");
    let again = scratch.run(&restart);
    assert_eq!(again.code, Some(0), "{again:?}");
    let cancelled = again.stderr.contains(": cancelled (--restart, its source has changed)\n");
    assert_eq!(cancelled, is_unfinished, "{again:?}");
    assert!(again.stderr.contains("complete: 3 keys"), "{again:?}");
}

#[test]
fn one_parked_shard_is_not_counted_in_the_plural() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..1", "--tries", "1", "--max-parked", "0", "--", "false"];
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("why:  shards parked: 1, more than the 0 allowed"), "{ran:?}");
}
