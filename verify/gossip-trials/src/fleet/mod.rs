//! `cargo xtask fleet`: eight workers on one etcd, of which some die, one sleeps, and one leaves.
//!
//! `fleet trial KEYS DIRECTORY` starts an etcd server and eight `gossip worker` processes on one
//! run. Two are killed with all that they started, one is stopped beyond its lease and goes on
//! later, one is told to drain, and some shards are asked back from the others. Whatever their
//! handlers write goes through a [fenced sink](sink), and a [watcher](watch) notes until when
//! leases last. At the end the run's certificate is compared with its source, and the
//! [books](book) must show that no key was lost, that every key that was redone has a cause, that
//! nothing was taken from a live owner, and that the late writes of the sleeper were refused.
//!
//! `fleet handle DIRECTORY WORKER KEYS` is the handler: JSON lines, one item at a time.

mod book;
mod handler;
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
