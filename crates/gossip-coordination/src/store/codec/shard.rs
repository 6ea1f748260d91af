//! The stored form of a shard: the hot part, which every operation rewrites, and the cold part,
//! which only splits rewrite.
//!
//! Each decodes separately into borrowed fields ([`HotPart`], [`ColdPart`]), which is sufficient
//! for listings; [`decode_shard`] builds the record from both. The hot part counts the spawned ids
//! that the cold part lists: every change of the cold part appends one, so parts of different
//! commits are detected.

use std::fmt;
use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD,
    MAX_TOKEN_SIZE, PooledSpawned, PooledSpawnedError, ShardSpecRef,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_stdx::SlabFull;
use thiserror::Error;

use super::fields::{Fields, Put, corrupt, flag_if};
use super::frame::{open, open_own, peek, seal};
use crate::error::InfraError;
use crate::handoff::{HandoffId, Offer};
use crate::lease::{GrantToken, LeaseHolder, OP_LOG_CAP, OpKind, OpLogEntry, OpResult, OpSequence};
use crate::pool::RecordPool;
use crate::record::{
    Lineage, NewShard, ParkReason, Rare, SEQUENCE_WITHOUT_LOG, ShardFacts, ShardRecord,
    ShardStatus, ShardView, holds,
};
use crate::request::{PendingRequest, ShardAction, SplitKey};
use crate::store::key::{Key, KeyKind};

// Lengths are stored in two bytes, the number of operations in one.
const _: () = assert!(MAX_KEY_SIZE <= u16::MAX as usize);
const _: () = assert!(MAX_TOKEN_SIZE <= u16::MAX as usize);
const _: () = assert!(MAX_METADATA_SIZE <= u16::MAX as usize);
const _: () = assert!(MAX_SPAWNED_PER_SHARD <= u16::MAX as usize);
const _: () = assert!(OP_LOG_CAP <= u8::MAX as usize);

// Flags of the hot part.
const LEASED: u8 = 1;
const OFFERED: u8 = 1 << 1;
const HANDED_OFF: u8 = 1 << 2;
const REQUESTED: u8 = 1 << 3;
const INDEXED: u8 = 1 << 4;
const HOT_FLAGS: u8 = LEASED | OFFERED | HANDED_OFF | REQUESTED | INDEXED;

// Flags of the cold part.
const DERIVED: u8 = 1;

/// Stored for a shard that is not parked.
const NO_REASON: u8 = u8::MAX;
/// Bytes of a stored id.
const ID_LEN: usize = size_of::<u64>();
/// Bytes of the worker that a request names.
const WORKER_LEN: usize = size_of::<u64>();

const _: () = assert!(ParkReason::ALL.len() <= NO_REASON as usize);

// The numbers of actions are those that requests are hashed with.
const ACTION_SPLIT: u8 = 0;
const ACTION_RELEASE: u8 = 1;
const ACTION_HAND_OFF: u8 = 2;
const ACTION_WITHDRAW: u8 = 3;

/// Replaces `out` by the hot part of `shard`, whose claim index entry is at `indexed_at`.
///
/// # Panics
///
/// Panics if the index entry does not match the shard's status, or is later than its deadline: the
/// store layer is wrong then, and nothing may be stored.
pub fn encode_hot(shard: ShardView<'_>, indexed_at: Option<LogicalTime>, out: &mut Vec<u8>) {
    let record = shard.record();
    let index = check_index(record.status(), record.lease_deadline(), indexed_at);
    assert!(index.is_ok(), "an active shard is in the claim index, and not too late");
    let key = Key::ShardHot { tenant: record.tenant(), shard: record.key() };
    seal(&key, out, |out| write_hot(out, shard, indexed_at));
}

/// Reads the hot part that is stored for `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_hot(
    tenant: TenantId,
    shard: ShardKey,
    value: &[u8],
) -> Result<HotPart<'_>, InfraError> {
    hot_of(shard, open(&Key::ShardHot { tenant, shard }, value)?)
}

