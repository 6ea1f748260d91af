//! The payload hash of a checkpoint, as the coordination crate computes it.

use gossip_contracts::identity::{CanonicalHasher, Domain};

/// A cursor's key whose payload, with tag and lengths, takes two blocks.
pub(crate) const LONG_KEY: [u8; 64] = [b'k'; 64];
/// A key whose payload fits one block.
pub(crate) const SHORT_KEY: [u8; 40] = [b'k'; 40];

/// The names of the benchmarks, their keys and the number of bytes in their blocks.
pub(crate) const CASES: [(&str, &[u8], usize); 2] = [
    ("payload of a 40-byte cursor (one block)", &SHORT_KEY, 64),
    ("payload of a 64-byte cursor (two blocks)", &LONG_KEY, 128),
];

/// Key of [`bare_blocks`]; its value does not matter.
const HASH_KEY: [u8; 32] = [7; 32];

#[inline(never)]
pub(crate) fn payload(key: &[u8]) -> u64 {
    let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
    hasher.write_raw(b"checkpoint");
    write_cursor(&mut hasher, key);
    hasher.finalize_64()
}

/// Returns a keyed hash of `bytes` in one piece: the minimum cost for this many blocks.
pub(crate) fn bare_blocks(bytes: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&HASH_KEY, bytes)
}

pub(crate) fn write_cursor(hasher: &mut CanonicalHasher, key: &[u8]) {
    hasher.write_u8(1);
    hasher.write_bytes_prefixed(key);
    hasher.write_u8(0);
}
