//! The state that an acquire returns to the scan runtime.

use super::{Cursor, CursorSemantics, ShardSpec};

/// The state that a worker needs to resume where the shard's last owner stopped.
///
/// It owns its bytes, so it outlives the scratch buffers of the acquire that filled it. Its fields
/// are public because it is a message: the coordinator guarantees, at the time of the acquire, that
/// the cursor lies within the spec, and nothing depends on it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredShardState {
    /// The range to scan.
    pub spec: ShardSpec,
    /// The cursor to resume from; initial for a shard that was never checkpointed.
    pub cursor: Cursor,
    /// When the cursor may pass a key.
    pub cursor_semantics: CursorSemantics,
}

impl RestoredShardState {
    /// Creates the state from its parts.
    #[must_use]
    pub const fn new(spec: ShardSpec, cursor: Cursor, cursor_semantics: CursorSemantics) -> Self {
        Self { spec, cursor, cursor_semantics }
    }
}
