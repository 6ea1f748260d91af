//! Simulation: many workers, real records, a bad day, and the same again from the same seed.
//!
//! ```text
//!  plan ──► world: the next event ──► programs on the production coordinators
//!             │                              │ flights, kernel, codec, handle memory
//!             │      wire: faults ◄──────────┘
//!             └──► disk, sink ──► oracle: was that allowed?
//! ```
//!
//! A world has tenants with an administrator and some workers each. Each of them is an `async`
//! program on [`AsyncStoreCoordinator`](gossip_coordination::store::AsyncStoreCoordinator), over a
//! store whose every answer the world decides: flights are interleaved wherever they wait. There is
//! no thread, no clock and no randomness but the seed's, so a world is a function of its [`Plan`],
//! and its trace hash tells whether two runs of it were the same.
//!
//! The [oracle] hears commands, the instants of their commits and their answers, and keeps
//! its own account of who may do what. The [faults](FaultKind) come with what they may cost.
//!
//! `cargo xtask sim` plays many worlds and prints what they came to;
//! `docs/reliability-simulation.md` tells how to read that.
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
mod guest_coordinator;
mod keyspace;
mod listings;
mod malformed_input;
mod messages;
pub mod model;
mod op;
pub mod oracle;
mod pairs;
mod plan;
mod pools;
mod port;
mod processes;
mod progress;
mod queries;
mod random;
mod refusals;
mod report;
mod shrink;
mod sink;
mod splits;
mod user_worker;
mod wire;
mod worker;
mod world;

use std::rc::Rc;

pub use self::backend::OnSimulation;
pub use self::backend::{SimDisk, SimulationBackend};
pub use self::bugs::Bug;
pub use self::faults::{FaultClass, FaultKind, FaultSet, FaultTally};
pub use self::faulty_store::{FaultyDisk, FaultyStore, Nature};
pub use self::guest_coordinator::SimCoordinator;
use self::keyspace::Keyspace;
pub use self::op::{Label, Verb};
pub use self::oracle::StaleTally;
pub use self::pairs::{PairFailure, PairReport, PairWrong, Turns, pair};
pub use self::plan::{OPERATIONS_DEFAULT, Plan};
pub use self::port::SimStore;
pub use self::progress::{FINGERPRINT, fingerprint};
pub use self::random::{Stream, mix};
pub use self::report::{Coverage, Failure, Figures, Report, fault_table, outcome_table};
pub use self::shrink::shrink;
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
mod sim_tests;
#[cfg(test)]
mod verbs_tests;

/// Plays worlds, one after another.
#[derive(Debug)]
pub struct Simulator {
    keys: Rc<Keyspace>,
    trial: Option<Trial>,
    /// The command that replays begin with.
    command: String,
}

impl Default for Simulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulator {
    /// A simulator of our own workers.
    #[must_use]
    pub fn new() -> Self {
        let (keys, command) = (Rc::new(Keyspace::new()), "cargo xtask sim".to_owned());
        Self { keys, trial: None, command }
    }

    /// A simulator of somebody else's workers. `command` is what its replays begin with: a program
    /// that takes the words of [`command::Options`].
    #[must_use]
    pub fn of(trial: Trial, command: &str) -> Self {
        Self { trial: Some(trial), command: command.to_owned(), ..Self::new() }
    }

    /// The same behind another door: `command` is what its replays begin with.
    #[must_use]
    pub fn behind(self, command: &str) -> Self {
        Self { command: command.to_owned(), ..self }
    }

    /// Plays the world of `plan` to its end.
    ///
    /// # Errors
    ///
    /// The rule that was broken.
    pub fn run(&self, plan: &Plan) -> Result<Report, Failure> {
        World::new(plan.clone(), Rc::clone(&self.keys), self.trial.clone()).run()
    }

    /// Whether the workers are somebody else's.
    const fn has_user_workers(&self) -> bool {
        self.trial.is_some()
    }

    /// The command that plays the world of `plan` again.
    #[must_use]
    pub fn replay(&self, plan: &Plan) -> String {
        format!("{} {}", self.command, plan.words())
    }
}
