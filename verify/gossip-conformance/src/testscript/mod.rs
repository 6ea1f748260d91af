//! Golden scripts: the protocol as text files that anybody can read.
//!
//! A script tells one situation. Blocks of commands stand above a line of three dashes, and what
//! the coordinator answered and which events it emitted stand below it, up to an empty line:
//!
//! ```text
//! # A worker gets a shard that nobody holds.
//! acquire shard=0 worker=1 now=10 as=l1
//! ---
//! granted shard=0 fence=2 deadline=110 attempts=1 range=a..m cursor=none available=1 next=110
//! event ShardAcquired { shard: 0, worker: <redacted>, fence_epoch: 2 }
//! ```
//!
//! The files lie in `testscripts/` of this crate, and every backend runs the same ones: it brings a
//! [`ScriptBackend`] and calls [`check_scripts`]. Scripts use the public traits only, so that a
//! real server can be tested from outside. A [`Troupe`] has the commands of one script performed by
//! several handles or processes on one store.
//!
//! # The language
//!
//! A command is a name and named arguments, `name=value`. `#` starts a comment. `now=` sets the
//! clock from that command on; `tenant=` and `run=` are 1 unless given; `op=` is a fresh number
//! unless given. Grants are kept `as=` a name and presented as `lease=` that name, and can be
//! forged by `owner=`, `fence=`, `lease_tenant=` and `lease_shard=`. `c*5` is a key of five bytes.
//! Shards cut from shard 0 are called `0.0`, `0.1` and so on. `repeat 01..16 COMMAND` runs a
//! command with `$` replaced by each number, and `$+` by the next, and tells only how often it was
//! answered how.
//!
//! # Order between two rules
//!
//! `order checkpoint: StaleFence < LeaseExpired` says that what follows shows both rules broken at
//! once, and which one speaks. The script then gives that command to be refused exactly twice, with
//! one thing changed in between: the state, or one argument. One answer must be each of the two.
//! The state that breaks the second rule is thereby seen to do so, and the first rule speaks
//! before it.
//!
//! # What is absent
//!
//! No rule of the protocol, and no expectation: the files hold those. Unlike the rest of the crate
//! this module reads and, when asked to, writes files; it is compiled for tests only.

mod answer;
mod arguments;
mod coverage;
mod files;
mod play;
mod run_commands;
mod script;
mod shard_commands;
mod show;
mod stage;
mod troupe;
mod wire;
mod world;

pub use self::coverage::{Cell, FileCoverage, Order};
pub use self::files::{Report, check_scripts, check_scripts_on};
pub use self::play::{Played, play, play_on};
pub use self::script::ScriptError;
pub use self::stage::{Performed, Stage};
pub use self::troupe::{Actor, Casting, Line, Troupe};

use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{
    Allotment, AsyncStore, Store, StoreConfig, fly, fly_async, set_allotment,
};
use gossip_coordination::{CoordinationFacade, StateTransitionEvent};

/// The highest number of a tenant in a script that sets limits.
const TENANTS_MAX: u8 = 3;

/// Whether the name of a script says that it needs what only the coordinator in memory has: a slab
/// to fill, or a limit on the shards of all tenants.
#[must_use]
pub fn is_for_memory_only(script: &str) -> bool {
    script.contains("slab") || script.contains("limit_of_the_tenant_comes_before_that_of_all")
}

/// How a backend takes part in the scripts.
pub trait ScriptBackend {
    /// What scripts talk to.
    type Coordinator: CoordinationFacade;

    /// An empty coordinator; `None` if this kind cannot have such settings, which skips the script.
    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator>;

    /// Runs `call` and collects the events of the operations in it.
    fn observe<R>(
        coordinator: &mut Self::Coordinator,
        call: impl FnOnce(&mut Self::Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>);
}

/// Limits that a script may ask for; `None` leaves the backend its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldSettings {
    /// Ticks that a worker waits between claims.
    pub claim_cooldown: Option<u64>,
    /// Shards one tenant may have.
    pub max_shards_per_tenant: Option<usize>,
    /// Shards there may be in all.
    pub max_total_shards: Option<usize>,
    /// Bytes for keys and cursors, where a backend has such a bound.
    pub slab_bytes: Option<usize>,
}

impl WorldSettings {
    /// The settings of a handle, with these limits.
    #[must_use]
    pub fn limit(self, handle: StoreConfig) -> StoreConfig {
        StoreConfig { claim_cooldown_interval: self.claim_cooldown.unwrap_or(0), ..handle }
    }

    /// Whether a store can have them: it has no slab, and an allotment for each tenant instead of a
    /// limit on all shards.
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
            fly(store, set_allotment(tenant, Some(allotment))).expect("an empty store takes it");
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
            allotted.expect("an empty store takes it");
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
mod script_tests;
#[cfg(test)]
mod troupe_tests;
