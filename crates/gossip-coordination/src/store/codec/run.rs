//! The stored form of a run: a small head that operations on shards compare, chunks of root ids,
//! and the tombstone of a deleted run.
//!
//! Registration of many shards takes several commits on an engine with small transactions (DESIGN
//! Q16). The head holds its progress ([`RootProgress`]); the record that the protocol sees names no
//! roots before the registration is complete.

use gossip_contracts::coordination::{CursorSemantics, MAX_INITIAL_SHARDS};
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, RunId, ShardId, TenantId};
use gossip_stdx::RingBuffer;

use super::fields::{Fields, Put, corrupt, flag_if};
use super::frame::{open, seal};
use crate::error::InfraError;
use crate::protocol::Tombstone;
use crate::record::holds;
use crate::run::{
    RUN_OP_LOG_CAP, Registration, RunConfig, RunHead, RunOpKind, RunOpLogEntry, RunRecord,
    RunStatus,
};
use crate::run_name::{RUN_NAME_MAX, RunName};
use crate::store::key::{Key, KeyKind};

// Counts of roots are stored in two bytes or four, the number of operations in one.
const _: () = assert!(MAX_INITIAL_SHARDS <= u16::MAX as usize);
const _: () = assert!(RUN_OP_LOG_CAP <= u8::MAX as usize);

// Flags of the head.
const PAUSED: u8 = 1;
const RETRIES_BOUNDED: u8 = 1 << 1;
const ENDED: u8 = 1 << 2;
const REGISTERED: u8 = 1 << 3;
const FLOORED: u8 = 1 << 4;
const NAMED: u8 = 1 << 5;
const HEAD_FLAGS: u8 = PAUSED | RETRIES_BOUNDED | ENDED | REGISTERED | FLOORED | NAMED;

/// Replaces `out` by the head of `run`, with the progress `roots` of its registration.
///
/// # Panics
///
/// Panics if run and progress are inconsistent: the store layer is wrong then, and nothing may be
/// stored.
pub fn encode_run_head(run: &RunRecord, roots: RootProgress, out: &mut Vec<u8>) {
    // Before the write: every later load would refuse a record that breaks a rule.
    run.assert_invariants();
    let checked = roots.check(run.status(), run.registration().is_some(), run.created_at());
    assert!(checked.is_ok(), "the registration progress matches the run");
    let key = Key::RunHead { tenant: run.tenant(), run: run.run() };
    seal(&key, out, |out| write_run_head(out, run, roots));
}

/// Reads the head that is stored for `run`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_run_head(
    tenant: TenantId,
    run: RunId,
    value: &[u8],
) -> Result<RunHeadPart, InfraError> {
    let mut fields = open(&Key::RunHead { tenant, run }, value)?;
    let (record, roots) = read_run_head(&mut fields, tenant, run)?;
    // The checksum detects damage, but not a wrong record of a faulty program, so the rules are
    // checked as well.
    let begun = record.registration.is_some();
    fields.require(record.check_head())?;
    fields.require(roots.check(record.status, begun, record.created_at()))?;
    fields.finish()?;
    Ok(RunHeadPart { record, roots })
}

/// Replaces `out` by a chunk of the roots of `run`.
///
/// # Panics
///
/// Panics if there are no ids, more than [`MAX_INITIAL_SHARDS`], or derived ones.
pub fn encode_roots(tenant: TenantId, run: RunId, chunk: u16, ids: &[ShardId], out: &mut Vec<u8>) {
    assert!(!ids.is_empty(), "a chunk holds at least one root");
    assert!(ids.len() <= MAX_INITIAL_SHARDS, "a manifest bounds the number of roots");
    assert!(!ids.iter().any(|id| id.is_derived()), "roots are not derived");
    seal(&Key::RunRoots { tenant, run, chunk }, out, |out| write_roots(out, ids));
}

