//! Single moves on the in-memory coordinator, step by step. `verify/gossip-sim-handoff` has the
//! exhaustive search.

use gossip_contracts::coordination::{
    Cursor, CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, InfraError,
    Lease, RunConfig, RunManagement,
};
use rstest::rstest;

use crate::lease_handoff::{
    DestinationEnd, DestinationNext, DestinationReply, DestinationRequest, Driver, HandoffConfig,
    HandoffDestination, HandoffSource, MoveOutcome, MoveTerms, NotMovedReason, SourceEnd,
    SourceNext, SourceReply, worker_name,
};
use crate::{MemoryRepository, Phase, Repository, RepositoryError, Stored};

pub(crate) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
pub(crate) const RUN: RunId = RunId::from_raw(1);
/// The lease duration, in ticks.
const LEASE: u64 = 100;

pub(crate) const CONFIG: HandoffConfig = HandoffConfig {
    prepare_ticks: 50,
    offer_ticks: 60,
    finish_ticks: 100,
    lead_ticks: 0,
    find_ticks: 1,
    poll_ticks: 1,
    accepts_per_read: 1,
    retry_ticks: 1,
};

pub(crate) fn at(tick: u64) -> LogicalTime {
    LogicalTime::from_raw(tick)
}

pub(crate) fn worker(raw: u64) -> WorkerId {
    WorkerId::from_raw(raw)
}

pub(crate) struct World {
    pub(crate) backend: InMemoryCoordinator,
    pub(crate) records: MemoryRepository,
}

impl World {
    /// Returns a run whose shards have one letter each.
    pub(crate) fn with_shards(count: u64) -> Self {
        let mut backend = InMemoryCoordinator::new(CoordinatorRuntimeConfig::default());
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(3)).unwrap();
        let edge = |number: u64| [b'a' + u8::try_from(number).unwrap()];
        let edges: Vec<[u8; 1]> = (0..=count).map(edge).collect();
        let shards: Vec<InitialShardInput<'_>> = (0..count)
            .zip(edges.windows(2))
            .map(|(id, ends)| InitialShardInput {
                shard_id: ShardId::from_raw(id),
                spec: ShardSpecRef::new(&ends[0], &ends[1], b""),
                cursor: CursorUpdate::initial(),
            })
            .collect();
        let op = OpId::from_raw(1);
        backend.create_run_with_shards(at(1), TENANT, RUN, config, &shards, op).unwrap();
        Self { backend, records: MemoryRepository::new() }
    }

    pub(crate) fn acquire(&mut self, now: u64, shard: u64, by: u64) -> Lease {
        let (key, mut scratch) = (key(shard), AcquireScratch::new());
        let (backend, by) = (&mut self.backend, worker(by));
        backend.acquire_and_restore_into(at(now), TENANT, key, by, &mut scratch).unwrap().lease
    }

    pub(crate) fn driver(&mut self) -> Driver<'_, InMemoryCoordinator, MemoryRepository> {
        Driver { tenant: TENANT, backend: &mut self.backend, records: &mut self.records }
    }

    /// Steps until the source waits or is done.
    fn run_source(
        &mut self,
        source: &mut HandoffSource,
        lease: Option<&Lease>,
        now: u64,
    ) -> SourceNext {
        loop {
            match self.driver().step_source(source, lease, at(now)) {
                SourceNext::Again => {}
                next => return next,
            }
        }
    }

    /// Steps until the destination waits or is done. Returns the granted fence.
    pub(crate) fn run_destination(
        &mut self,
        destination: &mut HandoffDestination,
        now: u64,
    ) -> (Option<u64>, Option<DestinationEnd>) {
        let (mut scratch, mut fence) = (AcquireScratch::new(), None);
        loop {
            match self.driver().step_destination(destination, &mut scratch, at(now)) {
                DestinationNext::Again => {}
                DestinationNext::Live(view) => fence = Some(view.lease.fence().as_raw()),
                DestinationNext::Wait(_) => return (fence, None),
                DestinationNext::Done(end) => return (fence, Some(end)),
            }
        }
    }

    pub(crate) fn found(&mut self, by: u64) -> Stored {
        self.records.in_progress(&worker_name(worker(by))).unwrap().remove(0)
    }

    fn phase(&mut self, terms: &MoveTerms) -> Option<Phase> {
        self.records.get(&terms.id).ok().map(|stored| stored.record.state)
    }
}

fn key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

