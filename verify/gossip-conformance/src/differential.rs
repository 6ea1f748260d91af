//! Runs the same random operations on the in-memory coordinator and on a backend under test.
//!
//! Answers, errors, events, listings and progress must be equal. A target that emits no events is
//! compared in everything else. Claims are excluded: the choice between several free shards is the
//! backend's, and the cases of [`claims`](super::claims) test the other properties. Each seed has a
//! tenant of its own, so all seeds run on one backend, which grows as a real store does.

use std::ops::Range;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcquireResultView, AcquireScratch, CollectEvents, CoordinationFacade, CoordinatorRuntimeConfig,
    EventCollector, HandoffId, InMemoryCoordinator, Lease, OpSequence, ParkReason, RunConfig,
    RunProgress, ShardAction, ShardFilter, ShardSummary, StateTransitionEvent, WorkerEntry,
    WorkerState,
};
use gossip_testkit::Rng;

use super::{ConformanceTarget, FenceFloors, Settings};

const RUN: RunId = RunId::from_raw(8);
/// Short, so that leases expire within a few steps.
const LEASE: u64 = 30;
/// Low, so that sequences reach the limit.
const SHARDS_MAX: usize = 12;
/// Kinds of steps.
const KINDS: u64 = 28;
/// The kind that renews many leases. Its events are in commit order, and a retried renewal commits
/// after the others.
const RENEW_MANY: u64 = 12;
/// Number of leases in one `renew_many`.
const RENEWED_TOGETHER: usize = 3;

/// Size of a comparison, and interval of the full listings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One sequence each.
    pub seeds: Range<u64>,
    /// Operations of one sequence.
    pub steps: usize,
    /// Number of operations between listings of the whole run on both sides; at least one. The run
    /// is also listed at the end of every sequence.
    pub list_every: usize,
}

/// Totals of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations on each side.
    pub operations: usize,
    /// Leases granted by each side.
    pub granted: usize,
}

/// Runs `plan` on `target` and on the in-memory coordinator. `prepare` is called before each
/// operation with a number drawn from the seed, for example to inject a fault.
///
/// # Panics
///
/// At the first difference, with its seed and step.
pub fn check_plan<T: ConformanceTarget>(
    target: &T,
    plan: &Plan,
    mut prepare: impl FnMut(&mut T::Backend, u64),
) -> Totals {
    let limits = Settings { max_shards_per_tenant: SHARDS_MAX, ..Settings::default() };
    let mut backend = target.fresh(limits);
    let mut memory = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        max_shards_per_tenant: SHARDS_MAX,
        ..CoordinatorRuntimeConfig::default()
    });
    let mut totals = Totals::default();
    for seed in plan.seeds.clone() {
        let pair = Pair {
            seed,
            rng: Rng::seeded(seed),
            clock: 10,
            target,
            ours: Side::new(seed, &mut backend),
            theirs: Side::new(seed, &mut memory),
        };
        let granted = pair.run(plan, &mut prepare);
        totals.operations += plan.steps;
        totals.granted += granted;
    }
    totals
}

/// One sequence on both sides.
struct Pair<'p, T: ConformanceTarget> {
    seed: u64,
    rng: Rng,
    clock: u64,
    target: &'p T,
    ours: Side<'p, T::Backend>,
    theirs: Side<'p, InMemoryCoordinator>,
}

