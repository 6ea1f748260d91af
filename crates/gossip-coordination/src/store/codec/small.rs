//! Small values: owners, index entries, counts, allotments, workers, handoffs.
//!
//! An index entry holds all information in its key. Its empty payload is framed nevertheless, so
//! that a check of a whole store detects a damaged or foreign one; only the entry of a parked shard
//! has a payload, the text with which it was parked. Scans of an index read keys only, and an
//! operation on a found shard reads the shard itself. The payload of a handoff belongs
//! to
//! `gossip-handoff` and is opaque here.

use std::fmt;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, Redacted, ShardKey, TenantId, WorkerId};
use thiserror::Error;

use super::fields::{Fields, Put, flag_if};
use super::frame::{FORMAT_FIRST, open, seal};
use crate::error::InfraError;
use crate::handoff::HandoffId;
use crate::lease::GrantToken;
use crate::park_context::{PARK_CONTEXT_MAX, ParkContext};
use crate::record::holds;
use crate::short_text::ShortText;
use crate::store::key::Key;
use crate::store::quota::Allotment;
use crate::workers::{
    ProcessId, VERSION_MAX, WORKER_HOST_MAX, WorkerEntry, WorkerLabel, WorkerProcess, WorkerState,
};

/// Maximum payload of a handoff: a snapshot of 256 KiB and 4 KiB for the other fields. It keeps the
/// value below the 1.5 MiB that an engine accepts in one request.
pub const HANDOFF_PAYLOAD_MAX: usize = (256 << 10) + (4 << 10);

/// Flags of a worker: the identity of its process, that of the watcher of the process, and its
/// label.
const HAS_PROCESS: u8 = 1;
const HAS_WATCHER: u8 = 1 << 1;
const HAS_LABEL: u8 = 1 << 2;
const WORKER_FLAGS: u8 = HAS_PROCESS | HAS_WATCHER | HAS_LABEL;

/// The lease holder of a shard, stored as long as the engine considers its process alive.
///
/// Evidence only: the record and its fence decide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OwnerBinding {
    /// The lease holder.
    pub owner: WorkerId,
    /// The fence of its grant; at least [`FenceEpoch::INITIAL`].
    pub fence: FenceEpoch,
    /// The grant token, which distinguishes two processes with the same worker id.
    pub token: GrantToken,
}

impl fmt::Debug for OwnerBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerBinding")
            .field("owner", &Redacted::new(self.owner))
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// A handoff that is too long to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a handoff of {len} bytes exceeds the limit of {HANDOFF_PAYLOAD_MAX}")]
pub struct HandoffTooLarge {
    /// Its length.
    pub(crate) len: usize,
}

/// Replaces `out` by the owner of `shard`.
///
/// # Panics
///
/// Panics if the fence is below [`FenceEpoch::INITIAL`], which no grant has.
pub fn encode_owner(tenant: TenantId, shard: ShardKey, owner: &OwnerBinding, out: &mut Vec<u8>) {
    assert!(owner.fence >= FenceEpoch::INITIAL, "an owner's fence is at least the initial one");
    seal(&Key::Owner { tenant, shard }, out, |out| write_owner(out, owner));
}

/// Reads the owner that is stored for `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_owner(
    tenant: TenantId,
    shard: ShardKey,
    value: &[u8],
) -> Result<OwnerBinding, InfraError> {
    let mut fields = open(&Key::Owner { tenant, shard }, value)?;
    let owner = WorkerId::from_raw(fields.u64("owner")?);
    let fence = FenceEpoch::from_raw(fields.u64("fence")?);
    let token = GrantToken::from_raw(fields.u64("token")?);
    // As the encoder asserts, but without a panic: stored bytes are input.
    fields.require(holds(
        fence >= FenceEpoch::INITIAL,
        "an owner's fence is at least the initial one",
    ))?;
    fields.finish()?;
    Ok(OwnerBinding { owner, fence, token })
}

/// Replaces `out` by the claim index entry of `shard` at time `at`.
pub fn encode_claim_entry(tenant: TenantId, shard: ShardKey, at: LogicalTime, out: &mut Vec<u8>) {
    // The key says everything; the frame shows that the entry was written by this program.
    seal(&Key::ClaimIndex { tenant, shard, at }, out, |_| {});
}

/// Checks the claim index entry that is stored for `shard` at time `at`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_claim_entry(
    tenant: TenantId,
    shard: ShardKey,
    at: LogicalTime,
    value: &[u8],
) -> Result<(), InfraError> {
    open(&Key::ClaimIndex { tenant, shard, at }, value)?.finish()
}

