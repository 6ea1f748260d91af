//! The loaded inputs of an operation on one shard, and their origin.
//!
//! The values come from the store, from the record cache, or from a conflict that returned the
//! current values. Only values from the store may justify a refusal or a replay.

use std::sync::Arc;

use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, TenantId};

use super::cache::CachedShard;
use super::codec::{
    DecodeShardError, decode_cold, decode_hot, decode_own_shard, decode_run_head, decode_shard,
};
use super::core::Core;
use super::engine::Read;
use super::flight::Answers;
use super::key::{Key, SHARD_LOAD};
use super::owner::OwnerKey;
use super::quota::Quota;
use super::txn::{Conflict, Versioned};
use crate::error::InfraError;
use crate::protocol::ShardTransition;
use crate::record::ShardRecord;
use crate::run::RunHead;

/// The input values of an operation on a shard.
pub(super) struct Loaded {
    pub(super) hot: Option<Versioned>,
    pub(super) cold: Option<Versioned>,
    pub(super) head: Option<Head>,
    /// Read only for operations that use evidence of the owner.
    pub(super) owner: Option<Versioned>,
    pub(super) quota: Quota,
    pub(super) origin: Origin,
}

/// The fields of a run's head that its shards need.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) revision: u64,
    /// The stored value. Commits compare it by value: it has the run's fence floor, and after a
    /// restore from a backup revisions repeat.
    pub(super) value: Arc<Vec<u8>>,
    pub(super) run: RunHead,
    /// Whether all shards of the run are registered.
    pub(super) has_roots: bool,
}

impl Head {
    fn decode(tenant: TenantId, run: RunId, stored: Versioned) -> Result<Self, InfraError> {
        let part = decode_run_head(tenant, run, &stored.bytes)?;
        let (run, has_roots) = (part.head(), part.has_roots());
        let Versioned { revision, bytes } = stored;
        Ok(Self { revision, value: Arc::new(bytes), run, has_roots })
    }
}

/// The highest revisions read so far of a shard and of the head of its run.
///
/// Revisions of a key increase with every write, also across its deletion, and a read includes all
/// writes acknowledged before it (see [`engine`](super::engine)). So a store that returns a lower
/// revision has lost acknowledged writes or returns stale data, and nothing is decided on it. A
/// missing key is no evidence of that: shards and heads are deleted with their run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RevisionFloor {
    /// Zero if unknown, as for the head.
    hot: u64,
    head: u64,
}

impl RevisionFloor {
    /// Returns the floor given by cached values.
    pub(super) fn of(cached: Option<&CachedShard>, head: Option<&Head>) -> Self {
        let hot = cached.map_or(0, |shard| shard.hot.revision);
        Self { hot, head: head.map_or(0, |head| head.revision) }
    }

    /// Raises the floor to the revisions of `loaded`.
    ///
    /// # Errors
    ///
    /// Returns [`InfraError::Corruption`] if a revision is below the floor.
    pub(super) fn note(&mut self, loaded: &Loaded) -> Result<(), InfraError> {
        let hot = loaded.hot.as_ref().map_or(self.hot, |hot| hot.revision);
        let head = loaded.head.as_ref().map_or(self.head, |head| head.revision);
        // Both are checked before either is raised, so a stale read leaves the floor unchanged.
        for (known, shown) in [(self.hot, hot), (self.head, head)] {
            if shown < known {
                return Err(older());
            }
        }
        assert!(hot >= self.hot, "the floor of a shard never falls");
        assert!(head >= self.head, "the floor of a run never falls");
        (self.hot, self.head) = (hot, head);
        Ok(())
    }
}

/// The `operation` of the [`InfraError::Corruption`] for a record that is older than one this
/// handle has read before.
pub const OLDER: &str = "shard.revision";

/// Contains no revisions: tenants of a store may share them, so they reveal others' activity.
fn older() -> InfraError {
    let message = "the store shows an older version than was known before".to_owned();
    InfraError::Corruption { operation: OLDER, message }
}

/// The origin of loaded values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Read from the store for this operation.
    Store,
    /// Taken from the record cache.
    Cache,
    /// Partly replaced by the values that a conflict returned.
    Conflict,
}

impl Loaded {
    /// Returns the reads of a load. The owner key is read if the store `binds` and the operation
    /// uses it.
    pub(super) fn reads<T: ShardTransition>(
        tenant: TenantId,
        shard: ShardKey,
        binds: bool,
    ) -> Vec<Read> {
        let mut reads = vec![
            Read::Get(Key::ShardHot { tenant, shard }),
            Read::Get(Key::ShardCold { tenant, shard }),
            Read::Get(Key::RunHead { tenant, run: shard.run() }),
        ];
        // Last in a fixed order: `take` consumes the answers in the same order.
        if binds && T::CONSULTS_OWNER {
            reads.push(Read::Get(Key::Owner { tenant, shard }));
        }
        if T::MAKES_SHARDS {
            reads.extend(Quota::keys(tenant).map(Read::Get));
        }
        reads
    }

    /// Takes the answers to [`Loaded::reads`].
    pub(super) fn take<T: ShardTransition>(
        answers: &mut Answers,
        (tenant, shard): (TenantId, ShardKey),
        binds: bool,
    ) -> Result<Self, InfraError> {
        let (hot, cold, head) = (answers.value(), answers.value(), answers.value());
        let owner = if binds && T::CONSULTS_OWNER { answers.value() } else { None };
        let quota = match T::MAKES_SHARDS {
            true => Quota::take([answers.value(), answers.value()]),
            false => Quota::default(),
        };
        let head = head.map(|head| Head::decode(tenant, shard.run(), head)).transpose()?;
        Ok(Self { hot, cold, head, owner, quota, origin: Origin::Store })
    }

