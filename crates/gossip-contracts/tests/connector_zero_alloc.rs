//! Listing does not allocate once its page and its enumeration exist.
//!
//! A run over 10⁷ keys fills 10⁴ pages. If pages allocated or grew, the runtime could not guarantee
//! constant memory.

use gossip_contracts::connector::{
    CheckedEnumeration, Connector, MAX_CONNECTOR_TOKEN_SIZE, MIN_PAGE_BYTES, MemoryConnector, Page,
    PageItem, PageLimits, PageValidator,
};
use gossip_contracts::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");
const ITEMS: u32 = 20_000;

#[track_caller]
fn assert_allocates_nothing<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.deallocations), (0, 0));
    result
}

/// Returns a source of keys of 4 to 400 bytes, so that pages end by items and by bytes.
fn source() -> MemoryConnector {
    let key = |n: u32| [&n.to_be_bytes()[..], &vec![7; n as usize % 397]].concat();
    MemoryConnector::try_new((0..ITEMS).map(|n| (key(n), vec![0; 3])))
        .expect("the leading number makes every key unique")
}

#[test]
fn filling_and_checking_pages_allocates_nothing() {
    let source = source();
    let mut page = Page::default();
    let mut listing = CheckedEnumeration::open(&source, WHOLE, CursorUpdate::initial()).unwrap();
    let (items, pages) = assert_allocates_nothing(|| {
        let (mut items, mut pages) = (0, 0);
        loop {
            listing.next_page(&mut page).unwrap();
            items += page.items().filter(|item| item.token().is_some()).count();
            pages += 1;
            if page.is_exhausted() {
                break (items, pages);
            }
        }
    });
    assert_eq!(items, ITEMS as usize);
    assert!(pages > 10, "{pages} pages are too few for a steady state");
}

#[test]
fn the_largest_items_allocate_nothing() {
    let (small, key) = ([1; 8], [2; MAX_KEY_SIZE]);
    let token = [3; MAX_CONNECTOR_TOKEN_SIZE];
    let limits = PageLimits::try_new(100, MIN_PAGE_BYTES).unwrap();
    let mut page = Page::with_limits(limits);
    let mut validator = PageValidator::new(WHOLE, CursorUpdate::with_last_key(b"\0"));
    assert_allocates_nothing(|| {
        while page.push(PageItem::new(&small)).is_ok() {}
        page.clear();
        page.push(PageItem::new(&small)).unwrap();
        validator.check(&page).unwrap();
        page.clear();
        page.push(PageItem::new(&key).with_token(&token)).unwrap();
        validator.check(&page).unwrap();
        assert!(page.cursor_at(0).is_some());
    });
}

#[test]
fn rejecting_a_page_allocates_nothing() {
    let mut page = Page::default();
    let mut validator = PageValidator::new(WHOLE, CursorUpdate::initial());
    assert_allocates_nothing(|| {
        page.push(PageItem::new(b"b")).unwrap();
        page.push(PageItem::new(b"a")).unwrap();
        validator.check(&page).unwrap_err();
        page.push(PageItem::new(b"")).unwrap_err();
        validator.check(&page).unwrap_err();
    });
}

#[test]
fn opening_an_item_in_memory_and_sampling_allocate_nothing() {
    let source = source();
    let (mut sample, mut scratch) = (Page::default(), Vec::new());
    assert_allocates_nothing(|| {
        source.sample_keys(WHOLE, &mut sample).unwrap();
        for item in &sample {
            source.open(item, &mut scratch).unwrap();
        }
    });
    assert!(sample.len() > 100, "{} samples", sample.len());
}
