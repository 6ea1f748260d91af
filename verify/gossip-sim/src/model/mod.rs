//! Model checking: explores every state of small configurations with the production kernel.
//!
//! ```text
//!  configurations ──► world: possible moves ──► kernel: decide, evolve, codec
//!                       │                             │
//!                       └──── search: each state once ┴──► oracle: was that allowed?
//! ```
//!
//! The kernel is [`protocol`](gossip_coordination::protocol) itself and not a second model of it.
//! The search is breadth-first and continues until no state is left ([`search`]); a violation is
//! reported with the shortest path to it. An [oracle of effects](Rule) observes every answer and
//! keeps its own history. The mutants (`cargo xtask mutants`) show that it finds bugs.
//!
//! `cargo xtask check-model` searches every configuration and prints the results.

mod check;
mod configurations;
mod coverage;
mod interner;
mod kernel;
mod moves;
mod oracle;
mod oracle_runs;
mod runs;
mod search;
mod state;
mod vocabulary;
mod world;

pub use self::check::Strictness;
pub use self::configurations::{Config, Scale, configuration, configurations};
pub use self::coverage::{Coverage, coverage};
pub(crate) use self::kernel::panic_message;
pub use self::oracle::{Rule, Violation};
pub use self::search::{Finding, Report, search};
pub use self::vocabulary::Op;

#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod search_tests;
