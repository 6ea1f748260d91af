//! When the deadline of a lease is void (DESIGN Q7, ADR 84).
//!
//! A lease holder whose wall clock was ahead stores a deadline that lies hours ahead of every other
//! clock, and a renewal never shortens it. If such a lease holder dies, waiting for the deadline
//! would lock the shard for hours. But a renewal always writes the record, so a record that stays
//! at one revision for a whole lease and the clock skew belongs to a lease that is not renewed.

use gossip_contracts::identity::LogicalTime;

/// How long the caller has seen a shard's record at one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseWatch {
    /// Ticks of the caller's monotonic clock since it first saw the record at its present revision.
    /// Zero if it does not watch the record.
    pub unchanged_for: u64,
    /// Maximum difference between the wall clocks of two machines, in ticks.
    pub max_clock_skew: u64,
}

impl LeaseWatch {
    /// The watch of a caller without a monotonic clock: no deadline is void.
    pub const NONE: Self = Self { unchanged_for: 0, max_clock_skew: 0 };

    /// Returns whether `deadline` is void at `now`: it is too far ahead, and the record was seen at
    /// one revision for a lease and the skew.
    pub(super) fn voids(
        self,
        now: LogicalTime,
        deadline: LogicalTime,
        lease_duration: u64,
    ) -> bool {
        let window = lease_duration.saturating_add(self.max_clock_skew);
        assert!(window > 0, "a lease has a duration");
        self.is_too_far(now, deadline, lease_duration) && self.unchanged_for >= window
    }

    /// Returns whether no clock within the skew of `now` can have stored `deadline`.
    pub(crate) fn is_too_far(
        self,
        now: LogicalTime,
        deadline: LogicalTime,
        lease_duration: u64,
    ) -> bool {
        deadline > now.saturating_add(lease_duration).saturating_add(self.max_clock_skew)
    }
}
