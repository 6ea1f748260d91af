//! The table of round trips in the module's documentation is counted on the model store.

use std::collections::BTreeMap;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::core::Core;
use super::{MapStore, StoreConfig, StoreCoordinator, StoreLimits};
use crate::protocol::{Checkpoint, ClaimCandidates, OfferTerms, ReleaseMode};
use crate::*;

const DOCUMENT: &str = include_str!("mod.rs");
const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(6);
const WORKER: WorkerId = WorkerId::from_raw(1);
const OTHER: WorkerId = WorkerId::from_raw(2);

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

const fn shard(number: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(number))
}

const fn handoff(number: u64) -> HandoffId {
    HandoffId::from_raw(number)
}

fn cursor(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::try_from_parts(Some(key), None).unwrap()
}

/// What the documentation says of each operation.
fn documented() -> BTreeMap<&'static str, u64> {
    let rows = DOCUMENT.lines().skip_while(|line| *line != "//! # Round trips");
    let rows = rows.skip_while(|line| !line.starts_with("//! |---")).skip(1);
    rows.map_while(|line| line.strip_prefix("//! | "))
        .flat_map(|row| {
            let mut cells = row.split(" | ");
            let (names, trips) = (cells.next().unwrap(), cells.next().unwrap());
            names.split(", ").map(move |name| (name, trips.parse().unwrap()))
        })
        .collect()
}

/// Round trips of each operation.
struct Counted {
    handle: Handle,
    trips: BTreeMap<&'static str, u64>,
}

impl Counted {
    fn call<R>(&mut self, name: &'static str, call: impl FnOnce(&mut Handle) -> R) -> R {
        let before = trips(&self.handle);
        let answer = call(&mut self.handle);
        self.trips.insert(name, trips(&self.handle) - before);
        answer
    }
}

fn trips(handle: &Handle) -> u64 {
    handle.store().read_count() + handle.store().batch_count()
}

fn acquire(handle: &mut Handle, now: u64, number: u64, worker: WorkerId) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let granted =
        handle.acquire_and_restore_into(at(now), TENANT, shard(number), worker, &mut scratch);
    granted.unwrap().lease
}

fn roots(count: u64) -> Vec<([u8; 2], [u8; 2])> {
    let bound = |number: u64| [b'a' + u8::try_from(number).unwrap(), 0];
    (0..count).map(|number| (bound(number), bound(number + 1))).collect()
}

/// A run of twenty shards is made.
fn make(counted: &mut Counted, run: RunId) {
    let bounds = roots(20);
    let roots: Vec<_> = bounds
        .iter()
        .zip(0..)
        .map(|((start, end), id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    counted.call("create_run", |it| it.create_run(at(1), TENANT, run, config)).unwrap();
    let made =
        counted.call("register_shards", |it| it.register_shards(at(1), TENANT, run, &roots, op(1)));
    made.unwrap();
}

#[test]
fn operations_take_as_many_round_trips_as_documented() {
    let handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(9 << 40));
    let mut counted = Counted { handle, trips: BTreeMap::new() };
    make(&mut counted, RUN);
    call_grants(&mut counted);
    call_holder(&mut counted);
    call_splits(&mut counted);
    call_administrator(&mut counted);
    call_queries(&mut counted);
    call_workers(&mut counted);
    assert_eq!(counted.trips, documented());
}

fn call_grants(counted: &mut Counted) {
    let mut scratch = Box::new(AcquireScratch::new());
    let claimed = counted.call("claim", |it| {
        it.claim_next_available(at(3), TENANT, RUN, WORKER, &mut scratch).map(|view| view.lease)
    });
    let claimed = claimed.unwrap().shard().as_raw();
    // Whichever it was, the shards named below are free for sure.
    let free = |number: u64| (1..20).filter(|id| *id != claimed).nth(number as usize).unwrap();
    let lease = counted.call("acquire", |it| acquire(it, 3, free(0), WORKER));
    let terms = OfferTerms { handoff: handoff(1), destination: OTHER, deadline: at(50) };
    let offered = counted
        .call("offer", |it| it.offer(at(4), TENANT, &lease, terms, CursorUpdate::initial(), op(2)));
    offered.unwrap();
    let key = lease.key();
    let accepted = counted.call("accept", |it| {
        it.accept(at(5), TENANT, key, OTHER, handoff(1), &mut scratch).map(|view| view.lease)
    });
    accepted.unwrap();
    let [one, other] = [1, 2].map(|number| acquire(&mut counted.handle, 6, free(number), WORKER));
    counted.call("renew", |it| it.renew(at(7), TENANT, &one)).unwrap();
    let (leases, mut renewed) = ([one, other], Vec::new());
    counted.call("renew_many", |it| it.renew_many(at(8), TENANT, &leases, &mut renewed));
    assert!(renewed.iter().all(Result::is_ok));
}

/// Leases of unclaimed shards, long after all others expired.
fn call_holder(counted: &mut Counted) {
    let [a, b, c, d] = [10, 11, 12, 13].map(|id| acquire(&mut counted.handle, 200, id, WORKER));
    let start = |lease: &Lease| roots(20)[lease.shard().as_raw() as usize].0;
    let saved = counted.call("checkpoint", |it| {
        it.checkpoint(at(201), TENANT, &a, cursor(&[start(&a)[0], 1]), op(3))
    });
    saved.unwrap();
    let done =
        counted.call("complete", |it| it.complete(at(202), TENANT, &b, cursor(&start(&b)), op(4)));
    done.unwrap();
    let parked =
        counted.call("park", |it| it.park_shard(at(203), TENANT, &c, ParkReason::Other, op(5)));
    parked.unwrap();
    let freed =
        counted.call("release", |it| it.release(at(204), TENANT, &d, ReleaseMode::Clean, op(6)));
    freed.unwrap();
    counted.call("withdraw", |it| it.withdraw(at(205), TENANT, &a, handoff(2), op(7))).unwrap();
    let unparked = counted.call("unpark", |it| it.unpark_shard(at(206), TENANT, c.key(), op(8)));
    unparked.unwrap();
}

fn call_splits(counted: &mut Counted) {
    let lease = acquire(&mut counted.handle, 210, 14, WORKER);
    let (start, end) = roots(20)[14];
    let (near, far) = ([start[0], 5], [start[0], 9]);
    let plan = SplitResidualPlan::try_new(
        ShardSpecRef::new(&start, &far, b""),
        ShardSpecRef::new(&far, &end, b""),
    );
    let plan = plan.unwrap();
    let shrunk = counted
        .call("split_residual", |it| it.split_residual(at(211), TENANT, &lease, &plan, op(9)));
    shrunk.unwrap();
    let child =
        |start, end| SplitChild::new(ShardSpecRef::new(start, end, b""), CursorUpdate::initial());
    let plan = SplitReplacePlan::try_new([child(&start, &near), child(&near, &far)]).unwrap();
    let replaced = counted
        .call("split_replace", |it| it.split_replace(at(212), TENANT, &lease, &plan, op(10)));
    replaced.unwrap();
}

fn call_administrator(counted: &mut Counted) {
    // The administrator is not the one who holds the shard.
    let config = StoreConfig::new(10 << 40);
    let mut holder = StoreCoordinator::new(counted.handle.store().another_handle(), config);
    let held = acquire(&mut holder, 220, 15, WORKER).key();
    let asked = counted.call("request_action", |it| {
        it.request_action(at(221), TENANT, held, &ShardAction::Release, at(300), op(11))
    });
    asked.unwrap();
    counted
        .call("revoke_lease", |it| it.revoke_lease(at(222), TENANT, held, None, op(12)))
        .unwrap();
    counted.call("pause_run", |it| it.pause_run(at(223), TENANT, RUN, op(13))).unwrap();
    let refused = counted.call("complete_run", |it| it.complete_run(at(224), TENANT, RUN, op(14)));
    let unsettled = matches!(refused, Err(RunTransitionError::NotSettled { .. }));
    assert!(unsettled && counted.trips["complete_run"] == 1, "its counts are of one instant");
    // A run that can be completed.
    let run = RunId::from_raw(7);
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"b", b""),
        cursor: CursorUpdate::initial(),
    };
    let it = &mut counted.handle;
    it.create_run_with_shards(at(1), TENANT, run, config, &[root], op(1)).unwrap();
    let mut scratch = Box::new(AcquireScratch::new());
    let key = ShardKey::new(run, ShardId::from_raw(0));
    let lease =
        it.acquire_and_restore_into(at(2), TENANT, key, WORKER, &mut scratch).unwrap().lease;
    it.complete(at(3), TENANT, &lease, cursor(b"a"), op(2)).unwrap();
    counted.call("complete_run", |it| it.complete_run(at(4), TENANT, run, op(3))).unwrap();
    counted.call("delete_run", |it| it.delete_run(at(5), TENANT, run, op(4))).unwrap();
}

