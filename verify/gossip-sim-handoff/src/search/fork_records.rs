//! The record of the searched handoff: a repository that is cheap to clone.

use std::sync::Arc;

use gossip_handoff::Record;
use gossip_handoff::{RepositoryError, Stored, Version};

/// One record or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ForkRecords {
    stored: Option<Arc<(Record, Version)>>,
}

impl ForkRecords {
    pub(super) fn stored(&self) -> Option<Stored> {
        let (record, version) = self.stored.as_deref().cloned()?;
        Some(Stored { record, version })
    }

    /// Returns the record if it has not ended.
    pub(super) fn live(&self) -> Option<Stored> {
        self.stored().filter(|stored| !stored.record.state.is_terminal())
    }

    /// Returns the record.
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
