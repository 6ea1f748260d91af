//! Prints how evenly uneven work is spread, as a table (`cargo xtask skew`).

use std::io;

use gossip_scanner_runtime::skew;

/// About four minutes of work for each of 64 workers.
const KEYS: usize = 16_000;

const WORKERS: [usize; 4] = [1, 4, 16, 64];

fn main() -> io::Result<()> {
    skew::table(KEYS, &WORKERS, &mut io::stdout())
}
