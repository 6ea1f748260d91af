//! The failed and unread items of a run.

use std::collections::BTreeMap;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId};
use gossip_coordination::{
    FailureKind, FailureRecord, GetRunError, InfraError, RunManagement, ShardFilter, ShardSummary,
    SideRecord, SideRecordKind,
};

/// Records per read.
const PAGE: usize = 32;

/// An item that failed for good, or could not be read.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN Q36: an item fails or cannot be read")]
pub enum FailedItem {
    /// Its shard is parked and holds this item alone, unless it could not be isolated.
    Parked {
        /// The shard, with the text that it was parked with.
        shard: Box<ShardSummary>,
        /// How the item failed; `None` if the shard was parked without a record, such as after too
        /// many grants, or if the run has too many.
        record: Option<Box<FailureRecord>>,
    },
    /// The cursor has passed it.
    Unread(Box<FailureRecord>),
}

impl FailedItem {
    /// Returns the parked shard of a failed item, which is to be unparked for a retry.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Self::Parked { shard, .. } => Some(shard.shard),
            Self::Unread(_) => None,
        }
    }

    /// Returns the record, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<&FailureRecord> {
        match self {
            Self::Parked { record, .. } => record.as_deref(),
            Self::Unread(record) => Some(record),
        }
    }

    /// Returns the key of the item; without a record the first key of its shard.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Parked { record: Some(record), .. } | Self::Unread(record) => &record.key,
            Self::Parked { shard, record: None } => &shard.start,
        }
    }
}

/// Returns the failed items of a run in the order of their shards, then the unread ones in the
/// order of their keys.
///
/// A record whose shard is not parked any more is left out: its item is tried again, or was done.
///
/// # Errors
///
/// As `list_shards_into`.
pub fn list_failures<B>(
    backend: &mut B,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<Vec<FailedItem>, GetRunError>
where
    B: RunManagement + ?Sized,
{
    // The records first: a shard that is parked in between has none here, and one that was
    // unparked is not listed below.
    let (mut failed, mut unread): (BTreeMap<ShardId, Box<FailureRecord>>, _) = Default::default();
    let records = records(backend, tenant, run).map_err(GetRunError::BackendError)?;
    for (shard, record) in records {
        match record.kind {
            FailureKind::Failed => {
                let newest = failed.entry(shard).or_insert_with(|| Box::new(record.clone()));
                if newest.at < record.at {
                    **newest = record;
                }
            }
            FailureKind::Unread => Vec::push(&mut unread, record),
        }
    }
    unread.sort_by(|one, other| one.key.cmp(&other.key));
    let mut parked = Vec::new();
    backend.list_shards_into(now, tenant, run, ShardFilter::parked(), &mut parked)?;
    // A damaged shard may be parked; only its repair shows it.
    let parked = parked.into_iter().filter(|row| row.damage.is_none());
    let parked = parked
        .map(|row| FailedItem::Parked { record: failed.remove(&row.shard), shard: Box::new(row) });
    let unread = unread.into_iter().map(|record| FailedItem::Unread(Box::new(record)));
    Ok(parked.chain(unread).collect())
}

/// Returns every failure record of a run with its shard.
fn records<B: RunManagement + ?Sized>(
    backend: &mut B,
    tenant: TenantId,
    run: RunId,
) -> Result<Vec<(ShardId, FailureRecord)>, InfraError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let mut page = Vec::new();
        let kind = SideRecordKind::Failure;
        backend.list_side_records_into(tenant, run, kind, after, PAGE, &mut page)?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.id);
        all.extend(page.into_iter().filter_map(|stored| match stored.record {
            SideRecord::Failure(failure) => Some((stored.id.shard(run).shard(), failure)),
            _ => None,
        }));
    }
}
