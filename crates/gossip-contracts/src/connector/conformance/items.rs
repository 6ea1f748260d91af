//! The laws about items: their metadata, and opening them.

use std::io::Read;

use super::subject::{Subject, WHOLE, compare_keys, cursor_at, just_above, page_of};
use super::{ExpectedItem, Problem};
use crate::connector::page::DEFAULT_PAGE_ITEMS;
use crate::connector::{
    Connector, ItemBody, MAX_INLINE_BODY_BYTES, OpenError, PageItem, PageValidator, Spoil,
};
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

/// Shorter keys may occur in a message by chance.
const CONCLUSIVE_KEY_LEN: usize = 4;

pub(super) fn size_hints(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let promised = connector.capabilities().sizes;
    let listing = subject.list_whole(&*connector)?;
    for (index, (item, (_, hint))) in subject.items.iter().zip(listing.listed).enumerate() {
        let expected = item.body.len() as u64;
        if hint.map_or(promised, |size| size != expected) {
            return Err(Problem::SizeHint { index, hint, expected });
        }
    }
    Ok(())
}

pub(super) fn counts(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let promised = connector.capabilities().counts;
    for_ranges(subject, |subject, range| {
        let counted = connector.count_keys(range)?;
        let expected = subject.expected_in(range, CursorUpdate::initial()).len() as u64;
        match counted.map_or(promised, |count| count != expected) {
            true => Err(Problem::Count { counted, expected }),
            false => Ok(()),
        }
    })
}

pub(super) fn samples(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    for size in [1, 4, DEFAULT_PAGE_ITEMS] {
        for_ranges(subject, |subject, range| check_sample(subject, &*connector, range, size))?;
    }
    Ok(())
}

/// Requests a sample of at most `size` keys of `range` and compares it with the capabilities: a
/// connector that promises none must leave it empty, one that promises some must fill that of the
/// whole source. Sampled keys must be valid and, if it claims to be exhausted, all keys.
fn check_sample(
    subject: &Subject<'_>,
    connector: &dyn Connector,
    range: ShardSpecRef<'_>,
    size: usize,
) -> Result<(), Problem> {
    let mut sample = page_of(size);
    connector.sample_keys(range, &mut sample)?;
    let promised = connector.capabilities().samples;
    let broken_promise = Err(Problem::SamplePromise { items: sample.len(), promised });
    if sample.is_empty() && !sample.is_exhausted() && sample.fault().is_none() {
        // A sample of a small range may be empty; a sample of the whole source may not.
        return if promised && range == WHOLE { broken_promise } else { Ok(()) };
    }
    if !promised {
        return broken_promise;
    }
    // "Exhausted" claims that this is every key, and exact splits depend on that.
    if sample.is_exhausted() {
        let expected = subject.expected_in(range, CursorUpdate::initial());
        compare_keys(sample.items().map(|item| item.key()), expected)?;
    }
    PageValidator::new(range, CursorUpdate::initial()).check(&sample).map_err(Problem::Sample)
}