    /// Returns the cached values, if they suffice for the operation.
    pub(super) fn from_cache<T: ShardTransition>(
        cached: CachedShard,
        head: Option<Head>,
    ) -> Option<Self> {
        // The count changes too often to be cached, and an owner key may vanish at any time.
        let enough = !T::MAKES_SHARDS && !T::CONSULTS_OWNER && head.is_some();
        enough.then(|| Self {
            hot: Some(cached.hot),
            cold: Some(cached.cold),
            head,
            owner: None,
            quota: Quota::default(),
            origin: Origin::Cache,
        })
    }

    /// Replaces the expected values by those that the conflict returned. `None` if it returned
    /// none, or if they do not form a whole shard: everything must then be loaded.
    pub(super) fn with_conflict(
        mut self,
        tenant: TenantId,
        shard: ShardKey,
        conflict: Conflict,
    ) -> Option<Self> {
        if conflict.found().is_empty() {
            return None;
        }
        for (key, value) in conflict.into_found() {
            // The keys are those that our transaction compared.
            let is_own = key.tenant().is_none_or(|other| other == tenant);
            assert!(is_own, "a conflict is about no other tenant's key");
            match key {
                Key::ShardHot { shard: other, .. } if other == shard => self.hot = Some(value?),
                // A deleted head cannot be merged: `value?` leads to a load, which finds the run
                // gone.
                Key::RunHead { run, .. } => {
                    assert!(run == shard.run(), "an operation compares the head of its own run");
                    self.head = Some(Head::decode(tenant, shard.run(), value?).ok()?);
                }
                Key::TenantCounter { .. } => self.quota.count = value,
                Key::Allotment { .. } => self.quota.allotment = value,
                // New shards, whose absence is checked again.
                Key::ShardHot { .. } | Key::ShardCold { .. } => {}
                Key::RunRoots { .. }
                | Key::Owner { .. }
                | Key::ClaimIndex { .. }
                | Key::ParkedIndex { .. }
                | Key::Worker { .. }
                | Key::Handoff { .. }
                | Key::Tombstone { .. }
                | Key::HandoffIndex { .. }
                | Key::FenceFloor { .. }
                | Key::Failure { .. }
                | Key::Event { .. }
                | Key::KeyLedger { .. }
                | Key::ResultBlock { .. }
                | Key::Budget { .. }
                | Key::TenantEntry { .. }
                | Key::SchemaVersion => return None,
            }
        }
        self.origin = Origin::Conflict;
        // The conflict returned the hot part only; after a split the cached cold part is stale.
        self.is_pair(tenant, shard).then_some(self)
    }

    /// Returns an error if a part is damaged.
    pub(super) fn check(&self, tenant: TenantId, shard: ShardKey) -> Result<(), InfraError> {
        if let Some(hot) = &self.hot {
            decode_hot(tenant, shard, &hot.bytes)?;
        }
        if let Some(cold) = &self.cold {
            decode_cold(tenant, shard, &cold.bytes)?;
        }
        Ok(())
    }

    /// Returns whether the two parts belong together: every change of the cold part adds to its
    /// list of spawned ids, and the hot part counts them.
    fn is_pair(&self, tenant: TenantId, shard: ShardKey) -> bool {
        let (Some(hot), Some(cold)) = (&self.hot, &self.cold) else { return false };
        let counted = decode_hot(tenant, shard, &hot.bytes).map(|hot| hot.spawned_count);
        let listed = decode_cold(tenant, shard, &cold.bytes).map(|cold| cold.spawned.len());
        counted.is_ok() && counted == listed
    }

    pub(super) fn owner(&self, tenant: TenantId, key: ShardKey) -> OwnerKey {
        OwnerKey::read(self.owner.as_ref(), tenant, key)
    }

    /// Decodes the record and its time in the claim index. The shards of a run that is not fully
    /// registered, or is being deleted, are not found.
    pub(super) fn record(
        &self,
        tenant: &Arc<TenantId>,
        key: ShardKey,
        core: &mut Core,
    ) -> Result<Option<(ShardRecord, Option<LogicalTime>)>, InfraError> {
        // Shards of an incomplete registration exist in the store but must not be visible.
        if !self.head.as_ref().is_some_and(|head| head.has_roots) {
            return Ok(None);
        }
        let (hot, cold) = match (&self.hot, &self.cold) {
            (None, None) => return Ok(None),
            (Some(hot), Some(cold)) => (hot, cold),
            (Some(_), None) | (None, Some(_)) => return Err(half_a_shard()),
        };
        let is_cached = self.origin == Origin::Cache;
        assert!(!is_cached || self.owner.is_none(), "an owner key is never cached");
        assert!(!is_cached || self.quota.count.is_none(), "a count of shards is never cached");
        // Cached bytes were verified when they were read or written, so they skip the checksum.
        let decode = match self.origin {
            Origin::Cache => decode_own_shard,
            Origin::Store | Origin::Conflict => decode_shard,
        };
        core.pool.begin();
        match decode(tenant, key, &hot.bytes, &cold.bytes, &mut core.pool) {
            Ok((record, indexed_at)) => {
                assert!(record.key() == key, "a record is decoded under its own key");
                assert!(record.tenant() == **tenant, "a record is decoded for its own tenant");
                Ok(Some((record, indexed_at)))
            }
            Err(DecodeShardError::Stored(error)) => Err(error),
            Err(DecodeShardError::PoolFull(full)) => {
                unreachable!("the pool fits the largest shard: {full}")
            }
        }
    }
}

pub(super) fn half_a_shard() -> InfraError {
    let message = "one of the two parts is missing".to_owned();
    InfraError::Corruption { operation: SHARD_LOAD, message }
}
