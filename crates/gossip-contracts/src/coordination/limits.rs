//! How far one shard may multiply.

/// Most children of one split-replace: what one transaction of a small engine can still publish,
/// and what a plan can hold on the stack.
pub const MAX_SPLIT_CHILDREN: usize = 256;

/// Fewest children of a split-replace; one child would be the parent again.
pub const MIN_SPLIT_CHILDREN: usize = 2;

/// Most shards that one parent may spawn over its life, children and residuals together. It bounds
/// the record that lists them.
pub const MAX_SPAWNED_PER_SHARD: usize = 1024;

const _: () = assert!(MIN_SPLIT_CHILDREN < MAX_SPLIT_CHILDREN);
// A fresh shard can always be split as widely as a plan allows.
const _: () = assert!(MAX_SPLIT_CHILDREN <= MAX_SPAWNED_PER_SHARD);
// Canonical encoding and coverage order both count children in u32.
const _: () = assert!(MAX_SPAWNED_PER_SHARD <= u32::MAX as usize);
