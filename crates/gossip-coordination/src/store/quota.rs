//! The shard count of a tenant and its allotment.
//!
//! The count lies below the tenant's prefix and is written in the commit that creates or deletes
//! shards. The allotment lies below the operator's prefix: a tenant's workers read it and compare
//! it in every commit that creates shards, so that a lowered allotment takes effect at once.
//! Tenants share no key; the limit on all shards of a store is the sum of its allotments (DESIGN
//! Q15, Q31).
//!
//! # Invariants
//! - A commit that creates shards compares the count and the allotment it was decided on.
//! - An allotment below the current count deletes nothing. It only refuses growth.

use gossip_contracts::identity::TenantId;

use super::codec::{decode_allotment, decode_count, encode_allotment, encode_tenant_count};
use super::core::encoded;
use super::flight::{Flight, Io};
use super::key::Key;
use super::retry::Tries;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::shard_limits::{DEFAULT_MAX_SHARDS_PER_TENANT, ShardQuota};

/// The operator's limits for a tenant. A tenant without a stored allotment has the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allotment {
    /// Maximum number of shards.
    pub max_shards: u64,
}

impl Allotment {
    /// Creates an allotment of `max_shards` shards.
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

/// Stores the allotment of a tenant, or removes it, so that the default applies. Only the operator
/// may call this: a tenant's credentials need no write access to the operator's prefix.
///
/// # Errors
///
/// Returns [`InfraError`]. After a lost reply it retries until the store holds the allotment.
#[must_use]
pub fn set_allotment(
    tenant: TenantId,
    allotment: Option<Allotment>,
) -> Flight<'static, Result<(), InfraError>> {
    Flight::new(move |io| async move {
        let key = Key::Allotment { tenant };
        let mut tries = Tries::new("allotment.commit", 0);
        // The revision that the first commit without a reply was decided on.
        let mut sent_on: Option<Option<u64>> = None;
        loop {
            let stored = load(&io, key).await.map_err(|error| tries.ended(error))?;
            let wanted = allotment.map(|it| encoded(|out| encode_allotment(tenant, it, out)));
            let revision = stored.as_ref().map(|value| value.revision);
            let is_wanted = stored.as_ref().map(|value| &value.bytes) == wanted.as_ref();
            // After a lost reply the value may be stored. It is not enough that it is the wanted
            // one: an earlier call may still be in flight, and only a new revision excludes it.
            if is_wanted && (sent_on.is_some_and(|base| base != revision) || stored.is_none()) {
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
                CommitOutcome::Unknown => {
                    sent_on = sent_on.or(Some(revision));
                    tries.failed(None, false)?
                }
            };
            io.pause(ticks).await;
        }
    })
}

/// Returns the allotment of a tenant: the written one, or the default.
///
/// # Errors
///
/// Returns [`InfraError`] if the read or the decoding fails.
#[must_use]
pub fn load_allotment(tenant: TenantId) -> Flight<'static, Result<Allotment, InfraError>> {
    Flight::new(move |io| async move {
        let stored = load(&io, Key::Allotment { tenant }).await?;
        allotment_in(tenant, stored.as_ref())
    })
}

/// The shards of a tenant and its allotment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantUsage {
    /// Number of shards of all runs, deleted ones excepted.
    pub shards: u64,
    /// The limits that apply.
    pub allotment: Allotment,
    /// Whether no allotment is stored, so that the default applies.
    pub is_default: bool,
}

impl TenantUsage {
    /// Returns whether no further shard can be created.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.shards >= self.allotment.max_shards
    }
}

/// Returns what a tenant uses and what it may use, at one instant.
///
/// # Errors
///
/// Returns [`InfraError`] if the read or the decoding fails.
#[must_use]
pub fn load_tenant_usage(tenant: TenantId) -> Flight<'static, Result<TenantUsage, InfraError>> {
    Flight::new(move |io| async move {
        let mut found = io.load(Quota::keys(tenant).to_vec()).await?.into_iter();
        let quota = Quota::take([found.next().flatten(), found.next().flatten()]);
        Ok(TenantUsage {
            shards: quota.used(tenant)?,
            allotment: allotment_in(tenant, quota.allotment.as_ref())?,
            is_default: quota.allotment.is_none(),
        })
    })
}

async fn load(io: &Io, key: Key) -> Result<Option<Versioned>, InfraError> {
    Ok(io.load(vec![key]).await?.pop().flatten())
}

fn allotment_in(tenant: TenantId, stored: Option<&Versioned>) -> Result<Allotment, InfraError> {
    stored.map_or_else(|| Ok(Allotment::default()), |value| decode_allotment(tenant, &value.bytes))
}

/// The loaded count and allotment of a tenant.
#[derive(Debug, Default)]
pub(super) struct Quota {
    pub(super) count: Option<Versioned>,
    /// Not loaded by operations that create no shards.
    pub(super) allotment: Option<Versioned>,
}

impl Quota {
    /// Returns the keys to load.
    pub(super) const fn keys(tenant: TenantId) -> [Key; 2] {
        [Key::TenantCounter { tenant }, Key::Allotment { tenant }]
    }

    /// Returns whether `key` is one of [`Quota::keys`]. A conflict on one does not concern a shard
    /// or run.
    pub(super) const fn has(key: &Key) -> bool {
        matches!(key, Key::TenantCounter { .. } | Key::Allotment { .. })
    }

    /// Creates a quota from the values of [`Quota::keys`].
    pub(super) fn take([count, allotment]: [Option<Versioned>; 2]) -> Self {
        Self { count, allotment }
    }

    /// Returns the number of the tenant's shards.
    pub(super) fn used(&self, tenant: TenantId) -> Result<u64, InfraError> {
        self.count.as_ref().map_or(Ok(0), |value| decode_count(tenant, &value.bytes))
    }

    /// Returns the tenant's count and limit. `reserved` shards are subtracted from the count: the
    /// operation itself has already counted them.
    pub(super) fn quota(
        &self,
        tenant: TenantId,
        reserved: usize,
    ) -> Result<ShardQuota, InfraError> {
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        // An undecodable allotment is an error, not the default: the operator's limit must hold.
        let allotment = allotment_in(tenant, self.allotment.as_ref())?;
        Ok(ShardQuota {
            tenant_count: size(self.used(tenant)?).saturating_sub(reserved),
            max_per_tenant: size(allotment.max_shards),
            ..ShardQuota::UNLIMITED
        })
    }

    /// Adds the new count, with `added` more and `removed` fewer shards, to `txn`.
    pub(super) fn change(
        &self,
        txn: &mut Txn,
        tenant: TenantId,
        added: u64,
        removed: u64,
    ) -> Result<(), InfraError> {
        assert!(added == 0 || removed == 0, "a commit creates shards or deletes some");
        let [count, allotment] = Self::keys(tenant);
        // Without the compare, one of two concurrent changes of the count would be lost.
        txn.expect(count, self.count.as_ref());
        // Deletions do not depend on the allotment, so they do not compare it.
        if added > 0 {
            txn.expect(allotment, self.allotment.as_ref());
        }
        // Saturating: a count that is too low must not block the deletion of shards.
        let next = (self.used(tenant)? + added).saturating_sub(removed);
        txn.put(count, encoded(|out| encode_tenant_count(tenant, next, out)));
        Ok(())
    }
}
