//! `gossip why`: twenty incidents with real stores and processes, and the answer to each.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use support::{Scratch, finish, signal, wait_until};

/// As long as no test takes: nothing here waits for the end of a lease.
const LEASE: &str = "10m";

/// A command that works until the test ends.
const BUSY: [&str; 4] = ["sh", "-c", "echo $$ >> started; sleep 600", "sh"];

/// Asks for a run, or with more words for a shard or an item of it, and checks the three parts.
fn why(scratch: &Scratch, words: &[&str]) -> (String, String) {
    let ran = scratch.run(&[&["-o", "json", "why"][..], words].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let field = |name: &str| {
        let (_, rest) = ran.stdout.split_once(&format!("\"{name}\": \"")).unwrap();
        rest.split("\",\n").next().unwrap().split("\"\n}").next().unwrap().to_owned()
    };
    let cause = field("cause");
    assert!(!cause.is_empty() && !cause.contains('\n'), "{ran:?}");
    assert!(ran.stdout.contains("\"evidence\": [\n"), "{ran:?}");
    (field("incident"), field("next"))
}

/// Checks the incident, and that the next command contains some words.
fn check(scratch: &Scratch, words: &[&str], incident: &str, next: &str) {
    let (found, command) = why(scratch, words);
    assert_eq!(found, incident, "{command}");
    assert!(command.contains(next), "{incident}: {command}");
}

fn create(scratch: &Scratch, source: &str, options: &[&str]) -> String {
    let made = scratch.run(&[&["run", "create", source][..], options, &["--", "true"]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    made.stdout.trim().to_owned()
}

/// Starts a process that works on a run with [`BUSY`], and waits until it does.
fn spawn(scratch: &Scratch, items: &str, options: &[&str]) -> Child {
    let before = scratch.lines("started").len();
    let args = ["exec", items, "--shards", "1", "-j", "1", "--lease", LEASE];
    let mut command = scratch.gossip(&[&args[..], options, &["--"], &BUSY].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a command", || scratch.lines("started").len() > before);
    registered(scratch);
    child
}

/// Waits until the registry has a worker.
fn registered(scratch: &Scratch) {
    wait_until("the entry in the registry", || {
        scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout.contains("working")
    });
}

fn kill(mut child: Child) {
    signal(&child, Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn run_without_a_worker() {
    let scratch = Scratch::new();
    let run = create(&scratch, "range:0..8", &["--shards", "2"]);
    check(&scratch, &[], "no-worker", &format!("gossip worker {run}"));
    check(&scratch, &["@last", "7"], "not-yet-reached", "gossip worker");
    check(&scratch, &["@last", "8"], "not-in-source", "spelling");
    check(&scratch, &["@last", "--shard", "2"], "no-worker", "gossip worker");
    assert_eq!(scratch.run(&["run", "pause", &run]).code, Some(0));
    check(&scratch, &[&run[..15]], "paused", &format!("gossip run resume {run}"));
    assert_eq!(scratch.run(&["run", "resume", &run]).code, Some(0));
    assert_eq!(scratch.run(&["run", "cancel", &run]).code, Some(0));
    check(&scratch, &[&run], "cancelled", "repeat its command");
}

#[test]
fn run_that_is_over() {
    let scratch = Scratch::new();
    assert_eq!(scratch.run(&["exec", "range:0..5", "--", "true"]).code, Some(0));
    check(&scratch, &["@last"], "finished", "nothing");
    check(&scratch, &["@last", "3"], "done", "nothing");
    let run = create(&scratch, "range:0..6", &[]);
    assert_eq!(scratch.run(&["run", "fail", &run]).code, Some(0));
    check(&scratch, &[&run], "failed", "repeat its command");
}

#[test]
fn items_that_failed_or_could_not_be_read() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..4", "-j", "1", "--shards", "1", "--tries", "1", "--"];
    let ran = scratch.run(&[&args[..], &["sh", "-c", "test $1 != 2", "sh", "{}"]].concat());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    check(&scratch, &["@last"], "everything-parked", "gossip retry");
    check(&scratch, &["@last", "2"], "item-failed", " 2 and repeat the command");
    check(&scratch, &["@last", "--shard", "1"], "parked", "gossip retry");
    check(&scratch, &["@last", "1"], "done", "nothing");

    let scratch = Scratch::new();
    fs::write(scratch.path().join("rows.jsonl"), "{\"n\":1}\nnothing\n{\"n\":3}\n").unwrap();
    let ran = scratch.run(&["exec", "rows.jsonl", "-j", "1", "--", "true"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    check(&scratch, &["@last"], "unread-items", "--restart");
    check(&scratch, &["@last", "rows.jsonl:2"], "item-unread", "--restart");
    check(&scratch, &["@last", "rows.jsonl:3"], "done", "nothing");
    let shown = scratch.run(&["run", "show", "@last"]);
    assert!(shown.stderr.contains("List: `gossip failed "), "{shown:?}");
}

#[test]
fn source_that_is_gone_or_has_changed() {
    let scratch = Scratch::new();
    let list = scratch.path().join("list.txt");
    fs::write(&list, "one\ntwo\n").unwrap();
    create(&scratch, "lines:list.txt", &[]);
    fs::write(&list, "one\ntwo\nthree\n").unwrap();
    check(&scratch, &["@last"], "source-changed", "with --restart");
    fs::remove_file(&list).unwrap();
    check(&scratch, &["@last"], "source-missing", "gossip worker");
}

#[test]
fn lease_of_a_living_and_of_a_dead_worker() {
    let scratch = Scratch::new();
    let child = spawn(&scratch, "range:0..4", &[]);
    check(&scratch, &["@last"], "in-progress", "gossip run show");
    check(&scratch, &["@last", "3"], "not-yet-reached", "gossip run show");
    let text = scratch.run(&["why", "@last"]).stdout;
    let own = format!(":{}", child.id());
    assert!(text.contains("cause") && text.contains(&own), "{text}");
    kill(child);
    check(&scratch, &["@last"], "dead-worker", "--force");
    let text = scratch.run(&["why", "@last"]).stdout;
    assert!(text.contains("its shards stay leased until its lease ends"), "{text}");
}

#[test]
fn shard_on_which_a_worker_died_too_often() {
    let scratch = Scratch::new();
    for _ in 0..2 {
        kill(spawn(&scratch, "range:0..1", &["--retries", "1"]));
    }
    let args = ["exec", "range:0..1", "--shards", "1", "-j", "1", "--lease", LEASE];
    let more = ["--retries", "1", "--"];
    let ran = scratch.run(&[&args[..], &more, &BUSY].concat());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    check(&scratch, &["@last"], "attempts-exhausted", "gossip retry");
    // A worker that waits before it tries the shard again.
    let more = ["--retries", "1", "--retry-parked", "5", "--retry-parked-after", "10m", "--"];
    let mut command = scratch.gossip(&[&args[..], &more, &BUSY].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a waiting worker", || {
        scratch.run(&["why", "@last", "-o", "json"]).stdout.contains("waiting-for-retry")
    });
    kill(child);
}

#[test]
fn quota_that_is_reached() {
    let scratch = Scratch::new();
    create(&scratch, "range:0..8", &["--shards", "2"]);
    assert_eq!(scratch.run(&["tenant", "limit", "--shards", "2"]).code, Some(0));
    let made = scratch.run(&["run", "create", "range:0..9", "--shards", "2", "--", "true"]);
    assert_eq!(made.code, Some(1), "{made:?}");
    check(&scratch, &["@last"], "quota-reached", "gossip tenant limit");
}

#[test]
fn record_that_is_damaged() {
    let scratch = Scratch::new();
    let run = create(&scratch, "range:0..8", &["--shards", "2"]);
    let mut bytes = fs::read(scratch.store()).unwrap();
    let name = format!("/hot/{run}/0000000000000002");
    let windows = || bytes.windows(name.len()).enumerate();
    let places: Vec<usize> = windows()
        .filter(|(_, window)| *window == name.as_bytes())
        .map(|(at, _)| at + name.len())
        .collect();
    for end in places {
        // The value follows the key and its revision: format 2, then the number of the kind.
        let value = bytes[end..end + 16].windows(2).position(|pair| pair == [2, 3]);
        bytes[end + value.unwrap() + 8] ^= 0x04;
    }
    fs::write(scratch.store(), bytes).unwrap();
    check(&scratch, &[&run], "damaged-record", &format!("gossip shard repair {run}"));
    check(&scratch, &[&run, "--shard", "0000000000000002"], "damaged-record", "shard repair");
}

#[test]
fn store_of_a_newer_format() {
    let scratch = Scratch::new();
    create(&scratch, "range:0..8", &[]);
    // SQLite keeps the number of the format in its header.
    let mut bytes = fs::read(scratch.store()).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(scratch.store(), bytes).unwrap();
    for command in ["why", "doctor"] {
        let ran = scratch.run(&[command]);
        assert_eq!(ran.code, Some(5), "{ran:?}");
        let text = ran.stdout + &ran.stderr;
        assert!(text.contains("newer"), "{command}: {text}");
    }
}

#[test]
fn handoff_that_is_pending() {
    let scratch = Scratch::new();
    // Short items, because an offer waits for those in flight, and a lease that is renewed soon,
    // because the request comes with a renewal.
    let args =
        ["exec", "range:0..10000", "--shards", "1", "-j", "1", "--lease", "3s", "--no-split"];
    let mut first = scratch.gossip(&[&args[..], &["--", "sleep", "0.05"]].concat());
    let first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    registered(&scratch);
    let listed = scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout;
    // A second worker finds no shard to claim, and is stopped before it can accept one.
    let args = ["worker", "@last", "-j", "1", "--no-split", "--"];
    let mut second = scratch.gossip(&[&args[..], &BUSY].concat());
    let second = second.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let idle = || scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout;
    wait_until("an idle worker", || idle().contains("\"idle\""));
    let line = idle()
        .lines()
        .find(|line| !listed.contains(*line) && line.contains("idle"))
        .unwrap()
        .to_owned();
    let (_, rest) = line.split_once("\"worker\":\"").unwrap();
    let worker = rest.split('"').next().unwrap().to_owned();
    signal(&second, Signal::STOP);
    let shard = scratch.run(&["shard", "list", "@last", "-o", "jsonl"]).stdout;
    let (_, rest) = shard
        .lines()
        .find(|line| line.contains("leased"))
        .unwrap()
        .split_once("\"shard\":\"")
        .unwrap();
    let shard = rest.split('"').next().unwrap();
    let asked = scratch.run(&["handoff", "start", "@last", shard, "--to", &worker]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    wait_until("the offer", || {
        scratch.run(&["why", "@last", "-o", "json"]).stdout.contains("handoff-pending")
    });
    kill(first);
    kill(second);
}

/// Returns the library of the Debian package `faketime` (`cargo xtask setup test`).
fn faketime() -> PathBuf {
    let below = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| path.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
    };
    below(Path::new("/usr/lib")).expect("the Debian package faketime is installed")
}

#[test]
fn clock_of_a_worker_that_is_ahead() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..4", "--shards", "1", "-j", "1", "--lease", LEASE, "--"];
    let mut command = scratch.gossip(&[&args[..], &BUSY].concat());
    command.env("LD_PRELOAD", faketime()).env("FAKETIME", "+3h");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a command", || !scratch.lines("started").is_empty());
    registered(&scratch);
    check(&scratch, &["@last"], "clock-skew", "chronyc");
    let doctor = scratch.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.stdout.contains("behind that of a worker"), "{doctor:?}");
    kill(child);
}

/// A store on a full disk of its own. Some containers do not permit mounts, which is printed.
#[test]
fn disk_that_is_full() {
    let scratch = Scratch::new();
    let gossip = env!("CARGO_BIN_EXE_gossip");
    let script = format!(
        "mkdir disk; mount -t tmpfs -o size=4m tmpfs disk || exit 77\n\
         export GOSSIP_STORE=sqlite:disk/store.db\n\
         {gossip} -q run create range:0..4 -- true || exit 1\n\
         head -c 8m /dev/zero > disk/filler\n\
         {gossip} why @last -o json\n{gossip} doctor; echo \"doctor $?\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    support::piped(&mut command).current_dir(scratch.path());
    let ran = finish(command.spawn().unwrap());
    if ran.code == Some(77) || ran.stderr.contains("unshare:") {
        let message = b"a full disk was NOT tested: mounts are not permitted here\n";
        rustix::io::write(std::io::stderr(), message).unwrap();
        return;
    }
    assert!(ran.stdout.contains("\"store-full\""), "{ran:?}");
    assert!(ran.stdout.contains("failed") && ran.stdout.contains("free"), "{ran:?}");
    assert!(!ran.stdout.contains("doctor 0"), "{ran:?}");
}

#[test]
fn doctor_warns_of_a_store_that_every_user_can_read() {
    let scratch = Scratch::new();
    assert_eq!(scratch.run(&["-q", "exec", "range:0..1", "--", "true", "{}"]).code, Some(0));
    assert!(!scratch.run(&["doctor"]).stdout.contains("chmod 600"));
    fs::set_permissions(scratch.store(), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = scratch.run(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let warning = format!("chmod 600 {}", scratch.store().display());
    assert!(ran.stdout.contains(&warning) && ran.stdout.contains("warning"), "{ran:?}");
}

/// The store and the lists of items, which quote what a user typed.
#[test]
fn state_of_gossip_is_for_its_user_only() {
    let scratch = Scratch::new();
    let state = scratch.path().join("state");
    let mut command = scratch.gossip(&["-q", "exec", "-", "--", "true", "{}"]);
    command.env_remove("GOSSIP_STORE").env("XDG_STATE_HOME", &state);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"one\ntwo\n").unwrap();
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut open = vec![state];
    let mut files = 0;
    while let Some(path) = open.pop() {
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
        match found.is_dir() {
            true => open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => files += 1,
        }
    }
    assert!(files >= 2, "the store and the list");
}

/// A real mount. No process answers for it, and none need: the system states the kind of a file
/// system of another user without asking.
#[test]
fn store_on_a_network_file_system_is_refused() {
    let scratch = Scratch::new();
    let gossip = env!("CARGO_BIN_EXE_gossip");
    let options = "fd=3,rootmode=40000,user_id=65534,group_id=65534";
    let script = format!(
        "mkdir far; exec 3<>/dev/fuse && mount -i -t fuse -o {options} far far || exit 77\n\
         {gossip} -q run create range:0..4 --store sqlite:far/store.db -- true\n\
         echo \"refused $?\"\n\
         {gossip} doctor --store sqlite:far/store.db\n\
         store='sqlite:far/store.db?allow_network_file_system=yes'\n\
         {gossip} run list --store \"$store\" 2>&1"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    support::piped(&mut command).current_dir(scratch.path());
    let ran = finish(command.spawn().unwrap());
    if ran.code == Some(77) || ran.stderr.contains("unshare:") {
        rustix::io::write(std::io::stderr(), b"NOT RUN: mounts are not permitted here\n").unwrap();
        return;
    }
    assert!(ran.stdout.contains("refused 5"), "{ran:?}");
    assert!(ran.stderr.contains("fuse is a network file system"), "{ran:?}");
    assert!(ran.stderr.contains("allow_network_file_system=yes"), "{ran:?}");
    // With the setting the kind is no reason: the file itself cannot be reached.
    let (_, allowed) = ran.stdout.split_once("file system").unwrap();
    assert!(allowed.contains("its directory does not exist"), "{ran:?}");
}

/// Without the boot id a power cut would go unnoticed. A mount hides it here.
#[test]
fn relaxed_sync_without_a_boot_id_is_refused() {
    let scratch = Scratch::new();
    let gossip = env!("CARGO_BIN_EXE_gossip");
    let script = format!(
        ": > empty; mount --bind empty /proc/sys/kernel/random/boot_id || exit 77\n\
         {gossip} run create range:0..4 --store 'sqlite:store.db?sync=relaxed' -- true\n\
         echo \"refused $?\"\n\
         {gossip} -q run create range:0..4 --store 'sqlite:store.db?sync=full' -- true\n\
         echo \"full $?\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    support::piped(&mut command).current_dir(scratch.path());
    let ran = finish(command.spawn().unwrap());
    if ran.code == Some(77) || ran.stderr.contains("unshare:") {
        rustix::io::write(std::io::stderr(), b"NOT RUN: mounts are not permitted here\n").unwrap();
        return;
    }
    assert!(ran.stdout.contains("refused 5") && ran.stdout.contains("full 0"), "{ran:?}");
    let text = "sync=relaxed needs the boot id of Linux; use sync=full on this system";
    assert!(ran.stderr.contains(text), "{ran:?}");
}

#[test]
fn doctor_of_a_healthy_machine() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["doctor", "-o", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for check in ["store", "format", "version", "space", "clock", "permissions", "PATH", "quota"] {
        assert!(ran.stdout.contains(&format!("\"check\": \"{check}\"")), "{check}: {ran:?}");
    }
    let unreachable = scratch.run(&["doctor", "--store", "etcd://127.0.0.1:1/x"]);
    assert_eq!(unreachable.code, Some(5), "{unreachable:?}");
}
