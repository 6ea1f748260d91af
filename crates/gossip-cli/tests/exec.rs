//! `gossip exec` with real files, real programs, real signals.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::thread;
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;

use support::{Scratch, finish, signal, wait_until};

/// Appends the number to a file of the test; a line of this length is written in one piece.
const NOTE: [&str; 5] = ["sh", "-c", "echo \"$1\" >> seen", "sh", "{}"];

fn exec<'a>(args: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["exec"], args, &["--"], command].concat()
}

#[test]
fn every_file_is_processed_once_and_a_repeated_command_is_already_done() {
    let scratch = Scratch::new();
    for number in 0..30 {
        scratch.file(format!("d{}/f{number}", number % 3), "x");
    }
    let ran = scratch.run(&exec(&["tree", "--jobs", "2"], &NOTE));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let seen = scratch.lines("seen");
    assert_eq!(seen.len(), 30);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 30);
    assert!(seen.iter().all(|path| scratch.path().join(path).is_file()), "{seen:?}");
    let again = scratch.run(&exec(&["tree", "--jobs", "2"], &NOTE));
    assert_eq!((again.code, scratch.lines("seen").len()), (Some(0), 30));
    assert!(again.stderr.contains("already done"), "{}", again.stderr);
    let restarted = scratch.run(&exec(&["tree", "--restart"], &NOTE));
    let lines = scratch.lines("seen").len();
    assert_eq!((restarted.code, lines), (Some(0), 60), "{}", restarted.stderr);
}

/// Output of the command goes to standard output, messages to standard error.
#[test]
fn output_of_the_command_goes_to_standard_output() {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&["range:0..5"], &["echo", "number {}"]));
    let lines: BTreeSet<_> = ran.stdout.lines().collect();
    assert_eq!(lines, BTreeSet::from(["number 0", "number 1", "number 2", "number 3", "number 4"]));
    assert!(ran.stderr.contains("complete: 5 keys"), "{}", ran.stderr);
    let quiet = scratch.run(&exec(&["range:0..5", "--restart", "-q"], &["true", "number {}"]));
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_outcome_can_be_json() {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&["range:0..5", "-o", "jsonl"], &["true"]));
    assert!(ran.stdout.contains("\"keys\":5") && ran.stdout.contains("\"exit_code\":0"));
}

#[rstest]
#[case::by_kill(Signal::KILL)]
fn a_worker_that_is_killed_loses_no_key(#[case] how: Signal) {
    let scratch = Scratch::with_short_leases();
    let slow = ["sh", "-c", "echo $1 >> seen; sleep 0.01", "sh", "{}"];
    let settings = ["range:0..200", "--lease", "1s", "--jobs", "2", "--checkpoint-keys", "5"];
    let args = exec(&settings, &slow);
    let mut kills = 0;
    for stop_at in [20, 60, 110] {
        let mut child = scratch.gossip(&args).spawn().unwrap();
        wait_until("some keys", || scratch.lines("seen").len() >= stop_at);
        signal(&child, how);
        assert!(!child.wait().unwrap().success());
        kills += 1;
    }
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("complete: 200 keys"), "{}", ran.stderr);
    let seen = scratch.lines("seen");
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), 200, "no key is lost");
    // For each held shard: at most one checkpoint interval and the in-flight item.
    let repeated = seen.len() - distinct.len();
    assert!(repeated <= kills * 2 * 6, "{repeated} keys were repeated");
}

#[rstest]
#[case::term(Signal::TERM)]
#[case::interrupt(Signal::INT)]
#[case::hangup(Signal::HUP)]
fn a_signal_drains_and_nothing_is_done_twice(#[case] how: Signal) {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let args = exec(&["range:0..100", "--jobs", "2"], &slow);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 10);
    signal(&child, how);
    let drained = finish(child);
    assert_eq!(drained.code, Some(130), "{}", drained.stderr);
    assert!(drained.stderr.contains("again to kill "), "{}", drained.stderr);
    assert!(drained.stderr.contains("Run the same command again to resume"), "{}", drained.stderr);
    assert!(scratch.lines("seen").len() < 100);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let seen = scratch.lines("seen");
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (100, 100));
}