/// Replaces `out` by the parked index entry of `shard`.
pub fn encode_parked_entry(
    tenant: TenantId,
    shard: ShardKey,
    context: ParkContext<'_>,
    out: &mut Vec<u8>,
) {
    seal(&Key::ParkedIndex { tenant, shard }, out, |out| write_parked_entry(out, context));
}

/// Returns the text of the parked index entry that is stored for `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_parked_entry(
    tenant: TenantId,
    shard: ShardKey,
    value: &[u8],
) -> Result<ParkContext<'_>, InfraError> {
    let mut fields = open(&Key::ParkedIndex { tenant, shard }, value)?;
    let len = fields.len("context_len", PARK_CONTEXT_MAX)?;
    let text = str::from_utf8(fields.bytes("context", len)?)
        .map_err(|error| fields.refuse("context", error))?;
    fields.finish()?;
    Ok(ParkContext::new(text))
}

/// Replaces `out` by the number of shards of a tenant.
pub fn encode_tenant_count(tenant: TenantId, count: u64, out: &mut Vec<u8>) {
    seal(&Key::TenantCounter { tenant }, out, |out| write_count(out, count));
}

/// Reads the number of shards of a tenant.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_count(tenant: TenantId, value: &[u8]) -> Result<u64, InfraError> {
    let mut fields = open(&Key::TenantCounter { tenant }, value)?;
    let count = fields.u64("count")?;
    fields.finish()?;
    Ok(count)
}

/// Replaces `out` by the allotment of a tenant.
pub fn encode_allotment(tenant: TenantId, allotment: Allotment, out: &mut Vec<u8>) {
    seal(&Key::Allotment { tenant }, out, |out| write_allotment(out, allotment));
}

/// Reads the allotment of a tenant.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_allotment(tenant: TenantId, value: &[u8]) -> Result<Allotment, InfraError> {
    let mut fields = open(&Key::Allotment { tenant }, value)?;
    let max_shards = fields.u64("max_shards")?;
    fields.finish()?;
    Ok(Allotment::of_shards(max_shards))
}

/// Replaces `out` by the schema record of a store of `format`.
pub fn encode_schema(format: u8, out: &mut Vec<u8>) {
    seal(&Key::SchemaVersion, out, |out| write_schema(out, format));
}

/// Reads the format of a store, which may be newer than every format that is read here.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_schema(value: &[u8]) -> Result<u8, InfraError> {
    let mut fields = open(&Key::SchemaVersion, value)?;
    // A newer format is no damage: the caller reports it and drains.
    let known = |format: u8| (format >= FORMAT_FIRST).then_some(format);
    let format = fields.number("format", known)?;
    fields.finish()?;
    Ok(format)
}

/// Replaces `out` by the entry of a worker.
pub fn encode_worker(tenant: TenantId, entry: &WorkerEntry, out: &mut Vec<u8>) {
    seal(&Key::Worker { tenant, worker: entry.worker }, out, |out| write_worker(out, entry));
}

/// Reads the stored entry of `worker`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_worker(
    tenant: TenantId,
    worker: WorkerId,
    value: &[u8],
) -> Result<WorkerEntry, InfraError> {
    let mut fields = open(&Key::Worker { tenant, worker }, value)?;
    let flags = fields.flags("flags", WORKER_FLAGS)?;
    let state = fields.number("state", WorkerState::from_u8)?;
    let expires_at = LogicalTime::from_raw(fields.u64("expires_at")?);
    let process = flags.optional(HAS_PROCESS, || {
        let boot = fields.array("boot")?;
        let pid_namespace = fields.u64("pid_namespace")?;
        let process = ProcessId { pid: fields.u32("pid")?, started: fields.u64("started")? };
        Ok(WorkerProcess { boot, pid_namespace, process, watcher: None, label: None })
    })?;
    let watcher = flags.optional(HAS_WATCHER, || {
        let pid = fields.u32("watcher.pid")?;
        Ok(ProcessId { pid, started: fields.u64("watcher.started")? })
    })?;
    let label = flags.optional(HAS_LABEL, || read_label(&mut fields))?;
    // Without its process watcher and label would be lost, and the entry would be another one when
    // it is encoded again.
    let alone = (watcher.is_some() || label.is_some()) && process.is_none();
    fields.require(holds(!alone, "a watcher and a label belong to a process"))?;
    fields.finish()?;
    let process = process.map(|process| WorkerProcess { watcher, label, ..process });
    Ok(WorkerEntry { worker, state, expires_at, process })
}

