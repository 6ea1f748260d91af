//! What a user types: sources, placeholders, exit statuses, limits, plans.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;

use support::{Ran, Scratch, finish, signal, wait_until};

/// Runs the binary with this standard input; its state directory is in the scratch directory.
fn with_input(scratch: &Scratch, args: &[&str], input: &[u8]) -> Ran {
    let mut command = scratch.gossip(args);
    command.stdin(Stdio::piped()).env("XDG_STATE_HOME", scratch.path().join("state"));
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    finish(child)
}

fn lists(scratch: &Scratch) -> Vec<PathBuf> {
    let directory = scratch.path().join("state/gossip/lists");
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A command that failed before the pipe looks like one without items.
#[test]
fn empty_standard_input_is_a_warning() {
    let scratch = Scratch::new();
    let ran = with_input(&scratch, &["-q", "exec", "-", "--", "echo"], b"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = "the source is empty: standard input ended without an item\n";
    assert_eq!(ran.stderr, text, "{ran:?}");
}

#[test]
fn standard_input_is_a_list_that_resumes() {
    let scratch = Scratch::new();
    let args = ["exec", "-", "-j", "1", "--", "echo", "got", "{}"];
    let first = with_input(&scratch, &args, b"one\ntwo words\n");
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(sorted(&first.stdout), ["got one", "got two words"]);
    let kept = lists(&scratch);
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o600);
    // The same content is the same source, however it arrives.
    let again = with_input(&scratch, &args, b"one\ntwo words\n");
    assert_eq!((again.code, &*again.stdout), (Some(0), ""), "{again:?}");
    assert!(again.stderr.contains("already done"), "{again:?}");
    let other = with_input(&scratch, &args, b"three\n");
    assert_eq!(other.stdout, "got three\n");
    assert_eq!(lists(&scratch).len(), 2);
}

#[test]
fn items_that_end_with_a_zero_byte_may_contain_anything_else() {
    let scratch = Scratch::new();
    let args = ["exec", "-0", "-", "-j", "1", "--shards", "1", "--", "printf", "<%s>"];
    let ran = with_input(&scratch, &args, b"a\nb\0c\r\0last");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "<a\nb><c\r><last>"), "{ran:?}");
    let verified = with_input(&scratch, &["run", "verify", "@last", "--source"], b"");
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn interrupted_standard_input_leaves_nothing() {
    let scratch = Scratch::new();
    let mut command = scratch.gossip(&["exec", "-", "--", "true"]);
    command.stdin(Stdio::piped()).env("XDG_STATE_HOME", scratch.path().join("state"));
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    wait_until("the list", || scratch.path().join("state/gossip/lists").is_dir());
    signal(&child, Signal::INT);
    assert!(!child.wait().unwrap().success());
    drop(input);
    assert_eq!(lists(&scratch), Vec::<PathBuf>::new());
    assert!(scratch.run(&["run", "list", "-o", "jsonl"]).stdout.is_empty());
}

#[test]
fn list_of_another_host_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let made = with_input(&scratch, &["run", "create", "-", "--", "true"], b"one\n");
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::remove_dir_all(scratch.path().join("state")).unwrap();
    let joined = scratch.run(&["worker", "@last"]);
    assert_eq!(joined.code, Some(2), "{joined:?}");
    assert!(joined.stderr.contains("another host"), "{joined:?}");
}

