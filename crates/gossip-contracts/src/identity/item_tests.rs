use proptest::prelude::*;
use rstest::rstest;

use super::*;

const INSTANCE: ConnectorInstanceIdHash = ConnectorInstanceIdHash::from_bytes([7; 32]);

#[rstest]
#[case::one_byte(b"a", b"a\0\0\0\0\0\0\0")]
#[case::seven_bytes(b"fslocal", b"fslocal\0")]
#[case::eight_bytes(b"gitlocal", b"gitlocal")]
#[case::first_and_last_graphic(b"!~", b"!~\0\0\0\0\0\0")]
fn tags_are_padded_with_zeros(#[case] tag: &[u8], #[case] padded: &[u8; 8]) {
    let tag = ConnectorTag::try_from_ascii(tag).unwrap();
    assert_eq!(tag.as_bytes(), padded);
}

#[rstest]
#[case::empty(b"", IdentityInputError::EmptyTag)]
#[case::nine_bytes(b"ninebytes", IdentityInputError::TagTooLong(9))]
#[case::space(b"a b", IdentityInputError::NonGraphicByte { index: 1, byte: b' ' })]
#[case::zero(b"\0", IdentityInputError::NonGraphicByte { index: 0, byte: 0 })]
#[case::padding_given(b"a\0", IdentityInputError::NonGraphicByte { index: 1, byte: 0 })]
#[case::delete(b"ab\x7F", IdentityInputError::NonGraphicByte { index: 2, byte: 0x7F })]
#[case::not_ascii(b"\xC3\xA4", IdentityInputError::NonGraphicByte { index: 0, byte: 0xC3 })]
#[case::length_before_bytes(b"\0\0\0\0\0\0\0\0\0", IdentityInputError::TagTooLong(9))]
#[case::first_bad_byte(b"a\0\x01", IdentityInputError::NonGraphicByte { index: 1, byte: 0 })]
fn bad_tags_are_refused(#[case] tag: &[u8], #[case] error: IdentityInputError) {
    assert_eq!(ConnectorTag::try_from_ascii(tag), Err(error));
}

#[test]
#[should_panic(expected = "one to eight graphic ASCII")]
fn an_invalid_literal_tag_panics() {
    let _ = ConnectorTag::from_ascii(b"nine bytes");
}

#[test]
fn tags_print_without_padding() {
    assert_eq!(ConnectorTag::FS_LOCAL.to_string(), "fslocal");
    assert_eq!(format!("{:?}", ConnectorTag::GIT_LOCAL), "ConnectorTag(gitlocal)");
}

#[test]
fn an_empty_locator_is_an_error() {
    let empty = ItemIdentityKey::try_new(ConnectorTag::FS_LOCAL, INSTANCE, b"");
    assert_eq!(empty, Err(IdentityInputError::EmptyLocator));
    let key = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, INSTANCE, b"x");
    assert_eq!(
        (key.tag(), key.instance(), key.locator()),
        (ConnectorTag::FS_LOCAL, INSTANCE, &b"x"[..])
    );
}

#[test]
#[should_panic(expected = "not empty")]
fn an_empty_literal_locator_panics() {
    let _ = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, INSTANCE, b"");
}

#[test]
fn empty_version_bytes_are_an_error() {
    let refused = ObjectVersionId::try_from_version(b"");
    assert_eq!(refused, Err(IdentityInputError::EmptyVersionBytes));
}

#[test]
#[should_panic(expected = "not empty")]
fn empty_literal_version_bytes_panic() {
    let _ = ObjectVersionId::from_version(b"");
}

#[test]
fn item_debug_hides_the_locator() {
    let key = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, INSTANCE, b"home/secret.txt");
    let expected = format!(
        "ItemIdentityKey {{ tag: ConnectorTag(fslocal), instance: {INSTANCE:?}, locator_len: 15 }}",
    );
    assert_eq!(format!("{key:?}"), expected);
}

#[test]
fn errors_state_the_input_and_the_limit() {
    let shown = [
        IdentityInputError::EmptyTag,
        IdentityInputError::TagTooLong(9),
        IdentityInputError::NonGraphicByte { index: 2, byte: 9 },
        IdentityInputError::EmptyLocator,
        IdentityInputError::EmptyVersionBytes,
        IdentityInputError::InputTooLong { len: 1 << 31 },
    ]
    .map(|error| error.to_string());
    assert_eq!(
        shown,
        [
            "connector tag is empty",
            "connector tag has 9 bytes, at most 8 fit",
            "connector tag has byte 0x09 at index 2, only graphic ASCII is allowed",
            "item locator is empty",
            "object version bytes are empty",
            "2147483648 bytes do not fit the canonical length prefix of at most 4294967295",
        ]
    );
}

fn tags() -> impl Strategy<Value = ConnectorTag> {
    prop::collection::vec(b'a'..b'c', 1..=8).prop_map(|tag| ConnectorTag::from_ascii(&tag))
}

fn short() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 1..4)
}

proptest! {
    #[test]
    fn tags_are_injective(a in "[!-~]{1,8}", b in "[!-~]{1,8}") {
        let [left, right] = [&a, &b].map(|tag| ConnectorTag::try_from_ascii(tag.as_bytes()));
        prop_assert_eq!(left == right, a == b);
        let tag = left.unwrap();
        prop_assert_eq!(tag.as_str(), a);
    }

    #[test]
    fn arbitrary_tag_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let valid = (1..=8).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        prop_assert_eq!(ConnectorTag::try_from_ascii(&bytes).is_ok(), valid);
    }

    #[test]
    fn item_ids_are_injective(
        a in (tags(), 0_u8..2, short()),
        b in (tags(), 0_u8..2, short()),
    ) {
        let id = |(tag, instance, locator): &(ConnectorTag, u8, Vec<u8>)| {
            let instance = ConnectorInstanceIdHash::from_bytes([*instance; 32]);
            StableItemId::derive(&ItemIdentityKey::new(*tag, instance, locator))
        };
        prop_assert_eq!(id(&a) == id(&b), a == b);
    }

    #[test]
    fn versions_and_instances_are_injective(a in short(), b in short()) {
        let version = ObjectVersionId::from_version;
        let instance = ConnectorInstanceIdHash::from_instance_id;
        prop_assert_eq!(version(&a) == version(&b), a == b);
        prop_assert_eq!(instance(&a) == instance(&b), a == b);
        prop_assert_ne!(*version(&a).as_bytes(), *instance(&a).as_bytes());
    }
}
