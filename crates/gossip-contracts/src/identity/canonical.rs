//! Canonical bytes: the only input encoding of hashes.
//!
//! The encoding is only ever hashed. It is never stored or parsed, and producing it never
//! allocates: values write themselves directly into a [`CanonicalHasher`].
//!
//! | Value | Encoding |
//! |---|---|
//! | `u8` | 1 byte |
//! | `u32`, `u64` | fixed width, little-endian |
//! | 32-byte array | 32 raw bytes |
//! | byte slice | `u32` length, then the bytes |
//! | 64-bit ids, epochs, times | as `u64` |
//! | tuple-like structs | their fields in order |
//! | fieldless enums | 1 byte, their stable number |
//!
//! # Speed
//!
//! A BLAKE3 hasher is 1,920 bytes and each `update` has a fixed cost; together these exceed the one
//! compression that a short input needs. Short inputs are therefore collected in a small buffer,
//! and a BLAKE3 hasher is created only at the end, from a context key that is computed once per
//! domain. The digest is exactly that of derive-key mode with the domain as context.
//!
//! Create a hasher where it is used, with [`CanonicalHasher::for_domain`], and write the
//! operation's tag into it. That is cheaper than cloning a tagged hasher, and cheaper than a
//! function that returns one, because a value of this size is never copied. The benchmark
//! `identity` compares these variants with bare keyed blocks.

use std::fmt;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt as _};

use super::{Domain, IdentityInputError};

/// Bytes buffered before BLAKE3 is called: four blocks, enough for a cursor with keys of usual
/// length and for any derivation in this module. Zeroing a larger buffer would cost more than it
/// saves.
const BUFFER_LEN: usize = 4 * blake3::BLOCK_LEN;

/// A value with one canonical sequence of bytes.
///
/// Implementations are injective (different values of one type never write the same bytes), do not
/// depend on the platform, and write without allocating.
pub trait CanonicalBytes {
    /// Writes the canonical bytes of `self` into `hasher`.
    fn write_canonical(&self, hasher: &mut CanonicalHasher);
}

/// A hasher in one domain that accepts canonical bytes.
///
/// ```
/// use gossip_contracts::identity::{CanonicalHasher, Domain};
///
/// let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
/// hasher.write_raw(b"park");
/// hasher.write_u8(3);
/// assert_eq!(
///     hasher.finalize_32(),
///     blake3::derive_key("gossip/coord/v1/op-payload", b"park\x03"),
/// );
/// ```
#[derive(Clone)]
pub struct CanonicalHasher {
    /// Context key that derive-key mode computes from the domain string.
    key: &'static ContextKey,
    /// Input not yet passed to BLAKE3; only the first `buffered` bytes are valid.
    buffer: [u8; BUFFER_LEN],
    buffered: usize,
    /// All input before the buffer. Present once the input has exceeded the buffer.
    spill: Option<Hasher>,
}

impl CanonicalHasher {
    /// Creates an empty hasher in `domain`.
    #[inline]
    #[must_use]
    pub fn for_domain(domain: Domain) -> Self {
        Self { key: domain.context_key(), buffer: [0; BUFFER_LEN], buffered: 0, spill: None }
    }

    /// Writes one byte.
    #[inline]
    pub fn write_u8(&mut self, value: u8) {
        self.write_raw(&[value]);
    }

