//! What a handle of a store remembers between flights: limits, a pool, its grants, its events.

use std::collections::BTreeMap;
use std::sync::Arc;

use gossip_contracts::coordination::{
    MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, MAX_TOKEN_SIZE,
};
use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, TenantId, WorkerId};
use gossip_stdx::SlabFull;

use super::cache::RecordCache;
use super::claim_stats::ClaimStats;
use super::codec::{encode_cold, encode_hot};
use super::engine::StoreLimits;
use super::index::put_claim;
use super::key::Key;
use super::retry::Tries;
use super::scatter::mixed;
use super::txn::Txn;
use crate::error::{InfraError, StoreRefusal};
use crate::events::{EventCollector, EventKind, StateTransitionEvent};
use crate::lease::GrantToken;
use crate::pool::RecordPool;
use crate::protocol::ClaimCooldown;
use crate::record::{NewShard, ShardRecord, ShardView};

/// The most bytes that one record keeps in a pool.
const RECORD_BYTES_MAX: usize = 3 * MAX_KEY_SIZE
    + MAX_METADATA_SIZE
    + MAX_TOKEN_SIZE
    + MAX_SPAWNED_PER_SHARD * size_of::<u64>();

/// Bytes of the pool of a flight: the shard, the parts it is given while the old ones are there,
/// one newborn, and as much again for what blocks are rounded up to.
const POOL_BYTES: usize = 8 * RECORD_BYTES_MAX;

/// Writes of a split beside those of its children, at most: the parent's two parts, its index
/// entry, its owner key, and the count of the tenant.
const SPLIT_WRITES: usize = 5;

/// Writes that make one shard: two parts and an index entry.
pub(super) const BIRTH_WRITES: usize = 3;

/// Settings of a coordinator over a store. How many shards a tenant may have is not among them: the
/// operator's [`Allotment`](super::Allotment) in the store says that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The most children of one split; fewer if one transaction of the store takes fewer.
    pub split_children_max: usize,
    /// Ticks that a worker waits between claims; zero for none. Each handle counts for itself.
    pub claim_cooldown_interval: u64,
    /// How many ticks after its deadline a lease is still honoured while the store believes that
    /// its owner lives. It counts only on stores that bind keys to a process.
    pub max_clock_skew: u64,
    /// A number that no other handle of the store has, and by which this one knows its grants
    /// again. A simulation gives it from its seed, a process draws it at random.
    pub nonce: u64,
}

impl StoreConfig {
    /// The usual limits for the handle with this nonce.
    #[must_use]
    pub const fn new(nonce: u64) -> Self {
        Self {
            split_children_max: MAX_SPLIT_CHILDREN,
            claim_cooldown_interval: 0,
            max_clock_skew: 0,
            nonce,
        }
    }
}

/// What the flights of a handle share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: StoreConfig,
    pub(super) limits: StoreLimits,
    /// Empty between two decisions.
    pub(super) pool: RecordPool,
    /// The shards that this handle holds, and those that share it, without those of operations on
    /// their way.
    pub(super) cache: RecordCache,
    /// How full the claim indexes of its runs are.
    pub(super) claim_stats: ClaimStats,
    /// The tenant of the last shard that was looked at: mostly the next one's, too.
    tenant: Arc<TenantId>,
    /// Grants that this handle asked for.
    grant_count: u64,
    /// Last successful claim of each worker; empty when there is no cooldown.
    last_claims: BTreeMap<(TenantId, WorkerId), LogicalTime>,
    /// Present while events are collected.
    pub(super) events: Option<EventCollector>,
}

impl Core {
    pub(super) fn new(config: StoreConfig, limits: StoreLimits) -> Self {
        Self::with_pool(config, limits, RecordPool::new(POOL_BYTES))
    }

    /// The same with an empty pool that another used.
    pub(super) fn with_pool(config: StoreConfig, limits: StoreLimits, pool: RecordPool) -> Self {
        Self {
            config,
            limits,
            pool,
            cache: RecordCache::default(),
            claim_stats: ClaimStats::default(),
            tenant: Arc::new(TenantId::from_bytes([0; 32])),
            grant_count: 0,
            last_claims: BTreeMap::new(),
            events: None,
        }
    }

