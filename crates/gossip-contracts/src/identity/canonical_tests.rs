use proptest::prelude::*;

use super::canonical::{prefix_of, try_prefix_of};
use super::*;

const DOMAIN: Domain = Domain::OP_PAYLOAD_V1;

/// Returns the digest of `value`.
fn digest(value: &(impl CanonicalBytes + ?Sized)) -> [u8; 32] {
    let mut hasher = CanonicalHasher::for_domain(DOMAIN);
    value.write_canonical(&mut hasher);
    hasher.finalize_32()
}

/// Returns the digest of bytes assembled by hand, computed without [`CanonicalHasher`].
fn digest_of_bytes(bytes: &[u8]) -> [u8; 32] {
    blake3::derive_key(DOMAIN.as_str(), bytes)
}

#[test]
fn integers_are_fixed_width_little_endian() {
    assert_eq!(digest(&0x12_u8), digest_of_bytes(&[0x12]));
    assert_eq!(digest(&0x1234_u32), digest_of_bytes(&[0x34, 0x12, 0, 0]));
    assert_eq!(digest(&0x1234_u64), digest_of_bytes(&[0x34, 0x12, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn slices_carry_their_length_and_arrays_do_not() {
    assert_eq!(digest(b"ab".as_slice()), digest_of_bytes(b"\x02\0\0\0ab"));
    assert_eq!(digest(b"".as_slice()), digest_of_bytes(b"\0\0\0\0"));
    assert_eq!(digest(&[7_u8; 32]), digest_of_bytes(&[7; 32]));
    assert_eq!(digest(&TenantId::from_bytes([8; 32])), digest_of_bytes(&[8; 32]));
}

#[test]
fn ids_and_counters_are_eight_bytes() {
    let expected = digest_of_bytes(&[9, 0, 0, 0, 0, 0, 0, 1]);
    let raw = 9 | 1 << 56;
    assert_eq!(digest(&RunId::from_raw(raw)), expected);
    assert_eq!(digest(&ShardId::from_raw(raw)), expected);
    assert_eq!(digest(&WorkerId::from_raw(raw)), expected);
    assert_eq!(digest(&OpId::from_raw(raw)), expected);
    assert_eq!(digest(&JobId::from_raw(raw)), expected);
    assert_eq!(digest(&FenceEpoch::from_raw(raw)), expected);
    assert_eq!(digest(&LogicalTime::from_raw(raw)), expected);
}

#[test]
fn shard_key_is_run_then_shard() {
    let key = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2));
    assert_eq!(digest(&key), digest_of_bytes(b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"));
}

#[test]
fn operation_tags_have_no_length() {
    let mut hasher = CanonicalHasher::for_domain(DOMAIN);
    hasher.write_raw(b"park");
    hasher.write_u8(1);
    assert_eq!(hasher.finalize_32(), digest_of_bytes(b"park\x01"));
}

#[test]
fn finalize_64_is_the_little_endian_start_of_finalize_32() {
    let mut hasher = CanonicalHasher::for_domain(DOMAIN);
    hasher.write_u8(1);
    let long = hasher.clone().finalize_32();
    assert_eq!(hasher.finalize_64().to_le_bytes(), long[..8]);
}

#[test]
fn debug_shows_the_length_and_no_bytes() {
    let mut hasher = CanonicalHasher::for_domain(DOMAIN);
    hasher.write_raw(&[0xAB; 300]);
    hasher.write_u8(171);
    assert_eq!(format!("{hasher:?}"), "CanonicalHasher { input_len: 301, .. }");
}

/// Checks the length alone, so that the test needs no 4 GiB of memory.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_length_beyond_its_prefix_is_an_error() {
    let last = u32::MAX as usize;
    assert_eq!(try_prefix_of(last), Ok(u32::MAX));
    let refused = try_prefix_of(last + 1);
    assert_eq!(refused, Err(IdentityInputError::InputTooLong { len: last + 1 }));
}

#[test]
#[cfg(target_pointer_width = "64")]
#[should_panic(expected = "4294967296 bytes do not fit")]
fn a_length_beyond_its_prefix_panics_in_the_encoding() {
    let _ = prefix_of(u32::MAX as usize + 1);
}

proptest! {
    /// However the input is split and however often the buffer overflows, BLAKE3 receives the same
    /// bytes.
    #[test]
    fn digest_does_not_depend_on_how_input_is_split(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
    ) {
        let mut hasher = CanonicalHasher::for_domain(DOMAIN);
        for part in &parts {
            hasher.write_raw(part);
        }
        prop_assert_eq!(hasher.finalize_32(), digest_of_bytes(&parts.concat()));
    }

    #[test]
    fn finalize_64_with_equals_write_then_finalize(
        head in prop::collection::vec(any::<u8>(), 0..600),
        last in prop::collection::vec(any::<u8>(), 0..1_200),
    ) {
        let mut hasher = CanonicalHasher::for_domain(DOMAIN);
        hasher.write_raw(&head);
        let mut copy = hasher.clone();
        hasher.write_bytes_prefixed(&last);
        prop_assert_eq!(copy.finalize_64_with(&last), hasher.finalize_64());
    }

    #[test]
    fn a_clone_hashes_like_its_original(
        head in prop::collection::vec(any::<u8>(), 0..600),
        tail in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut original = CanonicalHasher::for_domain(DOMAIN);
        original.write_raw(&head);
        let mut copy = original.clone();
        copy.write_raw(&tail);
        prop_assert_eq!(original.finalize_32(), digest_of_bytes(&head));
        prop_assert_eq!(copy.finalize_32(), digest_of_bytes(&[head, tail].concat()));
    }

    #[test]
    fn two_slices_are_never_confused_with_another_two(
        a in prop::collection::vec(0_u8..3, 0..4), b in prop::collection::vec(0_u8..3, 0..4),
        c in prop::collection::vec(0_u8..3, 0..4), d in prop::collection::vec(0_u8..3, 0..4),
    ) {
        let pair = |x: &[u8], y: &[u8]| {
            let mut hasher = CanonicalHasher::for_domain(DOMAIN);
            hasher.write_bytes_prefixed(x);
            hasher.write_bytes_prefixed(y);
            hasher.finalize_32()
        };
        prop_assert_eq!(pair(&a, &b) == pair(&c, &d), (a, b) == (c, d));
    }

    #[test]
    fn integers_are_injective(a: u64, b: u64) {
        prop_assert_eq!(digest(&a) == digest(&b), a == b);
        let (a, b) = ((a >> 32) as u32, (b >> 32) as u32);
        prop_assert_eq!(digest(&a) == digest(&b), a == b);
        let (a, b) = (a as u8, b as u8);
        prop_assert_eq!(digest(&a) == digest(&b), a == b);
    }

    #[test]
    fn shard_keys_are_injective(a in 0_u64..3, b in 0_u64..3, c in 0_u64..3, d in 0_u64..3) {
        let key = |run, shard| ShardKey::new(RunId::from_raw(run), ShardId::from_raw(shard));
        prop_assert_eq!(digest(&key(a, b)) == digest(&key(c, d)), (a, b) == (c, d));
    }
}
