//! Canonical bytes of the data model: the input of payload hashes.
//!
//! | value | bytes |
//! |---|---|
//! | cursor | for last key, then token: 0, or 1 and the length-prefixed bytes |
//! | spec | start, end, metadata, each length-prefixed |
//! | cursor semantics | 1 byte, the stored number |
//! | replace plan | `u32` number of children, then spec and cursor of each, in the caller's order |
//! | residual plan | spec of the new parent, then spec of the residual |
//!
//! All in one file, because a change to any of them invalidates every stored payload hash.

use super::{
    Cursor, CursorSemantics, CursorUpdate, ShardSpec, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use crate::identity::{CanonicalBytes, CanonicalHasher};

impl CanonicalBytes for CursorUpdate<'_> {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        write_optional(self.last_key(), hasher);
        write_optional(self.token(), hasher);
    }
}

impl CanonicalBytes for Cursor {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.as_update().write_canonical(hasher);
    }
}

impl CanonicalBytes for CursorSemantics {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u8(self.as_u8());
    }
}

impl CanonicalBytes for ShardSpecRef<'_> {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_bytes_prefixed(self.start);
        hasher.write_bytes_prefixed(self.end);
        hasher.write_bytes_prefixed(self.metadata);
    }
}

impl CanonicalBytes for ShardSpec {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.as_spec_ref().write_canonical(hasher);
    }
}

impl CanonicalBytes for SplitChild<'_> {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.spec.write_canonical(hasher);
        self.cursor.write_canonical(hasher);
    }
}

impl CanonicalBytes for SplitReplacePlan<'_> {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        let count = u32::try_from(self.children().len());
        hasher.write_u32(count.expect("a plan has at most MAX_SPLIT_CHILDREN children"));
        for child in self.children() {
            child.write_canonical(hasher);
        }
    }
}

impl CanonicalBytes for SplitResidualPlan<'_> {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.new_parent().write_canonical(hasher);
        self.residual().write_canonical(hasher);
    }
}

fn write_optional(bytes: Option<&[u8]>, hasher: &mut CanonicalHasher) {
    match bytes {
        None => hasher.write_u8(0),
        Some(bytes) => {
            hasher.write_u8(1);
            hasher.write_bytes_prefixed(bytes);
        }
    }
}
