//! Runs [`gossip_trials::terminal`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::terminal::main()
}