    /// Writes four bytes, little-endian.
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.write_raw(&value.to_le_bytes());
    }

    /// Writes eight bytes, little-endian.
    #[inline]
    pub fn write_u64(&mut self, value: u64) {
        self.write_raw(&value.to_le_bytes());
    }

    /// Writes the length of `bytes` as `u32`, then `bytes`.
    ///
    /// # Panics
    ///
    /// If `bytes` has 4 GiB or more. All values hashed here were limited to far less when they were
    /// constructed.
    #[inline]
    pub fn write_bytes_prefixed(&mut self, bytes: &[u8]) {
        self.write_u32(prefix_of(bytes.len()));
        self.write_raw(bytes);
    }

    /// Writes `bytes` without a length. Only for values of fixed length, and for the leading tag
    /// where several operations share a domain: without a length, other values would not be
    /// injective.
    #[inline]
    pub fn write_raw(&mut self, bytes: &[u8]) {
        let free = self.buffer.get_mut(self.buffered..).unwrap_or_default();
        match free.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.buffered += bytes.len();
            }
            None => self.write_through(bytes),
        }
    }

    /// Returns the first 32 bytes of output.
    #[inline]
    #[must_use]
    pub fn finalize_32(&self) -> [u8; 32] {
        *self.finalize().as_bytes()
    }

    /// Returns the first 8 bytes of output as a little-endian number.
    #[inline]
    #[must_use]
    pub fn finalize_64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *self.finalize().as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Does the same as [`write_bytes_prefixed`](Self::write_bytes_prefixed) followed by
    /// [`finalize_64`](Self::finalize_64), without copying `last`: for values that mostly exceed
    /// the buffer, such as stored records.
    #[inline]
    #[must_use]
    pub fn finalize_64_with(&mut self, last: &[u8]) -> u64 {
        self.write_u32(prefix_of(last.len()));
        let rest = &self.buffer[..self.buffered];
        let digest = match &self.spill {
            None => Hasher::new_from_context_key(self.key).update(rest).update(last).finalize(),
            Some(hasher) => hasher.clone().update(rest).update(last).finalize(),
        };
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns the digest of all input so far. Takes a reference, because moving a hasher of this
    /// size costs as much as the hash.
    #[inline]
    fn finalize(&self) -> blake3::Hash {
        // Most inputs take the first arm: BLAKE3 receives them whole, in one call.
        let rest = &self.buffer[..self.buffered];
        match &self.spill {
            None => Hasher::new_from_context_key(self.key).update(rest).finalize(),
            Some(hasher) => finalize_long(hasher, rest),
        }
    }

    /// Passes the buffer and `bytes` to BLAKE3. Not inlined, to keep the short path small.
    #[cold]
    #[inline(never)]
    fn write_through(&mut self, bytes: &[u8]) {
        let hasher = self.spill.get_or_insert_with(|| Hasher::new_from_context_key(self.key));
        // `bytes` bypass the buffer: long input arrives in long slices, which a copy would only
        // delay.
        hasher.update(&self.buffer[..self.buffered]).update(bytes);
        self.buffered = 0;
    }
}

/// Returns the digest of the input of `hasher` followed by `rest`. Not inlined: its copy of the
/// hasher would double the stack frame of the short path.
#[cold]
#[inline(never)]
fn finalize_long(hasher: &Hasher, rest: &[u8]) -> blake3::Hash {
    hasher.clone().update(rest).finalize()
}

/// Shows how many bytes were written, never the bytes: they may be keys and tokens.
impl fmt::Debug for CanonicalHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spilled = self.spill.as_ref().map_or(0, Hasher::count);
        let input_len = spilled + self.buffered as u64;
        f.debug_struct("CanonicalHasher").field("input_len", &input_len).finish_non_exhaustive()
    }
}

/// Returns the length prefix of `len` bytes. See [`CanonicalHasher::write_bytes_prefixed`].
#[inline]
pub(super) fn prefix_of(len: usize) -> u32 {
    match try_prefix_of(len) {
        Ok(prefix) => prefix,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the length prefix of `len` bytes, for constructors that reject input too long to hash.
#[inline]
pub(super) fn try_prefix_of(len: usize) -> Result<u32, IdentityInputError> {
    u32::try_from(len).map_err(|_| IdentityInputError::InputTooLong { len })
}

impl CanonicalBytes for u8 {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u8(*self);
    }
}

impl CanonicalBytes for u32 {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u32(*self);
    }
}

impl CanonicalBytes for u64 {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u64(*self);
    }
}

impl CanonicalBytes for [u8; 32] {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_raw(self);
    }
}

impl CanonicalBytes for [u8] {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_bytes_prefixed(self);
    }
}
