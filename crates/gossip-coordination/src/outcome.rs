//! What operations answer when they succeed.

use gossip_contracts::identity::LogicalTime;

use crate::handoff::OfferNotice;
use crate::request::PendingRequest;

/// Whether an idempotent operation happened now or had happened before.
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

/// How much work of a run is waiting, told with every grant and renewal.
///
/// Advice for backing off. It may be out of date when it arrives, and nothing may depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityHint {
    /// Shards that can be claimed now; stops counting at [`CAPACITY_COUNT_MAX`].
    pub available_count: u32,
    /// When the next lease runs out, if any is live.
    pub earliest_deadline: Option<LogicalTime>,
}

/// Counting further would tell a worker nothing more, and every renewal pays for the counting of
/// leases that ran out.
pub const CAPACITY_COUNT_MAX: usize = 100;

/// What a renewal brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewResult {
    /// When the lease ends now; never earlier than before.
    pub new_deadline: LogicalTime,
    /// How much work is waiting.
    pub capacity: CapacityHint,
    /// Added: the owner's own standing offer, so that a restarted owner can withdraw it.
    pub offer: Option<OfferNotice>,
    /// Added: what an administrator asks.
    pub request: Option<PendingRequest>,
    /// Added: the run is paused, and the owner should release the shard.
    pub run_paused: bool,
}

/// What a checkpoint brought.
///
/// The seeds answer nothing here; requests of administrators travel with checkpoints too
/// (FACTS 4.9), so that a busy owner hears of them without renewing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointResult {
    /// What an administrator asks.
    pub request: Option<PendingRequest>,
}
