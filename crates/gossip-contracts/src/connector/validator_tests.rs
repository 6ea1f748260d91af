use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::coordination::{CursorUpdate, ShardSpecRef};

const RANGE: ShardSpecRef<'_> = ShardSpecRef::new(b"f", b"p", b"");

fn page(keys: &[&[u8]], exhausted: bool) -> Page {
    let mut page = Page::default();
    for key in keys {
        page.push(PageItem::new(key)).unwrap();
    }
    if exhausted {
        page.mark_exhausted();
    }
    page
}

fn validator() -> PageValidator {
    PageValidator::new(RANGE, CursorUpdate::with_last_key(b"h"))
}

const fn below(index: usize) -> PageViolation {
    PageViolation::BelowRange { index, key_len: 1, start_len: 1 }
}

const fn above(index: usize) -> PageViolation {
    PageViolation::AboveRange { index, key_len: 1, end_len: 1 }
}

const fn duplicate(index: usize) -> PageViolation {
    PageViolation::DuplicateKey { index, key_len: 1 }
}

const fn out_of_order(index: usize) -> PageViolation {
    PageViolation::OutOfOrder { index, key_len: 1, previous_len: 1 }
}

/// One row for each rule in which only that rule fails, and for each order between two rules one in
/// which both fail: the range is checked before the order, an earlier item before a later one.
#[rstest]
#[case::below_the_range(b"e", below(0))]
#[case::above_the_range(b"iq", above(1))]
#[case::the_end_is_excluded(b"ip", above(1))]
#[case::the_cursor_again(b"h", duplicate(0))]
#[case::before_the_cursor(b"g", out_of_order(0))]
#[case::twice_in_a_page(b"ikk", duplicate(2))]
#[case::out_of_order(b"ikj", out_of_order(2))]
#[case::below_the_range_and_out_of_order(b"ia", below(1))]
#[case::above_the_range_twice(b"qq", above(0))]
#[case::duplicate_before_above(b"iiq", duplicate(1))]
fn an_invalid_item_is_rejected(#[case] keys: &[u8], #[case] expected: PageViolation) {
    let keys: Vec<&[u8]> = keys.chunks(1).collect();
    let mut validator = validator();
    assert_eq!(validator.check(&page(&keys, false)), Err(expected));
    assert_eq!(validator.check(&page(&[b"i"], false)), Ok(()), "a rejected page changes nothing");
}

#[test]
fn an_empty_page_is_valid_only_at_the_end() {
    assert_eq!(validator().check(&page(&[], false)), Err(PageViolation::NotAdvancing));
    let mut validator = validator();
    assert_eq!(validator.check(&page(&[], true)), Ok(()));
    assert!(validator.is_exhausted());
}

#[test]
fn a_page_after_the_end_is_rejected() {
    let mut validator = validator();
    validator.check(&page(&[b"i"], true)).unwrap();
    // The page is also out of order and not advancing: the end is checked first.
    let expected = Err(PageViolation::PageAfterEnd { items: 1 });
    assert_eq!(validator.check(&page(&[b"a"], false)), expected);
    let expected = Err(PageViolation::PageAfterEnd { items: 0 });
    assert_eq!(validator.check(&page(&[], false)), expected);
}

#[test]
fn a_fault_of_the_page_is_checked_before_its_items() {
    let mut faulty = page(&[b"a"], false);
    faulty.push(PageItem::new(b"")).unwrap_err();
    assert_eq!(validator().check(&faulty), Err(PageViolation::EmptyKey { index: 1 }));
    let mut faulty = page(&[], false);
    faulty.push(PageItem::new(b"")).unwrap_err();
    assert_eq!(validator().check(&faulty), Err(PageViolation::EmptyKey { index: 0 }));
}

#[test]
fn order_holds_across_pages() {
    let mut validator = validator();
    validator.check(&page(&[b"i", b"k"], false)).unwrap();
    assert_eq!(validator.check(&page(&[b"k"], false)), Err(duplicate(0)));
    assert_eq!(validator.check(&page(&[b"j"], false)), Err(out_of_order(0)));
    validator.check(&page(&[b"l"], true)).unwrap();
}

#[test]
fn empty_bounds_are_unbounded_and_the_start_is_included() {
    let mut open = PageValidator::new(ShardSpecRef::default(), CursorUpdate::initial());
    assert_eq!(open.check(&page(&[b"\0", b"\xff\xff"], true)), Ok(()));
    let mut bounded = PageValidator::new(RANGE, CursorUpdate::initial());
    assert_eq!(bounded.check(&page(&[b"f", b"o\xff"], true)), Ok(()));
}

#[test]
fn a_range_without_keys_rejects_every_item() {
    for (start, end) in [(b"m", b"m"), (b"p", b"f")] {
        let range = ShardSpecRef::new(start, end, b"");
        for key in [b"a", b"f", b"m", b"p", b"z"] {
            let mut validator = PageValidator::new(range, CursorUpdate::initial());
            validator.check(&page(&[key], true)).unwrap_err();
        }
    }
}

