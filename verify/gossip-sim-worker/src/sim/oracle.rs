//! Checks the rules by effects: the results in the sink and the transactions on the disk.
//!
//! The oracle does not inspect workers, and it is not the sink: it observes every transaction when
//! it is applied, every key that is started, and every [`Effect`] on the sink, with their true
//! times. Grants are ordered by their commits, so that the sink's decisions can be wrong, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gossip_coordination::store::{HotPart, Key, Write, decode_cold, decode_hot};
use gossip_coordination::{ParkReason, ShardStatus};
use gossip_sim::{Applied, EPOCH, mix};

use super::shared_state::ADMIN;
use super::sink::Effect;
use super::source::WorldSource;

/// Ticks of the fastest clock in a thousand of the true time.
const FASTEST: i64 = 1_030;

/// A rule of the worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "the rules of the worlds")]
pub enum Rule {
    /// A cursor covers a key without a result.
    LostKey,
    /// A shard is done although a key of its range is not.
    DoneUncovered,
    /// A cursor regressed.
    CursorFell,
    /// A key was started after the true end of the lease, later than the worker's clock has lost
    /// since.
    WorkedWithoutLease,
    /// A shard was granted before the true end of a lease, earlier than the clocks differ, and
    /// its deadline was not void.
    TwoOwners,
    /// A lease ends later than its duration after its grant or renewal.
    LeaseTooLong,
    /// The sink accepted a result of an older grant after one of a newer, or refused the newest.
    SinkOrder,
    /// More finished keys are unrecorded than a checkpoint interval and the in-flight keys.
    RedoneTooMuch,
    /// A handoff, a release or a replacement left finished keys unrecorded.
    MoveRedoes,
    /// A result arrived under a fence that was handed off, or during the handoff.
    WorkedAfterGivingAway,
    /// The coordinator refused a request that only a bug of the worker can send.
    Nonsense,
    /// A good key was failed or parked, or a bad key was done.
    WronglyParked,
    /// After the last fault the run did not settle in time.
    NeverSettles,
    /// The certificate of the run does not verify, or differs from the results.
    Certificate,
}

/// The start of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) shard: u64,
    pub(super) fence: u64,
    pub(super) key: usize,
    /// The true time at which the worker read its clock.
    pub(super) read_at: u64,
    /// By how much that clock, the worker time, was ahead.
    pub(super) error: i64,
    /// The true time.
    pub(super) now: u64,
}

/// A violated rule with details, which are numbers only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a rule and its details")]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The details.
    pub why: String,
}

/// Counters of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "figures of a report")]
pub struct Seen {
    /// Accepted results.
    pub accepted: u64,
    /// Accepted results of keys that already had one.
    pub redone: u64,
    /// Results refused because of their fence.
    pub refused: u64,
    /// Applied transactions.
    pub commits: u64,
    /// Grants of shards.
    pub grants: u64,
    /// Grants by handoffs.
    pub moves: u64,
    /// Released shards.
    pub releases: u64,
    /// Shards that were created by splits.
    pub splits: u64,
    /// Shards that were replaced by others.
    pub replaced: u64,
    /// Parked shards.
    pub parks: u64,
    /// Of them, those parked by the count of attempts.
    pub parked_by_count: u64,
    /// Keys that were started after the true end of their lease.
    pub begun_late: u64,
    /// Grants before the true end of the previous lease.
    pub granted_early: u64,
    /// Grants before a deadline that was void.
    pub granted_void: u64,
}

impl Seen {
    /// Adds the counters of another world.
    pub(super) const fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.redone += other.redone;
        self.refused += other.refused;
        self.commits += other.commits;
        self.grants += other.grants;
        self.moves += other.moves;
        self.releases += other.releases;
        self.splits += other.splits;
        self.replaced += other.replaced;
        self.parks += other.parks;
        self.parked_by_count += other.parked_by_count;
        self.begun_late += other.begun_late;
        self.granted_early += other.granted_early;
        self.granted_void += other.granted_void;
    }
}

/// The stored state of a shard.
#[derive(Clone, Debug, Default)]
struct Shard {
    /// Numbers of its keys.
    range: (usize, usize),
    fence: u64,
    /// The first number that the cursor does not cover.
    next: usize,
    has_cursor: bool,
    status: Option<ShardStatus>,
    is_leased: bool,
    is_offered: bool,
    last_handoff: Option<u64>,
    /// The true time of the last write.
    written_at: u64,
}

