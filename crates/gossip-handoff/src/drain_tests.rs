use std::collections::BTreeMap;

use gossip_contracts::coordination::Cursor;
use gossip_coordination::{Lease, WorkerEntry, WorkerState};

use crate::Repository;
use crate::join::{
    DRAIN_WINDOW, Destination, Drain, DrainEnd, DrainNext, DrainTally, Holding, worker_name,
};
use crate::join_tests::{CONFIG, World, at, worker};

fn holdings(world: &mut World, count: u64) -> Vec<Holding> {
    let hold = |lease: Lease| {
        let (cursor, snapshot) = (Cursor::initial(), Vec::new());
        Holding { lease, cursor, snapshot, attempts: 0 }
    };
    (0..count).map(|shard| hold(world.acquire(10, shard, 1))).collect()
}

fn entry(raw: u64, state: WorkerState) -> WorkerEntry {
    WorkerEntry::heard_of(worker(raw), state, at(10))
}

/// Steps the drain, and lets the workers of `taking` accept whatever they find.
fn drain(world: &mut World, mut drain: Drain, taking: &[u64], from: u64) -> (DrainTally, Drain) {
    let mut now = from;
    for _ in 0..10_000 {
        match drain.step(&mut world.mover(), at(now)) {
            DrainNext::Again => {}
            DrainNext::Wait(until) => now = until.as_raw(),
            DrainNext::Done(tally) => return (tally, drain),
        }
        for by in taking {
            for stored in world.records.in_progress(&worker_name(worker(*by))).unwrap() {
                let mut destination = Destination::new(stored, CONFIG, at(now)).unwrap();
                world.run_destination(&mut destination, now);
            }
        }
    }
    panic!("a drain comes to an end");
}

#[test]
fn shards_are_spread_over_the_willing_and_the_idle_come_first() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [
        entry(1, WorkerState::Draining),
        entry(2, WorkerState::Working),
        entry(3, WorkerState::Idle),
        entry(4, WorkerState::Draining),
        entry(5, WorkerState::Working),
    ];
    let plan = Drain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, mut ended) = drain(&mut world, plan, &[2, 3, 5], 11);
    assert_eq!(tally, DrainTally { moved: 12, released: 0, lost: 0 });
    let mut got: BTreeMap<u64, u32> = BTreeMap::new();
    for (lease, end) in ended.take_ended() {
        assert_eq!(end, DrainEnd::Moved);
        let shard = world.backend.shard(crate::join_tests::TENANT, lease.key()).unwrap();
        *got.entry(shard.record().lease().unwrap().owner().as_raw()).or_default() += 1;
    }
    assert_eq!(got, BTreeMap::from([(2, 4), (3, 4), (5, 4)]));
}

#[test]
fn what_nobody_takes_is_released_when_the_time_is_over() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [entry(2, WorkerState::Idle), entry(3, WorkerState::Idle)];
    let plan = Drain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, _) = drain(&mut world, plan, &[2], 11);
    assert_eq!(tally.lost, 0);
    assert_eq!(tally.moved + tally.released, 12);
    assert!(tally.moved >= DRAIN_WINDOW as u64 / 2 && tally.released >= 1, "{tally:?}");
    // Free at once: nobody waits for a lease.
    world.acquire(61, 11, 4);
}

#[test]
fn without_anybody_willing_everything_is_released_at_once() {
    let mut world = World::with_shards(3);
    let all = holdings(&mut world, 3);
    let workers = [entry(1, WorkerState::Working), entry(4, WorkerState::Draining)];
    let plan = Drain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, _) = drain(&mut world, plan, &[], 11);
    assert_eq!(tally, DrainTally { moved: 0, released: 3, lost: 0 });
    world.acquire(12, 0, 2);
}

#[test]
fn the_leases_that_are_left_are_told_for_renewal() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [entry(2, WorkerState::Idle)];
    let mut plan = Drain::new(worker(1), all, &workers, CONFIG, at(60));
    assert_eq!(plan.leases().count(), 12);
    plan.step(&mut world.mover(), at(11));
    assert_eq!(plan.leases().count(), 12);
    let (_, plan) = drain(&mut world, plan, &[2], 12);
    assert_eq!(plan.leases().count(), 0);
}
