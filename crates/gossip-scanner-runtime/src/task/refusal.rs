//! Maps refused operations to what a lease holder does about them.
//!
//! The coordinator has one error type per operation, but a lease holder has only six reactions.
//! Enums of other crates may grow, so each match ends with the reaction to an unknown refusal: it
//! is treated as a bug of the runtime, which parks the shard.

use gossip_coordination::{
    CheckpointError, CompleteError, InfraError, ParkError, ReleaseError, SplitError, StoreRefusal,
};

/// The reaction to a refusal.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The lease is lost or the shard has ended: drop it and claim another.
    Lost,
    /// The record of the shard is damaged: drop it and claim another.
    Damaged,
    /// The store failed: retry, if that can help.
    Store(InfraError),
    /// The record of the shard is damaged, or that of a new shard with the same id as a wanted one:
    /// continue without the split, or drop the shard if it cannot go without.
    SplitDamaged,
    /// The request cannot be granted, which is no error: continue without it.
    Declined,
    /// The operation is invalid: a bug of the runtime, or a foreign token.
    Invalid(String),
}

/// Implements a conversion. The variants for a lost lease and for a failure of the store are the
/// same for every operation.
macro_rules! refusal {
    ($error:ident: $($more:pat $(if $when:expr)? => $meaning:expr),* $(,)?) => {
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                match error {
                    $error::ShardNotFound { .. }
                    | $error::TenantMismatch { .. }
                    | $error::StaleFence { .. }
                    | $error::LeaseExpired { .. }
                    | $error::ShardTerminal { .. }
                    // A later operation of this lease was executed: it is in use elsewhere.
                    | $error::OperationTooOld { .. }
                    // The shard is offered to another worker; only that handoff may change it.
                    | $error::Offered { .. } => Self::Lost,
                    $($more $(if $when)? => $meaning,)*
                    $error::BackendError(error) if error.is_of_shard() => Self::Damaged,
                    $error::BackendError(error) => Self::Store(error),
                    error => Self::Invalid(error.to_string()),
                }
            }
        }
    };
}

refusal!(CheckpointError: CheckpointError::ResourceExhausted(full) => Self::Store(no_room(&full)));
refusal!(CompleteError: CompleteError::ResourceExhausted(full) => Self::Store(no_room(&full)));
refusal!(ParkError:);
refusal!(ReleaseError:);
refusal!(SplitError:
    SplitError::RunTerminal { .. } => Self::Declined,
    // The damaged record may be that of a shard with a wanted id. If it is the shard's own, the
    // next checkpoint shows it.
    SplitError::BackendError(error) if error.is_of_shard() && !error.is_unresolved() => {
        Self::SplitDamaged
    },
    // Nothing was changed: the limit of shards is reached, or the split point is not admissible.
    SplitError::SplitInvalid(_) | SplitError::ResourceExhausted(_) => Self::Declined,
);

/// A slab in memory never grows, so there is nothing to wait for.
fn no_room(full: &dyn std::fmt::Display) -> InfraError {
    let (operation, why) = ("checkpoint", StoreRefusal::TooLarge);
    InfraError::Refused { operation, why, message: full.to_string() }
}
