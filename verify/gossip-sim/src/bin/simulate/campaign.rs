//! Campaigns: many simulations in chunks, on any number of threads, which can be interrupted and
//! resumed.
//!
//! Each finished chunk is a line of the progress file. A restarted campaign runs only the missing
//! chunks. The first line names the seeds and the build; a file of another campaign is rejected. A
//! complete file can also be summed up by another commit with the same behaviour, or by any build
//! with `--any-build`, if it reads the same line format; then no simulation is run. `--so-far` sums
//! up an incomplete file. Chunks are summed in order, so the trace hash does not depend on threads
//! or interruptions.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use gossip_sim::command::{Options, Verdict, write_failure, write_missing, write_report};
use gossip_sim::{FINGERPRINT, Failure, Report, Simulator, fingerprint};

use crate::time;

pub(crate) const USAGE: &str = "--progress FILE [--commit ID] [--seeds N] [--ops N] \
    [--threads N] [--any-build] [--so-far]";

/// Default number of seeds of a campaign: together more than a thousand million operations.
const SEEDS: u64 = 100_000;

/// Seeds of a chunk: about ten million operations or a minute of work, which an interruption loses
/// at most.
const CHUNK: u64 = 1_000;

/// The parsed options.
#[derive(Debug)]
pub(crate) struct Wanted {
    progress: PathBuf,
    /// Commit of the code that was built.
    commit: String,
    /// Whether a complete file may come from a build with different behaviour.
    any_build: bool,
    /// Whether to sum up the existing chunks without running any.
    so_far: bool,
    threads: usize,
    options: Options,
}

impl Wanted {
    /// Parses the arguments after `--campaign`; `None` if one is invalid.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let (mut progress, mut commit, mut threads) = (None, None, 1);
        let (mut any_build, mut so_far) = (false, false);
        let mut options = Options { seed: Some(1), seeds: Some(SEEDS), ..Options::default() };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--progress" => progress = Some(rest.next()?.into()),
                "--commit" => commit = Some(rest.next()?.clone()),
                "--any-build" => any_build = true,
                "--so-far" => so_far = true,
                "--threads" => threads = rest.next()?.parse().ok()?,
                "--seeds" => options.seeds = Some(rest.next()?.parse().ok()?),
                "--ops" => options.operations = Some(rest.next()?.parse().ok()?),
                _ => return None,
            }
        }
        let commit = commit.unwrap_or_else(|| "unknown".to_owned());
        let (progress, threads) = (progress?, threads.max(1));
        Some(Self { progress, commit, any_build, so_far, threads, options })
    }

    fn chunk_count(&self) -> u64 {
        let seeds = self.options.seeds();
        (seeds.end - seeds.start).div_ceil(CHUNK)
    }

    fn chunk(&self, number: u64) -> std::ops::Range<u64> {
        let seeds = self.options.seeds();
        let first = seeds.start + number * CHUNK;
        first..(first + CHUNK).min(seeds.end)
    }
}

/// The report of a chunk, and its processor time.
type Chunk = (Report, Duration);

/// Runs the missing chunks and prints the totals.
pub(crate) fn run(wanted: &Wanted, out: &mut impl Write) -> io::Result<Verdict> {
    let mut progress = Progress::open(wanted)?;
    let known = progress.chunks.len();
    let (all, commit) = (wanted.chunk_count(), &progress.commit);
    writeln!(out, "{known} of {all} chunks are complete, of commit {commit}")?;
    if let Some((seed, failure)) = run_missing(wanted, &mut progress, out)? {
        write_failure(&Simulator::new(), wanted.options.plan(seed), &failure, out)?;
        return Ok(Verdict::Broken);
    }
    let (mut sum, mut time) = (Report::default(), Duration::ZERO);
    for (report, took) in progress.chunks.values() {
        sum.add(report);
        time += *took;
    }
    write_report(&sum, time, out)?;
    let whole = sum.below_floor(sum.floor()).is_empty() & write_missing(&sum, out)?;
    Ok(if whole { Verdict::Held } else { Verdict::Broken })
}

/// Runs the missing chunks. Returns the simulation that broke a rule, if one did.
fn run_missing(
    wanted: &Wanted,
    progress: &mut Progress,
    out: &mut impl Write,
) -> io::Result<Option<(u64, Failure)>> {
    let is_missing = |chunk: &u64| !wanted.so_far && !progress.chunks.contains_key(chunk);
    let missing: Vec<u64> = (0..wanted.chunk_count()).filter(is_missing).collect();
    let next = AtomicU64::new(0);
    let broken = Mutex::new(None);
    std::thread::scope(|scope| {
        let (sender, finished) = mpsc::channel();
        for _ in 0..wanted.threads {
            let (sender, next, broken, missing) = (sender.clone(), &next, &broken, &missing);
            scope.spawn(move || {
                let place = || next.fetch_add(1, Ordering::Relaxed) as usize;
                while let Some(chunk) = missing.get(place()) {
                    match run_chunk(wanted, *chunk) {
                        Ok(simulated) => _ = sender.send((*chunk, simulated)),
                        Err(found) => {
                            // No further chunk begins; those in progress are finished.
                            next.store(missing.len() as u64, Ordering::Relaxed);
                            broken
                                .lock()
                                .expect("no thread panics while it holds the lock")
                                .get_or_insert(found);
                        }
                    }
                }
            });
        }
        drop(sender);
        for (chunk, simulated) in finished {
            progress.add(chunk, simulated)?;
            let count = progress.chunks.len();
            writeln!(out, "chunk {chunk} finished: {count} of {}", wanted.chunk_count())?;
            out.flush()?;
        }
        Ok(broken.lock().expect("no thread panics while it holds the lock").take())
    })
}

