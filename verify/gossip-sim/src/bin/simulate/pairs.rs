//! Pairs of simulations, with and without a second tenant, on any number of threads.
//!
//! All pairs are run, even after a failure, because the number of failures is a figure of the
//! report. The first failure in the order of seeds is printed, independently of the threads.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_sim::command::Verdict;
use gossip_sim::{PairFailure, PairReport, Simulator};

pub(crate) const USAGE: &str = "N [--seed N] [--threads N]";

/// The parsed options.
#[derive(Debug)]
pub(crate) struct Wanted {
    count: u64,
    first: u64,
    threads: usize,
}

impl Wanted {
    /// Parses the arguments after `--pairs`; `None` if one is invalid.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let (count, rest) = words.split_first()?;
        let (mut first, mut threads) = (1, 1_usize);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--seed" => first = rest.next()?.parse().ok()?,
                "--threads" => threads = rest.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(Self { count: count.parse().ok()?, first, threads: threads.max(1) })
    }
}

/// The totals of the pairs, and the failures.
#[derive(Default)]
struct PairRuns {
    sum: PairReport,
    wrong: Vec<PairFailure>,
}

/// Runs the pairs and prints the totals.
pub(crate) fn run(wanted: &Wanted, out: &mut impl Write) -> io::Result<Verdict> {
    let PairRuns { sum, mut wrong } = run_all(wanted);
    sum.write(wrong.len() as u64, out)?;
    wrong.sort_by_key(|failure| failure.seed);
    match wrong.first() {
        Some(failure) => {
            Simulator::new().write_pair_failure(failure, out)?;
            Ok(Verdict::Broken)
        }
        None => Ok(Verdict::Held),
    }
}

fn run_all(wanted: &Wanted) -> PairRuns {
    let (next, simulated) = (AtomicU64::new(0), Mutex::new(PairRuns::default()));
    std::thread::scope(|scope| {
        for _ in 0..wanted.threads {
            scope.spawn(|| {
                let simulator = Simulator::new();
                let place = || next.fetch_add(1, Ordering::Relaxed);
                while let Some(place) = Some(place()).filter(|place| *place < wanted.count) {
                    let pair = simulator.run_pair(wanted.first.saturating_add(place));
                    let mut simulated =
                        simulated.lock().expect("no thread panics while it holds the lock");
                    match pair {
                        Ok(report) => simulated.sum.add(&report),
                        Err(failure) => simulated.wrong.push(failure),
                    }
                }
            });
        }
    });
    simulated.into_inner().expect("no thread panics while it holds the lock")
}
