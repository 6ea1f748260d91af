//! `cargo xtask bench stores`: compares our stores with their bare engines.
//!
//! These benchmarks print tables of ratios, measured side by side in one run. They start servers
//! and write to the disk, so they are separate from the other benchmarks.

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Block, Made};

/// Crate, benchmark, and the block of its tables.
const STORES: [(&str, &str, Block); 2] = [
    ("gossip-coordination-sqlite", "sqlite_store", saved::STORES_SQLITE),
    ("gossip-coordination-etcd", "etcd_store", saved::STORES_ETCD),
];

/// Returns whether a benchmark is a store benchmark.
pub(super) fn is_one(bench: &str) -> bool {
    STORES.iter().any(|(_, name, _)| *name == bench)
}

/// Runs all store benchmarks, and writes their tables if `saves`.
pub(super) fn run(saves: bool, made: &Made) -> Result<(), Failure> {
    for (package, bench, block) in STORES {
        println!("\n## {package}\n");
        let mut command = process::cargo();
        command.args(["bench", "--package", package, "--bench", bench]);
        let output = process::show(&mut command, "fix the benchmark named above")?;
        if saves {
            block.save(&grouped_in(&output), made)?;
        }
    }
    Ok(())
}
