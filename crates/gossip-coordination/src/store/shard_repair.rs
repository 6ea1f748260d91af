//! Repair of a shard whose record is damaged, on an operator's request.
//!
//! The kernel decides what the repaired shard is ([`RepairShard`]); this module reads
//! the intact records and stores the new one:
//!
//! - damage is accepted only after several reads showed the same bytes;
//! - an intact part is kept. A lost cold part is derived from the other shards (`range_of`);
//! - the commit compares both old parts and the head, so a lease holder whose cached record is
//!   intact and who writes first wins, and the shard is not damaged any more;
//! - both parts, the index entries and the owner key are written in one transaction. The operation
//!   log is dropped: the leases that its entries belong to are fenced out.
//!
//! The count of the tenant's shards does not change.

use std::sync::Arc;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardKey, TenantId};

use super::codec::{
    ColdPart, HotPart, RunHeadPart, StoredOps, decode_cold, decode_hot, decode_owner,
    decode_run_head, encode_cold, encode_hot, join_shard,
};
use super::core::{Core, encoded};
use super::deletion::{READ_INTERVAL_TICKS, READS};
use super::flight::Io;
use super::index::{indexed_time, put_claim};
use super::key::Key;
use super::lost_range::{LostRange, range_of};
use super::range::KeyRange;
use super::shard_scan::ShardParts;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::lease::OpSequence;
use crate::protocol::{Remains, RepairShard, RepairedShard};
use crate::record::{ShardStatus, ShardView};
use crate::run_errors::RepairShardError;

/// Repairs a shard. `whole` are the bounds of the run, if the caller knows them: without them a
/// lost range at the beginning or end of the run cannot be derived.
pub(super) async fn repair(
    core: &mut Core,
    io: &Io,
    operation: RepairShard,
    whole: Option<(&[u8], &[u8])>,
) -> Result<RepairedShard, RepairShardError> {
    let RepairShard { tenant, key, .. } = operation;
    // A cached record would hide the damage from this handle, and belongs to a lease that ends.
    drop(core.cache.take(tenant, key));
    let mut tries = core.tries("repair.commit");
    let mut unresolved: Option<RepairedShard> = None;
    loop {
        let found = Found::confirm(io, tenant, key).await.map_err(|error| tries.ended(error))?;
        // Only a repair raises a fence that far, so the lost commit was applied. A worker may have
        // claimed the shard since, or the run may have ended.
        if let Some(repaired) = unresolved.take_if(|it| found.fence(tenant, key) >= it.fence) {
            return Ok(repaired);
        }
        let remains = found.remains(core, io, (tenant, key), whole).await;
        let mut remains = remains.map_err(|error| tries.ended(error))?;
        // The lost commit may have been applied and damaged since, or may still be applied.
        let issued = unresolved.map_or(FenceEpoch::ZERO, |it| it.fence);
        remains.facts.fence = remains.facts.fence.max(issued);
        let repaired = operation.decide(&remains.facts)?;
        assert!(repaired.fence > issued, "a repair never issues a fence twice");
        assert!(repaired.fence > found.fence(tenant, key), "a repair fences out the old leases");
        let rebuilt = remains.rebuild(core, &repaired)?;
        let txn = found.txn((io, core.limits.page), (tenant, key), rebuilt, &repaired).await;
        let txn = txn.map_err(|error| tries.ended(error))?;
        core.check_fits(&txn).map_err(|error| tries.ended(error))?;
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => return Ok(repaired),
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), false)?,
            CommitOutcome::Unknown => {
                unresolved = Some(repaired);
                tries.failed(None, false)?
            }
        };
        io.pause(ticks).await;
    }
}

/// The stored records of a shard.
struct Found {
    parts: ShardParts,
    head: Option<Versioned>,
    owner: Option<Versioned>,
}

impl Found {
    /// Reads until damage is confirmed or absent.
    async fn confirm(io: &Io, tenant: TenantId, key: ShardKey) -> Result<Self, InfraError> {
        let mut found = Self::read_once(io, tenant, key).await?;
        for _ in 1..READS {
            if found.parts.decode(tenant, key.run())?.damage().is_none() {
                break;
            }
            io.pause(READ_INTERVAL_TICKS).await;
            let before = (found.parts.hot, found.parts.cold);
            found = Self::read_once(io, tenant, key).await?;
            // Damage by a network or a server differs from read to read. It must not cost a shard
            // its progress.
            if before != (found.parts.hot.clone(), found.parts.cold.clone()) {
                let message = "two reads of a damaged record differ".to_owned();
                return Err(InfraError::Transient { operation: "repair.load", message });
            }
        }
        Ok(found)
    }

