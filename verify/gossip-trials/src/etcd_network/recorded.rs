//! A coordinator handle that writes each operation on a shard into the history of its process.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use gossip::coordination::operations::*;
use gossip::coordination::{
    ClaimError, ClaimReservation, CollectEvents, CoordinationBackend, EventCollector,
    RunManagement, ShardClaiming, for_each_run_operation, for_each_shard_operation,
};
use gossip::sources::parse_row_key;

use super::history::Log;

/// A coordinator handle with a history.
pub(super) struct Recorded<B> {
    inner: B,
    log: Arc<Log>,
}

impl<B> Recorded<B> {
    pub(super) const fn new(inner: B, log: Arc<Log>) -> Self {
        Self { inner, log }
    }
}

impl<B> fmt::Debug for Recorded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").finish_non_exhaustive()
    }
}

/// Returns the words for an error: whether the store failed, or the name of the refusal.
fn refusal<E: Error + 'static>(error: &E) -> String {
    let error: &(dyn Error + 'static) = error;
    let infra = error.downcast_ref().or_else(|| error.source()?.downcast_ref::<InfraError>());
    match infra {
        Some(infra) if infra.is_unresolved() => "unknown".to_owned(),
        Some(_) => "failed".to_owned(),
        None => {
            let name = format!("{error:?}");
            let end = name.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(name.len());
            format!("refused {}", &name[..end])
        }
    }
}

fn written<T, E: Error + 'static>(answer: &Result<IdempotentOutcome<T>, E>) -> String {
    match answer {
        Ok(IdempotentOutcome::Executed(_)) => "executed".to_owned(),
        Ok(IdempotentOutcome::Replayed(_)) => "replayed".to_owned(),
        Err(error) => refusal(error),
    }
}

fn renewed(answer: &Result<RenewResult, RenewError>) -> String {
    match answer {
        Ok(renewed) => format!("renewed {}", renewed.new_deadline.as_raw()),
        Err(error) => refusal(error),
    }
}

fn granted(answer: &Result<AcquireResultView<'_>, AcquireError>) -> String {
    match answer {
        Ok(granted) => {
            let (lease, cursor) = (&granted.lease, number(granted.snapshot.cursor()));
            let fence = lease.fence().as_raw();
            format!("granted {fence} {cursor} {}", lease.deadline().as_raw())
        }
        Err(error) => refusal(error),
    }
}

/// Returns the cursor as the number of the first key behind it.
fn number(cursor: CursorUpdate<'_>) -> u64 {
    number_behind(cursor.last_key())
}

/// Returns the number of the first key behind a key.
pub(super) fn number_behind(key: Option<&[u8]>) -> u64 {
    key.map_or(0, |key| parse_row_key(key).expect("the source is a range of integers") + 1)
}

