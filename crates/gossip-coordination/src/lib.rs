//! Shard coordination: leases with fencing epochs, cursors, idempotent operations, splits, runs.
//!
//! The protocol rules are in [`protocol`], as pure functions. Around them are the records they
//! read, the errors they return, and the backends that load records and commit changes. Every
//! operation is listed once, in [`operations`].
//!
//! **A stale fence is refused** in [`validate_lease`]; its checks are `check_lease` in
//! `validation.rs`:
//!
//! ```
//! use gossip_contracts::coordination::{
//!     CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
//! };
//! use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
//! use gossip_coordination::{
//!     AcquireScratch, CheckpointError, CoordinationBackend as _, CoordinatorRuntimeConfig,
//!     InMemoryCoordinator, RunConfig, RunManagement as _, ShardClaiming as _,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut shards = InMemoryCoordinator::new(CoordinatorRuntimeConfig::default());
//! let (tenant, run) = (TenantId::from_bytes([7; 32]), RunId::from_raw(1));
//! let config = RunConfig::try_new(CursorSemantics::Completed, 100, None)?;
//! let shard = InitialShardInput {
//!     shard_id: ShardId::from_raw(1),
//!     spec: ShardSpecRef::new(b"a", b"z", b""),
//!     cursor: CursorUpdate::initial(),
//! };
//! let now = LogicalTime::from_raw(1);
//! shards.create_run_with_shards(now, tenant, run, config, &[shard], OpId::from_raw(1))?;
//!
//! // The first worker stores its progress, and pauses for longer than its lease.
//! let mut scratch = AcquireScratch::new();
//! let first = WorkerId::from_raw(1);
//! let paused = shards.claim_next_available(now, tenant, run, first, &mut scratch)?.lease;
//! let cursor = CursorUpdate::with_last_key(b"m");
//! shards.checkpoint(now, tenant, &paused, cursor, OpId::from_raw(2))?;
//!
//! // Another worker claims the shard and resumes after the stored key, under a higher fence.
//! let (later, second) = (LogicalTime::from_raw(200), WorkerId::from_raw(2));
//! let claimed = shards.claim_next_available(later, tenant, run, second, &mut scratch)?;
//! assert_eq!(claimed.snapshot.cursor().last_key(), Some(&b"m"[..]));
//! assert!(claimed.lease.fence() > paused.fence());
//!
//! // When the first worker continues, its writes are refused.
//! let cursor = CursorUpdate::with_last_key(b"n");
//! let refused = shards.checkpoint(later, tenant, &paused, cursor, OpId::from_raw(3));
//! assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! This crate never opens a file or a socket, reads a clock, draws a random number or starts a
//! thread ([`block_on`] parks the calling one). It does not depend on `gossip-frontier`: keys are
//! bytes here.
#![forbid(unsafe_code)]
// A new variant must be a compile error where the protocol or the store decides by it.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod block_on;
mod claim_clock;
mod error;
mod events;
mod facade;
mod handoff;
mod in_memory;
mod lease;
pub mod operations;
mod outcome;
mod park_context;
mod pool;
pub mod protocol;
mod record;
mod refusal;
mod request;
mod run;
mod run_errors;
mod run_management;
mod run_name;
mod scratch;
mod session;
mod session_state;
mod shard_limits;
mod short_text;
mod side_records;
mod split_execution;
pub mod store;
mod stored_events;
mod traits;
mod validation;
mod workers;

// The specification names these here, too; they are defined with the data model.
pub use gossip_contracts::coordination::{
    ShardArena, ShardSpecHandle, validate_residual_split_bounds,
};

