//! End-to-end scenarios of leases and runs, through the blocking traits.
//!
//! The source of every story has one item per letter. A [`Scanner`] works on a shard like a worker
//! does: it does an item, remembers that it did, and then moves the cursor. What counts in the end
//! is what was done, and under which fence.

use std::collections::BTreeMap;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
};
use gossip_contracts::identity::{RunId, ShardId, ShardKey};

use crate::protocol::{OfferTerms, ReleaseMode};
use crate::test_fixtures::{
    LEASE, RUN, TENANT, acquire, at, halves, key, op, residual, run_config, two_shards, worker,
};
use crate::{
    AcquireError, AcquireScratch, CheckpointError, ClaimError, CompleteError, CoordinationBackend,
    CoordinatorRuntimeConfig, HandoffId, IdempotentOutcome, InMemoryCoordinator, Lease, ParkReason,
    RenewError, RunConfig, RunManagement, RunStatus, RunTerminalEvaluation, RunTransitionError,
    ShardAction, ShardClaiming, ShardFilter, ShardStatus, SplitError, evaluate_run_terminal,
};

/// The effects: for every item, the fences under which it was processed.
type Effects = BTreeMap<u8, Vec<u64>>;

/// A worker at work on one shard.
struct Scanner {
    lease: Lease,
    /// The next item to do.
    next: u8,
    /// The first item behind the shard.
    end: u8,
}

impl Scanner {
    /// Claims any shard of the run and goes to where its last owner stopped.
    fn claim(coordinator: &mut InMemoryCoordinator, now: u64, by: u64) -> Result<Self, ClaimError> {
        let mut scratch = Box::new(AcquireScratch::new());
        let claimed =
            coordinator.claim_next_available(at(now), TENANT, RUN, worker(by), &mut scratch)?;
        let (spec, cursor) = (claimed.snapshot.spec(), claimed.snapshot.cursor());
        let next = cursor.last_key().map_or(spec.start[0], |reached| reached[0] + 1);
        Ok(Self { lease: claimed.lease, next, end: spec.end[0] })
    }

    /// Does up to `items` items, one a tick; `false` if the shard ended before.
    fn work(
        &mut self,
        coordinator: &mut InMemoryCoordinator,
        now: u64,
        items: u64,
        effects: &mut Effects,
    ) -> bool {
        for tick in 0..items {
            if self.next == self.end {
                return false;
            }
            effects.entry(self.next).or_default().push(self.lease.fence().as_raw());
            let (cursor, id) = ([self.next], self.operation());
            let cursor = CursorUpdate::with_last_key(&cursor);
            let done = coordinator.checkpoint(at(now + tick), TENANT, &self.lease, cursor, id);
            done.expect("the lease is live");
            self.next += 1;
        }
        true
    }

    /// Does everything that is left and completes the shard.
    fn finish(&mut self, coordinator: &mut InMemoryCoordinator, now: u64, effects: &mut Effects) {
        while self.work(coordinator, now, 1, effects) {}
        let last = [self.next - 1];
        let cursor = CursorUpdate::with_last_key(&last);
        let done = coordinator.complete(at(now), TENANT, &self.lease, cursor, op(u64::MAX));
        done.expect("the lease is live");
    }

    /// Ids that no other lease and no other item uses.
    fn operation(&self) -> gossip_contracts::identity::OpId {
        op(self.lease.fence().as_raw() << 8 | u64::from(self.next))
    }
}

fn everything_once(effects: &Effects) -> bool {
    let items: Vec<u8> = effects.keys().copied().collect();
    items == (b'a'..=b'y').collect::<Vec<_>>() && effects.values().all(|fences| fences.len() == 1)
}

#[test]
fn a_paused_worker_is_fenced_out_and_its_successor_resumes() {
    let mut coordinator = two_shards();
    let zombie = acquire(&mut coordinator, 10, 0, 1);
    let cursor = CursorUpdate::with_last_key(b"c");
    coordinator.checkpoint(at(11), TENANT, &zombie, cursor, op(1)).unwrap();

    let mut scratch = AcquireScratch::new();
    let taken =
        coordinator.acquire_and_restore_into(at(110), TENANT, key(0), worker(2), &mut scratch);
    let taken = taken.unwrap();
    assert_eq!(taken.snapshot.cursor().last_key(), Some(b"c".as_slice()));

    let late = CursorUpdate::with_last_key(b"d");
    let refused = coordinator.checkpoint(at(111), TENANT, &zombie, late, op(2));
    assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })));
    let replayed = coordinator.checkpoint(at(111), TENANT, &zombie, cursor, op(1)).unwrap();
    assert!(replayed.is_replay());
}