impl<T: ConformanceTarget> Pair<'_, T> {
    /// Returns the number of granted leases.
    fn run(mut self, plan: &Plan, prepare: &mut impl FnMut(&mut T::Backend, u64)) -> usize {
        let mut ids = vec![ShardId::from_raw(0), ShardId::from_raw(1)];
        for step in 0..plan.steps {
            let drawn = self.draw(&ids);
            let fault = self.rng.next_u64();
            prepare(self.ours.backend, fault);
            self.compare_step(step, drawn);
            if step % plan.list_every == 0 || step + 1 == plan.steps {
                ids = self.compare_lists(step, drawn.now);
            }
        }
        self.theirs.leases.len()
    }

    fn draw(&mut self, ids: &[ShardId]) -> Draw {
        self.clock += self.rng.next_u64() % 6;
        let number = self.rng.next_u64();
        let pick = |shift: u32, sides: usize| {
            usize::try_from((number >> shift) % sides as u64).expect("below a usize")
        };
        Draw {
            kind: number % KINDS,
            now: LogicalTime::from_raw(self.clock),
            shard: ids[pick(8, ids.len())],
            // Mostly the latest, which are live.
            lease: self.theirs.leases.len().saturating_sub(1 + pick(16, 3)),
            worker: WorkerId::from_raw(1 + (number >> 24) % 3),
            key: [b'a' + u8::try_from((number >> 32) % 26).expect("below 26")],
            op: OpId::from_raw(1 + (number >> 40) % 60),
            sequence: self.draw_sequence(number >> 48),
        }
    }

    /// Half of the operations have no sequence; the others rise with the clock, some too late.
    fn draw_sequence(&self, number: u64) -> OpSequence {
        let raw = if number.is_multiple_of(2) { 0 } else { self.clock - (number >> 1) % 8 };
        OpSequence::try_from_raw(raw).expect("a small number")
    }

    fn compare_step(&mut self, step: usize, drawn: Draw) {
        let Self { seed, target, ours, theirs, .. } = self;
        let mut events = EventCollector::new();
        let expected = {
            let Side { tenant, backend, leases, scratch } = theirs;
            let call =
                |memory: &mut InMemoryCoordinator| perform(memory, *tenant, leases, scratch, drawn);
            backend.with_events(&mut events, call)
        };
        let (answer, emitted) = {
            let Side { tenant, backend, leases, scratch } = ours;
            target.with_events(backend, |backend| perform(backend, *tenant, leases, scratch, drawn))
        };
        assert_eq!(answer.0, expected.0, "seed {seed}, step {step}: {drawn:?}");
        if let Some(emitted) = emitted {
            let shown = |events: Vec<StateTransitionEvent>| {
                let mut shown: Vec<_> = events.iter().map(|event| format!("{event:?}")).collect();
                if drawn.kind == RENEW_MANY {
                    shown.sort_unstable();
                }
                shown
            };
            assert_eq!(
                shown(emitted),
                shown(events.drain()),
                "seed {seed}, step {step}: {drawn:?}"
            );
        }
        ours.leases.extend(answer.1);
        theirs.leases.extend(expected.1);
    }

    /// Compares the listings and returns the shards.
    fn compare_lists(&mut self, step: usize, now: LogicalTime) -> Vec<ShardId> {
        let (ours, theirs) = (self.ours.list(now), self.theirs.list(now));
        assert_eq!(ours, theirs, "seed {}, after step {step}", self.seed);
        let ids: Vec<ShardId> = ours.rows.iter().map(|row| row.shard).collect();
        // A deleted run has no shards, and later steps still address it.
        if ids.is_empty() { vec![ShardId::from_raw(0)] } else { ids }
    }
}

/// One backend with the leases it granted.
struct Side<'b, B> {
    tenant: TenantId,
    backend: &'b mut B,
    leases: Vec<Lease>,
    scratch: Box<AcquireScratch>,
}

/// The results of all queries about a run.
#[derive(Debug, PartialEq)]
struct Listing {
    rows: Vec<ShardSummary>,
    progress: Option<RunProgress>,
    candidates: usize,
    workers: Vec<WorkerEntry>,
    run: String,
}

/// One step of a sequence, drawn once for both sides.
#[derive(Clone, Copy, Debug)]
struct Draw {
    kind: u64,
    now: LogicalTime,
    /// Index of the shard in the listing.
    shard: ShardId,
    lease: usize,
    worker: WorkerId,
    key: [u8; 1],
    op: OpId,
    sequence: OpSequence,
}

