//! Conformance suite: every backend runs the same cases and must give the same answers.
//!
//! A [`ConformanceTarget`] creates handles of a backend. The cases call them through
//! [`CoordinationFacade`] and check the results. A case never reads a store, a record or a
//! simulation directly, so the suite can test a server in another process as well as the in-memory
//! coordinator.
//!
//! | part | checks |
//! |---|---|
//! | [`run_all`] | the cases, one function per statement, one file per topic |
//! | [`check_sequences`] | random sequences against a naive model |
//! | [`differential`] | random operations against the in-memory coordinator |
//! | [`testscript`] | golden scripts in `testscripts/` |
//! | [`damage`] | shards with a damaged record |
//! | [`watches`] | leases whose deadline lies hours ahead |
//! | [`concurrent_repairs`] | repairs whose reply is lost, or that race with a lease holder |
//!
//! # Running it
//!
//! `cargo test -p gossip-conformance` runs everything on the in-memory coordinator and on the
//! coordinator over the model store. The store crates run the suite on their stores.
//!
//! # Example
//!
//! ```
//! use gossip_conformance::{Ability, ConformanceTarget, Settings, run_all};
//! use gossip_coordination::{CoordinatorRuntimeConfig, InMemoryCoordinator};
//!
//! struct InMemory;
//!
//! impl ConformanceTarget for InMemory {
//!     type Backend = InMemoryCoordinator;
//!
//!     fn name(&self) -> &str {
//!         "the in-memory coordinator"
//!     }
//!
//!     fn lacks(&self) -> &'static [Ability] {
//!         &[Ability::Events, Ability::Handles, Ability::Siblings, Ability::LostReplies]
//!     }
//!
//!     fn fresh(&self, settings: Settings) -> InMemoryCoordinator {
//!         InMemoryCoordinator::new(CoordinatorRuntimeConfig {
//!             max_shards_per_tenant: settings.max_shards_per_tenant,
//!             max_total_shards: settings.max_total_shards,
//!             claim_cooldown_interval: settings.claim_cooldown_interval,
//!             ..CoordinatorRuntimeConfig::default()
//!         })
//!     }
//! }
//!
//! let cases = run_all(&InMemory, &mut |case| println!("{}::{}", case.topic, case.name));
//! assert!(cases > 150);
//! ```
//!
//! # Several handles
//!
//! [`round_robin`] combines several handles into one backend and sends each operation to the next
//! handle. [`remote`] puts the store of a handle into another process.
//!
//! The suite reads no clock, starts no thread and does not sleep. Time is an argument; a target
//! that can run its handles concurrently implements [`ConformanceTarget::race`].
#![forbid(unsafe_code)]

pub mod attempts;
pub mod blocking;
pub mod claims;
pub mod clocks;
pub mod concurrent_repairs;
pub mod cursors;
pub mod damage;
pub mod differential;
pub mod events;
pub mod fencing;
pub mod floors;
pub mod handoff;
pub mod idempotency;
pub mod limits;
pub mod listing;
pub mod parking;
pub mod remote;
pub mod requests;
pub mod round_robin;
pub mod run_collection;
pub mod runs;
pub mod side_records;
pub mod splits;
pub mod stored_events;
pub mod tenants;
pub mod testscript;
pub mod unknown;
pub mod watches;
pub mod workers;

mod model;
mod model_runs;
mod sequences;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::MAX_SPLIT_CHILDREN;
use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{
    Allotment, AsyncStore, Store, StoreConfig, fly, fly_async, set_allotment,
};
use gossip_coordination::{
    CoordinationFacade, DEFAULT_MAX_SHARDS_PER_TENANT, DEFAULT_MAX_TOTAL_SHARDS,
    StateTransitionEvent,
};

pub use self::floors::FenceFloors;
pub use self::sequences::{Tally, check_sequence, check_sequences};

/// Limits that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of shards per tenant.
    pub max_shards_per_tenant: usize,
    /// Maximum number of shards in total.
    pub max_total_shards: usize,
    /// Claim cooldown of a worker in ticks; zero for none.
    pub claim_cooldown_interval: u64,
}

impl Settings {
    /// Returns the configuration of a handle with these limits.
    #[must_use]
    pub const fn limit(self, handle: StoreConfig) -> StoreConfig {
        StoreConfig { claim_cooldown_interval: self.claim_cooldown_interval, ..handle }
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

    /// As [`Settings::allot`] on an asynchronous store.
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

    /// Returns no allotments if the default limit applies, so that cases also run without them.
    fn allotments(self) -> impl Iterator<Item = (TenantId, Allotment)> {
        let allotment = Allotment::of_shards(self.max_shards_per_tenant as u64);
        let tenants = [world::TENANT, world::STRANGER].into_iter();
        tenants.map(move |tenant| (tenant, allotment)).filter(|it| it.1 != Allotment::default())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_shards_per_tenant: DEFAULT_MAX_SHARDS_PER_TENANT,
            max_total_shards: DEFAULT_MAX_TOTAL_SHARDS,
            claim_cooldown_interval: 0,
        }
    }
}

/// Optional abilities of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a target lists variants and matches none")]
pub enum Ability {
    /// Returns the events of its operations: [`ConformanceTarget::with_events`].
    Events,
    /// Has several handles on one store: [`ConformanceTarget::another_handle`].
    Handles,
    /// Has several handles in one process: [`ConformanceTarget::sibling_handle`].
    Siblings,
    /// Loses a reply on request: [`ConformanceTarget::lose_next_reply`].
    LostReplies,
    /// Limits the total number of shards. Stores have an allotment for each tenant instead (DESIGN
    /// Q31), so that tenants share no counter.
    TotalLimit,
}

