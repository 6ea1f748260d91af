//! Many tenants on one open store for hours: nothing may grow.
//!
//! Some threads share one open store, as the threads of a long-lived service do. Each takes the
//! next tenant, resumes its run, processes some items and drains. The runs never end. The first
//! tenth of the time, in which runs are created and caches fill, is not judged. After it memory,
//! file descriptors, threads and the size of the store must stay flat: the highest value of the
//! last third may exceed that of the first third by 5 % and a small absolute amount at
//! most. At the end the store must have counted exactly the items that the handlers processed.
//!
//! The program prints one row of figures.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossip::prelude::*;
use gossip::runtime::Drain;
use gossip::store::{Backend, StoreUrl};

use crate::{Failure, Outcome};

/// Threads, each with a tenant of its own at a time.
const THREADS: u64 = 4;
/// Items of a tenant's turn: a few checkpoints.
const ITEMS: u64 = 200;
/// Items between two checkpoints.
const ITEMS_PER_CHECKPOINT: u64 = 50;
/// Initial shards of a run.
const SHARDS: NonZero<usize> = NonZero::new(4).expect("not zero");
/// Samples of a soak, whatever its length.
const SAMPLES: u32 = 240;
/// Part of the samples that is not judged: runs are created and caches fill.
const WARM_UP: usize = SAMPLES as usize / 10;
/// The growth of memory and store that is accepted, as a part.
const GROWTH_MAX: f64 = 0.05;
/// Bytes by which memory may grow besides: an allocator's own rounding.
const MEMORY_SLACK: f64 = 4_194_304.0;
/// Bytes by which the store may grow besides: the log grows to its limit and restarts.
const STORE_SLACK: f64 = 8_388_608.0;
/// Descriptors and threads by which samples may differ: those of turns in progress.
const COUNT_SLACK: f64 = 2.0 * THREADS as f64;

/// The program `soak`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    match *words {
        [seconds, tenants, directory] => {
            soak(directory.as_ref(), Duration::from_secs(seconds.parse()?), tenants.parse()?)
        }
        _ => Err("usage: soak SECONDS TENANTS DIRECTORY".into()),
    }
}

/// One quantity over the time of the soak.
struct Series {
    name: &'static str,
    unit: &'static str,
    /// The number by which a value is divided before it is shown.
    scale: f64,
    slack: f64,
    samples: Vec<f64>,
}

impl Series {
    const fn new(name: &'static str, unit: &'static str, scale: f64, slack: f64) -> Self {
        Self { name, unit, scale, slack, samples: Vec::new() }
    }

    /// Returns the highest values of the first and of the last third after the warm-up.
    fn ends(&self) -> [f64; 2] {
        let judged = self.samples.get(WARM_UP.min(self.samples.len())..).unwrap_or_default();
        let third = judged.len() / 3;
        let highest = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
        [highest(&judged[..third]), highest(&judged[judged.len() - third..])]
    }

    /// Returns the figures as text; an error if the quantity grew.
    fn judge(&self) -> Outcome<String> {
        let [first, last] = self.ends();
        let Self { name, unit, scale, .. } = self;
        let figures = format!("{name} {:.1} → {:.1}{unit}", first / scale, last / scale);
        if last > first * (1.0 + GROWTH_MAX) + self.slack {
            return Err(format!("{figures}: it grew").into());
        }
        Ok(figures)
    }
}

fn soak(directory: &Path, time: Duration, tenants: u64) -> Outcome<String> {
    // Runs of an earlier soak would be resumed.
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let file = directory.join("soak.db");
    let backend = Backend::open(&StoreUrl::sqlite(&file))?;
    let processed: Vec<AtomicU64> = (0..tenants).map(|_| AtomicU64::new(0)).collect();
    let (turns, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut series = [
        Series::new("memory", " MiB", 1_048_576.0, MEMORY_SLACK),
        Series::new("descriptors", "", 1.0, COUNT_SLACK),
        Series::new("threads", "", 1.0, COUNT_SLACK),
        Series::new("store", " MiB", 1_048_576.0, STORE_SLACK),
    ];
    thread::scope(|scope| {
        let (backend, processed, turns, is_over) = (&backend, &processed, &turns, &is_over);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let mut next = number;
                    while !is_over.load(Ordering::Relaxed) {
                        take_turn(backend, next % tenants, processed)?;
                        turns.fetch_add(1, Ordering::Relaxed);
                        // Threads stay apart: no two have one tenant at the same time.
                        next += THREADS;
                    }
                    Ok(())
                })
            })
            .collect();
        let begun = Instant::now();
        for sample in 1..=SAMPLES {
            thread::sleep((time * sample / SAMPLES).saturating_sub(begun.elapsed()));
            let values = [memory()?, entries("/proc/self/fd")?, entries("/proc/self/task")?];
            let values = values.into_iter().chain([store_bytes(&file)]);
            series.iter_mut().zip(values).for_each(|(series, value)| series.samples.push(value));
        }
        is_over.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|it| it.join().map_err(|_| "a thread panicked")?);
        joined.collect::<Result<Vec<()>, Failure>>().map(|_| ())
    })?;
    let items = compare(&backend, &processed)?;
    let figures: Vec<String> = series.iter().map(Series::judge).collect::<Result<_, _>>()?;
    let (minutes, turns) = (time.as_secs() / 60, turns.into_inner());
    Ok(format!(
        "| {minutes} min, {tenants} tenants | {turns} turns, {items} items, all counted once | {} |",
        figures.join("; ")
    ))
}

