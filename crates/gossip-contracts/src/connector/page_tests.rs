use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE};

/// A key that must never be printed.
const CANARY: &[u8] = b"canary-key";

fn page_of(items: usize) -> Page {
    Page::with_limits(PageLimits::try_new(items, MIN_PAGE_BYTES).unwrap())
}

fn refused(violation: PageViolation) -> Result<(), PushError> {
    Err(PushError::Refused(violation))
}

#[rstest]
#[case::no_items(0, MIN_PAGE_BYTES, false)]
#[case::one_item(1, MIN_PAGE_BYTES, true)]
#[case::most(MAX_PAGE_ITEMS, MAX_PAGE_BYTES, true)]
#[case::too_many_items(MAX_PAGE_ITEMS + 1, MIN_PAGE_BYTES, false)]
#[case::too_few_bytes(1, MIN_PAGE_BYTES - 1, false)]
#[case::too_many_bytes(1, MAX_PAGE_BYTES + 1, false)]
#[case::far_too_many(usize::MAX, usize::MAX, false)]
fn limits_are_bounded(#[case] items: usize, #[case] bytes: usize, #[case] allowed: bool) {
    assert_eq!(PageLimits::try_new(items, bytes).is_ok(), allowed);
}

#[test]
fn items_are_checked_before_bytes() {
    let error = PageLimits::try_new(0, 0).unwrap_err();
    assert_eq!(error, PageLimitsError::Items { items: 0, max: MAX_PAGE_ITEMS });
    let error = PageLimits::try_new(1, 0).unwrap_err();
    let expected = PageLimitsError::Bytes { bytes: 0, min: MIN_PAGE_BYTES, max: MAX_PAGE_BYTES };
    assert_eq!(error, expected);
}

#[test]
fn a_connector_token_leaves_the_runtimes_reserve() {
    assert_eq!(MAX_CONNECTOR_TOKEN_SIZE + RUNTIME_TOKEN_RESERVE, MAX_TOKEN_SIZE);
}

#[test]
fn a_page_keeps_key_size_and_token_of_an_item() {
    let mut page = Page::default();
    page.push(PageItem::new(b"a")).unwrap();
    page.push(PageItem::new(b"b").with_token(b"t").with_size_hint(7)).unwrap();
    page.push(PageItem::new(b"c").with_token(b"")).unwrap();

    assert_eq!(page.len(), 3);
    assert_eq!(page.item(0), Some(PageItem::new(b"a")));
    let b = page.item(1).unwrap();
    assert_eq!((b.key(), b.token(), b.size_hint()), (&b"b"[..], Some(&b"t"[..]), Some(7)));
    assert_eq!(page.last().unwrap().token(), None, "an empty token means none");
    assert_eq!(page.item(3), None);
    assert_eq!(page.cursor_at(0), Some(CursorUpdate::with_last_key(b"a")));
    assert_eq!(page.cursor_at(1), Some(CursorUpdate::new(b"b", b"t")));
    assert_eq!(page.cursor_at(3), None);
}

#[test]
fn a_page_full_of_items_rejects_the_next_and_keeps_its_items() {
    let mut page = page_of(2);
    page.push(PageItem::new(b"a")).unwrap();
    page.push(PageItem::new(b"b")).unwrap();
    assert_eq!(page.push(PageItem::new(b"c")), Err(PushError::Full));
    assert_eq!(page.len(), 2);
    assert_eq!(page.fault(), None, "one item that does not fit is not a fault");
    assert!(!page.is_exhausted());
}

#[test]
fn a_page_full_of_bytes_rejects_the_next_and_keeps_its_items() {
    let mut page = page_of(100);
    let key = [7; MAX_KEY_SIZE];
    let fitting = MIN_PAGE_BYTES / MAX_KEY_SIZE;
    for _ in 0..fitting {
        page.push(PageItem::new(&key)).unwrap();
    }
    assert_eq!(page.push(PageItem::new(b"x")), Err(PushError::Full));
    assert_eq!(page.len(), fitting);
}

#[test]
fn an_empty_page_accepts_the_largest_item() {
    let (key, token) = ([1; MAX_KEY_SIZE], [2; MAX_CONNECTOR_TOKEN_SIZE]);
    let mut page = page_of(1);
    page.push(PageItem::new(&key).with_token(&token)).unwrap();
    assert_eq!(page.cursor_at(0), Some(CursorUpdate::try_new(&key, &token).unwrap()));
}

#[test]
fn pushing_after_full_is_a_fault() {
    let mut page = page_of(1);
    page.push(PageItem::new(b"a")).unwrap();
    assert_eq!(page.push(PageItem::new(b"b")), Err(PushError::Full));
    let fault = PageViolation::LimitIgnored { items: 1 };
    assert_eq!(page.push(PageItem::new(b"c")), refused(fault));
    assert_eq!(page.fault(), Some(fault));
}

