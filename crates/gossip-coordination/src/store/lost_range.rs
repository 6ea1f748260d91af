//! The range of a shard whose cold part is lost, derived from the other shards of its run.
//!
//! Shards that are not split cover the range of the run without overlap. If one of them is lost,
//! its range is the gap between its neighbours; at the ends of the run the caller's bounds end it.
//! A replaced shard has no gap: its range is that of the shards that replaced it.
//!
//! Nothing is guessed: if two ranges are lost, or the gap is not unique, there is no answer. If the
//! manifest of the run left gaps between its roots, the derived range ends at the neighbours.

use gossip_contracts::coordination::ShardSpecRef;
use gossip_contracts::identity::{ShardId, ShardKey, TenantId};

use super::codec::{ColdPart, SpawnedIds};
use super::core::Core;
use super::flight::Io;
use super::shard_scan::ShardScan;
use crate::error::InfraError;
use crate::record::{Lineage, ShardStatus};
use crate::run_errors::GetRunError;

/// The split hash of a derived shard whose own is lost. No operation has it, so no retried split
/// takes the shard for its own.
const SPLIT_HASH_LOST: u64 = 1;

/// A derived range, and the other contents of a cold part.
pub(super) struct LostRange {
    start: Vec<u8>,
    end: Vec<u8>,
    metadata: Vec<u8>,
    lineage: Option<Lineage>,
    spawned: Vec<[u8; size_of::<u64>()]>,
    /// Whether shards that were cut from it cover it.
    pub(super) is_covered: bool,
}

impl LostRange {
    pub(super) fn cold(&self) -> ColdPart<'_> {
        ColdPart {
            spec: ShardSpecRef::new(&self.start, &self.end, &self.metadata),
            lineage: self.lineage,
            spawned: SpawnedIds::new(&self.spawned),
        }
    }
}

/// A shard whose cold part is intact.
struct Row {
    shard: ShardId,
    /// `None` if the hot part is damaged.
    status: Option<ShardStatus>,
    start: Vec<u8>,
    end: Vec<u8>,
    metadata: Vec<u8>,
    lineage: Option<Lineage>,
    spawned: Vec<ShardId>,
}

/// Derives the range of a shard without a cold part; `None` if the other shards do not show it.
///
/// `status` and `reached` are those of its hot part, `whole` are the bounds of its run.
pub(super) async fn range_of(
    core: &Core,
    io: &Io,
    (tenant, key): (TenantId, ShardKey),
    status: Option<ShardStatus>,
    reached: Option<&[u8]>,
    whole: Option<(&[u8], &[u8])>,
) -> Result<Option<LostRange>, InfraError> {
    let Some(rows) = readable(core, io, (tenant, key)).await? else { return Ok(None) };
    let shard = key.shard();
    let lineage = match shard.is_derived() {
        true => match lineage(&rows, shard) {
            Some(lineage) => Some(lineage),
            None => return Ok(None),
        },
        false => None,
    };
    let gaps = gaps(&rows, whole);
    let of_cursor = |gap: &&(&[u8], &[u8])| reached.is_none_or(|key| gap.0 <= key && key < gap.1);
    let mut fitting = gaps.iter().filter(of_cursor);
    // Without a status the gap decides: a shard that was not replaced leaves one.
    let is_split = status.map_or(gaps.is_empty(), |status| status == ShardStatus::Split);
    let range = match (is_split, fitting.next(), fitting.next()) {
        (true, _, _) => replaced(&rows, shard),
        (false, Some(gap), None) => Some((gap.0.to_vec(), gap.1.to_vec())),
        (false, _, _) => None,
    };
    let Some((start, end)) = range else { return Ok(None) };
    let parent = lineage.and_then(|lineage| rows.iter().find(|row| row.shard == lineage.parent));
    // All shards of a run have the same job; a hint may describe another part of the source.
    let Some(template) = parent.or_else(|| rows.first()) else { return Ok(None) };
    Ok(Some(LostRange {
        start,
        end,
        metadata: template.metadata.clone(),
        lineage,
        spawned: children(&rows, shard).map(|row| row.shard.as_raw().to_le_bytes()).collect(),
        is_covered: is_split,
    }))
}

