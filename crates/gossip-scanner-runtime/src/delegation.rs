//! What every wrapper of a coordinator handle passes on unchanged.

/// Defines the part of `ShardClaiming` that returns no shard, by calling `self.inner`. A
/// reservation is a wait of this process, so it needs neither another time nor an observer.
macro_rules! reservations_of_inner {
    () => {
        const CANDIDATES_PER_SCAN: usize = B::CANDIDATES_PER_SCAN;

        fn change_count(&mut self) -> Option<u64> {
            self.inner.change_count()
        }

        fn reserve_claim(
            &mut self,
            now: LogicalTime,
            tenant: TenantId,
            worker: WorkerId,
        ) -> Result<ClaimReservation, ClaimError> {
            self.inner.reserve_claim(now, tenant, worker)
        }
    };
}

pub(crate) use reservations_of_inner;
