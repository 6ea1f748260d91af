//! Runs [`gossip_trials::end_to_end`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::end_to_end::main()
}