impl<'b, B: CoordinationFacade + FenceFloors> Side<'b, B> {
    /// Creates a run of two shards for the tenant of this seed.
    fn new(seed: u64, backend: &'b mut B) -> Self {
        let mut name = [5; 32];
        name[..8].copy_from_slice(&seed.to_be_bytes());
        let tenant = TenantId::from_bytes(name);
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(3));
        let root = |id, start, end| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b"meta"),
            cursor: CursorUpdate::initial(),
        };
        let roots = [root(0, b"a", b"m"), root(1, b"m", b"z")];
        let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1_000));
        let config = config.expect("a valid lease duration");
        let made = backend.create_run_with_shards(now, tenant, RUN, config, &roots, op);
        made.expect("a new tenant");
        Self { tenant, backend, leases: Vec::new(), scratch: Box::default() }
    }

    fn list(&mut self, now: LogicalTime) -> Listing {
        let (backend, tenant) = (&mut *self.backend, self.tenant);
        let (mut rows, mut workers) = (Vec::new(), Vec::new());
        let _ = backend.list_shards_into(now, tenant, RUN, ShardFilter::all(), &mut rows);
        let _ = backend.list_workers_into(now, tenant, &mut workers);
        let mut found = ClaimCandidates::new();
        let first = WorkerId::from_raw(1);
        let _ = backend.collect_claim_candidates_into(now, tenant, RUN, first, 32, &mut found);
        Listing {
            rows,
            progress: backend.get_run_progress(now, tenant, RUN).ok(),
            candidates: found.len(),
            workers,
            run: format!("{:?}", backend.get_run(tenant, RUN)),
        }
    }
}

/// Executes one step and returns its answer and the granted lease.
fn perform<B: CoordinationFacade + FenceFloors>(
    backend: &mut B,
    tenant: TenantId,
    leases: &[Lease],
    scratch: &mut AcquireScratch,
    draw: Draw,
) -> (String, Option<Lease>) {
    let lease = leases.get(draw.lease % leases.len().max(1));
    match draw.kind {
        0..7 => grant(backend, tenant, scratch, draw),
        7..12 => (administer(backend, tenant, draw), None),
        RENEW_MANY => {
            let last = leases.len().saturating_sub(RENEWED_TOGETHER);
            let mut renewed = Vec::new();
            backend.renew_many(draw.now, tenant, &leases[last..], &mut renewed);
            (format!("{renewed:?}"), None)
        }
        _ => match lease {
            Some(lease) => {
                let mut lease = lease.clone();
                lease.set_sequence(draw.sequence);
                (hold(backend, tenant, draw, &lease), None)
            }
            None => (String::new(), None),
        },
    }
}

/// Steps that may grant a lease.
fn grant<B: CoordinationFacade>(
    backend: &mut B,
    tenant: TenantId,
    scratch: &mut AcquireScratch,
    draw: Draw,
) -> (String, Option<Lease>) {
    let key = ShardKey::new(RUN, draw.shard);
    let (now, worker) = (draw.now, draw.worker);
    match draw.kind {
        0 => describe(backend.accept(now, tenant, key, worker, handoff(draw.op), scratch)),
        _ => describe(backend.acquire_and_restore_into(now, tenant, key, worker, scratch)),
    }
}

fn describe<E: std::fmt::Debug>(view: Result<AcquireResultView<'_>, E>) -> (String, Option<Lease>) {
    // The `Debug` output of the view has lengths only, so the bytes are appended.
    let bytes = view.as_ref().ok().map(|view| {
        (view.snapshot.cursor().last_key().map(<[u8]>::to_vec), view.snapshot.spec().end.to_vec())
    });
    let answer = format!("{view:?} {bytes:?}");
    (answer, view.ok().map(|view| view.lease))
}

fn handoff(op: OpId) -> HandoffId {
    HandoffId::from_raw(op.as_raw() % 3)
}

/// No fence, or one that the shard may have.
fn expected_fence(draw: Draw) -> Option<FenceEpoch> {
    let fence = u64::from(draw.key[0] % 4);
    (fence > 0).then(|| FenceEpoch::from_raw(fence + 1))
}

