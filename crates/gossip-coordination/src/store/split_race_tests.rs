//! Concurrent changes between the load of a split and its commit.

use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan, SplitValidationError,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};

use super::core::Core;
use super::{
    CommitOutcome, Flight, Key, MapStore, Reply, Step, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Txn,
};
use crate::protocol::{SplitReplace, SplitResidual};
use crate::record::{Lineage, NewShard};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([11; 32]);
const RUN: RunId = RunId::from_raw(5);
const KEY: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

fn halves() -> [ShardSpecRef<'static>; 2] {
    [ShardSpecRef::new(b"a", b"m", b""), ShardSpecRef::new(b"m", b"z", b"")]
}

/// A coordinator with a run of one shard, and its lease.
fn set_up() -> (StoreCoordinator<MapStore>, Lease) {
    let mut coordinator = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: KEY.shard(), spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op(1)).unwrap();
    let (worker, mut scratch) = (WorkerId::from_raw(1), AcquireScratch::new());
    let granted = coordinator.acquire_and_restore_into(at(2), TENANT, KEY, worker, &mut scratch);
    let lease = granted.unwrap().lease;
    (coordinator, lease)
}

/// Returns the writes of another split that creates a shard with the id of `txn`'s first new shard,
/// as a hash collision would.
fn takes_new_id(txn: &Txn) -> Txn {
    let new = txn.writes().iter().find_map(|write| match write.key() {
        Key::ShardHot { shard, .. } if *shard != KEY => Some(shard.shard()),
        _ => None,
    });
    let shard = new.expect("a split creates shards");
    let lineage = Lineage { parent: ShardId::from_raw(1), split_hash: 77 };
    let birth = NewShard {
        shard,
        spec: halves()[1],
        cursor: CursorUpdate::initial(),
        fence: FenceEpoch::INITIAL,
        attempts: 0,
        cursor_semantics: CursorSemantics::Completed,
        lineage: Some(lineage),
    };
    let (mut taken, mut core) = (Txn::new(), core());
    core.add_shard(&mut taken, &Arc::new(TENANT), RUN, &birth).unwrap();
    taken
}

fn core() -> Core {
    Core::new(StoreConfig::new(2 << 32), StoreLimits::GENEROUS)
}

