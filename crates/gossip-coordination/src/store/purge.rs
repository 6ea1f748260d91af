//! Taking away what a deleted run leaves: its shards, their index entries, the names of its roots.
//!
//! Each commit takes away as many shards as the store allows and gives their count back in the same
//! transaction, so counts are exact at every moment and a sweep can stop and go on anywhere.
//!
//! A run is gone with its head, before the first batch. So whatever ends a sweep says that the
//! operation may have happened: repeating it goes on. The names of the roots go last: as long as
//! anything is left, they are, and names without a head are the mark by which `gc` finds a
//! sweep that broke off. Any number of handles may sweep one run at once.
//!
//! A hot part that cannot be decoded is no reason to keep its run: its shard goes by its key, and
//! what only the record tells, its entry in the claim index, goes with what is left in the end. A
//! record of a newer format is left to a newer program, which may know of more to take away.

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

/// Writes that take one shard away, at most: two parts, an index entry, and the owner key.
const SHARD_WRITES: usize = 4;
/// Writes of the count of the tenant.
const COUNTER_WRITES: usize = 1;

/// Takes away everything of a run whose head is gone, or whose shards nobody ever finds because it
/// was cancelled before all were registered.
pub(super) async fn purge(
    core: &mut Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<(), InfraError> {
    let (mut tries, mut first) = (core.tries_of_the_rest("sweep.commit"), None);
    let limit = core.limits.txn_ops.saturating_sub(COUNTER_WRITES) / SHARD_WRITES;
    let limit = limit.clamp(1, core.limits.page);
    let mut is_long = true;
    loop {
        let count = Read::Get(Key::TenantCounter { tenant });
        let reads = vec![next_of(tenant, run, is_long, limit), count];
        let mut answers = io.read(reads).await.map_err(|error| tries.ended(error))?;
        let page = answers.page();
        let next = page.first().map(|(key, _)| *key);
        if next.is_none() && !is_long {
            return Ok(());
        }
        is_long &= page.len() >= limit;
        // Each batch has a budget of its own, whoever took it away.
        if first != next {
            (first, tries) = (next, core.tries_of_the_rest("sweep.commit"));
        }
        let quota = Quota { count: answers.value(), allotment: None };
        let txn = match next {
            None => continue,
            Some(Key::ShardHot { .. }) => {
                let taken = take_away(tenant, &page, &quota, io.binding().is_some());
                taken.map_err(|error| tries.ended(error))?
            }
            Some(_) => {
                let mut txn = Txn::new();
                page.iter().for_each(|(key, _)| txn.delete(*key));
                txn
            }
        };
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => 0,
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), true)?,
            CommitOutcome::Unknown => tries.failed(None, false)?,
        };
        io.pause(ticks).await;
    }
}

/// Refuses to delete a run, before anything of it is deleted, if a record of one of its shards is
/// of a newer format. Says nothing about a run that is not over or not there.
///
/// The run may still be written to: then `purge` finds the record, and leaves it as well.
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

/// As [`refuse_newer_shards`] for everything in `range`, whatever becomes of the run.
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

/// What is left of `range` behind `page`, in which nothing is newer.
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

/// The question for what is to be taken away next: shards as long as there are many, then whatever
/// there is, and the names of the roots last.
///
/// On some engines it costs as much as a range holds to ask whether it holds anything, so that is
/// asked only when there is little.
fn next_of(tenant: TenantId, run: RunId, is_long: bool, limit: usize) -> Read {
    let range = KeyRange::hot_shards_of(tenant, run);
    if is_long {
        return Read::Scan { range, limit };
    }
    let ranges = vec![
        range,
        KeyRange::cold_shards_of(tenant, run),
        KeyRange::claims_of(tenant, run),
        KeyRange::parked_of(tenant, run),
        KeyRange::owners_of(tenant, run),
        KeyRange::roots_of(tenant, run),
    ];
    Read::ScanFirst { ranges, limit }
}

/// Takes the shards of `page` away, and their owner keys if the store `binds`.
fn take_away(tenant: TenantId, page: &Page, quota: &Quota, binds: bool) -> Result<Txn, InfraError> {
    let mut txn = Txn::new();
    for (key, value) in page {
        let Key::ShardHot { shard, .. } = *key else { continue };
        txn.expect(*key, Some(value));
        txn.delete(*key);
        txn.delete(Key::ShardCold { tenant, shard });
        let (is_held, is_parked) = match decode_hot(tenant, shard, &value.bytes) {
            Ok(hot) => {
                if let Some(at) = hot.indexed_at {
                    txn.delete(Key::ClaimIndex { tenant, shard, at });
                }
                // A shard that nobody holds has no owner key.
                (hot.lease.is_some(), hot.status == ShardStatus::Parked)
            }
            Err(_) => {
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
