use rstest::rstest;

use super::*;
use crate::coordination::{Cursor as CoordinationCursor, CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

fn letters() -> MemoryConnector {
    let items = [(*b"c", *b"see"), (*b"a", *b"ay!"), (*b"b", *b"bee")];
    MemoryConnector::try_new(items.map(|(key, body)| (Vec::from(key), Vec::from(body)))).unwrap()
}

fn try_keys(keys: &[&[u8]]) -> Result<MemoryConnector, MemoryConnectorError> {
    MemoryConnector::try_new(keys.iter().map(|key| (*key, *b"")).map(|(k, b)| (k, Vec::from(b))))
}

fn list(connector: &MemoryConnector, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Vec<u8> {
    let mut page = Page::default();
    CheckedEnumeration::open(connector, range, from).unwrap().next_page(&mut page).unwrap();
    page.items().flat_map(|item| item.key().to_vec()).collect()
}

#[test]
fn invalid_and_duplicate_keys_are_rejected() {
    let long = [1; MAX_KEY_SIZE + 1];
    let (size, max) = (long.len(), MAX_KEY_SIZE);
    let check = |keys: &[&[u8]], expected| assert_eq!(try_keys(keys).unwrap_err(), expected);
    check(&[b"b", b""], MemoryConnectorError::EmptyKey { index: 1 });
    check(&[&long, b"b", b"b"], MemoryConnectorError::KeyTooLarge { index: 0, size, max });
    check(&[b"b", b"a", b"b"], MemoryConnectorError::DuplicateKey { index: 1 });
}

#[rstest]
#[case::from_the_beginning(CursorUpdate::initial(), b"abc")]
#[case::after_a_key(CursorUpdate::with_last_key(b"a"), b"bc")]
#[case::with_its_token(CursorUpdate::new(b"a", &[0, 0, 0, 0, 0, 0, 0, 1]), b"bc")]
#[case::with_the_token_of_another(CursorUpdate::new(b"a", &[0, 0, 0, 0, 0, 0, 0, 3]), b"bc")]
#[case::with_the_token_of_nothing(CursorUpdate::new(b"a", &[0; 8]), b"bc")]
#[case::with_a_token_beyond_the_end(CursorUpdate::new(b"a", &[255; 8]), b"bc")]
#[case::with_a_short_token(CursorUpdate::new(b"a", &[1]), b"bc")]
#[case::after_the_end(CursorUpdate::with_last_key(b"z"), b"")]
fn a_cursor_resumes_by_its_key(#[case] from: CursorUpdate<'_>, #[case] expected: &[u8]) {
    assert_eq!(list(&letters(), ShardSpecRef::default(), from), expected);
}

#[test]
fn a_spoiled_item_returns_its_error_when_opened() {
    let whole = letters();
    for spoil in Spoil::ALL {
        let mut connector = whole.clone();
        assert!(connector.spoil(b"b", spoil));
        assert!(!connector.spoil(b"x", spoil), "there is no such item");
        let mut scratch = Vec::new();
        let error = connector.open(PageItem::new(b"b"), &mut scratch).unwrap_err();
        assert_eq!(error, spoil.expected_error());
        assert!(whole.open(PageItem::new(b"b"), &mut scratch).is_ok(), "clones are unaffected");
    }
}

#[test]
fn a_large_source_is_sampled_evenly() {
    let keys: Vec<_> = (0..10_000_u32).map(|n| (n.to_be_bytes(), *b"")).collect();
    let keys = keys.iter().map(|(key, body)| (&key[..], &body[..]));
    let connector = MemoryConnector::try_new(keys).unwrap();
    let mut sample = Page::with_limits(PageLimits::try_new(100, MIN_PAGE_BYTES).unwrap());
    connector.sample_keys(ShardSpecRef::default(), &mut sample).unwrap();
    let sampled = sample.items().map(|item| u32::from_be_bytes(item.key().try_into().unwrap()));
    assert!(sampled.eq((0..100).map(|n| n * 100)));
    assert!(!sample.is_exhausted(), "the sample is not the whole source");
}

#[test]
fn long_keys_thin_the_sample_instead_of_truncating_it() {
    let keys: Vec<[u8; MAX_KEY_SIZE]> = (0..64).map(|n| [n; MAX_KEY_SIZE]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let connector = try_keys(&keys).unwrap();
    let mut sample = Page::with_limits(PageLimits::try_new(64, MIN_PAGE_BYTES).unwrap());
    connector.sample_keys(ShardSpecRef::default(), &mut sample).unwrap();
    assert_eq!(sample.fault(), None);
    let sampled: Vec<u8> = sample.items().map(|item| item.key()[0]).collect();
    assert_eq!(sampled, [0, 16, 32, 48]);
}

#[test]
fn the_owned_cursor_converts_both_ways() {
    let mut page = Page::default();
    page.push(PageItem::new(b"key").with_token(b"token")).unwrap();
    let cursor: Cursor = page.cursor_at(0).unwrap().into();
    let same: CoordinationCursor = cursor.clone();
    assert_eq!(CursorUpdate::from(&same), page.cursor_at(0).unwrap());
    assert_eq!(cursor.as_update(), CursorUpdate::new(b"key", b"token"));
}

#[test]
fn debug_shows_numbers_only() {
    assert_eq!(format!("{:?}", letters()), "MemoryConnector { items: 3 }");
    assert!(!letters().is_empty());
}
