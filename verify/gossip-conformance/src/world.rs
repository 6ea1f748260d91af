//! A backend with shorthand calls, times and ids for the cases.
//!
//! Every call goes directly to the trait; the only state here is the current tenant and run.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcceptError, AcquireError, AcquireResultView, AcquireScratch, CapacityHint, CheckpointError,
    CheckpointResult, ClaimError, CompleteError, CoordinationBackend, CreateRunError, EventKind,
    GetRunError, HandoffId, IdempotentOutcome, Lease, OfferError, ParkError, ParkReason,
    RegisterShardsError, ReleaseError, RenewError, RenewResult, RevokeLeaseError, RunConfig,
    RunManagement, RunOpResult, RunProgress, RunRecord, ShardClaiming, ShardFilter, ShardSummary,
    SplitError, WithdrawError,
};

use super::{Ability, ConformanceTarget, Settings, note_ability};

/// The tenant of most cases.
pub(super) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// Another tenant.
pub(super) const STRANGER: TenantId = TenantId::from_bytes([9; 32]);
/// The run of most cases.
pub(super) const RUN: RunId = RunId::from_raw(1);
/// A second run.
pub(super) const OTHER_RUN: RunId = RunId::from_raw(2);
/// Lease duration.
pub(super) const LEASE: u64 = 100;
/// The id under which [`World::two_shards`] registers.
pub(super) const REGISTRATION: u64 = 1_000;

/// Short for a time.
pub(super) const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// Short for an operation id.
pub(super) const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// Short for a worker.
pub(super) const fn worker(number: u64) -> WorkerId {
    WorkerId::from_raw(number)
}

/// Short for a shard.
pub(super) const fn shard(number: u64) -> ShardId {
    ShardId::from_raw(number)
}

/// Short for a shard of [`RUN`].
pub(super) const fn key(number: u64) -> ShardKey {
    ShardKey::new(RUN, shard(number))
}

/// Short for a fence.
pub(super) const fn fence(number: u64) -> FenceEpoch {
    FenceEpoch::from_raw(number)
}

/// Short for a handoff.
pub(super) const fn handoff(number: u64) -> HandoffId {
    HandoffId::from_raw(number)
}

/// Returns run settings that park a shard after `retries` attempts without progress.
pub(super) const fn config(retries: Option<u32>) -> RunConfig {
    match RunConfig::try_new(CursorSemantics::Completed, LEASE, retries) {
        Ok(config) => config,
        Err(_) => panic!("a lease of a hundred ticks is valid"),
    }
}

/// Returns a root shard without a cursor.
pub(super) const fn root<'a>(id: u64, start: &'a [u8], end: &'a [u8]) -> InitialShardInput<'a> {
    InitialShardInput {
        shard_id: shard(id),
        spec: ShardSpecRef::new(start, end, b"meta"),
        cursor: CursorUpdate::initial(),
    }
}

/// The two roots of most cases.
pub(super) const ROOTS: [InitialShardInput<'static>; 2] =
    [root(0, b"a", b"m"), root(1, b"m", b"z")];

/// Returns a spec with the metadata of the roots.
pub(super) const fn spec<'a>(start: &'a [u8], end: &'a [u8]) -> ShardSpecRef<'a> {
    ShardSpecRef::new(start, end, b"meta")
}

/// Returns a child of a split.
pub(super) const fn child<'a>(
    start: &'a [u8],
    end: &'a [u8],
    cursor: CursorUpdate<'a>,
) -> SplitChild<'a> {
    SplitChild::new(spec(start, end), cursor)
}

/// Returns a replacing split into children without cursors, between consecutive `cuts`.
pub(super) fn replace_at<'a>(cuts: &[&'a [u8]]) -> SplitReplacePlan<'a> {
    let pairs = cuts.windows(2).map(|pair| child(pair[0], pair[1], CursorUpdate::initial()));
    SplitReplacePlan::try_new(pairs).expect("two or more children")
}

/// Returns a residual split of `[start, end)` at `cut`.
pub(super) fn residual_at<'a>(
    start: &'a [u8],
    cut: &'a [u8],
    end: &'a [u8],
) -> SplitResidualPlan<'a> {
    let plan = SplitResidualPlan::try_new(spec(start, cut), spec(cut, end));
    plan.expect("the parts differ")
}

