//! The run that all processes of a campaign work on, and the clock that they share.

use std::time::{SystemTime, UNIX_EPOCH};

use gossip_contracts::coordination::{CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId};

pub(crate) const TENANT: TenantId = TenantId::from_bytes([9; 32]);
pub(crate) const RUN: RunId = RunId::from_raw(1);

/// Returns the shards between consecutive edges, with ids from zero and cursors at their start.
pub(crate) fn shards_between<'e, const N: usize>(
    edges: &'e [[u8; N]],
    metadata: &'e [u8],
) -> Vec<InitialShardInput<'e>> {
    let shard = |(id, edges): (u64, &'e [[u8; N]])| InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: ShardSpecRef::new(&edges[0], &edges[1], metadata),
        cursor: CursorUpdate::initial(),
    };
    (0..).zip(edges.windows(2)).map(shard).collect()
}

/// Returns the time in milliseconds, the same for all processes.
pub(crate) fn now() -> LogicalTime {
    LogicalTime::from_raw(micros() / 1_000)
}

/// Returns the time in microseconds, the same for all processes.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
