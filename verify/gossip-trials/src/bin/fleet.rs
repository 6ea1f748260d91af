//! Runs [`gossip_trials::fleet`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::fleet::main()
}
