//! A run that is followed: its progress, map, workers and bounded history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gossip::coordination::{HandoffId, ShardStatus, ShardSummary, WorkerEntry};
use gossip::identity::{FenceEpoch, LogicalTime, RunId, ShardId, WorkerId};
use gossip::runtime::{
    Density, Host as _, Presence, Progress, ProgressMeter, RunLook, RuntimeToken, Slice, SystemHost,
};

use crate::buckets::{self, BUCKETS, Cells, Holder};
use crate::events::Moved;
use crate::wire::{Column, Lane, Mark, RunSummary, RunView};

/// Columns of a history. When they are full every second one is dropped and the interval doubles,
/// so the history always covers the whole time.
const COLUMNS: usize = 256;

/// Time between the first columns.
const INTERVAL_FIRST: Duration = Duration::from_secs(1);

/// Marks of changed lease holders that are kept.
const MARKS_MAX: usize = 256;

/// Workers of a run with numbers of their own; further ones share the last number.
const WORKERS_MAX: usize = 256;

/// Parked shards that are remembered for the list of failures.
const PARKED_MAX: usize = 10_000;

/// The rate is that of this time before now.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// A lease with less than this part of its duration left was not renewed in time.
const OVERDUE_SHARE: u64 = 2;

/// A worker is slow below this part of the median rate.
const SLOW_SHARE: f64 = 0.5;

/// A parked shard.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(crate) shard: ShardId,
    pub(crate) reason: &'static str,
    pub(crate) context: Option<Box<str>>,
    pub(crate) start: Box<[u8]>,
}

/// A shard at the last look.
#[derive(Clone, Copy, Debug)]
struct Prior {
    owner: Option<WorkerId>,
    fence: FenceEpoch,
    handoff: Option<HandoffId>,
    keys: u64,
}

/// Counts with their times.
#[derive(Clone, Debug, Default)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    fn at(&mut self, now: Instant, keys: u64) -> Option<f64> {
        // The second entry decides, so that one entry at or before the window stays as its start.
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= RATE_WINDOW) {
            self.0.pop_front();
        }
        let rate = self.0.front().and_then(|(at, before)| {
            let elapsed = now.duration_since(*at).as_secs_f64();
            // Over a shorter time the rate would be noise.
            (elapsed > 0.2).then(|| keys.saturating_sub(*before) as f64 / elapsed)
        });
        self.0.push_back((now, keys));
        rate
    }
}

/// A worker that has held a lease of the run.
#[derive(Clone, Debug)]
struct Known {
    keys: u64,
    rate: Rate,
}

/// Follows one run.
#[derive(Debug)]
pub(crate) struct Follower {
    run: RunId,
    meter: ProgressMeter,
    /// The lease duration of the run, in ticks.
    lease: u64,
    numbers: BTreeMap<WorkerId, u16>,
    known: Vec<Known>,
    prior: BTreeMap<ShardId, Prior>,
    rate: Rate,
    marks: VecDeque<Mark>,
    /// Serialized once.
    columns: VecDeque<Arc<str>>,
    interval: Duration,
    column_due: Option<Instant>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) unread: u64,
    /// Whether the marks of the time before the first look were added.
    pub(crate) is_seeded: bool,
}

/// The time of a look, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) now: LogicalTime,
    pub(crate) instant: Instant,
}

impl Follower {
    pub(crate) fn new(run: RunId, density: Density, lease: u64) -> Self {
        Self {
            run,
            meter: ProgressMeter::new(density),
            lease,
            numbers: BTreeMap::new(),
            known: Vec::new(),
            prior: BTreeMap::new(),
            rate: Rate::default(),
            marks: VecDeque::new(),
            columns: VecDeque::new(),
            interval: INTERVAL_FIRST,
            column_due: None,
            parked: Vec::new(),
            unread: 0,
            is_seeded: false,
        }
    }

    /// Adds the leases that changed hands before the first look.
    pub(crate) fn seed(&mut self, moved: &[Moved]) {
        self.is_seeded = true;
        // The rest would only be pushed out by these.
        let newest = &moved[moved.len().saturating_sub(MARKS_MAX)..];
        for it in newest {
            let (from, to) = (self.number(it.from), self.number(it.to));
            self.mark(it.at, it.is_handoff, it.shard, (from, to));
        }
    }

