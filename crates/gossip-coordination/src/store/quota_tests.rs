//! Allotments, the count below them, and that tenants share no key.

use std::sync::{Arc, Mutex};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardLimitScope, ShardSpecRef,
    plan_split_residual_at_point,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::core::Core;
use super::test_support::{allot, overwrite};
use super::{
    Allotment, Answer, CommitOutcome, Compare, Fault, Key, KeyRange, MapStore, Read, Reply, Step,
    Store, StoreConfig, StoreCoordinator, StoreLimits, Txn, fly, load_allotment, set_allotment,
};
use crate::protocol::SplitResidual;
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const OTHER: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// Creates a run of `shards` shards.
fn create<S: Store>(
    handle: &mut StoreCoordinator<S>,
    tenant: TenantId,
    run: u64,
    shards: u8,
) -> Result<(), CreateRunError> {
    let bounds: Vec<[u8; 1]> = (0..=shards).map(|number| [b'b' + number]).collect();
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
    let run = RunId::from_raw(run);
    handle.create_run_with_shards(at(1), tenant, run, config, &roots, op(1)).map(drop)
}

fn limit_in(created: Result<(), CreateRunError>) -> Option<(usize, usize, ShardLimitScope)> {
    match created {
        Err(CreateRunError::RegisterShardsFailed(RegisterShardsError::ShardLimitExceeded {
            current,
            max,
            scope,
            ..
        })) => Some((current, max, scope)),
        Ok(()) => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_tenant_without_an_allotment_has_the_default_one() {
    let mut store = MapStore::new();
    let default = Allotment::of_shards(DEFAULT_MAX_SHARDS_PER_TENANT as u64);
    assert_eq!(fly(&mut store, load_allotment(TENANT)), Ok(default));
    allot(&mut store, TENANT, 3);
    assert_eq!(fly(&mut store, load_allotment(TENANT)), Ok(Allotment::of_shards(3)));
    assert_eq!(fly(&mut store, load_allotment(OTHER)), Ok(default));
    fly(&mut store, set_allotment(TENANT, None)).unwrap();
    assert_eq!(fly(&mut store, load_allotment(TENANT)), Ok(default));
    assert!(store.dump().is_empty(), "a removed allotment leaves nothing");
}

#[test]
fn a_handle_obeys_an_allotment_that_changes_while_it_works() {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    create(&mut handle, TENANT, 1, 3).unwrap();
    allot(handle.store_mut(), TENANT, 2);
    let refused = limit_in(create(&mut handle, TENANT, 2, 1));
    assert_eq!(refused, Some((3, 2, ShardLimitScope::PerTenant)), "it removes nothing");
    assert_eq!(limit_in(create(&mut handle, OTHER, 2, 3)), None, "others keep theirs");
    allot(handle.store_mut(), TENANT, 4);
    // The run was created before its registration was refused.
    assert_eq!(limit_in(create(&mut handle, TENANT, 3, 1)), None);
    allot(handle.store_mut(), TENANT, 0);
    handle.cancel_run(at(3), TENANT, RUN, op(2)).unwrap();
    let deleted = handle.delete_run(at(4), TENANT, RUN, op(3));
    assert!(deleted.unwrap().is_executed(), "an allotment of nothing forbids no deletion");
}

/// A split is decided on one allotment, and the operator lowers it before the commit.
#[test]
fn an_allotment_lowered_before_the_commit_refuses_the_split() {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    create(&mut handle, TENANT, 1, 1).unwrap();
    let key = ShardKey::new(RUN, ShardId::from_raw(0));
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let granted = handle.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch);
    let lease = granted.unwrap().lease;
    let spec = ShardSpecRef::new(b"b", b"c", b"");
    let plan = plan_split_residual_at_point(spec, b"bb").unwrap();
    let split = SplitResidual { tenant: TENANT, lease: &lease, plan: &plan, op_id: op(5) };
    let mut core = Core::new(StoreConfig::new(2 << 32), StoreLimits::GENEROUS);
    let mut store = handle.store().another_handle();
    let mut flight = core.on_shard(at(3), split);
    let mut commits = 0;
    let refused = loop {
        flight.set_binding(None);
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Commit(txns) => {
                commits += 1;
                allot(&mut store, TENANT, 1);
                Reply::Committed(store.commit(txns))
            }
            Step::Wait(_) => Reply::Waited,
            Step::Done(answer) => break answer,
        };
        flight.answer(reply);
    };
    assert_eq!(commits, 1, "the second decision refuses");
    let Err(SplitError::SplitInvalid(refusal)) = refused else { panic!("{refused:?}") };
    assert!(refusal.to_string().contains('1'), "{refusal}");
    let rows = handle.get_run_progress(at(4), TENANT, RUN).unwrap();
    assert_eq!(rows.total, 1, "nothing was made");
}

#[test]
fn a_lost_reply_leaves_the_allotment_written_once() {
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let mut store = MapStore::new();
        store.inject(fault);
        allot(&mut store, TENANT, 3);
        assert_eq!(fly(&mut store, load_allotment(TENANT)), Ok(Allotment::of_shards(3)));
    }
}

