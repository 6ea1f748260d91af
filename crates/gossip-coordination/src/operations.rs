//! The operation lists: every operation of a coordinator, written down once.
//!
//! [`for_each_shard_operation!`](crate::for_each_shard_operation) and
//! [`for_each_run_operation!`](crate::for_each_run_operation) pass their rows to a macro of the
//! caller's choice. The traits of this crate, its coordinators and the wrappers of the test suites
//! are derived from them, so an operation is added in the kernel, here, and nowhere else unless a
//! backend treats it specially.
//!
//! # Rows
//!
//! A list called with `name` and one token tree of context expands to `name! { context rows }`. A
//! row is
//!
//! ```text
//! /// Documentation of the method.
//! fn name<'a>(parameter: Type, ...) -> Answer = kind(arguments);
//! ```
//!
//! | kind | arguments | meaning |
//! |---|---|---|
//! | `under_lease` | `now, lease, command` | a kernel command on a shard by its lease holder |
//! | `split` | `now, lease, \|children_max\| command` | the same, with the limit of children |
//! | `grant` | `now, worker, scratch, \|token\| command` | a kernel command that grants a lease |
//! | `on_shard` | `now, command` | a kernel command on a shard by an administrator |
//! | `on_run` | `now, command` | a kernel command on a run |
//! | `create` | `now, command` | the same, without an operation id, so it has no replay |
//! | `transition` | `now, command` | a change of a run's status |
//! | `delete` | `now, command` | removal of a run and its shards |
//! | `collect` | | removal of abandoned runs, several commands |
//! | `update` | | writes, without a kernel command of its own |
//! | `read` | | reads only |
//!
//! # Deriving a wrapper
//!
//! Parameters can be used only through the row: a macro cannot name the parameters of another. The
//! types of the rows must be in scope, which `use gossip_coordination::operations::*` does. This is
//! a wrapper that counts calls:
//!
//! ```
//! use gossip_coordination::operations::*;
//! use gossip_coordination::{CoordinationBackend, for_each_shard_operation};
//!
//! struct Counted<B> {
//!     inner: B,
//!     calls: u64,
//! }
//!
//! macro_rules! count {
//!     (() $(
//!         $(#[$doc:meta])*
//!         fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
//!             = $kind:ident $how:tt;
//!     )*) => { $(
//!         fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
//!             self.calls += 1;
//!             self.inner.$name($($arg),*)
//!         }
//!     )* };
//! }
//!
//! impl<B: CoordinationBackend> CoordinationBackend for Counted<B> {
//!     for_each_shard_operation! { count () }
//! }
//! ```

// Shown as re-exports: the documented path of each type is the one where it is imported from here.
#[doc(no_inline)]
pub use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
#[doc(no_inline)]
pub use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId,
};

#[doc(no_inline)]
pub use crate::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
#[doc(no_inline)]
pub use crate::{
    AcceptError, AcquireError, AcquireResultView, AcquireScratch, CheckpointError,
    CheckpointResult, ClaimOutlook, CompleteError, CreateRunError, DeleteRunError, EventWriter,
    GetRunError, HandoffId, IdempotentOutcome, InfraError, Lease, OfferError, ParkContext,
    ParkError, ParkReason, RegisterShardsError, ReleaseError, RenewError, RenewResult,
    RequestActionError, RevokeLeaseError, RunConfig, RunOpResult, RunProgress, RunRecord,
    RunTransitionError, ShardAction, ShardFilter, ShardSummary, SideRecordId, SideRecordKind,
    SideRecords, SplitError, SplitReplaceResult, SplitResidualResult, StoredEvent,
    StoredSideRecord, UnparkError, WithdrawError, WorkerEntry, WorkerError, WorkerProcess,
    WorkerState,
};

