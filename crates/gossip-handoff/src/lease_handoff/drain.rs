//! Hands over all shards of a worker.
//!
//! Each shard is offered to another registered worker that is idle or working, not draining. Idle
//! workers come first, and shards are distributed round-robin. The caller keeps working on a shard
//! until its turn comes: its record is saved and found by the destination meanwhile, so the shard
//! is frozen only for the offer and the accept. A shard that is not accepted in time, or is left at
//! the deadline, is checkpointed and released, so that the next owner repeats nothing.
//!
//! # Invariants
//! - At most [`DRAIN_WINDOW`] moves are in flight, and at most [`DRAIN_FROZEN_MAX`] shards are
//!   frozen for a move.
//! - A shard is released only when it is frozen, and after its offer was withdrawn or if it was
//!   never offered.
//! - After the deadline no shard is offered, and every open offer is withdrawn.

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

/// The most moves in flight. Most of them wait until the destination has found the record, so this
/// many keep the drain of hundreds of shards to seconds.
pub(crate) const DRAIN_WINDOW: usize = 32;

/// The most frozen shards: enough to hide a round trip, few enough that a frozen shard does not
/// queue behind the offers of others.
pub(crate) const DRAIN_FROZEN_MAX: usize = 4;

// A frozen shard is in flight.
const _: () = assert!(DRAIN_FROZEN_MAX <= DRAIN_WINDOW);

/// Attempts to checkpoint or release a shard before it is left to the expiry of its lease.
const RELEASE_TRIES_MAX: u32 = 3;

/// A shard to be handed over.
#[derive(Clone, Debug)]
pub struct HeldShard {
    pub(crate) lease: Lease,
    /// Earlier moves under this lease. The ids of moves continue from this number.
    attempts: u32,
    /// Cursor and snapshot, if the caller has stopped already.
    frozen_at: Option<(Cursor, Vec<u8>)>,
}

impl HeldShard {
    /// Returns a shard on which the caller works until [`DrainNext::Freeze`]. `attempts` is the
    /// number of earlier moves under the lease.
    #[must_use]
    pub const fn working(lease: Lease, attempts: u32) -> Self {
        Self { lease, attempts, frozen_at: None }
    }

    /// Returns a shard that is frozen at `cursor`; an initial cursor keeps the stored one.
    #[must_use]
    pub const fn frozen(lease: Lease, attempts: u32, cursor: Cursor, snapshot: Vec<u8>) -> Self {
        Self { lease, attempts, frozen_at: Some((cursor, snapshot)) }
    }
}

/// How the drain of one shard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a tally counts every kind")]
pub enum DrainEnd {
    /// Another worker accepted it.
    Moved,
    /// It was released. The next owner continues from its cursor.
    Released,
    /// Another worker took it over, or its lease expired.
    Lost,
    /// Its owner finished or lost it before its turn came ([`WorkerDrain::finished`]); or no worker
    /// accepted it, and its owner keeps it ([`WorkerDrain::keeping`]).
    Finished,
}

/// The number of shards per [`DrainEnd`].
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

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum DrainNext {
    /// Step again at once.
    Again,
    /// The caller stops this shard and calls [`WorkerDrain::freeze`] with its cursor, at once or
    /// when its in-flight items are done. Returned once per shard; others continue meanwhile.
    Freeze(ShardKey),
    /// Step again at this time, or when a shard was frozen.
    Wait(LogicalTime),
    /// All shards have ended.
    Done(DrainTally),
}

/// The drain of one worker.
#[derive(Debug)]
pub struct WorkerDrain {
    config: HandoffConfig,
    /// After this time the remaining shards are released.
    deadline: LogicalTime,
    /// Whether the caller keeps a shard that is not accepted.
    keeps: bool,
    waiting: VecDeque<HeldShard>,
    in_flight: VecDeque<Outgoing>,
    /// Candidate destinations, rotated round-robin.
    willing: VecDeque<WorkerId>,
    tally: DrainTally,
    ended: Vec<(Lease, DrainEnd)>,
}

/// One shard in flight.
#[derive(Debug)]
struct Outgoing {
    lease: Lease,
    activity: Activity,
    /// The final cursor once it is frozen; an initial one keeps the stored cursor.
    cursor: Cursor,
    /// Whether the caller finished or lost it before it was frozen.
    is_finished: bool,
    stage: Stage,
}

