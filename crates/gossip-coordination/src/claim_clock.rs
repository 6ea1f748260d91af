//! The claim times of a process's workers, shared by its coordinator handles.
//!
//! The rule is [`ClaimTimes`]; this module holds one per worker and tenant and lets handles on
//! several threads use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::identity::{LogicalTime, TenantId, WorkerId};

use crate::facade::ClaimError;
use crate::protocol::{ClaimCooldown, ClaimTimes, Reservation};

/// The claim times of workers. Clones share them.
///
/// Handles that share them use the same cooldown.
#[derive(Clone, Default)]
pub(crate) struct ClaimClock(Arc<Mutex<Claimants>>);

#[derive(Default)]
struct Claimants {
    times: BTreeMap<(TenantId, WorkerId), ClaimTimes>,
    /// Number of reservations.
    reservation_count: u64,
}

impl ClaimClock {
    /// Reserves a claim of `worker` at `now`.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Throttled`] if the worker's cooldown has not passed.
    pub(crate) fn reserve(
        &self,
        cooldown: ClaimCooldown,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        // Without a cooldown no entry is kept, so claims take no lock.
        if cooldown.is_disabled() {
            return Ok(ClaimReservation(None));
        }
        let claimant = (tenant, worker);
        let reservation = self
            .with(|claimants| claimants.reserve(cooldown, now, claimant))
            .map_err(|retry_after| ClaimError::Throttled { retry_after })?;
        Ok(ClaimReservation(Some(Reserved { clock: self.clone(), claimant, reservation })))
    }

    /// Runs `access` under the lock. `access` neither blocks nor panics.
    fn with<R>(&self, access: impl FnOnce(&mut Claimants) -> R) -> R {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Claimants {
    fn reserve(
        &mut self,
        cooldown: ClaimCooldown,
        now: LogicalTime,
        claimant: (TenantId, WorkerId),
    ) -> Result<Reservation, LogicalTime> {
        // Prune whenever the size reaches a power of two: amortized constant cost per worker. The
        // clocks of tenants differ, so only this tenant's entries are pruned.
        if self.times.len().is_power_of_two() && !self.times.contains_key(&claimant) {
            self.times.retain(|(tenant, _), times| {
                *tenant != claimant.0 || times.retry_after(cooldown, now).is_some()
            });
        }
        let reservation = Reservation { number: self.reservation_count, at: now };
        self.reservation_count += 1;
        self.times.entry(claimant).or_default().reserve(cooldown, reservation)?;
        Ok(reservation)
    }

    fn settle(
        &mut self,
        claimant: (TenantId, WorkerId),
        reservation: Reservation,
        is_claimed: bool,
    ) {
        let times = self.times.entry(claimant).or_default();
        times.settle(reservation, is_claimed);
        // Otherwise a failed claim would leave an entry for each worker that ever tried.
        if *times == ClaimTimes::default() {
            self.times.remove(&claimant);
        }
    }
}

/// Shows the number of workers only: tenants and workers are not for logs.
impl fmt::Debug for ClaimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.with(|claimants| claimants.times.len());
        f.debug_struct("ClaimClock").field("workers", &workers).finish_non_exhaustive()
    }
}

/// The permission to make one claim, from
/// [`ShardClaiming::reserve_claim`](crate::ShardClaiming::reserve_claim). Until it ends, no other
/// claim of the worker is allowed within the cooldown.
///
/// Dropping it gives it back: a failed claim starts no cooldown, nor does one whose future was
/// dropped.
#[must_use = "dropping a reservation gives it back"]
pub struct ClaimReservation(Option<Reserved>);

struct Reserved {
    clock: ClaimClock,
    claimant: (TenantId, WorkerId),
    reservation: Reservation,
}

impl ClaimReservation {
    /// Records that the claim returned a shard: the cooldown starts at the time of the reservation.
    pub(crate) fn claimed(mut self) {
        self.settle(true);
    }

    fn settle(&mut self, is_claimed: bool) {
        if let Some(Reserved { clock, claimant, reservation }) = self.0.take() {
            clock.with(|claimants| claimants.settle(claimant, reservation, is_claimed));
        }
    }
}

impl Drop for ClaimReservation {
    fn drop(&mut self) {
        self.settle(false);
    }
}

impl fmt::Debug for ClaimReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimReservation").finish_non_exhaustive()
    }
}
