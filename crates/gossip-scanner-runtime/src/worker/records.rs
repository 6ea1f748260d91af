//! The handoff records of a worker, whichever store holds them.

use gossip_handoff::{InProgress, Record, RecordId, Repository, RepositoryError, Stored, Version};

use crate::monitored::StoreReport;

/// A boxed repository, so that the worker is not generic over the store of its records. It notes
/// whether the store failed.
pub(super) struct Records<'a> {
    repository: Box<dyn Repository + 'a>,
    report: StoreReport,
}

impl<'a> Records<'a> {
    pub(super) fn new(repository: Box<dyn Repository + 'a>) -> Self {
        Self { repository, report: StoreReport::Unused }
    }

    /// Returns what the store did since the last call.
    pub(super) fn take_report(&mut self) -> StoreReport {
        std::mem::take(&mut self.report)
    }

    /// Calls the repository, and notes an error.
    fn call<T>(
        &mut self,
        operation: impl FnOnce(&mut (dyn Repository + 'a)) -> Result<T, RepositoryError>,
    ) -> Result<T, RepositoryError> {
        let answer = operation(&mut *self.repository);
        self.report.note(answer.as_ref().err().map(|error| error as _));
        answer
    }
}

impl Repository for Records<'_> {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        self.call(|records| records.save(record, expected))
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.call(|records| records.get(id))
    }

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.call(|records| records.in_progress_page(owner, after, limit))
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.call(|records| records.page(after, limit))
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        self.call(|records| records.forget(over))
    }
}