#[test]
fn claims_drain_a_run_and_the_run_completes() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    for number in 1..=2 {
        let mut scanner = Scanner::claim(&mut coordinator, 5, number).unwrap();
        scanner.finish(&mut coordinator, 6, &mut effects);
    }
    let nothing = Scanner::claim(&mut coordinator, 7, 3).err().unwrap();
    assert_eq!(nothing, ClaimError::NoneAvailable { earliest_deadline: None });
    coordinator.complete_run(at(8), TENANT, RUN, op(9)).unwrap();
    assert_eq!(coordinator.get_run(TENANT, RUN).unwrap().status(), RunStatus::Done);
    assert!(everything_once(&effects));
}

#[test]
fn workers_crash_again_and_again_and_every_item_is_done() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut now = 10;
    // Every worker does three items and is never heard of again.
    while let Ok(mut scanner) = Scanner::claim(&mut coordinator, now, now) {
        if !scanner.work(&mut coordinator, now, 3, &mut effects) {
            scanner.finish(&mut coordinator, now, &mut effects);
        }
        now += LEASE;
    }
    assert!(everything_once(&effects), "checkpointed keys are not processed again");
    let progress = coordinator.get_run_progress(at(now), TENANT, RUN).unwrap();
    assert_eq!(evaluate_run_terminal(&progress), RunTerminalEvaluation::AllDone);
}

#[test]
fn a_straggler_is_asked_to_split_and_an_idle_worker_takes_half() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut quick = Scanner::claim(&mut coordinator, 10, 1).unwrap();
    let mut straggler = Scanner::claim(&mut coordinator, 10, 2).unwrap();
    straggler.work(&mut coordinator, 11, 2, &mut effects);
    quick.finish(&mut coordinator, 12, &mut effects);
    let (slow, end) = (straggler.lease.key(), straggler.end);
    assert!(matches!(
        Scanner::claim(&mut coordinator, 13, 1),
        Err(ClaimError::NoneAvailable { .. })
    ));

    let split = ShardAction::Split(None);
    coordinator.request_action(at(13), TENANT, slow, &split, at(50), op(1)).unwrap();
    let heard = coordinator.renew(at(14), TENANT, &straggler.lease).unwrap();
    assert_eq!(heard.request.unwrap().action(), &split);
    let (start, cut) = ([straggler.next - 2], [straggler.next + 4]);
    let plan = residual(&start, &cut, std::slice::from_ref(&end));
    coordinator.split_residual(at(15), TENANT, &straggler.lease, &plan, op(2)).unwrap();
    straggler.end = cut[0];

    let mut helper = Scanner::claim(&mut coordinator, 16, 1).unwrap();
    assert_eq!(helper.next, cut[0], "the idle worker begins where the straggler will end");
    helper.finish(&mut coordinator, 17, &mut effects);
    straggler.finish(&mut coordinator, 18, &mut effects);
    coordinator.complete_run(at(19), TENANT, RUN, op(3)).unwrap();
    assert!(everything_once(&effects));
}

#[test]
fn a_rolling_restart_moves_every_shard_and_redoes_no_item() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut old: Vec<_> =
        (0..2).map(|_| Scanner::claim(&mut coordinator, 10, 1).unwrap()).collect();
    for scanner in &mut old {
        scanner.work(&mut coordinator, 11, 4, &mut effects);
    }
    for (number, scanner) in old.into_iter().enumerate() {
        let handoff = HandoffId::from_raw(number as u64);
        let terms = OfferTerms { handoff, destination: worker(2), deadline: at(90) };
        let keep = CursorUpdate::initial();
        coordinator.offer(at(20), TENANT, &scanner.lease, terms, keep, op(1)).unwrap();
        let mut scratch = Box::new(AcquireScratch::new());
        let shard = scanner.lease.key();
        let accepted =
            coordinator.accept(at(21), TENANT, shard, worker(2), handoff, &mut scratch).unwrap();
        let reached = accepted.snapshot.cursor().last_key().unwrap()[0];
        let (lease, end) = (accepted.lease, scanner.end);
        Scanner { lease, next: reached + 1, end }.finish(&mut coordinator, 22, &mut effects);
        let late = coordinator.renew(at(23), TENANT, &scanner.lease);
        assert!(matches!(late, Err(RenewError::ShardTerminal { .. })), "the source lets go");
    }
    assert!(everything_once(&effects));
}

