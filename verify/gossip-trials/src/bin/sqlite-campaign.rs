//! Runs [`gossip_trials::sqlite`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::sqlite::main()
}
