//! Runs [`gossip_trials::poison`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::poison::main()
}
