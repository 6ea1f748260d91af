//! Limits on the number of shards that one shard can produce.

/// Maximum number of children of one split-replace: one transaction of a small engine can still
/// publish them, and a plan can hold them on the stack.
pub const MAX_SPLIT_CHILDREN: usize = 256;

/// Minimum number of children of a split-replace; one child would equal the parent.
pub const MIN_SPLIT_CHILDREN: usize = 2;

/// Maximum number of shards that one parent may spawn in total, children and residuals together.
/// Limits the size of the record that lists them.
pub const MAX_SPAWNED_PER_SHARD: usize = 1024;

const _: () = assert!(MIN_SPLIT_CHILDREN < MAX_SPLIT_CHILDREN);
// A fresh shard can always be split into as many children as a plan allows.
const _: () = assert!(MAX_SPLIT_CHILDREN <= MAX_SPAWNED_PER_SHARD);
// Canonical encoding and coverage both count children in u32.
const _: () = assert!(MAX_SPAWNED_PER_SHARD <= u32::MAX as usize);
