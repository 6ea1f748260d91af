//! Side records: failed items and blocks of results.

use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::fields::{Put, flag_if};
use super::frame::{open, seal};
use crate::error::InfraError;
use crate::record::holds;
use crate::side_records::{
    ExitCause, FAILURE_STDERR_MAX, FAILURE_TEXT_MAX, FailureKind, FailureRecord, HOST_NAME_MAX,
    RESULT_BLOCK_MAX, ResultBlock,
};
use crate::store::key::Key;

/// Flags of a failure: how the command ended.
const HAS_CODE: u8 = 1;
const HAS_SIGNAL: u8 = 2;
const FAILURE_FLAGS: u8 = HAS_CODE | HAS_SIGNAL;

/// Replaces `out` by a failure record of `shard`.
///
/// # Panics
///
/// Panics if a text is longer than its limit.
pub fn encode_failure(
    tenant: TenantId,
    shard: ShardKey,
    failure: &FailureRecord,
    out: &mut Vec<u8>,
) {
    let key = Key::Failure { tenant, shard, number: failure.number() };
    seal(&key, out, |out| write_failure(out, failure));
}

/// Reads the failure record that is stored under `number` of `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_failure(
    tenant: TenantId,
    shard: ShardKey,
    number: u64,
    value: &[u8],
) -> Result<FailureRecord, InfraError> {
    let mut fields = open(&Key::Failure { tenant, shard, number }, value)?;
    let flags = fields.flags("flags", FAILURE_FLAGS)?;
    let kind = fields.number("kind", FailureKind::from_u8)?;
    let (tries, pid) = (fields.u32("tries")?, fields.u32("pid")?);
    let at = LogicalTime::from_raw(fields.u64("at")?);
    let key_len = fields.len("key_len", MAX_KEY_SIZE)?;
    let place_len = fields.len("place_len", FAILURE_TEXT_MAX)?;
    let host_len = fields.len("host_len", HOST_NAME_MAX)?;
    let message_len = fields.len("message_len", FAILURE_TEXT_MAX)?;
    let stderr_len = fields.len("stderr_len", FAILURE_STDERR_MAX)?;
    // The bits of a signed number, as they were written.
    let code = flags.optional(HAS_CODE, || fields.u32("exit.code").map(u32::cast_signed))?;
    let signal = flags.optional(HAS_SIGNAL, || fields.u32("exit.signal").map(u32::cast_signed))?;
    let exit = code.map(ExitCause::Code).or_else(|| signal.map(ExitCause::Signal));
    fields.require(holds(
        code.is_none() || signal.is_none(),
        "a command exits or is ended by a signal",
    ))?;
    fields.require(holds(key_len > 0, "a failure names its item"))?;
    let key = fields.bytes("key", key_len)?.into();
    let mut text = |field, len| {
        let bytes = fields.bytes(field, len)?;
        str::from_utf8(bytes).map(Box::from).map_err(|error| fields.refuse(field, error))
    };
    let (place, host) = (text("place", place_len)?, text("host", host_len)?);
    let message = text("message", message_len)?;
    let stderr = fields.bytes("stderr", stderr_len)?.into();
    fields.finish()?;
    let failure = FailureRecord { key, place, kind, exit, tries, at, host, pid, message, stderr };
    // The checksum covers the number, so only a writer that derives it otherwise gets here.
    match failure.number() == number {
        true => Ok(failure),
        false => Err(super::fields::corrupt(
            Key::Failure { tenant, shard, number }.kind(),
            "the number is not that of the item",
        )),
    }
}

/// Replaces `out` by a block of results of `shard`.
///
/// # Panics
///
/// Panics if the block is longer than [`RESULT_BLOCK_MAX`].
pub fn encode_results(tenant: TenantId, shard: ShardKey, block: &ResultBlock, out: &mut Vec<u8>) {
    let key = Key::ResultBlock { tenant, shard, block: block.number };
    seal(&key, out, |out| write_results(out, block));
}

/// Reads the block of results that is stored under `number` of `shard`.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if the value is damaged.
pub fn decode_results(
    tenant: TenantId,
    shard: ShardKey,
    number: u64,
    value: &[u8],
) -> Result<ResultBlock, InfraError> {
    let mut fields = open(&Key::ResultBlock { tenant, shard, block: number }, value)?;
    // The frame stores the length of the whole value.
    let content = fields.remaining("content", RESULT_BLOCK_MAX)?.into();
    fields.finish()?;
    Ok(ResultBlock { number, content })
}

pub(in crate::store) fn write_failure(out: &mut impl Put, failure: &FailureRecord) {
    let FailureRecord { key, place, kind, exit, tries, at, host, pid, message, stderr } = failure;
    let (code, signal) = match exit {
        Some(ExitCause::Code(code)) => (Some(*code), None),
        Some(ExitCause::Signal(signal)) => (None, Some(*signal)),
        None => (None, None),
    };
    out.put_u8("flags", flag_if(code.is_some(), HAS_CODE) | flag_if(signal.is_some(), HAS_SIGNAL));
    out.put_u8("kind", *kind as u8);
    out.put_u32("tries", *tries);
    out.put_u32("pid", *pid);
    out.put_u64("at", at.as_raw());
    for (field, len, max) in [
        ("key_len", key.len(), MAX_KEY_SIZE),
        ("place_len", place.len(), FAILURE_TEXT_MAX),
        ("host_len", host.len(), HOST_NAME_MAX),
        ("message_len", message.len(), FAILURE_TEXT_MAX),
        ("stderr_len", stderr.len(), FAILURE_STDERR_MAX),
    ] {
        assert!(len <= max, "side records are within their limits");
        out.put_len(field, len);
    }
    if let Some(code) = code {
        out.put_u32("exit.code", code.cast_unsigned());
    }
    if let Some(signal) = signal {
        out.put_u32("exit.signal", signal.cast_unsigned());
    }
    out.put("key", key);
    out.put("place", place.as_bytes());
    out.put("host", host.as_bytes());
    out.put("message", message.as_bytes());
    out.put("stderr", stderr);
}

pub(in crate::store) fn write_results(out: &mut impl Put, block: &ResultBlock) {
    assert!(block.content.len() <= RESULT_BLOCK_MAX, "side records are within their limits");
    out.put("content", &block.content);
}
