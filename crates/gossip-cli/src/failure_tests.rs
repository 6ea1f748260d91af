//! Which store errors refer to which command.

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
#[case::head(corruption("run head.decode"), Unreadable::Record, Some("gossip run list"))]
#[case::shard(corruption("hot shard.decode"), Unreadable::Record, Some("gossip shard repair"))]
#[case::newer(newer(), Unreadable::Record, Some("gossip run list"))]
#[case::file(corruption("sqlite.read"), Unreadable::Store, None)]
#[case::cluster(corruption("etcd.answer"), Unreadable::Store, None)]
fn only_an_unreadable_record_refers_to_a_command(
    #[case] error: InfraError,
    #[case] unreadable: Unreadable,
    #[case] command: Option<&str>,
) {
    let failure = Failure::store(&error);
    assert_eq!((failure.code, failure.unreadable), (Code::Store, Some(unreadable)));
    assert_eq!(failure.why, Some(error.to_string()), "the store's own message is shown");
    assert_eq!(failure.next.is_some(), command.is_some());
    let refers = |command| failure.next.as_ref().is_some_and(|next| next.contains(command));
    assert!(command.is_none_or(refers), "{:?}", failure.next);
}
