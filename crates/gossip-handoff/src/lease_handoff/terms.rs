//! What is moved, from whom, to whom, under which fence; and the rule that tells what became of it.

use gossip_contracts::identity::{
    CanonicalHasher, Domain, FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, WorkerId,
};
use gossip_coordination::protocol::{OFFER_LEASES_MAX, OfferTerms};
use gossip_coordination::{HandoffId, Lease, ShardSummary};
use thiserror::Error;

use crate::machine::Machine;
use crate::record::{InvalidRecord, Record, RecordId};
use crate::store_repository::handoff_id;

/// What begins the subject of every record of the join.
const SUBJECT_KIND: &str = "shard";

/// How long a move may take, and how often a side looks. All in ticks of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandoffConfig {
    /// Deadline of Lock and Serialize: the source gives up and keeps the shard.
    pub prepare_ticks: u64,
    /// Deadline of Transfer: how long the offer stands. The kernel allows four leases.
    pub offer_ticks: u64,
    /// Deadline of Ack and Unlock: after that whoever finds the record finishes it.
    pub finish_ticks: u64,
    /// How long a source that is prepared works on before it is frozen: its destination finds the
    /// record meanwhile, and the gap of the move does not contain the search for it.
    pub lead_ticks: u64,
    /// Between two searches of a worker for moves to it, and between two looks of a source at what
    /// it has offered. Half of `lead_ticks`, or less.
    pub find_ticks: u64,
    /// Between two tries of a destination to accept what it has found: its source stands still.
    pub poll_ticks: u64,
    /// How often a destination asks in vain for the offer before it looks at the shard.
    pub accepts_per_read: u32,
    /// Before something that failed is tried again.
    pub retry_ticks: u64,
}

impl HandoffConfig {
    /// The defaults, with offers that the kernel allows for leases of `lease_ticks`: one that
    /// stands longer than [`OFFER_LEASES_MAX`] leases is refused, and a drain would only release.
    #[must_use]
    pub fn for_lease(lease_ticks: u64) -> Self {
        let config = Self::default();
        let longest = lease_ticks.saturating_mul(OFFER_LEASES_MAX);
        Self { offer_ticks: config.offer_ticks.min(longest), ..config }
    }
}

impl Default for HandoffConfig {
    /// For the default lease of 15 s: an offer stands for one lease, a worker searches forty times
    /// a second, and a destination that has found its move takes it within milliseconds.
    fn default() -> Self {
        Self {
            prepare_ticks: 5_000,
            offer_ticks: 15_000,
            finish_ticks: 15_000,
            lead_ticks: 50,
            find_ticks: 25,
            poll_ticks: 2,
            accepts_per_read: 8,
            retry_ticks: 50,
        }
    }
}

/// One planned move. All of it is in the record from Lock on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MoveTerms {
    /// The record of the move.
    pub id: RecordId,
    /// The shard.
    pub key: ShardKey,
    /// Who has it.
    pub from: WorkerId,
    /// Who gets it.
    pub to: WorkerId,
    /// The fence under which it is offered: F of the rule.
    pub fence: FenceEpoch,
    /// The first instant at which the offer cannot be accepted any more.
    pub offer_deadline: LogicalTime,
}

impl MoveTerms {
    /// The move number `attempt` of what `lease` holds. Its id is derived, so nobody else has it;
    /// a lease that tries again counts on.
    ///
    /// # Panics
    ///
    /// Never: a derived id has a fixed length.
    #[must_use]
    pub fn new(lease: &Lease, to: WorkerId, attempt: u32, offer_deadline: LogicalTime) -> Self {
        let (key, fence) = (lease.key(), lease.fence());
        let (run, shard) = (key.run().as_raw(), key.shard().as_raw());
        let id = format!("{run:016x}-{shard:016x}-{:016x}-{attempt:08x}", fence.as_raw());
        let id = RecordId::new(id).expect("a derived id is short and not empty");
        Self { id, key, from: lease.owner(), to, fence, offer_deadline }
    }

