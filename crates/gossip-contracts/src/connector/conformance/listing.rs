//! The laws about listing.

use super::subject::{
    Listing, SMALL_PAGE, Subject, WHOLE, compare_keys, cursor_at, just_above, page_of,
};
use super::{ExpectedItem, Problem};
use crate::connector::Page;
use crate::connector::page::DEFAULT_PAGE_ITEMS;
use crate::coordination::{CursorUpdate, ShardSpecRef};

/// A token that no connector wrote.
const FOREIGN_TOKEN: &[u8] = &[0xA5; 3];

pub(super) fn every_page_size(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let len = subject.items.len();
    for size in [1, 2, SMALL_PAGE, 7, len - 1, len, len + 1, DEFAULT_PAGE_ITEMS] {
        let connector = subject.connect();
        let mut page = page_of(size);
        subject.check_pages(&*connector, WHOLE, CursorUpdate::initial(), &mut page)?;
    }
    let connector = subject.connect();
    subject.check_pages(&*connector, WHOLE, CursorUpdate::initial(), &mut Page::default())
}

pub(super) fn resume_after_every_key(subject: &mut Subject<'_>) -> Result<(), Problem> {
    resume_each(subject, |listing, index| vec![listing.token(index).to_vec()])
}

pub(super) fn resume_without_token(subject: &mut Subject<'_>) -> Result<(), Problem> {
    resume_each(subject, |_, _| vec![Vec::new()])
}

pub(super) fn resume_with_unreadable_token(subject: &mut Subject<'_>) -> Result<(), Problem> {
    resume_each(subject, |listing, index| {
        let token = listing.token(index);
        let shorter = token[..token.len().saturating_sub(1)].to_vec();
        let longer = [token, FOREIGN_TOKEN].concat();
        vec![shorter, longer, FOREIGN_TOKEN.to_vec()]
    })
}

/// Such a token is readable and belongs to an item of the source: only the key shows that it is the
/// token of another item.
pub(super) fn resume_with_neighbours_token(subject: &mut Subject<'_>) -> Result<(), Problem> {
    resume_each(subject, |listing, index| {
        listing.neighbours_tokens(index).map(<[u8]>::to_vec).collect()
    })
}

/// Resumes after every item with each of the tokens that `tokens` returns for its index, on the
/// whole keyspace and on a range that ends before the last item.
fn resume_each(
    subject: &mut Subject<'_>,
    tokens: impl Fn(&Listing, usize) -> Vec<Vec<u8>>,
) -> Result<(), Problem> {
    let connector = subject.connect();
    let listing = subject.list_whole(&*connector)?;
    // A token may encode where the source ends; the range may end earlier.
    let ends = [Vec::new(), last(&subject.items).key.clone()];
    for (index, (cursor, _)) in listing.listed.iter().enumerate() {
        // Tokens must outlive the process that wrote them.
        let restarted = subject.connect();
        for token in tokens(&listing, index) {
            let key = cursor.last_key().unwrap_or_default();
            let Some(from) = cursor_at(key, &token) else {
                continue;
            };
            for end in &ends {
                subject.check_listing(&*restarted, ShardSpecRef::new(b"", end, b""), from)?;
            }
        }
    }
    Ok(())
}

pub(super) fn resume_between_keys(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    for item in subject.items.clone() {
        // Just above, and a prefix: bytes that sort below the key and that need not be keys of
        // items.
        let prefix = &item.key[..item.key.len() - 1];
        for key in [just_above(&item.key), prefix.to_vec()] {
            let Some(from) = cursor_at(&key, b"") else {
                continue;
            };
            subject.check_listing(&*connector, WHOLE, from)?;
        }
    }
    Ok(())
}

pub(super) fn cursor_outside_range(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let (items, len) = (subject.items.clone(), subject.items.len());
    // One key lies between the lowest cursor and the range, so that it can be listed by mistake.
    let range = ShardSpecRef::new(&items[2].key, &items[len - 1].key, b"");
    let beyond = just_above(&items[len - 1].key);
    for key in [&items[0].key, &items[len - 1].key, &beyond] {
        let Some(from) = cursor_at(key, b"") else {
            continue;
        };
        subject.check_listing(&*connector, range, from)?;
    }
    Ok(())
}

pub(super) fn ranges_are_half_open(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let bounds = subject.bounds();
    for (index, start) in bounds.iter().enumerate() {
        let ends = bounds[index + 1..].iter().map(Vec::as_slice);
        for end in ends.chain([&b""[..]]) {
            let range = ShardSpecRef::new(start, end, b"");
            subject.check_listing(&*connector, range, CursorUpdate::initial())?;
        }
        let range = ShardSpecRef::new(b"", start, b"");
        subject.check_listing(&*connector, range, CursorUpdate::initial())?;
    }
    Ok(())
}

/// Follows from half-open ranges; checked separately because certificates depend on it.
pub(super) fn sub_ranges_tile(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let bounds = subject.bounds();
    let starts = [Vec::new()].into_iter().chain(bounds.clone());
    let ends = bounds.into_iter().chain([Vec::new()]);
    let mut pieces = Vec::new();
    for (start, end) in starts.zip(ends) {
        subject.cases += 1;
        let range = ShardSpecRef::new(&start, &end, b"");
        let (initial, len) = (CursorUpdate::initial(), subject.items.len());
        let mut piece = Listing::open(&*connector, range, initial, len)?;
        while piece.read_page(&mut page_of(SMALL_PAGE))? {}
        pieces.append(&mut piece.listed);
    }
    let keys = pieces.iter().map(|(cursor, _)| cursor.last_key().unwrap_or_default());
    compare_keys(keys, &subject.items)
}

pub(super) fn empty_ranges(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    for item in subject.items.clone() {
        let above = just_above(&item.key);
        // Between two neighbours in byte order, from a key to itself, and reversed.
        let ranges = [
            ShardSpecRef::new(&above, &above, b""),
            ShardSpecRef::new(&item.key, &item.key, b""),
            ShardSpecRef::new(&above, &item.key, b""),
        ];
        for range in ranges {
            subject.check_listing(&*connector, range, CursorUpdate::initial())?;
        }
    }
    let beyond = just_above(&last(&subject.items).key);
    let range = ShardSpecRef::new(&beyond, b"", b"");
    subject.check_listing(&*connector, range, CursorUpdate::initial())
}

/// Interleaves three listings on one connector, page by page: two of the whole, one of its half.
pub(super) fn independence(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let middle = subject.items[subject.items.len() / 2].key.clone();
    let upper = ShardSpecRef::new(&middle, b"", b"");
    let initial = CursorUpdate::initial();
    let ranges = [WHOLE, upper, WHOLE];
    subject.cases += ranges.len();
    let expected = ranges.map(|range| subject.expected_in(range, initial));
    let open = |i: usize| Listing::open(&*connector, ranges[i], initial, expected[i].len());
    let mut listings = [open(0)?, open(1)?, open(2)?];
    // Pages of one item interleave them as often as possible.
    let (mut page, mut scratch) = (page_of(1), Vec::new());
    let mut going = true;
    while going {
        going = false;
        for listing in &mut listings {
            going |= listing.read_page(&mut page)?;
            // Another law checks the result of opening; here it must not affect a listing.
            let _ = page.last().map(|item| connector.open(item, &mut scratch).is_ok());
        }
    }
    let mut compared = listings.iter().zip(expected);
    compared.try_for_each(|(listing, expected)| listing.compare(expected))
}

fn last(items: &[ExpectedItem]) -> &ExpectedItem {
    items.last().expect("an unfit fixture was rejected before")
}