#[test]
fn an_end_mark_after_full_is_a_fault() {
    let mut page = page_of(1);
    page.push(PageItem::new(b"a")).unwrap();
    assert_eq!(page.push(PageItem::new(b"b")), Err(PushError::Full));
    page.mark_exhausted();
    assert!(!page.is_exhausted());
    assert_eq!(page.fault(), Some(PageViolation::ItemDropped { items: 1 }));
}

#[test]
fn pushing_after_the_end_mark_is_a_fault() {
    let mut page = page_of(2);
    page.mark_exhausted();
    page.mark_exhausted();
    assert!(page.is_exhausted());
    let fault = PageViolation::ItemAfterEnd { items: 0 };
    assert_eq!(page.push(PageItem::new(b"a")), refused(fault));
    assert!(!page.is_exhausted());
}

#[test]
fn item_sizes_are_checked_in_order_and_before_capacity() {
    let (key, token) = ([1; MAX_KEY_SIZE + 1], [2; MAX_CONNECTOR_TOKEN_SIZE + 1]);
    let check = |item, violation| {
        let mut page = page_of(1);
        page.push(PageItem::new(b"a")).unwrap();
        assert_eq!(page.push(item), refused(violation), "even if the page is full");
        assert_eq!(page.len(), 1);
    };
    check(PageItem::new(b"").with_token(&token), PageViolation::EmptyKey { index: 1 });
    let (size, max) = (key.len(), MAX_KEY_SIZE);
    let violation = PageViolation::KeyTooLarge { index: 1, size, max };
    check(PageItem::new(&key).with_token(&token), violation);
    let (size, max) = (token.len(), MAX_CONNECTOR_TOKEN_SIZE);
    let violation = PageViolation::TokenTooLarge { index: 1, size, max };
    check(PageItem::new(b"b").with_token(&token), violation);
}

#[test]
fn the_first_fault_is_kept_until_cleared() {
    let mut page = page_of(2);
    let first = PageViolation::EmptyKey { index: 0 };
    assert_eq!(page.push(PageItem::new(b"")), refused(first));
    assert_eq!(page.push(PageItem::new(b"fine")), refused(first));
    page.mark_exhausted();
    assert_eq!(page.fault(), Some(first));

    page.clear();
    assert_eq!(page.fault(), None);
    assert!(page.is_empty());
    page.push(PageItem::new(b"fine")).unwrap();
}

#[test]
fn debug_shows_no_bytes() {
    let mut page = Page::default();
    let item = PageItem::new(CANARY).with_token(CANARY);
    page.push(item).unwrap();
    let shown = format!("{page:?} {item:?} {:?} {:?}", page.items(), ItemBody::Bytes(CANARY));
    assert!(!shown.contains("canary"), "{shown}");
    assert!(!shown.contains("99, 97"), "{shown}");
}

#[test]
fn a_body_of_bytes_is_readable() {
    let mut read = Vec::new();
    std::io::copy(&mut ItemBody::Bytes(b"body"), &mut read).unwrap();
    std::io::copy(&mut ItemBody::Reader(Box::new(&b" and soul"[..])), &mut read).unwrap();
    assert_eq!(read, b"body and soul");
}

type Parts = (Vec<u8>, Vec<u8>, Option<u64>);

fn parts() -> impl Strategy<Value = Parts> {
    (vec(any::<u8>(), 1..600), vec(any::<u8>(), 0..600), any::<Option<u64>>())
}

fn item((key, token, size): &Parts) -> PageItem<'_> {
    let item = PageItem::new(key).with_token(token);
    size.map_or(item, |size| item.with_size_hint(size))
}

proptest! {
    #[test]
    fn a_page_returns_the_longest_prefix_that_fits_its_limits(
        pushed in vec(parts(), 0..60),
        items_max in 1_usize..60,
    ) {
        let mut page = page_of(items_max);
        // A reused page must behave like a new one.
        page.push(PageItem::new(CANARY)).unwrap();
        page.clear();
        let taken = pushed.iter().take_while(|parts| page.push(item(parts)).is_ok()).count();

        prop_assert!(page.items().eq(pushed[..taken].iter().map(item)));
        prop_assert_eq!(page.items().len(), taken);
        let bytes = |n: usize| pushed[..n].iter().map(|p| p.0.len() + p.1.len()).sum::<usize>();
        prop_assert!(taken <= items_max && bytes(taken) <= MIN_PAGE_BYTES);
        if taken < pushed.len() {
            prop_assert!(taken == items_max || bytes(taken + 1) > MIN_PAGE_BYTES);
        }
    }
}