/// `timeout` sends its signal twice, to the program and to the group of the program.
#[test]
fn signals_of_one_request_kill_no_command() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "echo $1 >> begun; sleep 1; echo $1 >> seen", "sh", "{}"];
    let child = scratch.gossip(&exec(&["range:0..40", "-j", "2"], &slow)).spawn().unwrap();
    wait_until("two commands", || scratch.lines("begun").len() >= 2);
    signal(&child, Signal::TERM);
    thread::sleep(Duration::from_millis(50));
    signal(&child, Signal::TERM);
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), scratch.lines("begun").len());
}

#[test]
fn second_signal_kills_the_commands_and_exits() {
    let scratch = Scratch::with_short_leases();
    let forever = ["sh", "-c", "echo $$ >> seen; sleep 600", "sh", "{}"];
    let args = exec(&["range:0..4", "--jobs", "1", "--lease", "1s"], &forever);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("a command", || !scratch.lines("seen").is_empty());
    signal(&child, Signal::TERM);
    thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::TERM);
    assert_eq!(finish(child).code, Some(130));
    let pid: i32 = scratch.lines("seen")[0].parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    wait_until("its end", || rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn failed_item_is_parked_and_can_be_unparked() {
    let scratch = Scratch::new();
    // Fails on seven until the file `fixed` exists.
    let script = "test \"$1\" != 7 || test -e fixed && echo $1 >> seen";
    let args = exec(&["range:0..50", "--tries", "1"], &["sh", "-c", script, "sh", "{}"]);
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("exit status 1") && ran.stderr.contains("gossip retry"));
    assert_eq!(scratch.lines("seen").len(), 49);
    let run = run_id(&scratch);
    let parked = scratch.run(&["shard", "list", &run, "--parked", "-o", "jsonl"]);
    assert_eq!(parked.stdout.lines().count(), 1);
    assert!(parked.stdout.contains("\"reason\":\"failed\""), "{}", parked.stdout);
    // The same command reports the same.
    assert_eq!(scratch.run(&args).code, Some(3));
    std::fs::write(scratch.path().join("fixed"), "").unwrap();
    assert_eq!(scratch.run(&["shard", "unpark", &run, "--all"]).code, Some(0));
    let ran = scratch.run(&args);
    assert_eq!((ran.code, scratch.lines("seen").len()), (Some(0), 50), "{}", ran.stderr);
}

fn run_id(scratch: &Scratch) -> String {
    let listed = scratch.run(&["run", "list", "--active", "-o", "jsonl"]);
    let (_, rest) = listed.stdout.split_once("\"run\":\"").expect("a run is listed");
    rest[..16].to_owned()
}

