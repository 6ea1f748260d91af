//! Finds leaked secrets in bytes: one pass over the input for literals, then a bounded check of
//! each hit.
//!
//! ```text
//!  bytes ─► prefilter: literals of all rules, also inside base64, UTF-16, percent escapes
//!        ─► boundary ─► pattern in a bounded window ─► offline validator ─► gates
//!        ─► decoded spans are searched in turn ─► overlaps resolved ─► findings in order
//! ```
//!
//! * [`RuleSet`]: rules as data, compiled in or from TOML texts; their digest and policy hash.
//! * [`Scanner`]: compiled rules, shared by threads; [`Scratch`]: one thread's memory.
//! * [`Finding`], [`Report`]: findings, and everything that was not read.
//! * [`AllowList`], [`Baseline`]: findings that are accepted, with reasons.
//!
//! ```
//! use gossip_scan::{RuleSet, ScanOptions, Scanner};
//!
//! let rules = RuleSet::built_in();
//! let scanner = Scanner::new(&rules, ScanOptions::default())?;
//! let mut scratch = scanner.scratch();
//! // A sample that the rule mints; no token is ever written down.
//! let text = rules.rule("npm-token").unwrap().mint(7).unwrap();
//! let mut lines = Vec::new();
//! let report = scanner.scan_bytes(&mut scratch, b"notes.txt", &text, |it| lines.push(it.line));
//! assert_eq!((lines, report.unread.len()), (vec![1], 0));
//! # Ok::<(), gossip_scan::RuleError>(())
//! ```
//!
//! This crate never uses a network, a clock, a random source or a thread, coordinates nothing, and
//! writes no file. Its memory is bounded whatever the input's size.
//!
//! # Invariants
//!
//! * The findings of an input are a function of its bytes, its path, the rules and the options
//!   except `chunk_len`: the same under every chunk size, thread and order of items.
//! * An input that was not searched completely has an entry in [`Report::unread`].
//! * No `Debug` text and no error contains a byte of a secret.
//! * No input causes a panic.

#![forbid(unsafe_code)]

mod allow;
mod alphabet;
mod anchors;
mod archive;
mod compiled;
mod content;
mod cost;
mod decode;
mod engine;
mod entropy;
mod error;
mod finding;
mod mint;
mod prefilter;
mod rule;
mod scanner;
mod stream;
mod validate;

pub use allow::{Allow, AllowList, Baseline, BaselineError};
pub use alphabet::Alphabet;
pub use archive::ArchiveLimits;
pub use error::RuleError;
pub use finding::{Checksum, Finding, Report, Secret, Unread, UnreadReason};
pub use rule::{Confidence, Rule, RuleSet, Search};
pub use scanner::{ScanOptions, Scanner, Scratch};
