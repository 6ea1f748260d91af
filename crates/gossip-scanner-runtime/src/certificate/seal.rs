//! The hash over a certificate, and its signature.

use std::fmt;

use gossip_contracts::identity::{CanonicalHasher, Domain};
use thiserror::Error;

/// The shortest key that is accepted: a shorter one can be guessed.
pub(crate) const SIGNING_KEY_LEN_MIN: usize = 16;

/// The longest key that is accepted: a longer one is a file given by mistake.
pub const SIGNING_KEY_LEN_MAX: usize = 4096;

/// A key that signs certificates and checks signatures.
///
/// The same key does both, so everyone who can check can also sign.
#[derive(Clone)]
pub struct SigningKey {
    /// Derived from what the user gave, in a domain of its own.
    key: [u8; 32],
}

impl SigningKey {
    /// Takes the bytes that a user gives as a key.
    ///
    /// # Errors
    ///
    /// Too few or too many.
    pub fn try_new(bytes: &[u8]) -> Result<Self, SigningKeyError> {
        let (len, min, max) = (bytes.len(), SIGNING_KEY_LEN_MIN, SIGNING_KEY_LEN_MAX);
        if !(min..=max).contains(&len) {
            return Err(SigningKeyError { len, min, max });
        }
        // Derived in a domain of its own: signatures reveal nothing about a key that is used
        // elsewhere too.
        let mut hasher = CanonicalHasher::for_domain(Domain::CERTIFICATE_SIGNATURE_KEY_V1);
        hasher.write_bytes_prefixed(bytes);
        Ok(Self { key: hasher.finalize_32() })
    }

    pub(super) fn sign(&self, hash: &[u8; 32]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, hash).as_bytes()
    }

    /// Compares in constant time, so that a signature cannot be found byte by byte.
    pub(super) fn has_signed(&self, hash: &[u8; 32], signature: &[u8; 32]) -> bool {
        blake3::keyed_hash(&self.key, hash) == *signature
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

/// Bytes that are no key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a signing key of {len} bytes; {min} to {max} are accepted")]
pub struct SigningKeyError {
    /// Bytes given.
    pub(crate) len: usize,
    /// [`SIGNING_KEY_LEN_MIN`].
    pub(crate) min: usize,
    /// [`SIGNING_KEY_LEN_MAX`].
    pub(crate) max: usize,
}

/// The hash over everything that is sealed, as it grows.
pub(super) struct SealHash(CanonicalHasher);

impl SealHash {
    pub(super) fn new() -> Self {
        Self(CanonicalHasher::for_domain(Domain::CERTIFICATE_V1))
    }

    /// Adds a line and the line feed behind it. Nothing else goes into this hash, so no lengths are
    /// needed to tell one input from another.
    pub(super) fn add(&mut self, line: &[u8]) {
        self.0.write_raw(line);
        self.0.write_raw(b"\n");
    }

    pub(super) fn finish(&self) -> [u8; 32] {
        self.0.finalize_32()
    }
}