#[test]
fn failed_batch_parks_only_the_bad_item() {
    let scratch = Scratch::new();
    let script = "for key; do test $key != 7 || exit 1; done; for key; do echo $key >> seen; done";
    let args = ["range:0..40", "--batch", "8", "--tries", "1", "--jobs", "1"];
    let ran = scratch.run(&exec(&args, &["sh", "-c", script, "sh", "{}"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let seen: BTreeSet<_> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen.len(), 39);
}

#[test]
fn any_name_reaches_the_command_as_it_is() {
    let scratch = Scratch::new();
    let names: [&[u8]; 4] = [b"new\nline", b"$(touch pwned)", b"-rf", b"not\xFFtext"];
    for name in names {
        scratch.file(OsString::from_vec(name.to_vec()), "x");
    }
    let ran = scratch.run(&exec(&["tree"], &["sh", "-c", "cat \"$1\" >> seen", "sh", "{}"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen"), ["xxxx"]);
    assert!(!scratch.path().join("pwned").exists());
}

#[test]
fn an_empty_source_is_complete() {
    let scratch = Scratch::new();
    let ran = scratch.run(&exec(&["tree"], &["false"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("complete: 0 keys"), "{}", ran.stderr);
}

#[rstest]
#[case::no_such_path(&["exec", "nowhere", "--", "true"], 2, "no such file")]
#[case::no_command(&["exec", "tree"], 2, "COMMAND")]
#[case::script(&["exec", "tree", "--", "sh", "-c", "rm {}"], 2, "would let a name run as code")]
#[case::misplaced(&["exec", "range:0..3", "--ignore", "--", "true"], 2, "--ignore")]
#[case::bad_range(&["exec", "range:5..3", "--", "true"], 2, "smaller number first")]
#[case::bad_url(&["--store", "mysql://x", "run", "list"], 2, "unknown kind of store")]
#[case::no_database(&["--store", "postgres://x", "run", "list"], 2, "postgres://USER@HOST:PORT/DATABASE")]
#[case::no_scheme(&["--store", "store.db", "run", "list"], 2, "sqlite:")]
#[case::no_run(&["run", "show", "0123456789abcdef"], 2, "no such run")]
#[case::no_run_to_join(&["worker", "0123456789abcdef"], 2, "no such run")]
#[case::no_id(&["run", "show", "x/y"], 2, "the id of a run or its first digits")]
#[case::no_duration(&["exec", "tree", "--lease", "5", "--", "true"], 2, "15s")]
#[case::short_lease(&["exec", "tree", "--lease", "1ms", "--", "true"], 2, "--lease is too short")]
#[case::too_many_shards(&["exec", "tree", "--shards", "20000", "--", "true"], 2, "1 to 10000 shards")]
#[case::largest_range(&["exec", "range:0..=18446744073709551615", "--", "true"], 2, "at most 18446744073709551614")]
#[case::no_jobs(&["exec", "tree", "--jobs", "0", "--", "true"], 2, "must be 1 or more")]
#[case::no_batch(&["exec", "tree", "--batch", "0", "--", "true"], 2, "must be 1 or more")]
#[case::no_tries(&["exec", "tree", "--tries", "0", "--", "true"], 2, "must be 1 or more")]
#[case::not_a_number(&["exec", "tree", "--jobs", "x", "--", "true"], 2, "not a whole number")]
#[case::no_rate(&["exec", "tree", "--rate", "0", "--", "true"], 2, "must be 1 or more")]
#[case::no_program(&["exec", "range:0..3", "--", "no-such-program"], 2, "not found")]
#[case::store_is_a_directory(&["--store", "sqlite:tree", "run", "list"], 5, "store")]
#[case::unreachable(&["--store", "etcd://127.0.0.1:1/x", "run", "list"], 5, "store")]
fn bad_input_is_reported_with_the_next_step(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] needle: &str,
) {
    let scratch = Scratch::new();
    // Commands that only read do not create a store.
    assert_eq!(scratch.run(&["exec", "range:7..8", "--", "true"]).code, Some(0));
    let ran = scratch.run(args);
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    assert!(ran.stderr.contains(needle), "{}", ran.stderr);
    assert!(ran.stdout.is_empty() && !ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn changed_settings_are_noticed() {
    let scratch = Scratch::new();
    let fails = exec(&["range:0..5", "--tries", "1"], &["false"]);
    assert_eq!(scratch.run(&fails).code, Some(3));
    let other = scratch.run(&exec(&["range:0..5"], &["true"]));
    assert_eq!(other.code, Some(2), "{}", other.stderr);
    let run = run_id(&scratch);
    assert!(other.stderr.contains(&format!("gossip run cancel {run}")), "{}", other.stderr);
    assert_eq!(scratch.run(&exec(&["range:0..5", "--allow-parallel"], &["true"])).code, Some(0));
    assert_eq!(scratch.run(&["run", "cancel", &run]).code, Some(0));
    assert_eq!(scratch.run(&["run", "rm", &run]).code, Some(0));
    // After a cancelled or deleted run the same command creates the next generation.
    assert_eq!(scratch.run(&fails).code, Some(3));
    assert_ne!(run_id(&scratch), run);
}

#[test]
fn run_is_created_without_work_and_workers_join_it() {
    let scratch = Scratch::new();
    let create = ["run", "create", "range:0..40", "--shards", "5", "--"];
    let made = scratch.run(&[&create[..], &NOTE].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(scratch.lines("seen").is_empty(), "no worker has joined yet");
    let run = made.stdout.trim();
    assert_eq!(run, run_id(&scratch));
    let same = scratch.run(&[&["-o", "jsonl"], &create[..], &NOTE].concat());
    assert_eq!(same.stdout, format!("{{\"run\":\"{run}\",\"state\":\"existing\"}}\n"));
    let joined = scratch.run(&["worker", run]);
    assert_eq!((joined.code, scratch.lines("seen").len()), (Some(0), 40), "{}", joined.stderr);
    // `exec` with the same settings finds the same run.
    let exec = scratch.run(&exec(&["range:0..40"], &NOTE));
    assert!(exec.stderr.contains(run) && exec.stderr.contains("already done"), "{}", exec.stderr);
}

/// The number of shards is the one asked for, or the reason is printed.
#[test]
fn shards_are_as_many_as_asked_for_or_a_note_says_why() {
    let scratch = Scratch::new();
    let create = |source, shards| {
        scratch.run(&["-o", "jsonl", "run", "create", source, "--shards", shards, "--", "true"])
    };
    let made = create("range:0..40000", "5000");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let shown = scratch.run(&["run", "show", &run_id(&scratch), "-o", "jsonl", "--sample", "0s"]);
    assert!(shown.stdout.contains("\"shards\":5000,"), "{}", shown.stdout);
    assert!(!made.stderr.contains("instead of"), "{}", made.stderr);
    let small = create("range:0..9", "5000");
    assert!(small.stderr.contains("2 shards instead of 5000: "), "{}", small.stderr);
}

/// A key is typed as it is printed.
#[test]
fn split_key_is_written_like_the_keys_of_a_listing() {
    let scratch = Scratch::new();
    let create = ["run", "create", "range:0..40", "--shards", "1", "--", "true"];
    let run = scratch.run(&create).stdout;
    let split =
        |at| scratch.run(&["shard", "split", run.trim(), "0000000000000001", "--at", at]).stderr;
    assert!(split("seven").contains("not a key of this run"), "{}", split("seven"));
    assert!(split("7").contains("no worker holds the shard"), "{}", split("7"));
}

#[rstest]
#[case::yes("1", Some(0), "")]
#[case::no("off", Some(0), "complete: 3 keys")]
#[case::invalid("perhaps", Some(2), "--quiet")]
fn environment_variable_sets_a_flag(
    #[case] value: &str,
    #[case] code: Option<i32>,
    #[case] needle: &str,
) {
    let scratch = Scratch::new();
    let mut command = scratch.gossip(&exec(&["range:0..3"], &["true"]));
    let ran = finish(command.env("GOSSIP_QUIET", value).spawn().unwrap());
    assert_eq!(ran.code, code, "{}", ran.stderr);
    assert!(ran.stderr.contains(needle) && ran.stderr.is_empty() == needle.is_empty());
}

#[test]
fn finished_runs_are_listed_until_they_are_deleted() {
    let scratch = Scratch::new();
    assert_eq!(scratch.run(&exec(&["range:0..3"], &["true"])).code, Some(0));
    assert_eq!(scratch.run(&exec(&["range:0..4", "--tries", "1"], &["false"])).code, Some(3));
    let listed = scratch.run(&["run", "list"]);
    assert!(listed.stdout.contains("  done  ") && listed.stdout.contains("  incomplete  "));
    let active = scratch.run(&["run", "list", "--active", "-o", "jsonl"]).stdout;
    assert_eq!(active.lines().count(), 1, "{active}");
    let all = scratch.run(&["run", "list", "-o", "json"]).stdout;
    let done = all.split("\"run\": \"").skip(1).map(|rest| rest[..16].to_owned());
    for run in done {
        let _ = scratch.run(&["run", "cancel", &run]);
        assert_eq!(scratch.run(&["run", "rm", &run]).code, Some(0));
    }
    assert_eq!(scratch.run(&["run", "list", "-o", "json"]).stdout, "[]\n");
}

#[test]
fn run_of_a_changed_file_is_not_resumed() {
    let scratch = Scratch::new();
    scratch.file("list", "a\nb\nc\n");
    let args = exec(&["lines:tree/list", "--tries", "1"], &["test", "b", "!="]);
    assert_eq!(scratch.run(&args).code, Some(3));
    scratch.file("list", "z\na\nb\nc\n");
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("has changed"), "{}", ran.stderr);
}

/// A finished command is done only for the file as it was.
#[test]
fn grown_file_is_not_done() {
    let scratch = Scratch::new();
    scratch.file("list", "a\nb\nc\n");
    let args = exec(&["lines:tree/list"], &NOTE);
    assert_eq!(scratch.run(&args).code, Some(0));
    assert_eq!(scratch.run(&args).code, Some(0), "the unchanged file is done");
    scratch.file("list", "a\nb\nc\nd\n");
    let ran = scratch.run(&args);
    assert_eq!((ran.code, scratch.lines("seen").len()), (Some(2), 3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("has changed") && ran.stderr.contains("--restart"),
        "{}",
        ran.stderr
    );
    let again = exec(&["lines:tree/list", "--restart"], &NOTE);
    assert_eq!(scratch.run(&again).code, Some(0));
    assert_eq!(scratch.lines("seen").len(), 7);
}

/// A nightly job: its ninth run stays unfinished, and the same command resumes it.
#[test]
fn every_generation_of_a_command_is_its_own() {
    let scratch = Scratch::new();
    scratch.file("fine", "");
    let args = ["range:0..2", "--restart", "--tries", "1"];
    let command = ["sh", "-c", "test -e tree/fine", "sh", "{}"];
    for night in 0..8 {
        assert_eq!(scratch.run(&exec(&args, &command)).code, Some(0), "night {night}");
    }
    std::fs::remove_file(scratch.tree().join("fine")).unwrap();
    let unfinished = scratch.run(&exec(&args, &command));
    assert_eq!(unfinished.code, Some(3), "{}", unfinished.stderr);
    let same = scratch.run(&exec(&args, &command));
    assert_eq!(same.code, Some(3), "{}", same.stderr);
    assert!(same.stderr.contains("resuming"), "{}", same.stderr);
}

#[test]
fn several_processes_share_a_run() {
    let scratch = Scratch::new();
    let slow = ["sh", "-c", "echo $1 >> seen; sleep 0.01", "sh", "{}"];
    let args = exec(&["range:0..200", "--jobs", "2"], &slow);
    let first = scratch.gossip(&args).spawn().unwrap();
    wait_until("some keys", || !scratch.lines("seen").is_empty());
    let second = scratch.gossip(&args).spawn().unwrap();
    let third = scratch.gossip(&["worker", &run_id(&scratch)]).spawn().unwrap();
    for child in [first, second, third] {
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let seen = scratch.lines("seen");
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (200, 200));
}

/// A process that is stopped beyond its lease loses its shards and claims others.
#[test]
fn worker_that_resumes_after_its_lease_does_no_harm() {
    let scratch = Scratch::with_short_leases();
    let slow = ["sh", "-c", "echo $1 >> seen; sleep 0.02", "sh", "{}"];
    let args = exec(&["range:0..100", "--jobs", "2", "--lease", "1s"], &slow);
    let stopped = scratch.gossip(&args).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 10);
    signal(&stopped, Signal::STOP);
    let other = scratch.run(&args);
    assert_eq!(other.code, Some(0), "{}", other.stderr);
    assert!(other.stderr.contains("complete: 100 keys"), "{}", other.stderr);
    signal(&stopped, Signal::CONT);
    let stopped = finish(stopped);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("complete: 100 keys"), "counted once: {}", stopped.stderr);
    assert_eq!(scratch.lines("seen").iter().collect::<BTreeSet<_>>().len(), 100);
}

#[test]
fn a_run_can_be_paused_and_resumed() {
    let scratch = Scratch::with_short_leases();
    let slow = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let args = exec(&["range:0..100", "--jobs", "2", "--lease", "1s"], &slow);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("some keys", || !scratch.lines("seen").is_empty());
    let run = run_id(&scratch);
    assert_eq!(scratch.run(&["run", "pause", &run]).code, Some(0));
    let leased = || scratch.run(&["run", "show", &run, "-o", "jsonl"]).stdout;
    wait_until("all shards back", || leased().contains("\"leased\":0"));
    let seen = scratch.lines("seen").len();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(scratch.lines("seen").len(), seen, "no item is processed");
    assert!(leased().contains("\"status\":\"paused\""));
    assert_eq!(scratch.run(&["run", "resume", &run]).code, Some(0));
    assert_eq!(finish(child).code, Some(0));
    assert_eq!(scratch.lines("seen").len(), 100);
}

/// `run show` prints progress and time left; a paused run has no time left.
#[test]
fn run_show_prints_progress_and_time_left() {
    let scratch = Scratch::with_short_leases();
    let slow = ["sh", "-c", "sleep 0.02; echo $1 >> seen", "sh", "{}"];
    let settings = ["range:0..2000", "--jobs", "2", "--lease", "1s", "--checkpoint-keys", "2"];
    let child = scratch.gossip(&exec(&settings, &slow)).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 10);
    let run = run_id(&scratch);
    let show = |more: &[&str]| {
        let shown = scratch.run(&[&["run", "show", &run, "-o", "jsonl"], more].concat());
        serde_json::from_str::<serde_json::Value>(&shown.stdout).unwrap()
    };
    let shown = show(&[]);
    assert_eq!((&shown["total"], &shown["total_kind"]), (&2000.into(), &"exact".into()));
    let fraction = shown["fraction"].as_f64().unwrap();
    assert!(fraction > 0.0 && fraction < 1.0, "{shown}");
    assert!(shown["left_ms"].as_u64().unwrap() > 1000, "{shown}");
    assert!(shown["left_error_ms"].is_u64(), "{shown}");
    assert!(show(&["--sample", "0s"])["left_ms"].is_null(), "one sample has no rate");
    let table = scratch.run(&["run", "show", &run]).stdout;
    let check = |name: &str, needle: &str| {
        let line = table.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains(needle)), "{table}");
    };
    check("progress", " of 2,000 keys (");
    check("left", " ± ");
    assert_eq!(scratch.run(&["run", "pause", &run]).code, Some(0));
    let paused = show(&[]);
    assert_eq!((&paused["status"], &paused["left_ms"]), (&"paused".into(), &().into()));
    assert_eq!(scratch.run(&["run", "cancel", &run]).code, Some(0));
    assert_eq!(finish(child).code, Some(4));
}

/// A shard is handed over on request, and no key is processed twice.
#[test]
fn a_shard_is_handed_to_another_worker() {
    let scratch = Scratch::with_short_leases();
    // The parent process of the command identifies the worker.
    let slow = ["sh", "-c", "sleep 0.05; echo $1 $GOSSIP_SHARD $PPID >> seen", "sh", "{}"];
    let settings = ["range:0..300", "--jobs", "1", "--shards", "1", "--lease", "3s", "--no-split"];
    let first = scratch.gossip(&exec(&settings, &slow)).spawn().unwrap();
    wait_until("some keys", || scratch.lines("seen").len() >= 5);
    let run = run_id(&scratch);
    let second = scratch.gossip(&["worker", &run, "--jobs", "1", "--no-split"]).spawn().unwrap();
    let workers = || scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout;
    wait_until("an idle worker", || workers().contains("\"state\":\"idle\""));
    let requested = scratch.run(&["handoff", "start", &run, "0000000000000001"]);
    assert_eq!(requested.code, Some(0), "{}", requested.stderr);
    let mine = format!(" {}", second.id());
    let moved = || scratch.lines("seen").iter().any(|line| line.ends_with(&mine));
    wait_until("a key of the other worker", moved);
    for child in [first, second] {
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let seen = scratch.lines("seen");
    let keys: BTreeSet<_> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((seen.len(), keys.len()), (300, 300), "each key once");
}

#[rstest]
#[case::cancelled("cancel")]
#[case::failed("fail")]
fn ended_run_stops_its_workers_with_code_4(#[case] end: &str) {
    let scratch = Scratch::with_short_leases();
    let slow = ["sh", "-c", "sleep 0.05; echo $1 >> seen", "sh", "{}"];
    let args = exec(&["range:0..1000", "--jobs", "2", "--lease", "1s"], &slow);
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("some keys", || !scratch.lines("seen").is_empty());
    assert_eq!(scratch.run(&["run", end, &run_id(&scratch)]).code, Some(0));
    assert_eq!(finish(child).code, Some(4));
}

#[rstest]
#[case::hangs("sleep 600", &["--timeout", "300ms"], "timed out")]
#[case::dies("exit 3", &[], "exit status 3")]
fn faulty_command_fails_its_item_and_no_other(
    #[case] bad: &str,
    #[case] more: &[&str],
    #[case] needle: &str,
) {
    let scratch = Scratch::new();
    let script = format!("case $1 in 3) {bad};; esac; echo $1 >> seen");
    let args = [&["range:0..10", "--tries", "1"], more].concat();
    let ran = scratch.run(&exec(&args, &["sh", "-c", &script, "sh", "{}"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(needle), "{}", ran.stderr);
    assert_eq!(scratch.lines("seen").len(), 9);
}

/// The example handlers of the documentation.
#[rstest]
#[case::sh("sh", "count.sh")]
#[case::python("python3", "count.py")]
fn the_stream_handlers_of_the_documentation_work(#[case] program: &str, #[case] name: &str) {
    let scratch = Scratch::new();
    let handler = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/handlers/").to_owned() + name;
    let args = ["range:0..50", "--stream", "--batch", "4"];
    let ran = scratch.run(&exec(&args, &[program, &handler]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let counted: BTreeSet<_> = scratch.lines("counted").into_iter().collect();
    assert_eq!(counted.len(), 50);
}

#[test]
fn a_certificate_is_exported_and_checked() {
    let scratch = Scratch::new();
    for number in 0..30 {
        scratch.file(format!("f{number}"), "x");
    }
    std::fs::write(scratch.path().join("key"), "a secret of enough bytes").unwrap();
    std::fs::write(scratch.path().join("other"), "a secret of other bytes").unwrap();
    let ran = scratch.run(&exec(&["tree", "-o", "jsonl"], &["true"]));
    let run = ran.stdout.split_once("\"run\":\"").unwrap().1[..16].to_owned();
    assert_eq!(scratch.run(&["run", "verify", &run, "--source"]).code, Some(0));
    let export = ["run", "export", &run, "--to", "cert", "--key-file", "key"];
    assert_eq!(scratch.run(&export).code, Some(0));
    let signed = scratch.run(&["verify", "cert", "--key-file", "key", "--source", "tree"]);
    assert_eq!(signed.code, Some(0), "{}", signed.stderr);
    assert!(signed.stdout.contains("signed") && signed.stderr.contains("complete: 30 keys"));
    assert_eq!(scratch.run(&["verify", "cert", "--key-file", "other"]).code, Some(1));
    scratch.file("f30", "x");
    assert_eq!(scratch.run(&["verify", "cert", "--source", "tree"]).code, Some(1));
    let forged = std::fs::read_to_string(scratch.path().join("cert")).unwrap();
    std::fs::write(scratch.path().join("cert"), forged.replacen("30", "29", 1)).unwrap();
    assert_eq!(scratch.run(&["verify", "cert"]).code, Some(1));
}

#[test]
fn too_many_failures_stop_the_worker() {
    let scratch = Scratch::new();
    let args = ["range:0..1000", "--tries", "1", "--max-parked", "5", "--jobs", "2"];
    let ran = scratch.run(&exec(&args, &["false"]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("too many failures"), "{}", ran.stderr);
}

/// The handler reads its items and never replies.
#[test]
fn silent_handler_is_reported_and_does_not_block_a_drain() {
    let scratch = Scratch::new();
    let errors = std::fs::File::create(scratch.path().join("errors")).unwrap();
    let args = ["exec", "range:5..9", "-j", "1", "--stream", "--", "sh", "-c", "cat > /dev/null"];
    let child = scratch.gossip(&args).stderr(errors).spawn().unwrap();
    let has = |text: &str| scratch.lines("errors").iter().any(|line| line.contains(text));
    wait_until("a report of the silence", || has("no reply from the command for 5 s: 5. If"));
    assert!(has("flush its output after each line"), "{:?}", scratch.lines("errors"));
    signal(&child, Signal::TERM);
    assert_eq!(finish(child).code, Some(130), "{:?}", scratch.lines("errors"));
    assert!(has("stopped: 0 keys done. Run the same"), "{:?}", scratch.lines("errors"));
}
