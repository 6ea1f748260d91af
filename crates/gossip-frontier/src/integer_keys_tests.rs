//! Properties of integer keys: order and round trip.

use std::fmt::Debug;

use proptest::prelude::*;

use super::*;

fn encoded(key: &impl KeyEncoding) -> Vec<u8> {
    let mut buf = KeyBuf::new();
    key.encode_into(&mut buf);
    buf.as_bytes().to_vec()
}

fn check<K: FixedWidthKey + Copy + Debug + Ord>(a: K, b: K) {
    assert_eq!(a.cmp(&b), encoded(&a).cmp(&encoded(&b)), "{a:?} {b:?}");
    assert_eq!(K::decode(&encoded(&a)), Some(a));
    assert_eq!(encoded(&a).len(), K::WIDTH);
}

/// Decoders accept exactly their width, and every value of it.
fn check_widths<K: FixedWidthKey + Copy + Debug + Ord>() {
    for len in (0..3 * K::WIDTH).filter(|&len| len != K::WIDTH) {
        assert_eq!(K::decode(&vec![0xFF; len]), None, "{len} bytes");
    }
    for fill in [0x00, 0x7F, 0x80, 0xFF] {
        let bytes = vec![fill; K::WIDTH];
        assert_eq!(K::decode(&bytes).map(|key| encoded(&key)), Some(bytes));
    }
}

/// Writers accept slices of any length, fill their width and leave the rest unchanged.
fn check_slices<K: FixedWidthKey + Copy + Debug + Ord>(key: K) {
    for len in 0..3 * K::WIDTH {
        let mut out = vec![0xAA; len];
        let rest = key.write_fixed(&mut out).map(|rest| rest.len());
        assert_eq!(rest, len.checked_sub(K::WIDTH), "{len} bytes");
        if rest.is_some() {
            let (front, rest) = out.split_at(K::WIDTH);
            assert_eq!(front, encoded(&key));
            assert!(rest.iter().all(|&byte| byte == 0xAA));
        }
    }
}

/// Yields integers near the extremes as often as any others.
fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, u64::MAX - 2..=u64::MAX, (1 << 63) - 2..(1 << 63) + 2_u64, any::<u64>()]
}

fn any_i64() -> impl Strategy<Value = i64> {
    any_u64().prop_map(u64::cast_signed)
}

proptest! {
    #[test]
    fn u64_key_preserves_order_and_round_trips(a in any_u64(), b in any_u64()) {
        check(U64Key(a), U64Key(b));
    }

    #[test]
    fn i64_key_preserves_order_and_round_trips(a in any_i64(), b in any_i64()) {
        check(I64Key(a), I64Key(b));
    }

    #[test]
    fn pair_key_preserves_order_and_round_trips(
        a in any_u64(), b in any_i64(), c in any_u64(), d in any_i64(), same in any::<bool>(),
    ) {
        let (c, d) = if same { (a, d) } else { (c, d) };
        check(PairKey(U64Key(a), I64Key(b)), PairKey(U64Key(c), I64Key(d)));
        check(PairKey(I64Key(b), U64Key(a)), PairKey(I64Key(d), U64Key(c)));
        check(PairKey(U64Key(a), U64Key(a)), PairKey(U64Key(c), U64Key(a)));
        check(PairKey(I64Key(b), I64Key(d)), PairKey(I64Key(d), I64Key(b)));
    }

    #[test]
    fn nested_pair_key_preserves_order_and_round_trips(
        a in any::<[u64; 3]>(), b in any::<[u64; 3]>(), common in 0..3_usize,
    ) {
        let mut b = b;
        b[..common].copy_from_slice(&a[..common]);
        let key = |[x, y, z]: [u64; 3]| PairKey(PairKey(U64Key(x), U64Key(y)), U64Key(z));
        check(key(a), key(b));
    }

    #[test]
    fn manifest_row_key_is_a_pair_of_u64(manifest_id in any_u64(), row in any_u64()) {
        let row_key = ManifestRowKey::new(manifest_id, row);
        let pair = PairKey(U64Key(manifest_id), U64Key(row));
        prop_assert_eq!(encoded(&row_key), encoded(&pair));
        let nested = PairKey(row_key, U64Key(1));
        prop_assert_eq!(PairKey::decode(&encoded(&nested)), Some(nested));
    }
}

#[test]
fn integer_keys_have_the_documented_bytes() {
    assert_eq!(encoded(&U64Key(1)), [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(encoded(&I64Key(i64::MIN)), [0; 8]);
    assert_eq!(encoded(&I64Key(-1)), [0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert_eq!(encoded(&I64Key(0)), [0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded(&I64Key(i64::MAX)), [0xFF; 8]);
}

#[test]
fn decoders_accept_exactly_their_width() {
    check_widths::<U64Key>();
    check_widths::<I64Key>();
    check_widths::<PairKey<U64Key, I64Key>>();
    check_widths::<ManifestRowKey>();
}

#[test]
fn writers_accept_slices_of_any_length() {
    check_slices(U64Key(1));
    check_slices(I64Key(-1));
    check_slices(PairKey(PairKey(U64Key(1), I64Key(2)), U64Key(3)));
    check_slices(ManifestRowKey::new(1, 2));
}
