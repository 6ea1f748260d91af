//! The handoff records of a worker, whichever store holds them.

use gossip_handoff::{InProgress, Record, RecordId, Repository, RepositoryError, Stored, Version};

/// A boxed repository, so that the worker is not generic over the store of its records.
pub(super) struct Records<'a>(Box<dyn Repository + 'a>);

impl<'a> Records<'a> {
    pub(super) fn new(repository: Box<dyn Repository + 'a>) -> Self {
        Self(repository)
    }
}

impl Repository for Records<'_> {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        self.0.save(record, expected)
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.0.get(id)
    }

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.0.in_progress_page(owner, after, limit)
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.0.page(after, limit)
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        self.0.forget(over)
    }
}
