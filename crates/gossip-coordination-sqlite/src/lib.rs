//! Coordination in one SQLite file: durable, shared by several processes, nothing to install.
//!
//! This is the embedded store of the project; SQLite is compiled in. A process opens a file once,
//! and each caller gets its own coordinator handle:
//!
//! ```
//! use gossip_contracts::coordination::CursorSemantics;
//! use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
//! use gossip_coordination::{RunConfig, RunManagement};
//! use gossip_coordination_sqlite::{SqliteDatabase, SqliteOptions};
//!
//! # let directory = std::env::temp_dir().join(format!("gossip-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! let path = directory.join("coordination.db");
//! let database = SqliteDatabase::open(path, SqliteOptions::default())?;
//! let mut coordinator = database.coordinator();
//!
//! let (now, tenant, run) =
//!     (LogicalTime::from_raw(1), TenantId::from_bytes([7; 32]), RunId::from_raw(1));
//! let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, Some(3))?;
//! coordinator.create_run(now, tenant, run, config)?;
//!
//! // The run is committed: other handles and other processes see it.
//! assert!(database.coordinator().get_run(tenant, run).is_ok());
//! # drop((coordinator, database));
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! - An acknowledged commit is on the disk ([`SyncMode::Full`], the default). With
//!   [`SyncMode::Relaxed`] a power cut may lose the last commits; a killed process loses none in
//!   either mode. After a restart of the system the next open raises all fence floors, so that no
//!   fence is issued twice ([`SqliteOptions::boot`]).
//! - Several processes of one machine may use one file. It must be on a local disk: WAL mode needs
//!   memory shared between processes, which network file systems do not have. A file on one is
//!   refused, unless [`SqliteOptions::allow_network_file_system`] is set.
//! - A process may be killed at any moment; the next one opens the file without a repair.
//! - Concurrent commits share one sync (group commit). No commit waits for a group to fill.
//! - Errors are typed and state the remedy: [`OpenSqliteError`] on open, `InfraError` afterwards.
//!   If a failed commit may have been applied, its outcome is `Unknown`, and the coordinator
//!   resolves it with its next load.
//!
//! `docs/reliability.md` lists how each of these is tested, and the command to run.
//!
//! # Limits
//! SQLite has no checksums of its pages. Each record has one, bound to its key, so a damaged record
//! is reported and never used. But a damaged page may hide a record, and a damaged log is taken to
//! end where the damage begins. [`SqliteDatabase::check_integrity`] finds such damage; restore a
//! backup ([`SqliteDatabase::back_up_to`]) then.
//!
//! # The files
//! `NAME` is the database. `NAME-wal` (the log) and `NAME-shm` (its index) exist while it is open,
//! and after a crash. They belong to it: move, copy or delete the three together or, better, make a
//! backup. Do not delete the log of a crashed process, because it holds commits. `sqlite3` may read
//! the file at any time; `docs/storage-format.md` describes the bytes.
//!
//! A new file is readable and writable for its user only (0600); an existing one keeps its mode.
//! The log, its index and every backup have the permissions of the database. A symbolic link to an
//! existing file may be used instead of its path if this user or the administrator made it; others
//! are refused. A second hard link must not be used: a file opened through both has two logs and
//! gets damaged.
//!
//! # Where things are
//!
//! | file | content |
//! |---|---|
//! | `options`, `open_error` | how a file is opened, and why it cannot be |
//! | `new_file` | creation for its user only, and which links are refused |
//! | `file_system` | file systems on which locks of SQLite do not hold |
//! | `schema` | identification of the file, its tables, every `PRAGMA` with its reason |
//! | `apply` | one transaction: compares, then writes, at one revision |
//! | `group_commit`, `sync` | the leader commits for all queued callers |
//! | `writer` | one group as one SQLite transaction, and what its failure means |
//! | `wal_checkpointer` | when the log is copied into the database file |
//! | `db_file` | the identity of the file, and whether its path still names it |
//! | `readers` | the pool of reading connections |
//! | `core` | writer, readers and group commit together |
//! | `database`, `store`, `coordinator` | the public handles |
//! | `boot` | fence floors after a restart of the system that may have lost commits |
//! | `thread` | a thread that is joined on drop |
//! | `backup` | online backups |
//! | `failure` | SQLite's error codes as errors of the store layer |
//!
//! # Never
//! - decodes a value or knows a rule of the protocol;
//! - opens the database file except through SQLite: closing a second descriptor would release the
//!   locks of the first;
//! - shows a byte of a key or a value in an error.
#![forbid(unsafe_code)]

mod apply;
mod backup;
mod boot;
mod coordinator;
mod core;
mod database;
mod db_file;
mod failure;
mod file_system;
mod group_commit;
mod new_file;
mod open_error;
mod options;
mod readers;
mod schema;
mod store;
mod sync;
mod thread;
mod wal_checkpointer;
mod writer;

pub use self::backup::BackupError;
pub use self::coordinator::SqliteCoordinator;
pub use self::database::SqliteDatabase;
pub use self::file_system::FileSystem;
pub use self::open_error::OpenSqliteError;
pub use self::options::{Boot, OpenCheck, SqliteOptions, SyncMode};
pub use self::store::SqliteStore;

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod boot_tests;
#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod flipped_file_tests;
#[cfg(test)]
mod group_commit_tests;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod shuttle_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod wal_checkpointer_tests;
