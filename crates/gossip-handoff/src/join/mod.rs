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
//! Each side is a small machine without I/O. [`Source::ask`] and [`Destination::ask`] say what the
//! machine needs next, `tell` what came of it, and [`Mover`] carries one to the other on any
//! backend and any repository. One question is one operation, so a test can stop, crash, lose or
//! repeat anything between any two of them.
//!
//! # The rule
//! The record stores the fence F under which the shard was offered. What became of a move is told
//! by the shard alone ([`Verdict`]):
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
//! - It freezes the shard before it makes a [`Source`], or, if there is no snapshot, when it is
//!   asked to ([`Source::prepare`]); and it goes on only after [`SourceEnd::Kept`].
//! - It renews the lease of the source as ever, also while the offer stands.
//! - It polls [`Repository::in_progress`](crate::Repository::in_progress) for its own name: that is
//!   how a destination learns of a move, and how a process that starts finds what it left behind.
//!
//! # Never
//! - reads a clock, starts a thread, draws a number;
//! - rolls back a move that was accepted, although the stand-alone machine would allow it from Ack:
//!   undoing is a new offer back.

mod destination;
mod drain;
mod ledger;
mod mover;
mod source;
mod terms;

pub use self::destination::{Destination, DestinationAsk, DestinationEnd, DestinationTold};
pub use self::drain::{DRAIN_WINDOW, Drain, DrainEnd, DrainNext, DrainTally, Holding};
pub use self::mover::{DestinationNext, Mover, SourceNext};
pub use self::source::{Source, SourceAsk, SourceEnd, SourceTold, Why};
pub use self::terms::{JoinConfig, MoveTerms, NotAMove, Verdict, worker_name};
