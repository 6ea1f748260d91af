//! Exhaustive search of one planned move, on the production code.
//!
//! The world has a source, a destination and a third worker that acquires the shard when its lease
//! ends. The kernel is the real one, over the real store layer; both sides are the machines of
//! [`lease_handoff`](gossip_handoff::lease_handoff); only the store and the records are maps that
//! can be forked. For every request of either side the search tries every result: it succeeds, the
//! request is lost, the reply is lost, it is delayed until any later step, it is executed twice.
//! Between any two requests either process may crash and restart, with or without its lease, the
//! lease may be renewed, the third worker may acquire the shard, and the clock advances.
//!
//! Faults and crashes are bounded by a [`Budget`]; within it the search is exhaustive.
//!
//! What is held against every state (`World::check`):
//! - never two live owners: of those who believe that they may write, and whose lease as they know
//!   it has not ended, there is at most one;
//! - a source that goes on has no offer standing against it;
//! - a record is never rolled back by whose move the fence was raised, and never acknowledged
//!   before it was;
//! - the shard is never out of reach for longer than an offer and a lease.
//!
//! And against every end (`World::settles`): once faults stop, somebody owns the shard or can, and
//! the record comes to its end.

mod bugs;
mod explore;
mod fork_store;
mod kernel;
mod shelf;
mod world;

pub use self::bugs::Bug;
pub use self::explore::{Finding, Report, explore};
pub(crate) use self::fork_store::ForkStore;
pub use self::world::{Action, Broken, Budget, Fault};