    /// Takes a look into account. Returns the run as it is shown; `summary` has what the look does
    /// not know.
    pub(crate) fn observe(
        &mut self,
        look: &RunLook,
        at: At,
        entries: &[WorkerEntry],
        mut summary: RunSummary,
    ) -> RunView {
        let progress = self.meter.observe(look);
        let slices = self.meter.slices(look);
        let is_over = look.status.is_terminal();
        self.compare(look.shards(), at.now);
        self.remember_parked(look.shards());
        self.unread = progress.unread;
        let workers = if is_over { Vec::new() } else { self.lanes(&slices, at, entries) };
        let stalled = |worker: u16| {
            workers.iter().any(|lane| lane.number == worker && lane.stalled_ms.is_some())
        };
        let holder = |slice: &Slice| {
            let number = *self.numbers.get(&slice.holder?)?;
            Some(Holder { number, is_stalled: stalled(number) })
        };
        let cells = buckets::joined(&buckets::buckets(&slices, BUCKETS, holder));
        let rate = self.rate.at(at.instant, progress.keys).filter(|_| !is_over);
        count(&mut summary, &progress, rate, workers.len() as u64);
        self.add_column(at, progress.keys, &cells, &workers);
        RunView {
            summary,
            at: at.now.as_raw(),
            buckets: BUCKETS,
            cells,
            workers,
            marks: self.marks.iter().cloned().collect(),
        }
    }

    /// Returns the columns, serialized, and the time between them.
    pub(crate) fn history(&self) -> (Vec<Arc<str>>, Duration) {
        (self.columns.iter().cloned().collect(), self.interval)
    }

    pub(crate) const fn run(&self) -> RunId {
        self.run
    }

    /// Counts keys for the workers, and notes leases that changed hands.
    fn compare(&mut self, shards: &[ShardSummary], now: LogicalTime) {
        let is_first = self.prior.is_empty();
        let mut next = BTreeMap::new();
        for row in shards.iter().filter(|row| row.damage.is_none()) {
            if row.status == ShardStatus::Split {
                continue;
            }
            let keys = keys_of(row);
            let prior = self.prior.get(&row.shard).copied();
            // Keys that were done before a lease ended count for the worker that held it.
            let holder = row.owner.or_else(|| prior.and_then(|prior| prior.owner));
            if let Some(worker) = holder {
                let number = self.number(worker);
                // A shard that is new was cut from another, and brings the keys of that one.
                let before = prior.map_or(keys, |prior| prior.keys);
                self.known[usize::from(number)].keys += keys.saturating_sub(before);
            }
            if let (Some(prior), Some(to), false) = (prior, row.owner, is_first)
                && let Some(from) = prior.owner.filter(|from| *from != to)
                && prior.fence != row.fence_epoch
            {
                let is_handoff = row.last_handoff != prior.handoff;
                let (from, to) = (self.number(from), self.number(to));
                self.mark(now.as_raw(), is_handoff, row.shard, (from, to));
            }
            // A shard whose holder died has no owner until it is claimed again.
            let owner = match row.status {
                ShardStatus::Active => holder,
                ShardStatus::Done | ShardStatus::Parked | ShardStatus::Split => None,
            };
            let (fence, handoff) = (row.fence_epoch, row.last_handoff);
            next.insert(row.shard, Prior { owner, fence, handoff, keys });
        }
        self.prior = next;
    }

