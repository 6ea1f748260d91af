//! Files and handles for the tests of this crate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{SqliteDatabase, SqliteOptions};

/// A directory of one test, removed with it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

/// Where the system keeps files in memory, if it does: most tests prove something else than a disk,
/// and run ten times as fast there.
const MEMORY: &str = "/dev/shm";

impl Scratch {
    /// A directory in memory if there is such a place.
    pub(crate) fn new() -> Self {
        let memory = Path::new(MEMORY);
        let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        Self::below(&root)
    }

    /// A directory on the disk.
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

    /// A database that does not wait for the disk.
    pub(crate) fn database(&self) -> SqliteDatabase {
        self.database_with(SqliteOptions::default().relaxed())
    }

    pub(crate) fn database_with(&self, options: SqliteOptions) -> SqliteDatabase {
        SqliteDatabase::open(self.file("store.db"), options).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed says so itself.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
