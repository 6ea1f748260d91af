//! The kernel's part of a planned move: the offer that stands on a shard.
//!
//! The six-phase machine that drives a move is `gossip-handoff`; here is only what the fence must
//! know. While an offer stands its source is frozen, and the bump of the fence that accepts it is
//! the commit point of the move.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, WorkerId};

/// Names one planned move. Given or derived by the caller, never drawn here.
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

/// A shard's owner offers it to another worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Which move this is.
    pub handoff: HandoffId,
    /// The only worker that may accept.
    pub destination: WorkerId,
    /// The first instant at which it can no longer be accepted.
    pub deadline: LogicalTime,
    /// Fingerprint of the offer, by which a repeated one is recognised.
    pub payload_hash: u64,
}

impl Offer {
    /// What the source may be told of its own offer.
    #[must_use]
    pub const fn notice(&self) -> OfferNotice {
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

/// Id and deadline of a standing offer: enough for a restarted owner to withdraw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferNotice {
    /// Which move it is.
    pub handoff: HandoffId,
    /// Until when it can be accepted.
    pub deadline: LogicalTime,
}
