//! A worker gives all its shards away.
//!
//! Each shard is offered to a willing worker of the registry: one that was heard of lately, is not
//! draining and is not this one. The idle come first, and nobody gets a second shard before
//! everybody has one. Only so many moves are under way at a time, because a shard that is offered
//! stands still. What nobody takes in time, and what is left when the time is over, is released:
//! somebody claims it, and nothing is redone because its cursor was saved.
//!
//! # Invariants
//! - A shard is released only after its offer was withdrawn, or if it was never offered.
//! - After the deadline nothing new is offered, and every offer is withdrawn.

use std::collections::VecDeque;

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{CanonicalHasher, Domain, LogicalTime, OpId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    CoordinationBackend, Lease, ReleaseError, RunManagement, WorkerEntry, WorkerState,
};

use super::mover::{Mover, SourceNext};
use super::source::{Source, SourceEnd};
use super::terms::{JoinConfig, MoveTerms};
use crate::repository::Repository;

/// Moves that are under way at a time: enough to hide a round trip, few enough that little stands
/// still.
pub const DRAIN_WINDOW: usize = 8;

/// How often one shard is released in vain before it is left to its lease.
const RELEASE_TRIES_MAX: u32 = 3;

/// What is given away: a shard that the caller has frozen.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The lease it is held under.
    pub lease: Lease,
    /// Where it stopped; an initial cursor keeps what is stored.
    pub cursor: Cursor,
    /// What its next owner shall know.
    pub snapshot: Vec<u8>,
    /// Moves of this lease that were tried before; ids count on from there.
    pub attempts: u32,
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
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum DrainNext {
    /// There is more to do at once.
    Again,
    /// There is nothing to do before this instant.
    Wait(LogicalTime),
    /// Nothing is left.
    Done(DrainTally),
}

/// One worker that gives everything away.
#[derive(Debug)]
pub struct Drain {
    config: JoinConfig,
    /// After this instant what is left is released.
    deadline: LogicalTime,
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
    leg: Leg,
}

#[derive(Debug)]
enum Leg {
    Moving(Box<Source>),
    Releasing { tries: u32 },
}

impl Drain {
    /// Gives `holdings` to those of `workers` that are willing, until `deadline` and no longer.
    ///
    /// `me` never gets anything. The order of `workers` breaks ties, so give it in another order
    /// on every worker, or the first is everybody's favourite.
    #[must_use]
    pub fn new(
        me: WorkerId,
        holdings: Vec<Holding>,
        workers: &[WorkerEntry],
        config: JoinConfig,
        deadline: LogicalTime,
    ) -> Self {
        let of = |state: WorkerState| {
            let fits = move |one: &&WorkerEntry| one.worker != me && one.state == state;
            workers.iter().filter(fits).map(|one| one.worker)
        };
        Self {
            config,
            deadline,
            waiting: holdings.into(),
            under_way: VecDeque::new(),
            willing: of(WorkerState::Idle).chain(of(WorkerState::Working)).collect(),
            tally: DrainTally::default(),
            ended: Vec::new(),
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

    /// Does one thing for one of the shards.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        mover: &mut Mover<'_, B, R>,
        now: LogicalTime,
    ) -> DrainNext {
        self.admit(now);
        let mut wait: Option<LogicalTime> = None;
        for _ in 0..self.under_way.len() {
            let Some(mut passage) = self.under_way.pop_front() else { break };
            match self.advance(mover, &mut passage, now) {
                // What was begun is offered before the next is begun: it stands still.
                Turn::Again => {
                    self.under_way.push_front(passage);
                    return DrainNext::Again;
                }
                Turn::Wait(until) => {
                    wait = Some(wait.map_or(until, |wait| wait.min(until)));
                    self.under_way.push_back(passage);
                }
                Turn::Ended(end) => {
                    self.count(end);
                    self.ended.push((passage.lease, end));
                    return DrainNext::Again;
                }
            }
        }
        match wait {
            Some(until) => DrainNext::Wait(until.min(self.deadline.max(now.saturating_add(1)))),
            None => DrainNext::Done(self.tally),
        }
    }

    /// Starts moves while there is room, or releases where nobody is willing or time is over.
    fn admit(&mut self, now: LogicalTime) {
        while self.under_way.len() < DRAIN_WINDOW {
            let Some(holding) = self.waiting.pop_front() else { return };
            let leg = self.leg(&holding, now);
            self.under_way.push_back(Passage { lease: holding.lease, leg });
        }
    }

    fn leg(&mut self, holding: &Holding, now: LogicalTime) -> Leg {
        let release = Leg::Releasing { tries: 0 };
        let Some(to) = self.willing.front().copied().filter(|_| now < self.deadline) else {
            return release;
        };
        self.willing.rotate_left(1);
        let offer_deadline = now.saturating_add(self.config.offer_ticks).min(self.deadline);
        let terms = MoveTerms::new(&holding.lease, to, holding.attempts, offer_deadline);
        let (cursor, snapshot) = (holding.cursor.clone(), holding.snapshot.clone());
        match Source::new(terms, cursor, snapshot, self.config, now) {
            Ok(source) => Leg::Moving(Box::new(source)),
            Err(_) => release,
        }
    }

    fn advance<B: CoordinationBackend + RunManagement, R: Repository>(
        &self,
        mover: &mut Mover<'_, B, R>,
        passage: &mut Passage,
        now: LogicalTime,
    ) -> Turn {
        match &mut passage.leg {
            Leg::Moving(source) => {
                if now >= self.deadline {
                    source.cancel();
                }
                match mover.step_source(source, Some(&passage.lease), now) {
                    SourceNext::Again => Turn::Again,
                    // A holding is frozen before it is given away, so nobody asks for it.
                    SourceNext::Freeze => {
                        source.freeze(now, Cursor::initial());
                        Turn::Again
                    }
                    SourceNext::Wait(until) => Turn::Wait(until),
                    SourceNext::Done(SourceEnd::Moved) => Turn::Ended(DrainEnd::Moved),
                    SourceNext::Done(SourceEnd::Lost(_)) => Turn::Ended(DrainEnd::Lost),
                    SourceNext::Done(SourceEnd::Kept(_)) => {
                        passage.leg = Leg::Releasing { tries: 0 };
                        Turn::Again
                    }
                }
            }
            Leg::Releasing { tries } => {
                *tries += 1;
                let (lease, op) = (&passage.lease, release_op(&passage.lease));
                let mode = ReleaseMode::Clean;
                match mover.backend.release(now, mover.tenant, lease, mode, op) {
                    Ok(_) => Turn::Ended(DrainEnd::Released),
                    Err(ReleaseError::BackendError(_)) if *tries < RELEASE_TRIES_MAX => {
                        Turn::Wait(now.saturating_add(self.config.retry_ticks))
                    }
                    Err(_) => Turn::Ended(DrainEnd::Lost),
                }
            }
        }
    }

    const fn count(&mut self, end: DrainEnd) {
        match end {
            DrainEnd::Moved => self.tally.moved += 1,
            DrainEnd::Released => self.tally.released += 1,
            DrainEnd::Lost => self.tally.lost += 1,
        }
    }
}

/// What one shard did in its turn.
enum Turn {
    Again,
    Wait(LogicalTime),
    Ended(DrainEnd),
}

/// The operation id of the release: a lease is released once.
fn release_op(lease: &Lease) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_OP_ID_V1);
    hasher.write_u64(lease.token().as_raw());
    hasher.write_u64(lease.fence().as_raw());
    hasher.write_u8(3);
    OpId::from_raw(hasher.finalize_64())
}
