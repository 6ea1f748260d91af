//! Planned handoffs of shards between real processes: requested, withdrawn, handed back.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::process::Child;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use support::{Scratch, finish, signal, wait_until};

/// The only shard of a run with one initial shard.
const SHARD: &str = "0000000000000001";

/// A worker that holds the only shard, and an idle one.
struct Pair {
    scratch: Scratch,
    run: String,
    /// The owner, then the idle worker.
    children: Vec<Child>,
    keys: usize,
    idle: String,
}

impl Pair {
    /// Starts both; an item takes `delay` seconds until [`Self::remove_delay`].
    fn start(lease: &str, keys: usize, delay: &str) -> Self {
        let scratch = Scratch::with_short_leases();
        std::fs::write(scratch.path().join("delay"), delay).unwrap();
        // The parent process of the command identifies the worker.
        let script = "sleep $(cat delay); echo $1 $PPID >> seen";
        let source = format!("range:0..{keys}");
        let args = ["exec", &source, "--jobs", "1", "--shards", "1", "--lease", lease];
        let command = ["--no-split", "--", "sh", "-c", script, "sh", "{}"];
        let first = scratch.gossip(&[&args[..], &command].concat()).spawn().unwrap();
        wait_until("a first key", || !scratch.lines("seen").is_empty());
        let run = jsonl(&scratch, &["run", "list"])[0]["run"].as_str().unwrap().to_owned();
        let known: BTreeSet<_> = workers(&scratch, None).into_iter().collect();
        let join = ["worker", &run, "--jobs", "1", "--no-split"];
        let second = scratch.gossip(&join).spawn().unwrap();
        let mut idle = Vec::new();
        wait_until("an idle worker", || {
            idle = workers(&scratch, Some("idle"));
            idle.retain(|worker| !known.contains(worker));
            !idle.is_empty()
        });
        let idle = idle.remove(0);
        Self { scratch, run, children: vec![first, second], keys, idle }
    }

    fn owner(&self) -> &Child {
        &self.children[0]
    }

    fn other(&self) -> &Child {
        &self.children[1]
    }

    /// Returns the number of keys that a process has processed.
    fn done_by(&self, process: &Child) -> usize {
        let mine = format!(" {}", process.id());
        self.scratch.lines("seen").iter().filter(|line| line.ends_with(&mine)).count()
    }

    /// Waits until a process finishes one more key.
    fn wait_for_key_of(&self, process: &Child) {
        let before = self.done_by(process);
        wait_until("another key", || self.done_by(process) > before);
    }

    /// Requests a handoff to the idle worker.
    fn request(&self) {
        let requested =
            self.scratch.run(&["handoff", "start", &self.run, SHARD, "--to", &self.idle]);
        assert_eq!(requested.code, Some(0), "{}", requested.stderr);
        let next = format!("Show the owner: `gossip shard show {} {SHARD}`", self.run);
        assert!(requested.stderr.contains(&next), "{}", requested.stderr);
    }

    /// Returns the handoffs in progress and the failed ones.
    fn handoffs(&self) -> Vec<Value> {
        jsonl(&self.scratch, &["handoff", "list"])
    }

    fn show(&self, id: &str) -> Value {
        jsonl(&self.scratch, &["handoff", "show", id]).remove(0)
    }

    /// Waits for the offer, and requests its withdrawal.
    fn roll_back(&self) -> String {
        let mut id = String::new();
        wait_until("an offer that is withdrawn", || {
            let handoffs = self.handoffs();
            let Some(found) = handoffs.first() else { return false };
            id = found["handoff"].as_str().unwrap().to_owned();
            // Rejected while the first request to the owner is pending.
            self.scratch.run(&["handoff", "rollback", &id]).code == Some(0)
        });
        id
    }

    /// Lets items finish at once.
    fn remove_delay(&self) {
        std::fs::write(self.scratch.path().join("delay"), "0").unwrap();
    }

    /// Waits for both workers, and checks that every key was processed once.
    fn finish(self) {
        self.remove_delay();
        for child in self.children {
            let ran = finish(child);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        }
        let seen = self.scratch.lines("seen");
        let keys: BTreeSet<_> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!((seen.len(), keys.len()), (self.keys, self.keys), "each key once");
    }
}

