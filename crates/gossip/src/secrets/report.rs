//! The findings of a run, in the order of their places and each once.

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{InfraError, RunManagement};
use gossip_scanner_runtime::connectors::KeyFormat;
use gossip_scanner_runtime::{ResultsError, for_each_result};
use thiserror::Error;

use super::stored::{ItemFindings, StoredFinding, UnreadableFindings};

/// The findings of a run, in memory.
#[derive(Debug, Default)]
pub struct FindingReport {
    /// In the order of their keys.
    items: Vec<ItemFindings>,
}

/// Why findings could not be read.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The store failed.
    #[error(transparent)]
    Store(InfraError),
    /// The results of the run are damaged.
    #[error(transparent)]
    Results(ResultsError),
    /// The run searches for something else, or another version of this program wrote it.
    #[error(transparent)]
    Unreadable(#[from] UnreadableFindings),
}

impl From<ResultsError> for ReportError {
    fn from(error: ResultsError) -> Self {
        match error {
            ResultsError::Store(error) => Self::Store(error),
            error => Self::Results(error),
        }
    }
}

/// One finding of a report, with its item.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a finding and where it was found")]
pub struct Found<'a> {
    /// The item.
    pub item: &'a ItemFindings,
    /// The finding.
    pub finding: &'a StoredFinding,
}

impl FindingReport {
    /// Reads the findings of the items that a run has passed.
    ///
    /// # Errors
    ///
    /// [`ReportError`].
    pub fn read<B: RunManagement + ?Sized>(
        backend: &mut B,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, ReportError> {
        let mut items = Vec::new();
        for_each_result(backend, tenant, run, |stored| {
            items.push(ItemFindings::decode(&stored.content, tenant)?);
            Ok::<(), ReportError>(())
        })?;
        Ok(Self { items })
    }

    /// Returns the items in the order of their keys.
    pub fn items(&self) -> impl Iterator<Item = &ItemFindings> {
        self.items.iter()
    }

    /// Returns the findings in the order of keys and offsets.
    pub fn findings(&self) -> impl Iterator<Item = Found<'_>> {
        self.items()
            .flat_map(|item| item.findings.iter().map(move |finding| Found { item, finding }))
    }
}

impl Found<'_> {
    /// Returns the place for people, without line and column: the path, with commit and archive
    /// member if there are any. A byte that is not UTF-8 is `\xNN`.
    #[must_use]
    pub fn place(&self) -> String {
        KeyFormat::Bytes.readable(&self.item.place(self.finding.member.as_deref()))
    }
}

/// Digits of a commit that are shown: as git abbreviates them in large repositories.
const REVISION_SHOWN: usize = 12;

impl ItemFindings {
    /// Returns the place of the item, or of a member of it: the path, behind the commit if there is
    /// one. Not escaped.
    #[must_use]
    pub fn place(&self, member: Option<&str>) -> Vec<u8> {
        let mut place = Vec::new();
        if !self.revision.is_empty() {
            // The whole revision where it is shorter: a program may name its versions otherwise
            // than git.
            let shown = self.revision.get(..REVISION_SHOWN).unwrap_or(&self.revision);
            place.extend_from_slice(shown.as_bytes());
            place.push(b':');
        }
        place.extend_from_slice(if self.path.is_empty() { &self.key } else { &self.path });
        if let Some(member) = member {
            place.extend_from_slice(b"!/");
            place.extend_from_slice(member.as_bytes());
        }
        place
    }
}
