//! `cargo xtask miri [FILTER]`: the tests of the crates with unsafe code, under Miri.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::setup;

const TOOLCHAIN: &str = "nightly";

/// Property tests read a file of earlier failures, which isolation forbids. Strict provenance
/// rejects pointers made from integers, so that Miri detects as much as it can.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-strict-provenance";

/// Miri is about a thousand times slower than native code; a few cases of each property are enough.
const PROPTEST_CASES: &str = "8";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    for component in ["miri", "rust-src"] {
        setup::component(TOOLCHAIN, component)?;
    }
    let mut command = process::cargo_of(TOOLCHAIN);
    command.args(["miri", "test", "--package", "gossip-stdx", "--package", "gossip-testkit"]);
    command.args(arguments);
    command.env("MIRIFLAGS", FLAGS).env("PROPTEST_CASES", PROPTEST_CASES);
    process::run(&mut command, "cargo xtask miri NAME, for the test that failed above")?;
    Ok(ExitCode::SUCCESS)
}
