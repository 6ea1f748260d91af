use gossip_contracts::coordination::Cursor;
use gossip_coordination::{AcquireScratch, Lease};

use crate::lease_handoff::recovery::ENDED_KEPT_TICKS;
use crate::lease_handoff::{
    HandoffConfig, HandoffSource, Inbound, InboundNext, MoveTerms, NotMovedReason, Recovery,
    RecoveryNext, SourceEnd, SourceNext, collect_ended,
};
use crate::lease_handoff_tests::{CONFIG, World, at, worker};
use crate::{Phase, RecordId, Repository};

/// Steps as long as possible at `now`. Returns the accepted shards and when the next step is due.
fn arrive(world: &mut World, inbound: &mut Inbound, now: u64) -> (Vec<u64>, u64) {
    let (mut scratch, mut live) = (AcquireScratch::new(), Vec::new());
    loop {
        match inbound.step(&mut world.driver(), &mut scratch, at(now)) {
            InboundNext::Again => {}
            InboundNext::Live(arrived) => live.push(arrived.view.lease.shard().as_raw()),
            InboundNext::Wait(until) => return (live, until.as_raw()),
        }
    }
}

/// Returns a move of `shard` from worker 1 to worker 2 that is prepared and not offered.
fn prepared(world: &mut World, shard: u64, config: HandoffConfig) -> (Lease, HandoffSource) {
    let lease = world.acquire(10, shard, 1);
    let terms = MoveTerms::new(&lease, worker(2), 0, at(70));
    let mut source = HandoffSource::prepare(terms, config, at(10)).unwrap();
    while world.driver().step_source(&mut source, Some(&lease), at(11)) == SourceNext::Again {}
    (lease, source)
}

fn offer(world: &mut World, lease: &Lease, source: &mut HandoffSource, now: u64) {
    source.freeze(at(now), Cursor::initial());
    while world.driver().step_source(source, Some(lease), at(now)) == SourceNext::Again {}
}

fn leave_nothing(world: &mut World, by: u64, now: u64) {
    let mut recovery = Recovery::new(worker(by), CONFIG);
    for _ in 0..100 {
        match recovery.step(&mut world.driver(), |_| false, at(now)).unwrap() {
            RecoveryNext::Again => {}
            RecoveryNext::Wait(until) => {
                assert_eq!(until, at(now + CONFIG.finish_ticks));
                return;
            }
        }
    }
    panic!("there is little to do");
}

#[test]
fn an_offered_shard_is_found_accepted_and_acknowledged() {
    let mut world = World::with_shards(2);
    let mut inbound = Inbound::new(worker(2), CONFIG);
    assert_eq!(arrive(&mut world, &mut inbound, 9), (vec![], 9 + CONFIG.find_ticks));
    let (lease, mut source) = prepared(&mut world, 0, CONFIG);
    // It is in flight before the offer, and the accept is retried every tick.
    assert_eq!(arrive(&mut world, &mut inbound, 12), (vec![], 13));
    offer(&mut world, &lease, &mut source, 12);
    let (live, until) = arrive(&mut world, &mut inbound, 13);
    assert_eq!((live, until), (vec![0], 13 + CONFIG.find_ticks));
    assert_eq!(world.found(1).record.state, Phase::Ack);
    assert!(inbound.is_idle());
    // An acknowledged move is not accepted again.
    assert_eq!(arrive(&mut world, &mut inbound, 14), (vec![], 14 + CONFIG.find_ticks));
}

#[test]
fn a_prepared_source_is_not_frozen_before_the_lead_time() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = prepared(&mut world, 0, HandoffConfig { lead_ticks: 5, ..CONFIG });
    let next = world.driver().step_source(&mut source, Some(&lease), at(15));
    assert_eq!(next, SourceNext::Wait(at(16)));
    let next = world.driver().step_source(&mut source, Some(&lease), at(16));
    assert_eq!(next, SourceNext::Freeze);
    // A caller that freezes before the lead time is offered at once.
    let (lease, mut early) = (lease, source.clone());
    early.freeze(at(12), Cursor::initial());
    let next = world.driver().step_source(&mut early, Some(&lease), at(12));
    assert_eq!(next, SourceNext::Again);
    assert_eq!(world.driver().step_source(&mut early, Some(&lease), at(12)), SourceNext::Again);
}

#[test]
fn a_source_cancelled_before_the_freeze_is_never_frozen() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = prepared(&mut world, 0, CONFIG);
    source.cancel();
    while world.driver().step_source(&mut source, Some(&lease), at(12)) == SourceNext::Again {}
    assert_eq!(source.end(), Some(SourceEnd::Kept(NotMovedReason::NotRecorded)));
    let (_, mut late) = {
        let mut world = World::with_shards(1);
        prepared(&mut world, 0, CONFIG)
    };
    late.tick(at(69));
    assert_eq!(late.end(), None);
    late.tick(at(70));
    assert_eq!(late.end(), Some(SourceEnd::Kept(NotMovedReason::NotRecorded)));
}