fn call_queries(counted: &mut Counted) {
    let mut found = ClaimCandidates::new();
    let look = counted.call("candidates", |it| {
        it.collect_claim_candidates_into(at(230), TENANT, RUN, WORKER, 32, &mut found)
    });
    look.unwrap();
    counted.call("get_run", |it| it.get_run(TENANT, RUN)).unwrap();
    counted.call("get_run_progress", |it| it.get_run_progress(at(230), TENANT, RUN)).unwrap();
    let mut rows = Vec::new();
    let listed = counted.call("list_shards", |it| {
        it.list_shards_into(at(230), TENANT, RUN, ShardFilter::all(), &mut rows)
    });
    listed.unwrap();
    assert!(rows.len() > 20);
    let mut runs = Vec::new();
    counted
        .call("list_active_runs", |it| it.list_active_runs_into(TENANT, None, 9, &mut runs))
        .unwrap();
    assert_eq!(runs, [RUN]);
    counted.call("list_runs", |it| it.list_runs_into(TENANT, None, 9, &mut runs)).unwrap();
    counted.call("cancel_run", |it| it.cancel_run(at(231), TENANT, RUN, op(20))).unwrap();
}

fn call_workers(counted: &mut Counted) {
    counted.call("register_worker", |it| it.register_worker(at(5), TENANT, WORKER, None)).unwrap();
    let heard =
        counted.call("heartbeat", |it| it.heartbeat(at(6), TENANT, WORKER, WorkerState::Working));
    heard.unwrap();
    let mut entries = Vec::new();
    counted.call("list_workers", |it| it.list_workers_into(at(7), TENANT, &mut entries)).unwrap();
}

/// The longest block that glibc keeps ready for each thread. A longer one is looked for among those
/// of all threads, and merged with its neighbours when it is given back: seven hundred instructions
/// for each checkpoint.
const BLOCK_LEN_MAX: usize = 1_032;

#[test]
fn a_checkpoint_on_its_way_takes_a_small_block() {
    let handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(9 << 40));
    let mut counted = Counted { handle, trips: BTreeMap::new() };
    make(&mut counted, RUN);
    let lease = acquire(&mut counted.handle, 3, 0, WORKER);
    let mut core = Core::new(StoreConfig::new(10 << 40), StoreLimits::GENEROUS);
    let operation =
        Checkpoint { tenant: TENANT, lease: &lease, cursor: cursor(b"a"), op_id: op(4) };
    let len = core.on_shard(at(4), operation).byte_count();
    assert!(len <= BLOCK_LEN_MAX, "{len} bytes");
}
