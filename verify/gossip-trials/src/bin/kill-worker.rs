//! Runs [`gossip_trials::kill_worker`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::kill_worker::main()
}
