//! `events`, with real processes: workers that are killed or stopped, and a reader that follows.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::fs::File;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use support::{Ran, Scratch, finish, signal, wait_until};

/// A command that waits; once `go` exists it ends at once.
const SCRIPT: &str = "test -e go && exit; echo >> begun; while ! test -e go; do sleep 0.02; done";

/// Starts a worker of a run of two shards.
fn spawn(scratch: &Scratch, lease: &str) -> Child {
    let args = ["exec", "range:0..20", "--shards", "2", "-j", "2", "--lease", lease];
    let mut command = scratch.gossip(&args);
    command.args(["--", "sh", "-c", SCRIPT, "sh", "{}"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts a worker, and waits until it holds both shards and is in the registry.
fn working(scratch: &Scratch, lease: &str) -> Child {
    let child = spawn(scratch, lease);
    wait_until("the commands", || scratch.lines("begun").len() == 2);
    wait_until("the entry in the registry", || {
        scratch.run(&["handoff", "workers", "-o", "jsonl"]).stdout.lines().count() == 1
    });
    child
}

fn go(scratch: &Scratch) {
    File::create(scratch.path().join("go")).unwrap();
}

fn json(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Kind and process id of the events of the first two shards, by shard and without requests and
/// splits, which depend on who was idle.
fn life_of_roots(events: &[Value]) -> Vec<Vec<(String, Option<u64>)>> {
    let mut shards: Vec<&str> = Vec::new();
    let granted = events.iter().filter(|event| event["event"] == "acquired");
    for shard in granted.filter_map(|event| event["shard"].as_str()) {
        if !shards.contains(&shard) && shards.len() < 2 {
            shards.push(shard);
        }
    }
    let life = |shard: &&str| {
        let of_shard = events.iter().filter(|event| event["shard"] == *shard);
        let named =
            of_shard.map(|it| (it["event"].as_str().unwrap().to_owned(), it["pid"].as_u64()));
        named.filter(|(name, _)| !["requested", "split_off"].contains(&&**name)).collect()
    };
    shards.iter().map(life).collect()
}

#[test]
fn events_of_a_killed_worker_and_of_its_successor_are_in_order() {
    let scratch = Scratch::new();
    let mut first = working(&scratch, "10m");
    let following = scratch.gossip(&["events", "@last", "--follow", "-o", "json"]).spawn().unwrap();
    signal(&first, Signal::KILL);
    let killed = u64::from(first.id());
    first.wait().unwrap();
    go(&scratch);
    let second = spawn(&scratch, "10m");
    let successor = u64::from(second.id());
    assert_eq!(finish(second).code, Some(0));
    // It ends with the run.
    let followed = json(&finish(following));
    let events = json(&scratch.run(&["events", "@last", "-o", "json"]));
    let by = |name: &str, pid: u64| (name.to_owned(), Some(pid));
    let expected = [
        by("acquired", killed),
        by("revoked", killed),
        by("acquired", successor),
        by("done", successor),
    ];
    for life in life_of_roots(&events) {
        assert_eq!(life, expected);
    }
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["run_created", "run_active"]);
    assert_eq!(names.last(), Some(&"run_done"));
    assert!(!names.contains(&"gap"), "{names:?}");
    let mut times = events.iter().map(|event| event["at"].as_str().unwrap());
    assert!(times.clone().all(|at| at.ends_with('Z') && at.len() == 24), "RFC 3339");
    assert!(times.by_ref().is_sorted());
    // Every event was printed once while the run was followed.
    let id = |event: &Value| (event["writer"].to_string(), event["sequence"].as_u64());
    let sorted = |events: &[Value]| {
        let mut ids: Vec<_> = events.iter().map(id).collect();
        ids.sort();
        ids
    };
    assert_eq!(sorted(&followed), sorted(&events));
    assert_eq!(followed.last().unwrap()["event"], "run_done");
}

#[test]
fn a_takeover_names_the_worker_that_was_too_late() {
    let scratch = Scratch::with_short_leases();
    let mut first = working(&scratch, "1s");
    signal(&first, Signal::STOP);
    go(&scratch);
    assert_eq!(finish(spawn(&scratch, "1s")).code, Some(0));
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    let text = scratch.run(&["events", "@last"]).stdout;
    let late = format!(":{},", first.id());
    let taken: Vec<&str> = text.lines().filter(|line| line.contains("took over from ")).collect();
    assert_eq!(taken.len(), 2, "{text}");
    assert!(taken.iter().all(|line| line.contains(&late) && line.contains("shard ")), "{text}");
    assert!(text.lines().all(|line| line.contains(" ago  ") || line.starts_with("now ")), "{text}");
}

/// More events than the ring of a process holds.
#[test]
fn events_that_were_overwritten_are_reported_as_a_gap() {
    let scratch = Scratch::new();
    let args = ["exec", "range:0..1500", "--shards", "300", "-j", "4", "--batch", "50"];
    let ran = scratch.run(&[&args[..], &["--", "true"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let entries = json(&scratch.run(&["events", "@last", "-o", "jsonl"]));
    let (gaps, events): (Vec<Value>, Vec<Value>) =
        entries.into_iter().partition(|entry| entry["event"] == "gap");
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!(gap["writer"], events[0]["writer"]);
    assert!((400..=512).contains(&events.len()), "{}", events.len());
    // Two of each shard and three of the run, and more if shards were split.
    let last = events.last().unwrap()["sequence"].as_u64().unwrap();
    let lost = gap["lost"].as_u64().unwrap();
    let all = lost + events.len() as u64;
    assert!((603..=last + 1).contains(&all), "{lost} and {} of {last}", events.len());
    let text = scratch.run(&["events", "@last"]).stdout;
    let first = text.lines().next().unwrap();
    assert!(first.contains(&format!("at least {lost} earlier events of writer ")), "{first}");
}

#[test]
fn since_leaves_out_older_events() {
    let scratch = Scratch::new();
    let ran = scratch.run(&["exec", "range:0..2", "--shards", "1", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let all = scratch.run(&["events", "@last", "--since", "2000-02-29"]);
    assert_eq!(all.stdout.lines().count(), 5, "{}", all.stdout);
    let late = scratch.run(&["events", "@last", "--since", "2100-01-01T00:00:00Z"]);
    assert_eq!((late.stdout.as_str(), late.code), ("", Some(0)));
    assert!(late.stderr.contains("no events"), "{}", late.stderr);
    // A run that is over is followed to its end, which is at once.
    let followed = scratch.run(&["events", "@last", "--follow"]);
    assert_eq!((followed.code, followed.stdout.lines().count()), (Some(0), 5));
    let wrong = scratch.run(&["events", "@last", "--since", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let unknown = scratch.run(&["events", "0123456789abcdef"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
}
