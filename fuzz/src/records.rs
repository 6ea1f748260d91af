//! Stored values made of the fuzzer's bytes.
//!
//! Raw bytes hardly ever pass the checksum. So each decoder is shown the bytes twice: as they are,
//! and sealed as a payload, as the format says; then everything behind the checksum is reached.

use gossip_contracts::identity::{CanonicalHasher, Domain, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{FORMAT_VERSION, Key};

/// Whose values.
pub const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// Of which run.
pub const RUN: RunId = RunId::from_raw(1);

/// A root shard, or a derived one: their rules differ.
pub const fn shard(derived: bool) -> ShardKey {
    let bit = if derived { ShardId::DERIVED_BIT } else { 0 };
    ShardKey::new(RUN, ShardId::from_raw(bit | 3))
}

/// Version, kind, length, payload, and the checksum that is bound to the key.
pub fn seal(key: Key, payload: &[u8]) -> Vec<u8> {
    let mut hasher = CanonicalHasher::for_domain(Domain::RECORD_CHECKSUM_V1);
    hasher.write_bytes_prefixed(key.to_bytes().as_bytes());
    hasher.write_u8(FORMAT_VERSION);
    hasher.write_u8(key.kind() as u8);
    hasher.write_bytes_prefixed(payload);
    let mut sealed = Vec::with_capacity(payload.len() + 14);
    sealed.extend_from_slice(&[FORMAT_VERSION, key.kind() as u8]);
    sealed.extend_from_slice(&u32::try_from(payload.len()).expect("bounded input").to_le_bytes());
    sealed.extend_from_slice(payload);
    sealed.extend_from_slice(&hasher.finalize_64().to_le_bytes());
    sealed
}

/// Shows `data` to a decoder that writes what it has read again: raw, and sealed under `key`. What
/// decodes must come out as it went in.
pub fn same_again(key: Key, data: &[u8], decode: impl Fn(&[u8], &mut Vec<u8>) -> bool) {
    let mut again = Vec::new();
    for value in [data, &seal(key, data)] {
        if decode(value, &mut again) {
            assert_eq!(again, value, "the encoding is not canonical");
        }
    }
}
