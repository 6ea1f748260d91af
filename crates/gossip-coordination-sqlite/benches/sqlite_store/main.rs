//! Checkpoints on SQLite beside the engine alone, and the engine beside the disk alone.
//!
//! Machines are shared and disks differ, so only ratios count, and both sides of a ratio are
//! measured in one run: in turns, a round of each, none always behind the same one, and the median
//! of the rounds' ratios. Every checkpoint is accepted and durable; a refused one stops the
//! benchmark. The engine plays three times, as it is usually used and nearer to our way
//! ([`Custom`]); what counts is the ratio to the fastest of them.
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

mod aside;
mod bare;
#[path = "../../src/group_commit.rs"]
#[allow(dead_code, reason = "only what a bare engine needs of it")]
mod group_commit;
mod ours;
mod raw;
#[path = "../../src/sync.rs"]
mod sync;

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::bare::{Bare, Custom};
use self::ours::Ours;
use self::raw::RawFile;

/// Bytes of a hot record with keys of 64 bytes, a lease and a full log (docs/storage-format.md):
/// what the bare engine and the bare disk are given, too.
pub const VALUE_LEN: usize = 553;
/// Callers of the grouped measurement.
const CALLERS: usize = 64;
/// Records in the file when those of the callers are scattered among them, as the shards that are
/// leased at one time are scattered in a large run: each lies on a page of its own.
pub const RECORDS: usize = 9_984;
/// Rounds of each side with full sync: every order six times. Many short ones, because the machine
/// itself is faster in one second than in the next, and only rounds of one order are compared.
const ROUNDS: usize = 60;
/// The same with relaxed sync, which has no goal.
const RELAXED_ROUNDS: usize = 20;
/// How long a round lasts: hundreds of flushes and more.
const ROUND: Duration = Duration::from_millis(300);
/// Before each round. What one side leaves behind to be copied and written, the next one would
/// pay for.
const SETTLING: Duration = Duration::from_millis(100);

const _: () = assert!(ROUNDS.is_multiple_of(ORDERS.len()));
const _: () = assert!(RELAXED_ROUNDS.is_multiple_of(ORDERS.len()));

/// Who is compared.
#[derive(Clone, Copy)]
enum Side {
    Disk,
    /// The engine as it is usually used.
    Usual,
    /// The same, with the log copied aside.
    Aside,
    /// The engine in our way.
    Alike,
    Ours,
}

const SIDES: usize = 5;

