//! Directories that go away with their value.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, process, thread};

/// A directory of our own below the system's temporary one. Kept if the test panics, for a look.
#[derive(Debug)]
pub struct TestDirectory {
    path: PathBuf,
}

impl TestDirectory {
    /// Makes an empty directory.
    pub fn new(name: &str) -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gossip-{name}-{}-{number}", process::id()));
        // A directory of that name can only be of a process that is no more.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        if !thread::panicking() {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