/// Results under one fence of one shard.
#[derive(Clone, Debug, Default)]
struct Grant {
    /// Its place in the order of grants; zero if it was never granted.
    order: u64,
    /// Its holder.
    process: u32,
    /// The stored deadline.
    deadline: i64,
    /// The true time at which the lease ends.
    true_end: i64,
    /// By how much the worker time of its holder was ahead when it was granted or renewed.
    error: i64,
    /// Finished keys that the cursor does not cover.
    unsaved: BTreeSet<usize>,
    /// Whether its owner handed the shard off.
    is_given_away: bool,
}

/// The last accepted result of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Place of its grant in the order of grants; zero for none.
    order: u64,
}

/// State of the oracle.
#[derive(Debug)]
pub(super) struct Oracle {
    source: Arc<WorldSource>,
    cells: Vec<Cell>,
    shards: BTreeMap<u64, Shard>,
    grants: BTreeMap<(u64, u64), Grant>,
    /// Number of grants so far.
    granted: u64,
    /// Lease duration.
    lease: u64,
    /// Clock skew that is waited for.
    max_clock_skew: u64,
    /// The true time, the process and the errors of its clocks of the transaction that is observed.
    at: u64,
    process: u32,
    error: i64,
    worker_error: i64,
    /// Keys that may be finished and not recorded under one grant.
    unsaved_max: usize,
    pub(super) seen: Seen,
    pub(super) broken: Option<Violation>,
    /// Hash of all observations.
    pub(super) trace: u64,
}

impl Oracle {
    pub(super) fn new(source: Arc<WorldSource>, unsaved_max: usize, lease: u64, seed: u64) -> Self {
        let cells = vec![Cell::default(); source.entries.len()];
        Self {
            source,
            cells,
            shards: BTreeMap::new(),
            grants: BTreeMap::new(),
            granted: 0,
            lease,
            max_clock_skew: lease / 4,
            at: 0,
            process: 0,
            error: 0,
            worker_error: 0,
            unsaved_max,
            seen: Seen::default(),
            broken: None,
            trace: seed,
        }
    }

    /// Adds a value to the trace hash.
    pub(super) const fn note(&mut self, one: u64, other: u64) {
        self.trace = mix(self.trace ^ mix(one).wrapping_add(other));
    }

