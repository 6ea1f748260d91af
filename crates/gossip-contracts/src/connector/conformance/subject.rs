//! The connector under test, with the known content of its source.

use super::{ExpectedItem, Fixture, MAX_FIXTURE_ITEMS, MIN_FIXTURE_ITEMS, Problem};
use crate::connector::{
    CheckedEnumeration, Connector, Cursor, MAX_PAGE_ITEMS, MIN_PAGE_BYTES, Page, PageItem,
    PageLimits,
};
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

/// The whole keyspace.
pub(super) const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");

/// Default number of items of a page: few, so that listings span several pages.
pub(super) const SMALL_PAGE: usize = 3;

/// Number of keys used as bounds of ranges; all pairs of them are ranges.
const BOUND_KEYS_MAX: usize = 12;

pub(super) struct Subject<'f> {
    pub(super) fixture: &'f mut dyn Fixture,
    /// In key order.
    pub(super) items: Vec<ExpectedItem>,
    /// Number of comparisons started.
    pub(super) cases: usize,
}

impl<'f> Subject<'f> {
    pub(super) fn new(fixture: &'f mut dyn Fixture) -> Self {
        let items = sorted(fixture.expected());
        Self { fixture, items, cases: 0 }
    }

    /// Checks that the fixture is large enough: a suite that cannot fail proves nothing.
    pub(super) fn validate(&self) -> Result<(), Problem> {
        let (items, min, max) = (self.items.len(), MIN_FIXTURE_ITEMS, MAX_FIXTURE_ITEMS);
        let legal = self.items.iter().all(|item| (1..=MAX_KEY_SIZE).contains(&item.key.len()));
        let distinct = self.items.windows(2).all(|pair| pair[0].key < pair[1].key);
        if !(min..=max).contains(&items) || !legal || !distinct {
            return Err(Problem::UnfitFixture { items, min, max });
        }
        Ok(())
    }

    pub(super) fn connect(&self) -> Box<dyn Connector> {
        self.fixture.connect()
    }

    /// Reloads the items after the fixture changed.
    pub(super) fn refresh(&mut self) {
        self.items = sorted(self.fixture.expected());
    }

