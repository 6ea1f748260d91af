//! The terms of a move, and the rule that determines its outcome.

use gossip_contracts::identity::{
    CanonicalHasher, Domain, FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, WorkerId,
};
use gossip_coordination::protocol::OfferTerms;
use gossip_coordination::{HandoffId, Lease, ShardSummary};
use thiserror::Error;

use crate::machine::Machine;
use crate::record::{InvalidRecord, Record, RecordId};
use crate::store_repository::handoff_id;

/// The prefix of the subject in every record of a shard move.
const SUBJECT_KIND: &str = "shard";

/// Timeouts and polling intervals of a move, in ticks of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandoffConfig {
    /// Timeout of Lock and Serialize, after which the source aborts and keeps the shard.
    pub prepare_ticks: u64,
    /// Timeout of Transfer: how long the offer is open. The coordinator allows four leases.
    pub offer_ticks: u64,
    /// Timeout of Ack and Unlock, after which any process that finds the record finishes it.
    pub finish_ticks: u64,
    /// How long a prepared source keeps working before it is frozen. The destination finds the
    /// record meanwhile, so the gap does not include that search.
    pub lead_ticks: u64,
    /// Interval at which a worker searches for moves to it, and at which a source polls a shard
    /// that it has offered. At most half of `lead_ticks`.
    pub find_ticks: u64,
    /// Interval at which a destination retries the accept. Short, because the source is frozen.
    pub poll_ticks: u64,
    /// Rejected accepts after which a destination reads the shard.
    pub accepts_per_read: u32,
    /// Wait before an operation is retried after the store failed.
    pub retry_ticks: u64,
}

impl Default for HandoffConfig {
    /// For the default lease of 15 s: an offer is open for one lease, a worker searches 40 times a
    /// second, and a destination that has found its move accepts it within milliseconds.
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

/// The terms of one handoff. The record contains all of them from Lock on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MoveTerms {
    /// The id of the record.
    pub id: RecordId,
    /// The shard.
    pub key: ShardKey,
    /// The source.
    pub from: WorkerId,
    /// The destination.
    pub to: WorkerId,
    /// The fence under which the shard is offered: F of the rule.
    pub fence: FenceEpoch,
    /// The time from which the offer cannot be accepted.
    pub offer_deadline: LogicalTime,
}

impl MoveTerms {
    /// Returns the terms of move number `attempt` under `lease`. The id is derived from shard,
    /// fence and `attempt`, so it is unique if the caller counts its attempts.
    ///
    /// # Panics
    ///
    /// Never: a derived id has a fixed length.
    #[must_use]
    pub fn new(lease: &Lease, to: WorkerId, attempt: u32, offer_deadline: LogicalTime) -> Self {
        let (key, fence) = (lease.key(), lease.fence());
        let (run, shard) = (key.run().as_raw(), key.shard().as_raw());
        // Derived and not random, so that a worker that retries after a crash finds its own record.
        let id = format!("{run:016x}-{shard:016x}-{:016x}-{attempt:08x}", fence.as_raw());
        let id = RecordId::new(id).expect("a derived id is short and not empty");
        Self { id, key, from: lease.owner(), to, fence, offer_deadline }
    }

    /// Reads the terms from `record`.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if it does not describe the move of a shard.
    pub fn of(record: &Record) -> Result<Self, NotAMove> {
        let parsed = || {
            let mut parts = record.subject.split('/');
            if parts.next() != Some(SUBJECT_KIND) {
                return None;
            }
            let mut number = || parts.next().and_then(parse_number);
            let numbers = [number()?, number()?, number()?, number()?];
            // More parts would be a format of a newer version.
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

    /// Returns the number by which the kernel identifies the move.
    #[must_use]
    pub fn handoff(&self) -> HandoffId {
        handoff_id(&self.id)
    }

    /// Returns the terms of the offer.
    #[must_use]
    pub fn offer_terms(&self) -> OfferTerms {
        let (destination, deadline) = (self.to, self.offer_deadline);
        OfferTerms { handoff: self.handoff(), destination, deadline }
    }

    /// Returns the operation id of the offer. It is the same for every attempt, so a retry is a
    /// replay.
    #[must_use]
    pub fn offer_op(&self) -> OpId {
        self.op(1)
    }

    /// Returns the operation id of the withdrawal.
    #[must_use]
    pub fn withdraw_op(&self) -> OpId {
        self.op(2)
    }

    /// Returns the outcome of the move, given the shard as read; `None` if it does not exist.
    #[must_use]
    pub fn outcome(&self, shard: Option<&ShardSummary>) -> MoveOutcome {
        let Some(shard) = shard else { return MoveOutcome::Gone };
        // The fence first: a shard that moved and was completed by its new owner is terminal too.
        if shard.fence_epoch > self.fence {
            let ours = shard.last_handoff == Some(self.handoff());
            return if ours { MoveOutcome::Moved } else { MoveOutcome::Superseded };
        }
        if shard.status.is_terminal() { MoveOutcome::Gone } else { MoveOutcome::Before }
    }

    /// Returns the machine of a move that begins at `now`.
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
        // Part of the id, so that an operation of an earlier lease is never answered from this
        // one's log.
        hasher.write_u64(self.fence.as_raw());
        hasher.write_u8(step);
        OpId::from_raw(hasher.finalize_64())
    }
}

/// The outcome of a move that was prepared under a fence F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 6 has exactly these cases")]
pub enum MoveOutcome {
    /// The fence is still F: the source owns the shard, or its lease has expired.
    Before,
    /// This move raised the fence: the destination accepted the shard.
    Moved,
    /// Another operation raised the fence: the move cannot happen.
    Superseded,
    /// The shard ended or was deleted under F: there is nothing to move.
    Gone,
}

/// Returns the name of a worker in records.
#[must_use]
pub fn worker_name(worker: WorkerId) -> String {
    format!("{:016x}", worker.as_raw())
}

/// A record that does not describe the move of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record does not describe the move of a shard")]
pub struct NotAMove;

/// Parses exactly sixteen lower-case hexadecimal digits, so that a number has one spelling.
fn parse_number(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}
