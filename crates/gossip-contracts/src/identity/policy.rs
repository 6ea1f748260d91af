//! The policy of a scan, as one hash.
//!
//! Two scans with equal policy hashes searched for the same things in the same way. The content of
//! the rules is opaque here: their owner passes a digest of all of them.

use super::{CanonicalBytes, CanonicalHasher, Domain, PolicyHash};

/// How ids of secrets are computed. The numbers are hashed and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum IdHashMode {
    /// From the secret's digest alone.
    Unkeyed = 0,
    /// Keyed with the tenant's key: see [`SecretHash`](super::SecretHash).
    KeyedV1 = 1,
}

const _: () = assert!(IdHashMode::Unkeyed.as_u8() == 0 && IdHashMode::KeyedV1.as_u8() == 1);

impl IdHashMode {
    /// Returns the mode with this number, if there is one.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Unkeyed),
            1 => Some(Self::KeyedV1),
            _ => None,
        }
    }

    /// Returns the number of this mode.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

impl CanonicalBytes for IdHashMode {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u8(self.as_u8());
    }
}

/// The inputs of a policy hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyHashInputs {
    /// Version of the policy format.
    pub version: u32,
    /// How ids of secrets are computed.
    pub(crate) id_hash_mode: IdHashMode,
    /// Version of the format in which evidence is stored.
    pub(crate) evidence_version: u32,
    /// Digest of all rules, computed by their owner.
    pub(crate) rules_digest: [u8; 32],
}

impl PolicyHashInputs {
    /// The policy format that this code writes.
    pub(crate) const CURRENT_VERSION: u32 = 1;
    /// The evidence format that this code writes.
    pub(crate) const CURRENT_EVIDENCE_VERSION: u32 = 1;

    /// Returns the inputs with the current format versions.
    #[must_use]
    pub const fn current(id_hash_mode: IdHashMode, rules_digest: [u8; 32]) -> Self {
        Self {
            version: Self::CURRENT_VERSION,
            id_hash_mode,
            evidence_version: Self::CURRENT_EVIDENCE_VERSION,
            rules_digest,
        }
    }
}

impl CanonicalBytes for PolicyHashInputs {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u32(self.version);
        self.id_hash_mode.write_canonical(hasher);
        hasher.write_u32(self.evidence_version);
        hasher.write_raw(&self.rules_digest);
    }
}

impl PolicyHash {
    /// Returns the hash of a policy.
    #[must_use]
    pub fn derive(inputs: &PolicyHashInputs) -> Self {
        Self::from_bytes(Domain::POLICY_HASH_V2.digest(inputs))
    }
}