/// Calls the check with the whole keyspace and with every pair of neighbouring bounds.
fn for_ranges(
    subject: &mut Subject<'_>,
    mut check: impl FnMut(&Subject<'_>, ShardSpecRef<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let bounds = subject.bounds();
    let pairs = bounds.windows(2).map(|pair| ShardSpecRef::new(&pair[0], &pair[1], b""));
    for range in pairs.chain([WHOLE]) {
        subject.cases += 1;
        check(subject, range)?;
    }
    Ok(())
}

pub(super) fn open_yields_body(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let listing = subject.list_whole(&*connector)?;
    // One buffer for all: bytes of an earlier item must not appear in a later one.
    let (mut scratch, mut beside) = (Vec::new(), None);
    for (index, listed) in listing.items().enumerate() {
        // An item that opens passes its check, alone and after the one before it.
        for checked in [None, beside.replace(listed)] {
            subject.cases += 1;
            let checked = connector.check(listed, checked, &mut Vec::new());
            checked.map_err(|error| Problem::Open { index, error })?;
        }
        for item in [listed, PageItem::new(listed.key())] {
            subject.cases += 1;
            check_body(&*connector, item, &mut scratch, index, &subject.items[index])?;
        }
    }
    Ok(())
}

pub(super) fn open_with_neighbours_token(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let listing = subject.list_whole(&*connector)?;
    let mut scratch = Vec::new();
    for (index, expected) in subject.items.iter().enumerate() {
        for token in listing.neighbours_tokens(index) {
            subject.cases += 1;
            let item = PageItem::new(&expected.key).with_token(token);
            check_body(&*connector, item, &mut scratch, index, expected)?;
        }
    }
    Ok(())
}

/// Opens `item` and compares its body with `expected`, whose position in the source is `index`.
///
/// Returns the first problem: opening or reading fails, the body differs, or `scratch` is longer
/// than an inline body may be. It reads at most one byte more than expected.
fn check_body(
    connector: &dyn Connector,
    item: PageItem<'_>,
    scratch: &mut Vec<u8>,
    index: usize,
    expected: &ExpectedItem,
) -> Result<(), Problem> {
    let body = connector.open(item, scratch).map_err(|error| Problem::Open { index, error })?;
    let expected_len = expected.body.len();
    let body = read_body(body, index, expected_len)?;
    if body != expected.body {
        return Err(Problem::Body { index, len: body.len(), expected_len });
    }
    // For a correct body too: a worker keeps one scratch buffer per thread, and the limit bounds
    // its memory.
    if scratch.len() > MAX_INLINE_BODY_BYTES {
        let (len, max) = (scratch.len(), MAX_INLINE_BODY_BYTES);
        return Err(Problem::Scratch { index, len, max });
    }
    Ok(())
}

/// Reads at most one byte more than expected, because a body may be infinite.
fn read_body(body: ItemBody<'_>, index: usize, expected_len: usize) -> Result<Vec<u8>, Problem> {
    let mut read = Vec::new();
    let result = body.take(expected_len as u64 + 1).read_to_end(&mut read);
    result.map_err(|error| Problem::Unreadable { index, kind: error.kind() })?;
    Ok(read)
}

pub(super) fn unknown_items(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let connector = subject.connect();
    let above = subject.items.iter().map(|item| just_above(&item.key));
    // No source can have these keys, so a connector that opens one misreads it.
    let never = [Vec::new(), vec![b'k'; MAX_KEY_SIZE + 1]];
    for key in above.chain(never).collect::<Vec<_>>() {
        if subject.is_key(&key) {
            continue;
        }
        subject.cases += 1;
        check_refused(&*connector, PageItem::new(&key), OpenError::Vanished)?;
    }
    Ok(())
}

pub(super) fn spoiled_items(subject: &mut Subject<'_>) -> Result<(), Problem> {
    let before = subject.connect();
    let listing = subject.list_whole(&*before)?;
    for (spoil, item) in Spoil::ALL.into_iter().zip(listing.items().skip(1)) {
        if !subject.fixture.spoil(item.key(), spoil) {
            continue;
        }
        subject.cases += 1;
        subject.refresh();
        let after = subject.connect();
        // With its former token and without, because the runtime may have either.
        check_refused(&*after, item, spoil.expected_error())?;
        check_refused(&*after, PageItem::new(item.key()), spoil.expected_error())?;
        if spoil == Spoil::Vanish {
            check_resume_past(subject, &*after, item)?;
        }
    }
    Ok(())
}

/// Checks resuming after an item that no longer exists, with its former token: a cursor may point
/// to such an item.
fn check_resume_past(
    subject: &mut Subject<'_>,
    connector: &dyn Connector,
    gone: PageItem<'_>,
) -> Result<(), Problem> {
    subject.check_listing(connector, WHOLE, CursorUpdate::initial())?;
    for token in [gone.token().unwrap_or_default(), b""] {
        let Some(from) = cursor_at(gone.key(), token) else {
            continue;
        };
        subject.check_listing(connector, WHOLE, from)?;
    }
    Ok(())
}

fn check_refused(
    connector: &dyn Connector,
    item: PageItem<'_>,
    expected: OpenError,
) -> Result<(), Problem> {
    let found = connector.open(item, &mut Vec::new()).err();
    if found.is_some_and(|error| shows_key(&format!("{error} {error:?}"), item.key())) {
        return Err(Problem::KeyInError);
    }
    if found == Some(expected) { Ok(()) } else { Err(Problem::WrongOpenError { expected, found }) }
}

/// Returns whether `text` contains the key as text, as a list of numbers or in hexadecimal.
pub(super) fn shows_key(text: &str, key: &[u8]) -> bool {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let forms = [String::from_utf8_lossy(key).into_owned(), format!("{key:?}"), hex];
    key.len() >= CONCLUSIVE_KEY_LEN && forms.iter().any(|form| text.contains(form.as_str()))
}
