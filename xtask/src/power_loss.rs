//! `cargo xtask power-loss`: the long form of the power cuts under the SQLite store.
//!
//! The tests of `gossip-trials` run the same program for a few hundred images. The images lie in
//! memory where the system has a file system for that: a model of a disk computes them, and a real
//! disk would only be slower.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::kill_sqlite::{CampaignOptions, campaign};
use crate::numbers::grouped_in;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Images of each mode; those with full sync have the hundred thousand that we require.
const IMAGES: &str = "50000";
/// The default seed; the documented figures use it.
const SEED: &str = "20261115";
/// The modes, with their names in the table.
const MODES: [(&str, &str); 3] = [
    ("full", "full sync"),
    ("failing-syncs", "full sync, one sync in five fails"),
    ("relaxed", "relaxed sync"),
];

/// The in-memory file system of Linux.
const MEMORY: &str = "/dev/shm";

pub(crate) const USAGE: &str = "[--images N] [--seed N] [--save]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    let words = &arguments[..arguments.len() - usize::from(saves)];
    let (images, seed) = OPTIONS.parse(words)?;
    let made = Made::now("power-loss", arguments)?;
    let directory = directory()?;
    let mut rows = String::new();
    for (mode, name) in MODES {
        let figures = campaign("power-loss", &directory.join(mode), &[images, seed, mode], seed)?;
        rows.push_str(&format!("| {name} | {} |\n", figures.trim()));
    }
    if saves {
        let table = format!("Seed {seed}.\n\n| mode | figures |\n|---|---|\n{rows}");
        saved::POWER_LOSS.save(&grouped_in(&table), &made)?;
    }
    // Only images are left in it.
    let _ = std::fs::remove_dir_all(directory);
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory of the images, in memory if possible.
fn directory() -> Result<PathBuf, Failure> {
    let memory = Path::new(MEMORY);
    let root = if memory.is_dir() { memory.to_owned() } else { Workspace::load()?.target };
    Ok(root.join(format!("gossip-power-loss-{}", std::process::id())))
}

const OPTIONS: CampaignOptions = CampaignOptions {
    command: "power-loss",
    usage: USAGE,
    amount: ("--images", IMAGES),
    seed: SEED,
};
