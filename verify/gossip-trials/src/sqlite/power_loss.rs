//! Power cuts: every state of the disk that a cut may leave is opened and checked.
//!
//! Two threads work on a database whose writes and syncs are recorded. The record is cut before and
//! after every sync, and at some places between. Each cut gives up to [`IMAGES_PER_CUT`] images of
//! the files ([`Disk`]); a cut after which nothing is unsynced gives one. Each image is opened by
//! the product, must have every call acknowledged before the cut, nothing that was not requested,
//! and must grant a lease with a fence that was never given.

use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use gossip_coordination_sqlite::{Boot, SqliteDatabase, SqliteOptions};
use gossip_testkit::recording_vfs::{Recorder, Step};

use crate::Failure;
use crate::run::now;
use crate::sqlite::disk::{Disk, Image, Luck};
use crate::sqlite::history_check::{Compared, Expect, HistoryCheck};
use crate::sqlite::journal::{Journal, Line};
use crate::sqlite::kill::fill_log;
use crate::sqlite::work::{THREADS, Worker};
use crate::sqlite::world::found;
use gossip_testkit::Rng;

/// Images of one cut: nothing and everything that was unsynced, and random subsets.
const IMAGES_PER_CUT: usize = 6;
/// Of the steps that are no sync, one in so many is a cut, too.
const CUTS_BETWEEN: u64 = 40;
/// Times that a recorded database is opened; closing it copies the log into the file.
const SESSIONS: u64 = 3;
/// Leases that each thread requests in a session: some dozens of commits.
const REQUESTS: u64 = 6;
/// One record in so many has a log long enough for the checkpointer. Its images are large.
const RECORDS_FILLED: u64 = 8;
/// In records with failing syncs, one sync in so many fails.
const SYNC_FAILURE_PERIOD: u64 = 5;
/// Remark at the end of the creation of the run.
const FOUNDED: &str = "founded";
/// Images that wait for a thread: two, so that none is idle and few are in memory.
const WAITING_MAX: usize = 2;

/// What a campaign records, and what it demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every commit is synced, as by default: nothing acknowledged is lost.
    Full,
    /// As `Full`, with syncs that fail.
    FailingSyncs,
    /// `sync=relaxed`: the last commits may be lost, and the rest is consistent.
    Relaxed,
    /// `sync=relaxed`, judged as `Full`: must fail, or the campaign detects nothing.
    Careless,
}

impl Mode {
    pub(crate) fn parse(word: &str) -> Result<Self, Failure> {
        match word {
            "full" => Ok(Self::Full),
            "failing-syncs" => Ok(Self::FailingSyncs),
            "relaxed" => Ok(Self::Relaxed),
            "careless" => Ok(Self::Careless),
            _ => Err("the mode is full, failing-syncs, relaxed or careless".into()),
        }
    }

    /// The options of a database before the cut, or after it: then the machine has started again.
    fn options(self, has_restarted: bool) -> SqliteOptions {
        let id = format!("{:032x}", 1 + u64::from(has_restarted));
        let boot = Boot::new(&id[16..], now().as_raw() / 1_000);
        let options = SqliteOptions { boot, ..SqliteOptions::default() };
        match self {
            Self::Full | Self::FailingSyncs => options,
            Self::Relaxed | Self::Careless => options.relaxed(),
        }
    }

    const fn expectation(self) -> Expect {
        match self {
            Self::Full | Self::FailingSyncs | Self::Careless => Expect::EveryAcknowledged,
            Self::Relaxed => Expect::AnEarlierState,
        }
    }
}

/// Figures of a campaign.
#[derive(Debug, Default)]
struct Figures {
    records: u64,
    images: u64,
    syncs: u64,
    failed_syncs: u64,
    cuts: u64,
    acknowledged: u64,
    compared: Compared,
}

/// The files after a cut, and the calls before it.
struct Cut {
    image: Image,
    lines: Vec<Line>,
    is_founded: bool,
    description: String,
}

/// Opens at least `images` images.
pub(crate) fn run(directory: &Path, images: u64, seed: u64, mode: Mode) -> Result<String, Failure> {
    std::fs::create_dir_all(directory)?;
    let (mut rng, mut figures) = (Rng::seeded(seed), Figures::default());
    while figures.images < images {
        let record = directory.join(format!("record-{}", figures.records));
        let steps = recorded(&record, mode, figures.records, &mut rng)?;
        judge(directory, &steps, mode, &mut rng, &mut figures)
            .map_err(|failure| format!("seed {seed}, record {}: {failure}", figures.records))?;
        std::fs::remove_dir_all(&record)?;
        figures.records += 1;
    }
    let Figures { records, images, syncs, failed_syncs, cuts, acknowledged, compared } = figures;
    let Compared { images: opened, calls, leases } = compared;
    Ok(format!(
        "{images} images of {cuts} power cuts in {records} records with {syncs} syncs, \
         {failed_syncs} of them failed, and {acknowledged} acknowledged calls: {opened} opened, \
         {calls} acknowledged calls found in them, {leases} leases granted with new fences",
    ))
}