/// An owned copy of a grant.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) metadata: Vec<u8>,
    pub(super) last_key: Option<Vec<u8>>,
    pub(super) token: Option<Vec<u8>>,
    pub(super) parent: Option<ShardId>,
    pub(super) spawned: Vec<ShardId>,
    pub(super) attempts: u32,
    pub(super) capacity: CapacityHint,
}

impl Held {
    fn of(acquired: &AcquireResultView<'_>) -> Self {
        let (spec, cursor) = (acquired.snapshot.spec(), acquired.snapshot.cursor());
        Self {
            lease: acquired.lease.clone(),
            start: spec.start.to_vec(),
            end: spec.end.to_vec(),
            metadata: spec.metadata.to_vec(),
            last_key: cursor.last_key().map(<[u8]>::to_vec),
            token: cursor.token().map(<[u8]>::to_vec),
            parent: acquired.snapshot.parent(),
            spawned: acquired.snapshot.spawned().to_vec(),
            attempts: acquired.attempts,
            capacity: acquired.capacity,
        }
    }

    pub(super) fn fence(&self) -> u64 {
        self.lease.fence().as_raw()
    }

    pub(super) fn deadline(&self) -> u64 {
        self.lease.deadline().as_raw()
    }

    pub(super) fn key(&self) -> ShardKey {
        self.lease.key()
    }
}

/// A backend with the current tenant and run.
pub(super) struct World<'t, T: ConformanceTarget> {
    pub(super) target: &'t T,
    pub(super) backend: T::Backend,
    /// The tenant on whose behalf calls are made.
    pub(super) tenant: TenantId,
    /// The run of calls that concern runs.
    pub(super) run: RunId,
    scratch: Box<AcquireScratch>,
}

impl<'t, T: ConformanceTarget> World<'t, T> {
    /// Creates a world on an empty store.
    pub(super) fn empty(target: &'t T, settings: Settings) -> Self {
        Self::on(target, target.fresh(settings))
    }

    /// Creates a world on an existing handle.
    pub(super) fn on(target: &'t T, backend: T::Backend) -> Self {
        let scratch = Box::new(AcquireScratch::new());
        Self { target, backend, tenant: TENANT, run: RUN, scratch }
    }

    /// Creates an active run with the shards `[a, m)` and `[m, z)` at time 1; no shard is parked
    /// automatically.
    pub(super) fn two_shards(target: &'t T) -> Self {
        Self::with_config(target, config(None))
    }

    /// Creates the same run with other settings.
    pub(super) fn with_config(target: &'t T, config: RunConfig) -> Self {
        let mut world = Self::empty(target, Settings::default());
        let made = world.make_run(config, &ROOTS, REGISTRATION);
        made.expect("a new run with two valid shards");
        world
    }

