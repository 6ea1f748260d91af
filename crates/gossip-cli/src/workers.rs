//! `worker list`: the workers of a tenant.
//!
//! Living workers come first, the newest of them at the top, and those that are gone last.
//!
//! The registry has the workers that sent a heartbeat recently. Workers that hold a shard without
//! having sent one are listed too: most of them are dead, and their leases are waited for. Shards
//! and rates are read from the shards of all unfinished runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use gossip::coordination::{RunManagement as _, WorkerEntry, WorkerState};
use gossip::identity::{LogicalTime, RunId, ShardId, TenantId, WorkerId};
use gossip::runtime::{
    Clock as _, Host as _, Presence, RunLook, RuntimeToken, SystemClock, SystemHost, worker_of,
};
use gossip::store::Coordinator;

use crate::args::{Global, WorkerListArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::{duration, runs, store};

/// A difference of clocks below this is that of the heartbeat's own journey.
const CLOCK_OFFSET_MIN: u64 = 1_000;

/// The state of a worker whose process does not exist.
const GONE: &str = "gone";

/// Lease holder and counted keys of each intact shard at one time.
type Snapshot = BTreeMap<(RunId, ShardId), (Option<WorkerId>, u64)>;

/// Workers that are gone and that a table lists without `--all`: those of yesterday would hide the
/// living ones.
const GONE_SHOWN: usize = 3;

/// Lists the workers; with a time to sample twice, so that there is a rate.
pub(crate) fn list(
    global: &Global,
    args: &WorkerListArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let sample = args.sample;
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let coordinator = &mut backend.coordinator();
    // The leases of a damaged run cannot be read, those of all others can.
    let active = runs::active(coordinator, tenant)?.ids;
    let mut entries = Vec::new();
    // From the beginning of time: expired entries name the hosts of workers that hold shards.
    let listed = coordinator.list_workers_into(LogicalTime::ZERO, tenant, &mut entries);
    listed.map_err(|error| Failure::new(Code::Store, "store error").why(error))?;
    let (before, started) = (look(coordinator, tenant, &active), Instant::now());
    // Without a lease holder a second look would show the same.
    let is_worked_on = before.values().any(|(owner, _)| owner.is_some());
    let after = match is_worked_on && !sample.is_zero() {
        true => {
            thread::sleep(sample);
            look(coordinator, tenant, &active)
        }
        false => before.clone(),
    };
    let elapsed = started.elapsed().as_secs_f64();
    let now = SystemClock::new().now();
    // With the time after the wait, so that one that expired meanwhile is not shown as live.
    let registered = entries.iter().filter(|entry| entry.is_live_at(now));
    let mut workers: Vec<WorkerId> = registered.map(|entry| entry.worker).collect();
    workers.extend(after.values().filter_map(|(owner, _)| *owner));
    workers.sort_unstable();
    workers.dedup();
    let entry_of = |worker: WorkerId| entries.iter().find(|entry| entry.worker == worker);
    workers.sort_by_cached_key(|worker| place(entry_of(*worker), now));
    let hidden = match args.all || !global.output.is_table() {
        true => 0,
        false => hide_gone(&mut workers, |worker| state(entry_of(worker), now) == GONE),
    };
    let row = |worker: WorkerId| {
        let held = after.iter().filter(|(_, (owner, _))| *owner == Some(worker));
        let seen = Seen {
            entry: entry_of(worker),
            run: active.iter().find(|run| worker == worker_of(**run, worker.as_raw())),
            shards: held.count(),
            rate: (!sample.is_zero())
                .then(|| (keys_between(worker, &before, &after) as f64 / elapsed).round() as u64),
        };
        seen.describe(worker, now)
    };
    let rows: Vec<_> = workers.into_iter().map(row).collect();
    let columns = [
        "worker",
        "host",
        "pid",
        "version",
        "state",
        "jobs",
        "rate",
        "shards",
        "run",
        "last_seen",
        "clock_ahead_ms:clock",
    ];
    output::list(global.output, &columns, &rows)?;
    if hidden > 0 {
        let workers = output::count(hidden as u64, "worker");
        console.note(&format!("{workers} more that are gone. List: `gossip worker list --all`"));
    }
    Ok(Code::Complete)
}

/// Removes the workers that are gone except the first ones. Returns how many.
fn hide_gone(workers: &mut Vec<WorkerId>, is_gone: impl Fn(WorkerId) -> bool) -> usize {
    let (before, mut gone) = (workers.len(), 0);
    workers.retain(|worker| {
        gone += usize::from(is_gone(*worker));
        !is_gone(*worker) || gone <= GONE_SHOWN
    });
    before - workers.len()
}

/// Returns what a worker is sorted by: whether it lives, then the newest process, or of those that
/// are gone the latest heartbeat.
fn place(entry: Option<&WorkerEntry>, now: LogicalTime) -> (u8, Reverse<u64>) {
    let started = entry.and_then(|entry| entry.process).map_or(0, |it| it.process.started);
    let seen = entry.map_or(0, |entry| entry.last_seen().as_raw());
    match state(entry, now) {
        GONE => (2, Reverse(seen)),
        "silent" | "ending" | "unknown" => (1, Reverse(seen)),
        _ => (0, Reverse(started)),
    }
}

/// Reads the shards of these runs. A run that cannot be read, or was deleted since, has none.
fn look(coordinator: &mut Coordinator, tenant: TenantId, active: &[RunId]) -> Snapshot {
    let mut found = Snapshot::new();
    for run in active {
        let now = SystemClock::new().now();
        let Ok(look) = RunLook::take(coordinator, now, tenant, *run) else { continue };
        for row in look.shards().iter().filter(|row| row.damage.is_none()) {
            let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
            let keys = token.map_or(0, |token| token.accumulator.count());
            found.insert((*run, row.shard), (row.owner, keys));
        }
    }
    found
}

/// Returns how many keys were done in the shards that a worker held at one of the two times.
fn keys_between(worker: WorkerId, before: &Snapshot, after: &Snapshot) -> u64 {
    let done = after.iter().map(|(shard, (owner, keys))| {
        // A shard that is new was cut from another, and brings the keys of that one.
        let Some((past_owner, past)) = before.get(shard) else { return 0 };
        let is_held = [owner, past_owner].contains(&&Some(worker));
        if is_held { keys.saturating_sub(*past) } else { 0 }
    });
    done.sum()
}

/// A worker as the store shows it.
struct Seen<'a> {
    entry: Option<&'a WorkerEntry>,
    /// The unfinished run that it belongs to.
    run: Option<&'a RunId>,
    shards: usize,
    /// Keys per second.
    rate: Option<u64>,
}

