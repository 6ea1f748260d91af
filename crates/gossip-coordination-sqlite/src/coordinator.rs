//! Coordinators over a database.

use gossip_coordination::store::{
    DEFAULT_MAX_CLOCK_SKEW, StoreConfig, StoreCoordinator, fresh_nonce, ticks,
};

use crate::database::SqliteDatabase;
use crate::store::SqliteStore;

/// A coordinator over a SQLite file.
pub type SqliteCoordinator = StoreCoordinator<SqliteStore>;

impl SqliteDatabase {
    /// Returns a new coordinator handle with the default limits.
    ///
    /// A handle serves one caller at a time; create one per thread. The handles of a database
    /// share its group commit, one record cache and one claim cooldown per worker.
    #[must_use]
    pub fn coordinator(&self) -> SqliteCoordinator {
        StoreCoordinator::sharing(self.store(), self.store_config(), self.process_state())
    }

    /// Returns the configuration of another handle, with a nonce that no other handle has.
    #[must_use]
    pub fn store_config(&self) -> StoreConfig {
        let claim_cooldown_interval = ticks(self.options().claim_cooldown);
        // The processes of one host share a clock; a file on a network may have more.
        let max_clock_skew = ticks(DEFAULT_MAX_CLOCK_SKEW);
        StoreConfig { claim_cooldown_interval, max_clock_skew, ..StoreConfig::new(fresh_nonce()) }
    }
}
