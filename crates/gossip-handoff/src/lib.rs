//! Planned ownership transfer in six phases, each stored so that a crash can be recovered.
//!
//! Handoffs are far more frequent than failures: rolling restarts, rebalancing, a player who
//! enters another zone. Either side can crash between the moment the old owner stops and the moment
//! the new owner starts, and an improvised protocol then leaves two owners or none. Here both sides
//! store a record of the move after every step, and recovery continues from that record.
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
//! | phase | written by | holds once it is stored |
//! |---|---|---|
//! | Lock | source | the source accepts no more input for the subject |
//! | Serialize | source | the record contains the frozen state |
//! | Transfer | source | the destination may load it |
//! | Ack | destination | the destination is live |
//! | Unlock | source | the source drops its copy |
//! | Complete | source | the move is finished and the snapshot deleted |
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
//! // The source freezes zone 7 and stores every phase before it acts on it.
//! machine.serialize(b"players: 3")?;
//! version = records.save(&machine.record(), Some(version))?;
//! machine.transfer()?;
//! records.save(&machine.record(), Some(version))?;
//!
//! // The destination finds the record, loads the snapshot, goes live and acknowledges.
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
//! A process that starts calls [`Repository::in_progress`] with its own name and continues those
//! moves: forward from Unlock, forward or back before it. [`Repository::save`] compares versions,
//! so if two processes recover the same move, one of them gets
//! [`RepositoryError::VersionConflict`] and leaves the move to the other.
//!
//! # Repositories
//!
//! [`MemoryRepository`] keeps records in this process. [`StoreRepository`] keeps them in a store of
//! the coordination layer: an SQLite file, an etcd cluster, or any other implementation of
//! [`Store`](gossip_coordination::store::Store). Both pass one test suite, which is in
//! `verify/gossip-sim-handoff`.
//!
//! # Moving a live shard
//!
//! For shards under leases the fence decides ([`lease_handoff`]): the offer freezes the source, the
//! accept raises the fence, and the accept is the commit point. Neither side acts on its record
//! alone, so a shard never has two owners.
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
//! // Ada prepares the move and keeps working. When only the offer remains, she stops at "k".
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
//! // Bob searches for moves to him, as every worker does periodically.
//! let mut inbound = Inbound::new(bob, config);
//! let InboundNext::Live(arrived) = inbound.step(&mut driver, &mut scratch, later) else {
//!     panic!("the offer is open");
//! };
//! assert_eq!(arrived.view.snapshot.cursor().last_key(), Some(b"k".as_slice()));
//!
//! // Ada sees the new fence, drops her copy and completes the record.
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
//! # Rules
//! - The caller provides or derives ids. Nothing is random.
//! - A machine in a terminal phase returns [`HandoffError::Terminal`] from every transition.
//! - A snapshot may be empty; one larger than [`SNAPSHOT_LEN_MAX`] is rejected.
//! - Reading rejects a record with an unknown phase or with fields that no machine produces.
//! - `Complete` deletes the snapshot. A rollback keeps it for inspection until the record is
//!   deleted. [`lease_handoff`] deletes complete records at once, and a starting worker deletes
//!   records that ended a day ago ([`lease_handoff::collect_ended`]).
//! - The number under which a record is stored, and by which the kernel identifies a move, is a
//!   hash of its id (`handoff_id` in `store_repository.rs`).
//!
//! # Never
//! - reads a clock or starts a thread: time is an argument;
//! - does I/O, except through the store of a repository;
//! - decides who owns a shard: the fence does;
//! - shows a name or a snapshot byte in an error or in `Debug`.

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
    InvalidRecord, NAME_LEN_MAX, REASON_LEN_MAX, Record, RecordId, SNAPSHOT_LEN_MAX,
};
pub use self::repository::{
    IN_PROGRESS_PAGE, InProgress, MemoryRepository, Repository, RepositoryError, Stored, Version,
};
pub use self::store_repository::StoreRepository;

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
