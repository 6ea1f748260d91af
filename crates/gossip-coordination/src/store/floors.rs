//! Fence floors of many runs at once, after a restore or a lost tail (DESIGN Q32).
//!
//! Only the operator can list all tenants: the credentials of one tenant read its own prefix.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId};

use super::coordinator::{AsyncStoreCoordinator, StoreCoordinator, fly, fly_async};
use super::engine::{AsyncStore, Read, Store};
use super::flight::Flight;
use super::range::KeyRange;
use crate::error::InfraError;
use crate::run_errors::GetRunError;
use crate::run_management::{AsyncRunManagement, RunManagement};

/// Runs in one page of the list: their ids take 2 KiB.
const RUNS_PER_PAGE: usize = 256;

/// Returns the first tenant after `after` that has a key, or the first of all.
///
/// # Errors
///
/// Returns [`InfraError`] if the read fails.
#[must_use]
pub(crate) fn next_tenant(
    after: Option<TenantId>,
) -> Flight<'static, Result<Option<TenantId>, InfraError>> {
    Flight::new(move |io| async move {
        // One key of each tenant is read, because no record lists the tenants.
        let range = after.map_or_else(KeyRange::all_tenants, KeyRange::tenants_after);
        let mut answers = io.read(vec![Read::Scan { range, limit: 1 }]).await?;
        Ok(answers.page().first().and_then(|(key, _)| key.tenant()))
    })
}

/// Defines the operation on all runs.
macro_rules! floors {
    (
        $name:ident over $engine:ident as $management:ident, $each:ty;
        $fly:ident $(.$await:tt)? $(; $async:tt)?
    ) => {
        impl<S: $engine> $name<S> {
            /// Raises the fence floors of all runs of `tenant`, or of all tenants, as
            /// [`raise_fence_floor`](Self::raise_fence_floor) does, and calls `each` with every
            /// run's result. A run that cannot be read does not keep the others from it; one that
            /// was deleted meanwhile has no result.
            ///
            /// # Errors
            ///
            /// Returns [`InfraError`] if tenants or runs cannot be listed.
            pub $($async)? fn raise_fence_floors(
                &mut self,
                now: LogicalTime,
                tenant: Option<TenantId>,
                at_least: FenceEpoch,
                each: &mut $each,
            ) -> Result<(), InfraError> {
                if let Some(tenant) = tenant {
                    return self.raise_floors_of(now, tenant, at_least, each)$(.$await)?;
                }
                let mut after = None;
                while let Some(tenant) = $fly(self.store_mut(), next_tenant(after))$(.$await)?? {
                    self.raise_floors_of(now, tenant, at_least, each)$(.$await)??;
                    after = Some(tenant);
                }
                Ok(())
            }

            $($async)? fn raise_floors_of(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                at_least: FenceEpoch,
                each: &mut $each,
            ) -> Result<(), InfraError> {
                let (mut runs, mut after) = (Vec::new(), None);
                loop {
                    runs.clear();
                    let listed = $management::list_runs_into(
                        self, tenant, after, RUNS_PER_PAGE, &mut runs,
                    );
                    listed$(.$await)??;
                    for run in &runs {
                        let raised =
                            self.raise_fence_floor(now, tenant, *run, at_least)$(.$await)?;
                        // Deleted since it was listed: its shards cannot be granted again.
                        if !matches!(raised, Err(GetRunError::RunNotFound)) {
                            each(tenant, *run, raised);
                        }
                    }
                    if runs.len() < RUNS_PER_PAGE {
                        return Ok(());
                    }
                    after = runs.last().copied();
                }
            }
        }
    };
}

floors!(
    StoreCoordinator over Store as RunManagement,
    dyn FnMut(TenantId, RunId, Result<FenceEpoch, GetRunError>);
    fly
);
floors!(
    AsyncStoreCoordinator over AsyncStore as AsyncRunManagement,
    (dyn FnMut(TenantId, RunId, Result<FenceEpoch, GetRunError>) + Send);
    fly_async.await; async
);
