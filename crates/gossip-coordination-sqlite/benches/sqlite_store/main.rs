//! Checkpoints on SQLite beside the engine alone, and the engine beside the disk alone.
//!
//! Machines are shared and disks differ, so only ratios count, and both sides of a ratio are
//! measured in one run: in turns, a round of one and a round of the other, and the median of the
//! ratios. Every checkpoint is accepted and durable; a refused one stops the benchmark.
//!
//! `cargo bench -p gossip-coordination-sqlite --bench sqlite_store`
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    unnameable_types,
    reason = "a benchmark has no users"
)]

mod bare;
mod ours;
mod raw;

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::bare::Bare;
use self::ours::Ours;
use self::raw::RawFile;

/// Bytes of a hot record with keys of 64 bytes, a lease and a full log (docs/storage-format.md):
/// what the bare engine and the bare disk are given, too.
pub const VALUE_LEN: usize = 553;
/// Callers of the grouped measurement.
const CALLERS: usize = 64;
/// Rounds of each side.
const ROUNDS: usize = 9;
/// How long a round lasts: thousands of flushes.
const ROUND: Duration = Duration::from_millis(700);

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // Beside what was built, which is on a disk; a directory for temporary files may be in memory.
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).unwrap();
    let mut disk = RawFile::new(&directory);
    println!(
        "| commits | callers | per second: disk | engine | ours | ours ÷ engine | ours ÷ disk | \
         p50 µs: engine | ours | p99 µs: engine | ours |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for (name, synchronous) in [("full sync", "FULL"), ("relaxed", "NORMAL")] {
        for callers in [1, CALLERS] {
            let place = directory.join(format!("{synchronous}-{callers}"));
            std::fs::create_dir(&place).unwrap();
            let bare = Bare::new(&place, callers, synchronous);
            let ours = Ours::new(&place, callers, synchronous == "FULL");
            compare(name, callers, &mut disk, &bare, &ours);
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

fn compare(name: &str, callers: usize, disk: &mut RawFile, bare: &Bare, ours: &Ours) {
    let (mut of_disk, mut of_bare, mut of_ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_disk.push(alone(|| disk.write()));
        of_bare.push(together(callers, |caller| move || bare.change(caller as u64)));
        of_ours.push(together(callers, |caller| ours.caller(caller)));
    }
    let ratio = |one: &[Round], other: &[Round]| {
        median(one.iter().zip(other).map(|(one, other)| one.rate / other.rate).collect())
    };
    let rate = |rounds: &[Round]| median(rounds.iter().map(|round| round.rate).collect());
    let p50 = |rounds: &[Round]| median(rounds.iter().map(|round| round.p50).collect());
    let p99 = |rounds: &[Round]| median(rounds.iter().map(|round| round.p99).collect());
    println!(
        "| {name} | {callers} | {:.0} | {:.0} | {:.0} | **{:.2}** | {:.2} | {:.0} | {:.0} | {:.0} \
         | {:.0} |",
        rate(&of_disk),
        rate(&of_bare),
        rate(&of_ours),
        ratio(&of_ours, &of_bare),
        ratio(&of_ours, &of_disk),
        p50(&of_bare),
        p50(&of_ours),
        p99(&of_bare),
        p99(&of_ours),
    );
}

/// What one round showed.
struct Round {
    /// Operations per second.
    rate: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
}

fn alone(mut operation: impl FnMut()) -> Round {
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < ROUND {
        let start = Instant::now();
        operation();
        times.push(start.elapsed());
    }
    round(begin.elapsed(), times)
}

/// Lets `callers` threads repeat their operation for a round.
fn together<F: FnMut() + Send>(callers: usize, operation: impl Fn(usize) -> F) -> Round {
    let (start, over) = (Barrier::new(callers + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                let mut operation = operation(caller);
                let (start, over) = (&start, &over);
                scope.spawn(move || {
                    start.wait();
                    let mut times = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let begin = Instant::now();
                        operation();
                        times.push(begin.elapsed());
                    }
                    times
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        let times = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        round(begin.elapsed(), times)
    })
}

fn round(elapsed: Duration, mut times: Vec<Duration>) -> Round {
    times.sort_unstable();
    let micros = |part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    Round { rate: times.len() as f64 / elapsed.as_secs_f64(), p50: micros(0.5), p99: micros(0.99) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