/// The operations of [`CoordinationBackend`](crate::CoordinationBackend). See
/// [`operations`](crate::operations).
#[macro_export]
macro_rules! for_each_shard_operation {
    ($callback:ident $context:tt) => {
        $callback! { $context
            /// Acquires a shard that has no live lease and copies its state into `scratch`. Not
            /// idempotent: every grant raises the fence.
            fn acquire_and_restore_into<'a>(
                now: LogicalTime, tenant: TenantId, key: ShardKey, worker: WorkerId,
                scratch: &'a mut AcquireScratch
            ) -> Result<AcquireResultView<'a>, AcquireError>
                = grant(now, worker, scratch, |token| {
                    let reply = ReplyPath::CanBeLost;
                    Acquire { tenant, key, worker, token, reply, spares_last_attempt: false }
                });

            /// As `acquire_and_restore_into`, but refuses a shard whose grant would be its last
            /// attempt.
            fn acquire_sparing_last_attempt_into<'a>(
                now: LogicalTime, tenant: TenantId, key: ShardKey, worker: WorkerId,
                scratch: &'a mut AcquireScratch
            ) -> Result<AcquireResultView<'a>, AcquireError>
                = grant(now, worker, scratch, |token| {
                    let reply = ReplyPath::CanBeLost;
                    Acquire { tenant, key, worker, token, reply, spares_last_attempt: true }
                });

            /// Extends a lease. Repeating it is harmless.
            fn renew(
                now: LogicalTime, tenant: TenantId, lease: &Lease
            ) -> Result<RenewResult, RenewError> = update();

            /// Advances the cursor durably.
            fn checkpoint(
                now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
                op_id: OpId
            ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>
                = under_lease(now, lease, Checkpoint { tenant, lease, cursor, op_id });

            /// Added: as [`checkpoint`](Self::checkpoint), and stores `records` in the same commit.
            /// They are no parameter of the operation: a retry with others is a replay, which
            /// stores none.
            fn checkpoint_with_records(
                now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
                records: SideRecords<'_>, op_id: OpId
            ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>
                = under_lease(now, lease, WithRecords {
                    operation: Checkpoint { tenant, lease, cursor, op_id }, records
                });

            /// Ends a shard whose keys are all processed.
            fn complete(
                now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
                op_id: OpId
            ) -> Result<IdempotentOutcome<()>, CompleteError>
                = under_lease(now, lease, Complete { tenant, lease, cursor, op_id });

            /// Added: as [`complete`](Self::complete), and stores `records` in the same commit.
            fn complete_with_records(
                now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
                records: SideRecords<'_>, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, CompleteError>
                = under_lease(now, lease, WithRecords {
                    operation: Complete { tenant, lease, cursor, op_id }, records
                });

            /// Parks a shard: it is not processed further until it is unparked.
            fn park_shard(
                now: LogicalTime, tenant: TenantId, lease: &Lease, reason: ParkReason, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, ParkError>
                = under_lease(now, lease, Park {
                    tenant, lease, reason, context: ParkContext::NONE, op_id
                });

            /// Added: as [`park_shard`](Self::park_shard), and stores a text for people with the
            /// shard until it is unparked. The text is no parameter of the operation: a retry with
            /// another one is a replay.
            fn park_shard_with_context(
                now: LogicalTime, tenant: TenantId, lease: &Lease, reason: ParkReason,
                context: ParkContext<'_>, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, ParkError>
                = under_lease(now, lease, Park { tenant, lease, reason, context, op_id });

            /// Added: as [`park_shard_with_context`](Self::park_shard_with_context), and stores
            /// `records` in the same commit.
            fn park_shard_with_records(
                now: LogicalTime, tenant: TenantId, lease: &Lease,
                why: (ParkReason, ParkContext<'_>), records: SideRecords<'_>, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, ParkError>
                = under_lease(now, lease, WithRecords {
                    operation: Park { tenant, lease, reason: why.0, context: why.1, op_id },
                    records
                });

            /// Replaces a shard by children that cover its range.
            fn split_replace(
                now: LogicalTime, tenant: TenantId, lease: &Lease, plan: &SplitReplacePlan<'_>,
                op_id: OpId
            ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError>
                = split(now, lease, |children_max| SplitReplace {
                    tenant, lease, plan, children_max, op_id
                });

            /// Moves the right part of a shard's range into a new shard.
            fn split_residual(
                now: LogicalTime, tenant: TenantId, lease: &Lease, plan: &SplitResidualPlan<'_>,
                op_id: OpId
            ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitError>
                = under_lease(now, lease, SplitResidual { tenant, lease, plan, op_id });

            /// Releases a shard before it is complete.
            fn release(
                now: LogicalTime, tenant: TenantId, lease: &Lease, mode: ReleaseMode, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, ReleaseError>
                = under_lease(now, lease, Release { tenant, lease, mode, op_id });

            /// Offers a shard to another worker; an initial cursor keeps the stored one.
            fn offer(
                now: LogicalTime, tenant: TenantId, lease: &Lease, terms: OfferTerms,
                cursor: CursorUpdate<'_>, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, OfferError>
                = under_lease(now, lease, OfferShard { tenant, lease, terms, cursor, op_id });

            /// Accepts an offered shard and copies its state into `scratch`.
            fn accept<'a>(
                now: LogicalTime, tenant: TenantId, key: ShardKey, worker: WorkerId,
                handoff: HandoffId, scratch: &'a mut AcquireScratch
            ) -> Result<AcquireResultView<'a>, AcceptError>
                = grant(now, worker, scratch, |token| Accept {
                    tenant, key, worker, handoff, token
                });

            /// Withdraws an offer, and prevents one that has not arrived yet.
            fn withdraw(
                now: LogicalTime, tenant: TenantId, lease: &Lease, handoff: HandoffId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, WithdrawError>
                = under_lease(now, lease, Withdraw { tenant, lease, handoff, op_id });

            /// Renews many leases. Replaces `results` by one result for each lease, in their
            /// order. All leases of a run get the same capacity hint, computed after the last of
            /// them was renewed.
            fn renew_many(
                now: LogicalTime, tenant: TenantId, leases: &[Lease],
                results: &mut Vec<Result<RenewResult, RenewError>>
            ) -> () = update();
        }
    };
}

/// The operations of [`RunManagement`](crate::RunManagement). See
/// [`operations`](crate::operations).
#[macro_export]
macro_rules! for_each_run_operation {
    ($callback:ident $context:tt) => {
        $callback! { $context
            /// Creates a run without shards.
            fn create_run(
                now: LogicalTime, tenant: TenantId, run: RunId, config: RunConfig
            ) -> Result<(), CreateRunError> = create(now, CreateRun { tenant, run, config });

            /// Registers the shards of a run and makes it active.
            fn register_shards(
                now: LogicalTime, tenant: TenantId, run: RunId, shards: &[InitialShardInput<'_>],
                op_id: OpId
            ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>
                = on_run(now, RegisterShards { tenant, run, shards, op_id });

            /// Returns the run's record.
            fn get_run(tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError> = read();

            /// Returns how many shards of the run are in which state.
            fn get_run_progress(
                now: LogicalTime, tenant: TenantId, run: RunId
            ) -> Result<RunProgress, GetRunError> = read();

            /// Appends the run's shards that `filter` admits to `out`, sorted by range and id; a
            /// page of them by id.
            fn list_shards_into(
                now: LogicalTime, tenant: TenantId, run: RunId, filter: ShardFilter,
                out: &mut Vec<ShardSummary>
            ) -> Result<(), GetRunError> = read();

            /// Added: appends the side records of one kind to `out`, in the order of their ids: the
            /// first of them after `after`, at most `limit`. None are appended only if there are
            /// no more.
            fn list_side_records_into(
                tenant: TenantId, run: RunId, kind: SideRecordKind, after: Option<SideRecordId>,
                limit: usize, out: &mut Vec<StoredSideRecord>
            ) -> Result<(), InfraError> = read();

            /// Added: appends the stored lifecycle events of the next writers after `after` to
            /// `out`, in the order of the writers and of their slots: for each of these writers
            /// all that are stored, read at one moment. None are appended only if there are no
            /// more.
            fn list_events_into(
                tenant: TenantId, run: RunId, after: Option<EventWriter>,
                out: &mut Vec<StoredEvent>
            ) -> Result<(), InfraError> = read();

            /// Completes a run whose shards are all done.
            fn complete_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RunTransitionError>
                = transition(now, RunTransition {
                    tenant, run, kind: RunTransitionKind::Complete, op_id
                });

            /// Ends a run as failed.
            fn fail_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RunTransitionError>
                = transition(now, RunTransition {
                    tenant, run, kind: RunTransitionKind::Fail, op_id
                });

            /// Cancels a run.
            fn cancel_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RunTransitionError>
                = transition(now, RunTransition {
                    tenant, run, kind: RunTransitionKind::Cancel, op_id
                });

            /// Makes a parked shard claimable again.
            fn unpark_shard(
                now: LogicalTime, tenant: TenantId, key: ShardKey, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, UnparkError>
                = on_shard(now, Unpark { tenant, key, op_id });

            /// Replaces `out` by shards that `worker` may claim, at most `limit`, best first.
            fn collect_claim_candidates_into(
                now: LogicalTime, tenant: TenantId, run: RunId, worker: WorkerId, limit: usize,
                out: &mut ClaimCandidates
            ) -> Result<ClaimOutlook, GetRunError> = read();

            /// Pauses a run. Its shards cannot be claimed until it is resumed.
            fn pause_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RunTransitionError>
                = transition(now, RunTransition {
                    tenant, run, kind: RunTransitionKind::Pause, op_id
                });

            /// Makes the shards of a paused run claimable again.
            fn resume_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RunTransitionError>
                = transition(now, RunTransition {
                    tenant, run, kind: RunTransitionKind::Resume, op_id
                });

            /// Stores a request for the lease holder of a shard.
            fn request_action(
                now: LogicalTime, tenant: TenantId, key: ShardKey, action: &ShardAction,
                expires_at: LogicalTime, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RequestActionError>
                = on_shard(now, RequestAction {
                    tenant, key, action: action.clone(), expires_at, op_id
                });

            /// Revokes the lease of a shard: the one with fence `expected_fence`, or any.
            fn revoke_lease(
                now: LogicalTime, tenant: TenantId, key: ShardKey,
                expected_fence: Option<FenceEpoch>, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, RevokeLeaseError>
                = on_shard(now, RevokeLease { tenant, key, expected_fence, op_id });

            /// Deletes a terminal run with its shards. Its id is never used again.
            fn delete_run(
                now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId
            ) -> Result<IdempotentOutcome<()>, DeleteRunError>
                = delete(now, DeleteRun { tenant, run, op_id });

            /// Enters a worker into the registry, with its process if other processes of its host
            /// are to see when it is gone. Repeating it is harmless.
            fn register_worker(
                now: LogicalTime, tenant: TenantId, worker: WorkerId,
                process: Option<WorkerProcess>
            ) -> Result<(), WorkerError> = update();

            /// Reports that a registered worker is alive, and its state.
            fn heartbeat(
                now: LogicalTime, tenant: TenantId, worker: WorkerId, state: WorkerState
            ) -> Result<(), WorkerError> = update();

            /// Appends the workers whose registration has not expired at `now` to `out`, in the
            /// order of their ids. At [`LogicalTime::ZERO`] these are all that are stored.
            fn list_workers_into(
                now: LogicalTime, tenant: TenantId, out: &mut Vec<WorkerEntry>
            ) -> Result<(), WorkerError> = read();

            /// Appends the tenant's runs that are not terminal to `out`, in the order of
            /// their ids: the first `limit` of them after `after`. Fewer than `limit` are the last.
            /// A damaged record does not say whether its run is terminal: it is left out, and
            /// reported by an error after all others are appended.
            fn list_active_runs_into(
                tenant: TenantId, after: Option<RunId>, limit: usize, out: &mut Vec<RunId>
            ) -> Result<(), InfraError> = read();

            /// As [`list_active_runs_into`](Self::list_active_runs_into), with terminal runs
            /// that are not deleted and with runs whose record is damaged.
            fn list_runs_into(
                tenant: TenantId, after: Option<RunId>, limit: usize, out: &mut Vec<RunId>
            ) -> Result<(), InfraError> = read();

            /// Removes up to `limit` of the tenant's runs whose registration was never
            /// finished and had no activity for `stale_after` ticks. Each is cancelled, then
            /// deleted; its id is never used again. Interrupted deletions are completed first,
            /// because nothing else finds the remaining shards, which count against the quota. The
            /// removed runs, of both kinds, are appended to `out`, also if the call fails later.
            fn gc_stale_initializing_runs_into(
                now: LogicalTime, tenant: TenantId, stale_after: u64, limit: usize,
                out: &mut Vec<RunId>
            ) -> Result<(), InfraError> = collect();
        }
    };
}

/// Declares the rows as methods of a blocking trait.
macro_rules! declare_blocking {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        $(#[$doc])*
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer;
    )* };
}
pub(crate) use declare_blocking;

/// Declares the rows as methods of an asynchronous trait.
macro_rules! declare_async {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        $(#[$doc])*
        fn $name $(<$life>)? (
            &mut self,
            $($arg: $type),*
        ) -> impl Future<Output = $answer> + Send;
    )* };
}
pub(crate) use declare_async;
