//! Coordinators over a database.

use gossip_coordination::store::{StoreConfig, StoreCoordinator, fresh_nonce};

use crate::database::SqliteDatabase;
use crate::store::SqliteStore;

/// A coordinator over a SQLite file.
pub type SqliteCoordinator = StoreCoordinator<SqliteStore>;

impl SqliteDatabase {
    /// Returns a new coordinator handle with the default limits.
    ///
    /// A handle serves one caller at a time; create one per thread. The handles of a database
    /// share its group commit.
    #[must_use]
    pub fn coordinator(&self) -> SqliteCoordinator {
        StoreCoordinator::new(self.store(), StoreConfig::new(fresh_nonce()))
    }
}