/// Defines the methods of the operations on shards.
macro_rules! record {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        record! { @one $name ($($life)?) ($($arg: $type),*) $answer }
    )* };
    (@one acquire_and_restore_into $life:tt $args:tt $answer:ty) => {
        record! { @grant acquire_and_restore_into $args $answer }
    };
    (@one acquire_sparing_last_attempt_into $life:tt $args:tt $answer:ty) => {
        record! { @grant acquire_sparing_last_attempt_into $args $answer }
    };
    (@grant $name:ident (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $key:ident: $shard:ty,
        $worker:ident: $owner:ty, $scratch:ident: $into:ty
    ) $answer:ty) => {
        fn $name<'a>(
            &mut self, $now: $time, $tenant: $id, $key: $shard, $worker: $owner, $scratch: $into
        ) -> $answer {
            let shard = $key.shard().as_raw();
            let id = self.log.call(format_args!("acquire {shard} {}", $now.as_raw()));
            let answer = self.inner.$name($now, $tenant, $key, $worker, $scratch);
            self.log.end(id, granted(&answer));
            answer
        }
    };
    (@one checkpoint () ($($args:tt)*) $answer:ty) => {
        record! { @write checkpoint ($($args)*) $answer }
    };
    (@one complete () ($($args:tt)*) $answer:ty) => {
        record! { @write complete ($($args)*) $answer }
    };
    (@write $name:ident (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $lease:ident: $held:ty,
        $cursor:ident: $update:ty, $op:ident: $op_id:ty
    ) $answer:ty) => {
        fn $name(
            &mut self, $now: $time, $tenant: $id, $lease: $held, $cursor: $update, $op: $op_id
        ) -> $answer {
            let (cursor, name) = (number($cursor), stringify!($name));
            let id = self.log.call(under_lease(name, $lease, cursor, $op, $now));
            let answer = self.inner.$name($now, $tenant, $lease, $cursor, $op);
            self.log.end(id, written(&answer));
            answer
        }
    };
    (@one release () (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $lease:ident: $held:ty,
        $mode:ident: $release:ty, $op:ident: $op_id:ty
    ) $answer:ty) => {
        fn release(
            &mut self, $now: $time, $tenant: $id, $lease: $held, $mode: $release, $op: $op_id
        ) -> $answer {
            let id = self.log.call(under_lease("release", $lease, 0, $op, $now));
            let answer = self.inner.release($now, $tenant, $lease, $mode, $op);
            self.log.end(id, written(&answer));
            answer
        }
    };
    (@one renew () (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $lease:ident: $held:ty
    ) $answer:ty) => {
        fn renew(&mut self, $now: $time, $tenant: $id, $lease: $held) -> $answer {
            let id = self.log.call(renewal($lease, $now));
            let answer = self.inner.renew($now, $tenant, $lease);
            self.log.end(id, renewed(&answer));
            answer
        }
    };
    (@one renew_many () (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $leases:ident: $slice:ty,
        $results:ident: $vec:ty
    ) $answer:ty) => {
        fn renew_many(
            &mut self, $now: $time, $tenant: $id, $leases: $slice, $results: $vec
        ) -> $answer {
            let call = |lease| self.log.call(renewal(lease, $now));
            let ids: Vec<u64> = $leases.iter().map(call).collect();
            self.inner.renew_many($now, $tenant, $leases, $results);
            for (id, result) in ids.into_iter().zip($results.iter()) {
                self.log.end(id, renewed(result));
            }
        }
    };
    // The workers of this campaign use no other; one that appears is reported.
    (@one $name:ident ($($life:lifetime)?) ($($arg:ident: $type:ty),*) $answer:ty) => {
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            self.log.call(concat!("other ", stringify!($name)));
            self.inner.$name($($arg),*)
        }
    };
}

/// Defines the methods of the operations on runs.
macro_rules! pass {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            // Those of an administrator on a shard may change its fence.
            if stringify!($kind) == "on_shard" {
                self.log.call(concat!("other ", stringify!($name)));
            }
            self.inner.$name($($arg),*)
        }
    )* };
}

fn under_lease(name: &str, lease: &Lease, cursor: u64, op: OpId, now: LogicalTime) -> String {
    let (shard, fence) = (lease.shard().as_raw(), lease.fence().as_raw());
    format!("{name} {shard} {fence} {cursor} {} {}", op.as_raw(), now.as_raw())
}

fn renewal(lease: &Lease, now: LogicalTime) -> String {
    format!("renew {} {} {}", lease.shard().as_raw(), lease.fence().as_raw(), now.as_raw())
}

impl<B: CoordinationBackend> CoordinationBackend for Recorded<B> {
    for_each_shard_operation! { record () }
}

impl<B: RunManagement> RunManagement for Recorded<B> {
    for_each_run_operation! { pass () }
}

impl<B: ShardClaiming> ShardClaiming for Recorded<B> {
    const CANDIDATES_PER_SCAN: usize = B::CANDIDATES_PER_SCAN;

    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.inner.reserve_claim(now, tenant, worker)
    }

    fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        let answer = self.inner.probe_candidates_into(now, tenant, run, worker, limit, out);
        if answer.is_ok() && out.is_empty() {
            self.log.note("none-free");
        }
        answer
    }
}

impl<B: CollectEvents> CollectEvents for Recorded<B> {
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
        self.inner.collect_events(events)
    }
}
