//! The leaves of a finished run, read from the store page by page.
//!
//! A listing is held a page at a time, and leaves are sorted in bounded memory (`sort`): an export
//! needs as much memory for a hundred thousand shards as for ten thousand. Only the rows of damaged
//! shards are held, of which there are few.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, ShardId, TenantId};
use gossip_coordination::{
    CoordinationFacade, GetRunError, ParkReason, ShardDamage, ShardFilter, ShardStatus,
    ShardSummary,
};
use thiserror::Error;

use super::record::{LeafRecord, LeafStatus, ParkedFor, Request};
use super::sort::{LeafSorter, SortedLeaves};
use super::write::CertificateWriter;
use crate::token::{RuntimeToken, TokenError};

/// Rows of a page: with the longest keys some mebibytes.
const PAGE_ROWS: usize = 256;

/// The leaves of a run, in the order of their ranges.
pub struct RunLeaves {
    sorted: SortedLeaves,
    damaged: Vec<ShardSummary>,
    waiting: u64,
    is_leased: bool,
}

/// Why the leaves of a run could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadLeavesError {
    /// The run cannot be read.
    #[error(transparent)]
    Run(GetRunError),
    /// A cursor has a token that is not of this program.
    #[error("a cursor token cannot be decoded: {0}")]
    Token(TokenError),
    /// The temporary file cannot be used.
    #[error(transparent)]
    File(#[from] io::Error),
}

impl RunLeaves {
    /// Reads the shards of a run. `directory` is for a temporary file without a name, which is
    /// needed if there are many.
    ///
    /// # Errors
    ///
    /// The store, a cursor or the file cannot be read. A run that is not finished is no error:
    /// [`Self::waiting`] says so.
    pub fn read<B: CoordinationFacade>(
        coordinator: &mut B,
        now: LogicalTime,
        (tenant, run): (TenantId, RunId),
        directory: &Path,
    ) -> Result<Self, ReadLeavesError> {
        let (mut sorter, mut damaged) = (LeafSorter::new(directory), Vec::new());
        let (mut waiting, mut is_leased) = (0, false);
        for_each_shard(coordinator, now, (tenant, run), |row| {
            if row.damage.is_some() {
                damaged.push(row);
                return Ok(());
            }
            waiting += u64::from(row.status == ShardStatus::Active);
            // An unfinished shard with a lease needs time, and one without needs a worker.
            is_leased |= row.leased;
            match leaf(&row)? {
                Some(leaf) => Ok(sorter.add(leaf, row.shard)?),
                None => Ok(()),
            }
        })?;
        let mut uncovered: Vec<&ShardSummary> = damaged.iter().filter(has_range).collect();
        if !uncovered.is_empty() {
            // A replacing split puts its shards inside the range of the damaged one.
            for_each_shard(coordinator, now, (tenant, run), |row| {
                uncovered.retain(|of| !is_inside(&row, of));
                Ok(())
            })?;
        }
        for row in uncovered {
            sorter.add(damaged_leaf(&row.start, &row.end), row.shard)?;
        }
        Ok(Self { sorted: sorter.finish()?, damaged, waiting, is_leased })
    }

    /// Returns the number of shards that are not finished: a certificate covers every shard.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns whether a shard is leased.
    #[must_use]
    pub const fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Returns the shards whose record is damaged, in the order of their ids. Their ranges are
    /// uncovered.
    #[must_use]
    pub fn damaged(&self) -> &[ShardSummary] {
        &self.damaged
    }

    /// Adds the leaves to a certificate of `request`. If the range of a damaged shard is lost, it
    /// is the part of the request that no other leaf covers.
    ///
    /// # Errors
    ///
    /// As [`CertificateWriter::leaf`], and those of the temporary file.
    pub fn write_to<W: Write>(
        mut self,
        request: &Request,
        writer: &mut CertificateWriter<W>,
    ) -> io::Result<()> {
        let is_range_lost = self.damaged.iter().any(|row| !has_range(&row));
        let mut covered = request.start.clone();
        while let Some(leaf) = self.sorted.next()? {
            if is_range_lost && covered < leaf.start {
                writer.leaf(&damaged_leaf(&covered, &leaf.start))?;
            }
            writer.leaf(&leaf)?;
            covered = leaf.end;
        }
        if is_range_lost && covered < request.end {
            writer.leaf(&damaged_leaf(&covered, &request.end))?;
        }
        Ok(())
    }
}

// Numbers only.
impl fmt::Debug for RunLeaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLeaves")
            .field("waiting", &self.waiting)
            .field("damaged", &self.damaged.len())
            .finish_non_exhaustive()
    }
}

/// Passes every shard of a run to `take`, in the order of their ids.
fn for_each_shard<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    mut take: impl FnMut(ShardSummary) -> Result<(), ReadLeavesError>,
) -> Result<(), ReadLeavesError> {
    let (mut page, mut after) = (Vec::new(), None::<ShardId>);
    loop {
        let filter = ShardFilter::all().page(after, PAGE_ROWS);
        coordinator
            .list_shards_into(now, tenant, run, filter, &mut page)
            .map_err(ReadLeavesError::Run)?;
        let Some(last) = page.last().map(|row| row.shard) else { return Ok(()) };
        // Otherwise a page would be read for ever.
        assert!(after.is_none_or(|after| after < last), "pages come in the order of ids");
        after = Some(last);
        page.drain(..).try_for_each(&mut take)?;
    }
}

fn has_range(row: &&ShardSummary) -> bool {
    row.damage.is_none_or(ShardDamage::has_range)
}

fn is_inside(child: &ShardSummary, row: &ShardSummary) -> bool {
    child.parent == Some(row.shard) && (&*row.start..&*row.end).contains(&&*child.start)
}

fn damaged_leaf(start: &[u8], end: &[u8]) -> LeafRecord {
    LeafRecord::new(start, end, LeafStatus::Parked(ParkedFor::Damaged), FenceEpoch::INITIAL)
}

/// Returns the leaf of a shard; `None` for a split shard, whose children have leaves, and for one
/// that is not finished.
fn leaf(row: &ShardSummary) -> Result<Option<LeafRecord>, ReadLeavesError> {
    let status = match (row.status, row.park_reason) {
        (ShardStatus::Split | ShardStatus::Active, _) => return Ok(None),
        (ShardStatus::Done, _) => LeafStatus::Done,
        (ShardStatus::Parked, reason) => LeafStatus::Parked(parked_for(reason)),
    };
    let leaf = LeafRecord::new(&row.start, &row.end, status, row.fence_epoch);
    let Some(cursor) = &row.last_key else { return Ok(Some(leaf)) };
    let token = match &row.token {
        Some(token) => RuntimeToken::decode(token).map_err(ReadLeavesError::Token)?,
        None => RuntimeToken::START,
    };
    Ok(Some(leaf.with_progress(cursor, token.accumulator, token.unread)))
}

const fn parked_for(reason: Option<ParkReason>) -> ParkedFor {
    match reason {
        Some(ParkReason::PermissionDenied) => ParkedFor::PermissionDenied,
        Some(ParkReason::NotFound) => ParkedFor::NotFound,
        Some(ParkReason::Poisoned) => ParkedFor::Poisoned,
        Some(ParkReason::TooManyErrors) => ParkedFor::TooManyErrors,
        // The coordinator's enum may grow.
        Some(ParkReason::Other | _) | None => ParkedFor::Other,
    }
}