/// A move of shard 0 from worker 1 to worker 2 that begins at 10, offered until 70.
fn begun(world: &mut World) -> (Lease, HandoffSource) {
    let lease = world.acquire(10, 0, 1);
    let terms = MoveTerms::new(&lease, worker(2), 0, at(70));
    let cursor = Cursor::with_last_key(b"ab");
    let source = HandoffSource::new(terms, cursor, b"state".to_vec(), CONFIG, at(10)).unwrap();
    (lease, source)
}

#[test]
fn a_completed_move_leaves_no_record() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    assert_eq!(world.run_source(&mut source, Some(&lease), 11), SourceNext::Wait(at(12)));
    assert_eq!(world.phase(source.terms()), Some(Phase::Transfer));

    let stored = world.found(2);
    assert_eq!(stored.record.snapshot, b"state");
    let mut destination = HandoffDestination::new(stored, CONFIG, at(12)).unwrap();
    assert_eq!(destination.snapshot(), b"state");
    let (fence, end) = world.run_destination(&mut destination, 12);
    assert_eq!((fence, end), (Some(lease.fence().as_raw() + 1), Some(DestinationEnd::Live)));
    assert_eq!(world.phase(source.terms()), Some(Phase::Ack));

    let done = world.run_source(&mut source, Some(&lease), 13);
    assert_eq!(done, SourceNext::Done(SourceEnd::Moved));
    assert_eq!(world.phase(source.terms()), None, "complete, and forgotten");
    let shard = world.backend.shard(TENANT, lease.key()).unwrap();
    assert_eq!(shard.cursor().last_key(), Some(b"ab".as_slice()), "where the source stopped");
}

#[test]
fn the_record_is_in_transfer_before_the_shard_is_offered() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    let mut phases = Vec::new();
    while world.backend.shard(TENANT, lease.key()).unwrap().record().offer().is_none() {
        world.driver().step_source(&mut source, Some(&lease), at(11));
        phases.extend(world.phase(source.terms()));
    }
    let one_by_one = [Phase::Lock, Phase::Serialize, Phase::Transfer, Phase::Transfer];
    assert_eq!(phases, one_by_one);
}

#[test]
fn an_unaccepted_offer_is_withdrawn_before_the_source_resumes() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    assert_eq!(source.end(), None);
    let done = world.run_source(&mut source, Some(&lease), 70);
    assert_eq!(done, SourceNext::Done(SourceEnd::Kept(NotMovedReason::Withdrawn)));
    assert!(world.backend.shard(TENANT, lease.key()).unwrap().record().offer().is_none());
    assert_eq!(world.phase(source.terms()), Some(Phase::RolledBack));
}

/// The withdrawal commits, its reply is lost, and an administrator revokes the lease before the
/// retry: the operation log answers the retry, which does not show who owns the shard.
#[test]
fn a_replayed_withdrawal_does_not_resume_the_source_without_the_fence() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    source.cancel();
    source.tick(at(12));
    let (handoff, op) = (source.terms().handoff(), source.terms().withdraw_op());
    world.backend.withdraw(at(12), TENANT, &lease, handoff, op).unwrap();
    let lost = InfraError::Transient { operation: "commit", message: "no reply".to_owned() };
    source.on_reply(at(12), SourceReply::Withdrawn(Err(lost.into())));
    world.backend.revoke_lease(at(13), TENANT, lease.key(), None, OpId::from_raw(9)).unwrap();

    let done = world.run_source(&mut source, Some(&lease), 14);
    assert_eq!(done, SourceNext::Done(SourceEnd::Lost(NotMovedReason::Superseded)));
}

/// A failed read does not show whether the offer is open.
#[test]
fn a_destination_retries_a_failed_read() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.driver().step_source(&mut source, Some(&lease), at(11));
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(11)).unwrap();
    assert_eq!(
        destination.next_request(at(11)),
        DestinationRequest::Get,
        "the record is not in Transfer yet"
    );
    let failed = InfraError::Transient { operation: "get", message: "no reply".to_owned() };
    let failed = RepositoryError::from(failed);
    destination.on_reply(at(11), DestinationReply::Got(Err(failed)));
    assert_eq!(destination.end(), None);

    world.run_source(&mut source, Some(&lease), 12);
    let (fence, end) = world.run_destination(&mut destination, 13);
    assert_eq!((fence.is_some(), end), (true, Some(DestinationEnd::Live)));
}

