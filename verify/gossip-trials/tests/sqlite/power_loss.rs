//! Power cuts: the short form of `cargo xtask power-loss`.

use std::process::Command;

use gossip_trials::process::output_of;

use crate::support::{CAMPAIGN, Scratch};

/// Images that a test opens at least; one record has more.
const IMAGES: &str = "500";

/// Runs a campaign in memory: the files are images of a disk, so a real one would add nothing.
fn campaign(mode: &str) -> Result<String, String> {
    let scratch = Scratch::in_memory(&format!("power-loss-{mode}"));
    let mut command = Command::new(CAMPAIGN);
    command.arg("power-loss").arg(scratch.path()).args([IMAGES, "1", mode]);
    output_of(&mut command).map_err(|failure| failure.to_string())
}

/// Every image was opened; calls were looked up in them, and leases granted.
fn assert_all_compared(figures: &str, are_calls_compared: bool) {
    let before = |words: &str| -> u64 {
        let text = figures.split(words).next().unwrap();
        text.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(before(" images of ") > 0, "{figures}");
    assert_eq!(before(" opened, "), before(" images of "), "{figures}");
    assert_eq!(before(" acknowledged calls found") > 0, are_calls_compared, "{figures}");
    assert!(before(" leases granted") > 0, "{figures}");
}

#[test]
fn a_power_cut_loses_nothing_acknowledged() {
    let figures = campaign("full").unwrap();
    assert_all_compared(&figures, true);
    assert!(figures.contains(" 0 of them failed"), "{figures}");
}

#[test]
fn a_commit_whose_sync_failed_is_not_acknowledged() {
    let figures = campaign("failing-syncs").unwrap();
    assert_all_compared(&figures, true);
    assert!(!figures.contains(" 0 of them failed"), "{figures}");
}

#[test]
fn a_power_cut_with_relaxed_sync_leaves_an_earlier_state() {
    let figures = campaign("relaxed").unwrap();
    // The last calls may be missing, so none is looked up.
    assert_all_compared(&figures, false);
}

/// The campaign detects a loss: without syncs it must find one.
#[test]
fn commits_that_are_not_synced_are_found_lost() {
    let failure = campaign("careless").unwrap_err();
    let losses = ["no such run", "is missing", "lost an acknowledged", "a later one was given"];
    assert!(losses.iter().any(|loss| failure.contains(loss)), "{failure}");
}