/// Steps without a lease.
fn administer(
    backend: &mut (impl CoordinationFacade + FenceFloors),
    tenant: TenantId,
    draw: Draw,
) -> String {
    let (now, op, key) = (draw.now, draw.op, ShardKey::new(RUN, draw.shard));
    match draw.kind {
        7 => format!("{:?}", backend.unpark_shard(now, tenant, key, op)),
        8 => format!("{:?}", backend.revoke_lease(now, tenant, key, expected_fence(draw), op)),
        9 => {
            let (action, until) = (ShardAction::Release, now.saturating_add(10));
            format!("{:?}", backend.request_action(now, tenant, key, &action, until, op))
        }
        10 => match draw.key[0] % 3 {
            0 => format!("{:?}", backend.register_worker(now, tenant, draw.worker, None)),
            1 => format!("{:?}", backend.heartbeat(now, tenant, draw.worker, WorkerState::Idle)),
            _ => format!("{:?}", backend.heartbeat(now, tenant, draw.worker, WorkerState::Working)),
        },
        _ => match (draw.key[0] % 8, op.as_raw()) {
            (0 | 1, _) => format!("{:?}", backend.pause_run(now, tenant, RUN, op)),
            (2..6, _) => format!("{:?}", backend.resume_run(now, tenant, RUN, op)),
            (6, _) => format!("{:?}", backend.complete_run(now, tenant, RUN, op)),
            // Rare, because a terminal run can only be read.
            (_, 1..3) => format!("{:?}", backend.cancel_run(now, tenant, RUN, op)),
            (_, 15..21) => {
                // From a step to several: some calls raise by a step, others to the given fence.
                let at_least = FenceEpoch::from_raw((op.as_raw() - 14) << 20);
                format!("{:?}", backend.raise_fence_floor(now, tenant, RUN, at_least))
            }
            (_, 3..15) => format!("{:?}", backend.delete_run(now, tenant, RUN, op)),
            _ => format!("{:?}", backend.get_run(tenant, RUN)),
        },
    }
}

/// Steps of a current or former lease holder.
fn hold(
    backend: &mut impl CoordinationFacade,
    tenant: TenantId,
    draw: Draw,
    lease: &Lease,
) -> String {
    let (now, op) = (draw.now, draw.op);
    let cursor = CursorUpdate::try_from_parts(Some(&draw.key), None).expect("a key of one byte");
    match draw.kind {
        13..15 => format!("{:?}", backend.renew(now, tenant, lease)),
        15..20 => format!("{:?}", backend.checkpoint(now, tenant, lease, cursor, op)),
        20 => format!("{:?}", backend.complete(now, tenant, lease, cursor, op)),
        21 => format!("{:?}", backend.park_shard(now, tenant, lease, ParkReason::Other, op)),
        22 => format!("{:?}", backend.release(now, tenant, lease, ReleaseMode::Clean, op)),
        23..26 => split(backend, tenant, draw, lease),
        26 => {
            let (destination, deadline) = (draw.worker, now.saturating_add(20));
            let terms = OfferTerms { handoff: handoff(op), destination, deadline };
            let at = CursorUpdate::initial();
            format!("{:?}", backend.offer(now, tenant, lease, terms, at, op))
        }
        _ => format!("{:?}", backend.withdraw(now, tenant, lease, handoff(op), op)),
    }
}

fn split(
    backend: &mut impl CoordinationFacade,
    tenant: TenantId,
    draw: Draw,
    lease: &Lease,
) -> String {
    let (now, op) = (draw.now, draw.op);
    let mut rows = Vec::new();
    let _ = backend.list_shards_into(now, tenant, RUN, ShardFilter::all(), &mut rows);
    let row = rows.iter().find(|row| row.shard == lease.key().shard());
    let (start, end) = row.map_or((&b"a"[..], &b"z"[..]), |row| (&row.start, &row.end));
    let (left, right) =
        (ShardSpecRef::new(start, &draw.key, b"meta"), ShardSpecRef::new(&draw.key, end, b"meta"));
    if draw.kind == 25 {
        let child = |spec| SplitChild::new(spec, CursorUpdate::initial());
        return match SplitReplacePlan::try_new([child(left), child(right)]) {
            Ok(plan) => format!("{:?}", backend.split_replace(now, tenant, lease, &plan, op)),
            Err(error) => format!("{error:?}"),
        };
    }
    match SplitResidualPlan::try_new(left, right) {
        Ok(plan) => format!("{:?}", backend.split_residual(now, tenant, lease, &plan, op)),
        Err(error) => format!("{error:?}"),
    }
}
