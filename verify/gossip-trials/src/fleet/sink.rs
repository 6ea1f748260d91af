//! A fenced sink that many processes write to.
//!
//! It stores the highest fence that has written each key, and accepts a write only under that fence
//! or a higher one. Every write is appended to a journal in arrival order; the trial is checked by
//! that journal.
//!
//! A lock on one file makes a write atomic. The journal is written before the fence, so a writer
//! that is killed in between leaves an extra journal line, never a fence without a line.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gossip_scanner_runtime::{Clock as _, SystemClock};

use crate::Outcome;
use crate::fleet::history_check::Time;

/// Bytes of a fence.
const FENCE_BYTES: u64 = 8;

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted,
    /// The key was written under a higher fence.
    Refused,
}

/// A write with its worker and fence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: u64,
    pub(crate) fence: u64,
    pub(crate) shard: &'a str,
    pub(crate) worker: &'a str,
}

/// Returns the time of a journal line, by the clock of the workers.
pub(crate) fn now() -> Time {
    SystemClock::new().now().as_raw()
}

/// The sink, opened by one process.
#[derive(Debug)]
pub(crate) struct Sink {
    fences: File,
    journal: File,
    directory: PathBuf,
    keys: u64,
}

impl Sink {
    /// Creates an empty sink.
    pub(crate) fn make(directory: &Path, keys: u64) -> Outcome<Self> {
        fs::create_dir_all(directory)?;
        File::create(directory.join("fences"))?.set_len(keys * FENCE_BYTES)?;
        File::create(directory.join("journal"))?;
        Self::open(directory, keys)
    }

    pub(crate) fn open(directory: &Path, keys: u64) -> Outcome<Self> {
        let fences = OpenOptions::new().read(true).write(true).open(directory.join("fences"))?;
        let journal = OpenOptions::new().append(true).open(directory.join("journal"))?;
        Ok(Self { fences, journal, directory: directory.to_path_buf(), keys })
    }

    /// Accepts or refuses a write.
    pub(crate) fn write(&mut self, result: Entry<'_>) -> Outcome<Write> {
        let Entry { key, fence, shard, worker } = result;
        if key >= self.keys {
            return Err(format!("key {key} of {}", self.keys).into());
        }
        self.fences.lock()?;
        let highest = self.fence_of(key)?;
        let write = if highest > fence { Write::Refused } else { Write::Accepted };
        let word = match write {
            Write::Accepted => "accepted",
            Write::Refused => "refused",
        };
        // One call, so that a line is written completely or not at all.
        let line = format!("{word} {key} {fence} {shard} {worker} {}\n", now());
        self.journal.write_all(line.as_bytes())?;
        if write == Write::Accepted {
            self.fences.write_all_at(&fence.to_le_bytes(), key * FENCE_BYTES)?;
        }
        self.fences.unlock()?;
        Ok(write)
    }

    /// Returns the highest fence that has written a key; zero if there was no write.
    pub(crate) fn fence_of(&self, key: u64) -> Outcome<u64> {
        let mut bytes = [0; FENCE_BYTES as usize];
        self.fences.read_exact_at(&mut bytes, key * FENCE_BYTES)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns whether a write is in progress.
    pub(crate) fn is_busy(&self) -> Outcome<bool> {
        match self.fences.try_lock() {
            Ok(()) => Ok(self.fences.unlock().map(|()| false)?),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Returns the journal.
    pub(crate) fn journal(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.directory.join("journal"))?)
    }
}