/// Appends the roots of a stored chunk to `ids`, which is unchanged on failure.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_roots(
    tenant: TenantId,
    run: RunId,
    chunk: u16,
    value: &[u8],
    ids: &mut Vec<ShardId>,
) -> Result<(), InfraError> {
    let mut fields = open(&Key::RunRoots { tenant, run, chunk }, value)?;
    let count = fields.len("count", MAX_INITIAL_SHARDS)?;
    fields.require(holds(count > 0, "a chunk holds at least one root"))?;
    let (raw, _) = fields.bytes("id", count * size_of::<u64>())?.as_chunks();
    let roots = raw.iter().map(|id| ShardId::from_raw(u64::from_le_bytes(*id)));
    // Validate before extending `ids`: the caller's list must be unchanged on failure.
    let none_derived = !roots.clone().any(ShardId::is_derived);
    fields.require(holds(none_derived, "roots are not derived"))?;
    fields.finish()?;
    ids.extend(roots);
    Ok(())
}

/// Replaces `out` by the tombstone of `run`.
pub fn encode_tombstone(tenant: TenantId, run: RunId, tombstone: &Tombstone, out: &mut Vec<u8>) {
    seal(&Key::Tombstone { tenant, run }, out, |out| write_tombstone(out, tombstone));
}

/// Reads the tombstone that is stored for `run`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_tombstone(
    tenant: TenantId,
    run: RunId,
    value: &[u8],
) -> Result<Tombstone, InfraError> {
    let mut fields = open(&Key::Tombstone { tenant, run }, value)?;
    let op_id = OpId::from_raw(fields.u64("op_id")?);
    let payload_hash = fields.nonzero_u64("payload_hash")?;
    fields.finish()?;
    Ok(Tombstone { op_id, payload_hash })
}

/// Progress of the registration of a run's roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootProgress {
    /// Total number of roots; zero before registration began.
    pub total: u32,
    /// Stored roots; the run is active once all are stored.
    pub registered: u32,
    /// Stored chunks; each holds at least one root.
    pub chunks: u16,
    /// Time of the last chunk; zero before the first. Staleness counts from here.
    pub last_chunk_at: LogicalTime,
}

impl RootProgress {
    /// Registration has not begun.
    pub const NONE: Self =
        Self { total: 0, registered: 0, chunks: 0, last_chunk_at: LogicalTime::ZERO };

    /// Returns whether every root is stored.
    #[must_use]
    pub(crate) const fn is_complete(&self) -> bool {
        self.total > 0 && self.registered == self.total
    }

    /// Returns the number of roots that are counted but not created.
    pub(in crate::store) fn never_created(&self) -> u64 {
        // `check` has excluded more stored roots than there are in all.
        u64::from(self.total - self.registered)
    }

    fn check(
        &self,
        status: RunStatus,
        begun: bool,
        created_at: LogicalTime,
    ) -> Result<(), &'static str> {
        holds(begun == (self.total > 0), "roots exactly when registration began")?;
        // The time is stored only with a registration; without one it must be the zero that a
        // decoder fills in.
        let when = if begun { created_at } else { LogicalTime::ZERO };
        holds(self.last_chunk_at >= when, "registration begins after the run")?;
        holds(begun || self.last_chunk_at == when, "no chunk before registration")?;
        holds(self.total as usize <= MAX_INITIAL_SHARDS, "roots are bounded")?;
        holds(self.registered <= self.total, "no more roots than there are in all")?;
        holds(u32::from(self.chunks) <= self.registered, "a chunk holds at least one root")?;
        holds((self.chunks == 0) == (self.registered == 0), "roots are in chunks")?;
        match status {
            RunStatus::Initializing => {
                holds(!self.is_complete(), "a run whose roots are there is active")
            }
            RunStatus::Active | RunStatus::Done | RunStatus::Failed => {
                holds(self.is_complete(), "an active run has its roots")
            }
            // A run may be cancelled before, during or after its registration.
            RunStatus::Cancelled => Ok(()),
        }
    }
}

/// A run without its root ids.
#[derive(Clone, Debug)]
pub struct RunHeadPart {
    /// Has no roots, whatever its status.
    record: RunRecord,
    roots: RootProgress,
}

