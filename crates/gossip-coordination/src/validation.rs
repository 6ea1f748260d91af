//! The checks that operations share, and their order.
//!
//! Every operation under a lease has four checks, in this order:
//!
//! 1. **Idempotency** ([`check_op_idempotency`]) — first, so that a retry returns its result even
//!    after its lease expired or its shard ended.
//! 2. **Lease** ([`validate_lease`]) — tenant, terminal status, fence, expiry, owner: a wrong
//!    tenant learns nothing, and a stale fence is refused before the clock is considered.
//! 3. **Sequence** — an operation that a later one of the lease overtook is not executed.
//! 4. **Arguments** — the operation's own rules, such as
//!    [`validate_cursor_update_pooled`].
//!
//! The public functions return the seeds' [`CoordError`]. The kernel calls the same checks with
//! their small errors.

use gossip_contracts::coordination::{
    CursorAdvance, CursorBounds, CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE, PooledCursor,
    PooledShardSpec, ShardSpecRef, check_cursor_advance, check_cursor_bounds,
};
use gossip_contracts::identity::{LogicalTime, OpId, TenantId};
use gossip_stdx::ByteSlab;

use crate::error::{CoordError, CursorOutOfBoundsDetail};
use crate::lease::{Lease, OpLog, OpLogEntry, OpSequence};
use crate::record::ShardRecord;
use crate::refusal::{CursorRefusal, KeyMissing, LeaseRefusal, OpIdReused, OpOvertaken};

/// Returns `Some` if `op_id` was executed before, to be replayed; `None` otherwise.
///
/// # Errors
///
/// [`CoordError::OpIdConflict`] if it was used with other parameters.
///
/// # Panics
///
/// If `payload_hash` is zero, which no hash function of this crate returns.
pub fn check_op_idempotency(
    op_log: &OpLog,
    op_id: OpId,
    payload_hash: u64,
) -> Result<Option<&OpLogEntry>, CoordError> {
    Ok(find_replay(op_log, op_id, payload_hash)?)
}

/// Whether `lease` allows its holder to change `record` at `now`.
///
/// # Errors
///
/// The first rung that fails: [`CoordError::TenantMismatch`], [`CoordError::ShardTerminal`],
/// [`CoordError::StaleFence`], [`CoordError::LeaseExpired`], and [`CoordError::StaleFence`] again
/// for another owner at the same fence.
///
/// # Panics
///
/// If `now` is zero, which no clock reports.
pub fn validate_lease(
    now: LogicalTime,
    tenant: TenantId,
    lease: &Lease,
    record: &ShardRecord,
) -> Result<(), CoordError> {
    Ok(check_lease(now, tenant, lease, record)?)
}

/// Whether `new_cursor` may replace the stored one: key present, key size, token size, no
/// regression, within bounds — in that order.
///
/// # Errors
///
/// [`CoordError::CheckpointMissingKey`], [`CoordError::CursorKeyTooLarge`],
/// [`CoordError::CursorTokenTooLarge`], [`CoordError::CursorRegression`],
/// [`CoordError::CursorOutOfBounds`].
pub fn validate_cursor_update_pooled(
    new_cursor: CursorUpdate<'_>,
    old_cursor: &PooledCursor,
    spec: &PooledShardSpec,
    slab: &ByteSlab,
) -> Result<(), CoordError> {
    check_key_present(new_cursor)?;
    Ok(check_cursor(new_cursor, old_cursor.view(slab), spec.view(slab))?)
}

pub(crate) fn find_replay(
    op_log: &OpLog,
    op_id: OpId,
    payload_hash: u64,
) -> Result<Option<&OpLogEntry>, OpIdReused> {
    assert!(payload_hash != 0, "a payload hash is never zero");
    let Some(entry) = op_log.find(op_id) else {
        return Ok(None);
    };
    let expected_hash = entry.payload_hash();
    if expected_hash != payload_hash {
        return Err(OpIdReused { op_id, expected_hash, actual_hash: payload_hash });
    }
    Ok(Some(entry))
}

