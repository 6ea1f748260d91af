//! Results of successful operations.

use gossip_contracts::identity::LogicalTime;

use crate::handoff::OfferNotice;
use crate::request::PendingRequest;

/// Whether an idempotent operation was executed now or replayed.
///
/// The result is the same either way; the difference is for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an operation happens once: now or before")]
pub enum IdempotentOutcome<T> {
    /// It happened now.
    Executed(T),
    /// It had happened before; nothing was changed.
    Replayed(T),
}

impl<T> IdempotentOutcome<T> {
    /// The result, however it came about.
    pub fn into_inner(self) -> T {
        match self {
            Self::Executed(value) | Self::Replayed(value) => value,
        }
    }

    /// Whether it had happened before.
    pub const fn is_replay(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }

    /// Whether it happened now.
    pub const fn is_executed(&self) -> bool {
        matches!(self, Self::Executed(_))
    }

    /// Transforms the result.
    pub fn map<U>(self, transform: impl FnOnce(T) -> U) -> IdempotentOutcome<U> {
        match self {
            Self::Executed(value) => IdempotentOutcome::Executed(transform(value)),
            Self::Replayed(value) => IdempotentOutcome::Replayed(transform(value)),
        }
    }

    /// The same outcome, borrowed.
    pub const fn as_ref(&self) -> IdempotentOutcome<&T> {
        match self {
            Self::Executed(value) => IdempotentOutcome::Executed(value),
            Self::Replayed(value) => IdempotentOutcome::Replayed(value),
        }
    }
}

/// The amount of claimable work of a run, returned with every grant and renewal.
///
/// Advice for backoff. It may be stale on arrival, and no correctness may depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityHint {
    /// Shards that can be claimed now; stops counting at [`CAPACITY_COUNT_MAX`].
    pub available_count: u32,
    /// When the next lease runs out, if any is live.
    pub earliest_deadline: Option<LogicalTime>,
}

/// A higher count has no use for a worker, and every renewal pays for the counting of expired
/// leases.
pub const CAPACITY_COUNT_MAX: usize = 100;

/// The result of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewResult {
    /// When the lease ends now; never earlier than before.
    pub new_deadline: LogicalTime,
    /// The amount of claimable work.
    pub capacity: CapacityHint,
    /// The lease holder's own pending offer, so that a restarted one can withdraw it.
    pub offer: Option<OfferNotice>,
    /// The administrator's pending request.
    pub request: Option<PendingRequest>,
    /// The run is paused, and the lease holder should release the shard.
    pub run_paused: bool,
}

/// The result of a checkpoint.
///
/// The seeds return nothing here; administrators' requests are delivered with checkpoints too
/// (FACTS 4.9), so that a busy lease holder receives them without a renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointResult {
    /// The administrator's pending request.
    pub request: Option<PendingRequest>,
}
