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
//! - At most [`DRAIN_WINDOW`] moves are under way, and at most [`DRAIN_FROZEN_MAX`] shards stand
//!   still for one.
//! - A shard is released only when it is frozen, and after its offer was withdrawn or if it was
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
pub const DRAIN_FROZEN_MAX: usize = 4;

// A shard that stands still is under way.
const _: () = assert!(DRAIN_FROZEN_MAX <= DRAIN_WINDOW);

/// How often one shard is saved or released in vain before it is left to its lease.
const RELEASE_TRIES_MAX: u32 = 3;

/// A shard that is given away.
#[derive(Clone, Debug)]
pub struct HeldShard {
    lease: Lease,
    /// Moves of this lease that were tried before; ids count on from there.
    attempts: u32,
    /// Where it stopped, and what its next owner shall know, if it stands still already.
    frozen_at: Option<(Cursor, Vec<u8>)>,
}

impl HeldShard {
    /// A shard that is worked on until [`DrainNext::Freeze`] asks for it. `attempts` moves of the
    /// lease were tried before.
    #[must_use]
    pub const fn working(lease: Lease, attempts: u32) -> Self {
        Self { lease, attempts, frozen_at: None }
    }

    /// A shard that stands still at `cursor`; an initial one keeps what is stored.
    #[must_use]
    pub const fn frozen(lease: Lease, attempts: u32, cursor: Cursor, snapshot: Vec<u8>) -> Self {
        Self { lease, attempts, frozen_at: Some((cursor, snapshot)) }
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
    /// There is nothing to do before this instant, or before a shard is frozen.
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
    waiting: VecDeque<HeldShard>,
    in_flight: VecDeque<Outgoing>,
    /// The willing, best first; whoever gets a shard goes to the end.
    willing: VecDeque<WorkerId>,
    tally: DrainTally,
    ended: Vec<(Lease, DrainEnd)>,
}

/// One shard on its way out.
#[derive(Debug)]
struct Outgoing {
    lease: Lease,
    activity: Activity,
    /// Where it stopped, once it stands still; an initial one keeps what is stored.
    cursor: Cursor,
    /// Whether it is over without the drain.
    is_finished: bool,
    stage: Stage,
}

/// Whether a shard is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Working,
    /// The caller was asked to stop.
    Stopping,
    Frozen,
}

