//! The trials `moves` and `restart`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gossip_contracts::identity::WorkerId;
use gossip_coordination::{RunManagement, ShardClaiming, ShardFilter, ShardStatus};
use gossip_handoff::Repository;
use gossip_handoff::lease_handoff::{Recovery, RecoveryNext, worker_name};

use crate::Failure;
use crate::handoff::figures::{Meter, Times};
use crate::handoff::fleet::Fleet;
use crate::handoff::history_check::{HistoryCheck, Reached, Sum};
use crate::handoff::journal;
use crate::handoff::world::{self, CONFIG, LEASE, SHORT_LEASE, Shape, Site, number_of};
use crate::process::Wait;
use crate::run::{RUN, TENANT, micros, now};
use gossip_testkit::Rng;

/// Processes that hand off shards to each other.
const MOVERS: u64 = 4;
/// Their shards.
const SHARDS: u64 = 12;
/// Keys per shard, more than a trial can process.
const ENDLESS: u64 = 1 << 32;
/// Shards of each worker that is restarted.
const SHARDS_EACH: u64 = 3;
/// Polling interval of a trial.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum time without a handoff, and of a run.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Within this time every shard is processed again after a fault of its owner: an offer without a
/// taker, two leases, and the same again because the machine is busy.
const STRANDED_AFTER: Duration = Duration::from_millis(2 * (CONFIG.offer_ticks + 2 * LEASE));

/// Hands off shards under load and kills processes meanwhile.
pub(crate) fn moves(
    url: &str,
    directory: &Path,
    moves: u64,
    kills: u64,
    seed: u64,
) -> Result<String, Failure> {
    fs::create_dir_all(directory)?;
    let lease = if kills > 0 { SHORT_LEASE } else { LEASE };
    world::found(url, SHARDS, ENDLESS, lease)?;
    let mut fleet = Fleet::new(url, directory, seed, Shape::Moving);
    let mut rng = Rng::seeded(seed);
    let mut running: Vec<usize> =
        (1..=MOVERS).map(|worker| fleet.start(worker)).collect::<Result<_, _>>()?;
    let meter = Meter::start(Site::open(url)?.another_store());
    let (mut killed, mut last, mut heard_at) = (0, 0, Instant::now());
    while fleet.accepted() < moves {
        std::thread::sleep(LOOK);
        if fleet.accepted() > last {
            (last, heard_at) = (fleet.accepted(), Instant::now());
        }
        if heard_at.elapsed() > SILENCE_MAX {
            return Err(format!("no handoff for a long time after {last} handoffs").into());
        }
        for place in running.clone() {
            if !fleet.runs(place)? {
                return Err(format!("process {place} ended early").into());
            }
        }
        if killed < kills && last >= (killed + 1) * moves / (kills + 1) {
            let victim = usize::try_from(rng.below(MOVERS))?;
            fleet.kill(running[victim])?;
            running[victim] = fleet.start(victim as u64 + 1)?;
            killed += 1;
        }
    }
    let commits = meter.stop()?;
    let alive_at = await_all(url, &mut Site::open(url)?)?;
    running.iter().try_for_each(|place| fleet.drain(*place).map(drop))?;
    fleet.end()?;
    settle_records(url)?;
    let sum = check(url, &fleet, Some(alive_at))?;
    if kills == 0 && sum.redone > 0 {
        return Err(format!("{} keys were redone without a kill", sum.redone).into());
    }
    let trial = format!("{} moves, {killed} processes killed", sum.moves);
    Ok(report(&sum, &commits, &trial))
}

/// Restarts every worker, one after another and `rounds` times, while all of them work; then waits
/// for the end of the run.
pub(crate) fn restart(
    url: &str,
    directory: &Path,
    [workers, rounds, keys]: [u64; 3],
    seed: u64,
) -> Result<String, Failure> {
    fs::create_dir_all(directory)?;
    let shards = workers * SHARDS_EACH;
    world::found(url, shards, keys, LEASE)?;
    let mut fleet = Fleet::new(url, directory, seed, Shape::Draining);
    (1..=workers).try_for_each(|worker| fleet.start(worker).map(drop))?;
    let mut site = Site::open(url)?;
    await_progress(&mut site, |progress| progress.leased >= shards)?;
    let meter = Meter::start(site.another_store());
    let mut tally = [0_u64; 4];
    for place in 0..usize::try_from(workers * rounds)? {
        // Each new process has a new worker id.
        fleet.start(workers + place as u64 + 1)?;
        let words = fleet.drain(place)?;
        let numbers =
            words.strip_prefix("drained ").ok_or("no `drained` line from a drained worker")?;
        for (sum, number) in tally.iter_mut().zip(numbers.split(' ')) {
            *sum += number.parse::<u64>()?;
        }
    }
    let left = site.backend.get_run_progress(now(), TENANT, RUN)?.active;
    let commits = meter.stop()?;
    await_progress(&mut site, |progress| progress.done >= shards)?;
    site.backend.complete_run(now(), TENANT, RUN, gossip_contracts::identity::OpId::from_raw(7))?;
    fleet.end()?;
    let sum = check(url, &fleet, None)?;
    if sum.keys != shards * keys || sum.redone > 0 {
        let expected = shards * keys;
        return Err(format!("{} of {expected} keys, {} redone", sum.keys, sum.redone).into());
    }
    let [moved, released, lost, finished] = tally;
    let trial = format!(
        "{} workers restarted with {left} of {shards} shards unfinished behind them: {moved} \
         shards moved, {released} released, {lost} lost, {finished} finished meanwhile",
        workers * rounds
    );
    Ok(report(&sum, &commits, &trial))
}

