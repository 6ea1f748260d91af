//! Campaigns against the SQLite store: several processes share one file and are killed, raced or
//! run out of disk space.
//!
//! `cargo xtask kill-sqlite` and the tests of the crate run the same commands with different
//! durations. Every command prints a line of figures, or an error with exit code 1.
//!
//! ```text
//! sqlite-campaign kill DIRECTORY CYCLES SEED      kill -9 at random times, then check the file
//! sqlite-campaign race DIRECTORY PROCESSES OPERATIONS SEED
//! sqlite-campaign power-loss DIRECTORY IMAGES SEED MODE    cut the power, then check the file
//! sqlite-campaign work FILE JOURNAL WORKER OPERATIONS SEED     one process of those two
//! sqlite-campaign open FILE                       print `Opened` or the name of the open error
//! sqlite-campaign fill FILE                       write until refused, then check the file
//! sqlite-campaign serve-scripts DIRECTORY         execute golden script commands from stdin
//! sqlite-campaign serve DIRECTORY                 serve store requests from stdin
//! ```

mod disk;
mod history_check;
mod journal;
mod keys;
mod kill;
mod power_loss;
mod probe;
mod race;
mod serve;
mod serve_scripts;
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
        ["power-loss", directory, images, seed, mode] => power_loss::run(
            directory.as_ref(),
            images.parse()?,
            seed.parse()?,
            power_loss::Mode::parse(mode)?,
        ),
        ["work", file, journal, worker, operations, seed] => work::run(
            file.as_ref(),
            journal.as_ref(),
            worker.parse()?,
            operations.parse()?,
            seed.parse()?,
        ),
        ["serve-scripts", directory] => serve_scripts::run(directory.as_ref()),
        ["serve", directory] => serve::run(directory.as_ref()),
        ["open", file] => Ok(probe::open(file.as_ref())),
        ["fill", file] => probe::fill(file.as_ref()),
        _ => Err("usage: kill DIRECTORY CYCLES SEED | race DIRECTORY PROCESSES OPERATIONS SEED | \
                  power-loss DIRECTORY IMAGES SEED MODE | open FILE | fill FILE"
            .into()),
    }
}

#[cfg(test)]
mod history_check_tests;
