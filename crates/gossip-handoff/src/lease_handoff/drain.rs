//! A worker gives all its shards away.
//!
//! Each shard is offered to a willing worker of the registry: one that was heard of lately, is not
//! draining and is not this one. The idle come first, and nobody gets a second shard before
//! everybody has one. Every shard is worked on until its own turn comes: its record is written
//! and its destination finds it meanwhile, and it stands still only for its offer and the accept.
//! What nobody takes in time, and what is left when the time is over, is saved where it stopped and
//! released: somebody claims it, and nothing is redone.
//!
//! # Invariants
//! - At most [`DRAIN_WINDOW`] moves are under way, and at most [`DRAIN_STILL_MAX`] shards stand
//!   still for one.
//! - A shard is released only when it stands still, and after its offer was withdrawn or if it was
//!   never offered.
//! - After the deadline nothing new is offered, and every offer is withdrawn.

use std::collections::VecDeque;

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{CanonicalHasher, Domain, LogicalTime, OpId, ShardKey, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    CheckpointError, CoordinationBackend, Lease, ReleaseError, RunManagement, WorkerEntry,
    WorkerState,
};

use super::driver::{Driver, SourceNext};
use super::source::{HandoffSource, SourceEnd};
use super::terms::{HandoffConfig, MoveTerms};
use crate::repository::Repository;

/// Moves that are under way at a time. Most of them only wait until their destination has found
/// them, so this many in each lead keep a drain of hundreds of shards to seconds.
pub const DRAIN_WINDOW: usize = 32;

/// Shards that stand still at a time: enough to hide a round trip, few enough that the offers of
/// the others do not queue behind them.
pub const DRAIN_STILL_MAX: usize = 4;

// A shard that stands still is under way.
const _: () = assert!(DRAIN_STILL_MAX <= DRAIN_WINDOW);

/// How often one shard is saved or released in vain before it is left to its lease.
const RELEASE_TRIES_MAX: u32 = 3;

/// A shard that is given away.
#[derive(Clone, Debug)]
pub struct Holding {
    lease: Lease,
    /// Moves of this lease that were tried before; ids count on from there.
    attempts: u32,
    /// Where it stopped, and what its next owner shall know, if it stands still already.
    still: Option<(Cursor, Vec<u8>)>,
}

impl Holding {
    /// A shard that is worked on until [`DrainNext::Freeze`] asks for it. `attempts` moves of the
    /// lease were tried before.
    #[must_use]
    pub const fn working(lease: Lease, attempts: u32) -> Self {
        Self { lease, attempts, still: None }
    }

    /// A shard that stands still at `cursor`; an initial one keeps what is stored.
    #[must_use]
    pub const fn frozen(lease: Lease, attempts: u32, cursor: Cursor, snapshot: Vec<u8>) -> Self {
        Self { lease, attempts, still: Some((cursor, snapshot)) }
    }

    /// The lease it is held under.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }
}

/// What became of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a tally counts every kind")]
pub enum DrainEnd {
    /// Another worker has it.
    Moved,
    /// It was released, and whoever claims it goes on where it stopped.
    Released,
    /// Another worker took it by itself, or its lease ended.
    Lost,
    /// Its owner finished or lost it before its turn came ([`WorkerDrain::finished`]); or no worker
    /// accepted it, and its owner keeps it ([`WorkerDrain::keeping`]).
    Finished,
}

/// How many shards ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainTally {
    /// See [`DrainEnd::Moved`].
    pub moved: u64,
    /// See [`DrainEnd::Released`].
    pub released: u64,
    /// See [`DrainEnd::Lost`].
    pub lost: u64,
    /// See [`DrainEnd::Finished`].
    pub finished: u64,
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum DrainNext {
    /// There is more to do at once.
    Again,
    /// The caller stops this shard and calls [`WorkerDrain::freeze`] with its cursor, at once or
    /// when its in-flight items are done. Returned once per shard; others continue meanwhile.
    Freeze(ShardKey),
    /// There is nothing to do before this instant, or before a shard stands still.
    Wait(LogicalTime),
    /// Nothing is left.
    Done(DrainTally),
}