/// Reads the other shards of the run; `None` if the range of another one is lost too.
async fn readable(
    core: &Core,
    io: &Io,
    (tenant, key): (TenantId, ShardKey),
) -> Result<Option<Vec<Row>>, InfraError> {
    let (mut scan, mut rows) = (ShardScan::new(core, tenant, key.run(), None), Vec::new());
    loop {
        let page = match scan.next(io).await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(Some(rows)),
            Err(GetRunError::BackendError(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        for parts in page.iter().filter(|parts| parts.shard != key.shard()) {
            let (shard, parts) = (parts.shard, parts.decode(tenant, key.run())?);
            // With two unknown ranges the gap between their neighbours could be either of them.
            let Some(cold) = parts.cold else { return Ok(None) };
            rows.push(Row {
                shard,
                status: parts.hot.map(|hot| hot.status),
                start: cold.spec.start.to_vec(),
                end: cold.spec.end.to_vec(),
                metadata: cold.spec.metadata.to_vec(),
                lineage: cold.lineage,
                spawned: cold.spawned.iter().collect(),
            });
        }
    }
}

fn children(rows: &[Row], shard: ShardId) -> impl Iterator<Item = &Row> {
    let is_child = move |row: &&Row| row.lineage.is_some_and(|lineage| lineage.parent == shard);
    rows.iter().filter(is_child)
}

/// Returns the lineage of a derived shard, which its parent shows.
fn lineage(rows: &[Row], shard: ShardId) -> Option<Lineage> {
    let parent = rows.iter().find(|row| row.spawned.contains(&shard))?;
    // One split made all shards that replaced the parent, so any of them has its hash.
    let of_sibling = || {
        let inside = children(rows, parent.shard).find(|row| parent.contains(&row.start))?;
        inside.lineage.map(|lineage| lineage.split_hash)
    };
    // A residual has no sibling that shares its hash.
    let split_hash = of_sibling().unwrap_or(SPLIT_HASH_LOST);
    Some(Lineage { parent: parent.shard, split_hash })
}

impl Row {
    fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && (self.end.is_empty() || *key < *self.end)
    }

    /// Returns whether no other shards replaced this one.
    fn is_leaf(&self, rows: &[Self]) -> bool {
        match self.status {
            Some(status) => status != ShardStatus::Split,
            // A replacing split puts its shards inside the range, a residual one behind it.
            None => !children(rows, self.shard).any(|child| self.contains(&child.start)),
        }
    }
}

/// Returns the ranges within the run that no shard covers. The ends of the run are those of `whole`
/// or, without it, those of all known shards.
fn gaps<'r>(rows: &'r [Row], whole: Option<(&'r [u8], &'r [u8])>) -> Vec<(&'r [u8], &'r [u8])> {
    // Roots are bounded, and so is everything that was cut from them.
    let known = || rows.iter().filter(|row| !row.start.is_empty() && !row.end.is_empty());
    let first = whole.map(|(start, _)| start).or_else(|| known().map(|row| &*row.start).min());
    let last = whole.map(|(_, end)| end).or_else(|| known().map(|row| &*row.end).max());
    let (Some(mut covered), Some(last)) = (first, last) else { return Vec::new() };
    let mut leaves: Vec<&Row> = known().filter(|row| row.is_leaf(rows)).collect();
    leaves.sort_unstable_by(|one, other| one.start.cmp(&other.start));
    let mut gaps = Vec::new();
    for leaf in leaves {
        if *covered < *leaf.start {
            gaps.push((covered, &*leaf.start));
        }
        // The greater end: pages are separate snapshots, and a shard that is split meanwhile may
        // be listed with its children.
        covered = covered.max(&leaf.end);
    }
    if covered < last {
        gaps.push((covered, last));
    }
    gaps
}

/// Returns the range of a shard that was replaced: that of the shards that replaced it, with those
/// that were split off them later. Those that replaced it have one split hash, and one that was
/// split off has its own.
fn replaced(rows: &[Row], shard: ShardId) -> Option<(Vec<u8>, Vec<u8>)> {
    let hash = |row: &Row| row.lineage.map(|lineage| lineage.split_hash);
    let is_of_group =
        |row: &&Row| children(rows, shard).filter(|other| hash(other) == hash(row)).count() > 1;
    let mut group: Vec<&Row> = children(rows, shard).filter(is_of_group).collect();
    let start = group.iter().map(|row| &row.start).min()?.clone();
    let mut index = 0;
    // Each shard is the child of one other, so the walk ends.
    while let Some(row) = group.get(index) {
        group.extend(children(rows, row.shard));
        index += 1;
    }
    let end = group.iter().map(|row| &row.end).max()?.clone();
    Some((start, end))
}