    /// Records a violation; the first one is kept.
    pub(super) fn require(&mut self, holds: bool, rule: Rule, why: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(Violation { rule, why: why() });
        }
    }

    /// Returns whether the sink has a result of the key with this number.
    pub(super) fn is_done(&self, number: usize) -> bool {
        self.cells[number].order > 0
    }

    /// Observes the start of a key.
    pub(super) fn begun(&mut self, begun: Begun) {
        let Begun { shard, fence, key, read_at, error, now } = begun;
        self.note(shard ^ 0xB0, fence << 32 | key as u64);
        let grant = self.grants.get(&(shard, fence));
        let (end, lost) = grant.map_or((0, 0), |grant| (grant.true_end, grant.error - error));
        self.seen.begun_late += u64::from(now as i64 >= end);
        // A clock that lost time since the renewal lets its worker act so much longer.
        let late = read_at as i64 - (end + lost);
        self.require(late < 0, Rule::WorkedWithoutLease, || {
            format!("key {key} of shard {shard:x} begun {late} ticks after fence {fence} ended")
        });
    }

    /// Observes a write to the sink.
    pub(super) fn observed(&mut self, effect: Effect) {
        let Effect { shard, fence, key, taken, .. } = effect;
        let grant = self.grants.entry((shard, fence)).or_default();
        let offered = self.shards.get(&shard).is_some_and(|it| it.fence == fence && it.is_offered);
        let gone = grant.is_given_away || offered;
        let (order, last) = (grant.order, self.cells[key].order);
        let next = self.shards.get(&shard).map_or(0, |shard| shard.next);
        if taken {
            self.cells[key].order = order;
            if key >= next {
                grant.unsaved.insert(key);
            }
        }
        let (unsaved, most) = (grant.unsaved.len(), self.unsaved_max);
        self.seen.accepted += u64::from(taken);
        self.seen.redone += u64::from(taken && last > 0);
        self.seen.refused += u64::from(!taken);
        self.note(shard ^ 0xE0, fence << 32 | (key as u64) << 1 | u64::from(taken));
        let in_order = order > 0 && taken == (order >= last);
        self.require(in_order, Rule::SinkOrder, || {
            format!("key {key}: grant {order} after grant {last}, accepted: {taken}")
        });
        self.require(!gone, Rule::WorkedAfterGivingAway, || {
            format!("key {key} of shard {shard:x} done under fence {fence}, which was given away")
        });
        self.require(unsaved <= most, Rule::RedoneTooMuch, || {
            format!("{unsaved} keys of shard {shard:x} done under fence {fence} and not recorded")
        });
    }

    /// Observes an applied transaction.
    pub(super) fn applied(&mut self, applied: Applied<'_>) {
        let Applied { txn, at, process, clock_error, worker_error } = applied;
        (self.at, self.process) = (at, process);
        (self.error, self.worker_error) = (clock_error, worker_error);
        self.seen.commits += 1;
        self.note(0xD0, txn.writes().len() as u64);
        // Ranges first: cursors are checked against them.
        for write in txn.writes() {
            if let Write::Put(Key::ShardCold { tenant, shard }, value) = write
                && let Ok(cold) = decode_cold(*tenant, *shard, value)
            {
                let range = (self.source.lower(cold.spec.start), self.source.lower(cold.spec.end));
                let id = shard.shard().as_raw();
                if !self.shards.contains_key(&id) && cold.lineage.is_some() {
                    self.seen.splits += 1;
                }
                self.shards.entry(id).or_default().range = range;
            }
        }
        for write in txn.writes() {
            if let Write::Put(Key::ShardHot { tenant, shard }, value) = write
                && let Ok(hot) = decode_hot(*tenant, *shard, value)
            {
                self.shard_is(shard.shard().as_raw(), &hot);
            }
        }
    }

    fn shard_is(&mut self, id: u64, hot: &HotPart<'_>) {
        let before = self.shards.get(&id).cloned().unwrap_or_default();
        let key = hot.cursor.last_key();
        let now = Shard {
            range: before.range,
            fence: hot.fence.as_raw(),
            next: self.behind_cursor(key, before.range),
            has_cursor: key.is_some(),
            status: Some(hot.status),
            is_leased: hot.lease.is_some(),
            is_offered: hot.offer.is_some(),
            last_handoff: hot.last_handoff.map(|handoff| handoff.as_raw()),
            written_at: self.at,
        };
        self.note(id ^ now.fence << 8, (now.next as u64) << 8 | hot.status as u64);
        if let Some(deadline) = hot.lease_deadline() {
            self.leased_until(id, now.fence, deadline.as_raw());
        }
        self.shards.insert(id, now.clone());
        self.cursor_moved(id, &before, &now);
        self.owner_changed(id, &before, &now);
        self.status_changed(id, &before, &now, hot.park_reason);
    }

    /// Observes the deadline of a lease. The stored one is by the wall clock of the process that
    /// wrote it, whose error the simulator knows.
    fn leased_until(&mut self, id: u64, fence: u64, deadline: u64) {
        let (at, lease, deadline) = (self.at as i64, self.lease as i64, deadline as i64);
        let (process, worker_error) = (self.process, self.worker_error);
        // The deadline as the clock of the process shows it, in true time.
        let shown = deadline - EPOCH as i64 - self.error;
        let next = self.granted + 1;
        let grant = self.grants.entry((id, fence)).or_default();
        if grant.order == 0 {
            (grant.order, self.granted) = (next, next);
        }
        if deadline > grant.deadline {
            (grant.process, grant.deadline) = (process, deadline);
            (grant.true_end, grant.error) = (shown, worker_error);
            let excess = shown - (at + lease);
            return self.require(excess <= 0, Rule::LeaseTooLong, || {
                format!("fence {fence} of shard {id:x} lasts {excess} ticks too long")
            });
        }
        // The clock of the holder was set back. A renewal keeps the deadline then, and the holder
        // relies on a lease from its request.
        if process == grant.process && shown > at + lease {
            (grant.true_end, grant.error) = (at + lease, worker_error);
        }
    }

    /// Checks that a lease had ended when the shard was granted again. A clock that is ahead of the
    /// holder's sees the end so much earlier. A deadline that lies too far ahead is void after a
    /// lease and the skew without a write.
    fn check_takeover(&mut self, id: u64, fence: u64, written_at: u64) {
        let Some(grant) = self.grants.get(&(id, fence)) else { return };
        let (end, at) = (grant.true_end, self.at as i64);
        let early = grant.deadline - EPOCH as i64 - self.error - at;
        self.seen.granted_early += u64::from(at < end);
        let window = (self.lease + self.max_clock_skew) as i64;
        // The process that waits has a clock that may run too fast.
        let waited = (at - written_at as i64) * FASTEST / 1_000 + 1;
        let is_void = early > self.lease as i64 && waited >= window;
        self.seen.granted_void += u64::from(is_void);
        self.require(early <= 0 || is_void, Rule::TwoOwners, || {
            format!("shard {id:x} granted {early} ticks before fence {fence} ended")
        });
    }

    /// Returns the first number that a cursor does not cover. A shard without items completes at
    /// its start, which covers nothing.
    fn behind_cursor(&self, key: Option<&[u8]>, range: (usize, usize)) -> usize {
        key.map_or(range.0, |key| self.source.behind(key))
    }

    fn cursor_moved(&mut self, id: u64, before: &Shard, now: &Shard) {
        let old = if before.has_cursor { before.next } else { now.range.0 };
        // A repair of a damaged record starts the shard again under a higher fence.
        let is_repair = self.process == ADMIN && now.fence != before.fence && !now.has_cursor;
        if before.has_cursor && !is_repair {
            self.require(now.next >= old, Rule::CursorFell, || {
                format!("the cursor of shard {id:x} fell from {old} to {}", now.next)
            });
        }
        let lost = (old..now.next).find(|number| !self.is_done(*number));
        self.require(lost.is_none(), Rule::LostKey, || {
            format!("the cursor of shard {id:x} is at {} and key {lost:?} is not done", now.next)
        });
        if let Some(grant) = self.grants.get_mut(&(id, before.fence)) {
            // The keys of a residual belong to another shard.
            grant.unsaved.retain(|key| *key >= now.next && *key < now.range.1);
        }
    }

    fn owner_changed(&mut self, id: u64, before: &Shard, now: &Shard) {
        let by_move = now.last_handoff.is_some() && now.last_handoff != before.last_handoff;
        let bumped = now.fence != before.fence;
        self.seen.grants += u64::from(bumped && now.is_leased);
        if bumped && now.is_leased && before.is_leased && !by_move {
            self.check_takeover(id, before.fence, before.written_at);
        }
        self.seen.moves += u64::from(bumped && by_move);
        let active = now.status == Some(ShardStatus::Active);
        let released = !bumped && before.is_leased && !now.is_leased && active;
        self.seen.releases += u64::from(released);
        let replaced = before.status != now.status && now.status == Some(ShardStatus::Split);
        self.seen.replaced += u64::from(replaced);
        if !(bumped && by_move || released || replaced) {
            return;
        }
        // Keys after a bad key are not recorded before the bad key is failed or parked.
        let mut left = now.next..self.source.entries.len();
        let bad = left.find(|number| self.source.entries[*number].temper.is_bad());
        let grant = self.grants.entry((id, before.fence)).or_default();
        grant.is_given_away = true;
        let unsaved = grant.unsaved.range(..bad.unwrap_or(usize::MAX)).count();
        self.require(unsaved == 0, Rule::MoveRedoes, || {
            let how = match (released, replaced) {
                (true, _) => "released",
                (_, true) => "replaced",
                (false, false) => "moved",
            };
            format!("shard {id:x} was {how} with {unsaved} keys finished and not recorded")
        });
    }

    fn status_changed(&mut self, id: u64, before: &Shard, now: &Shard, reason: Option<ParkReason>) {
        if now.status == before.status {
            return;
        }
        self.seen.parks += u64::from(reason.is_some());
        self.seen.parked_by_count += u64::from(reason == Some(ParkReason::TooManyErrors));
        if now.status == Some(ShardStatus::Done) {
            let missed = (now.range.0..now.range.1).find(|number| !self.is_done(*number));
            self.require(missed.is_none(), Rule::DoneUncovered, || {
                format!("shard {id:x} is done and its key {missed:?} is not")
            });
        }
    }
}