/// Returns the shard's time in the claim index, from its hot part. Only for hints: the checksum is
/// not verified, so the value must be decoded again before any decision depends on it.
pub(in crate::store) fn peek_indexed_at(
    tenant: TenantId,
    shard: ShardKey,
    value: &[u8],
) -> Option<LogicalTime> {
    let fields = peek(&Key::ShardHot { tenant, shard }, value).ok()?;
    hot_of(shard, fields).ok()?.indexed_at
}

fn hot_of(shard: ShardKey, mut fields: Fields<'_>) -> Result<HotPart<'_>, InfraError> {
    let hot = read_hot(&mut fields)?;
    fields.require(hot.facts(shard.shard()).check())?;
    // The next grant increments the fence; only a forged record can reach the maximum.
    let can_rise = hot.fence.checked_increment().is_some();
    fields.require(holds(can_rise, "INV-4: a fence that can rise"))?;
    fields.require(check_index(hot.status, hot.lease_deadline(), hot.indexed_at))?;
    fields.finish()?;
    Ok(hot)
}

/// Replaces `out` by the cold part of `shard`.
pub fn encode_cold(shard: ShardView<'_>, out: &mut Vec<u8>) {
    let record = shard.record();
    let key = Key::ShardCold { tenant: record.tenant(), shard: record.key() };
    seal(&key, out, |out| write_cold(out, shard));
}

/// Reads the cold part that is stored for `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_cold(
    tenant: TenantId,
    shard: ShardKey,
    value: &[u8],
) -> Result<ColdPart<'_>, InfraError> {
    cold_of(shard, open(&Key::ShardCold { tenant, shard }, value)?)
}