    fn mark(&mut self, at: u64, is_handoff: bool, shard: ShardId, (from, to): (u16, u16)) {
        let kind = if is_handoff { "handoff" } else { "takeover" };
        let shard = format!("{:016x}", shard.as_raw());
        self.marks.push_back(Mark { at, kind, shard, from, to });
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// Returns the number of a worker.
    fn number(&mut self, worker: WorkerId) -> u16 {
        if let Some(number) = self.numbers.get(&worker) {
            return *number;
        }
        // Later workers share the last number, so that a run with many restarts does not fill the
        // memory.
        if self.known.len() < WORKERS_MAX {
            self.known.push(Known { keys: 0, rate: Rate::default() });
        }
        let number = u16::try_from(self.known.len() - 1).unwrap_or(u16::MAX);
        if self.numbers.len() < PARKED_MAX {
            self.numbers.insert(worker, number);
        }
        number
    }

    fn remember_parked(&mut self, shards: &[ShardSummary]) {
        let parked = shards.iter().filter(|row| row.status == ShardStatus::Parked);
        let parked = parked.filter(|row| row.damage.is_none()).take(PARKED_MAX);
        self.parked = parked
            .map(|row| Parked {
                shard: row.shard,
                reason: row.park_reason.map_or("other", reason_word),
                context: row.park_context.clone(),
                start: row.start.clone(),
            })
            .collect();
        self.parked.sort_by_key(|parked| parked.shard);
    }

    /// Returns the workers that hold a lease, and those that held one in the window of the rate.
    fn lanes(&mut self, slices: &[Slice], at: At, entries: &[WorkerEntry]) -> Vec<Lane> {
        let mut leases: BTreeMap<WorkerId, (u64, LogicalTime, &Slice)> = BTreeMap::new();
        for slice in slices {
            let (Some(holder), Some(ends)) = (slice.holder, slice.lease_ends) else { continue };
            let (shards, last, longest) = leases.entry(holder).or_insert((0, ends, slice));
            (*shards, *last) = (*shards + 1, ends.max(*last));
            // The slice of which most remains: it is the one that the user waits for.
            if slice.to - slice.covered > longest.to - longest.covered {
                *longest = slice;
            }
        }
        let mut lanes = Vec::with_capacity(leases.len());
        for (worker, (shards, ends, longest)) in leases {
            let number = self.number(worker);
            let known = &mut self.known[usize::from(number)];
            let rate = known.rate.at(at.instant, known.keys);
            let entry = entries.iter().find(|entry| entry.worker == worker);
            let process = entry.and_then(|entry| entry.process);
            let presence =
                process.map_or(Presence::Unknown, |process| SystemHost.presence(&process));
            let is_gone = matches!(presence, Presence::Gone | Presence::Ending);
            // A deadline that lies further ahead is void a lease after the last renewal.
            let left = ends.as_raw().saturating_sub(at.now.as_raw()).min(self.lease);
            let is_overdue = is_gone || left < self.lease / OVERDUE_SHARE;
            lanes.push(Lane {
                number,
                worker: format!("{:016x}", worker.as_raw()),
                name: entry.map_or_else(|| short_name(worker), name_of),
                shards,
                shard: format!("{:016x}", longest.shard.as_raw()),
                keys: known.keys,
                rate,
                stalled_ms: is_overdue.then_some(left),
                is_gone,
                is_slow: false,
            });
        }
        lanes.sort_by_key(|lane| lane.number);
        mark_slow(&mut lanes);
        lanes
    }

    fn add_column(&mut self, at: At, keys: u64, cells: &Cells, lanes: &[Lane]) {
        if self.column_due.is_some_and(|due| at.instant < due) {
            return;
        }
        // A quarter of an interval of grace: a look that is a little early must not cost a column.
        self.column_due = Some(at.instant + self.interval - self.interval / 4);
        let workers = lanes.iter().map(|lane| (lane.number, lane.shards, lane.keys)).collect();
        let column = Column { at: at.now.as_raw(), keys, cells: cells.clone(), workers };
        let text = serde_json::to_string(&column).expect("numbers and words are JSON");
        self.columns.push_back(text.into());
        if self.columns.len() >= COLUMNS {
            let mut is_kept = false;
            self.columns.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.interval *= 2;
        }
    }
}

/// Adds the counts to a summary.
fn count(summary: &mut RunSummary, progress: &Progress, rate: Option<f64>, workers: u64) {
    summary.is_read = true;
    summary.rows_read = None;
    summary.keys = Some(progress.keys);
    summary.unread = Some(progress.unread);
    summary.total = progress.total;
    summary.total_kind = Some(progress.kind.to_string());
    summary.fraction = progress.fraction;
    summary.rate = rate;
    let eta = progress.eta.filter(|_| !summary.is_over);
    summary.left_ms = eta.map(|eta| eta.left);
    summary.left_error_ms = eta.map(|eta| eta.error);
    summary.shards = Some(crate::wire::ShardCounts {
        done: progress.shards_done,
        leased: if summary.is_over { 0 } else { progress.shards_leased },
        waiting: progress.shards_waiting,
        parked: progress.shards_parked,
        damaged: progress.shards_damaged,
    });
    summary.workers = Some(workers);
}

fn mark_slow(lanes: &mut [Lane]) {
    let mut rates: Vec<f64> = lanes.iter().filter_map(|lane| lane.rate).collect();
    if rates.len() < 2 {
        return;
    }
    rates.sort_by(f64::total_cmp);
    // The upper one of two: of two workers the slower one is compared with the faster one.
    let median = rates[rates.len() / 2];
    for lane in lanes {
        lane.is_slow = lane.rate.is_some_and(|rate| rate < median * SLOW_SHARE);
    }
}

fn keys_of(row: &ShardSummary) -> u64 {
    let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
    token.map_or(0, |token| token.accumulator.count())
}

/// Returns the name of a registered worker.
fn name_of(entry: &WorkerEntry) -> String {
    let Some(process) = entry.process else { return short_name(entry.worker) };
    match process.label {
        Some(label) => format!("{} pid {}", label.host.as_str(), process.process.pid),
        None => format!("pid {}", process.process.pid),
    }
}

fn short_name(worker: WorkerId) -> String {
    // The second half differs between the workers of a run.
    format!("worker {:08x}", worker.as_raw() & 0xffff_ffff)
}

/// Returns the park reason in words.
pub(crate) const fn reason_word(reason: gossip::coordination::ParkReason) -> &'static str {
    use gossip::coordination::ParkReason;
    match reason {
        ParkReason::PermissionDenied => "permission denied",
        ParkReason::NotFound => "not found",
        ParkReason::Poisoned => "failed",
        ParkReason::TooManyErrors => "too many errors",
        // The coordinator's enum may grow.
        ParkReason::Other | _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: u16, rate: Option<f64>) -> Lane {
        Lane {
            number,
            worker: String::new(),
            name: String::new(),
            shards: 1,
            shard: String::new(),
            keys: 0,
            rate,
            stalled_ms: None,
            is_gone: false,
            is_slow: false,
        }
    }

