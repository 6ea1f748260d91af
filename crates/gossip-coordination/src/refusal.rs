//! Small errors of the kernel, and the table of the variants that operations share.
//!
//! A check returns the smallest error that describes its failure. Each converts into every
//! operation's error that has those variants, and into nothing else. So the kernel cannot produce a
//! variant that its operation does not have (DESIGN Q18).
//!
//! `operation_errors!` declares the errors of operations. A row names the variants of an error;
//! the definition of a shared variant, its message and its conversions are written here once.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, ShardKey, TenantId};

use crate::error::CursorOutOfBoundsDetail;
use crate::handoff::OfferNotice;
use crate::lease::OpSequence;
use crate::record::ShardStatus;
use crate::run::RunStatus;

/// The shard does not exist for this tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardMissing(pub(crate) ShardKey);

/// A lease check failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseRefusal {
    TenantMismatch { expected: TenantId },
    ShardTerminal { shard: ShardKey, status: ShardStatus },
    StaleFence { presented: FenceEpoch, current: FenceEpoch },
    LeaseExpired { deadline: LogicalTime, now: LogicalTime },
}

/// An operation id was reused with other parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpIdReused {
    pub(crate) op_id: OpId,
    pub(crate) expected_hash: u64,
    pub(crate) actual_hash: u64,
}

/// A later operation of the lease was executed, and the log does not hold this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpOvertaken {
    pub(crate) op_id: OpId,
    pub(crate) presented: OpSequence,
    pub(crate) executed: OpSequence,
}

/// A presented cursor is invalid.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CursorRefusal {
    KeyTooLarge { size: usize, max: usize },
    TokenTooLarge { size: usize, max: usize },
    Regression { old_key: Option<usize>, new_key: Option<usize> },
    OutOfBounds(CursorOutOfBoundsDetail),
}

/// A required cursor key is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyMissing;

/// The run is terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOver(pub(crate) RunStatus);

/// The run is paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOnPause;

/// An offer is pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferStands(pub(crate) OfferNotice);

