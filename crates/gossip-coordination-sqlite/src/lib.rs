//! Coordination in one SQLite file: durable, shared by several processes, nothing to install.
#![forbid(unsafe_code)]

mod alarm;
mod apply;
mod async_store;
mod backup;
mod convoy;
mod coordinator;
mod core;
mod courier;
mod database;
mod failure;
mod log;
mod one_shot;
mod open_error;
mod options;
mod readers;
mod schema;
mod store;
mod thread;
mod writer;

pub use self::async_store::AsyncSqliteStore;
pub use self::backup::BackupError;
pub use self::coordinator::{AsyncSqliteCoordinator, SqliteCoordinator, fresh_nonce};
pub use self::database::SqliteDatabase;
pub use self::open_error::OpenError;
pub use self::options::{OpenCheck, SqliteOptions, SyncMode};
pub use self::store::SqliteStore;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod convoy_tests;
#[cfg(test)]
mod test_support;