fn read_label(fields: &mut Fields<'_>) -> Result<WorkerLabel, InfraError> {
    let len = fields.count_u8("host_len", WORKER_HOST_MAX)?;
    let host = ShortText::of_bytes(fields.bytes("host", len)?);
    let host = host.ok_or_else(|| fields.refuse("host", "not UTF-8"))?;
    let len = fields.count_u8("version_len", VERSION_MAX)?;
    let version = ShortText::of_bytes(fields.bytes("version", len)?);
    let version = version.ok_or_else(|| fields.refuse("version", "not UTF-8"))?;
    Ok(WorkerLabel { host, version, jobs: fields.u16("jobs")? })
}

/// Replaces `out` by the index entry of a handoff that concerns `party`.
pub fn encode_mover_entry(tenant: TenantId, party: u64, handoff: HandoffId, out: &mut Vec<u8>) {
    seal(&Key::HandoffIndex { tenant, party, handoff }, out, |_| {});
}

/// Checks the index entry of a handoff that concerns `party`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_mover_entry(
    tenant: TenantId,
    party: u64,
    handoff: HandoffId,
    value: &[u8],
) -> Result<(), InfraError> {
    open(&Key::HandoffIndex { tenant, party, handoff }, value)?.finish()
}

/// Replaces `out` by a handoff record; the payload belongs to `gossip-handoff`. `mark` identifies
/// this write if its reply is lost.
///
/// # Errors
///
/// [`HandoffTooLarge`]; `out` is as it was.
pub fn encode_handoff(
    tenant: TenantId,
    handoff: HandoffId,
    (mark, payload): (u64, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), HandoffTooLarge> {
    // Before `seal` replaces `out`, which stays as it was on failure.
    if payload.len() > HANDOFF_PAYLOAD_MAX {
        return Err(HandoffTooLarge { len: payload.len() });
    }
    seal(&Key::Handoff { tenant, handoff }, out, |out| write_handoff(out, mark, payload));
    Ok(())
}

/// Returns the stored mark and payload of `handoff`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_handoff(
    tenant: TenantId,
    handoff: HandoffId,
    value: &[u8],
) -> Result<(u64, &[u8]), InfraError> {
    let mut fields = open(&Key::Handoff { tenant, handoff }, value)?;
    let mark = fields.u64("mark")?;
    // The frame stores the length of the whole value, so the payload needs no length of its own.
    let payload = fields.remaining("record", HANDOFF_PAYLOAD_MAX)?;
    fields.finish()?;
    Ok((mark, payload))
}

pub(in crate::store) fn write_owner(out: &mut impl Put, owner: &OwnerBinding) {
    out.put_u64("owner", owner.owner.as_raw());
    out.put_u64("fence", owner.fence.as_raw());
    out.put_u64("token", owner.token.as_raw());
}

pub(in crate::store) fn write_parked_entry(out: &mut impl Put, context: ParkContext<'_>) {
    out.put_len("context_len", context.as_str().len());
    out.put("context", context.as_str().as_bytes());
}

pub(in crate::store) fn write_count(out: &mut impl Put, count: u64) {
    out.put_u64("count", count);
}

pub(in crate::store) fn write_allotment(out: &mut impl Put, allotment: Allotment) {
    out.put_u64("max_shards", allotment.max_shards);
}

pub(in crate::store) fn write_schema(out: &mut impl Put, format: u8) {
    out.put_u8("format", format);
}

pub(in crate::store) fn write_worker(out: &mut impl Put, entry: &WorkerEntry) {
    let watcher = entry.process.and_then(|process| process.watcher);
    let label = entry.process.and_then(|process| process.label);
    let flags = flag_if(entry.process.is_some(), HAS_PROCESS)
        | flag_if(watcher.is_some(), HAS_WATCHER)
        | flag_if(label.is_some(), HAS_LABEL);
    out.put_u8("flags", flags);
    out.put_u8("state", entry.state as u8);
    out.put_u64("expires_at", entry.expires_at.as_raw());
    if let Some(WorkerProcess { boot, pid_namespace, process, .. }) = &entry.process {
        out.put("boot", boot);
        out.put_u64("pid_namespace", *pid_namespace);
        out.put_u32("pid", process.pid);
        out.put_u64("started", process.started);
    }
    if let Some(watcher) = watcher {
        out.put_u32("watcher.pid", watcher.pid);
        out.put_u64("watcher.started", watcher.started);
    }
    if let Some(WorkerLabel { host, version, jobs }) = &label {
        for (names, text) in
            [(["host_len", "host"], host.as_str()), (["version_len", "version"], version.as_str())]
        {
            out.put_u8(names[0], u8::try_from(text.len()).expect("a short text"));
            out.put(names[1], text.as_bytes());
        }
        out.put_u16("jobs", *jobs);
    }
}

pub(in crate::store) fn write_handoff(out: &mut impl Put, mark: u64, payload: &[u8]) {
    out.put_u64("mark", mark);
    out.put("record", payload);
}
