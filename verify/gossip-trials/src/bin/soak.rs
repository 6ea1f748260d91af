//! Runs [`gossip_trials::soak`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::soak::main()
}
