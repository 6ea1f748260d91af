//! Random schedules in which planned moves race with everything else.
//!
//! [`search`](crate::search) explores one move exhaustively. This module runs many small worlds in
//! which several moves race with splits, expiring leases, parked shards, a cancelled run, second
//! moves, drains and withdrawn offers. A world has one to three shards, two to four workers and an
//! administrator. The workers use [`lease_handoff`](gossip_handoff::lease_handoff) as a product
//! does: sources, [`Inbound`], [`Recovery`] and [`WorkerDrain`] through [`Driver`], on the
//! production coordinator and repository over the store layer. Only the disk is a map. It loses,
//! delays and duplicates requests and replies, stops in the middle of an operation, and lets others
//! act between the read and the commit of an operation. Processes crash anywhere, and clocks differ
//! and jump.
//!
//! A *schedule* is one world from one seed: 20 to 60 steps, and then rest. The same seed gives the
//! same schedule, on any machine.
//!
//! The [`Oracle`] sees what the disk takes and what is done, and nothing else:
//! - never two owners: no key is done under a fence that a planned move has overtaken, whatever the
//!   clocks say, and none under any other stale fence unless clocks differ;
//! - no key is done while an offer stands;
//! - no key is lost: a cursor covers what was done;
//! - a move redoes no key, and a release leaves nothing unsaved;
//! - a shard is offered only when its record is in Transfer, and the record never contradicts the
//!   fence;
//! - when faults stop, everything comes to rest within a bound: every shard is finished, every
//!   record is over, and every move has ended.
//!
//! `cargo xtask sim-handoff` plays a million of them.
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

/// One schedule to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// The active mutant.
    pub bug: Option<Bug>,
    /// Whether every event is kept.
    pub tells: bool,
}

/// What a schedule came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was broken first, if anything.
    pub broken: Option<Broken>,
    /// Steps with faults.
    pub steps: u64,
    /// Rounds without faults until everything was at rest.
    pub rounds: u64,
    /// Of every event. Two schedules with the same were the same.
    pub trace: u64,
    /// What raced with a move.
    pub races: Races,
    /// What went wrong.
    pub faults: Faults,
    /// Every event, if they were kept.
    pub story: Vec<Event>,
}

/// Plays schedules, one after another.
pub struct Simulator(Vec<world::Base>, world::Scratches);

impl Default for Simulator {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulator {
    /// A simulator.
    #[must_use]
    pub fn new() -> Self {
        Self(world::Base::all(), world::Scratches::default())
    }

    /// Plays one schedule.
    #[must_use]
    pub fn play(&self, plan: Plan) -> Outcome {
        world::play(&self.0, &self.1, plan)
    }
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Simulator")
    }
}
