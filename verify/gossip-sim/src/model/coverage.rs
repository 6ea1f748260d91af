//! The possible outcomes of each operation, and those that a search reached.
//!
//! Every variant of an operation's error is listed here, as reachable or as unreachable with a
//! reason; `coverage_tests.rs` compares both lists with the enums.

use std::collections::BTreeSet;

use super::vocabulary::Op;

/// Reached and possible outcomes.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Every reachable pair.
    pub expected: Vec<(Op, &'static str)>,
    /// Reachable pairs that were not reached.
    pub missing: Vec<(Op, &'static str)>,
    /// Pairs that were reached but are not in the table.
    pub surprising: Vec<(Op, String)>,
    /// Pairs of the error enums that no search can reach, with the reason.
    pub unreachable: Vec<(Op, &'static str, &'static str)>,
}

/// Compares the reached outcomes with the table.
#[must_use]
pub fn coverage(reached: &BTreeSet<(Op, String)>) -> Coverage {
    let expected: Vec<(Op, &'static str)> = Op::ALL
        .into_iter()
        .flat_map(|op| outcomes(op).split_whitespace().map(move |name| (op, name)))
        .collect();
    let met = |(op, name): &(Op, &str)| {
        reached.iter().any(|(other, text)| other == op && label(text) == *name)
    };
    let missing = expected.iter().copied().filter(|pair| !met(pair)).collect();
    let known = |(op, text): &&(Op, String)| {
        expected.iter().any(|(other, name)| other == op && label(text) == *name)
    };
    let surprising = reached.iter().filter(|pair| !known(pair)).cloned().collect();
    Coverage { expected, missing, surprising, unreachable: unreachable_pairs() }
}

/// Returns the first word of an outcome's name.
fn label(text: &str) -> &str {
    text.split([' ', ',']).next().unwrap_or(text)
}

/// Returns the outcomes of an operation, except those in [`unreachable_pairs`].
pub(super) const fn outcomes(op: Op) -> &'static str {
    match op {
        Op::Acquire => {
            "Executed Parks ShardNotFound ShardTerminal AlreadyLeased RunTerminal RunPaused"
        }
        Op::Renew => {
            "Executed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             RunTerminal"
        }
        Op::Checkpoint | Op::Complete => {
            "Executed Replayed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             OpIdConflict OperationTooOld CursorRegression CursorOutOfBounds CursorKeyTooLarge \
             CursorTokenTooLarge CheckpointMissingKey Offered"
        }
        Op::Park | Op::Release => {
            "Executed Replayed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             OpIdConflict OperationTooOld Offered"
        }
        Op::SplitReplace | Op::SplitResidual => {
            "Executed Replayed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             OpIdConflict OperationTooOld SplitInvalid RunTerminal Offered"
        }
        Op::Offer => {
            "Executed Replayed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             OpIdConflict OperationTooOld CursorRegression CursorOutOfBounds CursorKeyTooLarge \
             CursorTokenTooLarge RunTerminal Offered Withdrawn InvalidDestination \
             InvalidOfferDeadline"
        }
        Op::Accept => {
            "Executed ShardNotFound ShardTerminal RunTerminal RunPaused NoOffer NotDestination \
             OfferExpired"
        }
        Op::Withdraw => {
            "Executed Replayed ShardNotFound TenantMismatch StaleFence LeaseExpired ShardTerminal \
             OpIdConflict OperationTooOld NoOffer"
        }
        Op::Unpark => "Executed Replayed ShardNotFound RunTerminal NotParked OpIdConflict",
        Op::RequestAction => {
            "Executed Replayed ShardNotFound RunTerminal ShardTerminal NotLeased RequestPending \
             OpIdConflict"
        }
        Op::RevokeLease => {
            "Executed Replayed ShardNotFound ShardTerminal NotLeased OpIdConflict StaleFence"
        }
        Op::CreateRun => "Executed RunAlreadyExists",
        Op::RegisterShards => {
            "Executed Replayed RunNotFound WrongStatus ManifestInvalid OpIdConflict \
             ShardLimitExceeded"
        }
        Op::CompleteRun => {
            "Executed Replayed RunNotFound RunTerminal WrongStatus OpIdConflict NotSettled"
        }
        Op::FailRun | Op::PauseRun | Op::ResumeRun => {
            "Executed Replayed RunNotFound RunTerminal WrongStatus OpIdConflict"
        }
        Op::CancelRun => "Executed Replayed RunNotFound RunTerminal OpIdConflict",
        Op::CollectRun => "Executed Replayed NotStale",
        Op::DeleteRun => "Executed Replayed RunNotFound NotTerminal OpIdConflict",
    }
}

const NO_STORE: &str = "the kernel has no store that could fail";
const ENOUGH_ROOM: &str = "the pool has room for every record of the model";
const BY_TENANT: &str = "records are looked up by tenant, and there is no lease to compare";
const NOT_OF_KERNEL: &str = "returned by the coordinator around the kernel";

/// Returns the outcomes that the error enums have and the kernel does not return here.
pub(super) fn unreachable_pairs() -> Vec<(Op, &'static str, &'static str)> {
    let failure = |op| if op == Op::CollectRun { "Stored" } else { "BackendError" };
    let mut pairs: Vec<(Op, &str, &str)> =
        Op::ALL.into_iter().map(|op| (op, failure(op), NO_STORE)).collect();
    let storing = [
        Op::Checkpoint,
        Op::Complete,
        Op::SplitReplace,
        Op::SplitResidual,
        Op::Offer,
        Op::RegisterShards,
    ];
    pairs.extend(storing.map(|op| (op, "ResourceExhausted", ENOUGH_ROOM)));
    let leaseless = [
        Op::Acquire,
        Op::Accept,
        Op::Unpark,
        Op::RequestAction,
        Op::RevokeLease,
        Op::RegisterShards,
        Op::CompleteRun,
        Op::FailRun,
        Op::CancelRun,
        Op::PauseRun,
        Op::ResumeRun,
        Op::DeleteRun,
    ];
    pairs.extend(leaseless.map(|op| (op, "TenantMismatch", BY_TENANT)));
    let combined = ["InvalidConfig", "RegisterShardsFailed", "GetRunFailed", "ConfigMismatch"];
    pairs.extend(combined.map(|name| (Op::CreateRun, name, NOT_OF_KERNEL)));
    pairs.push((Op::Acquire, "LastAttempt", "the claims of the model spare no last attempt"));
    pairs.push((Op::CancelRun, "WrongStatus", "an unfinished run can be cancelled in any status"));
    let ends = [Op::FailRun, Op::CancelRun, Op::PauseRun, Op::ResumeRun];
    pairs.extend(ends.map(|op| (op, "NotSettled", "only completing looks at the shards")));
    pairs
}
