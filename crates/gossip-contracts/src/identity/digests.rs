//! The 32-byte ids that may be shown: the tenant and the parts of findings.
//!
//! All of them are opaque bytes. For derived ids, `from_bytes` restores an id that was derived
//! earlier; it cannot verify the derivation.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// Defines a 32-byte id without `Debug` and `Display`.
macro_rules! id_32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Returns the id with these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Returns the bytes of this id.
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
    /// One tenant: the first part of every key, so that no tenant can reach another's records.
    ///
    /// `Debug` shows no byte and there is no `Display`: errors carry this id, and an error must not
    /// reveal a tenant to another.
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
    /// The search policy of a scan: rules, id mode, evidence format.
    PolicyHash
);
shown_id_32!(
    /// One rule, in the form in which it matched. Computed by the component that owns the rules.
    RuleFingerprint
);
shown_id_32!(
    /// One secret that one rule found in one item of one tenant, at any position in the item.
    FindingId
);
shown_id_32!(
    /// One position of a finding in one version of an item.
    OccurrenceId
);
shown_id_32!(
    /// One occurrence, observed by one tenant under one policy.
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
    /// One installation of a connector: distinguishes two installations with equal locators.
    ConnectorInstanceIdHash
);
