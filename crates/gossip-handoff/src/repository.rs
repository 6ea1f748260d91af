//! Where records are kept.
//!
//! `save` compares and swaps, so of two recoverers that both found a record after a crash one
//! drives it and the other learns that it does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::record::{InvalidRecord, Record, RecordId};

/// How often a record was written. A record that is not stored yet has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

impl Version {
    /// The version with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What is stored.
    pub record: Record,
    /// What [`Repository::save`] compares.
    pub version: Version,
}

/// Keeps records. A repository is a handle; several may work on the same records.
pub trait Repository {
    /// Stores `record` if what is there is still at `expected`, or is not there for `None`.
    /// Answers the new version.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::VersionConflict`] if somebody else drives it; then nothing is stored.
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError>;

    /// The record with this id.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::RecordNotFound`] if there is none.
    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError>;

    /// The handoffs that are not over and in which `owner` gives or gets, in the order of their
    /// ids: what a process looks for when it starts.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    fn in_progress(&mut self, owner: &str) -> Result<Vec<Stored>, RepositoryError>;
}

/// Why a repository did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// There is no such record.
    #[error("there is no such handoff")]
    RecordNotFound,
    /// The record was changed by somebody else, who drives it now.
    #[error("the handoff was changed by somebody else")]
    VersionConflict,
    /// The record could not have been made by a machine.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
    /// What keeps the records failed; whether the record was stored may be unknown.
    #[error("the repository failed: {message}")]
    Failed {
        /// What it said.
        message: String,
    },
}

/// Records in this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryRepository(Arc<Mutex<BTreeMap<RecordId, Stored>>>);

impl MemoryRepository {
    /// An empty repository.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RecordId, Stored>> {
        // Every change is one insertion, so what a panic elsewhere leaves is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repository for MemoryRepository {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        record.check()?;
        let mut records = self.lock();
        let current = records.get(&record.id).map(|stored| stored.version);
        if current != expected {
            return Err(RepositoryError::VersionConflict);
        }
        let version = Version(current.map_or(0, Version::as_raw) + 1);
        records.insert(record.id.clone(), Stored { record: record.clone(), version });
        Ok(version)
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.lock().get(id).cloned().ok_or(RepositoryError::RecordNotFound)
    }

    fn in_progress(&mut self, owner: &str) -> Result<Vec<Stored>, RepositoryError> {
        let records = self.lock();
        let live = records
            .values()
            .filter(|stored| !stored.record.state.is_terminal() && stored.record.concerns(owner));
        Ok(live.cloned().collect())
    }
}
