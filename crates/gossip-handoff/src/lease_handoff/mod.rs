//! The planned move of a live shard: the six phases joined to the fence.
//!
//! ```text
//!  source                                   fence    destination
//!  record: Lock, Serialize, Transfer           F
//!  freezes; offer ───────────────────────────────────► F     finds the record in Transfer
//!  looks …                                    F+1 ◄─ accept: the commit point, and goes to work
//!  sees the new fence, drops its copy               record: Ack
//!  record: Unlock, Complete, forgotten
//! ```
//!
//! Each side is a small machine without I/O. [`HandoffSource::next_request`] and
//! [`HandoffDestination::next_request`] say what the machine needs next, `on_reply` takes what came
//! of it, and [`Driver`] carries one to the other on any
//! backend and any repository. One question is one operation, so a test can stop, crash, lose or
//! repeat anything between any two of them.
//!
//! # The rule
//! The record stores the fence F under which the shard was offered. What became of a move is told
//! by the shard alone ([`MoveOutcome`]):
//!
//! | the shard | the move | the source |
//! |---|---|---|
//! | fence = F | has not happened | resumes only after its withdrawal has committed |
//! | fence > F, by this move | has happened: forward | drops its copy |
//! | fence > F, by anything else | never will: rolled back as superseded | never resumes |
//!
//! So there is at every instant one owner: the fence decides, and the record only remembers.
//!
//! # What the caller does
//! - It freezes the shard before it makes a [`HandoffSource`], or, if there is no snapshot, when
//!   it is asked to ([`HandoffSource::prepare`]); and it goes on only after [`SourceEnd::Kept`].
//! - It renews the lease of the source as ever, also while the offer stands.
//! - It runs [`Inbound`], which searches for moves to this worker and accepts them: that is how a
//!   destination learns of a move. It does so on a thread of its own if its work takes long.
//! - It runs [`Recovery`] now and then, for what earlier processes of its name began, and
//!   [`collect_ended`] when it starts.
//! - It gives everything away with [`WorkerDrain`] when it ends.
//!
//! # The gap
//! The shard stands still from the freeze to the accept. In between are one commit of the source
//! (the offer), at most one poll of the destination, and one commit of the destination (the
//! accept). Everything else is before or behind: the record is in Transfer before the freeze, the
//! source works on for [`HandoffConfig::lead_ticks`] until the destination has found it, and the
//! destination works before it writes down that it does.
//!
//! # A limit
//! A withdrawal shuts out an offer of the same move that the network still holds back, as long as
//! the log of the shard remembers it: for sixteen further operations. An offer that comes even
//! later, under the same lease and before its deadline, stands again. Its destination may accept
//! it, and then redoes what the source did since its last checkpoint. There are never two owners.
//!
//! # Never
//! - reads a clock, starts a thread, draws a number;
//! - rolls back a move that was accepted, although the stand-alone machine would allow it from Ack:
//!   undoing is a new offer back.

mod destination;
mod drain;
mod driver;
mod inbound;
mod record_tracker;
mod recovery;
mod source;
mod terms;

pub use self::destination::{
    DestinationEnd, DestinationReply, DestinationRequest, HandoffDestination,
};
pub use self::drain::{
    DRAIN_FROZEN_MAX, DRAIN_WINDOW, DrainEnd, DrainNext, DrainTally, HeldShard, WorkerDrain,
};
pub use self::driver::{DestinationNext, Driver, SourceNext};
pub use self::inbound::{AcceptedShard, INBOUND_MAX, Inbound, InboundNext};
pub use self::recovery::{
    COLLECT_MAX, Collected, ENDED_KEPT_TICKS, Recovery, RecoveryNext, collect_ended,
};
pub use self::source::{HandoffSource, NotMovedReason, SourceEnd, SourceReply, SourceRequest};
pub use self::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove, worker_name};
