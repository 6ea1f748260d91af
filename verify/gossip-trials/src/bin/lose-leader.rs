//! Runs [`gossip_trials::lose_leader`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::lose_leader::main()
}
