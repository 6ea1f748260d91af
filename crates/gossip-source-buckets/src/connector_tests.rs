use proptest::prelude::*;

use super::*;

fn span(prefix: &[u8], start: &[u8], end: &[u8], cursor: &[u8]) -> Option<Span> {
    let from = match cursor {
        [] => CursorUpdate::initial(),
        cursor => CursorUpdate::with_last_key(cursor),
    };
    Span::of(prefix, ShardSpecRef::new(start, end, b""), from)
}

/// Returns a bound near the keys of the law.
fn bound() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(b'a'), Just(b'b'), any::<u8>()];
    prop::collection::vec(byte, 0..4)
}

proptest! {
    /// The law of a span: with what a server lists behind it, exactly the keys of the range.
    #[test]
    fn a_span_lists_the_keys_of_its_range(
        keys in prop::collection::btree_set("[\u{0}ab\u{7f}\u{80}\u{ff3a}]{1,3}", 0..20),
        prefix in "[ab]{0,1}",
        start in bound(),
        end in bound(),
        cursor in bound(),
    ) {
        let is_wanted = |key: &&String| {
            let key = key.as_bytes();
            key.starts_with(prefix.as_bytes())
                && *key >= *start
                && (end.is_empty() || *key < *end)
                && (cursor.is_empty() || *key > *cursor)
        };
        let expected: Vec<&String> = keys.iter().filter(is_wanted).collect();
        let listed: Vec<&String> = match span(prefix.as_bytes(), &start, &end, &cursor) {
            None => vec![],
            Some(span) => {
                let is_listed = |key: &&String| {
                    let key = key.as_bytes();
                    key.starts_with(prefix.as_bytes())
                        && (*key > *span.after || span.includes_it && *key == *span.after)
                        && (end.is_empty() || *key < *end)
                };
                keys.iter().filter(is_listed).collect()
            }
        };
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn invented_texts_lie_between_and_have_no_special_byte(low: u64, high: u64) {
        prop_assume!(low < high);
        if let Some(text) = middle_text(b"p/", low, high) {
            let at = number_at(&text, 2);
            prop_assert!(low < at && at < high);
            prop_assert!(text.iter().all(|byte| *byte > 0x20 && *byte != b'%' && *byte != 0x7F));
            prop_assert!(std::str::from_utf8(&text).is_ok());
        }
    }
}

#[test]
fn a_token_of_another_key_has_no_etag() {
    let object = Object { key: b"a".to_vec(), etag: "\"e\"".to_owned(), size: 1 };
    let token = token_of(&object);
    assert_eq!(etag_of(&token, b"a").as_deref(), Some("\"e\""));
    assert_eq!(etag_of(&token, b"b"), None);
    assert_eq!(etag_of(b"short", b"a"), None);
    let any = Object { etag: "*".to_owned(), ..object };
    assert_eq!(etag_of(&token_of(&any), b"a"), None);
}

#[test]
fn a_beginning_ends_before_the_next_one() {
    assert_eq!(behind_prefix(b"ab").unwrap(), b"ac");
    assert_eq!(behind_prefix(b"a\x7F").unwrap(), "a\u{80}".as_bytes());
    assert_eq!(behind_prefix(&[0xFF]), None);
}