/// One worker that gives everything away.
#[derive(Debug)]
pub struct WorkerDrain {
    config: HandoffConfig,
    /// After this instant what is left is released.
    deadline: LogicalTime,
    /// Whether its owner keeps what nobody takes.
    keeps: bool,
    waiting: VecDeque<Holding>,
    under_way: VecDeque<Passage>,
    /// The willing, best first; whoever gets a shard goes to the end.
    willing: VecDeque<WorkerId>,
    tally: DrainTally,
    ended: Vec<(Lease, DrainEnd)>,
}

/// One shard on its way out.
#[derive(Debug)]
struct Passage {
    lease: Lease,
    rest: Rest,
    /// Where it stopped, once it stands still; an initial one keeps what is stored.
    cursor: Cursor,
    /// Whether it is over without the drain.
    is_finished: bool,
    leg: Leg,
}

/// Whether a shard is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Working,
    /// The caller was asked to stop.
    Asked,
    Still,
}

#[derive(Debug)]
enum Leg {
    Moving(Box<HandoffSource>),
    Saving { tries: u32 },
    Releasing { tries: u32 },
}

impl WorkerDrain {
    /// Gives `holdings` to those of `workers` that are willing, until `deadline` and no longer.
    ///
    /// `me` never gets anything. The order of `workers` breaks ties, so give it in another order
    /// on every worker, or the first is everybody's favourite.
    #[must_use]
    pub fn new(
        me: WorkerId,
        holdings: Vec<Holding>,
        workers: &[WorkerEntry],
        config: HandoffConfig,
        deadline: LogicalTime,
    ) -> Self {
        let of = |state: WorkerState| {
            let fits = move |one: &&WorkerEntry| one.worker != me && one.state == state;
            workers.iter().filter(fits).map(|one| one.worker)
        };
        Self {
            config,
            deadline,
            keeps: false,
            waiting: holdings.into(),
            under_way: VecDeque::new(),
            willing: of(WorkerState::Idle).chain(of(WorkerState::Working)).collect(),
            tally: DrainTally::default(),
            ended: Vec::new(),
        }
    }

    /// What nobody takes is not released: its owner goes on with it. For one who only was asked to
    /// move a shard, and does not end.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// The shard stands still from now on, at `cursor`; an initial one keeps what is stored. One
    /// that is not under way is left as it is.
    pub fn freeze(&mut self, now: LogicalTime, key: ShardKey, cursor: Cursor) {
        let is_it = |passage: &&mut Passage| passage.lease.key() == key;
        let Some(passage) = self.under_way.iter_mut().find(is_it) else { return };
        passage.rest = Rest::Still;
        if let Leg::Moving(source) = &mut passage.leg {
            source.freeze(now, cursor.clone());
        }
        passage.cursor = cursor;
    }

    /// The shard was finished or lost by its owner before it stood still: it is not given away.
    pub fn finished(&mut self, key: ShardKey) {
        if let Some(index) = self.waiting.iter().position(|one| one.lease.key() == key) {
            if let Some(holding) = self.waiting.remove(index) {
                self.end(holding.lease, DrainEnd::Finished);
            }
            return;
        }
        let is_it = |passage: &&mut Passage| passage.lease.key() == key;
        if let Some(passage) = self.under_way.iter_mut().find(is_it) {
            passage.is_finished = true;
        }
    }

