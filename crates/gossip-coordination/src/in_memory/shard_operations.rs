//! The operations on shards. Plain kernel commands are derived from the operation list; grants and
//! renewals are written by hand.

use std::collections::BTreeMap;

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;

use super::InMemoryCoordinator;
use super::table::{Place, Slot};
use crate::for_each_shard_operation;
use crate::lease::PlaceHint;
use crate::operations::*;
use crate::outcome::CapacityHint;
use crate::protocol::{
    Accept, Acquire, Checkpoint, Complete, Grant, LeaseWatch, OfferShard, OwnerEvidence, Park,
    Release, Renew, ReplyPath, ShardInputs, ShardTransition, SplitReplace, SplitResidual, Verdict,
    WithRecords, Withdraw,
};
use crate::shard_limits::ShardQuota;
use crate::traits::CoordinationBackend;

/// Defines the rows of an operation list that are plain kernel commands. The other rows are written
/// by hand beside it.
macro_rules! in_memory_operations {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => {
        $(in_memory_operations! { @method $kind $how,
            fn $name $(<$life>)? ($($arg: $type),*) -> $answer
        })*
    };

    (@method grant $($rest:tt)*) => {};
    (@method update $($rest:tt)*) => {};
    (@method read $($rest:tt)*) => {};
    (@method collect $($rest:tt)*) => {};
    (@method $kind:ident $how:tt,
        fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&mut self, $($arg: $type),*) -> $answer {
            in_memory_operations!(@run self, $kind $how)
        }
    };

    (@run $self:ident, under_lease($now:ident, $lease:ident, $command:expr)) => {
        $self.run_leased($now, $lease, &$command)
    };
    (@run $self:ident, split($now:ident, $lease:ident, $command:expr)) => {
        $self.run_leased($now, $lease, &($command)(MAX_SPLIT_CHILDREN))
    };
    (@run $self:ident, on_shard($now:ident, $command:expr)) => {
        $self.run_on_shard($now, &$command)
    };
    (@run $self:ident, create($now:ident, $command:expr)) => {
        $self.run_on_run($now, &$command).map(IdempotentOutcome::into_inner)
    };
    (@run $self:ident, transition($now:ident, $command:expr)) => {
        Ok($self.run_on_run($now, &$command)?.map(|_| ()))
    };
    // `on_run` and `delete`.
    (@run $self:ident, $kind:ident($now:ident, $command:expr)) => {
        $self.run_on_run($now, &$command)
    };
}
pub(super) use in_memory_operations;

impl CoordinationBackend for InMemoryCoordinator {
    for_each_shard_operation! { in_memory_operations () }

    fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let (token, reply) = (self.fresh_grant(), ReplyPath::Certain);
        let acquire = Acquire { tenant, key, worker, token, reply, spares_last_attempt: false };
        let found = self.find(tenant, key);
        // Both reads are needed only after the checks; by then the memory has answered.
        self.prefetch_snapshot(found);
        self.prefetch_standing(found);
        let Some(place) = found else {
            return self.acquire_at_length(now, &acquire, None, scratch);
        };
        // The steps of `run_at`, without building the whole decision: it is large, and moving it
        // would cost as much as deciding.
        self.assert_collector_serves(tenant);
        let (shard, run) = (self.view(place.slot), self.run(place).record.head());
        let seen = ShardInputs {
            shard: Some(shard),
            run: Some(run),
            quota: ShardQuota::UNLIMITED,
            owner: OwnerEvidence::Gone,
            watch: LeaseWatch::NONE,
            split_hash_of: &|_| None,
        };
        // Parking an exhausted shard is rare, so it takes the general path.
        if acquire.check(now, &seen)? == Verdict::GiveUp {
            return self.acquire_at_length(now, &acquire, found, scratch);
        }
        let grant = acquire.grant(now, shard.record(), &run);
        let committed = self.commit::<Acquire>(now, place, tenant, grant.change(None));
        committed.map_err(Acquire::exhausted)?;
        Ok(self.restore(now, grant, place, scratch))
    }

    fn acquire_sparing_last_attempt_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let (token, reply) = (self.fresh_grant(), ReplyPath::Certain);
        let acquire = Acquire { tenant, key, worker, token, reply, spares_last_attempt: true };
        let found = self.find(tenant, key);
        self.acquire_at_length(now, &acquire, found, scratch)
    }

    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError> {
        let found = self.find_leased(tenant, lease);
        self.prefetch_standing(found);
        let renewed = self.run_at(now, &Renew { tenant, lease }, found)?.into_inner();
        Ok(RenewResult {
            new_deadline: renewed.new_deadline,
            capacity: self.capacity(now, found.expect(GRANTED)),
            offer: renewed.offer,
            request: renewed.request,
            run_paused: renewed.run_paused,
        })
    }

    fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError> {
        let accept = Accept { tenant, key, worker, handoff, token: self.fresh_grant() };
        let found = self.find_far(tenant, key);
        let grant = self.run_at(now, &accept, found)?.into_inner();
        Ok(self.restore(now, grant, found.expect(GRANTED), scratch))
    }

    fn renew_many(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    ) {
        // Cleared here, so that results of an earlier call cannot be taken for these.
        results.clear();
        results.extend(leases.iter().map(|lease| self.renew(now, tenant, lease)));
        share_hints(leases, results);
    }
}

/// Gives all leases of a run the capacity hint of the last one that was renewed.
fn share_hints(leases: &[Lease], results: &mut [Result<RenewResult, RenewError>]) {
    let mut hints: BTreeMap<RunId, CapacityHint> = BTreeMap::new();
    // Backwards: the last renewal of a run saw the deadlines of all the others.
    for (lease, result) in leases.iter().zip(results).rev() {
        if let Ok(renewed) = result {
            renewed.capacity = *hints.entry(lease.run()).or_insert(renewed.capacity);
        }
    }
}

/// Why a granted shard is found: an operation on a missing shard fails before.
const GRANTED: &str = "an operation on a missing shard is refused";

impl InMemoryCoordinator {
    /// Runs an operation of a lease's holder.
    fn run_leased<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        lease: &Lease,
        operation: &T,
    ) -> Result<IdempotentOutcome<T::Output>, T::Error> {
        let (tenant, _) = operation.subject();
        self.records.prefetch_bytes(Slot(lease.place.shard), &self.pool);
        let found = self.find_leased(tenant, lease);
        self.prefetch_progress(found);
        self.run_at(now, operation, found)
    }

    /// An acquire that finds no shard, parks it, or spares last attempts.
    #[cold]
    fn acquire_at_length<'a>(
        &mut self,
        now: LogicalTime,
        acquire: &Acquire,
        found: Option<Place>,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let grant = self.run_at(now, acquire, found)?.into_inner();
        Ok(self.restore(now, grant, found.expect(GRANTED), scratch))
    }

    /// Copies the granted shard into `scratch` and shows it with its lease.
    #[inline(always)]
    fn restore<'a>(
        &self,
        now: LogicalTime,
        grant: Grant,
        place: Place,
        scratch: &'a mut AcquireScratch,
    ) -> AcquireResultView<'a> {
        let mut lease = grant.lease;
        // The holder's next operations find the record without a lookup.
        lease.place = PlaceHint { shard: place.slot.0, run: place.run.0 };
        AcquireResultView {
            lease,
            snapshot: scratch.write_shard(self.view(place.slot)),
            capacity: self.capacity(now, place),
            attempts: grant.attempts,
        }
    }
}