/// Whether the caller works on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Working,
    /// [`DrainNext::Freeze`] was returned, and the caller has not frozen it yet.
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
    /// Hands `holdings` over to those of `workers` that are idle or working, until `deadline`.
    ///
    /// `me` is skipped. The order of `workers` breaks ties, so shuffle it differently on every
    /// worker; otherwise all of them prefer the same destination.
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
            // Idle workers first: a shard given to a busy one waits for its turn again.
            willing: of(WorkerState::Idle).chain(of(WorkerState::Working)).collect(),
            tally: DrainTally::default(),
            ended: Vec::new(),
        }
    }

    /// Keeps shards that are not accepted instead of releasing them, for a worker that moves a
    /// shard on request and does not shut down.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// Records that the caller has stopped the shard at `cursor`; an initial cursor keeps the
    /// stored one. Ignored for a shard that is not in flight.
    pub fn freeze(&mut self, now: LogicalTime, key: ShardKey, cursor: Cursor) {
        let is_it = |outgoing: &&mut Outgoing| outgoing.lease.key() == key;
        let Some(outgoing) = self.in_flight.iter_mut().find(is_it) else { return };
        outgoing.activity = Activity::Frozen;
        if let Stage::Moving(source) = &mut outgoing.stage {
            // Kept here as well: if the move fails, the release saves the cursor.
            source.freeze(now, cursor.clone());
        }
        outgoing.cursor = cursor;
    }

    /// Records that the caller finished or lost the shard before it was frozen, so that it is not
    /// handed over.
    pub fn finished(&mut self, key: ShardKey) {
        if let Some(index) = self.waiting.iter().position(|one| one.lease.key() == key) {
            if let Some(holding) = self.waiting.remove(index) {
                self.end(holding.lease, DrainEnd::Finished);
            }
            return;
        }
        let is_it = |outgoing: &&mut Outgoing| outgoing.lease.key() == key;
        if let Some(outgoing) = self.in_flight.iter_mut().find(is_it) {
            // Not removed: its record may have been saved and has to be rolled back.
            outgoing.is_finished = true;
        }
    }

    /// Executes one operation for one shard, frozen shards first. Returns whether to call again, to
    /// freeze a shard, to wait, or that all shards have ended. Errors of the store are retried or
    /// end the shard; they are not returned.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        now: LogicalTime,
    ) -> DrainNext {
        self.admit(now);
        if let Some(index) = self.in_flight.iter().position(Outgoing::is_urgent)
            && let Some(urgent) = self.in_flight.remove(index)
        {
            // A frozen shard is processed by no worker, so its next request comes first.
            self.in_flight.push_front(urgent);
        }
        // One operation per call, so that the caller can renew leases and freeze shards in between.
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
            // Not beyond the deadline, at which offers are withdrawn, and not `now`, which would be
            // a busy loop.
            Some(until) => DrainNext::Wait(until.min(self.deadline.max(now.saturating_add(1)))),
            None => DrainNext::Done(self.tally),
        }
    }

    /// Returns the shards that ended since the last call.
    pub fn take_ended(&mut self) -> Vec<(Lease, DrainEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the leases that the caller must keep renewing.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        let waiting = self.waiting.iter().map(|holding| &holding.lease);
        waiting.chain(self.in_flight.iter().map(|outgoing| &outgoing.lease))
    }

    /// Starts moves up to [`DRAIN_WINDOW`].
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

    /// Returns how the drain of a shard starts: with a move, or with its release if there is no
    /// destination or the deadline has passed.
    fn stage(&mut self, holding: &HeldShard, now: LogicalTime) -> Stage {
        let release = Stage::Saving { tries: 0 };
        // After the deadline an offer could not be accepted before it is withdrawn.
        let Some(to) = self.willing.front().copied().filter(|_| now < self.deadline) else {
            return release;
        };
        self.willing.rotate_left(1);
        // An offer that outlives the drain would keep its shard frozen after the worker is gone.
        let offer_deadline = now.saturating_add(self.config.offer_ticks).min(self.deadline);
        let terms = MoveTerms::new(&holding.lease, to, holding.attempts, offer_deadline);
        let source = match &holding.frozen_at {
            Some((cursor, snapshot)) => {
                HandoffSource::new(terms, cursor.clone(), snapshot.clone(), self.config, now)
            }
            None => HandoffSource::prepare(terms, self.config, now),
        };
        // A move that cannot be recorded (a snapshot that is too large) must not keep the shard.
        source.map_or(release, |source| Stage::Moving(Box::new(source)))
    }

    /// Executes one operation for `outgoing` and returns what the drain has to do with it next.
    fn advance<B: CoordinationBackend + RunManagement, R: Repository>(
        &self,
        driver: &mut Driver<'_, B, R>,
        outgoing: &mut Outgoing,
        now: LogicalTime,
    ) -> Step {
        match &mut outgoing.stage {
            Stage::Moving(source) => {
                if now >= self.deadline || outgoing.is_finished {
                    // The source still withdraws its offer and rolls the record back; only then
                    // does the shard end.
                    source.cancel();
                }
                match driver.step_source(source, Some(&outgoing.lease), now) {
                    SourceNext::Again => Step::Again,
                    SourceNext::Freeze => self.stop(outgoing, now),
                    SourceNext::Wait(until) => Step::Wait(until),
                    SourceNext::Done(SourceEnd::Moved) => Step::Ended(DrainEnd::Moved),
                    SourceNext::Done(SourceEnd::Lost(_)) => Step::Ended(DrainEnd::Lost),
                    SourceNext::Done(SourceEnd::Kept(_)) => {
                        // Released instead of offered again: a release needs no other worker.
                        outgoing.stage = Stage::Saving { tries: 0 };
                        Step::Again
                    }
                }
            }
            Stage::Saving { .. } if outgoing.is_finished || self.keeps => {
                Step::Ended(DrainEnd::Finished)
            }
            // It is released, not moved, so the limit on frozen shards does not apply.
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
                // A drain is no failure of the shard, so the grant is taken back from its attempts.
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

    /// Requests the freeze of a shard that is ready for its offer, unless too many are frozen.
    fn stop(&self, outgoing: &Outgoing, now: LogicalTime) -> Step {
        // Shards that are being released are frozen too, but wait for no other worker.
        let is_frozen = |one: &&Outgoing| one.activity != Activity::Working && one.is_moving();
        let has_room = self.in_flight.iter().filter(is_frozen).count() < DRAIN_FROZEN_MAX;
        match outgoing.activity {
            Activity::Working if has_room => Step::Freeze,
            Activity::Working | Activity::Stopping | Activity::Frozen => {
                Step::Wait(now.saturating_add(self.config.poll_ticks))
            }
        }
    }

    /// Takes the result of the checkpoint before a release: releases next, saves again, or ends the
    /// shard as lost.
    fn saved(
        &self,
        saved: Result<(), CheckpointError>,
        outgoing: &mut Outgoing,
        now: LogicalTime,
    ) -> Step {
        // Read from the stage, because the caller cannot lend both it and `outgoing`.
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
    /// Returns whether the shard is frozen until the next request is executed.
    fn is_urgent(&self) -> bool {
        matches!(&self.stage, Stage::Moving(source) if source.is_urgent())
    }

    /// Returns whether the end of the move is unknown.
    fn is_moving(&self) -> bool {
        matches!(&self.stage, Stage::Moving(source) if source.end().is_none())
    }
}

/// The result of stepping one shard.
enum Step {
    Again,
    Freeze,
    Wait(LogicalTime),
    Ended(DrainEnd),
}

/// Checkpoints a frozen shard; an initial cursor keeps the stored one.
fn save<B: CoordinationBackend, R>(
    driver: &mut Driver<'_, B, R>,
    lease: &Lease,
    cursor: &Cursor,
    now: LogicalTime,
) -> Result<(), CheckpointError> {
    // A checkpoint requires a key, and there is no progress to save.
    if *cursor == Cursor::initial() {
        return Ok(());
    }
    let (tenant, op) = (driver.tenant, op(lease, 4));
    driver.backend.checkpoint(now, tenant, lease, cursor.as_update(), op).map(drop)
}

/// Returns the id of an operation that happens once per lease, so that a retry is a replay.
fn op(lease: &Lease, step: u8) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_OP_ID_V1);
    hasher.write_u64(lease.token().as_raw());
    hasher.write_u64(lease.fence().as_raw());
    hasher.write_u8(step);
    OpId::from_raw(hasher.finalize_64())
}