/// Drives the flight. The transaction made by `meanwhile` is committed before the first commit.
fn fly<A>(
    store: &mut MapStore,
    mut flight: Flight<'_, A>,
    meanwhile: impl FnOnce(&Txn) -> Txn,
) -> A {
    let mut meanwhile = Some(meanwhile);
    loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                if let Some(meanwhile) = meanwhile.take() {
                    let outcome = store.commit(vec![meanwhile(&txns[0])]).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                Reply::Committed(store.commit(txns))
            }
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

fn assert_collision<T: std::fmt::Debug>(
    coordinator: &mut StoreCoordinator<MapStore>,
    result: Result<T, SplitError>,
) {
    let collided = |error: &SplitError| {
        matches!(error, SplitError::SplitInvalid(SplitValidationError::DerivedIdCollision { .. }))
    };
    assert!(result.as_ref().is_err_and(collided), "{result:?}");
    let mut rows = Vec::new();
    coordinator.list_shards_into(at(9), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    let parent = rows.iter().find(|row| row.shard == KEY.shard()).unwrap();
    assert_eq!((parent.status, &*parent.end), (ShardStatus::Active, &b"z"[..]), "unchanged");
    assert_eq!(rows.len(), 2, "only the colliding shard was created");
}

#[test]
fn concurrently_taken_residual_id_is_a_collision() {
    let ((mut coordinator, lease), mut core) = (set_up(), core());
    let [left, right] = halves();
    let plan = SplitResidualPlan::try_new(left, right).unwrap();
    let split = SplitResidual { tenant: TENANT, lease: &lease, plan: &plan, op_id: op(5) };
    let mut store = coordinator.store().another_handle();
    let result = fly(&mut store, core.on_shard(at(3), split), takes_new_id);
    assert_collision(&mut coordinator, result);
    assert_eq!(store.waited(), 0, "the shard itself was not contended");
}

#[test]
fn concurrently_taken_child_id_is_a_collision() {
    let ((mut coordinator, lease), mut core) = (set_up(), core());
    let children = halves().map(|spec| SplitChild::new(spec, CursorUpdate::initial()));
    let plan = SplitReplacePlan::try_new(children).unwrap();
    let (lease, plan) = (&lease, &plan);
    let split = SplitReplace { tenant: TENANT, lease, plan, children_max: 2, op_id: op(5) };
    let mut store = coordinator.store().another_handle();
    let result = fly(&mut store, core.on_shard(at(3), split), takes_new_id);
    assert_collision(&mut coordinator, result);
}

/// Drives the flight. `meanwhile` runs after the load of the shard and before the next request.
fn fly_after_load<A>(
    store: &mut MapStore,
    mut flight: Flight<'_, A>,
    meanwhile: impl FnOnce(),
) -> A {
    let mut meanwhile = Some(meanwhile);
    loop {
        let reply = match flight.step() {
            Step::Read(reads) => {
                let reply = Reply::Read(store.read(reads));
                meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
                reply
            }
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

/// The commit of an earlier, abandoned try is applied between the load of the shard and the load of
/// the siblings. The taken id is its own.
#[test]
fn residual_split_with_a_delayed_earlier_try_is_a_replay() {
    let ((mut coordinator, lease), mut core) = (set_up(), core());
    let [left, right] = halves();
    let plan = SplitResidualPlan::try_new(left, right).unwrap();
    let split = SplitResidual { tenant: TENANT, lease: &lease, plan: &plan, op_id: op(5) };
    let mut store = coordinator.store().another_handle();
    let result = fly_after_load(&mut store, core.on_shard(at(3), split), || {
        coordinator.split_residual(at(3), TENANT, &lease, &plan, op(5)).unwrap();
    });
    assert!(result.as_ref().is_ok_and(IdempotentOutcome::is_replay), "{result:?}");
}

#[test]
fn split_with_a_delayed_earlier_try_is_a_replay() {
    let ((mut coordinator, lease), mut core) = (set_up(), core());
    let children = halves().map(|spec| SplitChild::new(spec, CursorUpdate::initial()));
    let plan = SplitReplacePlan::try_new(children).unwrap();
    let split =
        SplitReplace { tenant: TENANT, lease: &lease, plan: &plan, children_max: 2, op_id: op(5) };
    let mut store = coordinator.store().another_handle();
    let result = fly_after_load(&mut store, core.on_shard(at(3), split), || {
        coordinator.split_replace(at(3), TENANT, &lease, &plan, op(5)).unwrap();
    });
    assert!(result.as_ref().is_ok_and(IdempotentOutcome::is_replay), "{result:?}");
}

#[test]
fn concurrent_count_change_costs_one_more_commit() {
    let ((coordinator, lease), mut core) = (set_up(), core());
    let [left, right] = halves();
    let plan = SplitResidualPlan::try_new(left, right).unwrap();
    let split = SplitResidual { tenant: TENANT, lease: &lease, plan: &plan, op_id: op(5) };
    let mut store = coordinator.store().another_handle();
    let result = fly(&mut store, core.on_shard(at(3), split), |_| {
        let mut bytes = Vec::new();
        super::encode_tenant_count(TENANT, 7, &mut bytes);
        let mut txn = Txn::new();
        txn.put(Key::TenantCounter { tenant: TENANT }, bytes);
        txn
    });
    assert!(result.unwrap().is_executed());
    // Reads of the shard and of the new id, neither repeated after the conflict. One of the commits
    // is the concurrent one.
    assert_eq!((store.read_count(), store.commit_count()), (2, 3));
    let mut answers =
        store.read(vec![super::Read::Get(Key::TenantCounter { tenant: TENANT })]).unwrap();
    let Some(super::Answer::Value(Some(value))) = answers.pop() else { panic!("a counter") };
    assert_eq!(super::decode_count(TENANT, &value.bytes), Ok(8), "counted on top");
}

/// Roots `[b, c)`, `[c, d)` and so on, each leased by a handle of its own.
fn leases_of(store: &MapStore, count: u8) -> Vec<Lease> {
    let mut coordinator = StoreCoordinator::new(store.another_handle(), StoreConfig::new(1 << 32));
    let bounds: Vec<[u8; 1]> = (0..=count).map(|number| [b'b' + number]).collect();
    let roots: Vec<_> = bounds
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &roots, op(1)).unwrap();
    let mut scratch = AcquireScratch::new();
    let mut lease = |id: u8| {
        let (key, worker) = (ShardKey::new(RUN, ShardId::from_raw(id.into())), id.into());
        let worker = WorkerId::from_raw(worker);
        let granted =
            coordinator.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch);
        granted.unwrap().lease
    };
    (0..count).map(&mut lease).collect()
}

/// Drives all flights in lockstep, with the commits of one step in one batch. Returns the round
/// trips until the last commit, and the number of transactions.
fn fly_together<A>(store: &mut MapStore, flights: Vec<Flight<'_, A>>) -> (u64, u64) {
    let mut flying = flights;
    let (mut trips, mut txn_count) = (0, 0);
    while !flying.is_empty() {
        let (mut next, mut batch, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for mut flight in flying {
            match flight.step() {
                Step::Read(reads) => {
                    flight.answer(Reply::Read(store.read(reads)));
                    next.push(flight);
                }
                Step::Commit(txns) => {
                    batch.extend(txns);
                    waiting.push(flight);
                }
                Step::Wait(_) => panic!("a conflict on the count uses no try"),
                Step::Done(_) => {}
            }
        }
        trips += u64::from(!next.is_empty() || !batch.is_empty());
        txn_count += batch.len() as u64;
        for (mut flight, outcome) in waiting.into_iter().zip(store.commit(batch)) {
            flight.answer(Reply::Committed(vec![outcome]));
            next.push(flight);
        }
        flying = next;
    }
    (trips, txn_count)
}

/// All splits of a tenant write the same count. Of those that commit together one is applied, and
/// each of the others reads the siblings and commits again. `docs/limitations.md` states the cost.
#[test]
fn concurrent_splits_of_a_tenant_commit_one_at_a_time() {
    for count in [1, 2, 8] {
        let mut store = MapStore::new();
        let leases = leases_of(&store, count);
        let bounds: Vec<[[u8; 2]; 3]> =
            (0..count).map(|id| [0, 1, 2].map(|part| [b'b' + id + part / 2, part % 2])).collect();
        let plans: Vec<_> = bounds
            .iter()
            .map(|[start, middle, end]| {
                let [start, end] = [&start[..1], &end[..1]];
                let left = ShardSpecRef::new(start, middle, b"");
                SplitResidualPlan::try_new(left, ShardSpecRef::new(middle, end, b"")).unwrap()
            })
            .collect();
        let mut cores: Vec<Core> = leases.iter().map(|_| core()).collect();
        let flights =
            cores.iter_mut().zip(leases.iter().zip(&plans)).map(|(core, (lease, plan))| {
                core.on_shard(at(3), SplitResidual { tenant: TENANT, lease, plan, op_id: op(5) })
            });
        let (trips, txns) = fly_together(&mut store, flights.collect());
        println!("{count} splits at once: {trips} round trips until the last, {txns} transactions");
        let count = u64::from(count);
        assert_eq!((trips, txns), (3 + (count - 1), count * (count + 1) / 2));
    }
}
