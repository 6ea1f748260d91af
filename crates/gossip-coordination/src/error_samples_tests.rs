//! One sample of every variant of every error and event, with canaries where secrets would be.
//!
//! Each list is held to its enum by a `match` without a wildcard: a new variant does not compile
//! until it has a sample, and with it a place in the tables that are tested against the seeds.
//! Two enums that share a variant share its sample, so that a conversion can be compared whole.

use gossip_contracts::coordination::{
    ManifestValidationError, ShardLimitScope, SplitValidationError,
};
use gossip_contracts::identity::{OpId, Redacted, RunId, ShardId};
use gossip_stdx::SlabFull;

use crate::protocol::NotCollected;
use crate::refusal::OpIdReused;
use crate::test_fixtures::{RUN, TENANT, at, fence, key, worker};
use crate::{
    AcceptError, AcquireError, CheckpointError, ClaimError, CompleteError, CoordError,
    CreateRunError, CursorOutOfBoundsDetail, DeleteRunError, EventKind, GetRunError, HandoffId,
    InfraError, OfferError, OpSequence, ParkError, ParkReason, RedactedKey, RegisterShardsError,
    ReleaseError, RenewError, RequestActionError, RevokeLeaseError, RunConfigError,
    RunOpIdConflict, RunStatus, RunTransitionError, ShardStatus, SplitError, StoreRefusal,
    UnparkError, WithdrawError, WorkerError,
};

/// An owner that no output may show.
pub(crate) const SECRET_OWNER: u64 = 7_717_717_717_717_717_717;
/// A key that no output may show.
pub(crate) const SECRET_KEY: &[u8] = b"SECRET-key";
/// A hash that no output may show.
pub(crate) const SECRET_HASH: u64 = 6_616_616_616_616_616_616;

/// Makes, for each enum, a function that lists its variants' names with a sample of each.
macro_rules! samples {
    ($($list:ident: $enum:ident { $($variant:ident $body:tt,)+ })+) => {$(
        pub(crate) fn $list() -> Vec<(&'static str, $enum)> {
            fn held_to_the_enum(error: &$enum) {
                match error {
                    $($enum::$variant { .. } => {})+
                }
            }
            let samples = vec![$((stringify!($variant), $enum::$variant $body),)+];
            samples.iter().for_each(|(_, sample)| held_to_the_enum(sample));
            samples
        }
    )+};
}

