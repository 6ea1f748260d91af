//! One suite for every backend: the same cases, the same answers.
//!
//! A backend is held to the protocol by its public face alone: a [`ConformanceTarget`] makes
//! handles, the cases call them through [`CoordinationFacade`] and look at what comes back. A case
//! never looks into a store, a record or a simulation, so a server in another process can be tested
//! as well as the coordinator in memory.
//!
//! Each topic is a file, each case a function whose name is the sentence it states. [`run_all`]
//! runs them all and panics with the names of those that failed. [`check_sequences`] adds random
//! sequences of operations, whose answers must equal those of a naive model written apart, and
//! [`differential`] compares a backend with the coordinator in memory.
//!
//! [`round_robin`] makes several handles act as one, each operation by the next of them, and [`remote`]
//! lets their stores stand in processes of their own.
//!
//! What the suite never does: read a clock, start a thread, sleep. Time is an argument; a target
//! that can race its handles says how ([`ConformanceTarget::race`]).
#![forbid(unsafe_code)]

pub mod attempts;
pub mod blocking;
pub mod claims;
pub mod clocks;
pub mod cursors;
pub mod differential;
pub mod events;
pub mod fencing;
pub mod handoff;
pub mod idempotency;
pub mod limits;
pub mod listing;
pub mod parking;
pub mod remote;
pub mod requests;
pub mod round_robin;
pub mod runs;
pub mod splits;
pub mod tenants;
pub mod testscript;
pub mod unknown;
pub mod upkeep;
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

pub use self::sequences::{Tally, check_sequence, check_sequences};

/// Limits that a case asks its backend to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shards one tenant may have.
    pub max_shards_per_tenant: usize,
    /// Shards there may be in all.
    pub max_total_shards: usize,
    /// Ticks that a worker waits between claims; zero for none.
    pub claim_cooldown_interval: u64,
}

impl Settings {
    /// The settings of a handle, with these limits.
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
            fly(store, set_allotment(tenant, Some(allotment))).expect("an empty store takes it");
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
            allotted.expect("an empty store takes it");
        }
    }

    /// None if the default limit applies, so that cases run without allotments, too.
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

/// What a target may be unable to do, because of what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a target names what it lacks and matches nothing")]
pub enum Ability {
    /// To tell the events of its operations: [`ConformanceTarget::with_events`].
    Events,
    /// To have several handles on one store: [`ConformanceTarget::another_handle`].
    Handles,
    /// To lose a reply when told to: [`ConformanceTarget::lose_next_reply`].
    LostReplies,
    /// To limit the shards of all tenants together. Stores have an allotment for each tenant
    /// instead (DESIGN Q31), so that tenants share no counter.
    TotalLimit,
}

/// Work for [`ConformanceTarget::race`], with a handle of its own in it.
pub type RaceJob<'j> = Box<dyn FnOnce() + Send + 'j>;

/// A backend under test: how to make it, and what it can do beyond the traits.
///
/// Owner keys, where a backend has them, are configured without clock skew (DESIGN Q7).
pub trait ConformanceTarget {
    /// A handle of the backend.
    type Backend: CoordinationFacade + Send;

    /// What reports call the backend.
    fn name(&self) -> &str;

    /// What the target cannot do by its nature. It says so here, and cases that need it pass by;
    /// a hook that is merely missing fails them.
    fn lacks(&self) -> &'static [Ability] {
        &[]
    }

    /// A handle on an empty store of its own: cases use the same ids and must not meet.
    fn fresh(&self, settings: Settings) -> Self::Backend;

    /// Runs `call` and gives the events of its operations, if the backend collects any.
    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        (call(backend), None)
    }

    /// Another handle on the same store, if the backend allows several.
    fn another_handle(&self, _backend: &Self::Backend) -> Option<Self::Backend> {
        None
    }

    /// Runs `jobs`, at the same time if the target can; returns when all have ended.
    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }

    /// Makes the next commit of `backend` happen and its reply get lost. Answers whether it can.
    fn lose_next_reply(&self, _backend: &mut Self::Backend) -> bool {
        false
    }

    /// The most children that the backend can publish in one split.
    fn split_children_max(&self) -> usize {
        MAX_SPLIT_CHILDREN
    }
}

/// Holds a target to what it says it lacks, so that no case passes by silently.
///
/// # Panics
///
/// If a hook is missing that the target does not list, or there although it is listed.
pub(crate) fn note_ability<T: ConformanceTarget>(target: &T, ability: Ability, is_there: bool) {
    let is_listed = target.lacks().contains(&ability);
    assert!(is_there != is_listed, "{ability:?} of {}: there is {is_there}", target.name());
}

/// One case of the suite.
#[expect(missing_debug_implementations, reason = "a function pointer shows nothing of use")]
pub struct Case<T> {
    /// The file it is in.
    pub topic: &'static str,
    /// What it states.
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

/// Lists the cases of a topic, each under the name of its function.
macro_rules! topic {
    ($topic:literal: $($case:ident),+ $(,)?) => {
        /// The cases of this topic.
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

/// Asserts that a result is the refusal it should be, and shows the result if not.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern $(if $guard)?)),
        }
    };
}
use refused;

/// Every case, topic by topic.
#[must_use]
pub fn all_cases<T: ConformanceTarget>() -> Vec<Case<T>> {
    let topics = [
        fencing::cases(),
        idempotency::cases(),
        unknown::cases(),
        cursors::cases(),
        splits::cases(),
        parking::cases(),
        attempts::cases(),
        handoff::cases(),
        requests::cases(),
        runs::cases(),
        upkeep::cases(),
        claims::cases(),
        listing::cases(),
        limits::cases(),
        tenants::cases(),
        events::cases(),
        clocks::cases(),
        workers::cases(),
    ];
    topics.into_iter().flatten().collect()
}

/// Runs every case, tells `report` the name of each before it runs, and answers how many ran.
///
/// # Panics
///
/// After the last case, with the names and messages of those that failed.
pub fn run_all<T: ConformanceTarget>(target: &T, report: &mut dyn FnMut(&Case<T>)) -> usize {
    let cases = all_cases::<T>();
    let mut failures = Vec::new();
    for case in &cases {
        report(case);
        // A failed case leaves a store that nobody uses again, so its state does not matter.
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
