//! Coordination in one SQLite file: durable, shared by several processes, nothing to install.
//!
//! This is the embedded default of the project. SQLite is compiled in. A process opens a file once,
//! and every caller gets a coordinator of its own:
//!
//! ```
//! use gossip_contracts::coordination::CursorSemantics;
//! use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
//! use gossip_coordination::{RunConfig, RunManagement};
//! use gossip_coordination_sqlite::{SqliteDatabase, SqliteOptions};
//!
//! # let directory = std::env::temp_dir().join(format!("gossip-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! let database = SqliteDatabase::open(directory.join("coordination.db"),
//! SqliteOptions::default())?; let mut coordinator = database.coordinator();
//!
//! let (now, tenant, run) =
//!     (LogicalTime::from_raw(1), TenantId::from_bytes([7; 32]), RunId::from_raw(1));
//! let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, Some(3))?;
//! coordinator.create_run(now, tenant, run, config)?;
//!
//! // Another process would see it from here on; so does another handle.
//! assert!(database.coordinator().get_run(tenant, run).is_ok());
//! # drop((coordinator, database));
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//! - What was acknowledged is on the disk ([`SyncMode::Full`], the default). Whoever can bear to
//!   lose the last moments before a power cut says [`SyncMode::Relaxed`]; a killed process loses
//!   nothing in either mode.
//! - Several processes of one machine may work on one file. The file must be on a local disk: the
//!   log's index is memory that processes share, which network file systems do not have.
//! - A process that dies at any moment leaves a file that the next one opens as if nothing
//!   happened.
//! - Callers that commit at the same time share one sync. Nobody waits to fill a group.
//! - What goes wrong has a typed error that says what to do: [`OpenSqliteError`] on opening,
//!   `InfraError` from then on. If a commit may have happened, its outcome is `Unknown`, and the coordinator
//!   finds out by itself.
//!
//! `docs/reliability.md` tells how each of these is shown, and with which command.
//!
//! # What is not
//! SQLite keeps no checksums of its pages. Records have one each, bound to their key, so a damaged
//! record is told and never believed. But a damaged page may hide a record, and a damaged log is
//! taken to end where the damage begins. [`SqliteDatabase::check_integrity`] finds what is out of
//! order; a backup ([`SqliteDatabase::back_up_to`]) is what helps.
//!
//! # The files
//! `NAME` is the database. `NAME-wal` (the log) and `NAME-shm` (its index) stand beside it while it
//! is open, and after a crash: they belong to it, so move, copy or delete the three together or,
//! better, make a backup. Do not delete the log of a crashed process: it holds commits. `sqlite3`
//! may look into the file at any time; `docs/storage-format.md` tells what the bytes mean.
//!
//! Who may read a new file is said by the umask, as for any file: on most systems everybody. The
//! log, its index and every backup are shown to nobody who may not see the database, so one
//! `chmod 600` at the beginning is enough. A symbolic link to the file is as good as its name; a
//! second hard link is not: opened by both, it has two logs and is damaged.
//!
//! # Where things are
//!
//! | file | owns |
//! |---|---|
//! | `options`, `open_error` | how a file is opened, and why not |
//! | `schema` | whose a file is, its tables, every `PRAGMA` with its reason |
//! | `apply` | one transaction: compares, then writes, at one revision |
//! | `group_commit`, `sync` | who commits for whom, without a thread |
//! | `writer` | one group as one SQLite transaction, and what its failure means |
//! | `wal_checkpointer` | who copies the log back, and when |
//! | `db_file` | which file it is, and whether its name still leads there |
//! | `readers` | connections that read |
//! | `core` | all of these together |
//! | `database`, `store`, `coordinator` | what callers hold |
//! | `thread` | a thread that is joined on drop |
//! | `backup` | copies |
//! | `failure` | what SQLite's codes mean |
//!
//! # Never
//! - decodes a value or knows a rule of the protocol;
//! - opens the database file by any other way than SQLite: closing a second handle would drop the
//!   locks of the first;
//! - shows a byte of a key or a value in an error.
#![forbid(unsafe_code)]

mod apply;
mod backup;
mod coordinator;
mod core;
mod database;
mod db_file;
mod failure;
mod group_commit;
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
pub use self::open_error::OpenSqliteError;
pub use self::options::{OpenCheck, SqliteOptions, SyncMode};
pub use self::store::SqliteStore;

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod fault_tests;
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
