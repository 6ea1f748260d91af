//! Faulty sources and handlers, with the real binary: clear errors, and no item is lost.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rstest::rstest;

use support::{Ran, Scratch, finish};

/// User id without any rights.
const UNPRIVILEGED: u32 = 65_534;

/// Appends the item to a file of the test.
const NOTE: [&str; 5] = ["sh", "-c", "echo \"$1\" >> seen", "sh", "{}"];

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec"], args, &["--"], command].concat()
}

/// Runs the binary as a user without rights.
fn run_unprivileged(scratch: &Scratch, args: &[&str]) -> Ran {
    // A copy, because the user may not be allowed to enter the directory of the build: the home of
    // root is closed to others.
    let binary = scratch.path().join("gossip");
    if !binary.exists() {
        // By another program: a child that another test starts meanwhile would hold our open file
        // for a moment, and a file that is open for writing cannot be executed.
        let mut copy = Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_gossip")).arg(&binary).status();
        assert!(copied.expect("cp is installed").success(), "the binary was built");
    }
    let mut command = scratch.command(binary.to_str().expect("a path of ours is text"));
    // Another user may not read the key of the test.
    command.args(args).env_remove("GOSSIP_JOB_KEY_FILE");
    // Root ignores file modes, so it changes to another user. Other users are bound by them.
    if fs::metadata(scratch.path()).expect("it was just created").uid() == 0 {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    finish(command.spawn().expect("the binary was built"))
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("the test owns the file");
}

fn run_id(ran: &Ran) -> String {
    ran.stderr.split_once("run ").expect("it prints its run").1[..16].to_owned()
}

/// The command gets the path of every file; the cause is looked for when it fails.
#[test]
fn unreadable_and_deleted_files_are_not_failures_of_the_command() {
    let scratch = Scratch::new();
    ["a", "closed", "deleted", "z"].iter().for_each(|name| scratch.file(name, "x"));
    allow(scratch.path(), 0o777);
    allow(&scratch.tree(), 0o777);
    allow(&scratch.tree().join("closed"), 0o000);
    // The file is deleted after it was listed.
    let script = "rm -f tree/deleted; for path; do cat \"$path\" > /dev/null || exit 1; done";
    let args = exec(&["tree", "-b4", "-j1"], &["sh", "-c", script, "sh", "{}"]);
    let ran = run_unprivileged(&scratch, &args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("unread: tree/closed: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("incomplete: 1 item unread, 2 done"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("failed: "), "{}", ran.stderr);
}

#[test]
fn a_file_that_a_scan_cannot_read_makes_it_incomplete() {
    let scratch = Scratch::new();
    ["a", "closed", "z"].iter().for_each(|name| scratch.file(name, "x"));
    scratch.file("key", &"07".repeat(32));
    let key = scratch.tree().join("key");
    allow(scratch.path(), 0o777);
    allow(&scratch.tree().join("closed"), 0o000);
    allow(&key, 0o600);
    if fs::metadata(&key).expect("it was just written").uid() == 0 {
        std::os::unix::fs::chown(&key, Some(UNPRIVILEGED), None).expect("root may");
    }
    let args = ["scan", "tree", "--secret-key-file", "tree/key", "--fail-on", "findings"];
    let ran = run_unprivileged(&scratch, &args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("unread: tree/closed: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 item unread, 3 done"), "{}", ran.stderr);
}

#[test]
fn unreadable_directory_is_parked_until_access_is_granted() {
    let scratch = Scratch::new();
    for name in ["a/1", "closed/2", "closed/3", "z/4"] {
        scratch.file(name, "x");
    }
    allow(scratch.path(), 0o777);
    allow(&scratch.tree().join("closed"), 0o000);
    let args = exec(&["tree"], &NOTE);
    let ran = run_unprivileged(&scratch, &args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let run = run_id(&ran);
    let parked = run_unprivileged(&scratch, &["shard", "list", &run, "--parked", "-o", "jsonl"]);
    assert!(ran.stderr.contains("cannot list closed/: the source may not be"), "{}", ran.stderr);
    assert!(parked.stdout.contains("\"reason\":\"permission denied\""), "{}", parked.stdout);
    assert!(parked.stdout.contains("\"error\":\"closed/: the source may"), "{}", parked.stdout);
    let verified = run_unprivileged(&scratch, &["run", "verify", &run]);
    assert_eq!(verified.code, Some(3), "{}", verified.stderr);
    // The same counts in every command: the directory is a parked range and no failed item.
    let listed = run_unprivileged(&scratch, &["run", "list", "-o", "jsonl"]);
    assert!(listed.stdout.contains("\"failed\":0"), "{}", listed.stdout);
    assert!(listed.stdout.contains("\"parked\":1"), "{}", listed.stdout);
    let failed = run_unprivileged(&scratch, &["failed", &run]);
    assert!(failed.stderr.starts_with("1 shard parked. Retry: "), "{}", failed.stderr);
    allow(&scratch.tree().join("closed"), 0o755);
    let retried = run_unprivileged(&scratch, &["retry", &run, "--all"]);
    assert!(retried.stderr.starts_with("1 shard to be tried again. "), "{}", retried.stderr);
    let again = run_unprivileged(&scratch, &args);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let seen: BTreeSet<_> = scratch.lines("seen").into_iter().collect();
    assert_eq!((seen.len(), scratch.lines("seen").len()), (4, 4), "each once");
}

#[test]
fn source_without_read_permission_is_an_error() {
    let scratch = Scratch::new();
    scratch.file("list", "a\n");
    allow(scratch.path(), 0o777);
    allow(&scratch.tree().join("list"), 0o000);
    let ran = run_unprivileged(&scratch, &exec(&["lines:tree/list"], &["true"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("may not be read"), "{}", ran.stderr);
    allow(&scratch.tree().join("list"), 0o644);
}

#[test]
fn store_without_write_permission_is_an_error() {
    let scratch = Scratch::new();
    allow(scratch.path(), 0o755);
    let ran = run_unprivileged(&scratch, &exec(&["range:0..3"], &["true"]));
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.stderr.contains("--store"), "{}", ran.stderr);
}

/// Names that are not UTF-8 are sent as hexadecimal digits, and no name breaks a line of output.
#[test]
fn any_name_reaches_a_stream_and_a_listing() {
    let scratch = Scratch::new();
    let names: [&[u8]; 3] = [b"new\nline", b"not\xFFtext", b"plain"];
    for name in names {
        scratch.file(OsString::from_vec(name.to_vec()), "x");
    }
    // Writes its input to a file and fails every item, so that all names are printed, too.
    let handler = "while read -r line; do printf '%s\\n' \"$line\" >> seen; \
                   id=${line#*\\\"id\\\":}; id=${id%%,*}; \
                   echo \"{\\\"type\\\":\\\"error\\\",\\\"id\\\":$id,\\\"retry\\\":false}\"; done";
    let ran = scratch.run(&exec(&["tree", "--stream", "--jobs", "1"], &["sh", "-c", handler]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let input = scratch.lines("seen").join("\n");
    for part in ["\"key\":\"new\\nline\"", "\"key_hex\":\"6e6f74ff74657874\"", "\"key\":\"plain\""]
    {
        assert!(input.contains(part), "{part} in {input}");
    }
    assert!(ran.stderr.contains("failed: tree/new\\nline: "), "on one line: {}", ran.stderr);
    let run = run_id(&ran);
    let listed = scratch.run(&["shard", "list", &run, "--parked"]);
    assert_eq!(listed.stdout.lines().count(), 4, "a heading and three lines: {}", listed.stdout);
    assert!(listed.stdout.contains("not\\xfftext"), "escaped: {}", listed.stdout);
    let json = scratch.run(&["shard", "list", &run, "--parked", "-o", "jsonl"]);
    assert!(json.stdout.contains("_hex\":"), "{}", json.stdout);
}

#[rstest]
#[case::no_lines("list", "", "lines:tree/list")]
#[case::no_rows("list.jsonl", "", "tree/list.jsonl")]
#[case::blank_rows("list.jsonl", "\n\n", "tree/list.jsonl")]
#[case::only_a_header("list.csv", "a,b\n", "tree/list.csv")]
#[case::no_numbers("list", "", "range:5..5")]
fn an_empty_source_is_complete(#[case] name: &str, #[case] content: &str, #[case] source: &str) {
    let scratch = Scratch::new();
    scratch.file(name, content);
    let ran = scratch.run(&exec(&[source], &["false"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("complete: 0 keys"), "{}", ran.stderr);
    let verified = scratch.run(&["run", "verify", &run_id(&ran), "--source"]);
    assert_eq!(verified.code, Some(0), "{}", verified.stderr);
}

/// Keys are positions, so equal and unsorted rows are processed once each.
#[rstest]
#[case::lines("list", "b\na\nb\nb\n", "lines:tree/list")]
#[case::rows("list.csv", "h\nb\na\nb\nb\n", "tree/list.csv")]
fn equal_and_unsorted_rows_are_all_done(
    #[case] name: &str,
    #[case] content: &str,
    #[case] source: &str,
) {
    let scratch = Scratch::new();
    scratch.file(name, content);
    let ran = scratch.run(&exec(&[source], &NOTE));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut seen = scratch.lines("seen");
    seen.sort();
    assert_eq!(seen, ["a", "b", "b", "b"]);
}

#[test]
fn malformed_row_is_unread_and_the_other_rows_are_done() {
    let scratch = Scratch::new();
    scratch.file("list.jsonl", "{\"a\":1}\nno json\n{\"a\":2}\n");
    let args = exec(&["tree/list.jsonl"], &NOTE);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("unread: tree/list.jsonl:2: "), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), 2);
    // The same command processes nothing and reports the same.
    assert_eq!((scratch.run(&args).code, scratch.lines("seen").len()), (Some(3), 2));
}

#[test]
fn csv_file_that_ends_inside_quotes_is_parked() {
    let scratch = Scratch::new();
    scratch.file("list.csv", "a,b\n1,\"2\n");
    let ran = scratch.run(&exec(&["tree/list.csv"], &["true"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot be parsed at position"), "{}", ran.stderr);
}

/// Stream handlers that misbehave on the number 3, and record and finish every other item.
#[rstest]
#[case::hangs("sleep 600", "timed out")]
#[case::floods("head -c 200000 /dev/zero | tr '\\0' x; sleep 600", "more than 65536 bytes")]
#[case::empty_lines("while :; do echo; done", "invalid JSON: ``")]
#[case::exits("exit 7", "exit status 7")]
#[case::dies("kill -9 $$", "killed by signal 9")]
#[case::invalid_json("echo processing 0", "invalid JSON: `processing 0`")]
#[case::unknown_id("echo '{\"type\":\"done\",\"id\":999999}'", "invalid reply: `{")]
#[case::ends_its_output("exec >&-; sleep 600", "closed its output")]
fn faulty_stream_handler_fails_one_item(#[case] bad: &str, #[case] needle: &str) {
    let scratch = Scratch::new();
    let handler = format!(
        "while read -r line; do id=${{line#*\\\"id\\\":}}; id=${{id%%,*}}; \
         case $line in *'\"text\":\"3\"'*) {bad};; esac; \
         echo \"$line\" >> seen; echo \"{{\\\"type\\\":\\\"done\\\",\\\"id\\\":$id}}\"; done"
    );
    let args = ["range:0..10", "--stream", "--tries", "1", "--timeout", "2s", "--batch", "2"];
    let ran = scratch.run(&exec(&args, &["sh", "-c", &handler]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(needle), "{}", ran.stderr);
    let seen = scratch.lines("seen");
    let is_seen = |number: &str| {
        let text = format!("\"text\":\"{number}\"");
        seen.iter().any(|line| line.contains(&text))
    };
    let others = ["0", "1", "2", "4", "5", "6", "7", "8", "9"];
    assert!(others.iter().all(|number| is_seen(number)), "{seen:?}");
    let parked = scratch.run(&["shard", "list", &run_id(&ran), "--parked", "-o", "jsonl"]);
    assert_eq!(parked.stdout.lines().count(), 1, "{}", parked.stdout);
}

/// Output of commands is passed on without a limit.
#[test]
fn command_with_large_output_is_done() {
    let scratch = Scratch::new();
    let flood = ["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo", "sh", "{}"];
    let ran = scratch.run(&exec(&["range:0..4"], &flood));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.len(), 4 * 1_000_001);
}

/// `gossip exec … | head`: a closed pipe is not a failure of an item.
#[rstest]
#[case::by_a_signal(&["yes"])]
#[case::by_a_shell(&["sh", "-c", "yes; exit $?", "sh", "{}"])]
fn closed_output_parks_nothing(#[case] command: &[&str]) {
    let scratch = Scratch::new();
    let args = exec(&["range:0..9", "--jobs", "2", "--tries", "1"], command);
    let mut child = scratch.gossip(&args).spawn().expect("the binary was built");
    drop(child.stdout.take());
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(ran.stderr.contains("output closed"), "{}", ran.stderr);
    let shown = scratch.run(&["run", "show", &run_id(&ran), "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"parked\":0"), "{}", shown.stdout);
}

#[test]
fn handler_that_never_replies_stops_the_worker_and_nothing_is_done() {
    let scratch = Scratch::new();
    let args = exec(&["range:0..40", "--stream", "--jobs", "1"], &["sh", "-c", "exit 7"]);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("without finishing one"), "{}", ran.stderr);
    let shown = scratch.run(&["run", "show", &run_id(&ran), "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"keys\":0"), "{}", shown.stdout);
}
