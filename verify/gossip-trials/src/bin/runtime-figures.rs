//! Runs [`gossip_trials::runtime_figures`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::runtime_figures::main()
}
