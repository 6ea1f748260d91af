//! The short forms of the trials with many processes; `docs/reliability.md` has the long ones.

use std::io::Write as _;
use std::process::Command;

use gossip_testkit::test_support::TestDirectory;
use gossip_trials::process::output_of;

/// Runs a trial in a directory of its own and returns what it prints.
fn trial(program: &str, args: &[&str]) -> String {
    let directory = TestDirectory::new("trial");
    let mut command = Command::new(program);
    command.args(args).arg(directory.path().join("trial"));
    output_of(&mut command).unwrap_or_else(|error| panic!("{program}: {error}"))
}

#[test]
fn a_fleet_loses_workers_and_no_key() {
    let output = trial(env!("CARGO_BIN_EXE_fleet"), &["trial", "4000"]);
    assert!(output.contains("4000 keys, none lost"), "{output}");
    assert!(output.contains("none of a live lease; 2 late writes refused"), "{output}");
}

#[test]
fn keys_that_kill_their_worker_are_parked_alone() {
    let output = trial(env!("CARGO_BIN_EXE_poison"), &["20000", "1", "7", "1"]);
    assert!(output.contains("exactly those parked, everything else done"), "{output}");
}

/// A killer ends all threads of its process: three killers among four concurrent shards.
#[test]
fn keys_that_kill_a_worker_of_four_threads_are_parked_alone() {
    let output = trial(env!("CARGO_BIN_EXE_poison"), &["2000", "3", "1", "4"]);
    assert!(output.contains("exactly those parked, everything else done"), "{output}");
}

/// The short form of `cargo xtask scan-trial`.
#[test]
fn planted_secrets_are_found_once_whatever_is_killed() {
    let output = trial(env!("CARGO_BIN_EXE_scan-trial"), &["4000", "400", "5", "7"]);
    assert!(output.contains("| 400 found, 0 missed, 0 invented |"), "{output}");
}

/// Set in continuous integration: a test that cannot run there fails instead of being skipped.
const CHECKS: &str = "CI";

/// The short form of `cargo xtask etcd-network`.
#[test]
fn histories_on_a_faulty_network_are_linearizable() {
    if let Some(why) = gossip_trials::etcd_network::obstacle() {
        assert!(std::env::var_os(CHECKS).is_none(), "the network had no faults: {why}");
        // Not by `println!`, which the harness hides when a test passes.
        return writeln!(std::io::stderr(), "NOT RUN: the network had no faults: {why}").unwrap();
    }
    let output = trial(env!("CARGO_BIN_EXE_etcd-network"), &["short", "4", "3", "7"]);
    assert!(output.contains("| worlds, partitions, pauses | 1, 4, 3 |"), "{output}");
    assert!(output.contains("| histories of shards, all linearizable | 10 |"), "{output}");
}

/// A few seconds show no growth; they show that nothing is lost or repeated.
#[test]
fn drained_and_resumed_runs_count_every_item_once() {
    let output = trial(env!("CARGO_BIN_EXE_soak"), &["4", "6"]);
    assert!(output.contains("all counted once"), "{output}");
}

/// The short form of `terminal 8000 300 200`.
#[test]
fn keys_of_a_terminal_neither_kill_nor_stop_children() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terminal"));
    let output = output_of(command.args(["1000", "30", "20"])).unwrap();
    assert!(output.contains(": 0 killed, 0 stopped"), "{output}");
}

/// Otherwise the campaign would prove nothing.
#[test]
fn campaign_detects_children_that_the_terminal_kills() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terminal"));
    let error = output_of(command.args(["std", "2000", "60", "0"])).unwrap_err().to_string();
    assert!(error.contains(" killed, 0 stopped") && !error.contains(": 0 killed"), "{error}");
}
