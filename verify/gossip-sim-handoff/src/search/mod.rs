//! Exhaustive search of one handoff, on the production code.
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
//! Properties of every state (`World::check`):
//! - at most one live owner: at most one worker considers itself the owner under a lease that, to
//!   its knowledge, has not expired;
//! - a source that continues has no open offer;
//! - a record is never rolled back if its handoff raised the fence, and never acknowledged before
//!   it did;
//! - the shard is never unavailable for longer than an offer and a lease.
//!
//! Property of every final state (`World::settles`): once faults stop, a worker owns the shard or
//! can acquire it, and the record ends.

mod bugs;
mod explore;
mod fork_records;
mod fork_store;
mod kernel;
mod world;

pub use self::bugs::Bug;
pub use self::explore::{Finding, Report, explore};
pub(crate) use self::fork_store::ForkStore;
pub use self::world::{Action, Broken, Budget, Fault};