/// A job for [`ConformanceTarget::race`], which owns a handle.
pub type RaceJob<'j> = Box<dyn FnOnce() + Send + 'j>;

/// A backend under test, with its abilities beyond the traits.
///
/// Owner keys, where a backend has them, are configured without clock skew (DESIGN Q7).
pub trait ConformanceTarget {
    /// A handle of the backend.
    type Backend: CoordinationFacade + FenceFloors + Send;

    /// Name of the backend in reports.
    fn name(&self) -> &str;

    /// Abilities that the backend cannot have. Cases that need them are skipped; a hook that is
    /// missing without being listed here fails them.
    fn lacks(&self) -> &'static [Ability] {
        &[]
    }

    /// Returns a handle on a new, empty store, because cases use the same ids.
    fn fresh(&self, settings: Settings) -> Self::Backend;

    /// Runs `call` and returns the events of its operations, if the backend collects any.
    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        (call(backend), None)
    }

    /// Returns another handle on the same store, if the backend supports several.
    fn another_handle(&self, _backend: &Self::Backend) -> Option<Self::Backend> {
        None
    }

    /// Returns another handle of the same process, which shares the record cache and the claim
    /// cooldowns of `backend`, if the backend supports several.
    fn sibling_handle(&self, _backend: &Self::Backend) -> Option<Self::Backend> {
        None
    }

    /// Runs `jobs`, concurrently if the target can, and returns when all have ended.
    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }

    /// Loses the reply of the next commit of `backend`, which is applied. Returns whether the
    /// target can do this.
    fn lose_next_reply(&self, _backend: &mut Self::Backend) -> bool {
        false
    }

    /// Maximum number of children in one split of the backend.
    fn split_children_max(&self) -> usize {
        MAX_SPLIT_CHILDREN
    }
}

/// Checks a hook against [`ConformanceTarget::lacks`], so that no case is skipped silently.
///
/// # Panics
///
/// If a hook is missing and not listed, or present and listed.
pub(crate) fn note_ability<T: ConformanceTarget>(target: &T, ability: Ability, is_there: bool) {
    let is_listed = target.lacks().contains(&ability);
    assert!(is_there != is_listed, "{ability:?} of {}: there is {is_there}", target.name());
}

/// One case of the suite.
#[expect(missing_debug_implementations, reason = "a function pointer shows nothing of use")]
pub struct Case<T> {
    /// The topic, which is the name of its file.
    pub topic: &'static str,
    /// The statement that it tests.
    pub name: &'static str,
    /// Panics unless the statement holds.
    pub run: fn(&T),
}

impl<T> Clone for Case<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Case<T> {}

/// Lists the cases of a topic by the names of their functions.
macro_rules! topic {
    ($topic:literal: $($case:ident),+ $(,)?) => {
        /// Returns the cases of this topic.
        #[must_use]
        pub fn cases<T: $crate::ConformanceTarget>()
            -> Vec<$crate::Case<T>> {
            vec![$($crate::Case {
                topic: $topic,
                name: stringify!($case),
                run: $case::<T>,
            }),+]
        }
    };
}
use topic;

/// Asserts that a result is the expected refusal.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern $(if $guard)?)),
        }
    };
}
use refused;

/// The number of cases when one was last counted. Fewer would mean that a topic or a case was lost.
pub const CASES_MIN: usize = 271;

/// Returns every case, by topic.
///
/// # Panics
///
/// If there are fewer than [`CASES_MIN`].
#[must_use]
pub fn all_cases<T: ConformanceTarget>() -> Vec<Case<T>> {
    let topics = [
        fencing::cases(),
        floors::cases(),
        idempotency::cases(),
        unknown::cases(),
        cursors::cases(),
        splits::cases(),
        parking::cases(),
        side_records::cases(),
        stored_events::cases(),
        attempts::cases(),
        handoff::cases(),
        requests::cases(),
        runs::cases(),
        run_collection::cases(),
        claims::cases(),
        listing::cases(),
        limits::cases(),
        tenants::cases(),
        events::cases(),
        clocks::cases(),
        workers::cases(),
    ];
    let cases: Vec<Case<T>> = topics.into_iter().flatten().collect();
    assert!(cases.len() >= CASES_MIN, "{} cases of {CASES_MIN} are left", cases.len());
    cases
}

/// Runs every case, calls `report` before each, and returns the number of cases.
///
/// # Panics
///
/// After the last case, with the names and messages of those that failed.
pub fn run_all<T: ConformanceTarget>(target: &T, report: &mut dyn FnMut(&Case<T>)) -> usize {
    let cases = all_cases::<T>();
    let mut failures = Vec::new();
    for case in &cases {
        report(case);
        // Each case has its own store, so the state after a panic does not matter.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (case.run)(target))) {
            failures.push(format!("{}::{}: {}", case.topic, case.name, message(&*payload)));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} conformance cases failed on {}:\n{}",
        failures.len(),
        cases.len(),
        target.name(),
        failures.join("\n"),
    );
    cases.len()
}

fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod conformance_handle_tests;
#[cfg(test)]
mod conformance_round_robin_tests;
#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod store_coordinator_tests;
#[cfg(test)]
mod store_differential_tests;
