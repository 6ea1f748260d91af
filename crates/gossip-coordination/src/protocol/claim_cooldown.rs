//! The claim cooldown: the minimum number of ticks between two successful claims of a worker.
//!
//! A claim takes several round trips, and other handles of the worker may claim meanwhile. So a
//! claim reserves its place first, and the reservation counts as a successful claim until the claim
//! has ended. A successful claim starts the cooldown at the time of its reservation; a failed one
//! gives the reservation back and starts none.

use gossip_contracts::identity::LogicalTime;

/// Minimum number of ticks between a worker's successful claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimCooldown {
    interval: u64,
}

impl ClaimCooldown {
    /// Creates a cooldown of `interval` ticks; zero disables it.
    #[must_use]
    pub(crate) const fn new(interval: u64) -> Self {
        Self { interval }
    }

    /// Returns when a worker that claimed at `last` may claim again, if that is after `now`.
    #[must_use]
    pub(crate) fn retry_after(self, last: LogicalTime, now: LogicalTime) -> Option<LogicalTime> {
        let again = last.saturating_add(self.interval);
        (now < again).then_some(again)
    }

    /// Returns whether the cooldown is disabled.
    #[must_use]
    pub(crate) const fn is_disabled(self) -> bool {
        self.interval == 0
    }
}

/// An in-flight claim. Numbers are unique among the claims of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) number: u64,
    pub(crate) at: LogicalTime,
}

/// The claims of one worker that its cooldown counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimTimes {
    /// Time of the last successful claim.
    claimed: Option<LogicalTime>,
    /// The last claim that was allowed, while it is in flight.
    reserved: Option<Reservation>,
}

impl ClaimTimes {
    /// Reserves a claim at the time of `reservation`.
    ///
    /// # Errors
    ///
    /// Returns when the worker may claim again, if the cooldown has not passed.
    pub(crate) fn reserve(
        &mut self,
        cooldown: ClaimCooldown,
        reservation: Reservation,
    ) -> Result<(), LogicalTime> {
        if let Some(again) = self.retry_after(cooldown, reservation.at) {
            return Err(again);
        }
        // Replaces a reservation that is at least an interval old. Its claim is in flight, and both
        // may succeed without breaking the rule.
        self.reserved = Some(reservation);
        Ok(())
    }

    /// Ends the claim of `reservation`, which returned a shard or not.
    pub(crate) fn settle(&mut self, reservation: Reservation, is_claimed: bool) {
        if is_claimed {
            // A claim may end after a later one: the cooldown counts from the latest.
            self.claimed = self.claimed.max(Some(reservation.at));
        }
        if self.reserved == Some(reservation) {
            self.reserved = None;
        }
    }

    /// Returns when the worker may claim again, if that is after `now`.
    #[must_use]
    pub(crate) fn retry_after(
        self,
        cooldown: ClaimCooldown,
        now: LogicalTime,
    ) -> Option<LogicalTime> {
        let last = self.claimed.max(self.reserved.map(|reserved| reserved.at));
        cooldown.retry_after(last?, now)
    }
}