/// The destination acknowledged and lost the shard to a third worker before the source read it: the
/// move has happened, and its record completes.
#[test]
fn an_acknowledged_move_completes_after_a_takeover() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(12)).unwrap();
    let (fence, _) = world.run_destination(&mut destination, 12);
    assert!(fence.is_some());
    world.acquire(12 + LEASE, 0, 3);

    let done = world.run_source(&mut source, Some(&lease), 13 + LEASE);
    assert_eq!(done, SourceNext::Done(SourceEnd::Lost(NotMovedReason::Superseded)));
    let left = world.records.in_progress(&worker_name(worker(1))).unwrap();
    assert!(left.is_empty(), "the record is over");
}

#[test]
fn a_source_with_an_expired_lease_does_not_resume_and_leaves_the_record() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    let done = world.run_source(&mut source, Some(&lease), 110);
    assert_eq!(done, SourceNext::Done(SourceEnd::Lost(NotMovedReason::LeaseEnded)));
    assert_eq!(world.phase(source.terms()), Some(Phase::Transfer), "not withdrawn");

    // A takeover raises the fence; then the record can end.
    world.acquire(111, 0, 3);
    let mut again = HandoffSource::recover(world.found(1), false, CONFIG, at(112)).unwrap();
    let done = world.run_source(&mut again, None, 112);
    assert_eq!(done, SourceNext::Done(SourceEnd::Lost(NotMovedReason::Superseded)));
    assert_eq!(world.phase(source.terms()), Some(Phase::RolledBack));
}

#[test]
fn a_restarted_task_withdraws_and_resumes() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    let mut again = HandoffSource::recover(world.found(1), true, CONFIG, at(20)).unwrap();
    let done = world.run_source(&mut again, Some(&lease), 20);
    assert_eq!(done, SourceNext::Done(SourceEnd::Kept(NotMovedReason::Withdrawn)));
}

/// The next process of a crashed source ends the record, whatever its phase.
#[rstest]
#[case::before_anything_was_offered(2, Phase::RolledBack)]
#[case::in_transfer_before_the_offer(3, Phase::Transfer)]
fn a_crashed_source_is_recovered_from_every_phase(#[case] steps: usize, #[case] left: Phase) {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    for _ in 0..steps {
        world.driver().step_source(&mut source, Some(&lease), at(11));
    }
    let mut again = HandoffSource::recover(world.found(1), false, CONFIG, at(20)).unwrap();
    let SourceNext::Done(SourceEnd::Lost(_)) = world.run_source(&mut again, None, 20) else {
        panic!("a process without a lease does not resume");
    };
    assert_eq!(world.phase(source.terms()), Some(left));
}

#[test]
fn an_accepted_move_completes_after_a_crash_of_either_side() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    // The destination crashes between the accept and the save of Ack.
    let mut scratch = AcquireScratch::new();
    let terms = source.terms().clone();
    let (backend, handoff) = (&mut world.backend, terms.handoff());
    backend.accept(at(12), TENANT, terms.key, worker(2), handoff, &mut scratch).unwrap();
    assert_eq!(world.phase(&terms), Some(Phase::Transfer));

    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(13)).unwrap();
    let (fence, end) = world.run_destination(&mut destination, 13);
    assert_eq!((fence, end), (None, Some(DestinationEnd::GrantLost)));
    assert_eq!(world.phase(&terms), Some(Phase::Ack));

    let mut again = HandoffSource::recover(world.found(1), false, CONFIG, at(14)).unwrap();
    let done = world.run_source(&mut again, None, 14);
    assert_eq!(done, SourceNext::Done(SourceEnd::Moved));
    assert_eq!(world.phase(&terms), None);
}

#[test]
fn a_destination_completes_the_record_of_a_dead_source() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.run_source(&mut source, Some(&lease), 11);
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(12)).unwrap();
    world.run_destination(&mut destination, 12);
    // Before the timeout the source may still finish it; after it the destination does.
    let mut early = HandoffDestination::new(world.found(2), CONFIG, at(13)).unwrap();
    world.run_destination(&mut early, 13);
    assert_eq!(world.phase(source.terms()), Some(Phase::Ack));
    let mut late = HandoffDestination::new(world.found(2), CONFIG, at(113)).unwrap();
    world.run_destination(&mut late, 113);
    assert_eq!(world.phase(source.terms()), Some(Phase::Complete));
}

#[test]
fn a_destination_without_an_offer_waits_until_its_deadline() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    for _ in 0..3 {
        world.driver().step_source(&mut source, Some(&lease), at(11));
    }
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(12)).unwrap();
    assert_eq!(world.run_destination(&mut destination, 12), (None, None));
    let end = world.run_destination(&mut destination, 70);
    assert_eq!(end, (None, Some(DestinationEnd::Missed)));
    assert_eq!(world.phase(source.terms()), Some(Phase::Transfer), "it is the source's to end");
}

