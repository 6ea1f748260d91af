//! After which ends of a worker its owner keys are removed from the store.

use std::time::Duration;

use gossip_coordination::InfraError;
use gossip_scanner_runtime::{Broken, Finish, RunWorkerError};
use rstest::rstest;

use super::may_retire;

fn away() -> InfraError {
    InfraError::Transient { operation: "renew.commit", message: String::new() }
}

#[rstest]
#[case::complete(Ok(Finish::Complete), true)]
#[case::drained(Ok(Finish::Drained), true)]
#[case::broken(Err(RunWorkerError::Broken(Broken::Failed("no such program".into()))), true)]
#[case::parked(Err(RunWorkerError::TooManyParked { parked: 2, max: 1 }), true)]
#[case::store(Err(RunWorkerError::Store(away())), false)]
#[case::patience(
    Err(RunWorkerError::StoreUnusable { error: away(), waited: Duration::from_secs(1) }),
    false
)]
#[case::drained_unsaved(Ok(Finish::DrainedUnsaved), false)]
fn only_a_failed_store_is_not_retired(
    #[case] finish: Result<Finish, RunWorkerError>,
    #[case] retires: bool,
) {
    assert_eq!(may_retire(&finish), retires);
}