samples! {
    infra_errors: InfraError {
        Transient { operation: "renew.commit", message: "timed out".to_owned() },
        Corruption { operation: "renew.load", message: "bad length".to_owned() },
        Refused {
            operation: "renew.commit",
            why: StoreRefusal::NoSpace,
            message: "the disk is full".to_owned(),
        },
        Unresolved { cause: Box::new(infra()) },
    }
    coord_errors: CoordError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        CursorRegression { old_key: Some(9), new_key: Some(8) },
        CursorOutOfBounds (BOUNDS),
        CursorKeyTooLarge { size: 5_000, max: 4_096 },
        CursorTokenTooLarge { size: 20_000, max: 16_384 },
        SplitInvalid (SPLIT),
        CheckpointMissingKey {},
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    acquire_errors: AcquireError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        AlreadyLeased { current_owner: Redacted::new(worker(SECRET_OWNER)), lease_deadline: at(5) },
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
        RunPaused {},
        LastAttempt {},
    }
    renew_errors: RenewError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
    }
    checkpoint_errors: CheckpointError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        CursorRegression { old_key: Some(9), new_key: Some(8) },
        CursorOutOfBounds (BOUNDS),
        CursorKeyTooLarge { size: 5_000, max: 4_096 },
        CursorTokenTooLarge { size: 20_000, max: 16_384 },
        CheckpointMissingKey {},
        ResourceExhausted (FULL),
        BackendError (infra()),
        Offered { handoff: HANDOFF, deadline: at(5) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    complete_errors: CompleteError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        CursorRegression { old_key: Some(9), new_key: Some(8) },
        CursorOutOfBounds (BOUNDS),
        CursorKeyTooLarge { size: 5_000, max: 4_096 },
        CursorTokenTooLarge { size: 20_000, max: 16_384 },
        CheckpointMissingKey {},
        ResourceExhausted (FULL),
        BackendError (infra()),
        Offered { handoff: HANDOFF, deadline: at(5) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    park_errors: ParkError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        BackendError (infra()),
        Offered { handoff: HANDOFF, deadline: at(5) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    split_errors: SplitError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        SplitInvalid (SPLIT),
        ResourceExhausted (FULL),
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
        Offered { handoff: HANDOFF, deadline: at(5) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    release_errors: ReleaseError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        BackendError (infra()),
        Offered { handoff: HANDOFF, deadline: at(5) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    offer_errors: OfferError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        CursorRegression { old_key: Some(9), new_key: Some(8) },
        CursorOutOfBounds (BOUNDS),
        CursorKeyTooLarge { size: 5_000, max: 4_096 },
        CursorTokenTooLarge { size: 20_000, max: 16_384 },
        ResourceExhausted (FULL),
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
        Offered { handoff: HANDOFF, deadline: at(5) },
        Withdrawn { handoff: HANDOFF },
        InvalidDestination {},
        InvalidOfferDeadline { deadline: at(9), now: at(5), latest: at(8) },
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    accept_errors: AcceptError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
        RunPaused {},
        NoOffer {},
        NotDestination {},
        OfferExpired { deadline: at(5), now: at(6) },
    }
    withdraw_errors: WithdrawError {
        ShardNotFound { shard: key(3) },
        TenantMismatch { expected: TENANT },
        StaleFence { presented: fence(2), current: fence(4) },
        LeaseExpired { deadline: at(5), now: at(6) },
        ShardTerminal { shard: key(3), status: ShardStatus::Done },
        OpIdConflict { op_id: OP, expected_hash: hash(), actual_hash: other_hash() },
        BackendError (infra()),
        NoOffer {},
        OperationTooOld { op_id: OP, presented: sequence(3), executed: sequence(20) },
    }
    create_run_errors: CreateRunError {
        InvalidConfig (RunConfigError::ZeroLeaseDuration),
        RunAlreadyExists { run: RUN },
        RegisterShardsFailed (RegisterShardsError::OpIdConflict(run_conflict())),
        GetRunFailed (GetRunError::TenantMismatch { expected: TENANT }),
        ConfigMismatch { run: RunId::from_raw(2) },
        BackendError (infra()),
    }
    register_errors: RegisterShardsError {
        RunNotFound {},
        TenantMismatch { expected: TENANT },
        WrongStatus { status: RunStatus::Done },
        ManifestInvalid (ManifestValidationError::DuplicateIds { shard_id: ShardId::from_raw(3) }),
        OpIdConflict (run_conflict()),
        ShardLimitExceeded { current: 5, additional: 2, max: 6, scope: ShardLimitScope::PerTenant },
        ResourceExhausted { resource: "byte slab" },
        BackendError (infra()),
    }
    get_run_errors: GetRunError {
        RunNotFound {},
        TenantMismatch { expected: TENANT },
        BackendError (infra()),
    }
    run_transition_errors: RunTransitionError {
        RunNotFound {},
        TenantMismatch { expected: TENANT },
        RunTerminal { status: RunStatus::Cancelled },
        WrongStatus { status: RunStatus::Initializing, target: RunStatus::Done },
        OpIdConflict (run_conflict()),
        BackendError (infra()),
        NotSettled { active: 2, parked: 1 },
    }
    unpark_errors: UnparkError {
        ShardNotFound {},
        TenantMismatch { expected: TENANT },
        RunTerminal { status: RunStatus::Cancelled },
        NotParked { status: ShardStatus::Active },
        OpIdConflict (run_conflict()),
        BackendError (infra()),
    }
    request_action_errors: RequestActionError {
        ShardNotFound {},
        TenantMismatch { expected: TENANT },
        RunTerminal { status: RunStatus::Cancelled },
        ShardTerminal { status: ShardStatus::Done },
        NotLeased {},
        RequestPending {},
        OpIdConflict (run_conflict()),
        BackendError (infra()),
    }
    revoke_lease_errors: RevokeLeaseError {
        ShardNotFound {},
        TenantMismatch { expected: TENANT },
        ShardTerminal { status: ShardStatus::Done },
        NotLeased {},
        OpIdConflict (run_conflict()),
        BackendError (infra()),
        StaleFence { presented: fence(3), current: fence(4) },
    }
    delete_run_errors: DeleteRunError {
        RunNotFound {},
        TenantMismatch { expected: TENANT },
        NotTerminal { status: RunStatus::Active },
        OpIdConflict (run_conflict()),
        BackendError (infra()),
    }
    not_collected: NotCollected {
        NotStale {},
        Stored (infra()),
    }
    claim_errors: ClaimError {
        NoneAvailable { earliest_deadline: Some(at(5)) },
        RunNotFound {},
        TenantMismatch { expected: TENANT },
        Throttled { retry_after: at(5) },
        BackendError (infra()),
        RunTerminal { status: RunStatus::Cancelled },
        RunPaused {},
        OnlyLastAttempts {},
    }
    worker_errors: WorkerError {
        NotRegistered {},
        TooManyWorkers { max: 10 },
        BackendError (infra()),
    }
    event_kinds: EventKind {
        ShardAcquired {
            shard: ID, worker: Redacted::new(worker(SECRET_OWNER)), fence_epoch: fence(2)
        },
        ShardCheckpointed { shard: ID, last_key: RedactedKey::new(Some(SECRET_KEY)) },
        ShardResidualCreated { parent: ID, residual: ID },
        ShardUnparked { shard: ID, new_fence_epoch: fence(3) },
        ShardLeaseRenewed { shard: ID, new_deadline: at(5) },
        ShardCompleted { shard: ID },
        ShardParked { shard: ID, reason: ParkReason::Poisoned },
        ShardSplit { parent: ID, children: vec![ID] },
        RunCreated {},
        RunActivated { shard_count: 2 },
        RunCompleted {},
        RunFailed {},
        RunCancelled {},
        ShardReleased { shard: ID },
        ShardOffered { shard: ID, handoff: HANDOFF },
        ShardOfferWithdrawn { shard: ID, handoff: HANDOFF },
        ShardActionRequested { shard: ID, action: "split" },
        ShardLeaseRevoked { shard: ID, new_fence_epoch: fence(4) },
        RunPaused {},
        RunResumed {},
        RunDeleted {},
    }
    run_config_errors: RunConfigError {
        ZeroLeaseDuration {},
    }
}

const ID: ShardId = ShardId::from_raw(3);
pub(crate) const OP: OpId = OpId::from_raw(42);
const HANDOFF: HandoffId = HandoffId::from_raw(11);
const SPLIT: SplitValidationError = SplitValidationError::NoChildren;
const FULL: SlabFull = SlabFull { requested: 64, available: 32 };
const BOUNDS: CursorOutOfBoundsDetail =
    CursorOutOfBoundsDetail { last_key: 3, spec_start: 1, spec_end: 2 };

fn sequence(raw: u64) -> OpSequence {
    OpSequence::try_from_raw(raw).expect("a small number")
}

const fn hash() -> Redacted<u64> {
    Redacted::new(SECRET_HASH)
}

const fn other_hash() -> Redacted<u64> {
    Redacted::new(SECRET_HASH + 1)
}

fn infra() -> InfraError {
    InfraError::Transient { operation: "renew.commit", message: "timed out".to_owned() }
}

pub(crate) const fn run_conflict() -> RunOpIdConflict {
    RunOpIdConflict::new(OpIdReused {
        op_id: OP,
        expected_hash: SECRET_HASH,
        actual_hash: SECRET_HASH + 1,
    })
}
