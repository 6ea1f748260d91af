//! How a scan ended.

use std::fmt;

use gossip_contracts::connector::{
    CheckedEnumeration, Connector, MIN_PAGE_BYTES, Page, PageLimits,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{RunId, ShardId};
use gossip_coordination::{ParkReason, RunStatus, ShardStatus, ShardSummary};
use gossip_scanner_runtime::connectors::Source;
use gossip_scanner_runtime::{Finish, RuntimeToken};

/// Parked shards that an outcome lists at most; [`Totals::parked`] counts all of them.
pub const FAILED_LISTED_MAX: usize = 100;

/// How a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a scan may end incomplete without an error"]
pub struct Outcome {
    /// The run, for the command line and for its certificate.
    pub run: RunId,
    /// How it ended.
    pub status: Status,
    /// Counts over the whole run, of all processes.
    pub totals: Totals,
    /// The first [`FAILED_LISTED_MAX`] parked shards. An item whose handler failed is
    /// parked alone.
    pub failed: Vec<FailedRange>,
}

impl Outcome {
    pub(super) fn new(
        run: RunId,
        finish: Finish,
        rows: &[ShardSummary],
        source: &Source,
        connector: &dyn Connector,
    ) -> Self {
        let totals = Totals::of(rows);
        let parked = rows.iter().filter(|row| row.status == ShardStatus::Parked);
        // A damaged record has no range that could be trusted, and is counted apart.
        let parked = parked.filter(|row| row.damage.is_none());
        Self {
            run,
            status: Status::of(finish, &totals),
            totals,
            failed: parked
                .take(FAILED_LISTED_MAX)
                .map(|row| FailedRange::of(row, source, connector))
                .collect(),
        }
    }

    /// Returns whether every item was processed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.status == Status::Complete
    }
}

/// In which state a scan left its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Every item was processed.
    Complete,
    /// Items are parked or could not be read, or shards are damaged; everything else was processed.
    Incomplete,
    /// The run was failed or cancelled, here or elsewhere.
    Ended(RunStatus),
    /// The scan was drained. The same call resumes.
    Drained,
}

impl Status {
    const fn of(finish: Finish, totals: &Totals) -> Self {
        match finish {
            // The worker calls a run complete whose shards are done. Unread keys were skipped, and
            // the caller must not miss that.
            Finish::Complete if totals.unread == 0 => Self::Complete,
            Finish::Complete | Finish::Incomplete { .. } => Self::Incomplete,
            Finish::RunOver(status) => Self::Ended(status),
            Finish::Drained | Finish::DrainedUnsaved => Self::Drained,
        }
    }
}

/// Counts over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Keys that were processed.
    pub keys: u64,
    /// Keys that could not be read and were skipped.
    pub unread: u64,
    /// Findings that handlers have counted.
    pub findings: u64,
    /// Shards, split ones included.
    pub shards: u64,
    /// Parked shards.
    pub parked: u64,
    /// Shards whose record is damaged; their keys are not counted.
    pub damaged: u64,
}

impl Totals {
    /// Adds up the shards of a run. A split shard has passed its progress to a child.
    #[must_use]
    pub fn of(rows: &[ShardSummary]) -> Self {
        let mut totals = Self { shards: rows.len() as u64, ..Self::default() };
        totals.damaged = rows.iter().filter(|row| row.damage.is_some()).count() as u64;
        let readable = rows.iter().filter(|row| row.damage.is_none());
        for row in readable.filter(|row| row.status != ShardStatus::Split) {
            totals.parked += u64::from(row.status == ShardStatus::Parked);
            let token = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
            if let Some(token) = token {
                // The accumulator counts every key that the cursor has passed, unread ones
                // included.
                totals.keys += token.accumulator.count().saturating_sub(token.unread);
                totals.unread += token.unread;
                totals.findings = totals.findings.saturating_add(token.found);
            }
        }
        totals
    }
}

/// A parked shard.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRange {
    /// The shard.
    pub shard: ShardId,
    /// Why it was parked.
    pub reason: Option<ParkReason>,
    /// Its first key; empty for the beginning of all keys.
    pub start: Box<[u8]>,
    /// The first key behind it; empty for the end of all keys.
    pub end: Box<[u8]>,
    /// The first key in it that was not processed: the item that failed, if one did. `None` if the
    /// source cannot be listed there.
    pub key: Option<Box<[u8]>>,
    /// That key for people: a path, or the number of a row. A byte that is not UTF-8 is `\xNN`.
    pub text: Option<String>,
}

impl FailedRange {
    fn of(row: &ShardSummary, source: &Source, connector: &dyn Connector) -> Self {
        let key = first_after_cursor(row, connector);
        Self {
            shard: row.shard,
            reason: row.park_reason,
            start: row.start.clone(),
            end: row.end.clone(),
            text: key.as_deref().map(|key| source.key_format().readable(key)),
            key,
        }
    }
}

/// Lists the first key of a shard after its cursor.
fn first_after_cursor(row: &ShardSummary, connector: &dyn Connector) -> Option<Box<[u8]>> {
    let range = ShardSpecRef::new(&row.start, &row.end, &row.metadata);
    // Without the token, which is the runtime's: the key decides.
    let cursor =
        row.last_key.as_deref().map_or_else(CursorUpdate::initial, CursorUpdate::with_last_key);
    // One item, because only the first can be the one that failed: the cursor stops before it.
    let mut page = Page::with_limits(PageLimits::try_new(1, MIN_PAGE_BYTES).ok()?);
    let mut listing = CheckedEnumeration::open(connector, range, cursor).ok()?;
    listing.next_page(&mut page).ok()?;
    page.item(0).map(|item| item.key().into())
}

// Lengths only: keys belong to the user.
impl fmt::Debug for FailedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailedRange")
            .field("shard", &self.shard)
            .field("reason", &self.reason)
            .field("start_len", &self.start.len())
            .field("end_len", &self.end.len())
            .finish_non_exhaustive()
    }
}
