//! The in-memory coordinator: the protocol applied directly to pooled records.
//!
//! It is the executable specification, the fastest backend, and the basis of simulations. `&mut
//! self` serializes all operations, so there is nothing to retry and no reply to lose. Nothing
//! survives the process.
//!
//! Every operation has the same steps: find the records, let the kernel decide, apply the change,
//! and move the shard in its run's claim index if its state changed. This module contains no rule.

mod claims;
mod events;
#[cfg(test)]
mod in_memory_tests;
mod queries;
mod run_operations;
mod shard_operations;
mod side_records;
mod slot_table;
#[cfg(test)]
mod slot_table_tests;
mod table;
mod undo;
#[cfg(test)]
mod undo_tests;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, ShardKey, TenantId, WorkerId};
use gossip_stdx::{SlabFull, SlabTooLarge};

use self::claims::{ClaimIndex, Standing};
use self::events::EventRing;
use self::side_records::StoredRecords;
use self::table::{Entry, Place, Records, Run, RunSlot, Slot, Tenant, Tenants};
use self::undo::Undo;
use crate::claim_clock::ClaimClock;
use crate::events::{CollectEvents, EventCollector, EventKind, StateTransitionEvent};
use crate::lease::{GrantToken, Lease};
use crate::outcome::{CAPACITY_COUNT_MAX, CapacityHint, IdempotentOutcome};
use crate::pool::RecordPool;
use crate::protocol::{
    Decision, LeaseWatch, OwnerEvidence, RaiseFenceFloor, RunChange, RunInputs, RunTransitionRules,
    ShardChange, ShardInputs, ShardTransition, Tombstone, evolve, evolve_run,
};
use crate::record::{NewShard, ShardRecord, ShardStatus, ShardView};
use crate::run::RunRecord;
use crate::run_errors::GetRunError;
use crate::shard_limits::{DEFAULT_MAX_SHARDS_PER_TENANT, DEFAULT_MAX_TOTAL_SHARDS, ShardQuota};
use crate::stored_events::Lifecycle;
use crate::workers::WorkerEntry;

/// Bytes that a shard is expected to need at most, for sizing the slab.
const SLAB_BYTES_PER_SHARD: usize = 4 << 10;

/// Initial capacity for overwritten bytes; most cursors are shorter.
const OVERWRITTEN_USUAL: usize = 256;

/// The slab is made no larger than this unless asked for.
pub const DEFAULT_MAX_AUTO_SLAB_CAPACITY: usize = 64 << 20;

/// Limits and sizes of an [`InMemoryCoordinator`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorRuntimeConfig {
    /// Shards one tenant may have.
    pub max_shards_per_tenant: usize,
    /// Shards there may be in all.
    pub max_total_shards: usize,
    /// Ticks that a worker waits between claims; zero for none.
    pub claim_cooldown_interval: u64,
    /// Bytes for keys, metadata and cursors; zero sizes the slab by the number of shards.
    pub slab_capacity: usize,
}

impl Default for CoordinatorRuntimeConfig {
    fn default() -> Self {
        Self {
            max_shards_per_tenant: DEFAULT_MAX_SHARDS_PER_TENANT,
            max_total_shards: DEFAULT_MAX_TOTAL_SHARDS,
            claim_cooldown_interval: 0,
            slab_capacity: 0,
        }
    }
}

impl CoordinatorRuntimeConfig {
    fn slab_bytes(&self) -> usize {
        if self.slab_capacity > 0 {
            return self.slab_capacity;
        }
        // The slab is allocated at once, so the limits of a large store must not decide its size
        // alone.
        let wanted = self.max_total_shards.saturating_mul(SLAB_BYTES_PER_SHARD);
        wanted.min(DEFAULT_MAX_AUTO_SLAB_CAPACITY)
    }
}

