//! The boot in which a file was last opened, and the fences that a lost tail would repeat.
//!
//! With [`SyncMode::Relaxed`] a power cut or a crash of the system may lose the last commits, and
//! the grants among them would be issued a second time with the same fences. Only a restart of the
//! system loses commits, so the file stores the boot in which it was opened. The first open in
//! another boot raises the fence floor of every run (DESIGN Q32), in the transaction that stores
//! the new boot, and before anything else is served.
//!
//! # Invariants
//! - The floors and the boot are committed together, under the file's write lock, and synced.
//! - A file that was never opened with [`SyncMode::Relaxed`] has no boot stored.

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{GetRunError, InfraError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::apply::Group;
use crate::core::LIMITS;
use crate::db_file::DbFile;
use crate::open_error::OpenSqliteError;
use crate::options::{Boot, SyncMode};
use crate::readers;
use crate::writer::begin;

/// Ticks of the coordinator's clock per second.
const TICKS: u64 = 1_000;

const STORED: &str = "SELECT value FROM meta WHERE name = 'boot'";
const STORE: &str = "INSERT INTO meta(name, value) VALUES ('boot', ?1) \
                     ON CONFLICT(name) DO UPDATE SET value = excluded.value";

/// Raises all fence floors if commits may have been lost since the file was last opened, and stores
/// the present boot. Does nothing if the options name no boot.
pub(crate) fn enter(connection: &Connection, file: &DbFile) -> Result<(), OpenSqliteError> {
    let Some(boot) = file.options().boot else { return Ok(()) };
    let fail = |error: rusqlite::Error| OpenSqliteError::of(file.path(), &error);
    if action(connection, file, boot).map_err(fail)? == Action::None {
        return Ok(());
    }
    // Synced even if other commits are not: a floor that is lost again could be repeated, too.
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    begin(connection, file.options().busy_timeout).map_err(fail)?;
    let entered = enter_locked(connection, file, boot);
    let finish = if entered.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let finished = connection.execute_batch(finish).map_err(fail);
    entered.and(finished)?;
    let synchronous = file.options().sync.pragma();
    connection.pragma_update(None, "synchronous", synchronous).map_err(fail)
}

/// What an open has to do about the stored boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    None,
    /// The first open with relaxed sync: nothing can be lost yet.
    Store,
    /// The system was restarted since the last open.
    RaiseAndStore,
}

fn action(connection: &Connection, file: &DbFile, boot: Boot) -> rusqlite::Result<Action> {
    let stored: Option<i64> = connection.query_row(STORED, [], |row| row.get(0)).optional()?;
    Ok(match (stored, file.options().sync) {
        (None, SyncMode::Full) => Action::None,
        (None, SyncMode::Relaxed) => Action::Store,
        // Also with full sync: the commits that were lost may have been relaxed ones.
        (Some(stored), SyncMode::Full | SyncMode::Relaxed) if stored == boot.id() => Action::None,
        (Some(_), SyncMode::Full | SyncMode::Relaxed) => Action::RaiseAndStore,
    })
}

/// As [`enter`], on a connection that holds the write lock. The caller commits or rolls back.
fn enter_locked(connection: &Connection, file: &DbFile, boot: Boot) -> Result<(), OpenSqliteError> {
    let fail = |error: rusqlite::Error| OpenSqliteError::of(file.path(), &error);
    // Again under the lock: of several processes that open the file after a restart, one raises the
    // floors. A second raise would refuse the leases that the first process has taken since.
    match action(connection, file, boot).map_err(fail)? {
        Action::None => return Ok(()),
        Action::Store => {}
        Action::RaiseAndStore => {
            let raised = raise_floors(connection, boot);
            raised.map_err(|cause| OpenSqliteError::FloorsNotRaised {
                path: file.path().to_path_buf(),
                cause,
            })?;
        }
    }
    connection.execute(STORE, params![boot.id()]).map(|_| ()).map_err(fail)
}

fn raise_floors(connection: &Connection, boot: Boot) -> Result<(), InfraError> {
    let now = LogicalTime::from_raw(boot.unix_seconds().saturating_mul(TICKS).max(1));
    // No grant is made here, so the nonce is never stored.
    let mut coordinator = StoreCoordinator::new(Locked(connection), StoreConfig::new(0));
    let mut failed = Ok(());
    let at_least = fence_floor_at(boot.unix_seconds());
    coordinator.raise_fence_floors(now, None, at_least, &mut |_, _, raised| match raised {
        // A damaged head: no shard of its run can be granted or written.
        Err(GetRunError::BackendError(error)) if error.is_of_record() => {}
        Err(GetRunError::BackendError(error)) => failed = Err(error),
        Ok(_) | Err(_) => {}
    })?;
    failed
}

/// A store on a connection that holds the write lock, so nothing changes between two calls.
struct Locked<'c>(&'c Connection);

impl Store for Locked<'_> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        reads.iter().map(|read| readers::answer(self.0, read, LIMITS.page)).collect()
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let mut group = Group::new(self.0);
        txns.iter().map(|txn| group.apply(txn)).collect()
    }

    /// Not reached: no other caller can cause a conflict.
    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        LIMITS
    }
}
