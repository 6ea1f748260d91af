//! The state of a coordinator handle between flights: limits, record pool, grants, events.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use gossip_contracts::coordination::{
    MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, MAX_TOKEN_SIZE,
};
use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, TenantId, WorkerId};
use gossip_stdx::SlabFull;

use super::cache::RecordCache;
use super::claim_stats::ClaimStats;
use super::codec::{StoreFormat, encode_cold, encode_hot};
use super::engine::StoreLimits;
use super::event_ring::EventRings;
use super::index::put_claim;
use super::key::Key;
use super::lease_watches::LeaseWatches;
use super::loaded::Loaded;
use super::retry::Tries;
use super::scatter::mixed;
use super::side_records::FailureRoom;
use super::txn::Txn;
use crate::claim_clock::{ClaimClock, ClaimReservation};
use crate::error::{InfraError, StoreRefusal};
use crate::events::{EventCollector, EventKind, StateTransitionEvent};
use crate::facade::ClaimError;
use crate::lease::GrantToken;
use crate::pool::RecordPool;
use crate::protocol::{ClaimCooldown, LeaseWatch};
use crate::record::{NewShard, ShardRecord, ShardView};

/// Maximum bytes of one record in a pool.
const RECORD_BYTES_MAX: usize = 3 * MAX_KEY_SIZE
    + MAX_METADATA_SIZE
    + MAX_TOKEN_SIZE
    + MAX_SPAWNED_PER_SHARD * size_of::<u64>();

/// Bytes of a flight's pool: the shard, its new parts while the old ones still exist, one new
/// shard, and the same amount again for rounding of block sizes.
const POOL_BYTES: usize = 8 * RECORD_BYTES_MAX;

/// Maximum writes of a split besides those of its children: the parent's two parts, its index
/// entry, its owner key, the tenant's count, and the event.
const SPLIT_WRITES: usize = 6;

/// Writes that create one shard: two parts and an index entry.
pub(super) const NEW_SHARD_WRITES: usize = 3;

/// Configuration of a coordinator over a store. The shard limit of a tenant is not part of it: the
/// operator's [`Allotment`](super::Allotment) in the store sets that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Maximum children of one split; fewer if a transaction of the store holds fewer.
    pub max_children_per_op: usize,
    /// Minimum ticks between a worker's claims; zero disables it. Handles that share a
    /// [`ProcessState`] count together and must have the same interval.
    pub claim_cooldown_interval: u64,
    /// Maximum difference between the wall clocks of two machines, in ticks. A lease is honoured
    /// for so long past its deadline while its lease holder's owner key exists, on stores that bind
    /// keys to a process; and a deadline is void only if it lies further ahead than a lease and
    /// this ([`ProcessState::watching`]).
    pub max_clock_skew: u64,
    /// A number that no other handle of the store has; the handle derives its grant tokens from it.
    /// A simulation derives it from its seed, a process draws it at random.
    pub nonce: u64,
}

impl StoreConfig {
    /// Creates the default configuration for a handle with this nonce.
    #[must_use]
    pub const fn new(nonce: u64) -> Self {
        Self {
            max_children_per_op: MAX_SPLIT_CHILDREN,
            claim_cooldown_interval: 0,
            max_clock_skew: 0,
            nonce,
        }
    }
}

/// State that the coordinator handles of one process share: the record cache, the claims of its
/// workers, the leases it watches, the format of the store, how many failure records it may write,
/// and the numbers of its events. Clones share the same state.
///
/// It belongs to **one** store: cached records are compared by revision, and revisions of different
/// stores are unrelated.
#[derive(Clone, Debug, Default)]
pub struct ProcessState {
    pub(super) cache: RecordCache,
    pub(super) claims: ClaimClock,
    pub(super) watches: LeaseWatches,
    pub(super) format: StoreFormat,
    pub(super) failure_room: FailureRoom,
    pub(super) rings: EventRings,
}

impl ProcessState {
    /// Makes the handles watch leases whose deadline lies too far ahead, and take those shards over
    /// that were not renewed for a lease and the clock skew
    /// ([`LeaseWatch`](crate::protocol::LeaseWatch)). `clock` returns ticks of a clock that is
    /// never set.
    ///
    /// Without it such a shard is locked until the deadline has passed.
    #[must_use]
    pub fn watching(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.watches = LeaseWatches::new(clock);
        self
    }

    /// Notes the format of the store, as [`load_store_format`](super::load_store_format) returned
    /// it: values are written in it. Without this call the handles learn it from what they read.
    pub fn note_format(&self, format: u8) {
        self.format.learn(format);
    }
}

