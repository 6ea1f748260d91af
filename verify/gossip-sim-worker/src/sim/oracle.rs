//! What was allowed, judged by effects: what the sink took, and what the disk took.
//!
//! The oracle knows no worker. It hears of every transaction at the instant at which it is applied,
//! of every key that is begun, and of every result; it keeps the fence of the last accepted result
//! of each key and refuses a lower one, as a sink of a user does (DESIGN 7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::store::{HotPart, Key, Txn, Write, decode_cold, decode_hot};
use gossip_coordination::{ParkReason, ShardStatus};
use gossip_sim::mix;

use super::source::WorldSource;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "the rules of the worlds")]
pub enum Rule {
    /// A cursor moved past a key whose result nobody has.
    LostKey,
    /// A shard is done, and a key of its range is not.
    DoneUncovered,
    /// A cursor went back.
    CursorFell,
    /// A key was begun when the lease had ended by the worker's own time.
    WorkedWithoutLease,
    /// More was finished and not recorded than a checkpoint interval and what is under way.
    RedoneTooMuch,
    /// A planned move or a release left something finished that was not recorded.
    MoveRedoes,
    /// A result came under a fence that its owner had given away, or while it was being given away.
    WorkedAfterGivingAway,
    /// The coordinator refused what only a mistake of the worker can have asked.
    Nonsense,
    /// A key was set aside that nothing is wrong with, or one was done that cannot be.
    WronglyParked,
    /// After the last fault the run did not settle in time.
    NeverSettles,
    /// The certificate of the run does not verify, or says something else than happened.
    Certificate,
}

/// A rule that was broken, and what is known of it: numbers only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "there is no more to say")]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What happened.
    pub why: String,
}

/// What was seen in a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "figures of a report")]
pub struct Seen {
    /// Results that the sink took.
    pub accepted: u64,
    /// Results of keys that it had.
    pub redone: u64,
    /// Results that it refused because of their fence.
    pub refused: u64,
    /// Transactions that the disk took.
    pub commits: u64,
    /// Grants of shards.
    pub grants: u64,
    /// Of them by planned moves.
    pub moves: u64,
    /// Shards that were given back with their progress.
    pub releases: u64,
    /// Shards that were split off.
    pub splits: u64,
    /// Shards that were set aside.
    pub parks: u64,
}

impl Seen {
    /// Adds what was seen elsewhere.
    pub(super) const fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.redone += other.redone;
        self.refused += other.refused;
        self.commits += other.commits;
        self.grants += other.grants;
        self.moves += other.moves;
        self.releases += other.releases;
        self.splits += other.splits;
        self.parks += other.parks;
    }
}

/// A shard as the disk has it.
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

/// What was done under one fence of one shard.
#[derive(Clone, Debug, Default)]
struct Grant {
    deadline: u64,
    /// Keys that were done and lie behind the cursor.
    unsaved: BTreeSet<usize>,
    /// Whether its owner gave the shard away.
    is_given_away: bool,
}

/// The last accepted result of a key; fence zero for none.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    fence: u64,
}

/// Listens, and keeps its own account.
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
    /// Of everything that was heard.
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

    /// Mixes something into the trace.
    pub(super) const fn note(&mut self, one: u64, other: u64) {
        self.trace = mix(self.trace ^ mix(one).wrapping_add(other));
    }

    /// The first broken rule stands.
    pub(super) fn require(&mut self, holds: bool, rule: Rule, why: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(Violation { rule, why: why() });
        }
    }

    /// Whether the sink has a result of the key with this number.
    pub(super) fn is_done(&self, number: usize) -> bool {
        self.cells[number].fence > 0
    }

    /// A key is begun at `now` by the clock of whoever does.
    pub(super) fn begun(&mut self, shard: u64, fence: u64, key: usize, now: LogicalTime) {
        self.note(shard ^ 0xB0, fence << 32 | key as u64);
        let deadline = self.grants.get(&(shard, fence)).map_or(0, |grant| grant.deadline);
        self.require(now.as_raw() < deadline, Rule::WorkedWithoutLease, || {
            let late = now.as_raw() - deadline;
            format!("key {key} of shard {shard:x} begun {late} ticks after fence {fence} ended")
        });
    }

    /// The result of a key arrives; whether it is taken.
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

    /// The disk has taken a transaction.
    pub(super) fn applied(&mut self, txn: &Txn) {
        self.seen.commits += 1;
        self.note(0xD0, txn.writes().len() as u64);
        // Ranges first: a cursor is held against them.
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

    /// The first number that a cursor does not cover. A shard without items ends at its start,
    /// which covers nothing.
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
            // What was split off is another shard's.
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
        if !(bumped && by_move || released) {
            return;
        }
        // What lies behind a key that cannot be done is not recorded before that is set aside.
        let mut left = now.next..self.source.entries.len();
        let bad = left.find(|number| self.source.entries[*number].temper.is_bad());
        let grant = self.grants.entry((id, before.fence)).or_default();
        grant.is_given_away = true;
        let unsaved = grant.unsaved.range(..bad.unwrap_or(usize::MAX)).count();
        self.require(unsaved == 0, Rule::MoveRedoes, || {
            let how = if released { "released" } else { "moved" };
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
