//! Purge: deletes the keys of a deleted run: shards, their index entries, its side records and
//! events, the names of its roots.
//!
//! Each commit deletes as many shards as the store allows and reduces the count in the same
//! transaction, so counts are exact at every moment and a purge can stop and resume anywhere.
//!
//! A run is deleted with its head, before the first batch. Every error of a purge therefore says
//! that the operation may have happened; repeating the operation resumes the purge. The names of
//! the roots are deleted last: root names without a head are the mark by which `gc` finds an
//! interrupted purge. Any number of handles may purge one run concurrently.
//!
//! A hot part that cannot be decoded does not keep its run: its shard is deleted by key, and its
//! entry in the claim index, whose position only the record holds, with the remaining keys at the
//! end. A record of a newer format is left to a newer program, which may have more keys to delete.

use gossip_contracts::identity::{RunId, TenantId};

use super::codec::{decode_hot, decode_run_head, refuse_newer};
use super::core::Core;
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::Key;
use super::quota::Quota;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn};
use crate::error::InfraError;
use crate::record::ShardStatus;

/// Maximum writes that delete one shard: two parts, an index entry, and the owner key.
const SHARD_WRITES: usize = 4;
/// Maximum keys per batch once few shards are left: blocks of results are among them, and a page
/// returns their values.
const REST_PAGE: usize = 64;
/// Writes that update the tenant's count.
const COUNTER_WRITES: usize = 1;

/// Deletes all keys of a run whose head is deleted, or whose shards are unreachable because it was
/// cancelled before its registration was complete.
pub(super) async fn purge(
    core: &mut Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<(), InfraError> {
    let (mut tries, mut first) = (core.tries_of_the_rest("purge.commit"), None);
    // A shard and its part of the count are removed in one transaction, so that the count is exact.
    // The limit on operations therefore bounds the shards per batch.
    let limit = core.limits.txn_ops.saturating_sub(COUNTER_WRITES) / SHARD_WRITES;
    let limit = limit.clamp(1, core.limits.page);
    assert!(limit <= core.limits.page, "a batch is at most a page");
    let mut is_long = true;
    loop {
        let count = Read::Get(Key::TenantCounter { tenant });
        let reads = vec![next_of(tenant, run, is_long, limit), count];
        let mut answers = io.read(reads).await.map_err(|error| tries.ended(error))?;
        let page = answers.page();
        assert!(page.len() <= limit, "a store respects the page limit");
        let next = page.first().map(|(key, _)| *key);
        // An empty page of shards alone does not end the purge: the other ranges are read next.
        if next.is_none() && !is_long {
            return Ok(());
        }
        // The first short page shows that few shards are left, so the other ranges may be read too.
        is_long &= page.len() >= limit;
        // The retry budget is per batch: a run of many batches must not exhaust one budget.
        if first != next {
            (first, tries) = (next, core.tries_of_the_rest("purge.commit"));
        }
        let quota = Quota { count: answers.value(), allotment: None };
        answers.assert_used();
        let txn = match next {
            None => continue,
            Some(Key::ShardHot { .. }) => {
                assert!(page.iter().all(|(key, _)| is_hot(key)), "a page holds one kind of key");
                let deletion = delete_shards(tenant, &page, &quota, io.binding().is_some());
                deletion.map_err(|error| tries.ended(error))?
            }
            Some(_) => {
                assert!(
                    !page.iter().any(|(key, _)| is_hot(key)),
                    "a shard is deleted in the commit that subtracts it from the count"
                );
                let mut txn = Txn::new();
                page.iter().for_each(|(key, _)| txn.delete(*key));
                txn
            }
        };
        assert!(txn.writes().len() >= page.len(), "a batch deletes every key of its page");
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => 0,
            // Another purge deleted the same shards or changed the count: progress was made, no
            // backoff.
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), true)?,
            CommitOutcome::Unknown => tries.failed(None, false)?,
        };
        io.pause(ticks).await;
    }
}

const fn is_hot(key: &Key) -> bool {
    matches!(key, Key::ShardHot { .. })
}