impl Seen<'_> {
    fn describe(&self, worker: WorkerId, now: LogicalTime) -> Record {
        let process = self.entry.and_then(|entry| entry.process);
        let label = process.and_then(|process| process.label);
        let seen = self.entry.map(WorkerEntry::last_seen);
        let ahead = seen.map_or(0, |seen| seen.as_raw().saturating_sub(now.as_raw()));
        // One that is behind looks the same as one that has not sent a heartbeat for a while.
        let ahead = (ahead >= CLOCK_OFFSET_MIN).then_some(ahead);
        let clock =
            ahead.map_or_else(|| "-".to_owned(), |ahead| format!("+{}", duration::rough(ahead)));
        let rate = self.rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate}/s"));
        Record::new()
            .with("worker", format!("{:016x}", worker.as_raw()))
            .with("host", label.map(|label| label.host.as_str().to_owned()))
            .with("pid", process.map(|process| process.process.pid))
            .with("version", label.map(|label| label.version.as_str().to_owned()))
            .with("state", state(self.entry, now))
            .with("jobs", label.map(|label| label.jobs))
            .with_shown("rate", self.rate, rate)
            .with("shards", self.shards)
            .with("run", self.run.map(|run| format!("{:016x}", run.as_raw())))
            .with_time("last_seen", seen)
            .with_shown("clock_ahead_ms", ahead, clock)
    }
}

/// Returns the state in one word; of a worker that stopped sending heartbeats, whether it is known
/// to be gone.
fn state(entry: Option<&WorkerEntry>, now: LogicalTime) -> &'static str {
    let Some(entry) = entry else { return "unknown" };
    let presence = entry.process.map(|process| SystemHost.presence(&process));
    match entry.state {
        _ if presence == Some(Presence::Gone) => GONE,
        _ if presence == Some(Presence::Ending) => "ending",
        _ if !entry.is_live_at(now) => "silent",
        WorkerState::Working => "working",
        WorkerState::Idle => "idle",
        WorkerState::Draining => "draining",
        // The coordinator's enum may grow.
        _ => "other",
    }
}
