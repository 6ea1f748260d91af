//! Deterministic simulation and model checking of the coordinator.
//!
//! The simulator runs many workers on the production coordinator over a simulated store, injects
//! faults, and checks every effect and every result with an oracle. A simulation is a function of
//! its [`Plan`]: the same seed gives the same events on every machine, so every failure can be
//! reproduced by one command.
//!
//! ```text
//!  plan ──► world: event queue ──► programs on the production coordinators
//!             │                              │ flights, kernel, codec, record cache
//!             │      wire: faults ◄──────────┘
//!             └──► disk, sink ──► oracle: was that allowed?
//! ```
//!
//! A simulation has tenants, each with an administrator and several workers. Each of them is an
//! `async` program on [`AsyncStoreCoordinator`](gossip_coordination::store::AsyncStoreCoordinator).
//! The simulator decides when each request is answered and how, so flights are interleaved at every
//! await. There is no thread, no clock and no randomness except the seed's. A trace hash over all
//! events shows whether two runs were the same.
//!
//! The [oracle] observes commands, the instants of their commits, and their results. It keeps its
//! own history and derives from it, never from records, what each worker was allowed to do. Each
//! [kind of fault](FaultKind) declares whether it is tolerated or only detected.
//!
//! # Run
//!
//! ```text
//! cargo xtask sim                          1,000 seeds
//! cargo xtask sim --seeds 50 --ops 2000    fewer seeds, fewer operations each
//! cargo xtask sim --faults drop,twin       chosen faults only
//! cargo xtask sim --bugs                   search for every mutant of the store
//! ```
//!
//! `docs/reliability-simulation.md` explains the report.
//!
//! # Reproduce a failure
//!
//! A failing seed is shrunk to a smaller plan. The output ends with its trace, the broken [`Rule`]
//! and the command that reproduces it:
//!
//! ```text
//! cargo xtask sim --seed 5 --ops 600 --tenants 1 --workers 2 ... --trace
//! ```
//!
//! Run that command at the same commit. The fingerprint above it identifies builds with the same
//! behaviour ([`FINGERPRINT`]). In code, pass the [`Plan`] to [`Simulator::run`].
//!
//! [`Rule`]: oracle::Rule
//!
//! # Simulate your own worker
//!
//! Write the worker as an `async` function of a [`SimWorker`], and pass it to [`Trial::of`] and
//! [`Simulator::of`]. It runs under the same faults and rules as the simulator's own workers:
//!
//! ```text
//! cargo run --release -p gossip-sim --example your_worker -- hasty
//! ```
//!
//! # Where to start reading
//!
//! | question | module |
//! |---|---|
//! | which rules are checked, and which failure each guards against | [oracle] |
//! | which faults are injected | `faults`, `wire`, `damage` |
//! | when events happen | `world`, `processes` |
//! | what workers and administrators do | `worker`, `admin` |
//! | every state of small configurations | [model] |
#![forbid(unsafe_code)]

mod admin;
mod admin_requests;
mod answers;
mod audit;
mod backend;
mod bugs;
pub mod command;
mod context;
mod cross_tenant;
mod damage;
mod disk;
mod effects;
mod expected;
mod faults;
mod faulty_store;
mod grants;
mod keyspace;
mod listings;
mod malformed_input;
mod messages;
pub mod model;
mod op;
pub mod oracle;
mod pairs;
mod past;
mod plan;
mod pools;
mod port;
mod process_clock;
mod processes;
mod progress;
mod queries;
mod random;
mod refusals;
mod repairs;
mod report;
mod restores;
mod shrink;
mod sink;
mod splits;
mod user_coordinator;
mod user_worker;
mod wire;
mod worker;
mod world;

use std::rc::Rc;

pub use self::backend::OnSimulation;
pub use self::backend::{SimDisk, SimulationBackend};
pub use self::bugs::Bug;
pub use self::context::EPOCH;
pub use self::faults::{FaultClass, FaultKind, FaultSet, FaultTally};
pub use self::faulty_store::{Applied, FaultyDisk, FaultyStore, Nature};
use self::keyspace::Keyspace;
pub use self::op::{Label, Verb};
pub use self::oracle::{StaleTally, TrueTimeTally, UnjudgedTally};
pub use self::pairs::{PairFailure, PairReport, PairWrong, Turns, pair};
pub use self::plan::{OPERATIONS_DEFAULT, Plan};
pub use self::port::SimStore;
pub use self::progress::{FINGERPRINT, fingerprint};
pub use self::random::{Stream, mix};
pub use self::report::{Coverage, Failure, Figures, Report, fault_table, outcome_table};
pub use self::shrink::shrink;
pub use self::user_coordinator::SimCoordinator;
pub use self::user_worker::{ResultSink, SimWorker, SimWorld, Trial, Written};
use self::world::World;

#[cfg(test)]
mod admin_requests_tests;
#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod backend_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod expected_tests;
#[cfg(test)]
mod faulty_store_tests;
#[cfg(test)]
mod grants_tests;
#[cfg(test)]
mod malformed_input_tests;
#[cfg(test)]
mod offers_tests;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod progress_tests;
#[cfg(test)]
mod queries_tests;
#[cfg(test)]
mod renew_many_tests;
#[cfg(test)]
mod repairs_tests;
#[cfg(test)]
mod sim_tests;
#[cfg(test)]
mod verbs_tests;

/// Runs simulations, one after another.
#[derive(Debug)]
pub struct Simulator {
    keys: Rc<Keyspace>,
    trial: Option<Trial>,
    /// The command that reproductions begin with.
    command: String,
}

impl Default for Simulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulator {
    /// Returns a simulator of the crate's own workers.
    #[must_use]
    pub fn new() -> Self {
        let (keys, command) = (Rc::new(Keyspace::new()), "cargo xtask sim".to_owned());
        Self { keys, trial: None, command }
    }

    /// Returns a simulator of user workers. Reproductions begin with `command`: a program that
    /// takes the arguments of [`command::Options`].
    #[must_use]
    pub fn of(trial: Trial, command: &str) -> Self {
        Self { trial: Some(trial), command: command.to_owned(), ..Self::new() }
    }

    /// Replaces the command that reproductions begin with.
    #[must_use]
    pub fn with_command(self, command: &str) -> Self {
        Self { command: command.to_owned(), ..self }
    }

    /// Runs the simulation of `plan` to its end.
    ///
    /// # Errors
    ///
    /// Returns the broken rule, with a trace if the plan asks for one.
    pub fn run(&self, plan: &Plan) -> Result<Report, Failure> {
        World::new(plan.clone(), Rc::clone(&self.keys), self.trial.clone()).run()
    }

    /// Returns whether the workers are user workers.
    const fn has_user_workers(&self) -> bool {
        self.trial.is_some()
    }

    /// Returns the command that reproduces the simulation of `plan`.
    #[must_use]
    pub fn replay(&self, plan: &Plan) -> String {
        format!("{} {}", self.command, plan.words())
    }
}