#[test]
fn neither_debug_nor_violations_show_bytes() {
    let range = ShardSpecRef::new(b"canary-a", b"canary-z", b"");
    let mut validator = PageValidator::new(range, CursorUpdate::with_last_key(b"canary-m"));
    let mut shown = format!("{validator:?}");
    for key in [&b"canary"[..], b"canary-zz", b"canary-m", b"canary-l"] {
        let violation = validator.check(&page(&[key], false)).unwrap_err();
        shown += &format!("{violation} {violation:?}");
    }
    assert!(!shown.contains("canary"), "{shown}");
}

/// Replays scripted results and counts the calls.
struct Script {
    answers: VecDeque<Result<Vec<&'static [u8]>, ConnectorError>>,
}

impl Enumeration for Script {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        let keys = self.answers.pop_front().expect("called more often than scripted")?;
        for key in keys {
            page.push(PageItem::new(key)).unwrap();
        }
        if self.answers.is_empty() {
            page.mark_exhausted();
        }
        Ok(())
    }
}

struct Scripted(Vec<Result<Vec<&'static [u8]>, ConnectorError>>);

impl Connector for Scripted {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn enumerate(
        &self,
        _range: ShardSpecRef<'_>,
        _from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        Ok(Box::new(Script { answers: self.0.clone().into() }))
    }

    fn open<'a>(
        &'a self,
        _item: PageItem<'_>,
        _scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        Err(OpenError::Vanished)
    }
}

fn checked(answers: Vec<Result<Vec<&'static [u8]>, ConnectorError>>) -> CheckedEnumeration {
    CheckedEnumeration::open(&Scripted(answers), RANGE, CursorUpdate::initial()).unwrap()
}

#[test]
fn a_checked_listing_ends_once_and_stays_ended() {
    let mut listing = checked(vec![Ok(vec![b"g", b"h"]), Ok(vec![b"i"])]);
    // Items of an earlier listing in the page must not be mistaken for this one's.
    let mut page = page(&[b"old"], true);
    listing.next_page(&mut page).unwrap();
    assert_eq!((page.len(), page.is_exhausted()), (2, false));
    listing.next_page(&mut page).unwrap();
    assert_eq!((page.len(), page.is_exhausted()), (1, true));
    listing.next_page(&mut page).unwrap();
    assert_eq!((page.len(), page.is_exhausted()), (0, true));
}

#[test]
fn a_failed_listing_is_not_called_again() {
    let failure = ConnectorError::NotFound;
    let mut listing = checked(vec![Ok(vec![b"g"]), Err(failure)]);
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    for _ in 0..2 {
        assert_eq!(listing.next_page(&mut page), Err(PageError::Connector(failure)));
        assert!(page.is_empty() && !page.is_exhausted());
    }
}

#[test]
fn an_invalid_page_is_returned_empty() {
    let mut listing = checked(vec![Ok(vec![b"g", b"z"]), Ok(vec![])]);
    let mut page = Page::default();
    for _ in 0..2 {
        assert_eq!(listing.next_page(&mut page), Err(PageError::Violation(above(1))));
        assert!(page.is_empty() && !page.is_exhausted());
    }
}

#[test]
fn by_default_a_connector_neither_counts_nor_samples() {
    let connector = Scripted(Vec::new());
    let mut sample = Page::default();
    assert_eq!(connector.count_keys(RANGE), Ok(None));
    assert_eq!(connector.sample_keys(RANGE, &mut sample), Ok(()));
    assert!(sample.is_empty());
    assert_eq!(connector.capabilities(), Capabilities::NONE);
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(0_u8..4, 1..4)
}

fn in_order(pages: &[Vec<Vec<u8>>]) -> Vec<Vec<Vec<u8>>> {
    let mut keys = pages.concat();
    keys.sort();
    keys.dedup();
    keys.chunks(3).map(<[_]>::to_vec).collect()
}

proptest! {
    #[test]
    fn pages_are_accepted_exactly_when_their_keys_increase_inside_the_range(
        pages in vec(vec(key(), 1..5), 1..4),
        sorted: bool,
        (start, end) in (vec(0_u8..4, 0..2), vec(0_u8..4, 0..2)),
        from in proptest::option::of(key()),
    ) {
        // Unsorted keys are nearly always rejected, so half of the cases are sorted.
        let pages = if sorted { in_order(&pages) } else { pages };
        let range = ShardSpecRef::new(&start, &end, b"");
        let from = from.as_deref().map_or(CursorUpdate::initial(), CursorUpdate::with_last_key);
        let mut validator = PageValidator::new(range, from);
        let accepted = pages.iter().all(|keys| {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            validator.check(&page(&keys, false)).is_ok()
        });

        let keys: Vec<&[u8]> = pages.iter().flatten().map(Vec::as_slice).collect();
        let increasing = keys.windows(2).all(|pair| pair[0] < pair[1]);
        let after = from.last_key().is_none_or(|last| keys[0] > last);
        let inside = keys.iter().all(|key| range.contains_key(key));
        prop_assert_eq!(accepted, increasing && after && inside);
    }
}