    /// `tenant` for the records of its shards to share.
    pub(super) fn shared(&mut self, tenant: TenantId) -> Arc<TenantId> {
        if *self.tenant != tenant {
            self.tenant = Arc::new(tenant);
        }
        Arc::clone(&self.tenant)
    }

    /// A number that no other grant of the store has. Nonces may be neighbours, so adding a count
    /// would give two handles one number: a lost grant would be taken for somebody else's.
    pub(super) const fn fresh_grant(&mut self) -> GrantToken {
        self.grant_count += 1;
        GrantToken::from_raw(mixed(mixed(self.config.nonce) ^ self.grant_count))
    }

    pub(super) const fn tries(&self, operation: &'static str) -> Tries {
        Tries::new(operation, self.config.nonce)
    }

    /// The tries of what remains to be done of an operation that has happened: whatever ends them
    /// says so.
    pub(super) const fn tries_of_the_rest(&self, operation: &'static str) -> Tries {
        Tries::of_the_rest(operation, self.config.nonce)
    }

    /// The most children that one split may have and one transaction of the store publishes.
    pub(super) fn split_children_max(&self) -> usize {
        let fitting = self.limits.txn_ops.saturating_sub(SPLIT_WRITES) / BIRTH_WRITES;
        fitting.min(self.config.split_children_max).min(MAX_SPLIT_CHILDREN)
    }

    pub(super) fn emit(
        &mut self,
        tenant: TenantId,
        run: RunId,
        at: LogicalTime,
        kind: Option<EventKind>,
    ) {
        if let (Some(events), Some(kind)) = (&mut self.events, kind) {
            events.emit(StateTransitionEvent { tenant, run, at, kind });
        }
    }

    /// Refuses what the store would refuse.
    pub(super) fn check_fits(&self, txn: &Txn) -> Result<(), InfraError> {
        if self.limits.admit(txn) {
            return Ok(());
        }
        let (ops, bytes) = (txn.op_count(), txn.byte_count());
        let message = format!("{ops} operations and {bytes} bytes exceed what the store takes");
        let (operation, why) = ("transaction.size", StoreRefusal::TooLarge);
        Err(InfraError::Refused { operation, why, message })
    }

    pub(super) fn throttled_until(
        &self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        let last = *self.last_claims.get(&(tenant, worker))?;
        self.cooldown().retry_after(last, now)
    }

    pub(super) fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        let cooldown = self.cooldown();
        if cooldown.is_disabled() {
            return;
        }
        // Whenever the map has doubled, which costs each new worker a constant. The clocks of
        // tenants differ, so each forgets only its own workers.
        let (claims, who) = (&mut self.last_claims, (tenant, worker));
        if claims.len().is_power_of_two() && !claims.contains_key(&who) {
            claims.retain(|(other, _), last| {
                *other != tenant || cooldown.retry_after(*last, now).is_some()
            });
        }
        claims.insert(who, now);
    }

    const fn cooldown(&self) -> ClaimCooldown {
        ClaimCooldown::new(self.config.claim_cooldown_interval)
    }

    /// Adds the writes that make `birth` to `txn`; refused if its id is taken.
    pub(super) fn add_birth(
        &mut self,
        txn: &mut Txn,
        tenant: &Arc<TenantId>,
        run: RunId,
        birth: &NewShard<'_>,
    ) -> Result<(), SlabFull> {
        let record = ShardRecord::new(Arc::clone(tenant), run, birth, &mut self.pool)?;
        let view = ShardView::new(&record, &self.pool);
        let (tenant, shard) = (**tenant, ShardKey::new(run, birth.shard));
        let hot = Key::ShardHot { tenant, shard };
        txn.expect(hot, None);
        txn.put(hot, encoded(|out| encode_hot(view, Some(LogicalTime::ZERO), out)));
        txn.put(Key::ShardCold { tenant, shard }, encoded(|out| encode_cold(view, out)));
        put_claim(txn, tenant, shard, LogicalTime::ZERO);
        record.free(&mut self.pool);
        Ok(())
    }
}

/// Bytes that most values stay below, so that they are written without growing.
const ENCODED_LEN_USUAL: usize = 192;

/// What an encoder writes.
pub(super) fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENCODED_LEN_USUAL);
    encode(&mut out);
    out
}

/// Why no transaction could be made.
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
