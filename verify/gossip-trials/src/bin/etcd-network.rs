//! Runs [`gossip_trials::etcd_network`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gossip_trials::etcd_network::main()
}
