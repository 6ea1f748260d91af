//! What a refused operation means for a shard's owner.
//!
//! The coordinator has one error for each operation; an owner has only four things to do about any
//! of them. Enums of another crate may grow, so each match ends with what to do about a refusal
//! that is not known here: a mistake of ours, which parks the shard.

use gossip_coordination::{
    CheckpointError, CompleteError, InfraError, ParkError, ReleaseError, SplitError, StoreRefusal,
};

/// What an owner does about a refusal.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The shard belongs to somebody else or is over: drop it and go on with others.
    Lost,
    /// The store failed: try again, if that can help.
    Store(InfraError),
    /// What was asked cannot be granted, and nothing is wrong: go on without it.
    Declined,
    /// The operation makes no sense: a mistake of ours, or a token that is not ours.
    Nonsense(String),
}

/// Writes a conversion: the variants that mean a lost shard and those that carry the store's
/// failure are the same everywhere.
macro_rules! refusal {
    ($error:ident: $($more:pat => $meaning:expr),* $(,)?) => {
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                match error {
                    $error::ShardNotFound { .. }
                    | $error::TenantMismatch { .. }
                    | $error::StaleFence { .. }
                    | $error::LeaseExpired { .. }
                    | $error::ShardTerminal { .. }
                    // Whoever offered the shard is moving it; only that can go on.
                    | $error::Offered { .. } => Self::Lost,
                    $error::BackendError(error) => Self::Store(error),
                    $($more => $meaning,)*
                    error => Self::Nonsense(error.to_string()),
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
    // Nothing was changed: the limit of shards is reached, or the cut was a bad one.
    SplitError::SplitInvalid(_) | SplitError::ResourceExhausted(_) => Self::Declined,
);

fn no_room(full: &dyn std::fmt::Display) -> InfraError {
    let (operation, why) = ("checkpoint", StoreRefusal::NoSpace);
    InfraError::Refused { operation, why, message: full.to_string() }
}