    /// The move that `record` is about.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if it is about something else.
    pub fn of(record: &Record) -> Result<Self, NotAMove> {
        let parsed = || {
            let mut parts = record.subject.split('/');
            if parts.next() != Some(SUBJECT_KIND) {
                return None;
            }
            let mut number = || parts.next().and_then(parse_number);
            let numbers = [number()?, number()?, number()?, number()?];
            (parts.next().is_none()).then_some(numbers)
        };
        let [run, shard, fence, deadline] = parsed().ok_or(NotAMove)?;
        Ok(Self {
            id: record.id.clone(),
            key: ShardKey::new(RunId::from_raw(run), ShardId::from_raw(shard)),
            from: parse_number(&record.from).map(WorkerId::from_raw).ok_or(NotAMove)?,
            to: parse_number(&record.to).map(WorkerId::from_raw).ok_or(NotAMove)?,
            fence: FenceEpoch::from_raw(fence),
            offer_deadline: LogicalTime::from_raw(deadline),
        })
    }

    /// The number by which the kernel knows the move.
    #[must_use]
    pub fn handoff(&self) -> HandoffId {
        handoff_id(&self.id)
    }

    /// What the kernel is told of the offer.
    #[must_use]
    pub fn offer_terms(&self) -> OfferTerms {
        let (destination, deadline) = (self.to, self.offer_deadline);
        OfferTerms { handoff: self.handoff(), destination, deadline }
    }

    /// The operation id of the offer. The same for every try, so a repeated one is no second one.
    #[must_use]
    pub fn offer_op(&self) -> OpId {
        self.op(1)
    }

    /// The operation id of the withdrawal.
    #[must_use]
    pub fn withdraw_op(&self) -> OpId {
        self.op(2)
    }

    /// What became of the move, by what is seen of the shard; `None` if there is no such shard.
    #[must_use]
    pub fn outcome(&self, shard: Option<&ShardSummary>) -> MoveOutcome {
        let Some(shard) = shard else { return MoveOutcome::Gone };
        if shard.fence_epoch > self.fence {
            let ours = shard.last_handoff == Some(self.handoff());
            return if ours { MoveOutcome::Moved } else { MoveOutcome::Superseded };
        }
        if shard.status.is_terminal() { MoveOutcome::Gone } else { MoveOutcome::Before }
    }

    /// The machine that begins the move at `now`.
    pub(super) fn begin(&self, now: LogicalTime) -> Result<Machine, InvalidRecord> {
        let (run, shard) = (self.key.run().as_raw(), self.key.shard().as_raw());
        let (fence, deadline) = (self.fence.as_raw(), self.offer_deadline.as_raw());
        let subject =
            format!("{SUBJECT_KIND}/{run:016x}/{shard:016x}/{fence:016x}/{deadline:016x}");
        Machine::new(self.id.clone(), subject, worker_name(self.from), worker_name(self.to), now)
    }

    fn op(&self, step: u8) -> OpId {
        let mut hasher = CanonicalHasher::for_domain(Domain::HANDOFF_OP_ID_V1);
        hasher.write_u64(self.handoff().as_raw());
        hasher.write_u64(self.fence.as_raw());
        hasher.write_u8(step);
        OpId::from_raw(hasher.finalize_64())
    }
}

/// What a shard tells of a move that was prepared under a fence F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 6 has exactly these cases")]
pub enum MoveOutcome {
    /// The fence is still F: the source has it, or nobody.
    Before,
    /// This very move raised the fence: the destination has or had it.
    Moved,
    /// Something else raised the fence: the move can never happen.
    Superseded,
    /// The shard is finished or deleted under F: there is nothing to move.
    Gone,
}

/// How a worker is called in records.
#[must_use]
pub fn worker_name(worker: WorkerId) -> String {
    format!("{:016x}", worker.as_raw())
}

/// A record that is not about the move of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record is not about the move of a shard")]
pub struct NotAMove;

/// Exactly sixteen lower-case digits, so that one number has one spelling.
fn parse_number(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}