/// The state shared by the flights of a handle.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: StoreConfig,
    pub(super) limits: StoreLimits,
    pub(super) pool: DecisionPool,
    /// Shards held by this handle and the handles that share the cache, except those of in-flight
    /// operations.
    pub(super) cache: RecordCache,
    /// Claims of this handle and the handles that share the cache.
    pub(super) claims: ClaimClock,
    /// Leases watched by this handle and the handles that share the cache.
    pub(super) watches: LeaseWatches,
    /// The format of the store, as far as this process knows it.
    pub(super) format: StoreFormat,
    /// Failure records that this handle and the handles that share the cache may write.
    pub(super) failure_room: FailureRoom,
    /// Numbers of the lifecycle events of this handle and the handles that share the cache.
    pub(super) rings: EventRings,
    /// Estimated density of the claim indexes.
    pub(super) claim_stats: ClaimStats,
    /// The tenant of the last decoded shard, which is usually also that of the next one.
    tenant: Arc<TenantId>,
    /// Number of grants requested by this handle.
    grant_count: u64,
    /// `Some` while events are collected.
    pub(super) events: Option<EventCollector>,
}

impl Core {
    pub(super) fn new(config: StoreConfig, limits: StoreLimits) -> Self {
        Self::with_pool(config, limits, DecisionPool::new(RecordPool::new(POOL_BYTES)))
    }

    /// Creates the state with an existing, empty pool.
    pub(super) fn with_pool(config: StoreConfig, limits: StoreLimits, pool: DecisionPool) -> Self {
        Self {
            config,
            limits,
            pool,
            cache: RecordCache::default(),
            claims: ClaimClock::default(),
            watches: LeaseWatches::default(),
            format: StoreFormat::default(),
            failure_room: FailureRoom::default(),
            rings: EventRings::default(),
            claim_stats: ClaimStats::default(),
            tenant: Arc::new(TenantId::from_bytes([0; 32])),
            grant_count: 0,
            events: None,
        }
    }

    /// Returns a shared `tenant` for the records of its shards.
    pub(super) fn shared(&mut self, tenant: TenantId) -> Arc<TenantId> {
        // Records of one tenant share the allocation; a handle rarely switches tenants.
        if *self.tenant != tenant {
            self.tenant = Arc::new(tenant);
        }
        Arc::clone(&self.tenant)
    }

    /// Returns a token that no other grant of the store has. The nonces of two handles may be
    /// consecutive, so `nonce + count` would collide, and one handle would accept the other's grant
    /// as its own lost one. Mixing avoids that.
    pub(super) const fn fresh_grant(&mut self) -> GrantToken {
        // Counted per request, not per grant: a lost grant must not share its token with the next.
        self.grant_count += 1;
        GrantToken::from_raw(mixed(mixed(self.config.nonce) ^ self.grant_count))
    }

    pub(super) const fn tries(&self, operation: &'static str) -> Tries {
        Tries::new(operation, self.config.nonce)
    }

    /// Creates the retry counter for the remaining work of an operation whose first commit was
    /// applied: its errors say that the operation may have happened.
    pub(super) const fn tries_of_the_rest(&self, operation: &'static str) -> Tries {
        Tries::of_the_rest(operation, self.config.nonce)
    }

    /// Returns the maximum number of children of a split that fits one transaction.
    pub(super) fn split_children_max(&self) -> usize {
        // A split is one transaction: in two, a crash between them would lose a part of the range.
        let fitting = self.limits.txn_ops.saturating_sub(SPLIT_WRITES) / NEW_SHARD_WRITES;
        fitting.min(self.config.max_children_per_op).min(MAX_SPLIT_CHILDREN)
    }

    /// Panics if the active collector belongs to another tenant. Every operation that may emit an
    /// event calls it before it commits anything.
    pub(super) fn assert_collector_serves(&self, tenant: TenantId) {
        if let Some(events) = &self.events {
            events.assert_serves(tenant);
        }
    }

    pub(super) fn emit(
        &mut self,
        tenant: TenantId,
        run: RunId,
        at: LogicalTime,
        kind: Option<EventKind>,
    ) {
        // Only to a collector: the stored event is part of the commit itself.
        if let (Some(events), Some(kind)) = (&mut self.events, kind) {
            events.emit(StateTransitionEvent { tenant, run, at, kind });
        }
    }

    /// Refuses a transaction that exceeds the limits of the store.
    pub(super) fn check_fits(&self, txn: &Txn) -> Result<(), InfraError> {
        if self.limits.admit(txn) {
            return Ok(());
        }
        // Here and not in the engine, so that every engine refuses with the same error.
        let (ops, bytes) = (txn.op_count(), txn.byte_count());
        let message = format!("{ops} operations and {bytes} bytes exceed what the store takes");
        let (operation, why) = ("transaction.size", StoreRefusal::TooLarge);
        Err(InfraError::Refused { operation, why, message })
    }

