//! The handoff of a live shard: the six phases combined with the fence.
//!
//! ```text
//!  source                                   fence    destination
//!  record: Lock, Serialize, Transfer           F
//!  freezes; offer ───────────────────────────────────► F     finds the record in Transfer
//!  polls …                                    F+1 ◄─ accept: the commit point; starts working
//!  sees the new fence, drops its copy               record: Ack
//!  record: Unlock, Complete, deleted
//! ```
//!
//! Each side is a sans-I/O state machine. [`HandoffSource::next_request`] and
//! [`HandoffDestination::next_request`] return the next operation, `on_reply` takes its result, and
//! [`Driver`] executes it on any backend and repository. A request is one operation, so a test can
//! stop, crash, lose or repeat anything between any two of them.
//!
//! # The rule
//! The record contains the fence F under which the shard was offered. The shard alone determines
//! the outcome of a move ([`MoveOutcome`]):
//!
//! | the shard | the move | the source |
//! |---|---|---|
//! | fence = F | has not happened | resumes only after its withdrawal has committed |
//! | fence > F, by this move | has happened: forward | drops its copy |
//! | fence > F, by anything else | never will: rolled back as superseded | never resumes |
//!
//! So a shard has one owner at any time: the fence decides, and the record only documents it.
//!
//! # Duties of the caller
//! - Freeze the shard before creating a [`HandoffSource`], or, without a snapshot, when it requests
//!   that ([`HandoffSource::prepare`]). Resume only after [`SourceEnd::Kept`].
//! - Keep renewing the lease of the source, also while the offer is open.
//! - Run [`Inbound`], which finds moves to this worker and accepts them, on a thread of its own if
//!   processing an item takes long.
//! - Run [`Recovery`] periodically for moves that earlier processes of the same name began, and
//!   [`collect_ended`] at start-up.
//! - Hand over all shards with [`WorkerDrain`] before shutting down.
//!
//! # The gap
//! The shard is frozen from the freeze to the accept. This takes one commit of the source (the
//! offer), at most one poll of the destination, and one commit of the destination (the accept).
//! Everything else happens outside the gap: the record is in Transfer before the freeze, the source
//! keeps working for [`HandoffConfig::lead_ticks`] so that the destination finds the record, and
//! the destination starts working before it saves Ack.
//!
//! # A limit
//! A withdrawal blocks a delayed offer of the same move as long as the operation log of the shard
//! contains the withdrawal: for sixteen further operations. An offer that arrives even later, under
//! the same lease and before its deadline, is open again. If its destination accepts, it repeats
//! the items since the last checkpoint of the source. There are never two owners.
//!
//! # Never
//! - reads a clock, starts a thread or uses randomness;
//! - rolls back an accepted move, although [`Machine`](crate::Machine) allows that from Ack. To
//!   undo a move, offer the shard back.

mod destination;
pub(crate) mod drain;
mod driver;
mod inbound;
mod record_tracker;
pub(crate) mod recovery;
mod source;
mod terms;

pub use self::destination::{
    DestinationEnd, DestinationReply, DestinationRequest, HandoffDestination,
};
pub use self::drain::{DrainEnd, DrainNext, DrainTally, HeldShard, WorkerDrain};
pub use self::driver::{DestinationNext, Driver, SourceNext};
pub use self::inbound::{AcceptedShard, Inbound, InboundNext};
pub use self::recovery::{Collected, Recovery, RecoveryNext, collect_ended};
pub use self::source::{HandoffSource, NotMovedReason, SourceEnd, SourceReply, SourceRequest};
pub use self::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove, worker_name};