impl RunHeadPart {
    /// Builds the record from the head and the roots of all its chunks in order; an empty list
    /// unless [`RunHeadPart::has_roots`].
    ///
    /// # Errors
    ///
    /// Returns [`InfraError::Corruption`] if the roots do not match the head.
    pub fn into_record(mut self, root_shards: Vec<ShardId>) -> Result<RunRecord, InfraError> {
        let expected = if self.has_roots() { self.roots.registered as usize } else { 0 };
        // A lost chunk would otherwise turn into a run with fewer roots, and keys would be skipped.
        if root_shards.len() != expected {
            let found = root_shards.len();
            let what = format_args!("{found} roots in the chunks of a run of {expected}");
            return Err(corrupt(KeyKind::RunRoots, what));
        }
        self.record.root_shards = root_shards;
        // Chunks come from several keys, so each may be intact and their union still wrong.
        let unique = self.record.check_roots_unique();
        unique.map_err(|broken| corrupt(KeyKind::RunRoots, broken))?;
        self.record.assert_invariants();
        Ok(self.record)
    }

    /// Returns the fields that operations on the run's shards need.
    #[must_use]
    pub const fn head(&self) -> RunHead {
        self.record.head()
    }

    /// Returns the record without its root ids.
    pub(in crate::store) const fn rootless(&self) -> &RunRecord {
        &self.record
    }

    /// Returns the progress of the registration.
    #[must_use]
    pub const fn roots(&self) -> RootProgress {
        self.roots
    }

    /// Returns whether the record names roots: those of an incomplete registration are not found.
    #[must_use]
    pub const fn has_roots(&self) -> bool {
        self.roots.is_complete()
    }
}

pub(in crate::store) fn write_run_head(out: &mut impl Put, run: &RunRecord, roots: RootProgress) {
    let config = run.config();
    let flags = flag_if(run.is_paused(), PAUSED)
        | flag_if(config.max_shard_retries().is_some(), RETRIES_BOUNDED)
        | flag_if(run.completed_at().is_some(), ENDED)
        | flag_if(run.registration().is_some(), REGISTERED)
        | flag_if(run.fence_floor() > FenceEpoch::ZERO, FLOORED)
        | flag_if(config.name().is_some(), NAMED);
    out.put_u8("flags", flags);
    out.put_u8("status", run.status() as u8);
    out.put_u8("cursor_semantics", config.cursor_semantics().as_u8());
    let op_count = u8::try_from(run.op_log().len()).expect("the cap on the log fits in a byte");
    out.put_u8("op_log_count", op_count);
    out.put_u64("lease_duration", config.lease_duration());
    out.put_u64("created_at", run.created_at().as_raw());
    out.put_u32("roots.total", roots.total);
    out.put_u32("roots.registered", roots.registered);
    out.put_u16("roots.chunks", roots.chunks);
    if let Some(max) = config.max_shard_retries() {
        out.put_u32("max_shard_retries", max);
    }
    if let Some(at) = run.completed_at() {
        out.put_u64("completed_at", at.as_raw());
    }
    if let Some(registration) = run.registration() {
        out.put_u64("registration.op_id", registration.op_id.as_raw());
        out.put_u64("registration.payload_hash", registration.payload_hash);
        out.put_u64("roots.last_chunk_at", roots.last_chunk_at.as_raw());
    }
    if run.fence_floor() > FenceEpoch::ZERO {
        out.put_u64("fence_floor", run.fence_floor().as_raw());
    }
    run.op_log().for_each(|entry| write_op(out, entry));
    if let Some(name) = config.name() {
        let name = name.as_str();
        out.put_u8("name_len", u8::try_from(name.len()).expect("a name is at most 64 bytes"));
        out.put("name", name.as_bytes());
    }
}