    #[test]
    fn worker_below_half_of_the_median_is_slow() {
        let mut lanes = [lane(0, Some(10.0)), lane(1, Some(4.0)), lane(2, Some(11.0))];
        mark_slow(&mut lanes);
        assert_eq!(lanes.map(|lane| lane.is_slow), [false, true, false]);
        let mut alone = [lane(0, Some(1.0)), lane(1, None)];
        mark_slow(&mut alone);
        assert!(alone.iter().all(|lane| !lane.is_slow));
    }

    #[test]
    fn history_covers_the_whole_time_in_a_bounded_number_of_columns() {
        let mut follower = Follower::new(RunId::from_raw(1), Density::default(), 15_000);
        let start = Instant::now();
        for second in 0..5_000_u64 {
            let instant = start + Duration::from_secs(second);
            let at = At { now: LogicalTime::from_raw(second * 1_000), instant };
            follower.add_column(at, second, &Vec::new(), &[]);
        }
        let (columns, interval) = follower.history();
        assert!(columns.len() < COLUMNS && columns.len() >= COLUMNS / 4, "{}", columns.len());
        assert!(columns[0].starts_with("{\"at\":0,"), "the first one is kept");
        assert!(interval >= Duration::from_secs(5_000 / COLUMNS as u64));
    }

    #[test]
    fn rate_is_that_of_the_window() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        assert_eq!(rate.at(start, 0), None);
        for second in 1..=30 {
            rate.at(start + Duration::from_secs(second), second * 5);
        }
        let idle = rate.at(start + Duration::from_secs(60), 150);
        assert!(idle.is_some_and(|rate| rate < 0.1), "{idle:?}");
        assert!(rate.0.len() < 20);
    }
}
