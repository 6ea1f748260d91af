//! The 64-bit ids of the protocol, and the shard key they form.
//!
//! Ids carry no meaning but equality and order, with one exception: bit 63 of a [`ShardId`] tells
//! derived shards from roots. Whether an id may be zero is decided by whoever configures a worker,
//! never here.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// Defines a 64-bit id: the same type five times over, so that none can be passed for another.
macro_rules! id_64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The id with this number. Every number is an id.
            #[must_use]
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// The number of this id.
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
    /// One shard within a run. Roots keep bit 63 clear, shards derived by a split have it set.
    ShardId
);
id_64!(
    /// One worker process.
    WorkerId
);
id_64!(
    /// One attempt of a caller to change something, chosen by the caller.
    ///
    /// It should come from a cryptographic random source, or be derived in a domain of its own: a
    /// second operation that happens to carry the same id is refused as a conflict.
    OpId
);
id_64!(
    /// One job of a worker: a unit of work within a shard.
    JobId
);

impl ShardId {
    /// The bit that only shards derived by a split have.
    pub const DERIVED_BIT: u64 = 1 << 63;

    /// Whether a split made this shard; a root is not derived.
    #[must_use]
    pub const fn is_derived(self) -> bool {
        self.0 & Self::DERIVED_BIT != 0
    }
}

/// A shard within its run.
///
/// It has no order on purpose: records are visited in the order of an index that was chosen for
/// the purpose, never in the order that keys happen to compare in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardKey {
    run: RunId,
    shard: ShardId,
}

impl ShardKey {
    /// The key of `shard` in `run`.
    #[must_use]
    pub const fn new(run: RunId, shard: ShardId) -> Self {
        Self { run, shard }
    }

    /// The run.
    #[must_use]
    pub const fn run(self) -> RunId {
        self.run
    }

    /// The shard.
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
