//! The record of the one move of the search: a repository that can be forked.

use std::sync::Arc;

use gossip_handoff::Record;
use gossip_handoff::{RepositoryError, Stored, Version};

/// One record or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shelf {
    stored: Option<Arc<(Record, Version)>>,
}

impl Shelf {
    pub(super) fn stored(&self) -> Option<Stored> {
        let (record, version) = self.stored.as_deref().cloned()?;
        Some(Stored { record, version })
    }

    /// The record, if it is not over.
    pub(super) fn live(&self) -> Option<Stored> {
        self.stored().filter(|stored| !stored.record.state.is_terminal())
    }

    /// The record itself.
    pub(super) fn record(&self) -> Option<&Record> {
        self.stored.as_deref().map(|stored| &stored.0)
    }

    pub(super) fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        let current = self.stored.as_deref().map(|stored| stored.1);
        if current != expected {
            return Err(RepositoryError::VersionConflict);
        }
        let version = Version::from_raw(current.map_or(0, Version::as_raw) + 1);
        self.stored = Some(Arc::new((record.clone(), version)));
        Ok(version)
    }

    pub(super) fn get(&self) -> Result<Stored, RepositoryError> {
        self.stored().ok_or(RepositoryError::RecordNotFound)
    }

    pub(super) fn forget(&mut self, over: &Stored) {
        if self.stored().as_ref() == Some(over) {
            self.stored = None;
        }
    }
}
