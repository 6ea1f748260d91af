//! Golden scripts: the protocol as readable text files.
//!
//! A script describes one situation. Each block holds commands, a line of three dashes, and the
//! coordinator's answers and events, up to an empty line:
//!
//! ```text
//! # A worker acquires a free shard.
//! acquire shard=0 worker=1 now=10 as=l1
//! ---
//! granted shard=0 fence=2 deadline=110 attempts=1 range=a..m cursor=none available=1 next=110
//! event ShardAcquired { shard: 0, worker: <redacted>, fence_epoch: 2 }
//! ```
//!
//! The files are in `testscripts/` of this crate, and every backend runs the same ones: it
//! implements [`ScriptBackend`] and calls [`check_scripts`]. Scripts use the public traits only, so
//! that a real server can be tested from outside. A [`MultiHandle`] distributes the commands of one
//! script over several handles or processes on one store.
//!
//! # The language
//!
//! A command is a name and named arguments, `name=value`. `#` starts a comment. `now=` sets the
//! clock from that command on; `tenant=` and `run=` are 1 unless given; `op=` is a fresh number
//! unless given. Grants are kept `as=` a name and presented as `lease=` that name, and can be
//! forged by `owner=`, `fence=`, `lease_tenant=` and `lease_shard=`; `seq=` is the sequence of the
//! operation, none unless given. `c*5` is a key of five bytes.
//! Shards cut from shard 0 are called `0.0`, `0.1` and so on. `repeat 01..16 COMMAND` runs a
//! command with `$` replaced by each number, and `$+` by the next, and prints only the number of
//! times each answer occurred.
//!
//! # Order between two rules
//!
//! `order checkpoint: StaleFence < LeaseExpired` announces a call that violates both rules, of
//! which the first one is reported. The command must then be refused exactly twice, with one change
//! in between: in the state, or in one argument. The two answers must be the two rules. This proves
//! that the state violates the second rule, and that the first rule is checked before it.
//!
//! This module contains no protocol rule and no expectation: those are in the files. It reads and,
//! on request, rewrites them.

mod answer;
mod arguments;
mod coverage;
mod executor;
mod files;
mod multi_handle;
mod run;
mod run_commands;
mod script;
mod shard_commands;
mod show;
mod wire;
mod world;

pub use self::coverage::{Cell, FileCoverage, Order};
pub use self::executor::{CommandOutput, Executor};
pub use self::files::{Report, SCRIPTS_MIN, check_scripts, check_scripts_on};
pub use self::multi_handle::{Channel, HandleServer, MultiHandle, Routing};
pub use self::run::{ScriptOutcome, run_script, run_script_on};
pub use self::script::ScriptError;

use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{
    Allotment, AsyncStore, Store, StoreConfig, fly, fly_async, set_allotment,
};
use gossip_coordination::{CoordinationFacade, StateTransitionEvent};

use crate::FenceFloors;

/// Highest tenant number in a script that sets limits.
const TENANTS_MAX: u8 = 3;

/// Returns whether a script, by its name, needs a feature that only the in-memory coordinator has:
/// a slab of limited size, or a limit on the shards of all tenants.
#[must_use]
pub fn is_for_memory_only(script: &str) -> bool {
    script.contains("slab") || script.contains("limit_of_the_tenant_comes_before_that_of_all")
}

/// A backend that can run scripts.
pub trait ScriptBackend {
    /// The coordinator under test.
    type Coordinator: CoordinationFacade + FenceFloors;

    /// Returns an empty coordinator, or `None` to skip the script if the settings are unsupported.
    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator>;

    /// Runs `call` and returns its result with the events of its operations.
    fn observe<R>(
        coordinator: &mut Self::Coordinator,
        call: impl FnOnce(&mut Self::Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>);
}

/// Limits that a script can set; `None` keeps the backend's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldSettings {
    /// Claim cooldown of a worker, in ticks.
    pub claim_cooldown: Option<u64>,
    /// Maximum number of shards per tenant.
    pub max_shards_per_tenant: Option<usize>,
    /// Maximum number of shards in total.
    pub max_total_shards: Option<usize>,
    /// Bytes for keys and cursors, for backends with such a bound.
    pub slab_bytes: Option<usize>,
}

impl WorldSettings {
    /// Returns the configuration of a handle with these limits.
    #[must_use]
    pub fn limit(self, handle: StoreConfig) -> StoreConfig {
        StoreConfig { claim_cooldown_interval: self.claim_cooldown.unwrap_or(0), ..handle }
    }

    /// Returns whether a store supports these settings. A store has no slab, and an allotment for
    /// each tenant instead of a limit on all shards.
    #[must_use]
    pub const fn fit_a_store(self) -> bool {
        self.slab_bytes.is_none() && self.max_total_shards.is_none()
    }

    /// Writes the allotments of these limits into an empty store, as its operator would.
    ///
    /// # Panics
    ///
    /// If the store fails.
    pub fn allot<S: Store>(self, store: &mut S) {
        for (tenant, allotment) in self.allotments() {
            fly(store, set_allotment(tenant, Some(allotment)))
                .expect("an empty store accepts the allotment");
        }
    }

    /// As [`WorldSettings::allot`] on an asynchronous store.
    ///
    /// # Panics
    ///
    /// If the store fails.
    pub async fn allot_async<S: AsyncStore>(self, store: &mut S) {
        for (tenant, allotment) in self.allotments() {
            let allotted = fly_async(store, set_allotment(tenant, Some(allotment))).await;
            allotted.expect("an empty store accepts the allotment");
        }
    }

    fn allotments(self) -> impl Iterator<Item = (TenantId, Allotment)> {
        let allotment = self.max_shards_per_tenant.map(|max| Allotment::of_shards(max as u64));
        let tenants = (1..=TENANTS_MAX).map(|byte| TenantId::from_bytes([byte; 32]));
        allotment.into_iter().flat_map(move |it| tenants.clone().map(move |tenant| (tenant, it)))
    }
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod ladder_tests;
#[cfg(test)]
mod multi_handle_tests;
#[cfg(test)]
mod script_tests;
