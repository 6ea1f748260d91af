//! Model checking: everything that can happen in a small world, tried on the production kernel.
//!
//! ```text
//!  configurations ──► world: what may happen ──► kernel: decide, evolve, codec
//!                       │                             │
//!                       └──── search: each state once ┴──► oracle: was that allowed?
//! ```
//!
//! The kernel here is [`protocol`](gossip_coordination::protocol) itself and no second model of it.
//! The search is breadth-first and goes on until no state is left ([`search`]); what it finds is
//! told with the shortest way to it. An [oracle of effects](Rule) hears every answer and keeps its
//! own history. The mutants (`cargo xtask mutants`) show that it can find something.
//!
//! `cargo xtask check-model` runs every configuration and prints what it came to.

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