fn await_progress(
    site: &mut Site,
    enough: impl Fn(&gossip_coordination::RunProgress) -> bool,
) -> Result<(), Failure> {
    let wait = Wait { limit: SILENCE_MAX, interval: LOOK };
    wait.until("progress of the run", || {
        Ok(enough(&site.backend.get_run_progress(now(), TENANT, RUN)?))
    })
}

/// Waits until every shard has advanced in the store, which shows that none is stranded after the
/// last fault and handoff. Returns the start of the wait.
fn await_all(url: &str, site: &mut Site) -> Result<u64, Failure> {
    let (since, begun, before) = (micros(), Instant::now(), reached(url)?);
    loop {
        let mut rows = Vec::new();
        site.backend.list_shards_into(now(), TENANT, RUN, ShardFilter::all(), &mut rows)?;
        let is_unchanged = |row: &gossip_coordination::ShardSummary| {
            let last = row.last_key.as_deref().map(number_of).transpose().ok().flatten();
            let before = before.get(&row.shard.as_raw()).and_then(|reached| reached.last);
            row.status == ShardStatus::Active && last <= before
        };
        let Some(stranded) = rows.iter().find(|row| is_unchanged(row)) else { return Ok(since) };
        if begun.elapsed() > STRANDED_AFTER {
            return Err(format!("shard {} is stranded", stranded.shard.as_raw()).into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Completes the handoff records of killed processes, as successors would, and checks that no live
/// record is left.
fn settle_records(url: &str) -> Result<(), Failure> {
    let (mut site, begun) = (Site::open(url)?, Instant::now());
    let mut scratch = gossip_coordination::AcquireScratch::new();
    let heir = WorkerId::from_raw(MOVERS + 1);
    loop {
        let mut live = 0;
        for worker in (1..=MOVERS).map(WorkerId::from_raw) {
            let mut recovery = Recovery::new(worker, CONFIG);
            while recovery.step(&mut site.driver(), |_| false, now())? == RecoveryNext::Again {}
            live += site.records.in_progress(&worker_name(worker))?.len();
        }
        if live == 0 {
            return Ok(());
        }
        if begun.elapsed() > STRANDED_AFTER {
            return Err(format!("{live} handoff records are live without a handoff").into());
        }
        // A record of a killed process ends when another worker has the shard.
        drop(site.backend.claim_next_available(now(), TENANT, RUN, heir, &mut scratch));
        std::thread::sleep(LOOK);
    }
}

/// Reads every journal and checks it against the store.
fn check(url: &str, fleet: &Fleet, alive_at: Option<u64>) -> Result<Sum, Failure> {
    let mut history = HistoryCheck::default();
    for process in &fleet.processes {
        // A process that was killed at its start has no journal.
        if process.killed_at.is_none() || process.journal.exists() {
            history.enter(&journal::read(&process.journal)?);
        }
    }
    history.check(&reached(url)?, alive_at)
}

/// Returns the progress of every shard.
fn reached(url: &str) -> Result<BTreeMap<u64, Reached>, Failure> {
    let (mut rows, mut site) = (Vec::new(), Site::open(url)?);
    site.backend.list_shards_into(now(), TENANT, RUN, ShardFilter::all(), &mut rows)?;
    let mut reached = BTreeMap::new();
    for row in rows {
        let last = row.last_key.as_deref().map(number_of).transpose()?;
        let (first, end) = (number_of(&row.start)?, number_of(&row.end)?);
        let is_done = row.status == ShardStatus::Done;
        let last = if is_done { Some(end - 1) } else { last };
        reached.insert(row.shard.as_raw(), Reached { first, last, is_done });
    }
    Ok(reached)
}

/// Goal for a handoff gap: the time of so many consecutive synced commits.
const GOAL_COMMITS: usize = 20;

/// Formats the figures, with a table row as the last line.
fn report(sum: &Sum, commits: &Times, trial: &str) -> String {
    let ratio = |share| sum.gaps.percentile(share) as f64 / commits.percentile(50).max(1) as f64;
    let (half, most) = (ratio(50), ratio(99));
    let goal = commits.in_a_row(GOAL_COMMITS);
    format!(
        "{trial}\n\
         {} keys done, 0 lost, 0 redone by a move, {} redone after takeovers, never two owners\n\
         gap of a move: {} ({half:.1} and {most:.1} commits)\n\
         takeover without a move: {}\n\
         one synced commit: {commits}\n\
         {GOAL_COMMITS} of them in a row: {goal}\n\
         | {trial} | 0, 0 | {} | {} | {half:.1} and {most:.1} | {} | {} | {} |",
        sum.keys,
        sum.redone,
        sum.gaps,
        sum.takeovers,
        sum.redone,
        sum.gaps.cell(),
        sum.takeovers.cell(),
        commits.cell(),
        goal.cell(),
    )
}
