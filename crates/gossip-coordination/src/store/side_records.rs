//! Side records: failures and results that are stored in the commit they describe.
//!
//! They are put without a compare. The commit compares the shard, so a superseded lease holder
//! writes none, and their keys follow from their content, so a second write of one is harmless.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};

use super::codec::{decode_failure, decode_results, encode_failure, encode_results};
use super::core::{Core, encoded};
use super::engine::Read;
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::txn::Txn;
use crate::error::InfraError;
use crate::protocol::ShardTransition;
use crate::side_records::{
    FAILURE_RECORDS_MAX, FAILURES_PER_COUNT, SideRecord, SideRecordId, SideRecordKind,
    StoredSideRecord,
};

/// Maximum records in one page: at their longest they stay below the 4 MiB limit of an engine's
/// reply.
const PAGE_MAX: usize = 32;

const _: () = assert!(PAGE_MAX * (crate::side_records::RESULT_BLOCK_MAX + 256) < 4 << 20);

/// Runs whose failures a process counts at once. Beyond it all are counted again, which costs a
/// read for each.
const RUNS_MAX: usize = 1_024;

/// How many failure records this process may write before it counts those of a run again.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureRoom(Arc<Mutex<BTreeMap<(TenantId, RunId), u64>>>);

impl FailureRoom {
    /// Takes room for `wanted` records; `None` if the room must be counted first.
    fn take(&self, of: (TenantId, RunId), wanted: u64) -> Option<u64> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = rooms.get_mut(&of).filter(|room| **room >= wanted)?;
        *room -= wanted;
        Some(wanted)
    }

    /// Notes that the run has `stored` records, and takes room for at most `wanted`.
    fn counted(&self, of: (TenantId, RunId), stored: u64, wanted: u64) -> u64 {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // All at once: a run whose room is forgotten is counted again, which costs one read.
        if rooms.len() >= RUNS_MAX {
            rooms.clear();
        }
        // A small allowance, because other processes write failures that this one does not see.
        let room = FAILURE_RECORDS_MAX.saturating_sub(stored).min(FAILURES_PER_COUNT);
        let taken = wanted.min(room);
        rooms.insert(of, room - taken);
        taken
    }
}

/// Returns whether a failure is among `records`.
pub(super) fn has_failures(records: &[SideRecord]) -> bool {
    records.iter().any(is_failure)
}

fn is_failure(record: &SideRecord) -> bool {
    record.kind() == SideRecordKind::Failure
}

/// Returns how many failures among the operation's records the run has room for.
pub(super) async fn admit<T: ShardTransition>(
    core: &Core,
    io: &Io,
    operation: &T,
) -> Result<u8, InfraError> {
    let ((tenant, shard), records) = (operation.subject(), operation.side_records());
    let failures = records.iter().filter(|it| is_failure(it)).count() as u64;
    let of = (tenant, shard.run());
    let taken = match core.failure_room.take(of, failures) {
        Some(taken) => taken,
        None => {
            let range = KeyRange::failures_of(tenant, shard.run());
            let stored = io.read(vec![Read::Count(range)]).await?.count();
            core.failure_room.counted(of, stored, failures)
        }
    };
    Ok(u8::try_from(taken).expect("no more than an operation carries"))
}

/// Adds the writes of `records` to `txn`: all results, and the first `failures` failures.
pub(super) fn put(
    txn: &mut Txn,
    tenant: TenantId,
    shard: ShardKey,
    records: &[SideRecord],
    mut failures: u8,
) {
    for record in records {
        let key = key_of(tenant, shard.run(), record.kind(), record.id(shard.shard()));
        match record {
            // Dropped and no error: the item stays parked or unread without its record.
            SideRecord::Failure(_) if failures == 0 => {}
            SideRecord::Failure(failure) => {
                failures -= 1;
                txn.put(key, encoded(|out| encode_failure(tenant, shard, failure, out)));
            }
            SideRecord::Results(block) => {
                txn.put(key, encoded(|out| encode_results(tenant, shard, block, out)));
            }
        }
    }
}

fn key_of(tenant: TenantId, run: RunId, kind: SideRecordKind, id: SideRecordId) -> Key {
    let shard = ShardKey::new(run, ShardId::from_raw(id.group));
    match kind {
        SideRecordKind::Failure => Key::Failure { tenant, shard, number: id.number },
        SideRecordKind::Results => Key::ResultBlock { tenant, shard, block: id.number },
    }
}

/// Appends the records of one kind to `out`: the first `limit` of them behind `after`, or fewer if
/// a page ends before. None are appended only if there are no more.
pub(super) async fn list(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    kind: SideRecordKind,
    (after, limit): (Option<SideRecordId>, usize),
    out: &mut Vec<StoredSideRecord>,
) -> Result<(), InfraError> {
    let whole = match kind {
        SideRecordKind::Failure => KeyRange::failures_of(tenant, run),
        SideRecordKind::Results => KeyRange::results_of(tenant, run),
    };
    let range = after.map_or(whole, |after| whole.after(&key_of(tenant, run, kind, after)));
    // The caller's limit may exceed what an engine returns in one reply.
    let limit = limit.min(PAGE_MAX).min(core.limits.page);
    if limit == 0 {
        return Ok(());
    }
    for (key, value) in io.scan(range, limit).await? {
        let outside = || -> ! { unreachable!("{:?} lies outside the range", key.kind()) };
        let (group, number, record) = match kind {
            SideRecordKind::Failure => {
                let Key::Failure { tenant, shard, number } = key else { outside() };
                let failure = decode_failure(tenant, shard, number, &value.bytes)?;
                (shard.shard(), number, SideRecord::Failure(failure))
            }
            SideRecordKind::Results => {
                let Key::ResultBlock { tenant, shard, block } = key else { outside() };
                let results = decode_results(tenant, shard, block, &value.bytes)?;
                (shard.shard(), block, SideRecord::Results(results))
            }
        };
        let id = SideRecordId { group: group.as_raw(), number };
        out.push(StoredSideRecord { id, record });
    }
    Ok(())
}
