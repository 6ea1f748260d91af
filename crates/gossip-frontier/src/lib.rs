//! The translation layer between typed connector keys and the opaque byte ranges of coordination.
//!
//! Connectors work with file paths and row numbers; the coordination layer compares `&[u8]`. This
//! crate encodes the former as the latter in an order-preserving way, does arithmetic on the
//! result, encodes routing hints into shard metadata, and stages the first shards of a run.
//!
//! * [`key_encoding`]: typed keys, successor and midpoint arithmetic, ranges from typed keys.
//! * [`hint`]: the wire format of routing hints, shards built with a hint, hints across a split.
//! * [`builder`]: startup staging of initial shards into a borrowed arena.
//! * [`U64Key`], [`I64Key`], [`PairKey`]: order-preserving integers.
//! * [`encode_columns`], [`column_bound`]: keys of table rows, and places among them.
//! * [`KeyRange`]: a bounded range, and the widest ranges.
//! * [`split_points()`], [`split_points_by_density`]: where to split a range.
//!
//! ```
//! use gossip_frontier::{KeyBuf, KeyRange, split_points};
//!
//! // Split ["a", "y") into three parts of equal width.
//! let range = KeyRange::try_new(b"a", b"y")?;
//! let mut buffers = [KeyBuf::new(), KeyBuf::new()];
//! let points = split_points(range, 3, &mut buffers)?;
//! assert_eq!(&*points, [b"i", b"q"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate never depends on the coordination protocol, a connector or a store, reads no clock,
//! does no I/O and contains no unsafe code.
//!
//! # Invariants
//!
//! * Every comparison of keys is a plain lexicographic comparison of bytes, and every range is
//!   half-open: `[start, end)`.
//! * Output goes into buffers of the caller ([`KeyBuf`], [`MetadataBuf`], [`ShardSpecScratch`]).
//!   A borrowed result lives until its buffer is written again, which the borrow checker enforces.
//! * Invalid input is a typed error that contains lengths and numbers, never bytes of a key.

#![forbid(unsafe_code)]

pub mod builder;
mod column_keys;
pub mod hint;
mod integer_keys;
pub mod key_encoding;
mod key_range;
mod split_points;

pub use column_keys::{
    ColumnBound, ColumnKind, ColumnValue, column_bound, decode_columns, encode_columns,
    text_at_or_above, utf8_at_or_above,
};
pub use hint::{
    HintPropagationError, MetadataBuf, ShardEncodeError, ShardHint, ShardHintDecodeError,
    ShardMetadata, ShardMetadataDecodeError, ShardSpecScratch, SplitBoundary,
    decode_connector_extra, decode_hint, decode_metadata, manifest_shard_into, manifest_shard_ref,
    prefix_shard_into, prefix_shard_ref, propagate_hint_on_split, range_shard_into,
    range_shard_ref,
};
pub use integer_keys::{FixedWidthKey, I64Key, PairKey, U64Key};
pub use key_encoding::{
    BytePathKey, KeyBuf, KeyEncoding, KeyInputError, ManifestRowKey, PathKey, PrefixShardError,
    ShardIntoError, byte_midpoint, decode_manifest_row_key, key_successor, prefix_successor,
    shard_spec_from_keys_into, shard_spec_from_keys_ref, shard_spec_from_manifest_range_into,
    shard_spec_from_manifest_range_ref, shard_spec_from_prefix_into, shard_spec_from_prefix_ref,
};
pub use key_range::{KeyRange, KeyRangeError};
pub use split_points::{
    SPLIT_POINTS_MAX, SplitPoints, SplitPointsError, split_points, split_points_by_density,
};
