use std::collections::BTreeMap;

use gossip_contracts::coordination::{Cursor, CursorUpdate};
use gossip_contracts::identity::{OpId, ShardKey};
use gossip_coordination::{CoordinationBackend, Lease, WorkerEntry, WorkerState};

use crate::lease_handoff::drain::DRAIN_FROZEN_MAX;
use crate::lease_handoff::{
    DrainEnd, DrainNext, DrainTally, HandoffDestination, HeldShard, WorkerDrain, worker_name,
};
use crate::lease_handoff_tests::{CONFIG, TENANT, World, at, worker};
use crate::{Phase, Repository};

fn holdings(world: &mut World, count: u64) -> Vec<HeldShard> {
    (0..count).map(|shard| HeldShard::working(world.acquire(10, shard, 1), 0)).collect()
}

fn entry(raw: u64, state: WorkerState) -> WorkerEntry {
    WorkerEntry::heard_of(worker(raw), state, at(10))
}

/// Steps the drain while the workers of `taking` accept every offer that they find.
fn drain(
    world: &mut World,
    mut drain: WorkerDrain,
    taking: &[u64],
    from: u64,
) -> (DrainTally, WorkerDrain) {
    let mut now = from;
    for _ in 0..10_000 {
        match drain.step(&mut world.driver(), at(now)) {
            DrainNext::Again => {}
            DrainNext::Freeze(key) => drain.freeze(at(now), key, Cursor::initial()),
            DrainNext::Wait(until) => now = until.as_raw(),
            DrainNext::Done(tally) => return (tally, drain),
        }
        for by in taking {
            for stored in world.records.in_progress(&worker_name(worker(*by))).unwrap() {
                let mut destination = HandoffDestination::new(stored, CONFIG, at(now)).unwrap();
                world.run_destination(&mut destination, now);
            }
        }
    }
    panic!("a drain comes to an end");
}

#[test]
fn drain_distributes_round_robin_with_idle_workers_first() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [
        entry(1, WorkerState::Draining),
        entry(2, WorkerState::Working),
        entry(3, WorkerState::Idle),
        entry(4, WorkerState::Draining),
        entry(5, WorkerState::Working),
    ];
    let plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, mut ended) = drain(&mut world, plan, &[2, 3, 5], 11);
    assert_eq!(tally, DrainTally { moved: 12, released: 0, lost: 0, finished: 0 });
    let mut got: BTreeMap<u64, u32> = BTreeMap::new();
    for (lease, end) in ended.take_ended() {
        assert_eq!(end, DrainEnd::Moved);
        let shard = world.backend.shard(TENANT, lease.key()).unwrap();
        *got.entry(shard.record().lease().unwrap().owner().as_raw()).or_default() += 1;
    }
    assert_eq!(got, BTreeMap::from([(2, 4), (3, 4), (5, 4)]));
}

#[test]
fn unaccepted_shards_are_released_at_the_deadline() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [entry(2, WorkerState::Idle), entry(3, WorkerState::Idle)];
    let plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, _) = drain(&mut world, plan, &[2], 11);
    assert_eq!(tally.lost, 0);
    assert_eq!(tally.moved + tally.released, 12);
    assert!(tally.moved >= 1 && tally.released >= 1, "{tally:?}");
    // Free at once, without waiting for the expiry of the lease.
    world.acquire(61, 11, 4);
}

#[test]
fn without_destinations_every_shard_is_released_at_once() {
    let mut world = World::with_shards(3);
    let all = holdings(&mut world, 3);
    let workers = [entry(1, WorkerState::Working), entry(4, WorkerState::Draining)];
    let plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    let (tally, _) = drain(&mut world, plan, &[], 11);
    assert_eq!(tally, DrainTally { moved: 0, released: 3, lost: 0, finished: 0 });
    world.acquire(12, 0, 2);
}

#[test]
fn drain_lists_the_leases_to_renew() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let workers = [entry(2, WorkerState::Idle)];
    let mut plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    assert_eq!(plan.leases().count(), 12);
    plan.step(&mut world.driver(), at(11));
    assert_eq!(plan.leases().count(), 12);
    let (_, plan) = drain(&mut world, plan, &[2], 12);
    assert_eq!(plan.leases().count(), 0);
}

/// Steps as long as possible at `now`, without a destination.
fn rest(world: &mut World, drain: &mut WorkerDrain, now: u64, frozen: &mut Vec<ShardKey>) {
    loop {
        match drain.step(&mut world.driver(), at(now)) {
            DrainNext::Again => {}
            DrainNext::Freeze(key) => frozen.push(key),
            DrainNext::Wait(_) | DrainNext::Done(_) => return,
        }
    }
}

fn phases(world: &mut World, by: u64) -> Vec<Phase> {
    let found = world.records.in_progress(&worker_name(worker(by))).unwrap();
    found.iter().map(|stored| stored.record.state).collect()
}

