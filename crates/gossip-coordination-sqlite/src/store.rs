//! The blocking handle.

use std::time::Duration;

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, CommitOutcome, Read, Store, StoreLimits, Txn};

use crate::core::LIMITS;
use crate::database::SqliteDatabase;

/// A blocking handle of a database. Clones are cheap; give each caller its own.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    database: SqliteDatabase,
}

impl SqliteStore {
    pub(crate) const fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }

    /// Returns the database.
    #[must_use]
    pub const fn database(&self) -> &SqliteDatabase {
        &self.database
    }
}

impl Store for SqliteStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.database.core().read(&reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.database.core().commit(txns)
    }

    /// Sleeps; a tick is a millisecond.
    fn wait(&mut self, ticks: u64) {
        std::thread::sleep(Duration::from_millis(ticks));
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    fn change_count(&mut self) -> Option<u64> {
        self.database.core().change_count()
    }
}
