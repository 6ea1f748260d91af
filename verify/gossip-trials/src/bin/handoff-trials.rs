//! Runs [`gossip_trials::handoff`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::handoff::main()
}
