//! The nonce of a coordinator handle.

use std::hash::BuildHasher as _;

/// Returns a number that no other handle has, for [`StoreConfig::new`](super::StoreConfig::new).
///
/// The standard library seeds each hash map with random bits from the system, so a keyed hash is 64
/// random bits without a further dependency. Two handles collide once in billions of handles.
///
/// A forked child inherits the bits of its parent. The process id and the time are therefore part
/// of the input, or two workers of one parent would accept each other's grants as their own.
#[must_use]
#[expect(clippy::disallowed_types, reason = "handles must differ; no result depends on the value")]
#[expect(clippy::disallowed_methods, reason = "the time is mixed in and never compared")]
pub fn fresh_nonce() -> u64 {
    let moment = std::time::Instant::now();
    std::hash::RandomState::new().hash_one((std::process::id(), moment))
}