    /// Does one thing for one of the shards. Those that stand still for it come first.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        now: LogicalTime,
    ) -> DrainNext {
        self.admit(now);
        if let Some(index) = self.under_way.iter().position(Passage::is_urgent)
            && let Some(urgent) = self.under_way.remove(index)
        {
            self.under_way.push_front(urgent);
        }
        let mut wait: Option<LogicalTime> = None;
        for _ in 0..self.under_way.len() {
            let Some(mut passage) = self.under_way.pop_front() else { break };
            match self.advance(driver, &mut passage, now) {
                Turn::Again => {
                    self.under_way.push_back(passage);
                    return DrainNext::Again;
                }
                Turn::Freeze => {
                    let key = passage.lease.key();
                    passage.rest = Rest::Asked;
                    self.under_way.push_back(passage);
                    return DrainNext::Freeze(key);
                }
                Turn::Wait(until) => {
                    wait = Some(wait.map_or(until, |wait| wait.min(until)));
                    self.under_way.push_back(passage);
                }
                Turn::Ended(end) => {
                    self.end(passage.lease, end);
                    return DrainNext::Again;
                }
            }
        }
        match wait {
            Some(until) => DrainNext::Wait(until.min(self.deadline.max(now.saturating_add(1)))),
            None => DrainNext::Done(self.tally),
        }
    }

    /// Shards that ended since the last call, and how.
    pub fn take_ended(&mut self) -> Vec<(Lease, DrainEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// The leases that are still to be renewed.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        let waiting = self.waiting.iter().map(|holding| &holding.lease);
        waiting.chain(self.under_way.iter().map(|passage| &passage.lease))
    }

    /// Starts moves while there is room, or releases where nobody is willing or time is over.
    fn admit(&mut self, now: LogicalTime) {
        while self.under_way.len() < DRAIN_WINDOW {
            let Some(holding) = self.waiting.pop_front() else { return };
            let leg = self.leg(&holding, now);
            let rest = if holding.still.is_some() { Rest::Still } else { Rest::Working };
            let cursor = holding.still.map_or(Cursor::initial(), |(cursor, _)| cursor);
            let lease = holding.lease;
            self.under_way.push_back(Passage { lease, rest, cursor, is_finished: false, leg });
        }
    }

    fn leg(&mut self, holding: &Holding, now: LogicalTime) -> Leg {
        let release = Leg::Saving { tries: 0 };
        let Some(to) = self.willing.front().copied().filter(|_| now < self.deadline) else {
            return release;
        };
        self.willing.rotate_left(1);
        let offer_deadline = now.saturating_add(self.config.offer_ticks).min(self.deadline);
        let terms = MoveTerms::new(&holding.lease, to, holding.attempts, offer_deadline);
        let source = match &holding.still {
            Some((cursor, snapshot)) => {
                HandoffSource::new(terms, cursor.clone(), snapshot.clone(), self.config, now)
            }
            None => HandoffSource::prepare(terms, self.config, now),
        };
        source.map_or(release, |source| Leg::Moving(Box::new(source)))
    }

    fn advance<B: CoordinationBackend + RunManagement, R: Repository>(
        &self,
        driver: &mut Driver<'_, B, R>,
        passage: &mut Passage,
        now: LogicalTime,
    ) -> Turn {
        match &mut passage.leg {
            Leg::Moving(source) => {
                if now >= self.deadline || passage.is_finished {
                    source.cancel();
                }
                match driver.step_source(source, Some(&passage.lease), now) {
                    SourceNext::Again => Turn::Again,
                    SourceNext::Freeze => self.stop(passage, now),
                    SourceNext::Wait(until) => Turn::Wait(until),
                    SourceNext::Done(SourceEnd::Moved) => Turn::Ended(DrainEnd::Moved),
                    SourceNext::Done(SourceEnd::Lost(_)) => Turn::Ended(DrainEnd::Lost),
                    SourceNext::Done(SourceEnd::Kept(_)) => {
                        passage.leg = Leg::Saving { tries: 0 };
                        Turn::Again
                    }
                }
            }
            Leg::Saving { .. } if passage.is_finished || self.keeps => {
                Turn::Ended(DrainEnd::Finished)
            }
            // Nobody takes it, so it stops as soon as it can, however many stand still.
            Leg::Saving { .. } if passage.rest == Rest::Working => Turn::Freeze,
            Leg::Saving { .. } if passage.rest == Rest::Asked => {
                Turn::Wait(now.saturating_add(self.config.poll_ticks))
            }
            Leg::Saving { tries } => {
                *tries += 1;
                let saved = save(driver, &passage.lease, &passage.cursor, now);
                self.saved(saved, passage, now)
            }
            Leg::Releasing { tries } => {
                *tries += 1;
                let (lease, op) = (&passage.lease, op(&passage.lease, 3));
                let mode = ReleaseMode::Clean;
                match driver.backend.release(now, driver.tenant, lease, mode, op) {
                    Ok(_) => Turn::Ended(DrainEnd::Released),
                    Err(ReleaseError::BackendError(_)) if *tries < RELEASE_TRIES_MAX => {
                        Turn::Wait(now.saturating_add(self.config.retry_ticks))
                    }
                    Err(_) => Turn::Ended(DrainEnd::Lost),
                }
            }
        }
    }

    /// A shard whose turn to stop has come, if there is room among those that stand still.
    fn stop(&self, passage: &Passage, now: LogicalTime) -> Turn {
        let is_still = |one: &&Passage| one.rest != Rest::Working && one.is_moving();
        let has_room = self.under_way.iter().filter(is_still).count() < DRAIN_STILL_MAX;
        match passage.rest {
            Rest::Working if has_room => Turn::Freeze,
            Rest::Working | Rest::Asked | Rest::Still => {
                Turn::Wait(now.saturating_add(self.config.poll_ticks))
            }
        }
    }

    fn saved(
        &self,
        saved: Result<(), CheckpointError>,
        passage: &mut Passage,
        now: LogicalTime,
    ) -> Turn {
        let tries = match passage.leg {
            Leg::Saving { tries } => tries,
            Leg::Moving(_) | Leg::Releasing { .. } => 0,
        };
        match saved {
            Ok(()) => {
                passage.leg = Leg::Releasing { tries: 0 };
                Turn::Again
            }
            Err(CheckpointError::BackendError(_)) if tries < RELEASE_TRIES_MAX => {
                Turn::Wait(now.saturating_add(self.config.retry_ticks))
            }
            Err(_) => Turn::Ended(DrainEnd::Lost),
        }
    }

    fn end(&mut self, lease: Lease, end: DrainEnd) {
        match end {
            DrainEnd::Moved => self.tally.moved += 1,
            DrainEnd::Released => self.tally.released += 1,
            DrainEnd::Lost => self.tally.lost += 1,
            DrainEnd::Finished => self.tally.finished += 1,
        }
        self.ended.push((lease, end));
    }
}