/// The coordinator in memory.
pub struct InMemoryCoordinator {
    config: CoordinatorRuntimeConfig,
    pool: RecordPool,
    records: Records,
    /// `None` where a run was deleted.
    runs: Vec<Option<Run>>,
    /// Places of deleted runs, used again before there are more.
    free_runs: Vec<RunSlot>,
    tenants: Tenants,
    total_shards: usize,
    /// The next grant token.
    next_grant: u64,
    /// Claim times of the workers.
    claim_clock: ClaimClock,
    /// Apart for each tenant, so that no tenant's clock forgets the workers of another.
    workers: BTreeMap<TenantId, BTreeMap<WorkerId, WorkerEntry>>,
    side_records: StoredRecords,
    /// The active collector.
    events: Option<EventCollector>,
    /// For the bytes that a change overwrites, until it is done.
    overwritten: Vec<u8>,
}

impl InMemoryCoordinator {
    /// An empty coordinator.
    ///
    /// # Panics
    ///
    /// If the slab would be larger than 4 GiB; [`try_new`](Self::try_new) refuses instead.
    #[must_use]
    pub fn new(config: CoordinatorRuntimeConfig) -> Self {
        Self::try_new(config).expect("a slab of at most 4 GiB")
    }

    /// An empty coordinator, for sizes that come from outside.
    ///
    /// # Errors
    ///
    /// [`SlabTooLarge`] if the slab would be larger than 4 GiB.
    pub fn try_new(config: CoordinatorRuntimeConfig) -> Result<Self, SlabTooLarge> {
        let pool = RecordPool::try_new(config.slab_bytes())?;
        Ok(Self {
            config,
            pool,
            records: Records::default(),
            runs: Vec::new(),
            free_runs: Vec::new(),
            tenants: Tenants::default(),
            total_shards: 0,
            next_grant: 0,
            claim_clock: ClaimClock::default(),
            workers: BTreeMap::new(),
            side_records: StoredRecords::default(),
            events: None,
            overwritten: Vec::with_capacity(OVERWRITTEN_USUAL),
        })
    }

