//! Sources and handlers that misbehave, with the real binary: a clear message, nothing lost.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use rstest::rstest;

use support::{Ran, Scratch, finish};

/// The user whom the system lets do nothing.
const NOBODY: u32 = 65_534;

/// Appends the key to a file of the test.
const NOTE: [&str; 5] = ["sh", "-c", "echo \"$1\" >> seen", "sh", "{}"];

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec"], args, &["--"], command].concat()
}

/// Runs the binary as somebody without rights, whoever runs the tests.
fn run_as_nobody(scratch: &Scratch, args: &[&str]) -> Ran {
    let mut command = scratch.gossip(args);
    // Root may do anything, so it becomes somebody else. Others have lost the rights they took.
    if fs::metadata(scratch.path()).expect("it was just made").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    finish(command.spawn().expect("a program that was built"))
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn run_id(ran: &Ran) -> String {
    ran.stderr.split_once("run ").expect("it tells its run").1[..16].to_owned()
}

#[test]
fn a_directory_that_may_not_be_read_is_set_aside_until_it_may() {
    let scratch = Scratch::new();
    for name in ["a/1", "closed/2", "closed/3", "z/4"] {
        scratch.file(name, "x");
    }
    allow(scratch.path(), 0o777);
    allow(&scratch.tree().join("closed"), 0o000);
    let args = exec(&["tree"], &NOTE);
    let ran = run_as_nobody(&scratch, &args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let run = run_id(&ran);
    let parked = run_as_nobody(&scratch, &["shard", "list", &run, "--parked", "-o", "jsonl"]);
    assert!(parked.stdout.contains("\"reason\":\"permission denied\""), "{}", parked.stdout);
    let verified = run_as_nobody(&scratch, &["run", "verify", &run]);
    assert_eq!(verified.code, Some(3), "{}", verified.stderr);
    allow(&scratch.tree().join("closed"), 0o755);
    assert_eq!(run_as_nobody(&scratch, &["shard", "unpark", &run, "--all"]).code, Some(0));
    let again = run_as_nobody(&scratch, &args);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let seen: BTreeSet<_> = scratch.lines("seen").into_iter().collect();
    assert_eq!((seen.len(), scratch.lines("seen").len()), (4, 4), "each once");
}

#[test]
fn a_source_that_may_not_be_opened_is_told() {
    let scratch = Scratch::new();
    scratch.file("list", "a\n");
    allow(scratch.path(), 0o777);
    allow(&scratch.tree().join("list"), 0o000);
    let ran = run_as_nobody(&scratch, &exec(&["lines:tree/list"], &["true"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("may not be read"), "{}", ran.stderr);
    allow(&scratch.tree().join("list"), 0o644);
}

#[test]
fn a_store_that_may_not_be_written_is_told() {
    let scratch = Scratch::new();
    allow(scratch.path(), 0o755);
    let ran = run_as_nobody(&scratch, &exec(&["range:0..3"], &["true"]));
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.stderr.contains("--store"), "{}", ran.stderr);
}

/// Names that are no text travel as digits, and no name breaks a line of ours.
#[test]
fn any_name_reaches_a_stream_and_a_listing() {
    let scratch = Scratch::new();
    let names: [&[u8]; 3] = [b"new\nline", b"not\xFFtext", b"plain"];
    for name in names {
        scratch.file(OsString::from_vec(name.to_vec()), "x");
    }
    // Takes down what it is told, and fails everything, so that all names are told to people too.
    let handler = "while read -r line; do printf '%s\\n' \"$line\" >> seen; \
                   id=${line#*\\\"id\\\":}; id=${id%%,*}; \
                   echo \"{\\\"type\\\":\\\"error\\\",\\\"id\\\":$id,\\\"retry\\\":false}\"; done";
    let ran = scratch.run(&exec(&["tree", "--stream", "--jobs", "1"], &["sh", "-c", handler]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told = scratch.lines("seen").join("\n");
    for part in ["\"key\":\"new\\nline\"", "\"key_hex\":\"6e6f74ff74657874\"", "\"key\":\"plain\""]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(ran.stderr.contains("failed: new\\nline: "), "on one line: {}", ran.stderr);
    let run = run_id(&ran);
    let listed = scratch.run(&["shard", "list", &run, "--parked"]);
    assert_eq!(listed.stdout.lines().count(), 4, "a heading and three lines: {}", listed.stdout);
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

/// Keys are places, so equal rows and rows in any order are all done, each once.
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
fn a_row_that_makes_no_sense_is_unread_and_its_neighbours_are_done() {
    let scratch = Scratch::new();
    scratch.file("list.jsonl", "{\"a\":1}\nno json\n{\"a\":2}\n");
    let args = exec(&["tree/list.jsonl"], &NOTE);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("unread: 00000000000000000002"), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), 2);
    // The same again does nothing and says the same.
    assert_eq!((scratch.run(&args).code, scratch.lines("seen").len()), (Some(3), 2));
}

#[test]
fn a_csv_file_that_ends_inside_quotes_is_set_aside() {
    let scratch = Scratch::new();
    scratch.file("list.csv", "a,b\n1,\"2\n");
    let ran = scratch.run(&exec(&["tree/list.csv"], &["true"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot be parsed at position"), "{}", ran.stderr);
}

/// Handlers that are kept running. Each does something bad when it is told of the number 3, and
/// what it is told otherwise it notes and finishes.
#[rstest]
#[case::hangs("sleep 600", "took too long")]
#[case::floods("head -c 200000 /dev/zero | tr '\\0' x; sleep 600", "answered nonsense")]
#[case::chatters("while :; do echo; done", "answered nonsense")]
#[case::exits("exit 7", "exit status 7")]
#[case::dies("kill -9 $$", "ended by signal 9")]
#[case::answers_nonsense("echo nonsense", "answered nonsense")]
#[case::answers_another("echo '{\"type\":\"done\",\"id\":999999}'", "answered nonsense")]
#[case::ends_its_output("exec >&-; sleep 600", "ended its output")]
fn a_stream_that_misbehaves_loses_one_key(#[case] bad: &str, #[case] needle: &str) {
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
    let told = |number: &str| {
        let text = format!("\"text\":\"{number}\"");
        seen.iter().any(|line| line.contains(&text))
    };
    let others = ["0", "1", "2", "4", "5", "6", "7", "8", "9"];
    assert!(others.iter().all(|number| told(number)), "{seen:?}");
    let parked = scratch.run(&["shard", "list", &run_id(&ran), "--parked", "-o", "jsonl"]);
    assert_eq!(parked.stdout.lines().count(), 1, "{}", parked.stdout);
}

/// What handlers write is passed on, however much it is.
#[test]
fn a_command_that_floods_its_output_is_done() {
    let scratch = Scratch::new();
    let flood = ["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo", "sh", "{}"];
    let ran = scratch.run(&exec(&["range:0..4"], &flood));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.len(), 4 * 1_000_001);
}

/// `gossip exec … | head`: nobody reads any more, which is no fault of any key.
#[rstest]
#[case::by_a_signal(&["yes"])]
#[case::by_a_shell(&["sh", "-c", "yes; exit $?", "sh", "{}"])]
fn output_that_nobody_reads_sets_nothing_aside(#[case] command: &[&str]) {
    let scratch = Scratch::new();
    let args = exec(&["range:0..9", "--jobs", "2", "--tries", "1"], command);
    let mut child = scratch.gossip(&args).spawn().expect("a program that was built");
    drop(child.stdout.take());
    let ran = finish(child);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("nobody reads"), "{}", ran.stderr);
    let shown = scratch.run(&["run", "show", &run_id(&ran), "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"parked\":0"), "{}", shown.stdout);
}

#[test]
fn a_handler_that_never_answers_ends_the_worker_and_nothing_is_taken_for_done() {
    let scratch = Scratch::new();
    let args = exec(&["range:0..40", "--stream", "--jobs", "1"], &["sh", "-c", "exit 7"]);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the command does not work"), "{}", ran.stderr);
    let shown = scratch.run(&["run", "show", &run_id(&ran), "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"keys\":0"), "{}", shown.stdout);
}
