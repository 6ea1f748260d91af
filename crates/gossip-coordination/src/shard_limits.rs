//! How many shards there may be, for one tenant and in all.
//!
//! Splits and registrations make shards; without a ceiling one tenant could flood the coordinator.
//! The check is pure. Counting in the same commit as the growth is the store's duty (DESIGN Q15).

use gossip_contracts::coordination::{ShardLimitScope, SplitValidationError};

use crate::run_errors::RegisterShardsError;

/// Shards one tenant may have unless configured otherwise.
pub const DEFAULT_MAX_SHARDS_PER_TENANT: usize = 100_000;
/// Shards there may be in all unless configured otherwise.
pub const DEFAULT_MAX_TOTAL_SHARDS: usize = 1_000_000;

const _: () = assert!(DEFAULT_MAX_SHARDS_PER_TENANT <= DEFAULT_MAX_TOTAL_SHARDS);

/// Shards there are, and shards there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardQuota {
    /// Shards of the tenant.
    pub tenant_count: usize,
    /// Shards in all.
    pub total_count: usize,
    /// Shards the tenant may have.
    pub max_per_tenant: usize,
    /// Shards there may be in all.
    pub max_total: usize,
}

impl ShardQuota {
    /// No limits, for operations that create no shards.
    pub(crate) const UNLIMITED: Self =
        Self { tenant_count: 0, total_count: 0, max_per_tenant: usize::MAX, max_total: usize::MAX };

    /// Whether `additional` more shards fit; the tenant's own limit speaks first.
    ///
    /// # Errors
    ///
    /// The limit that would be exceeded.
    pub(crate) fn check(&self, additional: usize) -> Result<(), ShardLimitViolation> {
        if self.tenant_count.saturating_add(additional) > self.max_per_tenant {
            return Err(ShardLimitViolation {
                current: self.tenant_count,
                additional,
                max: self.max_per_tenant,
                scope: ShardLimitScope::PerTenant,
            });
        }
        if self.total_count.saturating_add(additional) > self.max_total {
            return Err(ShardLimitViolation {
                // Not the count: it would reveal the activity of other tenants.
                current: self.max_total,
                additional,
                max: self.max_total,
                scope: ShardLimitScope::Global,
            });
        }
        Ok(())
    }
}

/// A limit that growth would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimitViolation {
    /// Shards there are; `max` for the global limit.
    pub(crate) current: usize,
    /// Shards that were to be added.
    pub(crate) additional: usize,
    /// The limit.
    pub(crate) max: usize,
    /// Whose limit.
    pub(crate) scope: ShardLimitScope,
}

impl From<ShardLimitViolation> for SplitValidationError {
    fn from(violation: ShardLimitViolation) -> Self {
        let ShardLimitViolation { current, additional, max, scope } = violation;
        Self::ShardLimitExceeded { current, additional, max, scope }
    }
}

impl From<ShardLimitViolation> for RegisterShardsError {
    fn from(violation: ShardLimitViolation) -> Self {
        let ShardLimitViolation { current, additional, max, scope } = violation;
        Self::ShardLimitExceeded { current, additional, max, scope }
    }
}