fn jsonl(scratch: &Scratch, args: &[&str]) -> Vec<Value> {
    let output = scratch.run(&[args, &["-o", "jsonl"]].concat()).stdout;
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the workers in a state, or all of them.
fn workers(scratch: &Scratch, state: Option<&str>) -> Vec<String> {
    let found = jsonl(scratch, &["handoff", "workers"]).into_iter();
    let found = found.filter(|worker| state.is_none_or(|state| worker["state"] == state));
    found.map(|worker| worker["worker"].as_str().unwrap().to_owned()).collect()
}

/// The coordinator rejects an offer that is longer than the lease allows, so leases of several
/// lengths. An item may take longer than an offer is valid.
#[rstest]
#[case::short_leases("300ms", 200, "0.05")]
#[case::long_leases("3s", 200, "0.05")]
#[case::long_keys("400ms", 20, "2")]
fn shard_is_handed_to_the_named_worker(
    #[case] lease: &str,
    #[case] keys: usize,
    #[case] delay: &str,
) {
    let pair = Pair::start(lease, keys, delay);
    pair.request();
    pair.wait_for_key_of(pair.other());
    pair.finish();
}

/// The destination does not answer. The owner withdraws the offer on request and resumes at once.
#[test]
fn withdrawn_handoff_leaves_the_shard_with_its_owner() {
    let pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.request();
    let id = pair.roll_back();
    wait_until("the end of the handoff", || pair.show(&id)["phase"] == "rolled back");
    let shown = pair.show(&id);
    assert_eq!(shown["error"], "the offer was withdrawn", "{shown}");
    // RFC 3339 in UTC sorts by time.
    let time = |name: &str| shown[name].as_str().unwrap();
    assert!(
        time("last_transition") < time("offer_deadline"),
        "withdrawn before it expired: {shown}"
    );
    pair.wait_for_key_of(pair.owner());
    let again = pair.scratch.run(&["handoff", "rollback", &id]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    signal(pair.other(), Signal::CONT);
    assert_eq!(pair.done_by(pair.other()), 0);
    pair.finish();
}

/// The destination does not answer and the offer is not withdrawn: it expires, and the owner
/// resumes.
#[test]
fn expired_handoff_leaves_the_shard_with_its_owner() {
    let pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.request();
    wait_until("the end of the handoff", || {
        pair.handoffs().first().is_some_and(|found| found["phase"] == "rolled back")
    });
    pair.wait_for_key_of(pair.owner());
    let shard = jsonl(&pair.scratch, &["shard", "show", &pair.run, SHARD]).remove(0);
    assert_eq!(shard["grants"], 1, "it was never released: {shard}");
    signal(pair.other(), Signal::CONT);
    pair.finish();
}

/// After a completed handoff the shard is handed back by another one.
#[test]
fn completed_handoff_is_reversed_by_another_one() {
    let pair = Pair::start("1s", 200, "0.05");
    pair.request();
    pair.wait_for_key_of(pair.other());
    // The record of a completed handoff is deleted; the shard keeps its id.
    let from = {
        let known = workers(&pair.scratch, None);
        known.into_iter().find(|worker| *worker != pair.idle).unwrap()
    };
    let back = ["handoff", "start", &pair.run, SHARD, "--to", &from];
    assert_eq!(pair.scratch.run(&back).code, Some(0));
    pair.wait_for_key_of(pair.owner());
    pair.finish();
}

/// The owner dies with a pending offer, and another worker claims the shard: the handoff can no
/// longer happen, and `rollback` closes its record.
#[test]
fn rollback_closes_the_handoff_of_a_dead_owner() {
    let mut pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.request();
    wait_until("an offer", || {
        pair.handoffs().first().is_some_and(|found| found["phase"] == "transfer")
    });
    let id = pair.handoffs()[0]["handoff"].as_str().unwrap().to_owned();
    signal(pair.owner(), Signal::KILL);
    let mut dead = pair.children.remove(0);
    dead.wait().unwrap();
    let successor = pair.scratch.gossip(&["worker", &pair.run, "--jobs", "1", "--no-split"]);
    pair.children.insert(0, { successor }.spawn().unwrap());
    wait_until("another owner", || pair.done_by(pair.owner()) > 0);
    let closed = pair.scratch.run(&["handoff", "rollback", &id]);
    assert_eq!(closed.code, Some(0), "{}", closed.stderr);
    assert!(closed.stderr.contains("has another owner"), "{}", closed.stderr);
    assert_eq!(pair.show(&id)["phase"], "rolled back");
    signal(pair.other(), Signal::CONT);
    pair.remove_delay();
    for child in pair.children {
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let seen = pair.scratch.lines("seen");
    let keys: BTreeSet<_> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(keys.len(), pair.keys, "no key is lost");
}
