//! Planned moves of shards between real processes: asked for, taken back, asked back.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::process::Child;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use support::{Scratch, finish, signal, wait_until};

/// The only shard of a run that was begun with one.
const SHARD: &str = "0000000000000001";

/// One worker that has the only shard, and one that has nothing to do.
struct Pair {
    scratch: Scratch,
    run: String,
    /// Taken when they are waited for.
    children: Vec<Child>,
    keys: usize,
    idle: String,
}

impl Pair {
    /// Starts both; a key takes `nap` seconds, until [`Self::hurry`].
    fn start(lease: &str, keys: usize, nap: &str) -> Self {
        let scratch = Scratch::with_short_leases();
        std::fs::write(scratch.path().join("nap"), nap).unwrap();
        // Who works is told by the process that started the command.
        let script = "sleep $(cat nap); echo $1 $PPID >> seen";
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

    /// How many keys a process has done.
    fn done_by(&self, process: &Child) -> usize {
        let mine = format!(" {}", process.id());
        self.scratch.lines("seen").iter().filter(|line| line.ends_with(&mine)).count()
    }

    /// Waits until a process does another key than it has by now.
    fn wait_for_key_of(&self, process: &Child) {
        let before = self.done_by(process);
        wait_until("another key", || self.done_by(process) > before);
    }

    /// Asks for the shard to go to the idle worker.
    fn ask(&self) {
        let asked = self.scratch.run(&["handoff", "start", &self.run, SHARD, "--to", &self.idle]);
        assert_eq!(asked.code, Some(0), "{}", asked.stderr);
        let told = format!("gossip shard show {} {SHARD} tells who has it", self.run);
        assert!(asked.stderr.contains(&told), "{}", asked.stderr);
    }

    /// The moves that are under way or not forgotten.
    fn moves(&self) -> Vec<Value> {
        jsonl(&self.scratch, &["handoff", "list"])
    }

    fn show(&self, id: &str) -> Value {
        jsonl(&self.scratch, &["handoff", "show", id]).remove(0)
    }

    /// Waits for the offer, and asks for it to be taken back.
    fn roll_back(&self) -> String {
        let mut id = String::new();
        wait_until("an offer that is taken back", || {
            let moves = self.moves();
            let Some(found) = moves.first() else { return false };
            id = found["handoff"].as_str().unwrap().to_owned();
            // Refused for as long as the owner has not done what it was asked first.
            self.scratch.run(&["handoff", "rollback", &id]).code == Some(0)
        });
        id
    }

    /// From now on a key takes no time.
    fn hurry(&self) {
        std::fs::write(self.scratch.path().join("nap"), "0").unwrap();
    }

    /// Waits for both, and looks whether every key was done once.
    fn finish(self) {
        self.hurry();
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
    let said = scratch.run(&[args, &["-o", "jsonl"]].concat()).stdout;
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The workers in a state, or all of them.
fn workers(scratch: &Scratch, state: Option<&str>) -> Vec<String> {
    let found = jsonl(scratch, &["handoff", "workers"]).into_iter();
    let found = found.filter(|worker| state.is_none_or(|state| worker["state"] == state));
    found.map(|worker| worker["worker"].as_str().unwrap().to_owned()).collect()
}

/// An offer longer than the coordinator allows is refused, and then nothing ever moves: so leases
/// of any length. And a key may take longer than any offer stands.
#[rstest]
#[case::short_leases("300ms", 200, "0.05")]
#[case::long_leases("3s", 200, "0.05")]
#[case::long_keys("400ms", 20, "2")]
fn a_shard_goes_to_the_worker_that_is_named(
    #[case] lease: &str,
    #[case] keys: usize,
    #[case] nap: &str,
) {
    let pair = Pair::start(lease, keys, nap);
    pair.ask();
    pair.wait_for_key_of(pair.other());
    pair.finish();
}

/// The one it is offered to does not answer. The owner hears of the wish and goes on at once.
#[test]
fn a_move_that_is_taken_back_leaves_the_shard_with_its_owner() {
    let pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.ask();
    let id = pair.roll_back();
    wait_until("the end of the move", || pair.show(&id)["phase"] == "rolled_back");
    let shown = pair.show(&id);
    assert_eq!(shown["error"], "the offer was withdrawn", "{shown}");
    let time = |name: &str| shown[name].as_u64().unwrap();
    assert!(time("last_transition") < time("offer_deadline"), "not by itself: {shown}");
    pair.wait_for_key_of(pair.owner());
    let again = pair.scratch.run(&["handoff", "rollback", &id]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    signal(pair.other(), Signal::CONT);
    assert_eq!(pair.done_by(pair.other()), 0);
    pair.finish();
}

/// Nobody answers and nobody takes it back: the offer runs out, and the owner goes on as well.
#[test]
fn a_move_that_nobody_takes_leaves_the_shard_with_its_owner() {
    let pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.ask();
    wait_until("the end of the move", || {
        pair.moves().first().is_some_and(|found| found["phase"] == "rolled_back")
    });
    pair.wait_for_key_of(pair.owner());
    let shard = jsonl(&pair.scratch, &["shard", "show", &pair.run, SHARD]).remove(0);
    assert_eq!(shard["grants"], 1, "it was never given back: {shard}");
    signal(pair.other(), Signal::CONT);
    pair.finish();
}

/// What has moved is not taken back but asked back, and the refusal says how.
#[test]
fn a_move_that_has_happened_is_asked_back() {
    let pair = Pair::start("1s", 200, "0.05");
    pair.ask();
    pair.wait_for_key_of(pair.other());
    // The record of a move that is over is forgotten; the shard remembers its id.
    let from = {
        let known = workers(&pair.scratch, None);
        known.into_iter().find(|worker| *worker != pair.idle).unwrap()
    };
    let back = ["handoff", "start", &pair.run, SHARD, "--to", &from];
    assert_eq!(pair.scratch.run(&back).code, Some(0));
    pair.wait_for_key_of(pair.owner());
    pair.finish();
}

/// The owner dies with its offer standing, and somebody else claims the shard: the record is about
/// something that can no longer happen, and is ended by hand.
#[test]
fn a_move_whose_owner_died_is_ended_by_hand() {
    let mut pair = Pair::start("1s", 200, "0.05");
    signal(pair.other(), Signal::STOP);
    pair.ask();
    wait_until("an offer", || {
        pair.moves().first().is_some_and(|found| found["phase"] == "transfer")
    });
    let id = pair.moves()[0]["handoff"].as_str().unwrap().to_owned();
    signal(pair.owner(), Signal::KILL);
    let mut dead = pair.children.remove(0);
    dead.wait().unwrap();
    let heir = pair.scratch.gossip(&["worker", &pair.run, "--jobs", "1", "--no-split"]);
    pair.children.insert(0, { heir }.spawn().unwrap());
    wait_until("another owner", || pair.done_by(pair.owner()) > 0);
    let ended = pair.scratch.run(&["handoff", "rollback", &id]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("gone another way"), "{}", ended.stderr);
    assert_eq!(pair.show(&id)["phase"], "rolled_back");
    signal(pair.other(), Signal::CONT);
    pair.hurry();
    for child in pair.children {
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let seen = pair.scratch.lines("seen");
    let keys: BTreeSet<_> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(keys.len(), pair.keys, "no key is lost");
}