#[test]
fn a_shard_is_not_frozen_before_its_turn() {
    let mut world = World::with_shards(12);
    let all = holdings(&mut world, 12);
    let leases: Vec<Lease> = all.iter().map(|one| one.lease.clone()).collect();
    let workers = [entry(2, WorkerState::Idle)];
    let mut plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    let mut asked = Vec::new();
    rest(&mut world, &mut plan, 11, &mut asked);
    // All are prepared, a few are to be frozen, each once, and none is offered.
    assert_eq!(phases(&mut world, 2), vec![Phase::Transfer; 12]);
    assert_eq!(asked.len(), DRAIN_FROZEN_MAX);
    rest(&mut world, &mut plan, 12, &mut asked);
    assert_eq!(asked.len(), DRAIN_FROZEN_MAX);
    for (number, lease) in (100..).zip(&leases) {
        let start = [b'a' + u8::try_from(lease.shard().as_raw()).unwrap()];
        let (cursor, op) = (CursorUpdate::with_last_key(&start), OpId::from_raw(number));
        world.backend.checkpoint(at(12), TENANT, lease, cursor, op).unwrap();
    }
    // One is frozen and accepted; then the next one is to be frozen.
    plan.freeze(at(13), asked[0], Cursor::initial());
    rest(&mut world, &mut plan, 13, &mut asked);
    assert_eq!(asked.len(), DRAIN_FROZEN_MAX);
    for stored in world.records.in_progress(&worker_name(worker(2))).unwrap() {
        let mut destination = HandoffDestination::new(stored, CONFIG, at(13)).unwrap();
        world.run_destination(&mut destination, 13);
    }
    rest(&mut world, &mut plan, 15, &mut asked);
    rest(&mut world, &mut plan, 16, &mut asked);
    assert_eq!(asked.len(), DRAIN_FROZEN_MAX + 1);
    let (lease, end) = plan.take_ended().remove(0);
    assert_eq!((lease.key(), end), (asked[0], DrainEnd::Moved));
}

#[test]
fn a_released_shard_is_checkpointed_at_its_cursor() {
    let mut world = World::with_shards(1);
    let all = holdings(&mut world, 1);
    let mut plan = WorkerDrain::new(worker(1), all, &[], CONFIG, at(60));
    let mut asked = Vec::new();
    rest(&mut world, &mut plan, 11, &mut asked);
    plan.freeze(at(12), asked[0], Cursor::with_last_key(b"ab"));
    rest(&mut world, &mut plan, 12, &mut asked);
    assert_eq!(plan.take_ended()[0].1, DrainEnd::Released);
    let shard = world.backend.shard(TENANT, asked[0]).unwrap();
    assert_eq!(shard.cursor().last_key(), Some(b"ab".as_slice()));
}

#[test]
fn a_keeping_drain_does_not_release_unaccepted_shards() {
    let mut world = World::with_shards(1);
    let (all, workers) = (holdings(&mut world, 1), [entry(2, WorkerState::Idle)]);
    let fence = all[0].lease.fence();
    let mut plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60)).keeping();
    let mut asked = Vec::new();
    rest(&mut world, &mut plan, 11, &mut asked);
    rest(&mut world, &mut plan, 13, &mut asked);
    plan.freeze(at(13), asked[0], Cursor::with_last_key(b"ab"));
    for now in 13..70 {
        rest(&mut world, &mut plan, now, &mut asked);
    }
    assert_eq!(plan.take_ended()[0].1, DrainEnd::Finished);
    let shard = world.backend.shard(TENANT, asked[0]).unwrap();
    let record = shard.record();
    assert!(record.lease().is_some() && record.fence_epoch() == fence, "it is held as before");
}

#[test]
fn a_shard_finished_by_its_owner_is_not_handed_over() {
    let mut world = World::with_shards(2);
    let all = holdings(&mut world, 2);
    let keys: Vec<ShardKey> = all.iter().map(|one| one.lease.key()).collect();
    let workers = [entry(2, WorkerState::Idle)];
    let mut plan = WorkerDrain::new(worker(1), all, &workers, CONFIG, at(60));
    // One before its move begins, one after its freeze was requested.
    plan.finished(keys[0]);
    let mut asked = Vec::new();
    rest(&mut world, &mut plan, 11, &mut asked);
    assert_eq!(asked, [keys[1]]);
    plan.finished(keys[1]);
    rest(&mut world, &mut plan, 12, &mut asked);
    let ends: Vec<DrainEnd> = plan.take_ended().into_iter().map(|(_, end)| end).collect();
    assert_eq!(ends, [DrainEnd::Finished; 2]);
    assert_eq!(phases(&mut world, 1), []);
}

#[test]
fn a_frozen_shard_is_offered_with_its_snapshot() {
    let mut world = World::with_shards(1);
    let lease = world.acquire(10, 0, 1);
    let holding = HeldShard::frozen(lease, 0, Cursor::with_last_key(b"ab"), b"state".to_vec());
    let workers = [entry(2, WorkerState::Idle)];
    let mut plan = WorkerDrain::new(worker(1), vec![holding], &workers, CONFIG, at(60));
    let mut asked = Vec::new();
    rest(&mut world, &mut plan, 11, &mut asked);
    assert_eq!(asked, []);
    let destination = HandoffDestination::new(world.found(2), CONFIG, at(12)).unwrap();
    assert_eq!(destination.snapshot(), b"state");
    let (tally, _) = drain(&mut world, plan, &[2], 12);
    assert_eq!(tally.moved, 1);
}