#[test]
fn a_destination_that_never_comes_costs_one_withdrawal() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut source = Scanner::claim(&mut coordinator, 10, 1).unwrap();
    source.work(&mut coordinator, 11, 3, &mut effects);
    let handoff = HandoffId::from_raw(7);
    let terms = OfferTerms { handoff, destination: worker(2), deadline: at(40) };
    let keep = CursorUpdate::initial();
    coordinator.offer(at(15), TENANT, &source.lease, terms, keep, op(1)).unwrap();
    let notice = coordinator.renew(at(45), TENANT, &source.lease).unwrap().offer.unwrap();
    assert_eq!((notice.handoff, notice.deadline), (handoff, at(40)));
    coordinator.withdraw(at(46), TENANT, &source.lease, notice.handoff, op(2)).unwrap();
    source.finish(&mut coordinator, 47, &mut effects);
    assert!(effects.values().all(|fences| fences.len() == 1));
}

#[test]
fn bisection_parks_one_poisoned_item_and_everything_else_is_done() {
    const POISON: u8 = b'f';
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut now = 10;
    loop {
        now += LEASE;
        let Ok(mut scanner) = Scanner::claim(&mut coordinator, now, 1) else { break };
        while scanner.next != POISON && scanner.work(&mut coordinator, now, 1, &mut effects) {}
        match scanner.end - scanner.next {
            0 => scanner.finish(&mut coordinator, now, &mut effects),
            // The suspect is isolated: every worker that claims it dies, until the coordinator
            // parks it.
            1 => {}
            _ => isolate(&mut coordinator, now, &scanner),
        }
    }
    let mut parked = Vec::new();
    let filter = ShardFilter::parked();
    coordinator.list_shards_into(at(now), TENANT, RUN, filter, &mut parked).unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].park_reason, Some(ParkReason::TooManyErrors));
    assert!(parked[0].end.as_ref() == [POISON + 1], "only the poisoned item is left");
    effects.insert(POISON, vec![0]);
    assert!(everything_once(&effects));
    let refused = coordinator.complete_run(at(now), TENANT, RUN, op(1)).unwrap_err();
    assert_eq!(refused, RunTransitionError::NotSettled { active: 0, parked: 1 });
}

/// Cuts what lies behind the next item off, and crashes.
fn isolate(coordinator: &mut InMemoryCoordinator, now: u64, scanner: &Scanner) {
    let shard = coordinator.shard(TENANT, scanner.lease.key()).unwrap();
    let (start, cut, end) = (shard.spec().start.to_vec(), [scanner.next + 1], [scanner.end]);
    let plan = residual(&start, &cut, &end);
    coordinator.split_residual(at(now), TENANT, &scanner.lease, &plan, op(now)).unwrap();
}

#[test]
fn a_repaired_shard_is_unparked_and_the_run_completes() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut denied = Scanner::claim(&mut coordinator, 10, 1).unwrap();
    denied.work(&mut coordinator, 11, 3, &mut effects);
    let reason = ParkReason::PermissionDenied;
    coordinator.park_shard(at(12), TENANT, &denied.lease, reason, op(1)).unwrap();
    Scanner::claim(&mut coordinator, 13, 1).unwrap().finish(&mut coordinator, 14, &mut effects);
    let progress = coordinator.get_run_progress(at(15), TENANT, RUN).unwrap();
    assert_eq!(evaluate_run_terminal(&progress), RunTerminalEvaluation::HasFailures);

    coordinator.unpark_shard(at(100), TENANT, denied.lease.key(), op(2)).unwrap();
    let mut repaired = Scanner::claim(&mut coordinator, 101, 2).unwrap();
    assert_eq!(repaired.next, denied.next, "it resumes where it was denied");
    repaired.finish(&mut coordinator, 102, &mut effects);
    coordinator.complete_run(at(103), TENANT, RUN, op(3)).unwrap();
    assert!(everything_once(&effects));
}

#[test]
fn a_cancelled_run_stops_within_one_renewal_and_the_next_generation_starts_clean() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    let mut scanner = Scanner::claim(&mut coordinator, 10, 1).unwrap();
    scanner.work(&mut coordinator, 11, 3, &mut effects);
    coordinator.cancel_run(at(20), TENANT, RUN, op(1)).unwrap();

    scanner.work(&mut coordinator, 21, 1, &mut effects);
    let stop = coordinator.renew(at(22), TENANT, &scanner.lease).unwrap_err();
    assert_eq!(stop, RenewError::RunTerminal { status: RunStatus::Cancelled });
    coordinator.release(at(23), TENANT, &scanner.lease, ReleaseMode::Clean, op(2)).unwrap();
    coordinator.delete_run(at(24), TENANT, RUN, op(3)).unwrap();
    assert_eq!(coordinator.total_shards(), 0);

    let next = RunId::from_raw(RUN.as_raw() + 1);
    coordinator.create_run(at(25), TENANT, next, run_config()).unwrap();
    let gone = coordinator.get_run(TENANT, RUN).unwrap_err();
    assert_eq!(gone, crate::GetRunError::RunNotFound);
}