    async fn read_once(io: &Io, tenant: TenantId, key: ShardKey) -> Result<Self, InfraError> {
        let keys = vec![
            Key::ShardHot { tenant, shard: key },
            Key::ShardCold { tenant, shard: key },
            Key::RunHead { tenant, run: key.run() },
            Key::Owner { tenant, shard: key },
        ];
        let mut values = io.load(keys).await?.into_iter();
        let mut next = || values.next().flatten();
        let parts = ShardParts { shard: key.shard(), hot: next(), cold: next() };
        Ok(Self { parts, head: next(), owner: next() })
    }

    /// Returns the fence of the hot part, or none above zero if it cannot be decoded.
    fn fence(&self, tenant: TenantId, key: ShardKey) -> FenceEpoch {
        let hot = self.parts.hot.as_ref().and_then(|it| decode_hot(tenant, key, &it.bytes).ok());
        hot.map_or(FenceEpoch::ZERO, |hot| hot.fence)
    }

    /// Returns the intact state of the shard, with the facts that other shards show of it.
    async fn remains<'f>(
        &'f self,
        core: &Core,
        io: &Io,
        (tenant, key): (TenantId, ShardKey),
        whole: Option<(&[u8], &[u8])>,
    ) -> Result<Rests<'f>, InfraError> {
        let run = key.run();
        let head = self.head.as_ref().map(|head| decode_run_head(tenant, run, &head.bytes));
        let head = head.transpose()?.filter(RunHeadPart::has_roots);
        let parts = self.parts.decode(tenant, run)?;
        let exists = self.parts.hot.is_some() || self.parts.cold.is_some();
        // Of an owner key that cannot be decoded nothing is known.
        let owner = self.owner.as_ref().and_then(|it| decode_owner(tenant, key, &it.bytes).ok());
        // Also of an intact hot part that does not fit its cold part.
        let known = owner.map_or(FenceEpoch::ZERO, |it| it.fence).max(self.fence(tenant, key));
        let damage = parts.damage();
        let (mut range, mut is_covered) = (None, Some(false));
        match &parts.cold {
            Some(cold) if damage.is_some() && parts.hot.is_none() => {
                is_covered = is_replaced(core, io, (tenant, key), cold).await?;
            }
            None if exists => {
                let status = parts.hot.as_ref().map(|hot| hot.status);
                let reached = parts.hot.as_ref().and_then(|hot| hot.cursor.last_key());
                range = range_of(core, io, (tenant, key), status, reached, whole).await?;
                is_covered = range.as_ref().map(|range| range.is_covered);
            }
            Some(_) | None => {}
        }
        let facts = Remains {
            run: head.as_ref().filter(|_| exists).map(RunHeadPart::head),
            damage,
            status: parts.hot.as_ref().map(|hot| hot.status),
            is_covered: is_covered.unwrap_or(false),
            fence: known,
        };
        let (hot, cold, is_known) = (parts.hot, parts.cold, is_covered.is_some());
        Ok(Rests { tenant, key, facts, hot, cold, range, is_known })
    }

    /// Returns the transaction that replaces the record.
    async fn txn(
        &self,
        (io, page): (&Io, usize),
        (tenant, shard): (TenantId, ShardKey),
        rebuilt: Rebuilt,
        repaired: &RepairedShard,
    ) -> Result<Txn, InfraError> {
        let mut txn = Txn::new();
        let (hot, cold) = (Key::ShardHot { tenant, shard }, Key::ShardCold { tenant, shard });
        // Both parts: a holder that writes from its cache heals the hot part, and a split both.
        txn.expect(hot, self.parts.hot.as_ref());
        txn.expect(cold, self.parts.cold.as_ref());
        if let Some(head) = &self.head {
            let head_key = Key::RunHead { tenant, run: shard.run() };
            txn.expect_value(head_key, Arc::new(head.bytes.clone()));
        }
        txn.put(hot, rebuilt.hot);
        txn.put(cold, rebuilt.cold);
        // Only the lost hot part had the time of the index entry. Entries change with the hot part,
        // which is compared, so those read now are those of the commit.
        for at in entries(io, tenant, shard, page).await? {
            if Some(at) != rebuilt.indexed_at {
                txn.delete(Key::ClaimIndex { tenant, shard, at });
            }
        }
        if let Some(at) = rebuilt.indexed_at {
            put_claim(&mut txn, tenant, shard, at);
        }
        let is_claimable = rebuilt.indexed_at.is_some();
        assert!(
            is_claimable == (repaired.status == ShardStatus::Active),
            "exactly an active shard is in the claim index"
        );
        if repaired.status != ShardStatus::Parked {
            txn.delete(Key::ParkedIndex { tenant, shard });
        }
        if io.binding().is_some() {
            txn.delete(Key::Owner { tenant, shard });
        }
        Ok(txn)
    }
}

