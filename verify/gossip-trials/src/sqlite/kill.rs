//! `kill -9` at random microseconds while processes work on one file.
//!
//! Each cycle starts some processes, kills each at a random time, and checks the store. Every few
//! cycles the last connection is closed, so that the next one has to recover the WAL. Before some
//! other cycles the WAL is filled, so that processes are killed during a checkpoint. Every
//! [`CYCLES_PER_FILE`] cycles a new file is created, by processes that are killed meanwhile.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::store::{CommitOutcome, Key, Store, Txn};
use gossip_coordination_sqlite::SqliteDatabase;

use crate::Failure;
use crate::process::own_program;
use crate::sqlite::history_check::HistoryCheck;
use crate::sqlite::journal::read;
use crate::sqlite::work::{THREADS, journal_of};
use crate::sqlite::world::{found, open};
use gossip_testkit::Rng;

/// The tenant of the values that fill the WAL.
const STRANGER: TenantId = TenantId::from_bytes([1; 32]);
/// Processes at a time.
const PROCESSES: u64 = 3;
/// Maximum lifetimes of processes in microseconds: every other process is killed about when it has
/// opened the file, the others after some dozens of commits.
const LIFE_MAX: [u64; 2] = [20_000, 120_000];
/// Maximum lifetime of a process that creates a file, in microseconds.
const BIRTH_MAX: u64 = 6_000;
/// Cycles per file, so that the store and the check stay small.
const CYCLES_PER_FILE: u64 = 50;
/// Cycles between two recoveries at most.
const CYCLES_OPEN: u64 = 4;

/// Interval of the cycles with an open file that start with a full WAL.
const CYCLES_FILLED: u64 = 2;
/// Values that fill a WAL: a thousand frames.
const FILLING: u64 = 200;
/// Bytes of each, some pages.
const FILLING_BYTES: usize = 20_000;

/// Figures of a campaign.
#[derive(Debug, Default)]
struct Figures {
    killed: u64,
    recovered: u64,
    filled: u64,
    files: u64,
    asked: u64,
    acknowledged: u64,
    /// Files whose integrity was checked, and their shards that were compared with the journals.
    checks: u64,
    shards: u64,
}

/// Runs `cycles` cycles in `directory`.
pub(crate) fn run(directory: &Path, cycles: u64, seed: u64) -> Result<String, Failure> {
    std::fs::create_dir_all(directory)?;
    let (mut rng, mut figures) = (Rng::seeded(seed), Figures::default());
    let mut done = 0;
    while done < cycles {
        let count = CYCLES_PER_FILE.min(cycles - done);
        let house = directory.join(format!("file-{}", figures.files));
        std::fs::create_dir_all(&house)?;
        one_file(&house, count, &mut rng, &mut figures).map_err(|failure| {
            format!(
                "seed {seed}, cycles {done} to {}, {}: {failure}",
                done + count,
                house.display()
            )
        })?;
        std::fs::remove_dir_all(&house)?;
        done += count;
    }
    let Figures { killed, recovered, filled, files, asked, acknowledged, checks, shards } = figures;
    Ok(format!(
        "{cycles} cycles on {files} files: {killed} processes killed, {recovered} recoveries, \
         {filled} begun with a full log, {asked} calls asked for, {acknowledged} acknowledged, \
         {checks} checks of the file and of {shards} shards in it"
    ))
}

fn one_file(
    house: &Path,
    cycles: u64,
    rng: &mut Rng,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let file = house.join("store.db");
    let births = (0..PROCESSES).map(|_| start(&["open"], &[&file])).collect::<Result<_, _>>()?;
    figures.killed += kill_each(births, [BIRTH_MAX; 2], rng)?;
    figures.files += 1;
    let mut database = Some(open(&file)?);
    database.as_ref().map_or(Ok(()), found)?;
    let mut history = HistoryCheck::default();
    for cycle in 0..cycles {
        if let Some(database) = &database
            && rng.below(CYCLES_FILLED) == 0
        {
            fill_log(database)?;
            figures.filled += 1;
        }
        let journals = work_and_die(house, &file, cycle, rng, figures)?;
        for journal in &journals {
            history.enter(&read(journal)?)?;
        }
        let open = match database.take() {
            Some(database) => database,
            None => {
                figures.recovered += 1;
                open(&file)?
            }
        };
        let compared = history.check(&open);
        figures.shards += compared.map_err(|failure| format!("cycle {cycle}: {failure}"))? as u64;
        figures.checks += 1;
        database = (rng.below(CYCLES_OPEN) > 0).then_some(open);
    }
    figures.asked += history.asked_count;
    figures.acknowledged += history.acknowledged_count;
    Ok(())
}

/// Grows the WAL so that the next commit triggers a checkpoint.
pub(crate) fn fill_log(database: &SqliteDatabase) -> Result<(), Failure> {
    let mut txn = Txn::new();
    for nth in 0..FILLING {
        let key = Key::RunHead { tenant: STRANGER, run: RunId::from_raw(nth) };
        txn.put(key, vec![7; FILLING_BYTES]);
    }
    match database.store().commit(vec![txn]).pop() {
        Some(Ok(CommitOutcome::Applied { .. })) => Ok(()),
        other => Err(format!("the WAL was not filled: {other:?}").into()),
    }
}

/// Runs and kills processes; returns their journals.
fn work_and_die(
    house: &Path,
    file: &Path,
    cycle: u64,
    rng: &mut Rng,
    figures: &mut Figures,
) -> Result<Vec<PathBuf>, Failure> {
    let (mut children, mut journals) = (Vec::new(), Vec::new());
    for process in 0..PROCESSES {
        let worker = cycle * PROCESSES + process;
        let journal = house.join(format!("journal-{worker}"));
        let (worker, seed) = (worker.to_string(), rng.next_u64().to_string());
        let mut command = own_program()?;
        command.arg("work").arg(file).arg(&journal).args([&*worker, "0", &*seed]);
        children.push(quiet(&mut command).stdin(Stdio::piped()).spawn()?);
        journals.extend((0..THREADS).map(|thread| journal_of(&journal, thread)));
    }
    figures.killed += kill_each(children, LIFE_MAX, rng)?;
    Ok(journals)
}

/// Kills each child at a random time and returns the number of kills. A child that ended early is a
/// failure.
fn kill_each(children: Vec<Child>, life_max: [u64; 2], rng: &mut Rng) -> Result<u64, Failure> {
    let born = Instant::now();
    let mut lifetimes: Vec<(Duration, Child)> = children
        .into_iter()
        .map(|child| {
            let life_max = life_max[usize::from(rng.below(2) > 0)];
            (Duration::from_micros(rng.below(life_max)), child)
        })
        .collect();
    lifetimes.sort_by_key(|(life, _)| *life);
    let mut killed = 0;
    for (life, child) in &mut lifetimes {
        std::thread::sleep(life.saturating_sub(born.elapsed()));
        child.kill()?;
        let status = child.wait()?;
        // `open` may have ended before; `work` never ends without a kill.
        if status.code().is_some_and(|code| code != 0) {
            return Err(format!("a process failed before it was killed: {status}").into());
        }
        killed += 1;
    }
    Ok(killed)
}

fn start(words: &[&str], paths: &[&Path]) -> Result<Child, Failure> {
    Ok(quiet(own_program()?.args(words).args(paths)).spawn()?)
}

/// Discards the figures of children and keeps their failures.
pub(crate) fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}
