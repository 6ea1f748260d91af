//! The short form of `cargo xtask handoff`: real processes on a real file and a real etcd.

use std::process::Command;

use gossip_testkit::test_support::TestDirectory;
use gossip_trials::process::output_of;

const TRIALS: &str = env!("CARGO_BIN_EXE_handoff-trials");

/// Runs a trial and returns its output.
fn run_trial(words: &[&str]) -> String {
    output_of(Command::new(TRIALS).args(words)).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// A directory, and the URL of a file in it.
fn file(name: &str) -> (TestDirectory, String, String) {
    let directory = TestDirectory::new(name);
    let url = format!("sqlite:{}", directory.path().join("trial.db").display());
    let journals = directory.path().join("journals").display().to_string();
    (directory, url, journals)
}

#[test]
fn handoffs_on_sqlite_lose_nothing_and_redo_nothing() {
    let (_directory, url, journals) = file("trial-moves");
    let figures = run_trial(&["moves", &url, &journals, "60", "0", "1"]);
    assert!(figures.contains("0 lost, 0 redone by a move, 0 redone after takeovers"), "{figures}");
}

#[test]
fn killed_processes_on_sqlite_lose_nothing_and_no_move_redoes_anything() {
    let (_directory, url, journals) = file("trial-kills");
    let figures = run_trial(&["moves", &url, &journals, "60", "3", "2"]);
    assert!(figures.contains("3 processes killed"), "{figures}");
    assert!(figures.contains("0 lost, 0 redone by a move"), "{figures}");
}

#[test]
fn a_rolling_restart_on_sqlite_redoes_nothing() {
    let (_directory, url, journals) = file("trial-restart");
    let figures = run_trial(&["restart", &url, &journals, "3", "1", "600", "3"]);
    assert!(figures.contains("0 redone after takeovers"), "{figures}");
}

#[test]
fn moves_and_a_kill_on_real_etcd_lose_nothing() {
    let (_directory, _, journals) = file("trial-etcd");
    let figures = run_trial(&["etcd", "moves", &journals, "40", "1", "4"]);
    assert!(figures.contains("0 lost, 0 redone by a move"), "{figures}");
}
