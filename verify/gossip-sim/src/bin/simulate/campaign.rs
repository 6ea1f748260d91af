//! Very many worlds, in chunks, on as many threads as one likes; killed and started again at will.
//!
//! A finished chunk is a line of the progress file. Who starts again finds it and goes on with the
//! chunks that are missing. The first line says what is played and by which build; a file of
//! anything else is refused. Only a file that is complete is also summed up by another commit that
//! plays worlds alike, or by any build if `--any-build` says that it reads the lines alike: then
//! nothing is played. `--so-far` takes a file for complete that is not. Chunks are summed in their
//! order, so the trace hash does not depend on threads or on how often a campaign was stopped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use gossip_sim::command::{Options, Verdict, tell_failure, tell_missing, write_report};
use gossip_sim::{FINGERPRINT, Failure, Report, Simulator, fingerprint};

use crate::time;

pub(crate) const USAGE: &str = "--progress FILE [--commit ID] [--seeds N] [--ops N] \
    [--threads N] [--any-build] [--so-far]";

/// Seeds of a campaign, unless somebody asks for another number: together more than a thousand
/// million operations.
const SEEDS: u64 = 100_000;

/// Seeds of a chunk: some ten million operations, a minute of work, which is what a kill costs.
const CHUNK: u64 = 1_000;

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    progress: PathBuf,
    /// Of the code that was built.
    commit: String,
    /// Whether a complete file may be of a build that plays worlds differently.
    any_build: bool,
    /// Whether what there is is summed up, and nothing is played.
    so_far: bool,
    threads: usize,
    options: Options,
}

impl Wanted {
    /// Reads the words behind `--campaign`; `None` if one is not understood.
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

/// What a chunk came to, and the processor time that it took.
type Chunk = (Report, Duration);

/// Plays what is missing, and tells what all of it came to.
pub(crate) fn run(wanted: &Wanted, out: &mut impl Write) -> io::Result<Verdict> {
    let mut progress = Progress::open(wanted)?;
    let known = progress.chunks.len();
    let (all, commit) = (wanted.chunk_count(), &progress.commit);
    writeln!(out, "{known} of {all} chunks are there, of commit {commit}")?;
    if let Some((seed, failure)) = run_missing(wanted, &mut progress, out)? {
        tell_failure(&Simulator::new(), wanted.options.plan(seed), &failure, out)?;
        return Ok(Verdict::Broken);
    }
    let (mut sum, mut time) = (Report::default(), Duration::ZERO);
    for (report, took) in progress.chunks.values() {
        sum.add(report);
        time += *took;
    }
    write_report(&sum, time, out)?;
    let whole = sum.below_floor(sum.floor()).is_empty() & tell_missing(&sum, out)?;
    Ok(if whole { Verdict::Held } else { Verdict::Broken })
}

/// Plays the chunks that are missing; the world that broke a rule, if one did.
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
                            // Nobody begins another chunk; those that were begun are finished.
                            next.store(missing.len() as u64, Ordering::Relaxed);
                            broken.lock().expect("nobody panics with it").get_or_insert(found);
                        }
                    }
                }
            });
        }
        drop(sender);
        for (chunk, simulated) in finished {
            progress.add(chunk, simulated)?;
            let count = progress.chunks.len();
            writeln!(out, "chunk {chunk} is done: {count} of {}", wanted.chunk_count())?;
            out.flush()?;
        }
        Ok(broken.lock().expect("nobody panics with it").take())
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

/// What the first line of a progress file says.
#[derive(Debug)]
struct Head {
    commit: String,
    /// The trace hash of the golden world.
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

    /// The commit that `first` tells, if the chunks behind it may be summed up by this build.
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
    /// Of the code that played the chunks.
    commit: String,
    chunks: BTreeMap<u64, Chunk>,
}

impl Progress {
    /// Opens the file, or makes one.
    fn open(wanted: &Wanted) -> io::Result<Self> {
        let golden = fingerprint(&Simulator::new())
            .map_err(|failure| io::Error::other(format!("{:?}", failure.violation.rule)))?;
        if golden != FINGERPRINT {
            return Err(io::Error::other("this build runs a world differently than its tests"));
        }
        let head = Head::of(wanted, golden);
        let text = match fs::read_to_string(&wanted.progress) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            result => result?,
        };
        // A line that was not written to its end does not count.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut file = OpenOptions::new().create(true).append(true).open(&wanted.progress)?;
        // Its time of writing is the date of the campaign, so it is touched only if it must be; and
        // never for a sum so far, because whoever plays may be writing the line.
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