/// In which orders they play: within them each comes right behind each other one twice.
const ORDERS: [[Side; SIDES]; 10] = {
    use Side::{Alike, Aside, Disk, Ours, Usual};
    [
        [Disk, Usual, Ours, Aside, Alike],
        [Usual, Aside, Disk, Alike, Ours],
        [Aside, Alike, Usual, Ours, Disk],
        [Alike, Ours, Aside, Disk, Usual],
        [Ours, Disk, Alike, Usual, Aside],
        [Alike, Aside, Ours, Usual, Disk],
        [Ours, Alike, Disk, Aside, Usual],
        [Disk, Ours, Usual, Alike, Aside],
        [Usual, Disk, Aside, Ours, Alike],
        [Aside, Usual, Alike, Disk, Ours],
    ]
};

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // In the build directory, which is on a disk; a temporary directory may be in memory.
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).unwrap();
    let mut disk = RawFile::new(&directory);
    println!(
        "| commits | records | callers | per second: disk | engine: usual | aside | alike | \
         ours | ours ÷ usual | ÷ aside | ÷ alike | ÷ disk | p50 µs: usual, aside, alike, ours | \
         p99 µs | computed µs |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|---|"
    );
    for (name, synchronous, rounds) in
        [("full sync", "FULL", ROUNDS), ("relaxed", "NORMAL", RELAXED_ROUNDS)]
    {
        for (callers, records) in [(1, RECORDS), (CALLERS, RECORDS), (CALLERS, CALLERS)] {
            let place = directory.join(format!("{synchronous}-{callers}-{records}"));
            std::fs::create_dir(&place).unwrap();
            let bare = |custom| Bare::new(&place, callers, records, synchronous, custom);
            let mut row = Row {
                callers,
                disk: &mut disk,
                usual: bare(Custom::Usual),
                aside: bare(Custom::Aside),
                alike: bare(Custom::Alike),
                ours: Ours::new(&place, callers, records, synchronous == "FULL"),
                rounds: Default::default(),
            };
            row.play(rounds);
            row.print(&format!("{name} | {records} | {callers}"));
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// One row of the table.
struct Row<'d> {
    callers: usize,
    disk: &'d mut RawFile,
    usual: Bare,
    aside: Bare,
    alike: Bare,
    ours: Ours,
    /// Of each side.
    rounds: [Vec<Round>; SIDES],
}

impl Row<'_> {
    fn play(&mut self, rounds: usize) {
        for round in 0..rounds {
            for side in ORDERS[round % ORDERS.len()] {
                std::thread::sleep(SETTLING);
                let played = match side {
                    Side::Disk => alone(|| self.disk.write()),
                    Side::Usual => together(self.callers, |caller| self.usual.caller(caller)),
                    Side::Aside => together(self.callers, |caller| self.aside.caller(caller)),
                    Side::Alike => together(self.callers, |caller| self.alike.caller(caller)),
                    Side::Ours => together(self.callers, |caller| self.ours.caller(caller)),
                };
                self.rounds[side as usize].push(played);
            }
        }
    }

    /// Three digits: two would call 0.795 a goal of 0.8.
    fn print(&self, name: &str) {
        let rate = |side| self.typical(side, |round| round.rate);
        println!(
            "| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | **{:.3}** | **{:.3}** | \
             **{:.3}** | {:.2} | {} | {} | {} |",
            rate(Side::Disk),
            rate(Side::Usual),
            rate(Side::Aside),
            rate(Side::Alike),
            rate(Side::Ours),
            self.ratio(Side::Usual),
            self.ratio(Side::Aside),
            self.ratio(Side::Alike),
            self.ratio(Side::Disk),
            self.each(|round| round.p50),
            self.each(|round| round.p99),
            self.each(|round| round.cpu),
        );
    }

    /// Ours beside `side`, round by round.
    fn ratio(&self, side: Side) -> f64 {
        let (ours, other) = (&self.rounds[Side::Ours as usize], &self.rounds[side as usize]);
        median(ours.iter().zip(other).map(|(ours, other)| ours.rate / other.rate).collect())
    }

    fn typical(&self, side: Side, of: fn(&Round) -> f64) -> f64 {
        median(self.rounds[side as usize].iter().map(of).collect())
    }

    fn each(&self, of: fn(&Round) -> f64) -> String {
        let sides = [Side::Usual, Side::Aside, Side::Alike, Side::Ours];
        sides.map(|side| format!("{:.0}", self.typical(side, of))).join(", ")
    }
}

/// What one round showed.
struct Round {
    /// Operations per second.
    rate: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
    /// Microseconds of all cores for one operation.
    cpu: f64,
}

/// Seconds that all threads of this process have computed so far, the system's share included.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name of the program, which may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn alone(mut operation: impl FnMut()) -> Round {
    let (begin, mut times) = (Instant::now(), Vec::new());
    let cpu = cpu_seconds();
    while begin.elapsed() < ROUND {
        let start = Instant::now();
        operation();
        times.push(start.elapsed());
    }
    round(begin.elapsed(), cpu_seconds() - cpu, times)
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
        let cpu = cpu_seconds();
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        let times = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        round(begin.elapsed(), cpu_seconds() - cpu, times)
    })
}

fn round(elapsed: Duration, cpu: f64, mut times: Vec<Duration>) -> Round {
    times.sort_unstable();
    let micros = |part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    Round {
        rate: times.len() as f64 / elapsed.as_secs_f64(),
        p50: micros(0.5),
        p99: micros(0.99),
        cpu: cpu * 1e6 / times.len() as f64,
    }
}

/// Between the two in the middle if they are even in number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}