#[test]
fn a_run_pauses_for_the_night_and_nothing_is_lost_by_morning() {
    let mut coordinator = two_shards();
    let mut effects = Effects::new();
    // Three nights: more than the run allows attempts, if giving back counted as one.
    for night in 1..=3 {
        let evening = night * 1_000;
        let mut scanner = Scanner::claim(&mut coordinator, evening, 1).unwrap();
        scanner.work(&mut coordinator, evening + 1, 1, &mut effects);
        coordinator.pause_run(at(evening + 2), TENANT, RUN, op(night)).unwrap();
        assert!(coordinator.renew(at(evening + 3), TENANT, &scanner.lease).unwrap().run_paused);
        let lease = &scanner.lease;
        coordinator.release(at(evening + 4), TENANT, lease, ReleaseMode::Clean, op(1)).unwrap();
        assert_eq!(
            Scanner::claim(&mut coordinator, evening + 5, 2).err(),
            Some(ClaimError::RunPaused)
        );
        coordinator.resume_run(at(evening + 500), TENANT, RUN, op(100 + night)).unwrap();
    }
    while let Ok(mut scanner) = Scanner::claim(&mut coordinator, 9_000, 1) {
        scanner.finish(&mut coordinator, 9_001, &mut effects);
    }
    assert!(everything_once(&effects));
}

#[test]
fn a_client_that_sends_everything_twice_changes_nothing_by_it() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    for (number, item) in (b'a'..b'f').enumerate() {
        let (cursor, id) = ([item], op(number as u64));
        for copy in 0..2 {
            let cursor = CursorUpdate::with_last_key(&cursor);
            let done = coordinator.checkpoint(at(11), TENANT, &lease, cursor, id).unwrap();
            assert_eq!(done.is_replay(), copy == 1);
        }
    }
    let plan = residual(b"a", b"h", b"m");
    let halves = halves(b"h", b"k", b"m");
    let made = [0, 1].map(|_| {
        coordinator.split_residual(at(12), TENANT, &lease, &plan, op(50)).unwrap().into_inner()
    });
    assert_eq!(made[0], made[1]);
    let child = ShardKey::new(RUN, made[0].residual);
    let mut scratch = AcquireScratch::new();
    let acquired =
        coordinator.acquire_and_restore_into(at(13), TENANT, child, worker(2), &mut scratch);
    let held = acquired.unwrap().lease;
    let split = [0, 1].map(|_| {
        coordinator.split_replace(at(14), TENANT, &held, &halves, op(51)).unwrap().into_inner()
    });
    assert_eq!(split[0], split[1]);
    let end = CursorUpdate::with_last_key(b"g");
    let ends = [0, 1].map(|_| coordinator.complete(at(15), TENANT, &lease, end, op(52)).unwrap());
    assert_eq!(ends, [IdempotentOutcome::Executed(()), IdempotentOutcome::Replayed(())]);
    assert_eq!(coordinator.total_shards(), 5, "two roots, a residual and its two halves");
}

#[test]
fn a_dead_owner_with_a_far_deadline_is_revoked() {
    let mut coordinator = two_shards();
    let dead = acquire(&mut coordinator, 1_000_000, 0, 1);
    let mut scratch = AcquireScratch::new();
    let wait =
        coordinator.acquire_and_restore_into(at(20), TENANT, key(0), worker(2), &mut scratch);
    assert!(matches!(wait, Err(AcquireError::AlreadyLeased { .. })), "a clock was far ahead");
    coordinator.revoke_lease(at(21), TENANT, key(0), None, op(1)).unwrap();
    let next = acquire(&mut coordinator, 22, 0, 2);
    assert!(next.fence() > dead.fence());
    let late = coordinator.renew(at(23), TENANT, &dead);
    assert!(matches!(late, Err(RenewError::StaleFence { .. })), "should it live after all");
    let row = coordinator.shard(TENANT, key(0)).unwrap();
    assert_eq!(row.record().status(), ShardStatus::Active);
}