#[test]
fn a_closed_inbound_accepts_nothing_and_acknowledges_the_rest() {
    let mut world = World::with_shards(2);
    let mut inbound = Inbound::new(worker(2), CONFIG);
    let (lease, mut source) = prepared(&mut world, 0, CONFIG);
    offer(&mut world, &lease, &mut source, 12);
    let mut scratch = AcquireScratch::new();
    // Accepted and not acknowledged.
    let live = inbound.step(&mut world.driver(), &mut scratch, at(12));
    assert!(matches!(live, InboundNext::Live(_)));
    let (lease, mut source) = prepared(&mut world, 1, CONFIG);
    offer(&mut world, &lease, &mut source, 13);
    inbound.close();
    assert_eq!(arrive(&mut world, &mut inbound, 20).0, []);
    assert!(inbound.is_idle());
    let phases: Vec<Phase> = world
        .records
        .in_progress("0000000000000002")
        .unwrap()
        .iter()
        .map(|stored| stored.record.state)
        .collect();
    assert!(phases.contains(&Phase::Ack) && phases.contains(&Phase::Transfer), "{phases:?}");
}

#[test]
fn a_worker_without_capacity_searches_as_soon_as_it_has_some() {
    let mut world = World::with_shards(1);
    let mut inbound = Inbound::new(worker(2), CONFIG);
    let (lease, mut source) = prepared(&mut world, 0, CONFIG);
    offer(&mut world, &lease, &mut source, 12);
    inbound.set_capacity(false);
    assert_eq!(arrive(&mut world, &mut inbound, 13), (vec![], 13 + CONFIG.finish_ticks));
    assert!(inbound.is_idle(), "the offer was not read");
    inbound.set_capacity(true);
    assert_eq!(arrive(&mut world, &mut inbound, 14).0, [0]);
}

#[test]
fn a_missed_move_is_read_again_after_the_finish_timeout() {
    let mut world = World::with_shards(1);
    let mut inbound = Inbound::new(worker(2), CONFIG);
    let (_, source) = prepared(&mut world, 0, CONFIG);
    // Its source has died, and its offer has ended.
    assert_eq!(arrive(&mut world, &mut inbound, 80).0, []);
    assert!(inbound.is_idle());
    // A takeover raises the fence, so the record ends at the next read.
    world.acquire(112, 0, 3);
    arrive(&mut world, &mut inbound, 113);
    assert_eq!(world.found(2).record.state, Phase::Transfer);
    arrive(&mut world, &mut inbound, 80 + CONFIG.finish_ticks);
    assert_eq!(world.records.get(&source.terms().id).unwrap().record.state, Phase::RolledBack);
}

#[test]
fn recovery_ends_moves_according_to_the_fence() {
    let mut world = World::with_shards(2);
    // The process has died. The first may have been offered as far as its record shows: both stay.
    prepared(&mut world, 0, CONFIG);
    let (lease, mut source) = prepared(&mut world, 1, CONFIG);
    offer(&mut world, &lease, &mut source, 12);
    leave_nothing(&mut world, 1, 20);
    let left = world.records.in_progress("0000000000000001").unwrap();
    assert!(left.iter().all(|stored| stored.record.state == Phase::Transfer) && left.len() == 2);
    // Their leases expire, and other workers acquire them.
    world.acquire(400, 0, 3);
    leave_nothing(&mut world, 1, 401);
    assert_eq!(world.found(1).record.id, source.terms().id);
    world.acquire(402, 1, 1);
    leave_nothing(&mut world, 1, 403);
    assert_eq!(world.records.in_progress("0000000000000001"), Ok(vec![]));
}

#[test]
fn recovery_skips_live_moves() {
    let mut world = World::with_shards(1);
    let (_, source) = prepared(&mut world, 0, CONFIG);
    let id = source.terms().id.clone();
    let mut recovery = Recovery::new(worker(1), CONFIG);
    for _ in 0..10 {
        recovery.step(&mut world.driver(), |one: &RecordId| *one == id, at(20)).unwrap();
    }
    assert_eq!(world.found(1).record.state, Phase::Transfer);
}

#[test]
fn ended_records_are_deleted_after_the_retention_time() {
    let mut world = World::with_shards(2);
    let (lease, mut source) = prepared(&mut world, 0, CONFIG);
    source.cancel();
    while world.driver().step_source(&mut source, Some(&lease), at(12)) == SourceNext::Again {}
    let (_, live) = prepared(&mut world, 1, CONFIG);
    for (now, forgotten) in [(12 + ENDED_KEPT_TICKS - 1, 0), (12 + ENDED_KEPT_TICKS, 1)] {
        let collected = collect_ended(&mut world.records, None, at(now)).unwrap();
        assert_eq!((collected.forgotten, collected.next), (forgotten, None));
    }
    assert!(world.records.get(&source.terms().id).is_err());
    assert!(world.records.get(&live.terms().id).is_ok());
}
