//! Requests of an administrator, who holds no lease, to a shard's lease holder.
//!
//! A request is stored in the record until the lease holder receives it through `renew` or
//! `checkpoint`. It is cleared by the operation that fulfils it, by its expiry, or by the next
//! fence increment; it has no effect of its own.

use std::fmt;

use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_contracts::identity::{CanonicalBytes, CanonicalHasher, LogicalTime, OpId, WorkerId};

/// A requested action.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardAction {
    /// Split the remaining range, at this key if one is given.
    Split(Option<SplitKey>),
    /// Release the shard.
    Release,
    /// Hand the shard off, to this worker if one is given.
    HandOff(Option<WorkerId>),
    /// Withdraw a pending offer.
    Withdraw,
}

impl ShardAction {
    /// The name used in events and logs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Split(_) => "split",
            Self::Release => "release",
            Self::HandOff(_) => "hand-off",
            Self::Withdraw => "withdraw",
        }
    }
}

impl fmt::Debug for ShardAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl CanonicalBytes for ShardAction {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        match self {
            Self::Split(key) => {
                hasher.write_u8(0);
                // The flag keeps "no key" apart from every key.
                hasher.write_u8(u8::from(key.is_some()));
                if let Some(key) = key {
                    hasher.write_bytes_prefixed(key.as_bytes());
                }
            }
            Self::Release => hasher.write_u8(1),
            Self::HandOff(worker) => {
                hasher.write_u8(2);
                hasher.write_u8(u8::from(worker.is_some()));
                if let Some(worker) = worker {
                    hasher.write_u64(worker.as_raw());
                }
            }
            Self::Withdraw => hasher.write_u8(3),
        }
    }
}

/// A key at which a split is asked for; not empty and not oversized.
#[derive(Clone, PartialEq, Eq)]
pub struct SplitKey(Box<[u8]>);

impl SplitKey {
    /// Takes `key` if it can be a bound of a shard.
    #[must_use]
    pub fn try_new(key: &[u8]) -> Option<Self> {
        (!key.is_empty() && key.len() <= MAX_KEY_SIZE).then(|| Self(key.into()))
    }

    /// The key itself.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SplitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SplitKey(<{} bytes>)", self.0.len())
    }
}

/// A pending request to the lease holder.
///
/// Its idempotency key and hash are stored with it and not in the operation log, so that a request
/// never evicts the lease holder's own operations from the log.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingRequest {
    pub(crate) op_id: OpId,
    pub(crate) payload_hash: u64,
    action: ShardAction,
    expires_at: LogicalTime,
}

impl PendingRequest {
    /// Makes a request. `payload_hash` identifies its content, to recognise a retry.
    #[must_use]
    pub const fn new(
        op_id: OpId,
        payload_hash: u64,
        action: ShardAction,
        expires_at: LogicalTime,
    ) -> Self {
        Self { op_id, payload_hash, action, expires_at }
    }

    /// Returns the operation id of the request.
    #[must_use]
    pub const fn op_id(&self) -> OpId {
        self.op_id
    }

    /// Returns the requested action.
    #[must_use]
    pub const fn action(&self) -> &ShardAction {
        &self.action
    }

    /// Returns the first instant at which the request is expired.
    #[must_use]
    pub const fn expires_at(&self) -> LogicalTime {
        self.expires_at
    }

    /// Returns whether the request is unexpired at `now`.
    #[must_use]
    pub fn is_pending_at(&self, now: LogicalTime) -> bool {
        now < self.expires_at
    }
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRequest")
            .field("action", &self.action)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}
