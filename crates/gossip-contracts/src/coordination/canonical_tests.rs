//! Canonical bytes, compared with bytes assembled by hand and hashed without [`CanonicalHasher`].

use proptest::prelude::*;

use super::{
    Cursor, CursorSemantics, CursorUpdate, ShardSpec, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan, plan_split_residual_at_point,
};
use crate::identity::{CanonicalBytes, CanonicalHasher, Domain};

const DOMAIN: Domain = Domain::OP_PAYLOAD_V1;

fn digest(value: &impl CanonicalBytes) -> [u8; 32] {
    let mut hasher = CanonicalHasher::for_domain(DOMAIN);
    value.write_canonical(&mut hasher);
    hasher.finalize_32()
}

fn digest_of(parts: &[&[u8]]) -> [u8; 32] {
    blake3::derive_key(DOMAIN.as_str(), &parts.concat())
}

const SPEC: ShardSpecRef<'static> = ShardSpecRef::new(b"ab", b"c", b"");
const SPEC_BYTES: &[u8] = b"\x02\0\0\0ab\x01\0\0\0c\0\0\0\0";
const CURSOR: CursorUpdate<'static> = CursorUpdate::new(b"abc", b"t");
const CURSOR_BYTES: &[u8] = b"\x01\x03\0\0\0abc\x01\x01\0\0\0t";

#[test]
fn cursors_encode_the_presence_of_each_part() {
    assert_eq!(digest(&CursorUpdate::initial()), digest_of(&[b"\0\0"]));
    let key_only = CursorUpdate::with_last_key(b"k");
    assert_eq!(digest(&key_only), digest_of(&[b"\x01\x01\0\0\0k\0"]));
    assert_eq!(digest(&CURSOR), digest_of(&[CURSOR_BYTES]));
    assert_eq!(digest(&Cursor::from(CURSOR)), digest(&CURSOR));
}

#[test]
fn specs_are_three_prefixed_strings() {
    assert_eq!(digest(&SPEC), digest_of(&[SPEC_BYTES]));
    let owned = ShardSpec::new(b"ab", b"c", b"meta");
    assert_eq!(digest(&owned), digest_of(&[b"\x02\0\0\0ab\x01\0\0\0c\x04\0\0\0meta"]));
    assert_eq!(digest(&owned), digest(&owned.as_spec_ref()));
}

#[test]
fn cursor_semantics_are_their_number() {
    assert_eq!(digest(&CursorSemantics::Completed), digest_of(&[b"\0"]));
    assert_eq!(digest(&CursorSemantics::Dispatched), digest_of(&[b"\x01"]));
}

#[test]
fn replace_plans_count_their_children_and_keep_their_order() {
    let other = ShardSpecRef::new(b"", b"ab", b"m");
    let other_bytes = b"\0\0\0\0\x02\0\0\0ab\x01\0\0\0m";
    let children = [SplitChild::new(SPEC, CURSOR), SplitChild::new(other, CursorUpdate::initial())];
    let plan = SplitReplacePlan::try_new(children).unwrap();
    let expected: [&[u8]; 5] = [b"\x02\0\0\0", SPEC_BYTES, CURSOR_BYTES, other_bytes, b"\0\0"];
    assert_eq!(digest(&plan), digest_of(&expected));
    let reversed = SplitReplacePlan::try_new(children.into_iter().rev()).unwrap();
    assert_ne!(digest(&reversed), digest(&plan));
}

#[test]
fn residual_plans_are_the_new_parent_then_the_residual() {
    let plan = SplitResidualPlan::try_new(SPEC, ShardSpecRef::new(b"c", b"", b"")).unwrap();
    let residual_bytes = b"\x01\0\0\0c\0\0\0\0\0\0\0\0";
    assert_eq!(digest(&plan), digest_of(&[SPEC_BYTES, residual_bytes]));
    let planned = plan_split_residual_at_point(ShardSpecRef::new(b"ab", b"", b""), b"c");
    assert_eq!(digest(&planned.unwrap()), digest(&plan));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 0..3)
}

proptest! {
    #[test]
    fn specs_are_injective(a in [bytes(), bytes(), bytes()], b in [bytes(), bytes(), bytes()]) {
        let spec = |[start, end, metadata]: &[Vec<u8>; 3]| {
            digest(&ShardSpecRef::new(start, end, metadata))
        };
        prop_assert_eq!(spec(&a) == spec(&b), a == b);
    }

    #[test]
    fn cursors_are_injective(
        a in (prop::option::of(bytes()), bytes()),
        b in (prop::option::of(bytes()), bytes()),
    ) {
        let parts = |(key, token): &(Option<Vec<u8>>, Vec<u8>)| {
            Cursor::try_from_parts(key.as_deref(), Some(token))
        };
        if let (Ok(a), Ok(b)) = (parts(&a), parts(&b)) {
            prop_assert_eq!(digest(&a) == digest(&b), a == b);
        }
    }
}
