//! Prints how evenly uneven work is spread, as a table (`cargo xtask skew`).
//!
//! `skew [WORKERS …]`: other numbers of workers.
#![allow(clippy::disallowed_methods, reason = "an example that reads arguments")]

use std::error::Error;
use std::io;

use gossip_scanner_runtime::skew;

/// About ten minutes of work for each of 64 workers.
const KEYS: usize = 16_000;

const WORKERS: [usize; 4] = [1, 4, 16, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Result<Vec<usize>, _> = std::env::args().skip(1).map(|word| word.parse()).collect();
    let asked = asked?;
    let workers = if asked.is_empty() { &WORKERS[..] } else { &asked };
    Ok(skew::table(KEYS, workers, &mut io::stdout())?)
}
