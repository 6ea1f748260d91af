//! Where records are kept.
//!
//! `save` compares and swaps, so of two recoverers that both found a record after a crash one
//! drives it and the other learns that it does not.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_coordination::HandoffId;
use thiserror::Error;

use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, RecordId};

/// Rises with every write of a record. A record that is not stored yet has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// The first `limit` handoffs that are not over, in which `owner` gives or gets, and which come
    /// behind `after`, in an order of the repository's own.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError>;

    /// The first `limit` records behind `after`, also those that are over, in an order of the
    /// repository's own: what a person or a collector looks through.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError>;

    /// Removes a record that is over. One that is gone already is as good.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotOver`], or [`RepositoryError::VersionConflict`] if it is not what was
    /// found any more.
    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError>;

    /// All handoffs that are not over and in which `owner` gives or gets: what a process looks for
    /// when it starts. Read page by page; whoever may have many takes the pages, and so does who
    /// wants to know what cannot be read.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    fn in_progress(&mut self, owner: &str) -> Result<Vec<Stored>, RepositoryError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.in_progress_page(owner, after.as_ref(), IN_PROGRESS_PAGE)?;
            found.extend(page.found);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }
}

/// Records in one page of [`Repository::in_progress`]: with the largest snapshots 16 MiB.
pub const IN_PROGRESS_PAGE: usize = 64;

/// Unreadable records that one page tells of.
pub const UNREADABLE_MAX: usize = 64;

/// One page of handoffs: of those that are not over, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// What was found.
    pub found: Vec<Stored>,
    /// What is there and cannot be read, by number, the first [`UNREADABLE_MAX`] of a page:
    /// damaged, or written by a newer program. The others are found all the same.
    pub unreadable: Vec<HandoffId>,
    /// Behind which id the next page begins, if there is one.
    pub next: Option<RecordId>,
}

pub(crate) const fn check_over(stored: &Stored) -> Result<(), RepositoryError> {
    match stored.record.state.is_terminal() {
        true => Ok(()),
        false => Err(RepositoryError::NotOver { state: stored.record.state }),
    }
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
    /// Only what is over is forgotten.
    #[error("a handoff in phase {state} is not over")]
    NotOver {
        /// Its phase.
        state: Phase,
    },
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

    fn page_of(
        &self,
        after: Option<&RecordId>,
        limit: usize,
        fits: impl Fn(&Stored) -> bool,
    ) -> InProgress {
        let records = self.lock();
        let behind = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let rest = records.range((behind, Bound::Unbounded)).map(|(_, stored)| stored);
        let found: Vec<Stored> = rest.filter(|stored| fits(stored)).take(limit).cloned().collect();
        let last = found.last().filter(|_| found.len() == limit);
        let next = last.map(|stored| stored.record.id.clone());
        InProgress { found, next, unreadable: Vec::new() }
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

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        let live =
            |stored: &Stored| !stored.record.state.is_terminal() && stored.record.concerns(owner);
        Ok(self.page_of(after, limit, live))
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        Ok(self.page_of(after, limit, |_| true))
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        check_over(over)?;
        let mut records = self.lock();
        match records.get(&over.record.id).map(|stored| stored.version) {
            Some(version) if version != over.version => Err(RepositoryError::VersionConflict),
            Some(_) | None => {
                records.remove(&over.record.id);
                Ok(())
            }
        }
    }
}