/// Works on a new database in `directory` and returns the record.
fn recorded(
    directory: &Path,
    mode: Mode,
    number: u64,
    rng: &mut Rng,
) -> Result<Vec<Step>, Failure> {
    std::fs::create_dir_all(directory)?;
    let recorder = Recorder::start(directory);
    let file = directory.join("store.db");
    for session in 0..SESSIONS {
        // Opening and creating are not to fail: only commits are.
        recorder.fail_syncs(0);
        let database = SqliteDatabase::open(&file, mode.options(false))?;
        if session == 0 {
            found(&database)?;
            recorder.mark(FOUNDED);
        }
        if number % RECORDS_FILLED == RECORDS_FILLED - 1 {
            fill_log(&database)?;
        }
        if mode == Mode::FailingSyncs {
            recorder.fail_syncs(SYNC_FAILURE_PERIOD);
        }
        work(&database, &recorder, session, rng)?;
    }
    recorder.fail_syncs(0);
    Ok(recorder.finish())
}

/// Lets two threads work, with their journals in the record.
fn work(
    database: &SqliteDatabase,
    recorder: &Recorder,
    session: u64,
    rng: &mut Rng,
) -> Result<(), Failure> {
    let seed = rng.next_u64();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let journal = Journal::Record(recorder.clone());
                let id = session * THREADS + thread;
                scope.spawn(move || Worker::new(database, journal, id, seed)?.work(REQUESTS))
            })
            .collect();
        threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })
}

/// Cuts a record at its syncs and at random steps, and opens the images on all cores.
fn judge(
    directory: &Path,
    steps: &[Step],
    mode: Mode,
    rng: &mut Rng,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let judges: Vec<_> = (0..threads)
            .map(|number| {
                let (directory, receiver) = (directory.join(number.to_string()), &receiver);
                scope.spawn(move || open_each(&directory, receiver, mode))
            })
            .collect();
        // Sending does not fail: a judge that found a failure still receives.
        for_each_cut(steps, rng, figures, |cut| sender.send(cut).is_ok());
        drop(sender);
        for judge in judges {
            figures.compared.add(judge.join().map_err(|_| "a judge panicked")??);
        }
        Ok(())
    })
}

/// Passes the images of a record to `open` until it returns `false`.
fn for_each_cut(
    steps: &[Step],
    rng: &mut Rng,
    figures: &mut Figures,
    mut open: impl FnMut(Cut) -> bool,
) {
    let mut disk = Disk::default();
    let (mut lines, mut is_founded, mut follows_sync) = (Vec::new(), false, false);
    for (number, step) in steps.iter().enumerate() {
        // The calls that a sync let succeed are acknowledged before the next change, so the cut
        // before that change demands them.
        let is_change = !matches!(step, Step::Sync { .. } | Step::Mark(_));
        let is_boundary = matches!(step, Step::Sync { .. }) || (follows_sync && is_change);
        if is_boundary || (is_change && rng.below(CUTS_BETWEEN) == 0) {
            figures.cuts += 1;
            for (nth, luck) in lucks(&disk).enumerate() {
                let description = format!("cut before step {number}, image {nth}, {luck:?}");
                let (image, lines) = (disk.image(luck, rng), lines.clone());
                if !open(Cut { image, lines, is_founded, description }) {
                    return;
                }
                figures.images += 1;
            }
        }
        follows_sync = matches!(step, Step::Sync { .. }) || (follows_sync && !is_change);
        disk.apply(step, rng);
        match step {
            Step::Mark(text) if text == FOUNDED => is_founded = true,
            Step::Mark(text) => {
                let line = Line::parse(text.trim_end()).expect("a journal wrote it");
                figures.acknowledged += u64::from(line.is_acknowledged);
                lines.push(line);
            }
            Step::Sync { succeeded, .. } => {
                figures.syncs += 1;
                figures.failed_syncs += u64::from(!succeeded);
            }
            Step::Write { .. } | Step::Truncate { .. } | Step::Delete { .. } => {}
        }
    }
}

/// Returns the images to make of a cut: one if it leaves no choice.
fn lucks(disk: &Disk) -> impl Iterator<Item = Luck> {
    let random = std::iter::repeat_n(Luck::Random, IMAGES_PER_CUT - 2);
    let all = [Luck::Nothing, Luck::Everything].into_iter().chain(random);
    all.take(if disk.is_settled() { 1 } else { IMAGES_PER_CUT })
}

/// Opens the images that arrive, each in place of the one before. After a failure it only receives
/// them, so that the sender does not wait for ever.
fn open_each(
    directory: &Path,
    receiver: &Mutex<Receiver<Cut>>,
    mode: Mode,
) -> Result<Compared, Failure> {
    // A function, because a guard in the condition of a loop is held while its body runs.
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let mut result: Result<Compared, Failure> = Ok(Compared::default());
    while let Ok(cut) = next() {
        let Ok(compared) = &mut result else { continue };
        match open_one(directory, &cut, mode) {
            Ok(of_one) => compared.add(of_one),
            Err(failure) => result = Err(format!("{}: {failure}", cut.description).into()),
        }
    }
    result
}

fn open_one(directory: &Path, cut: &Cut, mode: Mode) -> Result<Compared, Failure> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    for (name, bytes) in &cut.image {
        std::fs::write(directory.join(name), bytes)?;
    }
    let database = SqliteDatabase::open(directory.join("store.db"), mode.options(true))?;
    // A cut during the creation leaves no run, or a part of it that was not acknowledged.
    if !cut.is_founded {
        database.check_integrity()?;
        return Ok(Compared { images: 1, ..Compared::default() });
    }
    let mut history = HistoryCheck::default();
    history.enter(&cut.lines)?;
    history.check_after_power_loss(&database, mode.expectation())
}