fn cold_of(shard: ShardKey, mut fields: Fields<'_>) -> Result<ColdPart<'_>, InfraError> {
    let cold = read_cold(&mut fields)?;
    let derived = shard.shard().is_derived();
    let all_derived = cold.spawned.iter().all(ShardId::is_derived);
    fields.require(holds(cold.lineage.is_some() == derived, "a parent exactly when derived"))?;
    fields.require(holds(all_derived, "spawned shards are derived"))?;
    // Also the bounds themselves: an empty or inverted range would hide keys from every worker.
    if let Err(error) = cold.spec.validate() {
        return Err(fields.refuse("range", error));
    }
    fields.finish()?;
    Ok(cold)
}

/// Decodes the record of `shard` into `pool` from its two parts, and returns it with its time in
/// the claim index. The caller frees the record.
///
/// # Errors
///
/// Returns [`DecodeShardError`]; nothing stays in the pool then.
pub fn decode_shard(
    tenant: &Arc<TenantId>,
    shard: ShardKey,
    hot: &[u8],
    cold: &[u8],
    pool: &mut RecordPool,
) -> Result<(ShardRecord, Option<LogicalTime>), DecodeShardError> {
    let hot = decode_hot(**tenant, shard, hot)?;
    let cold = decode_cold(**tenant, shard, cold)?;
    join(tenant, shard, &hot, &cold, pool)
}

/// As [`decode_shard`], for parts that have not left this process since they were encoded or
/// decoded: their checksums are not verified.
///
/// # Errors
///
/// As [`decode_shard`].
pub(in crate::store) fn decode_own_shard(
    tenant: &Arc<TenantId>,
    shard: ShardKey,
    hot: &[u8],
    cold: &[u8],
    pool: &mut RecordPool,
) -> Result<(ShardRecord, Option<LogicalTime>), DecodeShardError> {
    // Invariants are checked again although the checksum is not: a bug must not reach the store.
    let hot = hot_of(shard, open_own(&Key::ShardHot { tenant: **tenant, shard }, hot)?)?;
    let cold = cold_of(shard, open_own(&Key::ShardCold { tenant: **tenant, shard }, cold)?)?;
    join(tenant, shard, &hot, &cold, pool)
}

fn join(
    tenant: &Arc<TenantId>,
    shard: ShardKey,
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
    pool: &mut RecordPool,
) -> Result<(ShardRecord, Option<LogicalTime>), DecodeShardError> {
    let record = join_shard(tenant, shard, hot, cold, pool)?;
    // The parts were checked one by one, with errors; a violation now is a bug of this decoder.
    record.assert_invariants(pool);
    Ok((record, hot.indexed_at))
}

/// Builds the record of `shard` in `pool` from its decoded parts. The caller frees it.
///
/// Unlike [`decode_shard`] it accepts parts that were changed since they were decoded: a simulator
/// stores wrong records with it.
///
/// # Errors
///
/// Returns [`DecodeShardError`] if the parts do not belong together or the pool is full; nothing
/// stays in the pool then.
pub fn join_shard(
    tenant: &Arc<TenantId>,
    shard: ShardKey,
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
    pool: &mut RecordPool,
) -> Result<ShardRecord, DecodeShardError> {
    // Parts of different commits would combine a new range with an old list of children.
    check_pair(hot, cold)?;
    Ok(make_record(tenant, shard, hot, cold, pool)?)
}

/// Why a shard could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeShardError {
    /// The stored value is damaged.
    #[error(transparent)]
    Stored(#[from] InfraError),
    /// The pool is full.
    #[error(transparent)]
    PoolFull(#[from] SlabFull),
}

/// The part of a shard that every operation rewrites. It satisfies the invariants of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of ShardRecord, documented there")]
pub struct HotPart<'a> {
    pub status: ShardStatus,
    pub park_reason: Option<ParkReason>,
    pub cursor_semantics: CursorSemantics,
    pub fence: FenceEpoch,
    pub attempts: u32,
    pub acquire_count: u32,
    pub lease: Option<LeaseHolder>,
    pub cursor: CursorUpdate<'a>,
    /// The highest sequence executed since the last grant.
    pub op_sequence: OpSequence,
    pub op_log: StoredOps<'a>,
    pub offer: Option<Offer>,
    pub last_handoff: Option<HandoffId>,
    pub request: Option<PendingRequest>,
    /// Number of ids that the cold part lists.
    pub spawned_count: usize,
    /// The shard's time in the claim index. `Some` exactly while the shard is active, and never
    /// later than its deadline.
    pub indexed_at: Option<LogicalTime>,
}

impl HotPart<'_> {
    /// Returns the deadline of the lease, live or expired.
    #[must_use]
    pub fn lease_deadline(&self) -> Option<LogicalTime> {
        self.lease.map(|holder| holder.deadline())
    }

    /// Returns the fields of the invariants, except for the parent, which the cold part checks.
    fn facts(&self, shard: ShardId) -> ShardFacts {
        ShardFacts {
            status: self.status,
            park_reason: self.park_reason,
            fence: self.fence,
            leased: self.lease.is_some(),
            offered: self.offer.is_some(),
            requested: self.request.is_some(),
            derived: shard.is_derived(),
            has_parent: shard.is_derived(),
            spawned_count: self.spawned_count,
        }
    }
}

/// The stored log of a shard, oldest entry first. Entries are valid, ids are unique, and times
/// never decrease.
///
/// Entries are decoded on demand: most of a hot part is its log, and copying it out of the decoder
/// costs more than reading it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredOps<'a>(&'a [[u8; OP_LEN]]);

impl<'a> StoredOps<'a> {
    /// Returns the entries, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OpLogEntry> + use<'a> {
        self.0.iter().map(|bytes| sound_op(bytes).expect("entries were validated by the decoder"))
    }

    /// Returns the number of entries; at most [`OP_LOG_CAP`].
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the log is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entry of `op_id`.
    #[must_use]
    pub(crate) fn find(&self, op_id: OpId) -> Option<OpLogEntry> {
        self.iter().find(|entry| entry.op_id() == op_id)
    }
}