/// The intact state of a damaged shard.
struct Rests<'f> {
    tenant: TenantId,
    key: ShardKey,
    facts: Remains,
    hot: Option<HotPart<'f>>,
    cold: Option<ColdPart<'f>>,
    /// The range, if the cold part is lost.
    range: Option<LostRange>,
    /// Whether the other shards show how far the range is covered.
    is_known: bool,
}

/// The parts of a repaired record.
struct Rebuilt {
    hot: Vec<u8>,
    cold: Vec<u8>,
    indexed_at: Option<LogicalTime>,
}

impl Rests<'_> {
    /// Encodes the repaired record.
    fn rebuild(
        &self,
        core: &mut Core,
        repaired: &RepairedShard,
    ) -> Result<Rebuilt, RepairShardError> {
        let run = self.facts.run.ok_or(RepairShardError::ShardNotFound)?;
        if !self.is_known {
            return Err(RepairShardError::RangeUnknown);
        }
        let cold = match (&self.cold, &self.range) {
            (Some(cold), _) => *cold,
            (None, Some(range)) => range.cold(),
            (None, None) => return Err(RepairShardError::RangeUnknown),
        };
        let active = repaired.status == ShardStatus::Active;
        let from_start = HotPart {
            status: repaired.status,
            park_reason: None,
            cursor_semantics: run.config.cursor_semantics(),
            fence: repaired.fence,
            attempts: 0,
            acquire_count: 0,
            lease: None,
            cursor: CursorUpdate::initial(),
            op_sequence: OpSequence::NONE,
            op_log: StoredOps::default(),
            offer: None,
            last_handoff: None,
            request: None,
            spawned_count: cold.spawned.len(),
            indexed_at: active.then_some(LogicalTime::ZERO),
        };
        let hot = match &self.hot {
            None => from_start,
            Some(kept) => HotPart {
                park_reason: kept.park_reason,
                attempts: kept.attempts,
                acquire_count: kept.acquire_count,
                cursor: kept.cursor,
                ..from_start
            },
        };
        let owner = core.shared(self.tenant);
        core.pool.begin();
        // The derived range may not contain the cursor; then it is not the range of this shard.
        let record = join_shard(&owner, self.key, &hot, &cold, &mut core.pool)
            .map_err(|_| RepairShardError::RangeUnknown)?;
        record.assert_invariants(&core.pool);
        assert!(record.status() == repaired.status, "the record has the status of the decision");
        assert!(record.fence_epoch() == repaired.fence, "the record has the fence of the decision");
        assert!(record.lease().is_none(), "a repaired shard is free");
        let (view, indexed_at) = (ShardView::new(&record, &core.pool), indexed_time(&record));
        let rebuilt = Rebuilt {
            hot: encoded(|out| encode_hot(view, indexed_at, out)),
            cold: encoded(|out| encode_cold(view, out)),
            indexed_at,
        };
        core.pool.end(record);
        Ok(rebuilt)
    }
}

/// Returns whether other shards replaced this one, from the ranges of those cut from it; `None` if
/// that cannot be read.
///
/// A residual split leaves the new shard behind the range that is left, and a replacing split puts
/// all new ones inside it.
async fn is_replaced(
    core: &Core,
    io: &Io,
    (tenant, key): (TenantId, ShardKey),
    cold: &ColdPart<'_>,
) -> Result<Option<bool>, InfraError> {
    let mut is_readable = true;
    let ids: Vec<_> = cold.spawned.iter().map(|id| ShardKey::new(key.run(), id)).collect();
    for ids in ids.chunks(core.limits.txn_ops) {
        let keys = ids.iter().map(|shard| Key::ShardCold { tenant, shard: *shard }).collect();
        for (shard, value) in ids.iter().zip(io.load(keys).await?) {
            let child = value.as_ref().map(|value| decode_cold(tenant, *shard, &value.bytes));
            match child {
                Some(Ok(child)) if cold.spec.contains_key(child.spec.start) => {
                    return Ok(Some(true));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) if !error.is_of_shard() => return Err(error),
                Some(Err(_)) | None => is_readable = false,
            }
        }
    }
    // Without one of them the shard may have been replaced, and must not be processed again.
    Ok(is_readable.then_some(false))
}

/// Returns the times at which the shard is in the claim index.
async fn entries(
    io: &Io,
    tenant: TenantId,
    shard: ShardKey,
    page: usize,
) -> Result<Vec<LogicalTime>, InfraError> {
    let index = io.scan_all(KeyRange::claims_of(tenant, shard.run()), page).await?;
    let times = index.iter().filter_map(|(key, _)| {
        let Key::ClaimIndex { shard: other, at, .. } = key else { return None };
        (*other == shard).then_some(*at)
    });
    Ok(times.collect())
}