fn run_chunk(wanted: &Wanted, chunk: u64) -> Result<Chunk, (u64, Failure)> {
    let (simulator, started) = (Simulator::new(), time::processor());
    let mut sum = Report::default();
    for seed in wanted.chunk(chunk) {
        let report = simulator.run(&wanted.options.plan(seed));
        sum.add(&report.map_err(|failure| (seed, failure))?);
    }
    Ok((sum, time::processor().saturating_sub(started)))
}

/// The first line of a progress file.
#[derive(Debug)]
struct Head {
    commit: String,
    /// The fingerprint of the build.
    build: String,
    campaign: String,
}

impl Head {
    fn of(wanted: &Wanted, golden: u64) -> Self {
        let (seeds, plan) = (wanted.options.seeds(), wanted.options.plan(1));
        Self {
            commit: wanted.commit.clone(),
            build: format!("{golden:016x}"),
            campaign: format!("seeds {seeds:?} operations {} chunk {CHUNK}", plan.operations),
        }
    }

    fn line(&self) -> String {
        format!("commit {} build {} {}", self.commit, self.build, self.campaign)
    }

    /// Returns the commit of the `first` line, if this build may sum up its chunks.
    fn commit_of(&self, first: &str, runs_nothing: bool, any_build: bool) -> Option<String> {
        let (commit, rest) = first.strip_prefix("commit ")?.split_once(" build ")?;
        let (build, campaign) = rest.split_once(' ')?;
        let is_ours = commit == self.commit && build == self.build;
        let is_alike = runs_nothing && (build == self.build || any_build);
        (campaign == self.campaign && (is_ours || is_alike)).then(|| commit.to_owned())
    }
}

/// The progress file.
#[derive(Debug)]
struct Progress {
    file: File,
    /// Commit of the code that ran the chunks.
    commit: String,
    chunks: BTreeMap<u64, Chunk>,
}

impl Progress {
    /// Opens the file, or creates it.
    fn open(wanted: &Wanted) -> io::Result<Self> {
        let golden = fingerprint(&Simulator::new())
            .map_err(|failure| io::Error::other(format!("{:?}", failure.violation.rule)))?;
        if golden != FINGERPRINT {
            return Err(io::Error::other("the fingerprint of this build differs from its tests"));
        }
        let head = Head::of(wanted, golden);
        let text = match fs::read_to_string(&wanted.progress) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            result => result?,
        };
        // An incomplete last line does not count.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut file = OpenOptions::new().create(true).append(true).open(&wanted.progress)?;
        // The modification time is the date of the campaign, so the file is changed only if
        // necessary, and never with `--so-far`, because a running campaign may be writing the line.
        if whole < text.len() && !wanted.so_far {
            file.set_len(whole as u64)?;
        }
        let Some((first, rest)) = text[..whole].split_once('\n') else {
            file.write_all(format!("{}\n", head.line()).as_bytes())?;
            return Ok(Self { file, commit: head.commit, chunks: BTreeMap::new() });
        };
        let read: Option<BTreeMap<u64, Chunk>> = rest.lines().map(read_chunk).collect();
        let chunks = read.ok_or_else(|| io::Error::other("the progress file is damaged"))?;
        let is_complete = (0..wanted.chunk_count()).all(|chunk| chunks.contains_key(&chunk));
        let runs_nothing = is_complete || wanted.so_far;
        match head.commit_of(first, runs_nothing, wanted.any_build) {
            Some(commit) => Ok(Self { file, commit, chunks }),
            None => {
                let why = "the progress file is of another build or another campaign";
                Err(io::Error::other(why))
            }
        }
    }

    fn add(&mut self, number: u64, chunk: Chunk) -> io::Result<()> {
        let (report, time) = &chunk;
        let line = format!("{number} {} {}\n", time.as_nanos(), report.to_line());
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.chunks.insert(number, chunk);
        Ok(())
    }
}

fn read_chunk(line: &str) -> Option<(u64, Chunk)> {
    let (number, rest) = line.split_once(' ')?;
    let (nanos, report) = rest.split_once(' ')?;
    let time = Duration::from_nanos(nanos.parse().ok()?);
    Some((number.parse().ok()?, (Report::from_line(report)?, time)))
}
