//! Collecting runs whose registration broke off in the middle, and collections that break off.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId};

use super::test_support::{allot, overwrite};
use super::{Fault, Key, KeyKind, MapStore, StoreConfig, StoreCoordinator, StoreLimits};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
/// So small that a chunk holds five shards and a page two runs.
const SMALL: StoreLimits = StoreLimits { txn_ops: 20, txn_bytes: 1 << 20, page: 2 };
const SHARDS: u32 = 12;
const STALE_AFTER: u64 = 100;

type Coordinator = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

const fn run(number: u64) -> RunId {
    RunId::from_raw(number)
}

/// Registers twelve shards, of which `chunks` chunks get through.
fn register(coordinator: &mut Coordinator, now: u64, run: RunId, chunks: usize) -> bool {
    let bounds: Vec<_> = (0..=SHARDS).map(|bound| (bound + 1).to_be_bytes()).collect();
    let pairs = bounds.windows(2).zip(0..);
    let roots: Vec<_> = pairs
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    (0..chunks).for_each(|_| coordinator.store_mut().inject(Fault::None));
    coordinator.store_mut().inject_always(Some(Fault::Fail));
    let done = coordinator.register_shards(at(now), TENANT, run, &roots, op(1)).is_ok();
    coordinator.store_mut().forget_faults();
    coordinator.store_mut().inject_always(None);
    done
}

/// A run made at 1, whose registration broke off at 50.
fn broken_off() -> Coordinator {
    let store = MapStore::with_limits(SMALL);
    let mut coordinator = StoreCoordinator::new(store, StoreConfig::new(3 << 32));
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    coordinator.create_run(at(1), TENANT, run(1), config).unwrap();
    assert!(!register(&mut coordinator, 50, run(1), 1));
    coordinator
}

fn collect(coordinator: &mut Coordinator, now: u64) -> (Result<(), InfraError>, Vec<RunId>) {
    let mut gone = Vec::new();
    let collected =
        coordinator.gc_stale_initializing_runs_into(at(now), TENANT, STALE_AFTER, 9, &mut gone);
    (collected, gone)
}

/// How many keys there are of a kind.
fn count(coordinator: &Coordinator, kind: KeyKind) -> usize {
    let keys = coordinator.store().dump();
    keys.iter().filter(|(key, _)| Key::parse(key).unwrap().kind() == kind).count()
}

/// Whether nothing is left of the run but its tombstone, and all its room was given back.
fn is_gone(coordinator: &mut Coordinator) -> bool {
    let kinds = [KeyKind::RunHead, KeyKind::RunRoots, KeyKind::ShardHot, KeyKind::ShardCold];
    let clean = kinds.iter().all(|kind| count(coordinator, *kind) == 0)
        && count(coordinator, KeyKind::ClaimIndex) == 0
        && count(coordinator, KeyKind::Tombstone) == 1;
    // All room is needed for this one.
    let mut store = coordinator.store().another_handle();
    allot(&mut store, TENANT, SHARDS.into());
    let mut other = StoreCoordinator::new(store, StoreConfig::new(4 << 32));
    let run_config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    other.create_run(at(900), TENANT, run(2), run_config).unwrap();
    clean && register(&mut other, 900, run(2), 9)
}

#[test]
fn staleness_counts_from_the_last_chunk() {
    let mut coordinator = broken_off();
    assert_eq!(collect(&mut coordinator, 149), (Ok(()), Vec::new()), "made at 1, a chunk at 50");
    assert_eq!(collect(&mut coordinator, 150), (Ok(()), vec![run(1)]));
    assert!(is_gone(&mut coordinator));
}

/// Q7: stored times never decrease, whichever clock lags.
#[test]
fn a_registrar_whose_clock_is_behind_makes_nothing_stale() {
    let mut coordinator = broken_off();
    assert!(!register(&mut coordinator, 20, run(1), 1));
    assert_eq!(collect(&mut coordinator, 149), (Ok(()), Vec::new()), "a chunk at 50");
    assert_eq!(collect(&mut coordinator, 150), (Ok(()), vec![run(1)]));
}

#[test]
fn a_registration_that_went_on_meanwhile_wins() {
    let mut coordinator = broken_off();
    assert!(register(&mut coordinator, 149, run(1), 9));
    assert_eq!(collect(&mut coordinator, 900), (Ok(()), Vec::new()));
    assert_eq!(coordinator.get_run_progress(at(900), TENANT, run(1)).unwrap().total, 12);
}

#[test]
fn a_registration_is_refused_once_a_collection_began() {
    let mut coordinator = broken_off();
    // The collection cancels the run and gets no further.
    coordinator.store_mut().inject(Fault::None);
    coordinator.store_mut().inject(Fault::Fail);
    assert!(collect(&mut coordinator, 150).0.is_err());
    assert!(!register(&mut coordinator, 151, run(1), 9));
    assert_eq!(coordinator.get_run(TENANT, run(1)).unwrap().status(), RunStatus::Cancelled);
    assert_eq!(collect(&mut coordinator, 152), (Ok(()), vec![run(1)]), "and it resumes");
    assert!(is_gone(&mut coordinator));
}

#[test]
fn a_collection_that_breaks_off_anywhere_is_taken_up_again() {
    for applied in 0.. {
        let mut coordinator = broken_off();
        (0..applied).for_each(|_| coordinator.store_mut().inject(Fault::None));
        coordinator.store_mut().inject(Fault::Fail);
        let (collected, gone) = collect(&mut coordinator, 150);
        coordinator.store_mut().forget_faults();
        if collected.is_ok() {
            // Cancelled, swept of shards and of names, deleted.
            assert!(applied >= 4 && gone == [run(1)], "{applied} commits");
            return;
        }
        assert!(gone.is_empty(), "{applied} commits");
        assert_eq!(collect(&mut coordinator, 150), (Ok(()), vec![run(1)]), "{applied} commits");
        assert!(is_gone(&mut coordinator), "{applied} commits");
    }
}

#[test]
fn a_collection_survives_lost_replies_and_conflicts() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Conflict] {
        let mut coordinator = broken_off();
        for _ in 0..9 {
            coordinator.store_mut().inject(fault);
            coordinator.store_mut().inject(Fault::None);
        }
        assert_eq!(collect(&mut coordinator, 150), (Ok(()), vec![run(1)]), "{fault:?}");
        coordinator.store_mut().forget_faults();
        assert!(is_gone(&mut coordinator), "{fault:?}");
    }
}

#[test]
fn damaged_head_costs_a_listing_and_a_collection_only_its_run() {
    let mut coordinator = broken_off();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    // On three pages, so that the damaged head has runs before and behind it.
    for number in [2, 3, 4] {
        coordinator.create_run(at(1), TENANT, run(number), config).unwrap();
    }
    overwrite(&mut coordinator, Key::RunHead { tenant: TENANT, run: run(2) }, vec![1, 2, 3]);
    let mut listed = Vec::new();
    let result = coordinator.list_active_runs_into(TENANT, None, 9, &mut listed);
    assert!(matches!(result, Err(InfraError::Corruption { .. })), "{result:?}");
    assert_eq!(listed, [1, 3, 4].map(run));
    let (result, gone) = collect(&mut coordinator, 900);
    assert!(matches!(result, Err(InfraError::Corruption { .. })), "{result:?}");
    assert_eq!(gone, [1, 3, 4].map(run));
}
