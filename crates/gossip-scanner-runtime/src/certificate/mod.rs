//! Certificates: what a run covered, in a file that anyone can check.
//!
//! A certificate states the request, the ranges it was cut into, how each ended, and how many keys
//! lie at or below its cursor, with an order-free hash of them
//! ([`Accumulator`](crate::Accumulator)). [`CertificateWriter`] writes one, [`verify`] checks one.
//! Neither knows the engine: what makes a certificate right is written here a second time, by other
//! means, from nothing but hashing and the comparison of keys. [`recount`] lists a source again,
//! and not by the connector that the run used.
//!
//! # What a verdict means
//!
//! - [`Trust::Consistent`]: the leaves tile the request, nothing is missing or there twice, counts
//!   add up, and the file is as it was written. Anyone may have written it.
//! - [`Trust::Signed`]: the same, and its writer had the key.
//! - [`Verification::is_compared`]: besides, listing the source again gives the stated keys, leaf
//!   by leaf.
//! - [`Verification::is_complete`]: no leaf is parked and no key was passed over unread.
//!
//! A file alone never shows that work was *done*, nor who did it: only that its claims fit together
//! and, with a source, fit that source as it is now. A lowered number of unread keys, a changed
//! fence, reason, run or setting is a claim that only a signature protects.
//!
//! # The file
//!
//! One JSON text a line, in exactly this form: no other order, spacing or way to write a number is
//! accepted, so two readers cannot read two things. (Here long lines are broken.)
//!
//! ```text
//! {"gossip-certificate":2,"run":"00000000000000a1","source":"tree:/data",
//!   "options":{"ignore":false},"excluded":["…"],"command":["wc","-c","{}"],
//!   "settings":{"started":"2026-11-16T09:12:04.007Z"},
//!   "start":"%00","end":null,"cursor":"completed"}
//! {"start":"%00","end":"m","status":"done","fence":3,"cursor":"k9",
//!   "keys":812,"sum":"…","unread":0}
//! {"start":"m","end":null,"status":"parked","reason":"Poisoned","fence":9,"cursor":"m4",
//!   "keys":3,"sum":"…","unread":0,"uncovered":{"after":"m4","before":null}}
//! {"leaves":2,"done":1,"parked":1,"keys":815,"sum":"…","unread":0,"verdict":"incomplete"}
//! {"hash":"…","signature":"…"}
//! ```
//!
//! Keys and other bytes of the user are text in which every byte but printable ASCII, and also `%`,
//! `"` and `\`, is `%` and two upper-case hex digits. A bound that is after every path, 256 bytes
//! `FF`, is `null`. Leaves stand in the order of their ranges.
//! `cursor` in the first line says what a cursor means: everything at or below it is `completed`,
//! or only `dispatched`. A parked leaf states its remaining range: from its start, or after its
//! cursor, to its end. The hash is over every byte before the last line; the signature is a keyed
//! hash of that hash.
//!
//! Files of version 1 are verified, too. They have no `command`, and every bound is text.

mod differences;
mod leaves;
mod read;
mod record;
mod recount;
mod refusal;
mod seal;
mod sort;
mod source_check;
mod text;
mod tiling;
mod verify;
mod write;

#[cfg(test)]
mod forged_tests;
#[cfg(test)]
mod recount_tests;
#[cfg(test)]
mod source_check_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod text_tests;
#[cfg(test)]
mod verify_tests;

pub use self::differences::{DIFFERENCES_MAX, Differences, LeafDifference};
pub use self::leaves::{ReadLeavesError, RunLeaves};
pub use self::record::{LeafRecord, LeafStatus, ParkedFor, Request};
pub use self::recount::{RECOUNT_BYTES_MAX, recount};
pub use self::refusal::Refusal;
pub use self::seal::{SIGNING_KEY_LEN_MAX, SigningKey, SigningKeyError};
pub use self::verify::{
    Against, Trust, Verification, verify, verify_seal, verify_with_differences,
};
pub use self::write::CertificateWriter;
