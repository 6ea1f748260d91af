//! Fence floors after a restore: an operation of the coordinators that is in no trait.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId};
use gossip_coordination::store::{AsyncStore, AsyncStoreCoordinator, Store, StoreCoordinator};
use gossip_coordination::{GetRunError, InMemoryCoordinator, block_on};

use super::blocking::Blocking;
use super::world::{LEASE, RUN, World, at, fence, key};
use super::{ConformanceTarget, refused, topic};

/// A coordinator whose runs have a fence floor.
pub trait FenceFloors {
    /// Raises the fence floor of a run to `at_least` or beyond, and returns the new floor.
    ///
    /// # Errors
    ///
    /// As `get_run`.
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError>;
}

impl FenceFloors for InMemoryCoordinator {
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        Self::raise_fence_floor(self, now, tenant, run, at_least)
    }
}

impl<S: Store> FenceFloors for StoreCoordinator<S> {
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        Self::raise_fence_floor(self, now, tenant, run, at_least)
    }
}

impl<S: AsyncStore> FenceFloors for Blocking<AsyncStoreCoordinator<S>> {
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        block_on(self.get_mut().raise_fence_floor(now, tenant, run, at_least))
    }
}

topic!("floors":
    the_floor_rises_with_every_call_and_never_falls,
    a_lease_below_the_floor_is_refused_and_the_next_grant_reaches_it,
    the_floor_belongs_to_one_run,
    a_child_of_a_split_is_granted_at_the_floor,
    a_missing_run_has_no_floor,
);

const STEP: u64 = gossip_coordination::protocol::FENCE_FLOOR_STEP;

/// By a step, or to the fence that is asked for.
pub fn the_floor_rises_with_every_call_and_never_falls<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let mut raised = |at_least: u64| {
        let (tenant, backend) = (world.tenant, &mut world.backend);
        let floor = backend.raise_fence_floor(at(10), tenant, RUN, fence(at_least));
        floor.expect("the run exists").as_raw()
    };
    let floors = [0, 9 * STEP, 5 * STEP, 0].map(&mut raised);
    assert_eq!(floors, [STEP, 9 * STEP, 10 * STEP, 11 * STEP]);
}

/// It keeps other workers out until it expires, because its holder may still write results.
pub fn a_lease_below_the_floor_is_refused_and_the_next_grant_reaches_it<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let old = world.acquire(10, key(0), 1);
    let (tenant, backend) = (world.tenant, &mut world.backend);
    backend.raise_fence_floor(at(11), tenant, RUN, fence(0)).expect("the run exists");
    refused!(
        world.checkpoint(12, &old.lease, b"c", 1),
        gossip_coordination::CheckpointError::StaleFence { current, .. } if current == fence(STEP)
    );
    refused!(
        world.try_acquire(12, key(0), 2),
        gossip_coordination::AcquireError::AlreadyLeased { .. }
    );
    let new = world.acquire(10 + LEASE, key(0), 2);
    assert_eq!(new.fence(), STEP);
    world.checkpoint(11 + LEASE, &new.lease, b"c", 2).expect("live");
}

/// Runs are restored together, but a floor is raised for each.
pub fn the_floor_belongs_to_one_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, backend) = (world.tenant, &mut world.backend);
    refused!(
        backend.raise_fence_floor(at(11), tenant, super::world::OTHER_RUN, fence(0)),
        GetRunError::RunNotFound
    );
    world.checkpoint(12, &held.lease, b"c", 1).expect("live");
}

/// A derived shard starts at its parent's fence, which may be the floor itself.
pub fn a_child_of_a_split_is_granted_at_the_floor<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let cut = super::world::residual_at(b"a", b"f", b"m");
    world.shrink(11, &held.lease, &cut, 1).expect("live");
    let (tenant, backend) = (world.tenant, &mut world.backend);
    backend.raise_fence_floor(at(12), tenant, RUN, fence(0)).expect("the run exists");
    // Whichever of the free shards it is: the child of the split or the other root.
    let claimed = world.claim(13, 2).expect("two shards are free");
    assert_eq!(claimed.fence(), STEP);
}

/// As for every operation on a run.
pub fn a_missing_run_has_no_floor<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, super::Settings::default());
    let (tenant, backend) = (world.tenant, &mut world.backend);
    refused!(backend.raise_fence_floor(at(1), tenant, RUN, fence(0)), GetRunError::RunNotFound);
}
