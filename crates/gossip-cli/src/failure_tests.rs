//! Which store errors refer to the list of runs.

use gossip::coordination::{InfraError, StoreRefusal};
use rstest::rstest;

use super::{Code, Failure, Unreadable};

fn corruption(operation: &'static str) -> InfraError {
    InfraError::Corruption { operation, message: "restore a backup".to_owned() }
}

fn newer() -> InfraError {
    let (operation, why) = ("run head.decode", StoreRefusal::NewerFormat);
    InfraError::Refused { operation, why, message: "upgrade".to_owned() }
}

/// Deleting runs does not repair a file or a cluster.
#[rstest]
#[case::head(corruption("run head.decode"), Some(Unreadable::Record))]
#[case::shard(corruption("hot shard.decode"), Some(Unreadable::Record))]
#[case::newer(newer(), Some(Unreadable::Record))]
#[case::file(corruption("sqlite.read"), Some(Unreadable::Store))]
#[case::cluster(corruption("etcd.answer"), Some(Unreadable::Store))]
fn only_an_unreadable_record_refers_to_the_list_of_runs(
    #[case] error: InfraError,
    #[case] unreadable: Option<Unreadable>,
) {
    let failure = Failure::store(&error);
    assert_eq!((failure.code, failure.unreadable), (Code::Store, unreadable));
    assert_eq!(failure.why, Some(error.to_string()), "the store's own message is shown");
    let refers = failure.next.is_some_and(|next| next.contains("gossip run list"));
    assert_eq!(refers, unreadable == Some(Unreadable::Record));
}