/// Found by the simulator (seed 86): an operator's call was delayed, and the next one found its own
/// value stored already and wrote nothing. The delayed commit was applied after that one was
/// acknowledged.
#[test]
fn delayed_call_does_not_replace_an_acknowledged_one() {
    let mut store = MapStore::new();
    let set = |shards| set_allotment(TENANT, Some(Allotment::of_shards(shards)));
    fly(&mut store, set(5)).unwrap();
    let mut delayed = set(9);
    let in_flight = loop {
        match delayed.step() {
            Step::Read(reads) => delayed.answer(Reply::Read(store.read(reads))),
            Step::Commit(txns) => break txns,
            Step::Wait(_) | Step::Done(_) => unreachable!("a call reads and commits"),
        }
    };
    fly(&mut store, set(5)).unwrap();
    let outcome = store.commit(in_flight).remove(0).unwrap();
    assert!(matches!(outcome, CommitOutcome::Conflict(_)), "{outcome:?}");
}

#[test]
fn a_damaged_allotment_is_corruption_and_not_the_default() {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    overwrite(&mut handle, Key::Allotment { tenant: TENANT }, vec![1, 2, 3]);
    let refused = create(&mut handle, TENANT, 1, 1);
    assert!(
        matches!(
            refused,
            Err(CreateRunError::BackendError(InfraError::Corruption {
                operation: "allotment.decode",
                ..
            }))
        ),
        "{refused:?}"
    );
    // The operator can still replace it.
    allot(handle.store_mut(), TENANT, 3);
    assert_eq!(limit_in(create(&mut handle, TENANT, 1, 1)), None);
}

/// A store that notes which keys are read and written.
struct Watched {
    store: MapStore,
    noted: Arc<Mutex<Vec<(bool, KeyRange)>>>,
}

impl Watched {
    fn note(&self, writes: bool, range: KeyRange) {
        self.noted.lock().unwrap().push((writes, range));
    }

    fn note_key(&self, writes: bool, key: &Key) {
        let bytes = key.to_bytes();
        let end = [bytes.as_bytes(), &[0]].concat();
        self.note(writes, KeyRange::between(bytes.as_bytes(), &end).unwrap());
    }
}

impl Store for Watched {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        for read in &reads {
            match read {
                Read::Get(key) => self.note_key(false, key),
                Read::Scan { range, .. } | Read::Count(range) => self.note(false, *range),
                Read::ScanFirst { ranges, .. } => {
                    ranges.iter().for_each(|range| self.note(false, *range));
                }
            }
        }
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        for txn in &txns {
            txn.writes().iter().for_each(|write| self.note_key(true, write.key()));
            for compare in txn.compares() {
                match compare {
                    Compare::At { key, .. } | Compare::Value { key, .. } | Compare::Absent(key) => {
                        self.note_key(false, key);
                    }
                    Compare::Empty(range) => self.note(false, *range),
                }
            }
        }
        self.store.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.store.binding()
    }
}

/// Whether every key of `inner` lies in `outer`.
fn is_within(inner: &KeyRange, outer: &KeyRange) -> bool {
    outer.start() <= inner.start() && inner.end() <= outer.end()
}

/// A run from its creation to its deletion, with a split, a park and a registered worker.
#[test]
fn a_tenants_worker_touches_its_prefix_and_reads_its_allotment() {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let store = Watched { store: MapStore::new().with_bindings(), noted: Arc::clone(&noted) };
    let mut handle = StoreCoordinator::new(store, StoreConfig::new(1 << 32));
    let (worker, mut scratch) = (WorkerId::from_raw(1), AcquireScratch::new());
    handle.register_worker(at(1), TENANT, worker, None).unwrap();
    create(&mut handle, TENANT, 1, 2).unwrap();
    let mut claim = |shard| {
        let key = ShardKey::new(RUN, ShardId::from_raw(shard));
        let granted = handle.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch);
        granted.unwrap().lease
    };
    let (first, second) = (claim(0), claim(1));
    let spec = ShardSpecRef::new(b"b", b"c", b"");
    let plan = plan_split_residual_at_point(spec, b"bb").unwrap();
    handle.split_residual(at(3), TENANT, &first, &plan, op(2)).unwrap();
    handle.renew(at(4), TENANT, &first).unwrap();
    handle.checkpoint(at(4), TENANT, &first, CursorUpdate::new(b"ba", b""), op(3)).unwrap();
    handle.park_shard(at(4), TENANT, &second, ParkReason::Poisoned, op(4)).unwrap();
    let mut shards = Vec::new();
    handle.list_shards_into(at(5), TENANT, RUN, ShardFilter::default(), &mut shards).unwrap();
    handle.list_workers_into(at(5), TENANT, &mut Vec::new()).unwrap();
    handle.cancel_run(at(6), TENANT, RUN, op(5)).unwrap();
    handle.delete_run(at(7), TENANT, RUN, op(6)).unwrap();

    let noted = noted.lock().unwrap();
    let allotment = KeyRange::between(
        Key::Allotment { tenant: TENANT }.to_bytes().as_bytes(),
        &[Key::Allotment { tenant: TENANT }.to_bytes().as_bytes(), &[0]].concat(),
    );
    let (own, allotment) = (KeyRange::tenant(TENANT), allotment.unwrap());
    for (writes, range) in noted.iter() {
        let may = is_within(range, &own) || !writes && is_within(range, &allotment);
        assert!(may, "{}", String::from_utf8_lossy(range.start().as_bytes()));
    }
    assert!(noted.iter().any(|(_, range)| is_within(range, &allotment)), "it is read");
    assert!(noted.iter().filter(|(writes, _)| *writes).count() > 20);
}
