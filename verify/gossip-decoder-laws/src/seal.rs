//! Stored values made of any bytes.
//!
//! Raw bytes hardly ever pass the checksum. So each decoder is shown the bytes twice: as they are,
//! and sealed as a payload, as the format says; then everything behind the checksum is reached.

use std::cell::RefCell;

use gossip_contracts::identity::{CanonicalHasher, Domain, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{FORMAT_VERSION, Key};

/// Whose values.
pub(crate) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// Of which run.
pub(crate) const RUN: RunId = RunId::from_raw(1);

/// A root shard, or a derived one: their rules differ.
pub(crate) const fn shard(derived: bool) -> ShardKey {
    let bit = if derived { ShardId::DERIVED_BIT } else { 0 };
    ShardKey::new(RUN, ShardId::from_raw(bit | 3))
}

/// Bytes of a value beside its payload, in front and behind.
pub(crate) const FRAME_LEN: (usize, usize) = (6, 8);

/// Replaces `sealed` by version, kind, length, payload, and the checksum bound to the key.
pub(crate) fn seal(key: Key, payload: &[u8], sealed: &mut Vec<u8>) {
    let mut hasher = CanonicalHasher::for_domain(Domain::RECORD_CHECKSUM_V1);
    hasher.write_bytes_prefixed(key.to_bytes().as_bytes());
    hasher.write_u8(FORMAT_VERSION);
    hasher.write_u8(key.kind() as u8);
    hasher.write_bytes_prefixed(payload);
    sealed.clear();
    sealed.extend_from_slice(&[FORMAT_VERSION, key.kind() as u8]);
    sealed.extend_from_slice(&u32::try_from(payload.len()).expect("bounded input").to_le_bytes());
    sealed.extend_from_slice(payload);
    sealed.extend_from_slice(&hasher.finalize_64().to_le_bytes());
}

/// Runs a decoder and its encoder on `data`, raw and sealed under `key`. A decoded value must
/// encode to the same bytes; returns whether one of the two decodes. Raw bytes with a distant
/// version are skipped, because a decoder reads only the version of those.
pub(crate) fn same_again(
    key: Key,
    data: &[u8],
    decode: impl Fn(&[u8], &mut Vec<u8>) -> bool,
) -> bool {
    thread_local! {
        // Kept, so that an input costs no allocation of ours.
        static BUFFERS: RefCell<[Vec<u8>; 2]> = RefCell::default();
    }
    BUFFERS.with_borrow_mut(|[sealed, again]| {
        seal(key, data, sealed);
        let is_near = data.first().is_none_or(|version| *version <= FORMAT_VERSION + 1);
        let mut is_taken = false;
        for value in is_near.then_some(data).into_iter().chain([sealed.as_slice()]) {
            if decode(value, again) {
                assert_eq!(again, value, "the encoding is not canonical");
                is_taken = true;
            }
        }
        is_taken
    })
}
