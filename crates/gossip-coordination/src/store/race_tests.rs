//! Workers on handles of their own, interleaved at every step they take to the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::core::Core;
use super::{
    Answer, CommitOutcome, Fault, Flight, HotPart, Key, MapStore, Read, Step, Store, StoreConfig,
    StoreCoordinator, StoreLimits, Told, Txn, Versioned, Write, decode_hot, shard_flight,
};
use crate::protocol::{Acquire, Checkpoint, Renew};
use crate::{Lease, RunConfig, RunManagement, ShardFilter};

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const RUN: RunId = RunId::from_raw(4);
/// The one shard that all want.
const SHARD: ShardId = ShardId::from_raw(0);
const LEASE: u64 = 12;
const WORKERS: u64 = 3;
const ROUNDS: u64 = 12;

/// What workers were told.
#[derive(Default)]
struct Ledger {
    /// Fences.
    grants: Vec<u64>,
    /// The furthest position that was acknowledged.
    reached: u64,
}

type Shared = Arc<(AtomicU64, Mutex<Ledger>)>;

/// Acquires, checkpoints and renews until its rounds are over.
fn work(core: &mut Core, worker: u64, shared: Shared) -> Flight<'_, ()> {
    Flight::new(move |io| async move {
        let now = || LogicalTime::from_raw(shared.0.load(Ordering::Relaxed));
        for round in 0..ROUNDS {
            let key = ShardKey::new(RUN, SHARD);
            let token = core.fresh_grant();
            let acquire =
                Acquire { tenant: TENANT, key, worker: WorkerId::from_raw(worker), token };
            let granted = shard_flight::fly(core, &io, now(), &acquire, |_| ()).await;
            let Ok(granted) = granted else { continue };
            let lease: Lease = granted.into_inner().lease;
            let fence = lease.fence().as_raw();
            shared.1.lock().unwrap().grants.push(fence);
            for step in 0..3 {
                let position = fence * 4 + step;
                let bytes = position.to_be_bytes();
                let cursor = CursorUpdate::try_from_parts(Some(&bytes), None).unwrap();
                let op_id = OpId::from_raw(worker << 32 | round << 8 | step);
                let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id };
                if shard_flight::fly(core, &io, now(), &checkpoint, |_| ()).await.is_ok() {
                    let mut ledger = shared.1.lock().unwrap();
                    ledger.reached = ledger.reached.max(position);
                }
                let renew = Renew { tenant: TENANT, lease: &lease };
                let _ = shard_flight::fly(core, &io, now(), &renew, |_| ()).await;
            }
        }
    })
}

/// Every commit of `worker` that was applied obeys the fence.
fn check(worker: u64, before: &HotPart<'_>, after: &HotPart<'_>) {
    let owner = |part: &HotPart<'_>| part.lease.map(|holder| holder.owner().as_raw());
    if after.fence == before.fence {
        assert_eq!(owner(before), Some(worker), "only the holder writes under a fence");
    } else {
        assert_eq!(after.fence, before.fence.increment(), "a fence rises by one");
        assert_eq!(owner(after), Some(worker), "who raises the fence holds it");
    }
    assert!(after.cursor.last_key() >= before.cursor.last_key(), "progress never falls");
}

/// Commits and compares the shard before and after.
fn commit(
    store: &mut MapStore,
    worker: u64,
    txns: Vec<Txn>,
) -> Vec<Result<CommitOutcome, crate::InfraError>> {
    let hot = txns[0].writes().iter().find_map(|write| match write {
        Write::Put(key @ Key::ShardHot { shard, .. }, _) => Some((*key, *shard)),
        Write::Put(..) | Write::Bind(..) | Write::Delete(_) => None,
    });
    let (key, shard) = hot.expect("every commit of these workers writes a shard");
    let look = |store: &mut MapStore| -> Versioned {
        let mut answers = store.read(vec![Read::Get(key)]).unwrap();
        let Some(Answer::Value(Some(value))) = answers.pop() else { panic!("the shard is there") };
        value
    };
    let before = look(store);
    let outcomes = store.commit(txns);
    let after = look(store);
    if before.revision != after.revision {
        let [before, after] =
            [&before, &after].map(|value| decode_hot(TENANT, shard, &value.bytes).unwrap());
        check(worker, &before, &after);
    }
    outcomes
}

fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn set_up(store: &MapStore) -> StoreCoordinator<MapStore> {
    let mut admin = StoreCoordinator::new(store.another_handle(), StoreConfig::new(1));
    // It begins before every position that is reached, and ends behind it.
    let spec = ShardSpecRef::new(&[0], &[1], b"");
    let root = InitialShardInput { shard_id: SHARD, spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
    let made = admin.create_run_with_shards(now, TENANT, RUN, config, &[root], op);
    made.unwrap();
    admin
}

/// Plays one interleaving; answers how many grants there were and how many races were lost.
fn play(seed: u64) -> (usize, u64) {
    let store = MapStore::new();
    let mut admin = set_up(&store);
    let shared: Shared = Arc::new((AtomicU64::new(10), Mutex::default()));
    let mut cores: Vec<Core> = (0..WORKERS)
        .map(|worker| Core::new(StoreConfig::new((worker + 2) << 40), StoreLimits::GENEROUS))
        .collect();
    let mut flying: Vec<_> = cores
        .iter_mut()
        .zip(0..)
        .map(|(core, worker)| {
            (worker, store.another_handle(), work(core, worker, Arc::clone(&shared)))
        })
        .collect();
    let mut asked: Vec<_> = flying.iter_mut().map(|(_, _, flight)| flight.step()).collect();
    let (mut state, mut conflicts) = (seed * 2 + 1, 0);
    while !flying.is_empty() {
        shared.0.fetch_add(draw(&mut state) % 2, Ordering::Relaxed);
        let chosen = usize::try_from(draw(&mut state) % flying.len() as u64).unwrap();
        let (worker, store, flight) = &mut flying[chosen];
        let told = match std::mem::replace(&mut asked[chosen], Step::Done(())) {
            Step::Read(reads) => Told::Read(store.read(reads)),
            Step::Wait(_) => Told::Waited,
            Step::Commit(txns) => {
                let faults = [Fault::None, Fault::None, Fault::LoseReply, Fault::LoseRequest];
                store.inject(faults[usize::try_from(draw(&mut state) % 4).unwrap()]);
                let outcomes = commit(store, *worker, txns);
                conflicts += u64::from(matches!(outcomes[0], Ok(CommitOutcome::Conflict(_))));
                Told::Committed(outcomes)
            }
            Step::Done(()) => {
                drop(flying.swap_remove(chosen));
                asked.swap_remove(chosen);
                continue;
            }
        };
        flight.tell(told);
        asked[chosen] = flight.step();
    }
    let ledger = shared.1.lock().unwrap();
    let mut fences = ledger.grants.clone();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), ledger.grants.len(), "seed {seed}: no fence is given twice");
    let mut rows = Vec::new();
    let now = LogicalTime::from_raw(1 << 40);
    admin.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    let stored =
        rows[0].last_key.as_ref().map(|key| u64::from_be_bytes((**key).try_into().unwrap()));
    assert_eq!(stored.unwrap_or(0), ledger.reached, "seed {seed}: nothing is lost or invented");
    let granted = usize::try_from(rows[0].acquire_count).unwrap();
    assert!(granted >= ledger.grants.len(), "seed {seed}: every grant is stored");
    (ledger.grants.len(), conflicts)
}

#[test]
fn racing_handles_never_write_under_a_stale_fence() {
    let (mut grants, mut conflicts) = (0, 0);
    for seed in 1..120 {
        let (granted, lost) = play(seed);
        grants += granted;
        conflicts += lost;
    }
    println!("{grants} grants, {conflicts} conflicts");
    assert!(grants > 200 && conflicts > 50, "{grants} grants, {conflicts} conflicts");
}