/// Checks a lease. **This is where a stale fence is refused.**
pub(crate) fn check_lease(
    now: LogicalTime,
    tenant: TenantId,
    lease: &Lease,
    record: &ShardRecord,
) -> Result<(), LeaseRefusal> {
    assert!(now > LogicalTime::ZERO, "time zero means a broken clock");
    let presented = lease.fence();
    let current = record.fence_epoch();

    // First, so that a foreign tenant learns neither the status nor the fence of the shard.
    if record.tenant() != tenant || lease.tenant() != tenant {
        return Err(LeaseRefusal::TenantMismatch { expected: tenant });
    }
    if record.status().is_terminal() {
        return Err(LeaseRefusal::ShardTerminal { shard: record.key(), status: record.status() });
    }
    // Before the clock: a stale fence must be refused even by a process whose clock lags behind.
    if presented != current {
        return Err(LeaseRefusal::StaleFence { presented, current });
    }
    // No holder at the same fence: the lease was released, and only a new grant helps.
    let Some(holder) = record.lease() else {
        return Err(LeaseRefusal::StaleFence { presented, current });
    };
    if now >= holder.deadline() {
        return Err(LeaseRefusal::LeaseExpired { deadline: holder.deadline(), now });
    }
    // Fences repeat after a restore, so an equal one may be that of another worker.
    if holder.owner() != lease.owner() {
        return Err(LeaseRefusal::StaleFence { presented, current });
    }
    assert!(record.is_leased_at(now), "a checked lease is live");
    Ok(())
}

/// Refuses an operation at or below the highest sequence executed under its lease.
///
/// The caller has looked for the operation in `op_log`: it is a duplicate that the log has dropped,
/// or a first delivery that a later operation overtook. The two cannot be distinguished, and
/// executing a duplicate again is the worse of the two mistakes. For after [`check_lease`], because
/// sequences of different leases are not comparable.
pub(crate) fn check_sequence(
    op_log: &OpLog,
    lease: &Lease,
    op_id: OpId,
) -> Result<(), OpOvertaken> {
    let (presented, executed) = (lease.sequence(), op_log.sequence());
    if presented != OpSequence::NONE && presented <= executed {
        return Err(OpOvertaken { op_id, presented, executed });
    }
    Ok(())
}

pub(crate) fn check_key_present(cursor: CursorUpdate<'_>) -> Result<(), KeyMissing> {
    cursor.last_key().map(|_| ()).ok_or(KeyMissing)
}

/// The cursor's own rules behind key presence.
pub(crate) fn check_cursor(
    new: CursorUpdate<'_>,
    old: CursorUpdate<'_>,
    spec: ShardSpecRef<'_>,
) -> Result<(), CursorRefusal> {
    let key_len = new.last_key().map(<[u8]>::len);
    let token_len = new.token().map_or(0, <[u8]>::len);

    if let Some(size) = key_len.filter(|len| *len > MAX_KEY_SIZE) {
        return Err(CursorRefusal::KeyTooLarge { size, max: MAX_KEY_SIZE });
    }
    if token_len > MAX_TOKEN_SIZE {
        return Err(CursorRefusal::TokenTooLarge { size: token_len, max: MAX_TOKEN_SIZE });
    }
    match check_cursor_advance(old.last_key(), new.last_key()) {
        CursorAdvance::Forward => {}
        CursorAdvance::Regression | CursorAdvance::ResetToNone => {
            let old_key = old.last_key().map(<[u8]>::len);
            return Err(CursorRefusal::Regression { old_key, new_key: key_len });
        }
    }
    match check_cursor_bounds(new.last_key(), spec.start, spec.end) {
        CursorBounds::NoKey | CursorBounds::InBounds => Ok(()),
        CursorBounds::BelowRange | CursorBounds::AboveRange => {
            Err(CursorRefusal::OutOfBounds(CursorOutOfBoundsDetail {
                last_key: key_len.unwrap_or(0),
                spec_start: spec.start.len(),
                spec_end: spec.end.len(),
            }))
        }
    }
}
