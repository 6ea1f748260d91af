//! Random schedules in which handoffs race with all other operations.
//!
//! [`search`](crate::search) explores one handoff exhaustively. This module runs many small worlds
//! in which several handoffs race with splits, expiring leases, parked shards, a cancelled run,
//! other handoffs, drains and withdrawn offers. A world has one to three shards, two to four
//! workers and an
//! administrator. The workers use [`lease_handoff`](gossip_handoff::lease_handoff) as a product
//! does: sources, [`Inbound`], [`Recovery`] and [`WorkerDrain`] through [`Driver`], on the
//! production coordinator and repository over the store layer. Only the disk is a map. It loses,
//! delays and duplicates requests and replies, stops in the middle of an operation, and lets others
//! act between the read and the commit of an operation. Processes crash anywhere, and clocks differ
//! and jump.
//!
//! A *schedule* is one world from one seed: 20 to 60 steps with faults, then steps without faults
//! until the world settles. The same seed gives the same schedule on any machine.
//!
//! The [`Oracle`] observes only the writes to the disk and the processed keys. It checks:
//! - one owner: no key is processed under a fence that a handoff has raised since, whatever the
//!   clocks, and none under any other stale fence unless clocks differ;
//! - no key is processed while an offer is open;
//! - no key is lost: a cursor covers only processed keys;
//! - a handoff repeats no key, and a release leaves no unsaved progress;
//! - a shard is offered only when its record is in Transfer, and the record never contradicts the
//!   fence;
//! - when faults stop, the world settles within a bound: every shard is finished, and every record
//!   and every handoff has ended.
//!
//! `cargo xtask sim-handoff` runs a million schedules.
//!
//! [`Inbound`]: gossip_handoff::lease_handoff::Inbound
//! [`WorkerDrain`]: gossip_handoff::lease_handoff::WorkerDrain
//! [`Recovery`]: gossip_handoff::lease_handoff::Recovery
//! [`Driver`]: gossip_handoff::lease_handoff::Driver

mod actor;
mod bugs;
mod disk;
mod held;
mod oracle;
mod random;
mod tally;
mod world;

pub use self::bugs::Bug;
pub use self::oracle::{Broken, Ended, Event, Oracle};
pub use self::tally::{Faults, Races};

/// Parameters of one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Determines the schedule.
    pub seed: u64,
    /// The active mutant.
    pub bug: Option<Bug>,
    /// Whether to keep every event.
    pub is_traced: bool,
}

/// Result of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first violation, if any.
    pub broken: Option<Broken>,
    /// Steps with faults.
    pub steps: u64,
    /// Rounds without faults until the world settled.
    pub rounds: u64,
    /// Hash of all events. Equal hashes mean equal schedules.
    pub trace: u64,
    /// Races with a handoff.
    pub races: Races,
    /// Injected faults.
    pub faults: Faults,
    /// Every event, if they were kept.
    pub events: Vec<Event>,
}

/// Runs schedules, one after another.
pub struct Simulator(Vec<world::Base>, world::Scratches);

impl Default for Simulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulator {
    /// Creates a simulator.
    #[must_use]
    pub fn new() -> Self {
        Self(world::Base::all(), world::Scratches::default())
    }

    /// Runs one schedule.
    #[must_use]
    pub fn run(&self, plan: Plan) -> Outcome {
        world::run(&self.0, &self.1, plan)
    }
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Simulator")
    }
}
