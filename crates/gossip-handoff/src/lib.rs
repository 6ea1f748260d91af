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
//! # Where records are kept
//!
//! [`MemoryRepository`] keeps them in this process, [`StoreRepository`] in any store of the
//! coordination layer: an SQLite file, an etcd cluster, whatever implements
//! [`Store`](gossip_coordination::store::Store). [`AsyncStoreRepository`] is the same for tasks.
//! All pass one test suite, which is in `verify/gossip-sim-handoff`.
//!
//! # Moving a live shard
//!
//! For shards under leases the phases are joined to the fence ([`lease_handoff`]): the offer freezes
//! the source, the accept raises the fence, and **that** is the commit point. Neither side decides
//! anything by its record alone, so there is never a second owner.
//!
//! ```
//! use gossip_contracts::coordination::{
//!     Cursor, CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
//! };
//! use gossip_contracts::identity::{
//!     LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
//! };
//! use gossip_coordination::{
//!     AcquireScratch, CoordinationBackend, InMemoryCoordinator, RunConfig, RunManagement,
//! };
//! use gossip_handoff::MemoryRepository;
//! use gossip_handoff::lease_handoff::{
//!     Driver, HandoffConfig, HandoffSource, Inbound, InboundNext, MoveTerms, SourceEnd,
//!     SourceNext,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut shards, mut moves) = (InMemoryCoordinator::default(), MemoryRepository::new());
//! let (tenant, run) = (TenantId::from_bytes([7; 32]), RunId::from_raw(1));
//! let (now, key) = (LogicalTime::from_raw(1), ShardKey::new(run, ShardId::from_raw(0)));
//! # let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, None)?;
//! # let root = InitialShardInput {
//! #     shard_id: key.shard(),
//! #     spec: ShardSpecRef::new(b"a", b"z", b""),
//! #     cursor: CursorUpdate::initial(),
//! # };
//! # shards.create_run_with_shards(now, tenant, run, config, &[root], OpId::from_raw(1))?;
//! let (ada, bob) = (WorkerId::from_raw(1), WorkerId::from_raw(2));
//! let mut scratch = AcquireScratch::new();
//! let lease = shards.acquire_and_restore_into(now, tenant, key, ada, &mut scratch)?.lease;
//!
//! // Ada prepares the move and works on. When only the offer is left to do she is asked to stop,
//! // and says that she has come to "k".
//! let config = HandoffConfig::default();
//! let terms = MoveTerms::new(&lease, bob, 0, now.saturating_add(config.offer_ticks));
//! let mut source = HandoffSource::prepare(terms, config, now)?;
//! let mut driver = Driver { tenant, backend: &mut shards, records: &mut moves };
//! let mut later = now;
//! loop {
//!     match driver.step_source(&mut source, Some(&lease), later) {
//!         SourceNext::Again => {}
//!         SourceNext::Wait(until) if later == now => later = until,
//!         SourceNext::Freeze => source.freeze(later, Cursor::with_last_key(b"k")),
//!         SourceNext::Wait(_) | SourceNext::Done(_) => break,
//!     }
//! }
//!
//! // Bob looks for his moves, as he does all the time.
//! let mut inbound = Inbound::new(bob, config);
//! let InboundNext::Live(arrived) = inbound.step(&mut driver, &mut scratch, later) else {
//!     panic!("the offer stands");
//! };
//! assert_eq!(arrived.view.snapshot.cursor().last_key(), Some(b"k".as_slice()));
//!
//! // Ada sees the new fence, drops her copy, and the record comes to its end.
//! let later = later.saturating_add(config.find_ticks);
//! let end = loop {
//!     if let SourceNext::Done(end) = driver.step_source(&mut source, Some(&lease), later) {
//!         break end;
//!     }
//! };
//! assert_eq!(end, SourceEnd::Moved);
//! # Ok(())
//! # }
//! ```
//!
//! A worker runs [`Inbound`](lease_handoff::Inbound) to accept offered shards and
//! [`Recovery`](lease_handoff::Recovery) to finish the moves of its predecessors. When it ends it
//! hands all its shards over with a [`WorkerDrain`](lease_handoff::WorkerDrain).
//!
//! # What is settled here
//! - Ids are given or derived by the caller. Nothing is drawn at random.
//! - A machine that is over answers [`HandoffError::Terminal`] to everything.
//! - An empty snapshot is fine, one above [`SNAPSHOT_LEN_MAX`] is refused.
//! - A record with an unknown phase, or one that no machine makes, is refused when it is read.
//! - `Complete` drops the snapshot; a rollback keeps it for inspection, until somebody forgets the
//!   record. The join forgets what is complete, and a worker that starts forgets what has been over
//!   for a day ([`lease_handoff::collect_ended`]).
//! - The number under which a record is stored, and by which the kernel knows a move, is a hash of
//!   its id ([`handoff_id`]).
//!
//! # Never
//! - reads a clock or starts a thread: time is an argument;
//! - does I/O: a repository over a store asks the store for it;
//! - decides who owns a shard: that is the fence;
//! - shows a name or a byte of a snapshot in an error or in `Debug`.

#![forbid(unsafe_code)]

pub mod lease_handoff;
mod machine;
mod phase;
mod record;
mod repository;
mod store_repository;

pub use self::machine::{HandoffError, Machine};
pub use self::phase::{Phase, UnknownPhase};
pub use self::record::{
    InvalidRecord, NAME_LEN_MAX, REASON_LEN_MAX, RECORD_LEN_MAX, Record, RecordId, SNAPSHOT_LEN_MAX,
};
pub use self::repository::{
    IN_PROGRESS_PAGE, InProgress, MemoryRepository, Repository, RepositoryError, Stored,
    UNREADABLE_MAX, Version,
};
pub use self::store_repository::{AsyncStoreRepository, StoreRepository, handoff_id};

#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod inbound_tests;
#[cfg(test)]
mod lease_handoff_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod repository_tests;
#[cfg(test)]
mod store_repository_tests;
