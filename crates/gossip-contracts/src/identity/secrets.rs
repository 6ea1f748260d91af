//! Hashes of secrets, keyed so that they are useless to other parties.
//!
//! A detector reduces a secret to a [`NormHash`]. It is the same for every tenant, so a party that
//! holds one can test guesses. Only the [`SecretHash`], keyed with the tenant's own key, may be
//! stored.
//!
//! Nothing here prints a byte, and every comparison takes the same time regardless of where the
//! values differ (the fields are [`blake3::Hash`], whose equality is constant-time). There is no
//! order and no `std` hash: both would compare byte by byte. Memory is not wiped on drop: copies
//! made by the compiler would be missed, and safe code cannot guarantee it.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher, Domain};

/// Length of the keyed hash input of a secret: the domain string, then 32 bytes.
const SECRET_HASH_INPUT_LEN: usize = Domain::SECRET_HASH_V1.as_str().len() + 32;

// One block: a single compression for every secret.
const _: () = assert!(SECRET_HASH_INPUT_LEN <= blake3::BLOCK_LEN);

/// The digest of a normalised secret, the same for every tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NormHash(blake3::Hash);

impl NormHash {
    /// Wraps a digest that a detector computed.
    #[must_use]
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Self(blake3::Hash::from_bytes(digest))
    }

    /// Returns the bytes of the digest. Do not store or print them: they allow testing guesses.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for NormHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NormHash(<redacted>)")
    }
}

impl CanonicalBytes for NormHash {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_raw(self.as_bytes());
    }
}

/// A secret in the form that one tenant may store. Only [`SecretHash::derive`] creates one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretHash(blake3::Hash);

impl SecretHash {
    /// Returns the hash of a secret under a tenant's key.
    ///
    /// The tenant's key is BLAKE3's key, so the domain string is data: the only derivation in keyed
    /// mode instead of derive-key mode.
    #[must_use]
    pub fn derive(key: &TenantSecretKey, norm: &NormHash) -> Self {
        let mut input = [0; SECRET_HASH_INPUT_LEN];
        let (domain, digest) = input.split_at_mut(Domain::SECRET_HASH_V1.as_str().len());
        domain.copy_from_slice(Domain::SECRET_HASH_V1.as_str().as_bytes());
        digest.copy_from_slice(norm.as_bytes());
        Self(blake3::keyed_hash(key.0.as_bytes(), &input))
    }

    /// Returns the bytes of the hash, for a sink that stores them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(<redacted>)")
    }
}

impl CanonicalBytes for SecretHash {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_raw(self.as_bytes());
    }
}

/// The key of one tenant. It cannot be read back, ordered or hashed, and is not copied implicitly.
#[derive(Clone, PartialEq, Eq)]
pub struct TenantSecretKey(blake3::Hash);

impl TenantSecretKey {
    /// Returns the key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(blake3::Hash::from_bytes(bytes))
    }
}

impl fmt::Debug for TenantSecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantSecretKey(<redacted>)")
    }
}
