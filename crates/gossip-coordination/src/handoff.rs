//! The kernel's part of a handoff: the pending offer of a shard.
//!
//! The six-phase state machine of a handoff is `gossip-handoff`; here is only the part that the
//! fence protects. A pending offer freezes its source, and the fence increment that accepts it is
//! the commit point of the handoff.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, WorkerId};

/// Identifies a handoff. Given or derived by the caller, never drawn here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandoffId(u64);

impl HandoffId {
    /// Wraps a number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number itself.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for HandoffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandoffId({})", self.0)
    }
}

/// A pending offer of a shard to another worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The handoff.
    pub handoff: HandoffId,
    /// The only worker that may accept.
    pub destination: WorkerId,
    /// The first instant at which it can no longer be accepted.
    pub deadline: LogicalTime,
    /// Payload hash of the offer, to recognize a repeated one.
    pub(crate) payload_hash: u64,
}

impl Offer {
    /// Returns the part of the offer that the source may see.
    #[must_use]
    pub(crate) const fn notice(&self) -> OfferNotice {
        OfferNotice { handoff: self.handoff, deadline: self.deadline }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("handoff", &self.handoff)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Id and deadline of a pending offer: enough for a restarted lease holder to withdraw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferNotice {
    /// The handoff.
    pub handoff: HandoffId,
    /// The offer's deadline.
    pub deadline: LogicalTime,
}
