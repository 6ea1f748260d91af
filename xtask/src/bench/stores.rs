//! `cargo xtask bench stores`: compares our stores with their bare engines.
//!
//! These benchmarks print tables of ratios, measured side by side in one run. They start servers
//! and write to the disk, so they are separate from the other benchmarks.

use crate::failure::Failure;
use crate::process;

/// Crate and benchmark.
const STORES: [(&str, &str); 2] =
    [("gossip-coordination-sqlite", "sqlite_store"), ("gossip-coordination-etcd", "etcd_store")];

/// Returns whether a benchmark is a store benchmark.
pub(super) fn is_one(bench: &str) -> bool {
    STORES.iter().any(|(_, name)| *name == bench)
}

/// Runs all store benchmarks.
pub(super) fn run() -> Result<(), Failure> {
    for (package, bench) in STORES {
        println!("\n## {package}\n");
        let mut command = process::cargo();
        command.args(["bench", "--package", package, "--bench", bench]);
        process::run(&mut command, "fix the benchmark named above")?;
    }
    Ok(())
}
