//! The same random operations on the coordinator in memory and on one over a store: equal answers,
//! events, listings and progress, whatever the store does to its commits.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::{Fault, MapStore, StoreConfig, StoreCoordinator};
use crate::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([5; 32]);
const RUN: RunId = RunId::from_raw(8);
/// Short, so that leases run out within a few steps.
const LEASE: u64 = 30;
/// Steps of one sequence.
const STEPS: usize = 150;
/// Few enough that sequences meet them.
const SHARDS_MAX: usize = 12;

/// What both sides do.
trait Observed: CoordinationFacade {
    fn observed<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> (R, String);
}

impl Observed for InMemoryCoordinator {
    fn observed<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> (R, String) {
        let mut events = EventCollector::new();
        let result = self.with_events(&mut events, call);
        (result, format!("{:?}", events.drain()))
    }
}

impl Observed for StoreCoordinator<MapStore> {
    fn observed<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> (R, String) {
        let mut events = EventCollector::new();
        let result = self.with_events(&mut events, call);
        (result, format!("{:?}", events.drain()))
    }
}

/// One backend, with the leases it gave out.
struct Side<B> {
    backend: B,
    leases: Vec<Lease>,
    scratch: Box<AcquireScratch>,
}

/// One step of a sequence, drawn once for both sides.
#[derive(Clone, Copy, Debug)]
struct Draw {
    kind: u64,
    now: LogicalTime,
    /// Which shard, of those that are listed.
    shard: ShardId,
    lease: usize,
    worker: WorkerId,
    key: [u8; 1],
    op: OpId,
}

impl<B: Observed> Side<B> {
    fn new(backend: B) -> Self {
        let mut side = Self { backend, leases: Vec::new(), scratch: Box::default() };
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(3)).unwrap();
        let root = |id, start, end| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b"meta"),
            cursor: CursorUpdate::initial(),
        };
        let roots = [root(0, b"a", b"m"), root(1, b"m", b"z")];
        let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1_000));
        side.backend.create_run_with_shards(now, TENANT, RUN, config, &roots, op).unwrap();
        side
    }

    /// Answers what the step answered and which events it emitted.
    fn step(&mut self, draw: Draw) -> (String, String) {
        let Self { backend, leases, scratch } = self;
        let (mut answer, mut granted) = (String::new(), None);
        let ((), events) = backend.observed(|backend| {
            let lease = leases.get(draw.lease % leases.len().max(1)).cloned();
            answer = match draw.kind {
                0..6 => {
                    let key = ShardKey::new(RUN, draw.shard);
                    let (now, worker) = (draw.now, draw.worker);
                    let view = match draw.kind {
                        0 => backend
                            .accept(now, TENANT, key, worker, handoff(draw.op), scratch)
                            .map_err(|error| format!("{error:?}")),
                        _ => backend
                            .acquire_and_restore_into(now, TENANT, key, worker, scratch)
                            .map_err(|error| format!("{error:?}")),
                    };
                    granted = view.as_ref().ok().map(|view| view.lease.clone());
                    let bytes = view.as_ref().ok().map(|view| {
                        (
                            view.snapshot.cursor().last_key().map(<[u8]>::to_vec),
                            view.snapshot.spec().end.to_vec(),
                        )
                    });
                    format!("{view:?} {bytes:?}")
                }
                6..10 => administer(backend, draw),
                _ => lease.map_or_else(String::new, |lease| holder(backend, draw, &lease)),
            };
        });
        leases.extend(granted);
        (answer, events)
    }

    fn list(&mut self, now: LogicalTime) -> (Vec<ShardSummary>, Option<RunProgress>, usize) {
        let mut rows = Vec::new();
        let _ = self.backend.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows);
        let mut found = ClaimCandidates::new();
        let _ = self.backend.collect_claim_candidates_into(
            now,
            TENANT,
            RUN,
            WorkerId::from_raw(1),
            32,
            &mut found,
        );
        (rows, self.backend.get_run_progress(now, TENANT, RUN).ok(), found.len())
    }
}

fn handoff(op: OpId) -> HandoffId {
    HandoffId::from_raw(op.as_raw() % 3)
}

fn administer(backend: &mut impl CoordinationFacade, draw: Draw) -> String {
    let (now, op, key) = (draw.now, draw.op, ShardKey::new(RUN, draw.shard));
    match draw.kind {
        6 => format!("{:?}", backend.unpark_shard(now, TENANT, key, op)),
        7 => format!("{:?}", backend.revoke_lease(now, TENANT, key, op)),
        8 => {
            let until = now.saturating_add(10);
            format!(
                "{:?}",
                backend.request_action(now, TENANT, key, &ShardAction::Release, until, op)
            )
        }
        _ => match draw.key[0] % 8 {
            0 | 1 => format!("{:?}", backend.pause_run(now, TENANT, RUN, op)),
            2..6 => format!("{:?}", backend.resume_run(now, TENANT, RUN, op)),
            6 => format!("{:?}", backend.complete_run(now, TENANT, RUN, op)),
            _ => format!("{:?}", backend.get_run(TENANT, RUN)),
        },
    }
}

