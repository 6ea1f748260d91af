//! The short forms of the trials with many processes; `docs/reliability.md` has the long ones.

// The judge of the fleet's journal has tests, and examples are not tested by themselves.
#[allow(dead_code, reason = "only its tests are wanted here")]
#[path = "../examples/fleet/book.rs"]
mod book;
mod support;

use std::path::Path;
use std::process::Command;

use support::{Scratch, finish};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs a trial, which lies in a directory beside the binary, and gives what it says.
fn trial(name: &str, args: &[&str], scratch: &Scratch) -> String {
    let gossip = Path::new(env!("CARGO_BIN_EXE_gossip"));
    let program = gossip.with_file_name("examples").join(name);
    assert!(program.is_file(), "type cargo build -p gossip-cli --examples first");
    let mut command = Command::new(program);
    command.args(args).arg(scratch.path().join("trial"));
    let ran = finish(support::piped(&mut command).spawn().expect("a program that was built"));
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

#[test]
fn a_fleet_loses_workers_and_no_key() {
    let scratch = Scratch::new();
    let said = trial("fleet", &["trial", "4000"], &scratch);
    assert!(said.contains("4000 keys, none lost"), "{said}");
    assert!(said.contains("none of a live lease; 2 late writes refused"), "{said}");
}

#[test]
fn keys_that_kill_their_worker_are_set_aside_alone() {
    let scratch = Scratch::new();
    let said = trial("poison", &["20000", "1", "7", "1"], &scratch);
    assert!(said.contains("exactly those set aside, everything else done"), "{said}");
}

/// Threads share the death of their process: three killers in four shards at a time.
#[test]
fn keys_that_kill_a_worker_of_four_threads_are_set_aside_alone() {
    let scratch = Scratch::new();
    let said = trial("poison", &["2000", "3", "1", "4"], &scratch);
    assert!(said.contains("exactly those set aside, everything else done"), "{said}");
}