/// Refuses to delete a run, before any key is deleted, if a record of one of its shards has a newer
/// format. Accepts a run that is missing or not terminal.
///
/// The run may still be written to: `purge` then finds the newer record and leaves it as well.
pub(super) async fn refuse_newer_shards(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<(), InfraError> {
    let (mut rest, limit) = (Some(KeyRange::hot_shards_of(tenant, run)), core.limits.page);
    while let Some(range) = rest {
        let head = Read::Get(Key::RunHead { tenant, run });
        let mut answers = io.read(vec![head, Read::Scan { range, limit }]).await?;
        let Some(head) = answers.value() else { return Ok(()) };
        if !decode_run_head(tenant, run, &head.bytes)?.head().status.is_terminal() {
            return Ok(());
        }
        rest = refuse_newer_page(range, &answers.page(), limit)?;
    }
    Ok(())
}

/// As [`refuse_newer_shards`], for everything in `range`, whatever the status of the run.
pub(super) async fn refuse_newer_within(
    core: &Core,
    io: &Io,
    range: KeyRange,
) -> Result<(), InfraError> {
    let (mut rest, limit) = (Some(range), core.limits.page);
    while let Some(range) = rest {
        let page = io.read(vec![Read::Scan { range, limit }]).await?.page();
        rest = refuse_newer_page(range, &page, limit)?;
    }
    Ok(())
}

/// Checks `page` and returns the rest of `range` after it.
fn refuse_newer_page(
    range: KeyRange,
    page: &Page,
    limit: usize,
) -> Result<Option<KeyRange>, InfraError> {
    for (key, value) in page {
        refuse_newer(key, &value.bytes)?;
    }
    Ok(page.last().filter(|_| page.len() >= limit).map(|(key, _)| range.after(key)))
}

/// Returns the read of the next batch: shards while there are many, then the remaining keys, and
/// the names of the roots last.
///
/// On some engines a check for emptiness costs as much as the range holds, so the other ranges are
/// read only once few shards are left.
fn next_of(tenant: TenantId, run: RunId, is_long: bool, limit: usize) -> Read {
    let range = KeyRange::hot_shards_of(tenant, run);
    if is_long {
        return Read::Scan { range, limit };
    }
    let limit = limit.min(REST_PAGE);
    let ranges = vec![
        range,
        KeyRange::cold_shards_of(tenant, run),
        KeyRange::claims_of(tenant, run),
        KeyRange::parked_of(tenant, run),
        KeyRange::owners_of(tenant, run),
        KeyRange::failures_of(tenant, run),
        KeyRange::results_of(tenant, run),
        KeyRange::events_of(tenant, run),
        KeyRange::roots_of(tenant, run),
    ];
    Read::ScanFirst { ranges, limit }
}

/// Returns the transaction that deletes the shards of `page`, and their owner keys if the store
/// `binds` keys.
fn delete_shards(
    tenant: TenantId,
    page: &Page,
    quota: &Quota,
    binds: bool,
) -> Result<Txn, InfraError> {
    assert!(!page.is_empty(), "a batch holds a shard");
    let mut txn = Txn::new();
    for (key, value) in page {
        let Key::ShardHot { shard, .. } = *key else { continue };
        // Without the compare two concurrent purges would both subtract this shard from the count.
        txn.expect(*key, Some(value));
        txn.delete(*key);
        txn.delete(Key::ShardCold { tenant, shard });
        let (is_held, is_parked) = match decode_hot(tenant, shard, &value.bytes) {
            Ok(hot) => {
                if let Some(at) = hot.indexed_at {
                    txn.delete(Key::ClaimIndex { tenant, shard, at });
                }
                // A shard without a lease has no owner key.
                (hot.lease.is_some(), hot.status == ShardStatus::Parked)
            }
            Err(_) => {
                // A damaged record shows neither lease nor status: delete both possible keys.
                refuse_newer(key, &value.bytes)?;
                (true, true)
            }
        };
        if binds && is_held {
            txn.delete(Key::Owner { tenant, shard });
        }
        if is_parked {
            txn.delete(Key::ParkedIndex { tenant, shard });
        }
    }
    quota.change(&mut txn, tenant, 0, page.len() as u64)?;
    Ok(txn)
}
