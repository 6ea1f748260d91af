//! The data model that every coordination backend shares.
//!
//! Shard ranges, cursors and the rules about them that need no store, no clock and no protocol
//! state. Every backend uses these types, so their guarantees hold for every backend.
//!
//! | file | owns |
//! |---|---|
//! | `cursor` | how far a shard has been scanned; the definition of progress |
//! | `shard_spec` | a shard's key range and metadata; when a cursor may pass a key |
//! | `pooled` | specs, cursors and spawned ids whose bytes are stored in a slab |
//! | `arena` | specs in a slab, addressed by handles |
//! | `coverage` | whether the parts of a split tile the parent |
//! | `split` | plans for the two kinds of split |
//! | `successor` | the next key |
//! | `manifest` | the root shards of a run |
//! | `limits` | how many shards one shard can produce |
//! | `restored_state` | the state that an acquire returns to the scan runtime |
//! | `canonical` | the input of payload hashes |
//!
//! # Never
//! - reads a clock, a store or a random source;
//! - shows a byte of a key, token or metadata in an error or a `Debug` output: only lengths;
//! - decides who owns a shard (`gossip-coordination` does) or interprets a key (`gossip-frontier`
//!   and the connectors do).

mod arena;
mod byte_len;
mod canonical;
mod coverage;
mod cursor;
mod limits;
mod manifest;
mod pooled;
mod restored_state;
mod shard_spec;
mod split;
mod successor;

pub use arena::{ShardArena, ShardArenaTooLarge, ShardSpecHandle};
pub use coverage::{
    ShardLimitScope, SplitValidationError, validate_residual_parent_cursor,
    validate_residual_split, validate_residual_split_bounds, validate_split_coverage,
};
pub use cursor::{
    Cursor, CursorAdvance, CursorBounds, CursorInputError, CursorUpdate, MAX_KEY_SIZE,
    MAX_TOKEN_SIZE, check_cursor_advance, check_cursor_bounds,
};
pub use limits::{MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, MIN_SPLIT_CHILDREN};
pub use manifest::{
    InitialShardInput, MAX_INITIAL_SHARDS, ManifestValidationError, validate_manifest,
};
pub use pooled::{PooledCursor, PooledShardSpec, PooledSpawned, PooledSpawnedError};
pub use restored_state::RestoredShardState;
pub use shard_spec::{
    CursorSemantics, IntoShardSpecRef, MAX_METADATA_SIZE, ShardSpec, ShardSpecInputError,
    ShardSpecRef,
};
pub use split::{
    PlanSplitReplaceError, PlanSplitResidualError, SplitChild, SplitReplacePlan,
    SplitReplacePlanError, SplitResidualPlan, SplitResidualPlanError, plan_split_replace,
    plan_split_replace_at_points, plan_split_replace_at_points_initial_cursor,
    plan_split_replace_at_points_with_cursor, plan_split_residual, plan_split_residual_at_point,
    plan_split_residual_from_cursor, validate_split_child_cursors,
};
pub use successor::{key_successor_into, prefix_successor_into};

#[cfg(test)]
mod arena_tests;
#[cfg(test)]
mod canonical_tests;
#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod cursor_tests;
#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod pooled_tests;
#[cfg(test)]
mod redaction_tests;
#[cfg(test)]
mod shard_spec_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod successor_tests;
