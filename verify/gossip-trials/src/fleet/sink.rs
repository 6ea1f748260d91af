//! A place for results that many processes write to, and that refuses whoever was overtaken.
//!
//! It remembers the highest fence that has written each key, and takes a write only under that
//! fence or a higher one. Everything that comes is noted in a journal, in the order in which it
//! came: that is what the trial is judged by.
//!
//! One lock on one file makes a write one step. The journal comes before the fence, so a writer
//! that is killed in between leaves a note too many and never a fence without a note.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gossip_scanner_runtime::{Clock as _, SystemClock};

use crate::Outcome;
use crate::fleet::book::Time;

/// Bytes of a fence.
const FENCE_BYTES: u64 = 8;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted,
    /// Somebody has written the key under a higher fence.
    Refused,
}

/// Who writes what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: u64,
    pub(crate) fence: u64,
    pub(crate) shard: &'a str,
    pub(crate) worker: &'a str,
}

/// The time of a note, by the clock that workers read, too.
pub(crate) fn now() -> Time {
    SystemClock::new().now().as_raw()
}

/// The sink, as one process sees it.
#[derive(Debug)]
pub(crate) struct Sink {
    fences: File,
    journal: File,
    directory: PathBuf,
    keys: u64,
}

impl Sink {
    /// Makes it: nobody has written anything.
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

    /// Takes a result, or refuses it.
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
        // One call, so that a line is there or not.
        let line = format!("{word} {key} {fence} {shard} {worker} {}\n", now());
        self.journal.write_all(line.as_bytes())?;
        if write == Write::Accepted {
            self.fences.write_all_at(&fence.to_le_bytes(), key * FENCE_BYTES)?;
        }
        self.fences.unlock()?;
        Ok(write)
    }

    /// The highest fence that has written a key; zero if nobody has.
    pub(crate) fn fence_of(&self, key: u64) -> Outcome<u64> {
        let mut bytes = [0; FENCE_BYTES as usize];
        self.fences.read_exact_at(&mut bytes, key * FENCE_BYTES)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Whether somebody is in the middle of a write.
    pub(crate) fn is_busy(&self) -> Outcome<bool> {
        match self.fences.try_lock() {
            Ok(()) => Ok(self.fences.unlock().map(|()| false)?),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Everything that came, in its order.
    pub(crate) fn journal(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.directory.join("journal"))?)
    }
}
