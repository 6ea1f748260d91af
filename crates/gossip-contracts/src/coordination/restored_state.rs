//! What an acquire hands to the scan runtime.

use super::{Cursor, CursorSemantics, ShardSpec};

/// Everything a worker needs to go on where the shard's last owner stopped.
///
/// It owns its bytes, so it outlives the scratch buffers of the acquire that filled it. Its fields
/// are public because it is a message: the coordinator guarantees, at the time of the acquire, that
/// the cursor lies within the spec, and nothing depends on it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredShardState {
    /// The range to scan.
    pub spec: ShardSpec,
    /// Where to resume; initial for a shard never checkpointed.
    pub cursor: Cursor,
    /// What it means for the cursor to pass a key.
    pub cursor_semantics: CursorSemantics,
}

impl RestoredShardState {
    /// Bundles the three.
    #[must_use]
    pub const fn new(spec: ShardSpec, cursor: Cursor, cursor_semantics: CursorSemantics) -> Self {
        Self { spec, cursor, cursor_semantics }
    }
}
