//! Listing and garbage collection of runs: active runs, and runs abandoned before registration.

use gossip_contracts::identity::RunId;
use gossip_coordination::{
    CreateRunError, GetRunError, RegisterShardsError, RunManagement, RunStatus,
};

use super::world::{ROOTS, STRANGER, TENANT, World, at, config, op};
use super::{ConformanceTarget, Settings, refused, topic};

topic!("run_collection":
    all_runs_are_listed_in_order,
    runs_that_are_not_over_are_listed_in_order,
    the_list_of_runs_is_read_page_by_page,
    runs_of_another_tenant_are_not_listed,
    a_run_that_was_given_up_is_collected,
    an_active_or_ended_run_is_not_collected,
    a_collection_has_a_limit,
);

const fn run(number: u64) -> RunId {
    RunId::from_raw(number)
}

fn runs(numbers: &[u64]) -> Vec<RunId> {
    numbers.iter().copied().map(run).collect()
}

/// Creates runs 1 to 6 at 10, 20, ... 60; run 2 is active, 4 cancelled, 5 deleted.
fn six_runs<T: ConformanceTarget>(target: &T) -> World<'_, T> {
    let mut world = World::empty(target, Settings::default());
    for number in [3, 1, 6, 2, 5, 4] {
        let made = world.backend.create_run(at(10 * number), TENANT, run(number), config(None));
        made.expect("new");
    }
    world.backend.register_shards(at(70), TENANT, run(2), &ROOTS, op(1)).expect("a valid manifest");
    for number in [4, 5] {
        world.backend.cancel_run(at(70), TENANT, run(number), op(2)).expect("not over");
    }
    world.backend.delete_run(at(70), TENANT, run(5), op(3)).expect("over");
    world
}

impl<T: ConformanceTarget> World<'_, T> {
    fn active_runs(&mut self, after: Option<u64>, limit: usize) -> Vec<RunId> {
        let (after, mut found) = (after.map(run), Vec::new());
        let listed = self.backend.list_active_runs_into(self.tenant, after, limit, &mut found);
        listed.expect("the store works");
        found
    }

    fn collect(&mut self, now: u64, stale_after: u64, limit: usize) -> Vec<RunId> {
        let (tenant, mut gone) = (self.tenant, Vec::new());
        let backend = &mut self.backend;
        let collected =
            backend.gc_stale_initializing_runs_into(at(now), tenant, stale_after, limit, &mut gone);
        collected.expect("the store works");
        gone
    }
}

/// Initializing and active ones, by their ids.
pub fn runs_that_are_not_over_are_listed_in_order<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    assert_eq!(world.active_runs(None, 100), runs(&[1, 2, 3, 6]));
}

/// The listing includes terminal runs and excludes deleted ones.
pub fn all_runs_are_listed_in_order<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    let mut found = Vec::new();
    world.backend.list_runs_into(TENANT, None, 100, &mut found).expect("the store works");
    assert_eq!(found, runs(&[1, 2, 3, 4, 6]));
    found.clear();
    world.backend.list_runs_into(TENANT, Some(run(2)), 2, &mut found).expect("the store works");
    assert_eq!(found, runs(&[3, 4]));
    found.clear();
    world.backend.list_runs_into(STRANGER, None, 9, &mut found).expect("the store works");
    assert_eq!(found, []);
}

/// A page starts after the last run of the previous page.
pub fn the_list_of_runs_is_read_page_by_page<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    assert_eq!(world.active_runs(None, 2), runs(&[1, 2]));
    assert_eq!(world.active_runs(Some(2), 2), runs(&[3, 6]));
    assert_eq!(world.active_runs(Some(6), 2), []);
    assert_eq!(world.active_runs(Some(4), 9), runs(&[6]), "also after a terminal run");
    assert_eq!(world.active_runs(None, 0), []);
}

/// A tenant's runs are its own.
pub fn runs_of_another_tenant_are_not_listed<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    world.tenant = STRANGER;
    assert_eq!(world.active_runs(None, 9), []);
    assert_eq!(world.collect(900, 0, 9), []);
    assert!(world.backend.get_run(TENANT, run(1)).is_ok());
}

/// A run is collected from the tick at which it is stale. Its id is never used again.
pub fn a_run_that_was_given_up_is_collected<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    assert_eq!(world.collect(109, 100, 9), []);
    assert_eq!(world.collect(110, 100, 9), runs(&[1]), "made at 10");
    assert_eq!(world.collect(110, 100, 9), [], "once");
    refused!(world.backend.get_run(TENANT, run(1)), GetRunError::RunNotFound);
    let again = world.backend.create_run(at(111), TENANT, run(1), config(None));
    refused!(again, CreateRunError::RunAlreadyExists { .. });
    let late = world.backend.register_shards(at(111), TENANT, run(1), &ROOTS, op(1));
    refused!(late, RegisterShardsError::RunNotFound);
    assert_eq!(world.active_runs(None, 9), runs(&[2, 3, 6]));
}

/// Runs with shards are never collected, however old.
pub fn an_active_or_ended_run_is_not_collected<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    assert_eq!(world.collect(9_000, 1, 9), runs(&[1, 3, 6]));
    let status = |world: &mut World<'_, T>, number| {
        world.backend.get_run(TENANT, run(number)).map(|run| run.status())
    };
    assert_eq!(status(&mut world, 2), Ok(RunStatus::Active));
    assert_eq!(status(&mut world, 4), Ok(RunStatus::Cancelled), "it was cancelled, not collected");
}

/// The next call continues.
pub fn a_collection_has_a_limit<T: ConformanceTarget>(target: &T) {
    let mut world = six_runs(target);
    assert_eq!(world.collect(9_000, 1, 2), runs(&[1, 3]));
    assert_eq!(world.collect(9_000, 1, 2), runs(&[6]));
}
