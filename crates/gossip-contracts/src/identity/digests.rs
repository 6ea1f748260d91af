//! The 32-byte ids that may be seen: the tenant, and what findings are made of.
//!
//! All of them are opaque bytes. Where an id is derived, `from_bytes` is for reading back what was
//! derived earlier; it cannot tell whether that is so.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// Defines a 32-byte id with everything but its formatting.
macro_rules! id_32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The id with these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The bytes of this id.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl CanonicalBytes for $name {
            #[inline]
            fn write_canonical(&self, hasher: &mut CanonicalHasher) {
                hasher.write_raw(&self.0);
            }
        }
    };
}

id_32!(
    /// One tenant: the outermost part of every key, so that one never finds another's records.
    ///
    /// Its `Debug` shows no byte and it has no `Display`: errors carry it, and an error must not
    /// name a tenant to another.
    TenantId
);

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantId(..)")
    }
}

/// Defines a 32-byte id that reports and logs may show, as lower-case hexadecimal digits.
macro_rules! shown_id_32 {
    ($(#[$doc:meta])* $name:ident) => {
        id_32!($(#[$doc])* $name);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&blake3::Hash::from_bytes(self.0).to_hex())
            }
        }
    };
}

shown_id_32!(
    /// What a scan was told to look for, and how: rules, id mode, evidence format.
    PolicyHash
);
shown_id_32!(
    /// One rule, as it was written when it matched. Whoever owns the rules computes it.
    RuleFingerprint
);
shown_id_32!(
    /// One secret that one rule found in one item of one tenant, wherever in the item it stands.
    FindingId
);
shown_id_32!(
    /// One place in one version of an item where a finding stands.
    OccurrenceId
);
shown_id_32!(
    /// One occurrence as seen by one tenant under one policy.
    ObservationId
);
shown_id_32!(
    /// One item of a source, the same across its versions and across runs.
    StableItemId
);
shown_id_32!(
    /// One version of an item's content.
    ObjectVersionId
);
shown_id_32!(
    /// One installation of a connector: keeps two of them apart that hold equal locators.
    ConnectorInstanceIdHash
);