#[derive(Debug)]
enum Stage {
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
        holdings: Vec<HeldShard>,
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
            in_flight: VecDeque::new(),
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
        let is_it = |outgoing: &&mut Outgoing| outgoing.lease.key() == key;
        let Some(outgoing) = self.in_flight.iter_mut().find(is_it) else { return };
        outgoing.activity = Activity::Frozen;
        if let Stage::Moving(source) = &mut outgoing.stage {
            source.freeze(now, cursor.clone());
        }
        outgoing.cursor = cursor;
    }

    /// The shard was finished or lost by its owner before it was frozen: it is not given away.
    pub fn finished(&mut self, key: ShardKey) {
        if let Some(index) = self.waiting.iter().position(|one| one.lease.key() == key) {
            if let Some(holding) = self.waiting.remove(index) {
                self.end(holding.lease, DrainEnd::Finished);
            }
            return;
        }
        let is_it = |outgoing: &&mut Outgoing| outgoing.lease.key() == key;
        if let Some(outgoing) = self.in_flight.iter_mut().find(is_it) {
            outgoing.is_finished = true;
        }
    }

    /// Does one thing for one of the shards. Those that stand still for it come first.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        now: LogicalTime,
    ) -> DrainNext {
        self.admit(now);
        if let Some(index) = self.in_flight.iter().position(Outgoing::is_urgent)
            && let Some(urgent) = self.in_flight.remove(index)
        {
            self.in_flight.push_front(urgent);
        }
        let mut wait: Option<LogicalTime> = None;
        for _ in 0..self.in_flight.len() {
            let Some(mut outgoing) = self.in_flight.pop_front() else { break };
            match self.advance(driver, &mut outgoing, now) {
                Step::Again => {
                    self.in_flight.push_back(outgoing);
                    return DrainNext::Again;
                }
                Step::Freeze => {
                    let key = outgoing.lease.key();
                    outgoing.activity = Activity::Stopping;
                    self.in_flight.push_back(outgoing);
                    return DrainNext::Freeze(key);
                }
                Step::Wait(until) => {
                    wait = Some(wait.map_or(until, |wait| wait.min(until)));
                    self.in_flight.push_back(outgoing);
                }
                Step::Ended(end) => {
                    self.end(outgoing.lease, end);
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
        waiting.chain(self.in_flight.iter().map(|outgoing| &outgoing.lease))
    }

    /// Starts moves while there is room, or releases where nobody is willing or time is over.
    fn admit(&mut self, now: LogicalTime) {
        while self.in_flight.len() < DRAIN_WINDOW {
            let Some(holding) = self.waiting.pop_front() else { return };
            let stage = self.stage(&holding, now);
            let activity =
                if holding.frozen_at.is_some() { Activity::Frozen } else { Activity::Working };
            let cursor = holding.frozen_at.map_or(Cursor::initial(), |(cursor, _)| cursor);
            let lease = holding.lease;
            self.in_flight.push_back(Outgoing {
                lease,
                activity,
                cursor,
                is_finished: false,
                stage,
            });
        }
    }

    fn stage(&mut self, holding: &HeldShard, now: LogicalTime) -> Stage {
        let release = Stage::Saving { tries: 0 };
        let Some(to) = self.willing.front().copied().filter(|_| now < self.deadline) else {
            return release;
        };
        self.willing.rotate_left(1);
        let offer_deadline = now.saturating_add(self.config.offer_ticks).min(self.deadline);
        let terms = MoveTerms::new(&holding.lease, to, holding.attempts, offer_deadline);
        let source = match &holding.frozen_at {
            Some((cursor, snapshot)) => {
                HandoffSource::new(terms, cursor.clone(), snapshot.clone(), self.config, now)
            }
            None => HandoffSource::prepare(terms, self.config, now),
        };
        source.map_or(release, |source| Stage::Moving(Box::new(source)))
    }

    fn advance<B: CoordinationBackend + RunManagement, R: Repository>(
        &self,
        driver: &mut Driver<'_, B, R>,
        outgoing: &mut Outgoing,
        now: LogicalTime,
    ) -> Step {
        match &mut outgoing.stage {
            Stage::Moving(source) => {
                if now >= self.deadline || outgoing.is_finished {
                    source.cancel();
                }
                match driver.step_source(source, Some(&outgoing.lease), now) {
                    SourceNext::Again => Step::Again,
                    SourceNext::Freeze => self.stop(outgoing, now),
                    SourceNext::Wait(until) => Step::Wait(until),
                    SourceNext::Done(SourceEnd::Moved) => Step::Ended(DrainEnd::Moved),
                    SourceNext::Done(SourceEnd::Lost(_)) => Step::Ended(DrainEnd::Lost),
                    SourceNext::Done(SourceEnd::Kept(_)) => {
                        outgoing.stage = Stage::Saving { tries: 0 };
                        Step::Again
                    }
                }
            }
            Stage::Saving { .. } if outgoing.is_finished || self.keeps => {
                Step::Ended(DrainEnd::Finished)
            }
            // Nobody takes it, so it stops as soon as it can, however many are frozen.
            Stage::Saving { .. } if outgoing.activity == Activity::Working => Step::Freeze,
            Stage::Saving { .. } if outgoing.activity == Activity::Stopping => {
                Step::Wait(now.saturating_add(self.config.poll_ticks))
            }
            Stage::Saving { tries } => {
                *tries += 1;
                let saved = save(driver, &outgoing.lease, &outgoing.cursor, now);
                self.saved(saved, outgoing, now)
            }
            Stage::Releasing { tries } => {
                *tries += 1;
                let (lease, op) = (&outgoing.lease, op(&outgoing.lease, 3));
                let mode = ReleaseMode::Clean;
                match driver.backend.release(now, driver.tenant, lease, mode, op) {
                    Ok(_) => Step::Ended(DrainEnd::Released),
                    Err(ReleaseError::BackendError(_)) if *tries < RELEASE_TRIES_MAX => {
                        Step::Wait(now.saturating_add(self.config.retry_ticks))
                    }
                    Err(_) => Step::Ended(DrainEnd::Lost),
                }
            }
        }
    }

    /// A shard whose turn to stop has come, if there is room among those that are frozen.
    fn stop(&self, outgoing: &Outgoing, now: LogicalTime) -> Step {
        let is_still = |one: &&Outgoing| one.activity != Activity::Working && one.is_moving();
        let has_room = self.in_flight.iter().filter(is_still).count() < DRAIN_FROZEN_MAX;
        match outgoing.activity {
            Activity::Working if has_room => Step::Freeze,
            Activity::Working | Activity::Stopping | Activity::Frozen => {
                Step::Wait(now.saturating_add(self.config.poll_ticks))
            }
        }
    }

    fn saved(
        &self,
        saved: Result<(), CheckpointError>,
        outgoing: &mut Outgoing,
        now: LogicalTime,
    ) -> Step {
        let tries = match outgoing.stage {
            Stage::Saving { tries } => tries,
            Stage::Moving(_) | Stage::Releasing { .. } => 0,
        };
        match saved {
            Ok(()) => {
                outgoing.stage = Stage::Releasing { tries: 0 };
                Step::Again
            }
            Err(CheckpointError::BackendError(_)) if tries < RELEASE_TRIES_MAX => {
                Step::Wait(now.saturating_add(self.config.retry_ticks))
            }
            Err(_) => Step::Ended(DrainEnd::Lost),
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

impl Outgoing {
    /// Whether the shard stands still until the next question is answered.
    fn is_urgent(&self) -> bool {
        matches!(&self.stage, Stage::Moving(source) if source.is_urgent())
    }

    /// Whether the end of the move is not known.
    fn is_moving(&self) -> bool {
        matches!(&self.stage, Stage::Moving(source) if source.end().is_none())
    }
}

/// What one shard did in its turn.
enum Step {
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