/// Resumes the run of a tenant, processes some items and drains.
fn take_turn(backend: &Backend, tenant: u64, processed: &[AtomicU64]) -> Result<(), Failure> {
    let processed = &processed[usize::try_from(tenant)?];
    let (drain, count) = (Drain::new(), AtomicU64::new(0));
    let outcome = scan(backend, tenant).drain(&drain).each(|_item| {
        processed.fetch_add(1, Ordering::Relaxed);
        if count.fetch_add(1, Ordering::Relaxed) + 1 >= ITEMS {
            drain.ask();
        }
        Ok(())
    })?;
    match outcome.status {
        Status::Drained => Ok(()),
        other => Err(format!("tenant {tenant}: the run ended: {other:?}").into()),
    }
}

fn scan(backend: &Backend, tenant: u64) -> Scan<'_> {
    Scan::of("range:0..1000000000000")
        .backend(backend)
        .tenant(format!("tenant-{tenant}"))
        .threads(1)
        .shards(SHARDS)
        .auto_split(false)
        .checkpoint(ITEMS_PER_CHECKPOINT, Duration::from_mins(1))
}

/// Compares the items that handlers processed with those that the store counted. Every turn ended
/// with a drain, so nothing was repeated. Returns their number.
fn compare(backend: &Backend, processed: &[AtomicU64]) -> Outcome<u64> {
    let mut total = 0;
    for (tenant, processed) in (0..).zip(processed) {
        let processed = processed.load(Ordering::Relaxed);
        if processed == 0 {
            continue;
        }
        let drain = Drain::new();
        drain.ask();
        let counted = scan(backend, tenant).drain(&drain).each(|_item| Ok(()))?.totals.keys;
        if counted != processed {
            let what = format!("tenant {tenant}: {processed} items processed, {counted} counted");
            return Err(what.into());
        }
        total += counted;
    }
    Ok(total)
}

/// Returns the resident memory of this process in bytes.
fn memory() -> Outcome<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmRSS in /proc/self/status")?.trim().parse::<f64>()? * 1_024.0)
}

fn entries(directory: &str) -> Outcome<f64> {
    Ok(fs::read_dir(directory)?.count() as f64)
}

/// Returns the size of the database and its log.
fn store_bytes(file: &Path) -> f64 {
    let sizes = ["", "-wal"].map(|suffix| {
        let path = PathBuf::from(format!("{}{suffix}", file.display()));
        fs::metadata(path).map_or(0, |metadata| metadata.len())
    });
    sizes.into_iter().sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(value: impl Fn(usize) -> f64) -> Outcome<String> {
        let mut series = Series::new("memory", " MiB", 1_048_576.0, MEMORY_SLACK);
        series.samples = (0..SAMPLES as usize).map(value).collect();
        series.judge()
    }

    #[test]
    fn growth_after_the_warm_up_is_a_failure() {
        let mib = 1_048_576.0;
        assert!(judged(|_| 40.0 * mib).is_ok());
        assert!(judged(|nth| if nth < WARM_UP { 10.0 } else { 40.0 } * mib).is_ok());
        assert!(judged(|nth| (40.0 + nth as f64 / 10.0) * mib).is_err());
    }

    #[test]
    fn an_item_that_the_store_did_not_count_is_a_failure() {
        let backend = Backend::open(&StoreUrl::memory()).unwrap();
        let processed = [AtomicU64::new(0)];
        take_turn(&backend, 0, &processed).unwrap();
        assert_eq!(compare(&backend, &processed).unwrap(), processed[0].load(Ordering::Relaxed));
        processed[0].fetch_add(1, Ordering::Relaxed);
        assert!(compare(&backend, &processed).is_err());
    }
}
