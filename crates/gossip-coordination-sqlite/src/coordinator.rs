//! Coordinators over a database.

use gossip_coordination::store::{
    AsyncStoreCoordinator, StoreConfig, StoreCoordinator, fresh_nonce,
};

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