    /// Creates the world's run with `roots` at time 1.
    pub(super) fn make_run(
        &mut self,
        config: RunConfig,
        roots: &[InitialShardInput<'_>],
        op_id: u64,
    ) -> Result<IdempotentOutcome<RunOpResult>, CreateRunError> {
        let (tenant, run) = (self.tenant, self.run);
        self.backend.create_run_with_shards(at(1), tenant, run, config, roots, op(op_id))
    }

    pub(super) fn register(
        &mut self,
        now: u64,
        roots: &[InitialShardInput<'_>],
        op_id: u64,
    ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError> {
        self.backend.register_shards(at(now), self.tenant, self.run, roots, op(op_id))
    }

    pub(super) fn try_acquire(
        &mut self,
        now: u64,
        key: ShardKey,
        by: u64,
    ) -> Result<Held, AcquireError> {
        let (tenant, by) = (self.tenant, worker(by));
        let acquired =
            self.backend.acquire_and_restore_into(at(now), tenant, key, by, &mut self.scratch);
        acquired.map(|acquired| Held::of(&acquired))
    }

    /// Acquires a free shard.
    pub(super) fn acquire(&mut self, now: u64, key: ShardKey, by: u64) -> Held {
        self.try_acquire(now, key, by).expect("the shard is free")
    }

    pub(super) fn claim(&mut self, now: u64, by: u64) -> Result<Held, ClaimError> {
        let (tenant, run, by) = (self.tenant, self.run, worker(by));
        let claimed =
            self.backend.claim_next_available(at(now), tenant, run, by, &mut self.scratch);
        claimed.map(|acquired| Held::of(&acquired))
    }

    pub(super) fn renew(&mut self, now: u64, lease: &Lease) -> Result<RenewResult, RenewError> {
        self.backend.renew(at(now), self.tenant, lease)
    }

    pub(super) fn checkpoint(
        &mut self,
        now: u64,
        lease: &Lease,
        last_key: &[u8],
        op_id: u64,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        let cursor = CursorUpdate::with_last_key(last_key);
        self.backend.checkpoint(at(now), self.tenant, lease, cursor, op(op_id))
    }

    pub(super) fn complete(
        &mut self,
        now: u64,
        lease: &Lease,
        last_key: &[u8],
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, CompleteError> {
        let cursor = CursorUpdate::with_last_key(last_key);
        self.backend.complete(at(now), self.tenant, lease, cursor, op(op_id))
    }

    pub(super) fn park(
        &mut self,
        now: u64,
        lease: &Lease,
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, ParkError> {
        self.backend.park_shard(at(now), self.tenant, lease, ParkReason::Poisoned, op(op_id))
    }

    /// Replaces a shard and returns the ids of its children.
    pub(super) fn replace(
        &mut self,
        now: u64,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: u64,
    ) -> Result<IdempotentOutcome<Vec<ShardId>>, SplitError> {
        let split = self.backend.split_replace(at(now), self.tenant, lease, plan, op(op_id))?;
        Ok(split.map(|split| split.children.to_vec()))
    }

    /// Splits a residual off a shard and returns its id.
    pub(super) fn shrink(
        &mut self,
        now: u64,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: u64,
    ) -> Result<IdempotentOutcome<ShardId>, SplitError> {
        let split = self.backend.split_residual(at(now), self.tenant, lease, plan, op(op_id))?;
        Ok(split.map(|split| split.residual))
    }

    pub(super) fn release(
        &mut self,
        now: u64,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, ReleaseError> {
        self.backend.release(at(now), self.tenant, lease, mode, op(op_id))
    }

    /// Offers a shard to worker `to` until `until`, without moving the cursor.
    pub(super) fn offer(
        &mut self,
        now: u64,
        lease: &Lease,
        (id, to, until): (u64, u64, u64),
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        let terms =
            OfferTerms { handoff: handoff(id), destination: worker(to), deadline: at(until) };
        let keep = CursorUpdate::initial();
        self.backend.offer(at(now), self.tenant, lease, terms, keep, op(op_id))
    }

    pub(super) fn accept(
        &mut self,
        now: u64,
        key: ShardKey,
        by: u64,
        id: u64,
    ) -> Result<Held, AcceptError> {
        let (tenant, by, id) = (self.tenant, worker(by), handoff(id));
        let accepted = self.backend.accept(at(now), tenant, key, by, id, &mut self.scratch);
        accepted.map(|acquired| Held::of(&acquired))
    }

    pub(super) fn withdraw(
        &mut self,
        now: u64,
        lease: &Lease,
        id: u64,
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        self.backend.withdraw(at(now), self.tenant, lease, handoff(id), op(op_id))
    }

    pub(super) fn revoke(
        &mut self,
        now: u64,
        key: ShardKey,
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, RevokeLeaseError> {
        self.backend.revoke_lease(at(now), self.tenant, key, None, op(op_id))
    }

    /// Revokes the lease with this fence.
    pub(super) fn revoke_fence(
        &mut self,
        now: u64,
        key: ShardKey,
        fence: u64,
        op_id: u64,
    ) -> Result<IdempotentOutcome<()>, RevokeLeaseError> {
        let fence = Some(FenceEpoch::from_raw(fence));
        self.backend.revoke_lease(at(now), self.tenant, key, fence, op(op_id))
    }

    /// Acquires a shard and completes it at its start key.
    pub(super) fn finish(&mut self, now: u64, key: ShardKey, op_id: u64) {
        let held = self.acquire(now, key, 1);
        let start = held.start.clone();
        self.complete(now, &held.lease, &start, op_id)
            .expect("the start key is a valid final cursor");
    }

    pub(super) fn run_record(&mut self) -> Result<RunRecord, GetRunError> {
        self.backend.get_run(self.tenant, self.run)
    }

    pub(super) fn progress(&mut self, now: u64) -> RunProgress {
        let progress = self.backend.get_run_progress(at(now), self.tenant, self.run);
        progress.expect("the run exists")
    }

    pub(super) fn list(&mut self, now: u64, filter: ShardFilter) -> Vec<ShardSummary> {
        let mut rows = Vec::new();
        let listed =
            self.backend.list_shards_into(at(now), self.tenant, self.run, filter, &mut rows);
        listed.expect("the run exists");
        rows
    }

    /// Returns the ids in a listing.
    pub(super) fn ids(&mut self, now: u64, filter: ShardFilter) -> Vec<ShardId> {
        self.list(now, filter).iter().map(|row| row.shard).collect()
    }

    /// Returns the row of one shard.
    pub(super) fn row(&mut self, now: u64, shard: ShardId) -> ShardSummary {
        let rows = self.list(now, ShardFilter::all());
        rows.into_iter().find(|row| row.shard == shard).expect("the shard is in the listing")
    }

    /// Loses the reply to the next commit, if the target can.
    pub(super) fn lose_reply(&mut self) {
        let is_lost = self.target.lose_next_reply(&mut self.backend);
        note_ability(self.target, Ability::LostReplies, is_lost);
    }

    /// Runs `call` and returns its events; `None` if the target collects none.
    pub(super) fn events_of<R>(
        &mut self,
        call: impl FnOnce(&mut T::Backend) -> R,
    ) -> Option<Vec<EventKind>> {
        let (_, events) = self.target.with_events(&mut self.backend, call);
        note_ability(self.target, Ability::Events, events.is_some());
        Some(events?.into_iter().map(|event| event.kind).collect())
    }
}

/// Returns the variant name of a value from its `Debug` output.
pub(super) fn word(value: &impl std::fmt::Debug) -> String {
    let shown = format!("{value:?}");
    shown.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// Returns `Executed`, `Replayed`, or the name of the refusal.
pub(super) fn answer<V: std::fmt::Debug, E: std::fmt::Debug>(result: &Result<V, E>) -> String {
    match result {
        Ok(value) => word(value),
        Err(error) => word(error),
    }
}

/// Names of the operations under a lease, in the order of [`World::call_each`].
pub(super) const LEASE_GATED: [&str; 9] = [
    "renew",
    "checkpoint",
    "complete",
    "park_shard",
    "split_replace",
    "split_residual",
    "release",
    "offer",
    "withdraw",
];

impl<T: ConformanceTarget> World<'_, T> {
    /// Calls the operation of [`LEASE_GATED`] at `index` on a shard `[a, m)`; returns the answer.
    pub(super) fn call_each(&mut self, index: usize, now: u64, lease: &Lease) -> String {
        let id = 9_000 + index as u64;
        match LEASE_GATED[index] {
            "renew" => answer(&self.renew(now, lease)),
            "checkpoint" => answer(&self.checkpoint(now, lease, b"c", id)),
            "complete" => answer(&self.complete(now, lease, b"c", id)),
            "park_shard" => answer(&self.park(now, lease, id)),
            "split_replace" => {
                answer(&self.replace(now, lease, &replace_at(&[b"a", b"f", b"m"]), id))
            }
            "split_residual" => {
                answer(&self.shrink(now, lease, &residual_at(b"a", b"f", b"m"), id))
            }
            "release" => answer(&self.release(now, lease, ReleaseMode::Clean, id)),
            "offer" => answer(&self.offer(now, lease, (77, 7, now + 10), id)),
            "withdraw" => answer(&self.withdraw(now, lease, 77, id)),
            other => unreachable!("{other} is not in the list"),
        }
    }

    /// Asserts that every operation under `lease` on a shard `[a, m)` is refused as `refusal`.
    pub(super) fn assert_all_refused(&mut self, now: u64, lease: &Lease, refusal: &str) {
        for (index, operation) in LEASE_GATED.iter().enumerate() {
            let answer = self.call_each(index, now, lease);
            assert_eq!(answer, refusal, "{operation} at {now}");
        }
    }
}
