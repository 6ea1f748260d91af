//! The data model that every coordination backend shares.
//!
//! Shard ranges, cursors and the rules about them that need no store, no clock and no protocol
//! state. What the types say here holds for every backend, because every backend uses them.
//!
//! | file | owns |
//! |---|---|
//! | `cursor` | how far a shard has been scanned; what counts as progress |
//! | `shard_spec` | a shard's key range and metadata; what it means for a cursor to pass a key |
//! | `successor` | the next key |
//! | `manifest` | the root shards of a run |
//! | `restored_state` | what an acquire hands to the scan runtime |
//!
//! # Never
//! - reads a clock, a store or a random source;
//! - shows a byte of a key, token or metadata in an error or a `Debug` output: only lengths;
//! - decides who owns a shard (that is `gossip-coordination`) or what a key means (that is
//!   `gossip-frontier` and the connectors).

mod byte_len;
mod cursor;
mod manifest;
mod restored_state;
mod shard_spec;
mod successor;

pub use cursor::{
    Cursor, CursorAdvance, CursorBounds, CursorInputError, CursorUpdate, MAX_KEY_SIZE,
    MAX_TOKEN_SIZE, check_cursor_advance, check_cursor_bounds,
};
pub use manifest::{
    InitialShardInput, MAX_INITIAL_SHARDS, ManifestValidationError, validate_manifest,
};
pub use restored_state::RestoredShardState;
pub use shard_spec::{
    CursorSemantics, IntoShardSpecRef, MAX_METADATA_SIZE, ShardSpec, ShardSpecInputError,
    ShardSpecRef,
};
pub use successor::{key_successor_into, prefix_successor_into};

#[cfg(test)]
mod cursor_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod shard_spec_tests;
#[cfg(test)]
mod successor_tests;