    /// Lists and compares: the check behind most laws.
    pub(super) fn check_listing(
        &mut self,
        connector: &dyn Connector,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<(), Problem> {
        let mut page = page_of(SMALL_PAGE);
        self.check_pages(connector, range, from, &mut page)
    }

    /// Does the same as [`Self::check_listing`] with the caller's page.
    pub(super) fn check_pages(
        &mut self,
        connector: &dyn Connector,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
        page: &mut Page,
    ) -> Result<(), Problem> {
        self.cases += 1;
        let expected = self.expected_in(range, from);
        let mut listing = Listing::open(connector, range, from, expected.len())?;
        while listing.read_page(page)? {}
        listing.compare(expected)
    }

    /// Lists the whole source, with tokens and sizes.
    pub(super) fn list_whole(&mut self, connector: &dyn Connector) -> Result<Listing, Problem> {
        self.cases += 1;
        let mut listing =
            Listing::open(connector, WHOLE, CursorUpdate::initial(), self.items.len())?;
        let mut page = page_of(SMALL_PAGE);
        while listing.read_page(&mut page)? {}
        listing.compare(&self.items)?;
        Ok(listing)
    }

    /// Returns the items that must be listed: promise 2, applied to the known items.
    pub(super) fn expected_in(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> &[ExpectedItem] {
        let passed = |key: &[u8]| from.last_key().is_some_and(|last| key <= last);
        let first = self.items.partition_point(|i| *i.key < *range.start || passed(&i.key));
        let inside = |key: &[u8]| range.end.is_empty() || key < range.end;
        let count = self.items[first..].iter().take_while(|i| inside(&i.key)).count();
        &self.items[first..first + count]
    }

    /// Returns bounds to split at, in order: keys, and the bytes just above them.
    pub(super) fn bounds(&self) -> Vec<Vec<u8>> {
        // All pairs are tried, so few keys are enough; spread out, to meet every page boundary.
        let stride = self.items.len().div_ceil(BOUND_KEYS_MAX);
        let keys = self.items.iter().step_by(stride).map(|item| &item.key);
        let mut bounds: Vec<_> = keys.flat_map(|key| [key.clone(), just_above(key)]).collect();
        bounds.retain(|bound| bound.len() <= MAX_KEY_SIZE);
        bounds.sort();
        bounds.dedup();
        bounds
    }

    pub(super) fn is_key(&self, key: &[u8]) -> bool {
        self.items.binary_search_by(|item| (*item.key).cmp(key)).is_ok()
    }
}

/// A listing in progress and the items it has returned so far.
pub(super) struct Listing {
    enumeration: CheckedEnumeration,
    expected_len: usize,
    /// A cursor and a size hint for each item.
    pub(super) listed: Vec<(Cursor, Option<u64>)>,
}

impl Listing {
    pub(super) fn open(
        connector: &dyn Connector,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
        expected_len: usize,
    ) -> Result<Self, Problem> {
        let enumeration = CheckedEnumeration::open(connector, range, from)?;
        Ok(Self { enumeration, expected_len, listed: Vec::new() })
    }

    /// Reads one page; returns `false` at the end. Always terminates, because only the last page
    /// may be empty.
    pub(super) fn read_page(&mut self, page: &mut Page) -> Result<bool, Problem> {
        self.enumeration.next_page(page)?;
        let cursors = (0..page.len()).filter_map(|index| page.cursor_at(index));
        let sizes = page.items().map(|item| item.size_hint());
        self.listed.extend(cursors.map(Cursor::from).zip(sizes));
        // One key too many is enough to fail; an infinite listing would add nothing.
        if self.listed.len() > self.expected_len && !page.is_exhausted() {
            return Err(Problem::Endless { expected: self.expected_len });
        }
        Ok(!page.is_exhausted())
    }

    pub(super) fn compare(&self, expected: &[ExpectedItem]) -> Result<(), Problem> {
        let keys = self.listed.iter().map(|(cursor, _)| cursor.last_key().unwrap_or_default());
        compare_keys(keys, expected)
    }

    /// Returns the items as listed.
    pub(super) fn items(&self) -> impl Iterator<Item = PageItem<'_>> {
        self.listed.iter().map(|(cursor, _)| {
            let item = PageItem::new(cursor.last_key().unwrap_or_default());
            item.with_token(cursor.token().unwrap_or_default())
        })
    }

    /// Returns the token of the item at `index`; empty if there is no token or no item.
    pub(super) fn token(&self, index: usize) -> &[u8] {
        let cursor = self.listed.get(index).map(|(cursor, _)| cursor);
        cursor.and_then(|cursor| cursor.token()).unwrap_or_default()
    }

    /// Returns the tokens of the items before and after the one at `index`, if they have any.
    pub(super) fn neighbours_tokens(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let neighbours = [index.checked_sub(1), Some(index + 1)];
        let tokens = neighbours.into_iter().flatten().map(|index| self.token(index));
        tokens.filter(|token| !token.is_empty())
    }
}

pub(super) fn compare_keys<'a>(
    found: impl Iterator<Item = &'a [u8]> + Clone,
    expected: &[ExpectedItem],
) -> Result<(), Problem> {
    let same = found.clone().zip(expected).take_while(|(key, item)| **key == *item.key).count();
    let found = found.count();
    if same == expected.len() && found == expected.len() {
        return Ok(());
    }
    Err(Problem::KeysDiffer { index: same, found, expected: expected.len() })
}

/// Returns a page of `items` items, clamped to the valid range.
pub(super) fn page_of(items: usize) -> Page {
    let limits = PageLimits::try_new(items.clamp(1, MAX_PAGE_ITEMS), MIN_PAGE_BYTES);
    Page::with_limits(limits.expect("the number of items was clamped to the valid range"))
}

/// Returns the smallest byte string above `key`.
pub(super) fn just_above(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// Returns a cursor at `key`, if a cursor can hold it.
pub(super) fn cursor_at<'a>(key: &'a [u8], token: &'a [u8]) -> Option<CursorUpdate<'a>> {
    CursorUpdate::try_new(key, token).ok()
}

fn sorted(mut items: Vec<ExpectedItem>) -> Vec<ExpectedItem> {
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}
