//! When the renewer renews again.

use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::RunManagement as _;
use rstest::rstest;

use super::orphans_tests::config;
use super::{Drain, Parts, Renewer, ShardRunner, WorkerShared};
use crate::clock::Clock;
use crate::processor::{Inline, ItemResult, Work};
use crate::test_support::{Coordinator, RUN, TENANT, World, at, numbered};

const LEASE: u64 = 15_000;
const BEGUN: u64 = 1_000;

/// A clock that reads this time after a round.
struct Later(LogicalTime);

impl Clock for Later {
    fn now(&self) -> LogicalTime {
        self.0
    }
}

/// Runs `test` with the state of a worker whose clock reads `now`.
fn with_worker(world: &World, now: LogicalTime, test: impl FnOnce(&WorkerShared<'_, Coordinator>)) {
    let (clock, drain) = (Later(now), Drain::new());
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(9),
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: None,
        clock: &clock,
        host: &(),
        drain: &drain,
        observer: &(),
    };
    test(&WorkerShared::new(&config(WorkerId::from_raw(8), LEASE), parts));
}

/// The story: a leader was cut off, a renewal was answered after 7 s, and the next one was sent 5 s
/// after that, 12 s after the first. It was lost with the next leader, and so was the lease.
#[rstest]
#[case::answered_at_once(0, 5_000)]
#[case::answered_late(4_000, 1_000)]
#[case::answered_after_the_next_was_due(7_000, 10)]
fn next_renewal_is_due_a_period_after_the_request(#[case] took: u64, #[case] due_after: u64) {
    let world = World::lasting(LEASE, &[(b"a", b"z")]);
    with_worker(&world, at(BEGUN + took), |shared| {
        assert_eq!(Renewer::new(shared).round(at(BEGUN)), due_after);
    });
}

/// Each report of a state costs requests, and an idle worker is offered shards.
#[test]
fn a_worker_is_idle_when_it_finds_nothing_to_claim_and_not_between_two_shards() {
    let world = World::lasting(LEASE, &[(b"a", b"k004"), (b"k004", b"z")]);
    with_worker(&world, at(BEGUN), |shared| {
        let (mut renewer, mut runner) = (Renewer::new(shared), ShardRunner::new(shared, 0));
        let long = Duration::from_secs(60);
        renewer.round(at(BEGUN));
        assert!(!renewer.has_news(long), "a new entry of the registry is idle");
        // The first step claims a shard.
        runner.step(at(BEGUN));
        assert!(renewer.has_news(long));
        renewer.round(at(BEGUN));
        let done = || world.handle().get_run_progress(at(BEGUN), TENANT, RUN).unwrap().done;
        while done() < 2 {
            assert!(!renewer.has_news(long), "{} of 2 shards are done", done());
            runner.step(at(BEGUN));
        }
        assert!(!shared.has_ended(), "the next claim ends the worker");
        while !shared.has_ended() {
            runner.step(at(BEGUN));
        }
        assert!(!renewer.has_news(long), "the process is about to exit");
    });
}
