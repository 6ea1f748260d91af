//! Derived ids that are taken: 63 bits of hash do not collide in any test, so the rule is asked
//! directly with a store that says so.

use gossip_contracts::coordination::{
    ShardSpecRef, SplitValidationError, plan_split_replace_at_points_initial_cursor,
    plan_split_residual_at_point,
};
use gossip_contracts::identity::ShardId;
use rstest::rstest;

use super::{
    Decision, LeaseWatch, OwnerEvidence, ShardChange, ShardInputs, ShardTransition, SplitReplace,
    SplitResidual,
};
use crate::error::SplitError;
use crate::shard_limits::ShardQuota;
use crate::split_execution::{DerivedShardKind, derive_split_shard_id};
use crate::test_fixtures::{RUN, TENANT, acquire, at, key, op, two_shards};
use crate::{InMemoryCoordinator, Lease, RunManagement};

const WHOLE: ShardSpecRef<'static> = ShardSpecRef::new(b"a", b"m", b"");

/// What a split of shard 0 by operation 5 answers if the store has the shards `taken`.
fn decide<T: ShardTransition<Error = SplitError>>(
    coordinator: &mut InMemoryCoordinator,
    operation: &T,
    taken: Option<ShardId>,
) -> Result<(), SplitError> {
    let seen = ShardInputs {
        run: Some(coordinator.get_run(TENANT, RUN).unwrap().head()),
        shard: coordinator.shard(TENANT, key(0)),
        quota: ShardQuota::UNLIMITED,
        owner: OwnerEvidence::Gone,
        watch: LeaseWatch::NONE,
        split_hash_of: &|id| taken.filter(|taken| *taken == id).map(|_| 1),
    };
    match operation.decide(at(20), &seen)? {
        Decision::Commit { change, answer: Ok(_) } => {
            assert!(change.new_shards().count() > 0);
            if let ShardChange::Replace { children, .. } = &change {
                assert!(format!("{children:?}").contains("Children"));
            }
            Ok(())
        }
        Decision::Commit { answer: Err(error), .. } => Err(error),
        Decision::Replay(_) => panic!("nothing was split before"),
    }
}

fn collision(derived_id: ShardId) -> Result<(), SplitError> {
    Err(SplitError::SplitInvalid(SplitValidationError::DerivedIdCollision { derived_id }))
}

fn held() -> (InMemoryCoordinator, Lease) {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    (coordinator, lease)
}

#[rstest]
#[case::first(0)]
#[case::last(2)]
fn a_taken_id_is_never_overwritten_by_a_child(#[case] index: u32) {
    let (mut coordinator, lease) = held();
    let plan = plan_split_replace_at_points_initial_cursor(WHOLE, &[b"d", b"g"]).unwrap();
    let lease = &lease;
    let split = SplitReplace { tenant: TENANT, lease, plan: &plan, children_max: 3, op_id: op(5) };
    let shard = key(0).shard();
    let taken = derive_split_shard_id(RUN, shard, op(5), DerivedShardKind::Child, index);
    assert_eq!(decide(&mut coordinator, &split, None), Ok(()));
    assert_eq!(decide(&mut coordinator, &split, Some(taken)), collision(taken));
}

#[test]
fn a_taken_id_is_never_overwritten_by_a_residual() {
    let (mut coordinator, lease) = held();
    let plan = plan_split_residual_at_point(WHOLE, b"g").unwrap();
    let split = SplitResidual { tenant: TENANT, lease: &lease, plan: &plan, op_id: op(5) };
    let shard = key(0).shard();
    let taken = derive_split_shard_id(RUN, shard, op(5), DerivedShardKind::Residual, 0);
    assert_eq!(decide(&mut coordinator, &split, None), Ok(()));
    assert_eq!(decide(&mut coordinator, &split, Some(taken)), collision(taken));
}

#[test]
fn a_store_that_publishes_fewer_children_at_once_says_so() {
    let (mut coordinator, lease) = held();
    let plan = plan_split_replace_at_points_initial_cursor(WHOLE, &[b"d", b"g"]).unwrap();
    let lease = &lease;
    let split = SplitReplace { tenant: TENANT, lease, plan: &plan, children_max: 2, op_id: op(5) };
    let limit = SplitValidationError::BackendChildLimitExceeded { requested: 3, backend_max: 2 };
    assert_eq!(decide(&mut coordinator, &split, None), Err(SplitError::SplitInvalid(limit)));
}