impl fmt::Debug for StoredOps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The part of a shard that only splits rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdPart<'a> {
    /// Range and metadata; valid.
    pub spec: ShardSpecRef<'a>,
    /// Present exactly when the id is derived.
    pub lineage: Option<Lineage>,
    /// Ids of the shards split off from this one; all derived.
    pub spawned: SpawnedIds<'a>,
}

/// Stored ids, oldest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpawnedIds<'a>(&'a [[u8; ID_LEN]]);

impl<'a> SpawnedIds<'a> {
    /// Raw ids, little-endian.
    #[must_use]
    pub const fn new(ids: &'a [[u8; ID_LEN]]) -> Self {
        Self(ids)
    }

    /// Returns the ids, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ShardId> + use<'a> {
        self.0.iter().map(|id| ShardId::from_raw(u64::from_le_bytes(*id)))
    }

    /// Returns the number of ids; at most [`MAX_SPAWNED_PER_SHARD`].
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SpawnedIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Checks that a shard is in the claim index exactly while it is active. An entry that is too early
/// costs claimers a read; one that is too late would hide a claimable shard. A shard without a
/// lease is claimable at any time.
fn check_index(
    status: ShardStatus,
    deadline: Option<LogicalTime>,
    indexed_at: Option<LogicalTime>,
) -> Result<(), &'static str> {
    let active = status == ShardStatus::Active;
    // A missing entry would hide the shard from claims for ever, so it counts as damage.
    holds(indexed_at.is_some() == active, "a claim index entry exactly while active")?;
    let late = indexed_at.is_some_and(|at| at > deadline.unwrap_or(LogicalTime::ZERO));
    holds(!late, "a claim index entry is never later than the lease ends")
}

