//! Runs [`gossip_trials::scan`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::scan::main()
}
