//! `cargo xtask fleet`: eight workers on one etcd; some are killed, one is suspended, one drains.
//!
//! `fleet trial KEYS DIRECTORY` starts an etcd server and eight `gossip worker` processes on one
//! run. Two are killed with their child processes, one is suspended for longer than its lease and
//! resumed later, one is drained, and the others are requested to release some shards. Handlers
//! write through a fenced sink (`sink`), and a watcher (`watch`) records the deadlines of leases.
//! At the end the run's certificate is compared with its source, and the history check
//! (`history_check`) verifies that no key was lost, that every repeated key has a cause, that
//! no live owner lost a shard, and that the late writes of the suspended worker were refused.
//!
//! `fleet handle DIRECTORY WORKER KEYS` is the handler: JSON lines, one item at a time.

mod handler;
mod history_check;
mod sink;
mod trial;
mod watch;
mod worker;

use std::process::ExitCode;

use crate::Outcome;

/// The program `fleet`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    match *words {
        ["trial", keys, directory] => trial::run(keys.parse()?, directory.as_ref()),
        ["handle", directory, keys, worker] => {
            handler::run(directory.as_ref(), keys.parse()?, worker)
        }
        _ => Err("usage: fleet trial KEYS DIRECTORY".into()),
    }
}