/// Checks that the two parts belong together.
pub(in crate::store) fn check_pair(
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
) -> Result<(), InfraError> {
    let (counted, listed) = (hot.spawned_count, cold.spawned.len());
    if counted != listed {
        let what = format_args!("spawned_count: {counted}, but the cold part lists {listed}");
        return Err(corrupt(KeyKind::ShardHot, what));
    }
    // A residual split shrinks the range in the cold part, and the cursor is in the hot part.
    match hot.cursor.last_key() {
        Some(key) if !cold.spec.contains_key(key) => {
            Err(corrupt(KeyKind::ShardHot, "last_key: outside the range of the shard"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Builds the record. Both parts are validated, so only the pool can fail.
fn make_record(
    tenant: &Arc<TenantId>,
    shard: ShardKey,
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
    pool: &mut RecordPool,
) -> Result<ShardRecord, SlabFull> {
    let new = NewShard {
        shard: shard.shard(),
        spec: cold.spec,
        cursor: hot.cursor,
        fence: hot.fence,
        attempts: hot.attempts,
        cursor_semantics: hot.cursor_semantics,
        lineage: cold.lineage,
    };
    let mut record = ShardRecord::new(Arc::clone(tenant), shard.run(), &new, pool)?;
    record.rare = match make_rare(hot, cold, pool) {
        Ok(rare) => rare,
        Err(full) => {
            // The record was allocated before the rare fields: free it, so that nothing stays in
            // the pool.
            record.free(pool);
            return Err(full);
        }
    };
    record.status = hot.status;
    record.park_reason = hot.park_reason;
    record.lease = hot.lease;
    record.acquire_count = hot.acquire_count;
    if !hot.op_log.is_empty() {
        let log = pool.logs.get_mut(&mut record.op_log);
        assert!(log.is_empty(), "a reused log slot is empty");
        // `read_op_log` has checked ids and times; `push` would check every entry again.
        hot.op_log.iter().for_each(|entry| log.push_unchecked(entry));
        log.set_sequence_unchecked(hot.op_sequence);
    }
    Ok(record)
}

fn make_rare(
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
    pool: &mut RecordPool,
) -> Result<Option<Box<Rare>>, SlabFull> {
    let common = cold.lineage.is_none() && cold.spawned.is_empty();
    if common && hot.offer.is_none() && hot.request.is_none() && hot.last_handoff.is_none() {
        return Ok(None);
    }
    // Only shards with rare fields reach this allocation.
    let ids: Vec<ShardId> = cold.spawned.iter().collect();
    let spawned = match PooledSpawned::from_ids(&ids, &mut pool.bytes) {
        Ok(spawned) => spawned,
        Err(PooledSpawnedError::Full(full)) => return Err(full),
        Err(error) => unreachable!("the decoder bounds the number of ids: {error}"),
    };
    Ok(Some(Box::new(Rare {
        lineage: cold.lineage,
        spawned,
        offer: hot.offer,
        request: hot.request.clone(),
        last_handoff: hot.last_handoff,
        park_context: None,
    })))
}

pub(in crate::store) fn write_hot(
    out: &mut impl Put,
    shard: ShardView<'_>,
    indexed_at: Option<LogicalTime>,
) {
    let (record, cursor, log) = (shard.record(), shard.cursor(), shard.op_log());
    let flags = flag_if(record.lease().is_some(), LEASED)
        | flag_if(record.offer().is_some(), OFFERED)
        | flag_if(record.last_handoff().is_some(), HANDED_OFF)
        | flag_if(record.request().is_some(), REQUESTED)
        | flag_if(indexed_at.is_some(), INDEXED);
    out.put_u8("flags", flags);
    out.put_u8("status", record.status() as u8);
    out.put_u8("park_reason", record.park_reason().map_or(NO_REASON, |reason| reason as u8));
    out.put_u8("cursor_semantics", record.cursor_semantics().as_u8());
    out.put_u64("fence", record.fence_epoch().as_raw());
    out.put_u32("attempts", record.attempts());
    out.put_u32("acquire_count", record.acquire_count());
    out.put_u64("op_sequence", log.sequence().as_raw());
    out.put_len("spawned_count", record.spawned_count());
    let op_count = u8::try_from(log.len()).expect("the cap on the log fits in a byte");
    out.put_u8("op_log_count", op_count);
    // All counts and lengths precede the variable parts: a decoder rejects a bad one before it
    // reads, and the parts need no delimiters.
    let (last_key, token) = (cursor.last_key(), cursor.token());
    out.put_len("last_key_len", last_key.map_or(0, <[u8]>::len));
    out.put_len("token_len", token.map_or(0, <[u8]>::len));
    if let Some(at) = indexed_at {
        out.put_u64("indexed_at", at.as_raw());
    }
    if let Some(holder) = record.lease() {
        write_lease(out, &holder);
    }
    if let Some(offer) = record.offer() {
        write_offer(out, offer);
    }
    if let Some(handoff) = record.last_handoff() {
        out.put_u64("last_handoff", handoff.as_raw());
    }
    log.iter().for_each(|entry| write_op(out, entry));
    out.put("last_key", last_key.unwrap_or_default());
    out.put("token", token.unwrap_or_default());
    if let Some(request) = record.request() {
        write_request(out, request);
    }
}

fn read_hot<'a>(fields: &mut Fields<'a>) -> Result<HotPart<'a>, InfraError> {
    let flags = fields.flags("flags", HOT_FLAGS)?;
    let status = fields.number("status", ShardStatus::from_u8)?;
    let park_reason = fields.number("park_reason", |number| match number {
        NO_REASON => Some(None),
        _ => ParkReason::from_u8(number).map(Some),
    })?;
    let cursor_semantics = fields.number("cursor_semantics", CursorSemantics::from_u8)?;
    let fence = FenceEpoch::from_raw(fields.u64("fence")?);
    let attempts = fields.u32("attempts")?;
    let acquire_count = fields.u32("acquire_count")?;
    let op_sequence = read_sequence(fields)?;
    let spawned_count = fields.len("spawned_count", MAX_SPAWNED_PER_SHARD)?;
    let op_count = fields.count_u8("op_log_count", OP_LOG_CAP)?;
    let logged = op_sequence == OpSequence::NONE || op_count > 0;
    fields.require(holds(logged, SEQUENCE_WITHOUT_LOG))?;
    let last_key_len = fields.len("last_key_len", MAX_KEY_SIZE)?;
    let token_len = fields.len("token_len", MAX_TOKEN_SIZE)?;
    let indexed_at = flags.optional(INDEXED, || fields.u64("indexed_at"))?;
    Ok(HotPart {
        status,
        park_reason,
        cursor_semantics,
        fence,
        attempts,
        acquire_count,
        op_sequence,
        spawned_count,
        indexed_at: indexed_at.map(LogicalTime::from_raw),
        lease: flags.optional(LEASED, || read_lease(fields))?,
        offer: flags.optional(OFFERED, || read_offer(fields))?,
        last_handoff: flags
            .optional(HANDED_OFF, || fields.u64("last_handoff").map(HandoffId::from_raw))?,
        op_log: read_op_log(fields, op_count)?,
        cursor: read_cursor(fields, last_key_len, token_len)?,
        request: flags.optional(REQUESTED, || read_request(fields))?,
    })
}

fn read_sequence(fields: &mut Fields<'_>) -> Result<OpSequence, InfraError> {
    let raw = fields.u64("op_sequence")?;
    OpSequence::try_from_raw(raw).ok_or_else(|| fields.refuse("op_sequence", "above the maximum"))
}

fn write_lease(out: &mut impl Put, holder: &LeaseHolder) {
    out.put_u64("lease.owner", holder.owner().as_raw());
    out.put_u64("lease.deadline", holder.deadline().as_raw());
    out.put_u64("lease.token", holder.token().as_raw());
}

fn read_lease(fields: &mut Fields<'_>) -> Result<LeaseHolder, InfraError> {
    let owner = WorkerId::from_raw(fields.u64("lease.owner")?);
    let deadline = LogicalTime::from_raw(fields.nonzero_u64("lease.deadline")?);
    let token = GrantToken::from_raw(fields.u64("lease.token")?);
    Ok(LeaseHolder::new(owner, deadline, token))
}

fn write_offer(out: &mut impl Put, offer: &Offer) {
    out.put_u64("offer.handoff", offer.handoff.as_raw());
    out.put_u64("offer.destination", offer.destination.as_raw());
    out.put_u64("offer.deadline", offer.deadline.as_raw());
    out.put_u64("offer.payload_hash", offer.payload_hash);
}

fn read_offer(fields: &mut Fields<'_>) -> Result<Offer, InfraError> {
    Ok(Offer {
        handoff: HandoffId::from_raw(fields.u64("offer.handoff")?),
        destination: WorkerId::from_raw(fields.u64("offer.destination")?),
        deadline: LogicalTime::from_raw(fields.nonzero_u64("offer.deadline")?),
        payload_hash: fields.nonzero_u64("offer.payload_hash")?,
    })
}

/// The fields of a log entry, and their widths.
const OP_FIELDS: [(&str, usize); 5] = [
    ("op_log.op_id", 8),
    ("op_log.payload_hash", 8),
    ("op_log.executed_at", 8),
    ("op_log.kind", 1),
    ("op_log.result", 1),
];

fn write_op(out: &mut impl Put, entry: &OpLogEntry) {
    let mut bytes = [0; OP_LEN];
    bytes[..8].copy_from_slice(&entry.op_id().as_raw().to_le_bytes());
    bytes[8..16].copy_from_slice(&entry.payload_hash().to_le_bytes());
    bytes[16..24].copy_from_slice(&entry.executed_at().as_raw().to_le_bytes());
    bytes[24..].copy_from_slice(&[entry.kind() as u8, entry.result() as u8]);
    out.put_array(&OP_FIELDS, &bytes);
}

fn read_op_log<'a>(fields: &mut Fields<'a>, count: usize) -> Result<StoredOps<'a>, InfraError> {
    // The entries stay in the value: the log is most of a hot part, and few callers need them all.
    let (entries, _) = fields.rest().as_chunks();
    let (mut marks, mut last_time) = (0_u64, LogicalTime::ZERO);
    for nth in 0..count {
        // The slow path names the invalid field.
        let entry = match fields.take_if(sound_op) {
            Some(entry) => entry,
            None => read_op(fields)?,
        };
        // The filter has no false negatives: an id with a new bit needs no search for a duplicate.
        let mark = 1 << (entry.op_id().as_raw() % u64::from(u64::BITS));
        let fresh = marks & mark == 0 || StoredOps(&entries[..nth]).find(entry.op_id()).is_none();
        marks |= mark;
        fields.require(holds(fresh, "INV-9: operation ids are unique"))?;
        let later = entry.executed_at() >= last_time;
        fields.require(holds(later, "INV-13: times in the log never fall"))?;
        last_time = entry.executed_at();
    }
    Ok(StoredOps(&entries[..count]))
}

/// Length of a log entry.
const OP_LEN: usize = 8 + 8 + 8 + 1 + 1;

/// Fast path of [`read_op`], `None` if a field is invalid. Most of a hot part is its log, and this
/// is several times as fast.
fn sound_op(bytes: &[u8; OP_LEN]) -> Option<OpLogEntry> {
    let number = |at: usize| {
        let (number, _) = bytes.get(at..)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*number))
    };
    let (op_id, payload_hash, executed_at) = (number(0)?, number(8)?, number(16)?);
    let (kind, OpResult::Completed) = (OpKind::from_u8(bytes[24])?, OpResult::from_u8(bytes[25])?);
    let executed_at = LogicalTime::from_raw(executed_at);
    OpLogEntry::stored(OpId::from_raw(op_id), kind, payload_hash, executed_at)
}

