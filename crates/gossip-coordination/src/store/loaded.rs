//! What an operation on one shard looks at, and where it comes from.
//!
//! It comes from the store, from what the handle remembers, or from a conflict that told what is
//! there now. Only the first may be the ground of a refusal or a replay.

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

/// The values that an operation on a shard looks at.
pub(super) struct Loaded {
    pub(super) hot: Option<Versioned>,
    pub(super) cold: Option<Versioned>,
    pub(super) head: Option<Head>,
    /// Read only for those who ask what the store knows of the owner.
    pub(super) owner: Option<Versioned>,
    pub(super) quota: Quota,
    pub(super) origin: Origin,
}

/// The head of a run, as far as its shards look at it.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) revision: u64,
    pub(super) run: RunHead,
    /// Whether all shards of the run are registered.
    pub(super) has_roots: bool,
}

impl Head {
    fn decode(tenant: TenantId, run: RunId, value: &Versioned) -> Result<Self, InfraError> {
        let part = decode_run_head(tenant, run, &value.bytes)?;
        let (run, has_roots) = (part.head(), part.has_roots());
        Ok(Self { revision: value.revision, run, has_roots })
    }
}

/// The highest revisions that are known of a shard and of the head of its run.
///
/// Revisions of a key rise with every write, also across its deletion, and a read shows nothing
/// older than what was acknowledged before it (see [`engine`](super::engine)). So a store that
/// shows a lower one has lost what it acknowledged, or answers from the past: nothing is decided
/// about that. Nothing at all is no sign of it: shards and heads are deleted with their
/// run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Zero if nothing is known, as for the head.
    hot: u64,
    head: u64,
}

impl Seen {
    /// What is remembered of a shard, and of its run.
    pub(super) fn of(remembered: Option<&CachedShard>, head: Option<&Head>) -> Self {
        let hot = remembered.map_or(0, |shard| shard.hot.revision);
        Self { hot, head: head.map_or(0, |head| head.revision) }
    }

    /// Takes note of what a store shows.
    ///
    /// # Errors
    ///
    /// [`InfraError::Corruption`] if it is older than what was known.
    pub(super) fn note(&mut self, loaded: &Loaded) -> Result<(), InfraError> {
        let hot = loaded.hot.as_ref().map_or(self.hot, |hot| hot.revision);
        let head = loaded.head.map_or(self.head, |head| head.revision);
        for (known, shown) in [(self.hot, hot), (self.head, head)] {
            if shown < known {
                return Err(older());
            }
        }
        (self.hot, self.head) = (hot, head);
        Ok(())
    }
}

/// The `operation` of the [`InfraError::Corruption`] for a record that is older than one this
/// handle has read before.
pub const OLDER: &str = "shard.revision";

/// Without numbers: all tenants of a store may share them, so they tell of others.
fn older() -> InfraError {
    let message = "the store shows an older version than was known before".to_owned();
    InfraError::Corruption { operation: OLDER, message }
}

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// They were read for this operation.
    Store,
    /// The handle remembered them.
    Cache,
    /// A conflict told what is there instead of some of them.
    Conflict,
}

impl Loaded {
    /// What to read. The owner key is read if the store `binds` and the operation looks at it.
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
        if binds && T::CONSULTS_OWNER {
            reads.push(Read::Get(Key::Owner { tenant, shard }));
        }
        if T::MAKES_SHARDS {
            reads.extend(Quota::keys(tenant).map(Read::Get));
        }
        reads
    }

    /// Takes what [`Loaded::reads`] brought.
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
        let head = head.map(|head| Head::decode(tenant, shard.run(), &head)).transpose()?;
        Ok(Self { hot, cold, head, owner, quota, origin: Origin::Store })
    }

    /// What is remembered, if it is enough for the operation.
    pub(super) fn recall<T: ShardTransition>(
        remembered: CachedShard,
        head: Option<Head>,
    ) -> Option<Self> {
        // The count changes too often to be worth remembering, and an owner key may vanish.
        let enough = !T::MAKES_SHARDS && !T::CONSULTS_OWNER && head.is_some();
        enough.then(|| Self {
            hot: Some(remembered.hot),
            cold: Some(remembered.cold),
            head,
            owner: None,
            quota: Quota::default(),
            origin: Origin::Cache,
        })
    }

    /// Puts what a conflict found in the place of what was expected. `None` if it was not told, or
    /// does not make a whole shard: everything must be loaded then.
    pub(super) fn heal(
        mut self,
        tenant: TenantId,
        shard: ShardKey,
        conflict: Conflict,
    ) -> Option<Self> {
        if conflict.found().is_empty() {
            return None;
        }
        for (key, value) in conflict.into_found() {
            match key {
                Key::ShardHot { shard: other, .. } if other == shard => self.hot = Some(value?),
                Key::RunHead { .. } => {
                    self.head = Some(Head::decode(tenant, shard.run(), &value?).ok()?);
                }
                Key::TenantCounter { .. } => self.quota.count = value,
                Key::Allotment { .. } => self.quota.allotment = value,
                // Newborn shards, which are asked for again.
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
        self.is_pair(tenant, shard).then_some(self)
    }

    /// Fails if a part is damaged.
    pub(super) fn check(&self, tenant: TenantId, shard: ShardKey) -> Result<(), InfraError> {
        if let Some(hot) = &self.hot {
            decode_hot(tenant, shard, &hot.bytes)?;
        }
        if let Some(cold) = &self.cold {
            decode_cold(tenant, shard, &cold.bytes)?;
        }
        Ok(())
    }

    /// Whether the two parts are of one instant: every change of the cold part adds to the ids that
    /// it lists, and the hot part counts them.
    fn is_pair(&self, tenant: TenantId, shard: ShardKey) -> bool {
        let (Some(hot), Some(cold)) = (&self.hot, &self.cold) else { return false };
        let counted = decode_hot(tenant, shard, &hot.bytes).map(|hot| hot.spawned_count);
        let listed = decode_cold(tenant, shard, &cold.bytes).map(|cold| cold.spawned.len());
        counted.is_ok() && counted == listed
    }

    pub(super) fn owner(&self, tenant: TenantId, key: ShardKey) -> OwnerKey {
        OwnerKey::read(self.owner.as_ref(), tenant, key)
    }

    /// The record, and where it stands in the claim index. The shards of a run that is not fully
    /// registered, or is being deleted, are not found.
    pub(super) fn record(
        &self,
        tenant: &Arc<TenantId>,
        key: ShardKey,
        core: &mut Core,
    ) -> Result<Option<(ShardRecord, Option<LogicalTime>)>, InfraError> {
        if !self.head.is_some_and(|head| head.has_roots) {
            return Ok(None);
        }
        let (hot, cold) = match (&self.hot, &self.cold) {
            (None, None) => return Ok(None),
            (Some(hot), Some(cold)) => (hot, cold),
            (Some(_), None) | (None, Some(_)) => return Err(half_a_shard()),
        };
        let decode = match self.origin {
            Origin::Cache => decode_own_shard,
            Origin::Store | Origin::Conflict => decode_shard,
        };
        match decode(tenant, key, &hot.bytes, &cold.bytes, &mut core.pool) {
            Ok(found) => Ok(Some(found)),
            Err(DecodeShardError::Stored(error)) => Err(error),
            Err(DecodeShardError::PoolFull(full)) => {
                unreachable!("the pool is made for the largest shard: {full}")
            }
        }
    }
}

pub(super) fn half_a_shard() -> InfraError {
    let message = "one of the two parts is missing".to_owned();
    InfraError::Corruption { operation: SHARD_LOAD, message }
}
