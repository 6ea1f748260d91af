//! Campaigns against the SQLite store: real processes on one file, killed, raced and starved.
//!
//! `cargo xtask kill-sqlite` and the tests of the crate run the same commands, longer or shorter.
//! Every command ends with a line of figures, or with what went wrong and exit code 1.
//!
//! ```text
//! sqlite-campaign kill DIRECTORY CYCLES SEED      kill -9 at random microseconds, then look
//! sqlite-campaign race DIRECTORY PROCESSES OPERATIONS SEED
//! sqlite-campaign work FILE JOURNAL WORKER OPERATIONS SEED     one process of those two
//! sqlite-campaign open FILE                       how opening ends, by the name of the error
//! sqlite-campaign fill FILE                       write until refused, then look
//! sqlite-campaign act DIRECTORY                   perform golden scripts, with other processes
//! sqlite-campaign serve DIRECTORY                 be the store of handles in another process
//! ```

mod actor;
mod book;
mod journal;
mod keys;
mod kill;
mod probe;
mod race;
mod serve;
mod work;
mod world;

use std::process::ExitCode;

use crate::Failure;

/// The program `sqlite-campaign`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Result<String, Failure> {
    match *words {
        ["kill", directory, cycles, seed] => {
            kill::run(directory.as_ref(), cycles.parse()?, seed.parse()?)
        }
        ["race", directory, processes, operations, seed] => {
            race::run(directory.as_ref(), processes.parse()?, operations.parse()?, seed.parse()?)
        }
        ["work", file, journal, worker, operations, seed] => work::run(
            file.as_ref(),
            journal.as_ref(),
            worker.parse()?,
            operations.parse()?,
            seed.parse()?,
        ),
        ["act", directory] => actor::run(directory.as_ref()),
        ["serve", directory] => serve::run(directory.as_ref()),
        ["open", file] => Ok(probe::open(file.as_ref())),
        ["fill", file] => probe::fill(file.as_ref()),
        _ => Err("usage: kill DIRECTORY CYCLES SEED | race DIRECTORY PROCESSES OPERATIONS SEED | \
                  open FILE | fill FILE"
            .into()),
    }
}

#[cfg(test)]
mod book_tests;