#[test]
fn a_full_slab_refuses_and_leaves_everything_as_it_was() {
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        slab_capacity: 8 << 10,
        ..CoordinatorRuntimeConfig::default()
    });
    let metadata = [7; 2_000];
    let spec = ShardSpecRef::new(b"a", b"m", &metadata);
    let cursor = CursorUpdate::initial();
    let roots = [InitialShardInput { shard_id: key(0).shard(), spec, cursor }];
    coordinator
        .create_run_with_shards(at(1), TENANT, RUN, run_config(), &roots, op(1_000))
        .unwrap();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    let token = vec![1; 12 << 10];
    let heavy = CursorUpdate::new(b"c", &token);
    let parts = [(b"a", b"f"), (b"f", b"m")].map(|(start, end)| {
        SplitChild::new(ShardSpecRef::new(start, end, &[7; 4_000]), CursorUpdate::initial())
    });
    let plan = SplitReplacePlan::try_new(parts).unwrap();
    // Often: a refusal that kept some bytes would end in a slab without any.
    for number in 0..100 {
        let refused = coordinator.checkpoint(at(11), TENANT, &lease, heavy, op(number));
        assert!(matches!(refused, Err(CheckpointError::ResourceExhausted(_))));
        let refused = coordinator.complete(at(11), TENANT, &lease, heavy, op(number));
        assert!(matches!(refused, Err(CompleteError::ResourceExhausted(_))));
        let refused = coordinator.split_replace(at(11), TENANT, &lease, &plan, op(number));
        assert!(matches!(refused, Err(SplitError::ResourceExhausted(_))));
    }
    assert_eq!(coordinator.total_shards(), 1);
    let shard = coordinator.shard(TENANT, key(0)).unwrap();
    assert!(shard.cursor().is_initial() && shard.op_log().is_empty());
    let light = CursorUpdate::new(b"c", &token[..100]);
    coordinator.checkpoint(at(12), TENANT, &lease, light, op(1)).expect("the same id is free");
}

/// Once, a claim that met more exhausted shards than it may try answered that nothing would ever
/// come, and a worker that believed it stopped with work left.
#[test]
fn a_claim_that_meets_many_exhausted_shards_says_come_back() {
    let mut coordinator = InMemoryCoordinator::default();
    let ids: Vec<[u8; 2]> = (1..=41_u8).map(|id| [id, 0]).collect();
    let shards: Vec<_> = (0..40)
        .map(|id| InitialShardInput {
            shard_id: ShardId::from_raw(id as u64),
            spec: ShardSpecRef::new(&ids[id], &ids[id + 1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(0)).unwrap();
    coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &shards, op(1)).unwrap();
    let mut scratch = AcquireScratch::new();
    for id in 0..40 {
        let granted =
            coordinator.acquire_and_restore_into(at(2), TENANT, key(id), worker(1), &mut scratch);
        granted.unwrap();
    }
    let late = at(2 + LEASE);
    let first = coordinator.claim_next_available(late, TENANT, RUN, worker(2), &mut scratch);
    let come_back = ClaimError::NoneAvailable { earliest_deadline: Some(late) };
    assert_eq!(first.map(|_| ()), Err(come_back));
    let second = coordinator.claim_next_available(late, TENANT, RUN, worker(2), &mut scratch);
    let nothing = ClaimError::NoneAvailable { earliest_deadline: None };
    assert_eq!(second.map(|_| ()), Err(nothing));
    assert_eq!(coordinator.get_run_progress(late, TENANT, RUN).unwrap().parked, 40);
}

/// Deleting runs must not cost memory for ever: their places are used again.
#[test]
fn runs_come_and_go_and_a_later_one_is_not_taken_for_an_earlier_one() {
    let mut coordinator = two_shards();
    let old = acquire(&mut coordinator, 10, 0, 1);
    coordinator.cancel_run(at(11), TENANT, RUN, op(1)).unwrap();
    coordinator.delete_run(at(12), TENANT, RUN, op(2)).unwrap();
    let later = RunId::from_raw(2);
    let shards = [InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"m", b""),
        cursor: CursorUpdate::initial(),
    }];
    let config = run_config();
    coordinator.create_run_with_shards(at(13), TENANT, later, config, &shards, op(3)).unwrap();
    let cursor = CursorUpdate::with_last_key(b"b");
    let refused = coordinator.checkpoint(at(14), TENANT, &old, cursor, op(4));
    assert!(matches!(refused, Err(CheckpointError::ShardNotFound { .. })));
    assert_eq!(coordinator.get_run_progress(at(14), TENANT, later).unwrap().active, 1);
}
