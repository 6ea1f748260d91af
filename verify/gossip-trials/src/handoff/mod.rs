//! Trials of handoffs: processes on a real store hand off shards, are killed and restarted.
//!
//! `cargo xtask handoff` and the tests of this crate run the same commands with different sizes.
//! Every command prints its figures, or an error with exit code 1.
//!
//! ```text
//! handoff-trials moves URL DIRECTORY MOVES KILLS SEED     hand off shards under load, and kill -9
//! handoff-trials restart URL DIRECTORY WORKERS ROUNDS KEYS SEED  restart every worker in turn
//! handoff-trials etcd COMMAND DIRECTORY ...               the same on an etcd of its own
//! handoff-trials work URL JOURNAL WORKER SEED SHAPE       one process of those
//! ```

mod figures;
mod fleet;
mod held;
mod history_check;
mod inbound;
mod journal;
mod trials;
mod worker;
mod world;

use std::process::ExitCode;

use gossip_testkit::test_support::EtcdServer;

use crate::Failure;

/// The program `handoff-trials`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Result<String, Failure> {
    match *words {
        ["moves", url, directory, moves, kills, seed] => {
            trials::moves(url, directory.as_ref(), moves.parse()?, kills.parse()?, seed.parse()?)
        }
        ["restart", url, directory, workers, rounds, keys, seed] => {
            let numbers = [workers.parse()?, rounds.parse()?, keys.parse()?];
            trials::restart(url, directory.as_ref(), numbers, seed.parse()?)
        }
        ["etcd", command, directory, ref rest @ ..] => {
            let server = EtcdServer::single();
            let host = server.endpoint();
            let url = format!("etcd://{}/trial", host.trim_start_matches("http://"));
            run(&[&[command, url.as_str(), directory], rest].concat())
        }
        ["work", url, journal, worker, seed, shape] => {
            worker::run(url, journal.as_ref(), worker.parse()?, seed.parse()?, shape.parse()?)
        }
        _ => Err("usage: moves URL DIRECTORY MOVES KILLS SEED | restart URL DIRECTORY WORKERS \
                  ROUNDS KEYS SEED | etcd moves DIRECTORY … | etcd restart DIRECTORY …"
            .into()),
    }
}

#[cfg(test)]
mod history_check_tests;
