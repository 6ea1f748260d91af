//! Order-preserving keys for integers and pairs of them.
//!
//! Fixed width, big-endian, so that byte order is numeric order:
//!
//! | key | bytes | encoding |
//! |---|---|---|
//! | [`U64Key`] | 8 | big-endian |
//! | [`I64Key`] | 8 | big-endian, sign bit flipped: negative numbers sort first |
//! | [`PairKey`] | the sum | first part, then second; no delimiter is needed at fixed width |
//!
//! Decoders accept exactly the encoded width, and every value of that width is a valid key, so
//! encoding and decoding are inverse bijections. Nothing here has variable width.

use gossip_contracts::coordination::MAX_KEY_SIZE;

use crate::key_encoding::{KeyBuf, KeyEncoding, ManifestRowKey, decode_manifest_row_key};

/// A [`KeyEncoding`] whose encodings all have the same length, so that it can be part of a pair.
///
/// [`Self::write_fixed`] writes the same bytes as [`KeyEncoding::encode_into`] and makes the same
/// guarantees.
pub trait FixedWidthKey: KeyEncoding {
    /// Length of every encoding, between 1 and [`MAX_KEY_SIZE`].
    const WIDTH: usize;

    /// Writes the encoding to the front of `out` and returns the rest of `out`.
    ///
    /// Returns `None` if `out` is shorter than [`Self::WIDTH`]; its content is then unspecified.
    #[must_use = "a key that does not fit is not written"]
    fn write_fixed<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]>;

    /// Decodes a key; returns `None` unless `key` is [`Self::WIDTH`] bytes long.
    fn decode(key: &[u8]) -> Option<Self>;
}

/// An unsigned integer as 8 big-endian bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct U64Key(
    /// The integer; all values are valid.
    pub u64,
);

impl FixedWidthKey for U64Key {
    const WIDTH: usize = size_of::<u64>();

    fn write_fixed<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let (front, rest) = out.split_first_chunk_mut()?;
        *front = self.0.to_be_bytes();
        Some(rest)
    }

    fn decode(key: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(key.try_into().ok()?)))
    }
}

impl KeyEncoding for U64Key {
    fn encode_into(&self, buf: &mut KeyBuf) {
        encode_fixed(self, buf);
    }
}

/// A signed integer as 8 big-endian bytes with the sign bit flipped.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct I64Key(
    /// The integer; all values are valid.
    pub i64,
);

impl I64Key {
    /// Set for non-negative numbers, so that they sort after the negative ones.
    const SIGN_BIT: u64 = 1 << 63;
}

impl FixedWidthKey for I64Key {
    const WIDTH: usize = size_of::<i64>();

    fn write_fixed<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        // In two's complement the negative numbers have the sign bit and would sort above all
        // others.
        U64Key(self.0.cast_unsigned() ^ Self::SIGN_BIT).write_fixed(out)
    }

    fn decode(key: &[u8]) -> Option<Self> {
        let U64Key(shifted) = U64Key::decode(key)?;
        Some(Self((shifted ^ Self::SIGN_BIT).cast_signed()))
    }
}

impl KeyEncoding for I64Key {
    fn encode_into(&self, buf: &mut KeyBuf) {
        encode_fixed(self, buf);
    }
}

/// Two fixed-width keys, compared as a tuple: by the first, then by the second.
///
/// Pairs nest, as long as the result fits into a key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PairKey<A, B>(
    /// The part compared first.
    pub A,
    /// The part compared among equal first parts.
    pub B,
);

impl<A: FixedWidthKey, B: FixedWidthKey> FixedWidthKey for PairKey<A, B> {
    const WIDTH: usize = A::WIDTH + B::WIDTH;

    fn write_fixed<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        self.1.write_fixed(self.0.write_fixed(out)?)
    }

    fn decode(key: &[u8]) -> Option<Self> {
        // The parts check their lengths themselves, so a key that is too long fails in the second.
        let (first, second) = key.split_at_checked(A::WIDTH)?;
        Some(Self(A::decode(first)?, B::decode(second)?))
    }
}

impl<A: FixedWidthKey, B: FixedWidthKey> KeyEncoding for PairKey<A, B> {
    fn encode_into(&self, buf: &mut KeyBuf) {
        encode_fixed(self, buf);
    }
}

impl FixedWidthKey for ManifestRowKey {
    const WIDTH: usize = Self::ENCODED_LEN;

    fn write_fixed<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        PairKey(U64Key(self.manifest_id()), U64Key(self.row())).write_fixed(out)
    }

    fn decode(key: &[u8]) -> Option<Self> {
        decode_manifest_row_key(key)
    }
}

fn encode_fixed<K: FixedWidthKey>(key: &K, buf: &mut KeyBuf) {
    // At compile time, since nested pairs can exceed a key and no caller could handle that at run
    // time.
    const { assert!(K::WIDTH > 0 && K::WIDTH <= MAX_KEY_SIZE) };
    let rest = key.write_fixed(buf.resize(K::WIDTH));
    // A part that is shorter or longer than its declared width would break the order of pairs.
    assert!(
        rest.is_some_and(|rest| rest.is_empty()),
        "a fixed-width key writes exactly WIDTH bytes"
    );
}

#[cfg(test)]
#[path = "integer_keys_tests.rs"]
mod integer_keys_tests;