#[test]
fn several_paths_and_patterns_are_items() {
    let scratch = Scratch::new();
    scratch.file("b/c.txt", "");
    scratch.file("b/d.log", "");
    scratch.file("a.txt", "");
    let run = |args: &[&str]| {
        let all = [&["exec"][..], args, &["-j", "1", "--restart", "--", "echo", "{}"]].concat();
        with_input(&scratch, &all, b"")
    };
    let ran = run(&["tree/a.txt", "tree/b"]);
    assert_eq!(sorted(&ran.stdout), ["tree/a.txt", "tree/b/c.txt", "tree/b/d.log"], "{ran:?}");
    let ran = run(&["tree/**/*.txt"]);
    assert_eq!(sorted(&ran.stdout), ["tree/a.txt", "tree/b/c.txt"], "{ran:?}");
    let ran = run(&["tree/*.nothing"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no file matches tree/*.nothing"), "{ran:?}");
    let ran = run(&["tree/a.txt", "tree/x"]);
    assert!(ran.stderr.contains("tree/x: no such file or directory"), "{ran:?}");
    fs::write(scratch.path().join("list"), "x\ny\n").unwrap();
    let ran = run(&["@list"]);
    assert_eq!(sorted(&ran.stdout), ["x", "y"], "{ran:?}");
}

#[test]
fn paths_appear_as_they_were_typed() {
    let scratch = Scratch::new();
    scratch.file("sub/a.tar.gz", "");
    let words = ["--", "echo", "{}", "{/}", "{//}", "{.}"];
    let ran = scratch.run(&[&["exec", "tree", "-j", "1"][..], &words].concat());
    assert_eq!(ran.stdout, "tree/sub/a.tar.gz a.tar.gz tree/sub tree/sub/a.tar\n", "{ran:?}");
    let ran = scratch.run(&["exec", "./tree", "-j", "1", "--restart", "--", "echo", "{}"]);
    assert_eq!(ran.stdout, "./tree/sub/a.tar.gz\n", "{ran:?}");
    // A number of a path would depend on the order of listing.
    let ran = scratch.run(&["exec", "tree", "--", "echo", "{#}"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("{#}"), "{ran:?}");
}

#[test]
fn columns_and_numbers_of_rows_are_placeholders() {
    let scratch = Scratch::new();
    let table = "name,\"the, size\"\nx y,1\n\"q \"\"r\"\"\",2\n";
    fs::write(scratch.path().join("t.csv"), table).unwrap();
    let args = ["exec", "t.csv", "-j", "1", "--shards", "1", "--", "echo", "{#}", "{name}"];
    let ran = scratch.run(&args);
    assert_eq!(ran.stdout, "2 x y\n3 q \"r\"\n", "{ran:?}");
    let ran = scratch.run(&["exec", "t.csv", "--", "echo", "{nmae}"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no column `nmae`; the columns are: name"), "{ran:?}");
    fs::write(scratch.path().join("t.jsonl"), "{\"url\":\"a b\",\"n\":1}\n{\"n\":2}\n").unwrap();
    let args = ["exec", "t.jsonl", "-j", "1", "--shards", "1", "--tries", "1", "--"];
    let ran = scratch.run(&[&args[..], &["echo", "{url}={n}"]].concat());
    assert_eq!((ran.code, &*ran.stdout), (Some(3), "a b=1\n"), "{ran:?}");
    assert!(ran.stderr.contains("has no `url`"), "{ran:?}");
}

#[test]
fn grep_can_be_a_handler() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("words"), "good\nbad\n").unwrap();
    let script = "case $1 in good) exit 0;; bad) exit 1;; esac";
    let args = ["exec", "@words", "-j", "1", "--ok-status", "0,1", "--found-status", "0"];
    let more = ["--fail-on", "findings", "--", "sh", "-c", script, "sh", "{}"];
    let ran = scratch.run(&[&args[..], &more].concat());
    assert_eq!(ran.code, Some(10), "{ran:?}");
    assert!(ran.stderr.contains("2 keys, 1 finding"), "{ran:?}");
    let ran = scratch.run(&["exec", "@words", "--found-status", "0", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--ok-status 0,1"), "{ran:?}");
}

#[test]
fn halt_stops_after_failures() {
    let scratch = Scratch::new();
    for halt in ["soon,fail=3", "now,fail=3"] {
        let args = ["exec", "range:0..1000", "-j", "1", "--shards", "1", "--tries", "1"];
        let more = ["--restart", "--replace", "--retries", "5", "--halt", halt, "--", "false"];
        let ran = scratch.run(&[&args[..], &more].concat());
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains("(--halt)"), "{ran:?}");
        let failed = ran.stderr.lines().filter(|line| line.starts_with("failed: ")).count();
        assert!((3..10).contains(&failed), "{halt}: {failed} failed\n{ran:?}");
    }
}

#[test]
fn plan_writes_nothing() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["exec", "range:0..100", "--shards", "5", "--plan", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("100") && ran.stdout.contains('5'), "{ran:?}");
    assert!(!scratch.store().exists());
}

#[test]
fn replace_cancels_the_run_with_other_settings() {
    let scratch = Scratch::new();
    let old = scratch.run(&["run", "create", "range:0..8", "--", "wc"]).stdout.trim().to_owned();
    let refused = scratch.run(&["exec", "range:0..8", "--", "true"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--replace"), "{refused:?}");
    let ran = scratch.run(&["exec", "range:0..8", "--replace", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = scratch.run(&["run", "show", &old, "-o", "jsonl"]);
    assert!(shown.stdout.contains("\"status\":\"cancelled\""), "{shown:?}");
}

#[test]
fn finished_run_says_what_changed_since() {
    let scratch = Scratch::new();
    scratch.file("a", "");
    scratch.file("b", "");
    let exec = ["exec", "tree", "-j", "1", "--", "true"];
    assert_eq!(scratch.run(&exec).code, Some(0));
    assert_eq!(scratch.run(&exec).code, Some(0), "nothing has changed");
    scratch.file("c", "");
    scratch.file("d", "");
    fs::remove_file(scratch.tree().join("a")).unwrap();
    let ran = scratch.run(&exec);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("the source now has"), "{ran:?}");
    assert!(ran.stderr.contains("--restart"), "{ran:?}");
}

#[test]
fn names_and_beginnings_of_ids_name_runs() {
    let scratch = Scratch::new();
    let made = scratch.run(&["run", "create", "range:0..8", "--name", "nightly", "--", "true"]);
    let id = made.stdout.trim().to_owned();
    for typed in ["nightly", "@last", &id[..5], &id] {
        let shown = scratch.run(&["run", "show", typed, "-o", "jsonl"]);
        assert!(shown.stdout.contains(&id), "{typed}: {shown:?}");
    }
    let worked = scratch.run(&["worker", "nightly"]);
    assert_eq!(worked.code, Some(0), "{worked:?}");
    let listed = scratch.run(&["run", "list"]);
    let columns = "NAME     STATUS  PROGRESS  FAILED  WORKERS  ETA  AGE  COMMAND";
    let head: Vec<_> = listed.stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, columns.split_whitespace().collect::<Vec<_>>(), "{listed:?}");
    assert!(listed.stdout.contains("nightly"), "{listed:?}");
    for bad in ["list", "beef", "a b"] {
        let made = scratch.run(&["run", "create", "range:0..9", "--name", bad, "--", "true"]);
        assert_eq!(made.code, Some(2), "{bad}: {made:?}");
    }
}

#[test]
fn workers_are_listed_with_host_and_pid() {
    let scratch = Scratch::new();
    let script = "echo >> started; while ! test -e go; do sleep 0.05; done";
    let args = ["exec", "range:0..4", "-j", "2", "--", "sh", "-c", script, "sh", "{}"];
    let child = scratch.gossip(&args).spawn().unwrap();
    wait_until("a command", || !scratch.lines("started").is_empty());
    let list = || scratch.run(&["worker", "list", "--sample", "0s", "-o", "jsonl"]).stdout;
    let own = format!("\"pid\":{}", child.id());
    wait_until("the worker", || list().contains(&own));
    let listed = list();
    assert!(listed.contains("\"jobs\":2") && !listed.contains("\"host\":null"), "{listed}");
    fs::write(scratch.path().join("go"), "").unwrap();
    assert_eq!(finish(child).code, Some(0));
}

#[test]
fn living_workers_are_listed_before_those_that_are_gone() {
    let scratch = Scratch::new();
    let script = "echo >> started; exec sleep 600";
    let worker = |number: usize| {
        let source = format!("range:0..{}", number + 1);
        let args = ["exec", &source, "-j", "1", "--shards", "1", "--", "sh", "-c", script];
        let child = scratch.gossip(&args).spawn().unwrap();
        wait_until("a command", || scratch.lines("started").len() > number);
        child
    };
    // The second of the living ones is the newest, and the first of them older than all others.
    let first = worker(0);
    let gone: Vec<_> = (1..=5).map(worker).collect();
    let second = worker(6);
    let pids = |list: &[&std::process::Child]| -> Vec<String> {
        list.iter().map(|child| child.id().to_string()).collect()
    };
    let (living, dead) = (pids(&[&second, &first]), pids(&gone.iter().collect::<Vec<_>>()));
    for mut child in gone {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let table = |more: &[&str]| {
        let args = [&["worker", "list", "--sample", "0s", "-o", "wide"], more].concat();
        scratch.run(&args)
    };
    let states = |ran: &Ran| -> Vec<(String, String)> {
        let rows = ran.stdout.lines().skip(1).map(|line| line.split_whitespace());
        rows.map(|mut row| (row.nth(2).unwrap().to_owned(), row.nth(1).unwrap().to_owned()))
            .collect()
    };
    // Their watchers end the commands first.
    let is_gone = |ran: &Ran| states(ran).iter().filter(|(_, state)| state == "gone").count();
    wait_until("the end of the watchers", || is_gone(&table(&["--all"])) == dead.len());
    let all = table(&["--all"]);
    let shown: Vec<_> = states(&all).into_iter().map(|(pid, _)| pid).collect();
    assert_eq!((&shown[..2], shown.len()), (&living[..], 7), "{all:?}");
    let short = table(&[]);
    assert_eq!((is_gone(&short), states(&short).len()), (3, 5), "{short:?}");
    let note = "2 workers more that are gone. List: `gossip worker list --all`\n";
    assert_eq!(short.stderr, note, "{short:?}");
    for mut child in [first, second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn finished_run_over_a_repository_says_what_changed_since() {
    let scratch = Scratch::new();
    let git = |words: &[&str]| {
        let mut command = scratch.command("git");
        let user = ["-c", "user.name=a", "-c", "user.email=a@b"];
        command.args(["-C", "tree"]).args(user).args(words).env("HOME", scratch.path());
        let ran = finish(command.spawn().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    scratch.file("a", "one\n");
    git(&["init", "-q"]);
    git(&["add", "a"]);
    git(&["commit", "-q", "-m", "one"]);
    let exec = ["exec", "git:tree", "-j", "1", "--", "true"];
    let ran = scratch.run(&exec);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(scratch.run(&exec).code, Some(0), "nothing has changed");
    scratch.file("b", "two\n");
    git(&["add", "b"]);
    git(&["commit", "-q", "-m", "two"]);
    let ran = scratch.run(&exec);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("the source now has 1 item more"), "{ran:?}");
}

#[test]
fn run_is_not_renamed() {
    let scratch = Scratch::new();
    let create = |source: &str, name: &[&str]| {
        let args = [&["run", "create", source][..], name, &["--", "true"]].concat();
        scratch.run(&args)
    };
    assert_eq!(create("range:0..8", &["--name", "nightly"]).code, Some(0));
    let ran = create("range:0..8", &["--name", "weekly"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for text in [
        "a run cannot be renamed",
        "exists and has the name nightly",
        "repeat the command with --name nightly",
    ] {
        assert!(ran.stderr.contains(text), "{text}: {ran:?}");
    }
    assert_eq!(create("range:0..9", &[]).code, Some(0));
    let ran = create("range:0..9", &["--name", "weekly"]);
    assert!(ran.stderr.contains("repeat the command without --name"), "{ran:?}");
}

#[test]
fn repository_without_git_is_refused() {
    let scratch = Scratch::new();
    let mut command = scratch.command("env");
    // A directory without programs.
    command.arg(format!("PATH={}", scratch.tree().display()));
    command.arg(env!("CARGO_BIN_EXE_gossip")).args(["exec", "git:.", "--", "/bin/true"]);
    let ran = finish(command.spawn().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("git is not installed"), "{ran:?}");
    assert!(ran.stderr.contains("needs the program `git` in PATH"), "{ran:?}");
}
