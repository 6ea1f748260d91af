//! Checks the rules by effects: the results in the sink and the transactions on the disk.
//!
//! The oracle does not inspect workers. It observes every transaction when it is applied, every key
//! that is started, and every result. It keeps the fence of the last accepted result of each key
//! and refuses a lower one, as a user's sink does (DESIGN 7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::store::{HotPart, Key, Txn, Write, decode_cold, decode_hot};
use gossip_coordination::{ParkReason, ShardStatus};
use gossip_sim::mix;

use super::source::WorldSource;

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
    /// A key was started after the lease had expired by the worker's own clock.
    WorkedWithoutLease,
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
}

/// Results under one fence of one shard.
#[derive(Clone, Debug, Default)]
struct Grant {
    deadline: u64,
    /// Finished keys that the cursor does not cover.
    unsaved: BTreeSet<usize>,
    /// Whether its owner handed the shard off.
    is_given_away: bool,
}

/// The last accepted result of a key; fence zero for none.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    fence: u64,
}

/// State of the oracle.
#[derive(Debug)]
pub(super) struct Oracle {
    source: Arc<WorldSource>,
    cells: Vec<Cell>,
    shards: BTreeMap<u64, Shard>,
    grants: BTreeMap<(u64, u64), Grant>,
    /// Keys that may be finished and not recorded under one grant.
    unsaved_max: usize,
    pub(super) seen: Seen,
    pub(super) broken: Option<Violation>,
    /// Hash of all observations.
    pub(super) trace: u64,
}

impl Oracle {
    pub(super) fn new(source: Arc<WorldSource>, unsaved_max: usize, seed: u64) -> Self {
        let cells = vec![Cell::default(); source.entries.len()];
        Self {
            source,
            cells,
            shards: BTreeMap::new(),
            grants: BTreeMap::new(),
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
        self.cells[number].fence > 0
    }

    /// Observes the start of a key at `now` by the worker's clock.
    pub(super) fn begun(&mut self, shard: u64, fence: u64, key: usize, now: LogicalTime) {
        self.note(shard ^ 0xB0, fence << 32 | key as u64);
        let deadline = self.grants.get(&(shard, fence)).map_or(0, |grant| grant.deadline);
        self.require(now.as_raw() < deadline, Rule::WorkedWithoutLease, || {
            let late = now.as_raw() - deadline;
            format!("key {key} of shard {shard:x} begun {late} ticks after fence {fence} ended")
        });
    }

    /// Observes the result of a key; returns whether the sink accepts it.
    pub(super) fn result(&mut self, shard: u64, fence: u64, key: usize) -> bool {
        let grant = self.grants.entry((shard, fence)).or_default();
        let offered = self.shards.get(&shard).is_some_and(|it| it.fence == fence && it.is_offered);
        let gone = grant.is_given_away || offered;
        let cell = &mut self.cells[key];
        let taken = fence >= cell.fence;
        let again = cell.fence > 0;
        let next = self.shards.get(&shard).map_or(0, |shard| shard.next);
        if taken {
            cell.fence = fence;
            if key >= next {
                grant.unsaved.insert(key);
            }
        }
        let (unsaved, most) = (grant.unsaved.len(), self.unsaved_max);
        self.seen.accepted += u64::from(taken);
        self.seen.redone += u64::from(taken && again);
        self.seen.refused += u64::from(!taken);
        self.note(shard ^ 0xE0, fence << 32 | (key as u64) << 1 | u64::from(taken));
        self.require(!gone, Rule::WorkedAfterGivingAway, || {
            format!("key {key} of shard {shard:x} done under fence {fence}, which was given away")
        });
        self.require(unsaved <= most, Rule::RedoneTooMuch, || {
            format!("{unsaved} keys of shard {shard:x} done under fence {fence} and not recorded")
        });
        taken
    }

    /// Observes an applied transaction.
    pub(super) fn applied(&mut self, txn: &Txn) {
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
        };
        self.note(id ^ now.fence << 8, (now.next as u64) << 8 | hot.status as u64);
        if let Some(deadline) = hot.lease_deadline() {
            let grant = self.grants.entry((id, now.fence)).or_default();
            grant.deadline = grant.deadline.max(deadline.as_raw());
        }
        self.shards.insert(id, now.clone());
        self.cursor_moved(id, &before, &now);
        self.owner_changed(id, &before, &now);
        self.status_changed(id, &before, &now, hot.park_reason);
    }

    /// Returns the first number that a cursor does not cover. A shard without items completes at
    /// its start, which covers nothing.
    fn behind_cursor(&self, key: Option<&[u8]>, range: (usize, usize)) -> usize {
        key.map_or(range.0, |key| self.source.behind(key))
    }

    fn cursor_moved(&mut self, id: u64, before: &Shard, now: &Shard) {
        let old = if before.has_cursor { before.next } else { now.range.0 };
        if before.has_cursor {
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
        if now.status == Some(ShardStatus::Done) {
            let missed = (now.range.0..now.range.1).find(|number| !self.is_done(*number));
            self.require(missed.is_none(), Rule::DoneUncovered, || {
                format!("shard {id:x} is done and its key {missed:?} is not")
            });
        }
    }
}
