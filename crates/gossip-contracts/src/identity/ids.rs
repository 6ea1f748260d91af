//! The 64-bit ids of the protocol, and the shard key they form.
//!
//! Ids have no meaning besides equality and order, with one exception: bit 63 of a [`ShardId`]
//! distinguishes derived shards from roots. The configuration of a worker decides whether an id may
//! be zero; these types do not.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// Defines a 64-bit id: five distinct types with one definition, so that none can be passed for
/// another.
macro_rules! id_64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Returns the id with this number. Every number is valid.
            #[must_use]
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// Returns the number of this id.
            #[must_use]
            pub const fn as_raw(self) -> u64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl CanonicalBytes for $name {
            #[inline]
            fn write_canonical(&self, hasher: &mut CanonicalHasher) {
                hasher.write_u64(self.0);
            }
        }
    };
}

id_64!(
    /// One run: one pass over one source.
    RunId
);
id_64!(
    /// One shard within a run. Bit 63 is clear in roots and set in shards derived by a split.
    ShardId
);
id_64!(
    /// One worker process.
    WorkerId
);
id_64!(
    /// One attempt of a caller to change state, chosen by the caller.
    ///
    /// It should come from a cryptographic random source, or be derived in a domain of its own: a
    /// different operation with the same id is rejected as a conflict.
    OpId
);
id_64!(
    /// One job of a worker: a unit of work within a shard.
    JobId
);

impl ShardId {
    /// The bit that is set only in shards derived by a split.
    pub const DERIVED_BIT: u64 = 1 << 63;

    /// Returns whether a split created this shard; roots are not derived.
    #[must_use]
    pub const fn is_derived(self) -> bool {
        self.0 & Self::DERIVED_BIT != 0
    }
}

/// A shard within its run.
///
/// It deliberately has no order: records are visited in the order of an index chosen for that
/// purpose, never in the incidental order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardKey {
    run: RunId,
    shard: ShardId,
}

impl ShardKey {
    /// Returns the key of `shard` in `run`.
    #[must_use]
    pub const fn new(run: RunId, shard: ShardId) -> Self {
        Self { run, shard }
    }

    /// Returns the run.
    #[must_use]
    pub const fn run(self) -> RunId {
        self.run
    }

    /// Returns the shard.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        self.shard
    }
}

impl CanonicalBytes for ShardKey {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.run.write_canonical(hasher);
        self.shard.write_canonical(hasher);
    }
}