impl Passage {
    /// Whether the shard stands still until the next question is answered.
    fn is_urgent(&self) -> bool {
        matches!(&self.leg, Leg::Moving(source) if source.is_urgent())
    }

    /// Whether the end of the move is not known.
    fn is_moving(&self) -> bool {
        matches!(&self.leg, Leg::Moving(source) if source.end().is_none())
    }
}

/// What one shard did in its turn.
enum Turn {
    Again,
    Freeze,
    Wait(LogicalTime),
    Ended(DrainEnd),
}

/// Saves where a shard stopped; an initial cursor keeps what is stored.
fn save<B: CoordinationBackend, R>(
    driver: &mut Driver<'_, B, R>,
    lease: &Lease,
    cursor: &Cursor,
    now: LogicalTime,
) -> Result<(), CheckpointError> {
    if *cursor == Cursor::initial() {
        return Ok(());
    }
    let (tenant, op) = (driver.tenant, op(lease, 4));
    driver.backend.checkpoint(now, tenant, lease, cursor.as_update(), op).map(drop)
}

/// The operation id of a step that is done once under a lease.
fn op(lease: &Lease, step: u8) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_OP_ID_V1);
    hasher.write_u64(lease.token().as_raw());
    hasher.write_u64(lease.fence().as_raw());
    hasher.write_u8(step);
    OpId::from_raw(hasher.finalize_64())
}