fn holder(backend: &mut impl CoordinationFacade, draw: Draw, lease: &Lease) -> String {
    let (now, op) = (draw.now, draw.op);
    let cursor = CursorUpdate::try_from_parts(Some(&draw.key), None).unwrap();
    let mut rows = Vec::new();
    let _ = backend.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows);
    let row = rows.iter().find(|row| row.shard == lease.key().shard());
    let (start, end) = row.map_or((&b"a"[..], &b"z"[..]), |row| (&row.start, &row.end));
    let (left, right) =
        (ShardSpecRef::new(start, &draw.key, b"meta"), ShardSpecRef::new(&draw.key, end, b"meta"));
    match draw.kind {
        10..12 => format!("{:?}", backend.renew(now, TENANT, lease)),
        12..17 => format!("{:?}", backend.checkpoint(now, TENANT, lease, cursor, op)),
        17 => format!("{:?}", backend.complete(now, TENANT, lease, cursor, op)),
        18 => format!("{:?}", backend.park_shard(now, TENANT, lease, ParkReason::Other, op)),
        19 => format!("{:?}", backend.release(now, TENANT, lease, ReleaseMode::Clean, op)),
        20 | 21 => match SplitResidualPlan::try_new(left, right) {
            Ok(plan) => format!("{:?}", backend.split_residual(now, TENANT, lease, &plan, op)),
            Err(error) => format!("{error:?}"),
        },
        22 => {
            let child = |spec| SplitChild::new(spec, CursorUpdate::initial());
            let plan = SplitReplacePlan::try_new([child(left), child(right)]).unwrap();
            format!("{:?}", backend.split_replace(now, TENANT, lease, &plan, op))
        }
        23 => {
            let (destination, deadline) = (draw.worker, now.saturating_add(20));
            let terms = OfferTerms { handoff: handoff(op), destination, deadline };
            format!("{:?}", backend.offer(now, TENANT, lease, terms, CursorUpdate::initial(), op))
        }
        _ => format!("{:?}", backend.withdraw(now, TENANT, lease, handoff(op), op)),
    }
}

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Plays a sequence on both and compares after every step; answers how many steps were granted or
/// executed. `fault` chooses what the next commit of the store meets.
fn compare(seed: u64, fault: impl Fn(u64) -> Fault) -> usize {
    let mut state = seed;
    let mut memory = Side::new(InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        max_shards_per_tenant: SHARDS_MAX,
        slab_capacity: 1 << 20,
        ..CoordinatorRuntimeConfig::default()
    }));
    let config = StoreConfig { max_shards_per_tenant: SHARDS_MAX, ..StoreConfig::new(seed << 20) };
    let mut store = Side::new(StoreCoordinator::new(MapStore::new(), config));
    let (mut clock, mut done) = (10, 0);
    let mut ids: Vec<ShardId> = vec![ShardId::from_raw(0), ShardId::from_raw(1)];
    for step in 0..STEPS {
        clock += draw(&mut state) % 6;
        let number = draw(&mut state);
        let drawn = Draw {
            kind: number % 25,
            now: LogicalTime::from_raw(clock),
            shard: ids[usize::try_from((number >> 8) % ids.len() as u64).unwrap()],
            // Mostly the latest, which are live.
            lease: store
                .leases
                .len()
                .saturating_sub(1 + usize::try_from((number >> 16) % 3).unwrap()),
            worker: WorkerId::from_raw(1 + (number >> 24) % 3),
            key: [b'a' + u8::try_from((number >> 32) % 26).unwrap()],
            op: OpId::from_raw(1 + (number >> 40) % 60),
        };
        let faults = draw(&mut state);
        store.backend.store_mut().forget_faults();
        (0..3).for_each(|nth| store.backend.store_mut().inject(fault(faults >> (8 * nth))));
        let (ours, theirs) = (store.step(drawn), memory.step(drawn));
        assert_eq!(ours, theirs, "seed {seed}, step {step}: {drawn:?}");
        let (ours, theirs) = (store.list(drawn.now), memory.list(drawn.now));
        assert_eq!(ours, theirs, "seed {seed}, step {step}: {drawn:?}");
        ids = ours.0.iter().map(|row| row.shard).collect();
        done += usize::from(theirs.1.is_some() && memory.leases.len() > done);
    }
    done
}

#[test]
fn a_store_answers_as_memory_answers() {
    let granted: usize = (0..60).map(|seed| compare(seed, |_| Fault::None)).sum();
    assert!(granted > 60, "only {granted} grants");
}

#[test]
fn a_store_that_loses_replies_answers_as_memory_answers() {
    (100..140).for_each(|seed| {
        compare(seed, |_| Fault::LoseReply);
    });
}

#[test]
fn a_store_that_loses_requests_answers_as_memory_answers() {
    (200..240).for_each(|seed| {
        compare(seed, |_| Fault::LoseRequest);
    });
}

#[test]
fn a_store_with_any_faults_answers_as_memory_answers() {
    let faults = [Fault::None, Fault::LoseReply, Fault::LoseRequest, Fault::Conflict];
    (300..360).for_each(|seed| {
        compare(seed, |number| faults[usize::try_from(number % 4).unwrap()]);
    });
}