fn read_run_head(
    fields: &mut Fields<'_>,
    tenant: TenantId,
    run: RunId,
) -> Result<(RunRecord, RootProgress), InfraError> {
    let flags = fields.flags("flags", HEAD_FLAGS)?;
    let status = fields.number("status", RunStatus::from_u8)?;
    let cursor_semantics = fields.number("cursor_semantics", CursorSemantics::from_u8)?;
    let op_count = fields.count_u8("op_log_count", RUN_OP_LOG_CAP)?;
    let lease_duration = fields.u64("lease_duration")?;
    let created_at = LogicalTime::from_raw(fields.nonzero_u64("created_at")?);
    // The time of the last chunk follows with the registration, which exists only once one began.
    let mut roots = RootProgress {
        total: fields.u32("roots.total")?,
        registered: fields.u32("roots.registered")?,
        chunks: fields.u16("roots.chunks")?,
        last_chunk_at: LogicalTime::ZERO,
    };
    let retries = flags.optional(RETRIES_BOUNDED, || fields.u32("max_shard_retries"))?;
    // `try_new`: a stored zero duration is damage, and must not panic.
    let config = RunConfig::try_new(cursor_semantics, lease_duration, retries)
        .map_err(|error| fields.refuse("lease_duration", error))?;
    let completed_at = flags.optional(ENDED, || fields.u64("completed_at"))?;
    let registration = flags.optional(REGISTERED, || read_registration(fields))?;
    let registration = registration.map(|(registration, last_chunk_at)| {
        roots.last_chunk_at = last_chunk_at;
        registration
    });
    // Not zero: a floor of zero is written without its field, and a value has one spelling.
    let fence_floor = flags.optional(FLOORED, || fields.nonzero_u64("fence_floor"))?;
    let op_log = read_op_log(fields, op_count)?;
    let name = flags.optional(NAMED, || read_name(fields))?;
    let mut record = RunRecord::new(tenant, run, config.with_name(name), created_at);
    record.fence_floor = fence_floor.map_or(FenceEpoch::ZERO, FenceEpoch::from_raw);
    record.status = status;
    record.paused = flags.has(PAUSED);
    record.completed_at = completed_at.map(LogicalTime::from_raw);
    record.registration = registration;
    record.op_log = op_log;
    Ok((record, roots))
}

fn read_registration(fields: &mut Fields<'_>) -> Result<(Registration, LogicalTime), InfraError> {
    let op_id = OpId::from_raw(fields.u64("registration.op_id")?);
    let payload_hash = fields.nonzero_u64("registration.payload_hash")?;
    let last_chunk_at = LogicalTime::from_raw(fields.nonzero_u64("roots.last_chunk_at")?);
    Ok((Registration { op_id, payload_hash }, last_chunk_at))
}

fn read_name(fields: &mut Fields<'_>) -> Result<RunName, InfraError> {
    let len = fields.count_u8("name_len", RUN_NAME_MAX)?;
    let bytes = fields.bytes("name", len)?;
    RunName::of_bytes(bytes).map_err(|error| fields.refuse("name", error))
}

fn write_op(out: &mut impl Put, entry: &RunOpLogEntry) {
    out.put_u64("op_log.op_id", entry.op_id().as_raw());
    out.put_u64("op_log.payload_hash", entry.payload_hash());
    out.put_u64("op_log.executed_at", entry.executed_at().as_raw());
    out.put_u8("op_log.kind", entry.kind() as u8);
}

fn read_op_log(
    fields: &mut Fields<'_>,
    count: usize,
) -> Result<RingBuffer<RunOpLogEntry, RUN_OP_LOG_CAP>, InfraError> {
    let mut log = RingBuffer::new();
    for _ in 0..count {
        let op_id = OpId::from_raw(fields.u64("op_log.op_id")?);
        let payload_hash = fields.nonzero_u64("op_log.payload_hash")?;
        let executed_at = LogicalTime::from_raw(fields.nonzero_u64("op_log.executed_at")?);
        let kind = fields.number("op_log.kind", RunOpKind::from_u8)?;
        log.push_back_overwrite(RunOpLogEntry::new(op_id, kind, payload_hash, executed_at));
    }
    Ok(log)
}

pub(in crate::store) fn write_roots(out: &mut impl Put, ids: &[ShardId]) {
    out.put_len("count", ids.len());
    ids.iter().for_each(|id| out.put_u64("id", id.as_raw()));
}

pub(in crate::store) fn write_tombstone(out: &mut impl Put, tombstone: &Tombstone) {
    out.put_u64("op_id", tombstone.op_id.as_raw());
    out.put_u64("payload_hash", tombstone.payload_hash);
}