fn read_op(fields: &mut Fields<'_>) -> Result<OpLogEntry, InfraError> {
    let op_id = OpId::from_raw(fields.u64("op_log.op_id")?);
    let payload_hash = fields.nonzero_u64("op_log.payload_hash")?;
    let executed_at = LogicalTime::from_raw(fields.nonzero_u64("op_log.executed_at")?);
    let kind = fields.number("op_log.kind", OpKind::from_u8)?;
    let OpResult::Completed = fields.number("op_log.result", OpResult::from_u8)?;
    Ok(OpLogEntry::new(op_id, kind, payload_hash, executed_at))
}

fn read_cursor<'a>(
    fields: &mut Fields<'a>,
    last_key_len: usize,
    token_len: usize,
) -> Result<CursorUpdate<'a>, InfraError> {
    let last_key = fields.bytes("last_key", last_key_len)?;
    let token = fields.bytes("token", token_len)?;
    // A key is never empty, so length zero is free to mean that there is none.
    let last_key = (!last_key.is_empty()).then_some(last_key);
    CursorUpdate::try_from_parts(last_key, Some(token))
        .map_err(|error| fields.refuse("token", error))
}

fn write_request(out: &mut impl Put, request: &PendingRequest) {
    out.put_u64("request.op_id", request.op_id.as_raw());
    out.put_u64("request.payload_hash", request.payload_hash);
    out.put_u64("request.expires_at", request.expires_at().as_raw());
    // Declared outside, because the argument borrows its bytes until they are written below.
    let worker;
    let (action, argument): (u8, &[u8]) = match request.action() {
        ShardAction::Split(key) => (ACTION_SPLIT, key.as_ref().map_or(&[], SplitKey::as_bytes)),
        ShardAction::Release => (ACTION_RELEASE, &[]),
        ShardAction::HandOff(None) => (ACTION_HAND_OFF, &[]),
        ShardAction::HandOff(Some(to)) => {
            worker = to.as_raw().to_le_bytes();
            (ACTION_HAND_OFF, &worker)
        }
        ShardAction::Withdraw => (ACTION_WITHDRAW, &[]),
    };
    out.put_u8("request.action", action);
    out.put_len("request.argument_len", argument.len());
    out.put("request.argument", argument);
}

