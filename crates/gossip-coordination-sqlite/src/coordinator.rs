//! Coordinators over a database, and the number by which each knows its grants again.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use gossip_coordination::store::{AsyncStoreCoordinator, StoreConfig, StoreCoordinator};

use crate::async_store::AsyncSqliteStore;
use crate::database::SqliteDatabase;
use crate::open_error::OpenError;
use crate::store::SqliteStore;

/// A coordinator over a SQLite file.
pub type SqliteCoordinator = StoreCoordinator<SqliteStore>;

/// The same for tasks.
pub type AsyncSqliteCoordinator = AsyncStoreCoordinator<AsyncSqliteStore>;

impl SqliteDatabase {
    /// A coordinator with the usual limits, for one caller. Others get one each.
    #[must_use]
    pub fn coordinator(&self) -> SqliteCoordinator {
        StoreCoordinator::new(self.store(), StoreConfig::new(fresh_nonce()))
    }

    /// The same for one task.
    ///
    /// # Errors
    ///
    /// As [`SqliteDatabase::async_store`].
    pub fn async_coordinator(&self) -> Result<AsyncSqliteCoordinator, OpenError> {
        Ok(AsyncStoreCoordinator::new(self.async_store()?, StoreConfig::new(fresh_nonce())))
    }
}

/// A number that no other handle has, for [`StoreConfig::new`].
///
/// The standard library keys its hash maps with 128 random bits that each thread asks of the system
/// and that differ for every map. A keyed hash of anything is then 64 random bits, without a
/// dependency. Two handles share a number once in many billions of handles.
///
/// A process that forks leaves each child the same bits. So the process and the moment are part of
/// what is hashed, or the workers of one parent would take each other's grants for their own.
#[must_use]
pub fn fresh_nonce() -> u64 {
    RandomState::new().hash_one((std::process::id(), Instant::now()))
}