    /// Returns a view of one shard, for tests and simulations.
    #[must_use]
    pub fn shard(&self, tenant: TenantId, key: ShardKey) -> Option<ShardView<'_>> {
        let slot = self.tenants.get(tenant)?.find(key, &self.records, &self.pool)?;
        Some(self.view(slot))
    }

    /// Returns the number of shards of all tenants.
    #[must_use]
    pub const fn total_shards(&self) -> usize {
        self.total_shards
    }

    /// Runs an operation on a shard.
    fn run_on_shard<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        operation: &T,
    ) -> Result<IdempotentOutcome<T::Output>, T::Error> {
        let (tenant, key) = operation.subject();
        let found = self.find_far(tenant, key);
        self.run_at(now, operation, found)
    }

    /// Runs an operation on a shard that was looked up already.
    #[inline(always)]
    fn run_at<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        operation: &T,
        found: Option<Place>,
    ) -> Result<IdempotentOutcome<T::Output>, T::Error> {
        let (tenant, key) = operation.subject();
        self.assert_collector_serves(tenant);
        let split_hash_of = |shard| self.split_hash_of(tenant, ShardKey::new(key.run(), shard));
        let seen = ShardInputs {
            shard: found.map(|place| self.view(place.slot)),
            run: found.map(|place| self.run(place).record.head()),
            quota: if T::MAKES_SHARDS { self.quota(tenant) } else { ShardQuota::UNLIMITED },
            owner: OwnerEvidence::Gone,
            watch: LeaseWatch::NONE,
            split_hash_of: &split_hash_of,
        };
        // `&mut self` excludes concurrent changes, so nothing is compared at the commit.
        let (change, answer) = match operation.decide(now, &seen)? {
            Decision::Replay(output) => return Ok(IdempotentOutcome::Replayed(output)),
            Decision::Commit { change, answer } => (change, answer),
        };
        let place = found.expect("an operation on a missing shard is refused");
        match answer {
            Ok(output) => {
                self.commit::<T>(now, place, tenant, change).map_err(T::exhausted)?;
                // After the commit: a refused operation writes no records, as on a store.
                self.side_records.store(tenant, key, operation.side_records());
                Ok(IdempotentOutcome::Executed(output))
            }
            // An acquire that parks an exhausted shard commits the parking and refuses the caller.
            Err(refusal) => {
                self.commit_refusal::<T>(now, place, tenant, change).map_err(T::exhausted)?;
                Err(refusal)
            }
        }
    }

    /// As [`Self::commit`], out of line: few operations change anything when they refuse.
    #[cold]
    fn commit_refusal<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        place: Place,
        tenant: TenantId,
        change: ShardChange<'_>,
    ) -> Result<(), SlabFull> {
        self.commit::<T>(now, place, tenant, change)
    }

    /// Applies a change and creates its new shards; on failure nothing is changed.
    // Inlined: the kind of change is then constant, and the enum is never built.
    #[inline(always)]
    fn commit<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        place: Place,
        tenant: TenantId,
        change: ShardChange<'_>,
    ) -> Result<(), SlabFull> {
        // Only if it is needed: checkpoints and renewals have no event.
        let holder = match change.is_lifecycle() {
            true => self.records.get(place.slot).record.lease_owner(),
            false => None,
        };
        match T::MAKES_SHARDS {
            true => self.apply_with_new_shards(place, tenant, &change)?,
            false => self.apply(place, &change)?,
        }
        if change.is_lifecycle() || self.events.is_some() {
            self.note_event(now, tenant, (place, holder), change);
        }
        Ok(())
    }

    /// Changes a record, and moves it in the claim index if its state changed.
    #[inline(always)]
    fn apply(&mut self, place: Place, change: &ShardChange<'_>) -> Result<(), SlabFull> {
        let record = &mut self.records.get_mut(place.slot).record;
        let before = Standing::of(record);
        let undo = Undo::new(record, &mut self.pool, &mut self.overwritten, change);
        // If a rule is wrong, this panics in the middle of the change, and the undo writes the old
        // values back.
        let evolved = evolve(undo.record, undo.pool, change);
        let after = Standing::of(undo.record);
        // Also on an error: `evolve` then left the record unchanged. Only a panic needs the undo.
        undo.keep();
        evolved?;
        // A checkpoint changes neither status nor deadline, so it leaves the index alone.
        if before != after {
            let claims = &mut run_mut(&mut self.runs, place.run).claims;
            claims.moved(place.slot, before, after, &mut self.records);
        }
        Ok(())
    }

    fn apply_with_new_shards(
        &mut self,
        place: Place,
        tenant: TenantId,
        change: &ShardChange<'_>,
    ) -> Result<(), SlabFull> {
        // Children first and unpublished: if the slab is full, they can be freed as if they had
        // never existed.
        let created = self.make_records(tenant, place.run, change.new_shards())?;
        // Caught only to free the records: nothing refers to them yet.
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply(place, change)));
        if !matches!(applied, Ok(Ok(()))) {
            // The bytes belong to the pool, so dropping the records would lose them.
            created.into_iter().for_each(|record| record.free(&mut self.pool));
            return applied.unwrap_or_else(|panic| resume_unwind(panic));
        }
        self.publish(tenant, place.run, created);
        Ok(())
    }

    /// Stores and emits the event of a change, made while `holder` held the shard.
    // By value and out of line, so that the enum is built on this path only.
    #[inline(never)]
    fn note_event(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        (place, holder): (Place, Option<WorkerId>),
        change: ShardChange<'_>,
    ) {
        let key = self.records.get(place.slot).record.key();
        if let Some(event) = Lifecycle::of_shard(&change, key.shard(), holder) {
            run_mut(&mut self.runs, place.run).events.push(now, event);
        }
        self.emit(tenant, key.run(), now, || change.event(key.shard()));
    }

    /// Creates records without publishing them: all, or none.
    fn make_records<'b>(
        &mut self,
        tenant: TenantId,
        run: RunSlot,
        new_shards: impl Iterator<Item = NewShard<'b>>,
    ) -> Result<Vec<ShardRecord>, SlabFull> {
        let mut made: Vec<ShardRecord> = Vec::new();
        for new in new_shards {
            let home = self.tenants.get(tenant).expect("a tenant with a run is known");
            let owner = Arc::clone(&home.id);
            let run_id = run_ref(&self.runs, run).record.run();
            match ShardRecord::new(owner, run_id, &new, &mut self.pool) {
                Ok(record) => made.push(record),
                Err(full) => {
                    // The caller sees a full slab, so the others must not keep their bytes.
                    made.into_iter().for_each(|record| record.free(&mut self.pool));
                    return Err(full);
                }
            }
        }
        Ok(made)
    }

    fn publish(&mut self, tenant: TenantId, run: RunSlot, created: Vec<ShardRecord>) {
        if created.is_empty() {
            return;
        }
        let home = self.tenants.get_mut(tenant).expect("a tenant with a run is known");
        let Run { shards, claims, .. } = run_mut(&mut self.runs, run);
        // All capacity before the first insert: nothing below can fail half-way.
        home.reserve(created.len(), &self.records);
        match shards.capacity() {
            // A registration, which for most runs is all there ever is.
            0 => shards.reserve_exact(created.len()),
            1.. => shards.reserve(created.len()),
        }
        claims.reserve(shards.len() + created.len());
        self.total_shards += created.len();
        for record in created {
            let slot = self.records.insert(Entry::new(record));
            home.insert(slot, &self.records);
            shards.push(slot);
            claims.insert(slot, &mut self.records);
        }
    }

    /// Raises the fence floor of a run to `at_least` or beyond, and returns the new floor. Leases
    /// with a lower fence are refused from then on.
    ///
    /// # Errors
    ///
    /// As `get_run`.
    pub fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        let operation = RaiseFenceFloor { tenant, run, at_least };
        self.run_on_run(now, &operation).map(IdempotentOutcome::into_inner)
    }

    /// Runs an operation on a run.
    fn run_on_run<T: RunTransitionRules>(
        &mut self,
        now: LogicalTime,
        operation: &T,
    ) -> Result<IdempotentOutcome<T::Output>, T::Error> {
        let (tenant, run) = operation.subject();
        self.assert_collector_serves(tenant);
        let slot = self.find_run(tenant, run);
        let found = slot.map(|slot| run_ref(&self.runs, slot));
        let home = self.tenants.get(tenant);
        let seen = RunInputs {
            run: found.map(|run| &run.record),
            tombstone: home.and_then(|home| home.tombstones.get(&run).copied()),
            active: found.map_or(0, |run| run.claims.active()),
            parked: found.map_or(0, |run| run.claims.settled(ShardStatus::Parked)),
            // Only chunks have a time, and a registration in memory is a single step.
            registered_at: LogicalTime::ZERO,
            quota: self.quota(tenant),
        };
        let (change, answer) = match operation.decide(now, &seen)? {
            Decision::Replay(output) => return Ok(IdempotentOutcome::Replayed(output)),
            Decision::Commit { change, answer } => (change, answer),
        };
        self.commit_run(tenant, slot, &change).map_err(T::exhausted)?;
        if let Some(event) = Lifecycle::of_run(&change) {
            let slot = self.find_run(tenant, run).expect("a run that is changed is there");
            run_mut(&mut self.runs, slot).events.push(now, event);
        }
        // After the commit: a refused or failed operation has no event.
        self.emit(tenant, run, now, || change.event());
        answer.map(IdempotentOutcome::Executed)
    }

    fn commit_run(
        &mut self,
        tenant: TenantId,
        slot: Option<RunSlot>,
        change: &RunChange<'_>,
    ) -> Result<(), SlabFull> {
        if let RunChange::Create(record) = change {
            self.create(tenant, RunRecord::clone(record));
            return Ok(());
        }
        let slot = slot.expect("an operation on a missing run is refused");
        match change {
            RunChange::Delete(tombstone) => self.delete(tenant, slot, *tombstone),
            RunChange::Activate { roots, .. } => {
                let changed = evolved_run(&run_ref(&self.runs, slot).record, change);
                // Before the run changes: a full slab leaves it initializing.
                let roots = self.make_records(tenant, slot, roots.new_shards())?;
                run_mut(&mut self.runs, slot).record = changed;
                self.publish(tenant, slot, roots);
            }
            RunChange::Create(_)
            | RunChange::End { .. }
            | RunChange::Pause { .. }
            | RunChange::RaiseFloor { .. } => {
                let record = &mut run_mut(&mut self.runs, slot).record;
                *record = evolved_run(record, change);
            }
        }
        Ok(())
    }

    fn create(&mut self, tenant: TenantId, record: RunRecord) {
        // A place is used again, but a run id is not: place hints of old leases are compared with
        // the ids of the run and shard before they are trusted.
        let slot = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(None);
            RunSlot(u32::try_from(self.runs.len() - 1).expect("fewer runs than u32::MAX"))
        });
        let home = self.tenants.get_or_insert(tenant);
        home.runs.insert(record.run(), slot);
        let claims = ClaimIndex::default();
        self.runs[slot.0 as usize] =
            Some(Run { record, shards: Vec::new(), claims, events: EventRing::default() });
    }

    /// The tombstone first: from then on the run and its shards are not found.
    fn delete(&mut self, tenant: TenantId, slot: RunSlot, tombstone: Tombstone) {
        let run = self.runs[slot.0 as usize].take().expect("a run that is named is there");
        self.free_runs.push(slot);
        let home = self.tenants.get_mut(tenant).expect("a tenant with a run is known");
        self.side_records.purge(tenant, run.record.run());
        home.tombstones.insert(run.record.run(), tombstone);
        home.runs.remove(&run.record.run());
        self.total_shards -= run.shards.len();
        for shard in run.shards {
            home.remove(self.records.get(shard).record.key(), &self.records);
            self.records.remove(shard).record.free(&mut self.pool);
        }
    }

    #[inline(always)]
    fn find(&mut self, tenant: TenantId, key: ShardKey) -> Option<Place> {
        let home = self.tenants.turn_to(tenant)?;
        let slot = home.find(key, &self.records, &self.pool)?;
        let run = home.runs.get(&key.run()).copied();
        Some(Place { slot, run: run.expect("a shard that is found has a run") })
    }

    /// Finds the shard of `lease`, by its place hint or by lookup.
    #[inline]
    fn find_leased(&mut self, tenant: TenantId, lease: &Lease) -> Option<Place> {
        self.recall(tenant, lease).or_else(|| self.find_far(tenant, lease.key()))
    }

    /// As [`Self::find`], out of line: few come here, and from many places.
    #[inline(never)]
    fn find_far(&mut self, tenant: TenantId, key: ShardKey) -> Option<Place> {
        self.find(tenant, key)
    }

    /// Returns the place hint of `lease`, if it refers to the lease's shard.
    #[inline]
    fn recall(&self, tenant: TenantId, lease: &Lease) -> Option<Place> {
        let place = Place { slot: Slot(lease.place.shard), run: RunSlot(lease.place.run) };
        self.records.prefetch_whole(place.slot);
        // The hint may be that of another coordinator, or of a place that was used again.
        let record = &self.records.try_get(place.slot)?.record;
        if record.key() != lease.key() || record.tenant() != tenant {
            return None;
        }
        let run = &self.runs.get(place.run.0 as usize)?.as_ref()?.record;
        (run.run() == lease.run() && run.tenant() == tenant).then_some(place)
    }

    /// Asks the processor for what a decision about progress reads.
    #[inline]
    fn prefetch_progress(&self, found: Option<Place>) {
        if let Some(place) = found {
            self.records.get(place.slot).record.prefetch(&self.pool);
        }
    }

    /// Asks the processor for what a snapshot copies, where it was not foreseen while the record
    /// was looked for.
    #[inline]
    fn prefetch_snapshot(&self, found: Option<Place>) {
        if let Some(place) = found {
            self.records.get(place.slot).record.prefetch_starts(&self.pool);
        }
    }

    /// Asks the processor for what a change of the lease moves.
    #[inline]
    fn prefetch_standing(&self, found: Option<Place>) {
        if let Some(place) = found {
            self.run(place).claims.prefetch(place.slot, &self.records);
        }
    }

    fn find_run(&self, tenant: TenantId, run: RunId) -> Option<RunSlot> {
        self.tenants.get(tenant)?.runs.get(&run).copied()
    }

    #[inline]
    fn view(&self, slot: Slot) -> ShardView<'_> {
        ShardView::new(&self.records.get(slot).record, &self.pool)
    }

    #[inline]
    fn run(&self, place: Place) -> &Run {
        run_ref(&self.runs, place.run)
    }

    fn split_hash_of(&self, tenant: TenantId, key: ShardKey) -> Option<u64> {
        let shard = self.shard(tenant, key)?;
        // Zero for roots: they exist, but no split created them.
        Some(shard.record().lineage().map_or(0, |lineage| lineage.split_hash))
    }

    fn quota(&self, tenant: TenantId) -> ShardQuota {
        ShardQuota {
            tenant_count: self.tenants.get(tenant).map_or(0, Tenant::shard_count),
            total_count: self.total_shards,
            max_per_tenant: self.config.max_shards_per_tenant,
            max_total: self.config.max_total_shards,
        }
    }

    fn fresh_grant(&mut self) -> GrantToken {
        // A counter suffices: tokens need to differ only within this coordinator.
        self.next_grant += 1;
        GrantToken::from_raw(self.next_grant)
    }

    /// Returns the capacity hint of the run of the shard at `place`.
    #[inline]
    fn capacity(&self, now: LogicalTime, place: Place) -> CapacityHint {
        let claims = &self.run(place).claims;
        let soonest = claims.soonest_deadline();
        let (expired, earliest_deadline) = match soonest {
            Some(deadline) if deadline <= now => self.expired(now, claims),
            Some(_) | None => (0, soonest),
        };
        let available = (claims.free_count() + expired).min(CAPACITY_COUNT_MAX);
        let available_count = u32::try_from(available).expect("the cap fits in u32");
        CapacityHint { available_count, earliest_deadline }
    }

    /// Returns the number of expired leases, up to the cap, and the next deadline.
    #[cold]
    fn expired(&self, now: LogicalTime, claims: &ClaimIndex) -> (usize, Option<LogicalTime>) {
        let mut held = claims.by_deadline(&self.records).take(CAPACITY_COUNT_MAX).enumerate();
        let live = held.find(|(_, (deadline, _))| now < *deadline);
        match live {
            Some((expired, (deadline, _))) => (expired, Some(deadline)),
            None => (claims.leased().min(CAPACITY_COUNT_MAX), None),
        }
    }

    /// Panics if the active collector belongs to another tenant. Every operation that may emit an
    /// event calls it before it commits anything.
    fn assert_collector_serves(&self, tenant: TenantId) {
        if let Some(events) = &self.events {
            events.assert_serves(tenant);
        }
    }

    fn emit(
        &mut self,
        tenant: TenantId,
        run: RunId,
        at: LogicalTime,
        kind: impl FnOnce() -> Option<EventKind>,
    ) {
        if let Some(events) = &mut self.events
            && let Some(kind) = kind()
        {
            events.emit(StateTransitionEvent { tenant, run, at, kind });
        }
    }
}