fn read_request(fields: &mut Fields<'_>) -> Result<PendingRequest, InfraError> {
    let op_id = OpId::from_raw(fields.u64("request.op_id")?);
    let payload_hash = fields.nonzero_u64("request.payload_hash")?;
    let expires_at = LogicalTime::from_raw(fields.u64("request.expires_at")?);
    let action = fields.u8("request.action")?;
    let argument_len = fields.len("request.argument_len", MAX_KEY_SIZE)?;
    let argument = fields.bytes("request.argument", argument_len)?;
    let action = read_action(action, argument).ok_or_else(|| {
        let what = format_args!("number {action} with {argument_len} bytes of argument");
        fields.refuse("request.action", what)
    })?;
    Ok(PendingRequest::new(op_id, payload_hash, action, expires_at))
}

fn read_action(action: u8, argument: &[u8]) -> Option<ShardAction> {
    match (action, argument.len()) {
        // Without an argument the lease holder chooses the key.
        (ACTION_SPLIT, _) => Some(ShardAction::Split(SplitKey::try_new(argument))),
        (ACTION_RELEASE, 0) => Some(ShardAction::Release),
        (ACTION_HAND_OFF, 0) => Some(ShardAction::HandOff(None)),
        (ACTION_HAND_OFF, WORKER_LEN) => {
            let worker = u64::from_le_bytes(argument.try_into().ok()?);
            Some(ShardAction::HandOff(Some(WorkerId::from_raw(worker))))
        }
        (ACTION_WITHDRAW, 0) => Some(ShardAction::Withdraw),
        _ => None,
    }
}

