//! Campaigns with real processes on real stores: they are killed, stopped, raced, drained and
//! starved, and an oracle checks the outcome.
//!
//! Each campaign is a module here and a program in `src/bin`. `cargo xtask` runs the long forms and
//! writes their figures into `docs/reliability.md`; the tests of this crate run the short forms. A
//! program prints its figures and exits with 0, or prints the failure and exits with 1.
//!
//! Campaigns read clocks and draw process lifetimes from a seed, so a failure may not repeat under
//! the same seed. Deterministic tests belong in a simulator.
//!
//! | program | `cargo xtask` | fault |
//! |---|---|---|
//! | `sqlite-campaign` | `kill-sqlite` | `kill -9`, races and a full disk on one SQLite file |
//! | `kill-worker` | `kill-worker` | `kill -9` of `gossip exec` |
//! | `poison` | `poison` | keys that kill their worker |
//! | `fleet` | `fleet` | kills, a suspended worker and a drain on etcd |
//! | `handoff-trials` | `handoff` | kills and restarts during handoffs |
//! | `etcd-faults`, `lose-leader` | `etcd-faults` | leader losses, stopped workers |
//! | `etcd-network` | `etcd-network` | cut, flapping and slow links, stopped workers, wrong clocks |
//! | `soak` | `soak` | none: growth over hours |
//! | `terminal` | none: run the program | Ctrl-C and Ctrl-Z while children are spawned |
//! | `runtime-figures` | `bench runtime` | none: overhead and memory |
//! | `end-to-end` | `bench end-to-end` | none: whole commands beside other tools |
//!
//! # Running it
//!
//! `cargo test -p gossip-trials` runs the short forms; build `gossip-cli` first. A single campaign:
//!
//! ```text
//! cargo run --release -p gossip-trials --bin kill-worker -- 20 1 /tmp/kill-worker
//! ```
#![forbid(unsafe_code)]

pub mod end_to_end;
pub mod etcd_faults;
pub mod etcd_network;
pub mod fleet;
pub mod handoff;
pub mod kill_worker;
pub mod lose_leader;
pub mod poison;
pub mod process;
mod run;
pub mod runtime_figures;
pub mod scan;
pub mod soak;
pub mod sqlite;
pub mod terminal;

use std::error::Error;
use std::process::ExitCode;

/// The reason why a campaign failed, as a message.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The result of a step of a campaign.
pub type Outcome<T> = Result<T, Failure>;

/// Runs a campaign with the arguments of this process, and prints its figures or its failure.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "figures and failures of a program")]
fn run_program(campaign: impl FnOnce(&[&str]) -> Outcome<String>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match campaign(&words) {
        // Handlers have written their output already.
        Ok(figures) if figures.is_empty() => ExitCode::SUCCESS,
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
