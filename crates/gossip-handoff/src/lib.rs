//! Moving something that is owned from one owner to another, in six phases that survive crashes.
//!
//! A planned move happens a thousand times as often as a failure: a rolling restart, a rebalance, a
//! player who walks into the next zone. Between "the old owner stopped" and "the new owner goes on"
//! anything may crash, and then two owners, or none, are what is left of a protocol that was not
//! written down. Here it is written down, as a record that both sides store after every step.
//!
//! ```text
//!            reversible: rollback                    │ only forward
//!  ┌──────┐   ┌───────────┐   ┌──────────┐   ┌─────┐ │ ┌────────┐   ┌──────────┐
//!  │ Lock ├──►│ Serialize ├──►│ Transfer ├──►│ Ack ├─┼►│ Unlock ├──►│ Complete │
//!  └──┬───┘   └─────┬─────┘   └────┬─────┘   └──┬──┘ │ └────────┘   └──────────┘
//!     └─────────────┴──────┬───────┴────────────┘    │
//!                    ┌─────▼──────┐
//!                    │ RolledBack │
//!                    └────────────┘
//! ```
//!
//! | phase | who acts | what is true once it is stored |
//! |---|---|---|
//! | Lock | source | it takes no more input for the subject |
//! | Serialize | source | the record holds the frozen state |
//! | Transfer | source | the destination may load it |
//! | Ack | destination | it is live |
//! | Unlock | source | it has forgotten its copy, or will |
//! | Complete | source | nothing is left to do, and the snapshot is gone |
//!
//! # How to use it
//!
//! ```
//! use gossip_contracts::identity::LogicalTime;
//! use gossip_handoff::{Machine, MemoryRepository, Phase, RecordId, Repository};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut records = MemoryRepository::new();
//! let now = LogicalTime::from_raw(1);
//! let mut machine = Machine::new(RecordId::new("move-1")?, "zone-7", "host-a", "host-b", now)?;
//! let mut version = records.save(&machine.record(), None)?;
//!
//! // The source freezes zone 7, and stores every step before it acts on it.
//! machine.serialize(b"players: 3")?;
//! version = records.save(&machine.record(), Some(version))?;
//! machine.transfer()?;
//! records.save(&machine.record(), Some(version))?;
//!
//! // The destination finds it, loads the snapshot, goes live, and says so.
//! let found = records.in_progress("host-b")?.remove(0);
//! let mut machine = Machine::from_record(found.record)?;
//! machine.ack()?;
//! version = records.save(&machine.record(), Some(found.version))?;
//!
//! // The source drops its copy.
//! machine.unlock()?;
//! version = records.save(&machine.record(), Some(version))?;
//! machine.complete()?;
//! records.save(&machine.record(), Some(version))?;
//! assert_eq!(machine.state(), Phase::Complete);
//! # Ok(())
//! # }
//! ```
//!
//! A process that starts asks [`Repository::in_progress`] for its own name and goes on: forward
//! from Unlock, forward or back before. [`Repository::save`] compares versions, so of two that try
//! one gets [`RepositoryError::VersionConflict`] and leaves it to the other.
//!
//! # What is settled here
//! - Ids are given or derived by the caller. Nothing is drawn at random.
//! - A machine that is over answers [`HandoffError::Terminal`] to everything.
//! - An empty snapshot is fine, one above [`SNAPSHOT_LEN_MAX`] is refused.
//! - A record with an unknown phase, or one that no machine makes, is refused when it is read.
//! - `Complete` drops the snapshot; a rollback keeps it for inspection.
//!
//! # Never
//! - reads a clock, starts a thread, or does I/O: time is an argument, and storing is the caller's;
//! - shows a name or a byte of a snapshot in an error or in `Debug`.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod join;
mod machine;
mod phase;
mod record;
mod repository;
#[cfg(any(test, feature = "model"))]
pub mod search;
mod store_repository;

pub use self::machine::{HandoffError, Machine};
pub use self::phase::{Phase, UnknownPhase};
pub use self::record::{
    InvalidRecord, NAME_LEN_MAX, REASON_LEN_MAX, RECORD_LEN_MAX, Record, RecordId, SNAPSHOT_LEN_MAX,
};
pub use self::repository::{
    IN_PROGRESS_PAGE, InProgress, MemoryRepository, Repository, RepositoryError, Stored, Version,
};
pub use self::store_repository::{AsyncStoreRepository, StoreRepository, handoff_id};

#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod repository_tests;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod store_repository_tests;
