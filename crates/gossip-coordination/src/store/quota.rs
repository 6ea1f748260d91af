//! How many shards a tenant has, and how many the operator allows it.
//!
//! The count lies below the tenant and is written in the commit that makes or removes shards. The
//! allotment lies below the operator's prefix: a tenant's workers read it and compare it in every
//! commit that makes shards, so that a lowered allotment takes effect at once. No key is shared by
//! two tenants; the limit on all shards of a store is the sum of its allotments (DESIGN Q15, Q31).
//!
//! # Invariants
//! - A commit that makes shards compares the count and the allotment that it was decided on.
//! - An allotment below the present count removes nothing. It only refuses growth.

use gossip_contracts::identity::TenantId;

use super::codec::{decode_allotment, decode_count, encode_allotment, encode_tenant_count};
use super::core::encoded;
use super::flight::{Flight, Io};
use super::key::Key;
use super::retry::Tries;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::shard_limits::{DEFAULT_MAX_SHARDS_PER_TENANT, ShardQuota};

/// What the operator allows a tenant. A tenant without an allotment has the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allotment {
    /// Shards that the tenant may have.
    pub max_shards: u64,
}

impl Allotment {
    /// At most `max_shards` shards.
    #[must_use]
    pub const fn of_shards(max_shards: u64) -> Self {
        Self { max_shards }
    }
}

impl Default for Allotment {
    fn default() -> Self {
        Self::of_shards(DEFAULT_MAX_SHARDS_PER_TENANT as u64)
    }
}

/// Writes the allotment of a tenant, or removes it, so that the default applies again. Only the
/// operator may call this: a tenant's credentials need no right to write there.
///
/// # Errors
///
/// [`InfraError`]; after a lost reply it retries until the store holds the allotment.
#[must_use]
pub fn set_allotment(
    tenant: TenantId,
    allotment: Option<Allotment>,
) -> Flight<'static, Result<(), InfraError>> {
    Flight::new(move |io| async move {
        let key = Key::Allotment { tenant };
        let mut tries = Tries::new("allotment.commit", 0);
        loop {
            // Comparing with the last read excludes an earlier try of ours whose reply was lost: it
            // cannot be applied after a later call of the operator.
            let stored = load(&io, key).await.map_err(|error| tries.ended(error))?;
            let wanted = allotment.map(|it| encoded(|out| encode_allotment(tenant, it, out)));
            if stored.as_ref().map(|value| &value.bytes) == wanted.as_ref() {
                return Ok(());
            }
            let mut txn = Txn::new();
            txn.expect(key, stored.as_ref());
            match wanted {
                Some(bytes) => txn.put(key, bytes),
                None => txn.delete(key),
            }
            let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
            let ticks = match outcome {
                CommitOutcome::Applied { .. } => return Ok(()),
                CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), false)?,
                CommitOutcome::Unknown => tries.failed(None, false)?,
            };
            io.pause(ticks).await;
        }
    })
}

/// Returns the allotment of a tenant: the written one, or the default.
///
/// # Errors
///
/// [`InfraError`].
#[must_use]
pub fn load_allotment(tenant: TenantId) -> Flight<'static, Result<Allotment, InfraError>> {
    Flight::new(move |io| async move {
        let stored = load(&io, Key::Allotment { tenant }).await?;
        allotment_in(tenant, stored.as_ref())
    })
}

async fn load(io: &Io, key: Key) -> Result<Option<Versioned>, InfraError> {
    Ok(io.load(vec![key]).await?.pop().flatten())
}

fn allotment_in(tenant: TenantId, stored: Option<&Versioned>) -> Result<Allotment, InfraError> {
    stored.map_or_else(|| Ok(Allotment::default()), |value| decode_allotment(tenant, &value.bytes))
}

/// Count and allotment of a tenant as they were loaded.
#[derive(Debug, Default)]
pub(super) struct Quota {
    pub(super) count: Option<Versioned>,
    /// Not loaded by operations that make no shards.
    pub(super) allotment: Option<Versioned>,
}

impl Quota {
    /// The keys to load.
    pub(super) const fn keys(tenant: TenantId) -> [Key; 2] {
        [Key::TenantCounter { tenant }, Key::Allotment { tenant }]
    }

    /// Whether `key` is one of [`Quota::keys`]. A conflict on it says nothing about a shard or run.
    pub(super) const fn has(key: &Key) -> bool {
        matches!(key, Key::TenantCounter { .. } | Key::Allotment { .. })
    }

    /// Takes what was loaded for [`Quota::keys`].
    pub(super) fn take([count, allotment]: [Option<Versioned>; 2]) -> Self {
        Self { count, allotment }
    }

    /// Shards of the tenant.
    pub(super) fn used(&self, tenant: TenantId) -> Result<u64, InfraError> {
        self.count.as_ref().map_or(Ok(0), |value| decode_count(tenant, &value.bytes))
    }

    /// How many shards the tenant has and may have; `reserved` of them are not counted.
    pub(super) fn quota(
        &self,
        tenant: TenantId,
        reserved: usize,
    ) -> Result<ShardQuota, InfraError> {
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let allotment = allotment_in(tenant, self.allotment.as_ref())?;
        Ok(ShardQuota {
            tenant_count: size(self.used(tenant)?).saturating_sub(reserved),
            max_per_tenant: size(allotment.max_shards),
            ..ShardQuota::UNLIMITED
        })
    }

    /// Counts `added` more shards and `removed` fewer in `txn`.
    pub(super) fn change(
        &self,
        txn: &mut Txn,
        tenant: TenantId,
        added: u64,
        removed: u64,
    ) -> Result<(), InfraError> {
        let [count, allotment] = Self::keys(tenant);
        txn.expect(count, self.count.as_ref());
        if added > 0 {
            txn.expect(allotment, self.allotment.as_ref());
        }
        let next = (self.used(tenant)? + added).saturating_sub(removed);
        txn.put(count, encoded(|out| encode_tenant_count(tenant, next, out)));
        Ok(())
    }
}
