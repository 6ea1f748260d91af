//! Taking away what a deleted run leaves: its shards, their index entries, the names of its roots.
//!
//! Each commit takes away as many shards as the store allows and gives their count back in the same
//! transaction, so counts are exact at every moment and a sweep can stop and go on anywhere.
//!
//! A run is gone with its head, before the first batch. So whatever ends a sweep says that the
//! operation may have happened: repeating it goes on.

use gossip_contracts::identity::{RunId, TenantId};

use super::codec::decode_hot;
use super::core::{Core, Counters};
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn};
use crate::error::InfraError;
use crate::planted::planted;
use crate::record::ShardStatus;

/// Writes that take one shard away, at most: two parts, an index entry, and the owner key.
const SHARD_WRITES: usize = 4;
/// Writes of the counters.
const COUNTER_WRITES: usize = 2;

/// Takes away everything of a run whose head is gone, or whose shards nobody ever finds because it
/// was cancelled before all were registered.
pub(super) async fn sweep(
    core: &mut Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<(), InfraError> {
    let (mut tries, mut first) = (core.tries_of_the_rest("sweep.commit"), None);
    let per_commit = core.limits.txn_ops.saturating_sub(COUNTER_WRITES) / SHARD_WRITES;
    let per_commit = per_commit.clamp(1, core.limits.page);
    loop {
        let scan = |range| Read::Scan { range, limit: per_commit };
        let mut reads =
            vec![scan(KeyRange::hot_shards_of(tenant, run)), scan(KeyRange::roots_of(tenant, run))];
        reads.extend(Counters::keys(tenant).map(Read::Get));
        let mut answers = io.read(reads).await.map_err(|error| tries.ended(error))?;
        let (shards, roots) = (answers.page(), answers.page());
        // Each batch has a budget of its own, whoever took it away.
        let next = shards.iter().chain(&roots).map(|(key, _)| *key).next();
        if first != next {
            (first, tries) = (next, core.tries_of_the_rest("sweep.commit"));
        }
        let txn = if shards.is_empty() {
            let mut txn = Txn::new();
            roots.iter().for_each(|(key, _)| txn.delete(*key));
            txn
        } else {
            let values = [answers.value(), answers.value()];
            let counters = Counters::take(&mut values.into_iter());
            let taken = take_away(tenant, &shards, &counters, io.binding().is_some());
            taken.map_err(|error| tries.ended(error))?
        };
        if txn.writes().is_empty() {
            return Ok(());
        }
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => 0,
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), true)?,
            CommitOutcome::Unknown => tries.failed(None, false)?,
        };
        io.pause(ticks).await;
    }
}

/// Takes the shards of `page` away, and their owner keys if the store `binds`.
fn take_away(
    tenant: TenantId,
    page: &Page,
    counters: &Counters,
    binds: bool,
) -> Result<Txn, InfraError> {
    let mut txn = Txn::new();
    for (key, value) in page {
        let Key::ShardHot { shard, .. } = *key else { continue };
        let hot = decode_hot(tenant, shard, &value.bytes)?;
        txn.expect(*key, Some(value));
        txn.delete(*key);
        txn.delete(Key::ShardCold { tenant, shard });
        if let Some(at) = hot.indexed_at {
            txn.delete(Key::ClaimIndex { tenant, shard, at });
        }
        // A shard that nobody holds has none.
        if binds && hot.lease.is_some() {
            txn.delete(Key::Owner { tenant, shard });
        }
        if hot.status == ShardStatus::Parked {
            txn.delete(Key::ParkedIndex { tenant, shard });
        }
    }
    let count = if planted!(SweepForgetsCount) { 0 } else { page.len() };
    counters.change(&mut txn, tenant, 0, count as u64)?;
    Ok(txn)
}