impl CollectEvents for InMemoryCoordinator {
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
        std::mem::replace(&mut self.events, events)
    }
}

impl Default for InMemoryCoordinator {
    fn default() -> Self {
        Self::new(CoordinatorRuntimeConfig::default())
    }
}

/// Shows sizes only: the records belong to many tenants.
impl fmt::Debug for InMemoryCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryCoordinator")
            .field("config", &self.config)
            .field("tenants", &self.tenants.len())
            .field("total_shards", &self.total_shards)
            .finish_non_exhaustive()
    }
}

impl Drop for InMemoryCoordinator {
    /// Records do not know their pool, so the coordinator gives their bytes back; the slab checks
    /// in debug builds that nothing is left.
    fn drop(&mut self) {
        self.pool.bytes.clear();
    }
}

/// Returns the changed run. A copy is changed: if a rule is wrong, `evolve_run` panics and the run
/// must be as before.
fn evolved_run(run: &RunRecord, change: &RunChange<'_>) -> RunRecord {
    let mut changed = run.clone();
    evolve_run(&mut changed, change);
    changed
}

fn run_ref(runs: &[Option<Run>], slot: RunSlot) -> &Run {
    runs[slot.0 as usize].as_ref().expect("a run that is named is there")
}

fn run_mut(runs: &mut [Option<Run>], slot: RunSlot) -> &mut Run {
    runs[slot.0 as usize].as_mut().expect("a run that is named is there")
}