pub use self::block_on::block_on;
pub use self::claim_clock::ClaimReservation;
pub use self::error::{
    AcceptError, AcquireError, CheckpointError, CompleteError, CoordError, CursorOutOfBoundsDetail,
    InfraError, OfferError, ParkError, ReleaseError, RenewError, SplitError, SplitReplaceError,
    SplitResidualError, StoreRefusal, WithdrawError,
};
pub use self::events::{
    CollectEvents, EventCollector, EventKind, RedactedKey, StateTransitionEvent,
};
pub use self::facade::{
    AsyncCoordinationFacade, AsyncShardClaiming, ClaimError, CoordinationFacade, ShardClaiming,
};
pub use self::handoff::{HandoffId, Offer, OfferNotice};
pub use self::in_memory::{
    CoordinatorRuntimeConfig, DEFAULT_MAX_AUTO_SLAB_CAPACITY, InMemoryCoordinator,
};
pub use self::lease::{
    GrantToken, Lease, LeaseHolder, OP_LOG_CAP, OpKind, OpLog, OpLogEntry, OpResult, OpSequence,
};
pub use self::outcome::{
    CAPACITY_COUNT_MAX, CapacityHint, CheckpointResult, IdempotentOutcome, RenewResult,
};
pub use self::park_context::{PARK_CONTEXT_MAX, ParkContext};
pub use self::pool::RecordPool;
pub use self::record::{Lineage, NewShard, ParkReason, ShardRecord, ShardStatus, ShardView};
pub use self::request::{PendingRequest, ShardAction, SplitKey};
pub use self::run::{
    RUN_OP_LOG_CAP, Registration, RunConfig, RunConfigError, RunHead, RunOpKind, RunOpLogEntry,
    RunOpResult, RunProgress, RunRecord, RunStatus, RunTerminalEvaluation, ShardDamage,
    ShardFilter, ShardPage, ShardSummary, Watermark, evaluate_run_terminal,
};
pub use self::run_errors::{
    CreateRunError, DeleteRunError, GetRunError, RegisterShardsError, RepairShardError,
    RequestActionError, RevokeLeaseError, RunOpIdConflict, RunTransitionError, UnparkError,
};
pub use self::run_management::{AsyncRunManagement, ClaimOutlook, RunManagement};
pub use self::run_name::{RUN_NAME_MAX, RunName, RunNameError};
pub use self::scratch::{AcquireResultView, AcquireScratch, FixedBuf, ShardSnapshotView};
pub use self::session::{SessionError, WorkerSession};
pub use self::session_state::SessionState;
pub use self::shard_limits::{
    DEFAULT_MAX_SHARDS_PER_TENANT, DEFAULT_MAX_TOTAL_SHARDS, ShardLimitViolation, ShardQuota,
};
pub use self::short_text::ShortText;
pub use self::side_records::{
    ExitCause, FAILURE_RECORDS_MAX, FAILURE_STDERR_MAX, FAILURE_TEXT_MAX, FailureKind,
    FailureRecord, HOST_NAME_MAX, RESULT_BLOCK_MAX, ResultBlock, SIDE_RECORD_BYTES_MAX,
    SIDE_RECORDS_MAX, SideRecord, SideRecordId, SideRecordKind, SideRecords, SideRecordsError,
    StoredSideRecord,
};
pub use self::split_execution::{
    DerivedShardKind, SplitReplaceResult, SplitResidualResult, derive_split_shard_id,
};
pub use self::stored_events::{EVENTS_PER_WRITER, EventWriter, StoredEvent};
pub use self::traits::{AsyncCoordinationBackend, CoordinationBackend};
pub use self::validation::{check_op_idempotency, validate_cursor_update_pooled, validate_lease};
pub use self::workers::{
    ProcessId, WORKER_ENTRY_TTL, WorkerEntry, WorkerError, WorkerLabel, WorkerProcess, WorkerState,
};

#[cfg(test)]
mod block_on_tests;
#[cfg(test)]
mod error_matrix_tests;
#[cfg(test)]
mod error_samples_tests;
#[cfg(test)]
mod events_tests;
#[cfg(test)]
mod fence_floor_tests;
#[cfg(test)]
mod lease_tests;
#[cfg(test)]
mod method_list_tests;
#[cfg(test)]
mod op_log_tests;
#[cfg(test)]
mod outcome_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod redaction_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod scratch_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod shard_limits_tests;
#[cfg(test)]
mod split_execution_tests;
#[cfg(test)]
mod test_fixtures;
#[cfg(test)]
mod validation_tests;
#[cfg(test)]
mod workers_tests;