    /// Returns for how long the record of a shard was seen unchanged, if its lease is watched.
    pub(super) fn watch(
        &self,
        now: LogicalTime,
        record: Option<&ShardRecord>,
        loaded: &Loaded,
    ) -> LeaseWatch {
        let max_clock_skew = self.config.max_clock_skew;
        let watch = LeaseWatch { unchanged_for: 0, max_clock_skew };
        let (Some(record), Some(hot), Some(head)) = (record, &loaded.hot, &loaded.head) else {
            return watch;
        };
        let Some(deadline) = record.lease_deadline() else { return watch };
        // Only those: every acquire that loses a race would otherwise drop one from the table.
        if !watch.is_too_far(now, deadline, head.run.config.lease_duration()) {
            return watch;
        }
        let unchanged_for = self.watches.observe(record.tenant(), record.key(), hot.revision);
        LeaseWatch { unchanged_for, max_clock_skew }
    }

    /// Reserves a claim of `worker`; refuses it during the worker's cooldown.
    pub(super) fn reserve_claim(
        &self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        let cooldown = ClaimCooldown::new(self.config.claim_cooldown_interval);
        self.claims.reserve(cooldown, now, tenant, worker)
    }

    /// Adds the writes that create `new` to `txn`, with a compare that its key does not exist.
    pub(super) fn add_shard(
        &mut self,
        txn: &mut Txn,
        tenant: &Arc<TenantId>,
        run: RunId,
        new: &NewShard<'_>,
    ) -> Result<(), SlabFull> {
        let record = ShardRecord::new(Arc::clone(tenant), run, new, &mut self.pool)?;
        let view = ShardView::new(&record, &self.pool);
        let (tenant, shard) = (**tenant, ShardKey::new(run, new.shard));
        let hot = Key::ShardHot { tenant, shard };
        // Derived ids are hashes: the compare turns a collision into a conflict, never an
        // overwrite.
        txn.expect(hot, None);
        txn.put(hot, encoded(|out| encode_hot(view, Some(LogicalTime::ZERO), out)));
        txn.put(Key::ShardCold { tenant, shard }, encoded(|out| encode_cold(view, out)));
        put_claim(txn, tenant, shard, LogicalTime::ZERO);
        // Freed at once: a chunk of many shards must fit a pool that is sized for one new shard.
        record.free(&mut self.pool);
        Ok(())
    }
}

/// The pool in which a decision decodes its record. Between decisions it is empty.
///
/// A decision that panics leaves its record, possibly half changed, so its parts cannot be freed
/// one by one. The next decision, or the drop of the handle, discards them all.
#[derive(Debug)]
pub(super) struct DecisionPool {
    records: RecordPool,
    /// Whether a decision has begun and not ended.
    is_deciding: bool,
}

impl DecisionPool {
    const fn new(records: RecordPool) -> Self {
        Self { records, is_deciding: false }
    }

    /// Begins a decision.
    pub(super) fn begin(&mut self) {
        self.discard_unfinished();
        self.is_deciding = true;
    }

    /// Ends the decision whose record this is.
    pub(super) fn end(&mut self, record: ShardRecord) {
        assert!(self.is_deciding, "a decision has a beginning");
        record.free(&mut self.records);
        self.is_deciding = false;
    }

    fn discard_unfinished(&mut self) {
        if std::mem::take(&mut self.is_deciding) {
            self.records.discard();
        }
    }
}

impl Drop for DecisionPool {
    fn drop(&mut self) {
        // A slab that is dropped with live slots panics in debug builds.
        self.discard_unfinished();
    }
}

impl Deref for DecisionPool {
    type Target = RecordPool;

    fn deref(&self) -> &RecordPool {
        &self.records
    }
}

impl DerefMut for DecisionPool {
    fn deref_mut(&mut self) -> &mut RecordPool {
        &mut self.records
    }
}

/// Initial capacity of an encoded value; most values do not grow beyond it.
const ENCODED_LEN_USUAL: usize = 192;

/// Returns the bytes that `encode` writes.
pub(super) fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENCODED_LEN_USUAL);
    encode(&mut out);
    out
}

/// The reasons why a transaction could not be built.
#[derive(Debug)]
pub(super) enum Full {
    Pool(SlabFull),
    Stored(InfraError),
}

impl From<SlabFull> for Full {
    fn from(full: SlabFull) -> Self {
        Self::Pool(full)
    }
}

impl From<InfraError> for Full {
    fn from(error: InfraError) -> Self {
        Self::Stored(error)
    }
}