#[test]
fn terms_round_trip_through_the_record() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.driver().step_source(&mut source, Some(&lease), at(11));
    let mut record = world.found(1).record;
    assert_eq!(MoveTerms::of(&record).as_ref(), Ok(source.terms()));
    let strange = ["zone-7", "shard/1/2/3/4", "shard", ""];
    for subject in strange {
        record.subject = subject.to_owned();
        assert!(MoveTerms::of(&record).is_err(), "{subject}");
    }
}

#[test]
fn fence_and_id_determine_the_outcome_of_a_move() {
    let mut world = World::with_shards(1);
    let (lease, source) = begun(&mut world);
    let mut rows = Vec::new();
    let all = gossip_coordination::ShardFilter::all();
    world.backend.list_shards_into(at(11), TENANT, RUN, all, &mut rows).unwrap();
    let (mut row, terms) = (rows.remove(0), source.terms());
    assert_eq!(terms.outcome(None), MoveOutcome::Gone);
    assert_eq!(terms.outcome(Some(&row)), MoveOutcome::Before);
    row.fence_epoch = lease.fence().increment();
    assert_eq!(terms.outcome(Some(&row)), MoveOutcome::Superseded);
    row.last_handoff = Some(terms.handoff());
    assert_eq!(terms.outcome(Some(&row)), MoveOutcome::Moved);
}

/// A delayed duplicate of the first save creates the record again after its move has completed.
#[test]
fn a_duplicated_first_save_does_not_roll_back_a_completed_move() {
    let mut world = World::with_shards(1);
    let (lease, mut source) = begun(&mut world);
    world.driver().step_source(&mut source, Some(&lease), at(11));
    let first = world.found(1).record;
    world.run_source(&mut source, Some(&lease), 11);
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(12)).unwrap();
    world.run_destination(&mut destination, 12);
    world.run_source(&mut source, Some(&lease), 13);
    assert_eq!(world.phase(source.terms()), None);

    world.records.save(&first, None).unwrap();
    for has_lease in [true, false] {
        let mut again = HandoffSource::recover(world.found(1), has_lease, CONFIG, at(14)).unwrap();
        let next = world.driver().step_source(&mut again, Some(&lease), at(14));
        assert_eq!((next, again.end()), (SourceNext::Again, Some(SourceEnd::Moved)));
    }
}

#[test]
fn a_move_without_a_snapshot_freezes_the_shard_just_before_the_offer() {
    let mut world = World::with_shards(1);
    let lease = world.acquire(10, 0, 1);
    let terms = MoveTerms::new(&lease, worker(2), 0, at(70));
    let mut source = HandoffSource::prepare(terms, CONFIG, at(10)).unwrap();
    assert_eq!(world.run_source(&mut source, Some(&lease), 11), SourceNext::Freeze);
    assert_eq!(world.phase(source.terms()), Some(Phase::Transfer));
    // Until then the owner may checkpoint.
    let (cursor, op) = (CursorUpdate::with_last_key(b"aa"), OpId::from_raw(9));
    world.backend.checkpoint(at(11), TENANT, &lease, cursor, op).unwrap();
    source.freeze(at(12), Cursor::with_last_key(b"ab"));
    assert_eq!(world.run_source(&mut source, Some(&lease), 12), SourceNext::Wait(at(13)));
    let mut destination = HandoffDestination::new(world.found(2), CONFIG, at(13)).unwrap();
    let (_, end) = world.run_destination(&mut destination, 13);
    assert_eq!(end, Some(DestinationEnd::Live));
    let shard = world.backend.shard(TENANT, lease.key()).unwrap();
    assert_eq!(shard.cursor().last_key(), Some(b"ab".as_slice()));
}

#[test]
fn a_shard_frozen_after_the_deadline_is_kept() {
    let mut world = World::with_shards(1);
    let lease = world.acquire(10, 0, 1);
    let terms = MoveTerms::new(&lease, worker(2), 0, at(70));
    let mut source = HandoffSource::prepare(terms, CONFIG, at(10)).unwrap();
    world.run_source(&mut source, Some(&lease), 11);
    source.freeze(at(70), Cursor::initial());
    assert_eq!(source.end(), Some(SourceEnd::Kept(NotMovedReason::NotRecorded)));
    world.run_source(&mut source, Some(&lease), 70);
    assert_eq!(world.phase(source.terms()), Some(Phase::RolledBack));
}