/// Declares errors of operations.
///
/// ```text
/// operation_errors! { shard
///     /// Why a lease could not be renewed.
///     pub enum RenewError: From<CoordError> {
///         ShardNotFound, BackendError,
///         /// A variant that only this error has.
///         #[error("its message")]
///         Own { field: u64 },
///     }
/// }
/// ```
///
/// A name alone is a variant of the table below. The first word selects its definition: errors of a
/// worker's operations on a `shard` name the shard and the parts of a conflict; errors of an
/// `admin` on a shard and of operations on a `run` wrap a conflict whole, so that its hashes stay
/// private.
///
/// `From<CoordError>` adds the seeds' narrowing conversion, for callers of the public checks. The
/// error accepts the variants it has; any other is a caller's bug and panics.
///
/// The types of the variants must be in scope. `#[error(transparent)]` cannot be used: thiserror
/// looks the word up in the scope of the derive, which is not that of the variant.
macro_rules! operation_errors {
    // The table. `$k` holds the state of the row, to which `@push` appends a definition and an arm
    // of the narrowing conversion.
    (@shard ShardNotFound $name:ident $k:tt) => {
        impl From<ShardMissing> for $name {
            fn from(ShardMissing(shard): ShardMissing) -> Self {
                Self::ShardNotFound { shard }
            }
        }
        operation_errors! { @push $k {
            /// The shard does not exist for this tenant.
            #[error("no such shard: {shard:?}")]
            ShardNotFound {
                /// The requested shard.
                shard: ShardKey,
            },
        } { CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard }, } }
    };
    (@admin ShardNotFound $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The shard does not exist for this tenant.
            #[error("no such shard")]
            ShardNotFound,
        } {} }
    };
    (@run RunNotFound $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The run does not exist for this tenant.
            #[error("no such run")]
            RunNotFound,
        } {} }
    };
    (@run TenantMismatch $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The record belongs to another tenant.
            #[error("the run does not belong to the calling tenant")]
            TenantMismatch {
                /// The caller's own tenant; the other one is never revealed.
                expected: TenantId,
            },
        } {} }
    };
    (@$scope:ident TenantMismatch $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The lease or record belongs to another tenant.
            #[error("the shard does not belong to the calling tenant")]
            TenantMismatch {
                /// The caller's own tenant; the other one is never revealed.
                expected: TenantId,
            },
        } { CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected }, } }
    };
    // Only errors of operations under a lease have it, so it also brings the conversion of the
    // lease checks, whose other variants all of these errors have.
    (@shard StaleFence $name:ident $k:tt) => {
        impl From<LeaseRefusal> for $name {
            fn from(refusal: LeaseRefusal) -> Self {
                match refusal {
                    LeaseRefusal::TenantMismatch { expected } => Self::TenantMismatch { expected },
                    LeaseRefusal::ShardTerminal { shard, status } => {
                        Self::ShardTerminal { shard, status }
                    }
                    LeaseRefusal::StaleFence { presented, current } => {
                        Self::StaleFence { presented, current }
                    }
                    LeaseRefusal::LeaseExpired { deadline, now } => {
                        Self::LeaseExpired { deadline, now }
                    }
                }
            }
        }
        operation_errors! { @push $k {
            /// The shard was granted again since: the caller must stop at once.
            #[error("stale fence: presented {presented}, current {current}")]
            StaleFence {
                /// The fence of the lease.
                presented: FenceEpoch,
                /// The fence of the record; equal to `presented` if the lease was released.
                current: FenceEpoch,
            },
        } {
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
        } }
    };
    (@shard LeaseExpired $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The lease expired.
            #[error("the lease ended at {deadline}, it is {now}")]
            LeaseExpired {
                /// The deadline.
                deadline: LogicalTime,
                /// The time of the operation.
                now: LogicalTime,
            },
        } { CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now }, } }
    };
    (@shard ShardTerminal $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The shard is in a terminal status.
            #[error("the shard is already {status:?}")]
            ShardTerminal {
                /// The shard.
                shard: ShardKey,
                /// The status.
                status: ShardStatus,
            },
        } {
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
        } }
    };
    (@admin ShardTerminal $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The shard is in a terminal status.
            #[error("the shard is already {status:?}")]
            ShardTerminal {
                /// The status.
                status: ShardStatus,
            },
        } {} }
    };
    (@shard OpIdConflict $name:ident $k:tt) => {
        impl From<OpIdReused> for $name {
            fn from(reused: OpIdReused) -> Self {
                Self::OpIdConflict {
                    op_id: reused.op_id,
                    expected_hash: Redacted::new(reused.expected_hash),
                    actual_hash: Redacted::new(reused.actual_hash),
                }
            }
        }
        operation_errors! { @push $k {
            /// The operation id was used before with other parameters: a caller's bug.
            #[error("operation {op_id} was already used with other parameters")]
            OpIdConflict {
                /// The reused id.
                op_id: OpId,
                /// Hash of the first use.
                expected_hash: Redacted<u64>,
                /// Hash of this use.
                actual_hash: Redacted<u64>,
            },
        } {
            CoordError::OpIdConflict { op_id, expected_hash, actual_hash } => {
                Self::OpIdConflict { op_id, expected_hash, actual_hash }
            }
        } }
    };
    (@$scope:ident OpIdConflict $name:ident $k:tt) => {
        impl From<OpIdReused> for $name {
            fn from(reused: OpIdReused) -> Self {
                Self::OpIdConflict(RunOpIdConflict::new(reused))
            }
        }
        impl From<RunOpIdConflict> for $name {
            fn from(conflict: RunOpIdConflict) -> Self {
                Self::OpIdConflict(conflict)
            }
        }
        operation_errors! { @push $k {
            /// The operation id was used before with other parameters or by another operation.
            #[error("{0}")]
            OpIdConflict(RunOpIdConflict),
        } {} }
    };
    (@shard OperationTooOld $name:ident $k:tt) => {
        impl From<OpOvertaken> for $name {
            fn from(OpOvertaken { op_id, presented, executed }: OpOvertaken) -> Self {
                Self::OperationTooOld { op_id, presented, executed }
            }
        }
        operation_errors! { @push $k {
            /// Added (DESIGN Q33): a later operation of the lease was executed, and the log does
            /// not hold this one. It was executed before and dropped from the log, or never; this
            /// call executed nothing.
            #[error("operation {op_id} has sequence {presented}, and {executed} was executed")]
            OperationTooOld {
                /// The refused operation.
                op_id: OpId,
                /// The sequence of the lease.
                presented: OpSequence,
                /// The highest sequence executed under the lease.
                executed: OpSequence,
            },
        } {
            CoordError::OperationTooOld { op_id, presented, executed } => {
                Self::OperationTooOld { op_id, presented, executed }
            }
        } }
    };
    // Brings the conversion of the checks of a cursor, whose variants always occur together.
    (@shard CursorRegression $name:ident $k:tt) => {
        impl From<CursorRefusal> for $name {
            fn from(refusal: CursorRefusal) -> Self {
                match refusal {
                    CursorRefusal::KeyTooLarge { size, max } => {
                        Self::CursorKeyTooLarge { size, max }
                    }
                    CursorRefusal::TokenTooLarge { size, max } => {
                        Self::CursorTokenTooLarge { size, max }
                    }
                    CursorRefusal::Regression { old_key, new_key } => {
                        Self::CursorRegression { old_key, new_key }
                    }
                    CursorRefusal::OutOfBounds(detail) => Self::CursorOutOfBounds(detail),
                }
            }
        }
        operation_errors! { @push $k {
            /// The cursor would move backwards.
            #[error(
                "the cursor would move backwards (stored key of {} bytes, presented key of {} bytes)",
                old_key.unwrap_or(0), new_key.unwrap_or(0)
            )]
            CursorRegression {
                /// Length of the stored key.
                old_key: Option<usize>,
                /// Length of the presented key.
                new_key: Option<usize>,
            },
        } {
            CoordError::CursorRegression { old_key, new_key } => {
                Self::CursorRegression { old_key, new_key }
            }
        } }
    };
    (@shard CursorOutOfBounds $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The cursor lies outside the shard.
            #[error("{0}")]
            CursorOutOfBounds(CursorOutOfBoundsDetail),
        } { CoordError::CursorOutOfBounds(detail) => Self::CursorOutOfBounds(detail), } }
    };
    (@shard CursorKeyTooLarge $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The cursor's key is too long.
            #[error("a cursor key of {size} bytes exceeds {max}")]
            CursorKeyTooLarge {
                /// Its length.
                size: usize,
                /// The limit.
                max: usize,
            },
        } {
            CoordError::CursorKeyTooLarge { size, max } => Self::CursorKeyTooLarge { size, max },
        } }
    };
    (@shard CursorTokenTooLarge $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The cursor's token is too long.
            #[error("a cursor token of {size} bytes exceeds {max}")]
            CursorTokenTooLarge {
                /// Its length.
                size: usize,
                /// The limit.
                max: usize,
            },
        } {
            CoordError::CursorTokenTooLarge { size, max } => {
                Self::CursorTokenTooLarge { size, max }
            }
        } }
    };
    (@shard SplitInvalid $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The split is invalid.
            #[error("the split is invalid: {0}")]
            SplitInvalid(#[from] SplitValidationError),
        } { CoordError::SplitInvalid(error) => Self::SplitInvalid(error), } }
    };
    (@shard CheckpointMissingKey $name:ident $k:tt) => {
        impl From<KeyMissing> for $name {
            fn from(KeyMissing: KeyMissing) -> Self {
                Self::CheckpointMissingKey
            }
        }
        operation_errors! { @push $k {
            /// The cursor has no key.
            #[error("the cursor has no key")]
            CheckpointMissingKey,
        } { CoordError::CheckpointMissingKey => Self::CheckpointMissingKey, } }
    };
    (@shard ResourceExhausted $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The byte slab is full; the record is unchanged.
            #[error("no room left for the record: {0}")]
            ResourceExhausted(#[from] SlabFull),
        } {} }
    };
    (@$scope:ident BackendError $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The store failed.
            #[error("the store failed: {0}")]
            BackendError(#[from] InfraError),
        } {} }
    };
    (@$scope:ident RunTerminal $name:ident $k:tt) => {
        impl From<RunOver> for $name {
            fn from(RunOver(status): RunOver) -> Self {
                Self::RunTerminal { status }
            }
        }
        operation_errors! { @push $k {
            /// The run is terminal and accepts no new work.
            #[error("the run is already {status:?}")]
            RunTerminal {
                /// The run's status.
                status: RunStatus,
            },
        } {} }
    };
    (@$scope:ident RunPaused $name:ident $k:tt) => {
        impl From<RunOnPause> for $name {
            fn from(RunOnPause: RunOnPause) -> Self {
                Self::RunPaused
            }
        }
        operation_errors! { @push $k {
            /// The run is paused.
            #[error("the run is paused")]
            RunPaused,
        } {} }
    };
    (@shard Offered $name:ident $k:tt) => {
        impl From<OfferStands> for $name {
            fn from(OfferStands(notice): OfferStands) -> Self {
                Self::Offered { handoff: notice.handoff, deadline: notice.deadline }
            }
        }
        operation_errors! { @push $k {
            /// An offer is pending, so its source is frozen until it withdraws.
            #[error("the shard is offered in {handoff:?} until {deadline}")]
            Offered {
                /// The offered handoff.
                handoff: HandoffId,
                /// The offer's deadline.
                deadline: LogicalTime,
            },
        } {} }
    };
    (@shard NoOffer $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// No offer of that handoff is pending.
            #[error("no such offer is pending")]
            NoOffer,
        } {} }
    };
    (@admin NotLeased $name:ident $k:tt) => {
        operation_errors! { @push $k {
            /// The shard has no lease holder.
            #[error("the shard has no lease holder")]
            NotLeased,
        } {} }
    };

    // The machinery: collect the definitions of a row one by one, then write the enum.
    (@push [
        $scope:ident $name:ident $docs:tt $coord:tt {$($variants:tt)*} {$($arms:tt)*}
        {$($rest:tt)*}
    ] {$($variant:tt)*} {$($arm:tt)*}) => {
        operation_errors! {
            @row $scope $name $docs $coord {$($variants)* $($variant)*} {$($arms)* $($arm)*}
            $($rest)*
        }
    };
    (@row $scope:ident $name:ident $docs:tt $coord:tt $variants:tt $arms:tt
        $variant:ident, $($rest:tt)*) => {
        operation_errors! {
            @$scope $variant $name [$scope $name $docs $coord $variants $arms {$($rest)*}]
        }
    };
    (@row $scope:ident $name:ident $docs:tt $coord:tt {$($variants:tt)*} $arms:tt
        $(#[$meta:meta])+ $own:ident, $($rest:tt)*) => {
        operation_errors! {
            @row $scope $name $docs $coord {$($variants)* $(#[$meta])+ $own,} $arms $($rest)*
        }
    };
    (@row $scope:ident $name:ident $docs:tt $coord:tt {$($variants:tt)*} $arms:tt
        $(#[$meta:meta])+ $own:ident $fields:tt, $($rest:tt)*) => {
        operation_errors! {
            @row $scope $name $docs $coord {$($variants)* $(#[$meta])+ $own $fields,} $arms
            $($rest)*
        }
    };
    (@row $scope:ident $name:ident ($($docs:tt)*) ($($coord:ident)?) {$($variants:tt)*}
        $arms:tt) => {
        $($docs)*
        #[derive(Clone, Debug, PartialEq, Eq, Error)]
        #[non_exhaustive]
        pub enum $name { $($variants)* }
        $(operation_errors! { @narrow $coord $name $arms })?
    };
    (@narrow $coord:ident $name:ident {$($arms:tt)*}) => {
        impl From<$coord> for $name {
            // The last arm lists every variant, so that a new one does not compile until it is
            // listed here and in the rows that accept it.
            #[allow(unreachable_patterns)]
            fn from(error: $coord) -> Self {
                match error {
                    $($arms)*
                    $coord::ShardNotFound { .. }
                    | $coord::TenantMismatch { .. }
                    | $coord::StaleFence { .. }
                    | $coord::LeaseExpired { .. }
                    | $coord::ShardTerminal { .. }
                    | $coord::OpIdConflict { .. }
                    | $coord::CursorRegression { .. }
                    | $coord::CursorOutOfBounds(_)
                    | $coord::CursorKeyTooLarge { .. }
                    | $coord::CursorTokenTooLarge { .. }
                    | $coord::SplitInvalid(_)
                    | $coord::CheckpointMissingKey
                    | $coord::OperationTooOld { .. } => {
                        unreachable!(concat!(stringify!($name), " has no such refusal"))
                    }
                }
            }
        }
    };
    ($scope:ident $(
        $(#[$meta:meta])*
        pub enum $name:ident $(: From<$coord:ident>)? { $($rows:tt)* }
    )+) => {$(
        operation_errors! { @row $scope $name ($(#[$meta])*) ($($coord)?) {} {} $($rows)* }
    )+};
}

pub(crate) use operation_errors;
