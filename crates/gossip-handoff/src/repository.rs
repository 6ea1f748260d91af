//! The storage of records.
//!
//! `save` is a compare-and-swap: if two processes recover the same record, one drives it and the
//! other gets a conflict.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_coordination::{HandoffId, InfraError};
use thiserror::Error;

use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, RecordId};

/// The version of a stored record. Every write increases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// Returns the version with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// A stored record and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record.
    pub record: Record,
    /// The version that [`Repository::save`] compares.
    pub version: Version,
}

/// A handle on stored records. Several handles may share the same records.
pub trait Repository {
    /// Stores `record` if the stored version is `expected`; with `None`, if no record of its id is
    /// stored. Returns the new version.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::VersionConflict`] if the version differs; then nothing is stored.
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError>;

    /// Returns the record with this id.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::RecordNotFound`] if none is stored.
    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError>;

    /// Returns the first `limit` unfinished handoffs after `after` whose source or destination is
    /// `owner`. The repository defines the order.
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

    /// Returns the first `limit` records after `after`, finished ones included, for operators and
    /// garbage collection. The repository defines the order.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`].
    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError>;

    /// Deletes a finished record. Succeeds if it is deleted already.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotOver`], or [`RepositoryError::VersionConflict`] if the record has
    /// changed.
    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError>;

    /// Returns all unfinished handoffs whose source or destination is `owner`. A process calls it
    /// when it starts. Unreadable records are left out; use [`Self::in_progress_page`] to see them,
    /// or if there may be many.
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

/// Records in one page of [`Repository::in_progress`]. With the largest snapshots a page takes
/// 16 MiB.
pub const IN_PROGRESS_PAGE: usize = 64;

/// Unreadable records reported by one page.
pub(crate) const UNREADABLE_MAX: usize = 64;

/// One page of handoffs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// The readable records.
    pub found: Vec<Stored>,
    /// The numbers of unreadable records, at most `UNREADABLE_MAX`: damaged ones, and those that
    /// a newer version wrote. They do not hide the readable records.
    pub unreadable: Vec<HandoffId>,
    /// The last id of this page, if there is a next one.
    pub next: Option<RecordId>,
}

pub(crate) const fn check_over(stored: &Stored) -> Result<(), RepositoryError> {
    match stored.record.state.is_terminal() {
        true => Ok(()),
        false => Err(RepositoryError::NotOver { state: stored.record.state }),
    }
}

/// A failed operation of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// No record with this id is stored.
    #[error("no such handoff")]
    RecordNotFound,
    /// Another process has changed the record and drives it now.
    #[error("another process has changed the handoff")]
    VersionConflict,
    /// Only finished records can be deleted.
    #[error("a handoff in phase {state} has not ended")]
    NotOver {
        /// The phase.
        state: Phase,
    },
    /// The record violates an invariant.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
    /// The store failed. The record may or may not be stored.
    #[error("the repository failed: {0}")]
    Store(#[from] InfraError),
}

/// Records in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryRepository(Arc<Mutex<BTreeMap<RecordId, Stored>>>);

impl MemoryRepository {
    /// Returns an empty repository.
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
        // A full page may be the last one; the next is then empty, which costs a read and no
        // lookahead.
        let last = found.last().filter(|_| found.len() == limit);
        let next = last.map(|stored| stored.record.id.clone());
        InProgress { found, next, unreadable: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RecordId, Stored>> {
        // Every change is a single insertion or removal, so a panic cannot leave the map half
        // changed and a poisoned lock is harmless.
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
            // Gone already is the result that the caller wants.
            Some(_) | None => {
                records.remove(&over.record.id);
                Ok(())
            }
        }
    }
}
