//! Index entries of a shard.
//!
//! The claim index is exact: an active shard has one entry, at time zero while it is free and at
//! its deadline while it is leased. Other shards have none; parked shards are in the parked index.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::codec::{encode_claim_entry, encode_parked_entry};
use super::core::encoded;
use super::key::Key;
use super::txn::Txn;
use crate::park_context::ParkContext;
use crate::record::{ShardRecord, ShardStatus};

/// Returns the time at which `record` is indexed for claims; `None` if it is not active.
pub(super) fn indexed_time(record: &ShardRecord) -> Option<LogicalTime> {
    let active = record.status() == ShardStatus::Active;
    active.then(|| record.lease_deadline().unwrap_or(LogicalTime::ZERO))
}

pub(super) fn move_claim(
    txn: &mut Txn,
    tenant: TenantId,
    shard: ShardKey,
    from: Option<LogicalTime>,
    to: Option<LogicalTime>,
) {
    // Most operations keep the deadline, and an unchanged entry needs no write.
    if from == to {
        return;
    }
    if let Some(at) = from {
        txn.delete(Key::ClaimIndex { tenant, shard, at });
    }
    if let Some(at) = to {
        put_claim(txn, tenant, shard, at);
    }
}

pub(super) fn move_parked(
    txn: &mut Txn,
    tenant: TenantId,
    before: ShardStatus,
    record: &ShardRecord,
) {
    let (shard, after) = (record.key(), record.status());
    let context = ParkContext::new(record.park_context().unwrap_or_default());
    // Written in the commit that parks or unparks, so `parked_of` is empty exactly if none is
    // parked.
    let entry = Key::ParkedIndex { tenant, shard };
    match (before == ShardStatus::Parked, after == ShardStatus::Parked) {
        (false, true) => {
            txn.put(entry, encoded(|out| encode_parked_entry(tenant, shard, context, out)));
        }
        (true, false) => txn.delete(entry),
        (true, true) | (false, false) => {}
    }
}

/// Adds `shard` to the claim index at time `at`.
pub(super) fn put_claim(txn: &mut Txn, tenant: TenantId, shard: ShardKey, at: LogicalTime) {
    let entry = encoded(|out| encode_claim_entry(tenant, shard, at, out));
    txn.put(Key::ClaimIndex { tenant, shard, at }, entry);
}