pub(in crate::store) fn write_cold(out: &mut impl Put, shard: ShardView<'_>) {
    let (record, spec) = (shard.record(), shard.spec());
    out.put_u8("flags", flag_if(record.lineage().is_some(), DERIVED));
    out.put_len("start_len", spec.start.len());
    out.put_len("end_len", spec.end.len());
    out.put_len("metadata_len", spec.metadata.len());
    out.put_len("spawned_count", record.spawned_count());
    if let Some(lineage) = record.lineage() {
        out.put_u64("lineage.parent", lineage.parent.as_raw());
        out.put_u64("lineage.split_hash", lineage.split_hash);
    }
    out.put("start", spec.start);
    out.put("end", spec.end);
    out.put("metadata", spec.metadata);
    shard.spawned().for_each(|id| out.put_u64("spawned.id", id.as_raw()));
}

fn read_cold<'a>(fields: &mut Fields<'a>) -> Result<ColdPart<'a>, InfraError> {
    let flags = fields.flags("flags", DERIVED)?;
    let start_len = fields.len("start_len", MAX_KEY_SIZE)?;
    let end_len = fields.len("end_len", MAX_KEY_SIZE)?;
    let metadata_len = fields.len("metadata_len", MAX_METADATA_SIZE)?;
    let spawned_count = fields.len("spawned_count", MAX_SPAWNED_PER_SHARD)?;
    let lineage = flags.optional(DERIVED, || {
        let parent = ShardId::from_raw(fields.u64("lineage.parent")?);
        Ok(Lineage { parent, split_hash: fields.nonzero_u64("lineage.split_hash")? })
    })?;
    let start = fields.bytes("start", start_len)?;
    let end = fields.bytes("end", end_len)?;
    let metadata = fields.bytes("metadata", metadata_len)?;
    let (spawned, _) = fields.bytes("spawned.id", spawned_count * ID_LEN)?.as_chunks();
    let spec = ShardSpecRef::new(start, end, metadata);
    Ok(ColdPart { spec, lineage, spawned: SpawnedIds(spawned) })
}
