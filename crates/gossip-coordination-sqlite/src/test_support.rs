//! Files and handles for the tests of this crate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, CommitOutcome, Key, Read, Store, Txn, Versioned};

use crate::{SqliteDatabase, SqliteOptions};

/// A directory of one test, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

/// A file system in memory, if the system has one: most tests do not test the disk, and run ten
/// times as fast here.
const MEMORY: &str = "/dev/shm";

impl Scratch {
    /// Creates a directory, in memory if possible.
    pub(crate) fn new() -> Self {
        let memory = Path::new(MEMORY);
        let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        Self::below(&root)
    }

    /// Creates a directory on the disk.
    pub(crate) fn on_disk() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(root: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("gossip-sqlite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a database that does not sync.
    pub(crate) fn database(&self) -> SqliteDatabase {
        self.database_with(SqliteOptions::default().relaxed())
    }

    pub(crate) fn database_with(&self, options: SqliteOptions) -> SqliteDatabase {
        SqliteDatabase::open(self.file("store.db"), options).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure to clean up must not hide the failure of the test.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The tenant of keys in tests.
pub(crate) const TENANT: TenantId = TenantId::from_bytes([3; 32]);

/// A key, by a number.
pub(crate) const fn key(number: u64) -> Key {
    Key::RunHead { tenant: TENANT, run: RunId::from_raw(number) }
}

/// A transaction that writes one key.
pub(crate) fn put(number: u64, value: &[u8]) -> Txn {
    let mut txn = Txn::new();
    txn.put(key(number), value.to_vec());
    txn
}

/// Returns the stored value of a key.
pub(crate) fn stored(store: &mut impl Store, number: u64) -> Option<Versioned> {
    match store.read(vec![Read::Get(key(number))]).unwrap().pop() {
        Some(Answer::Value(value)) => value,
        other => panic!("expected a value, got {other:?}"),
    }
}

/// Commits one transaction.
pub(crate) fn commit(store: &mut impl Store, txn: Txn) -> Result<CommitOutcome, InfraError> {
    store.commit(vec![txn]).pop().unwrap()
}

/// Commits one transaction that must be applied, and returns its revision.
pub(crate) fn applied(store: &mut impl Store, txn: Txn) -> u64 {
    match commit(store, txn) {
        Ok(CommitOutcome::Applied { revision }) => revision,
        other => panic!("expected the transaction to be applied, got {other:?}"),
    }
}

/// Opens a connection that does not go through this crate.
pub(crate) fn raw_connection(database: &SqliteDatabase) -> rusqlite::Connection {
    rusqlite::Connection::open(database.path()).unwrap()
}
