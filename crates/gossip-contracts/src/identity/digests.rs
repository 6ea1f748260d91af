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
