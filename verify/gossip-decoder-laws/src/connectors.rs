//! Files as sources: the rows of manifests and the lines of files, through the whole connector.

use std::cell::RefCell;

use gossip_contracts::connector::{
    CheckedEnumeration, Connector, ConnectorError, ItemBody, MIN_PAGE_BYTES, OpenError, Page,
    PageError, PageItem, PageLimits,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_scanner_runtime::connectors::{LineFile, Manifest, ManifestFormat, row_key};

/// Items of a page: few, so that short files have several.
const PAGE_ITEMS: usize = 3;

/// Every row key of manifest 0.
const WHOLE: ShardSpecRef<'static> = ShardSpecRef::new(&[0; 16], &1_u64.to_be_bytes(), b"");

/// Keeps three things apart that the law needs of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    number: u64,
    start: usize,
    end: usize,
}

/// The rows of a file are those that a naive reader finds, in every format: their numbers, sizes,
/// bodies and count; from the top, and after any cursor with and without its token. A file that
/// ends inside quotes is refused.
///
/// The first byte chooses the format, the second the row at which the listing is taken up again.
pub(crate) fn manifest_rows(data: &[u8]) -> bool {
    let Some((&[format, resume], file)) = data.split_first_chunk() else { return false };
    let (format, is_csv, first) = match format % 3 {
        0 => (ManifestFormat::JsonLines, false, 1),
        1 => (ManifestFormat::Csv { header: false }, true, 1),
        _ => (ManifestFormat::Csv { header: true }, true, 2),
    };
    let manifest = Manifest::from_bytes(file, format);
    let Some(rows) = naive_rows(file, is_csv) else {
        let refused = listed(&manifest, WHOLE, CursorUpdate::initial(), &mut Vec::new());
        assert!(matches!(refused, Err(ConnectorError::Malformed { .. })), "half a row was taken");
        return false;
    };
    let is_item = |row: &Listed| row.number >= first && row.start < row.end;
    let rows: Vec<Listed> = rows.into_iter().filter(is_item).collect();
    assert_eq!(manifest.count_keys(WHOLE), Ok(Some(rows.len() as u64)), "another count");
    check_listing(&manifest, &rows, resume);
    check_bodies(&manifest, &rows, file, format == ManifestFormat::JsonLines);
    !rows.is_empty()
}

/// The lines of a file are those that a naive reader finds: their offsets, sizes and bodies; from
/// the top, and after any cursor. A range that begins anywhere lists those that begin in it.
///
/// The first byte says where the listing is taken up again.
pub(crate) fn line_file(data: &[u8]) -> bool {
    let Some((&resume, file)) = data.split_first() else { return false };
    let lines = LineFile::from_bytes(file);
    let rows = naive_rows(file, false).expect("a line ends anywhere");
    let rows: Vec<Listed> =
        rows.into_iter().map(|row| Listed { number: row.start as u64, ..row }).collect();
    check_listing(&lines, &rows, resume);
    check_bodies(&lines, &rows, file, false);
    let from = row_key(u64::from(resume));
    let mut found = Vec::new();
    let range = ShardSpecRef::new(&from, WHOLE.end, b"");
    listed(&lines, range, CursorUpdate::initial(), &mut found).expect("a readable file");
    let expected = rows.iter().filter(|row| row.number >= u64::from(resume));
    assert!(found.iter().map(|item| item.0).eq(expected.map(|row| row.number)), "other lines");
    !rows.is_empty()
}

/// Number, size and token of an item.
type Item = (u64, u64, Option<Vec<u8>>);

/// The listing is `rows`, and so is its rest after row number `resume`.
fn check_listing(connector: &dyn Connector, rows: &[Listed], resume: u8) {
    let mut items = Vec::new();
    listed(connector, WHOLE, CursorUpdate::initial(), &mut items).expect("a readable file");
    let expected = rows.iter().map(|row| (row.number, (row.end - row.start) as u64));
    assert!(items.iter().map(|item| (item.0, item.1)).eq(expected), "other rows than there are");
    let at = usize::from(resume);
    let Some((number, _, token)) = items.get(at).cloned() else { return };
    // The rest is the same without the token of the item; lines have none anyway.
    let ways = 1 + usize::from(token.is_some());
    for token in [None, token.as_deref()].into_iter().take(ways) {
        let key = row_key(number);
        let cursor = CursorUpdate::try_from_parts(Some(&key), token).expect("a key of an item");
        let mut rest = Vec::new();
        listed(connector, WHOLE, cursor, &mut rest).expect("a readable file");
        assert_eq!(rest, items[at + 1..], "the rest is not the rest");
    }
}

/// Lists a range through the checks that every connector is held to.
fn listed(
    connector: &dyn Connector,
    range: ShardSpecRef<'_>,
    from: CursorUpdate<'_>,
    items: &mut Vec<Item>,
) -> Result<(), ConnectorError> {
    thread_local! {
        static PAGE: RefCell<Page> = RefCell::new(Page::with_limits(
            PageLimits::try_new(PAGE_ITEMS, MIN_PAGE_BYTES).expect("a small page"),
        ));
    }
    let mut listing = CheckedEnumeration::open(connector, range, from)?;
    PAGE.with_borrow_mut(|page| {
        loop {
            match listing.next_page(page) {
                Ok(()) => {}
                Err(PageError::Connector(error)) => return Err(error),
                Err(other) => panic!("a rule of pages is broken: {other}"),
            }
            items.extend(page.items().map(item_of));
            if page.is_exhausted() {
                return Ok(());
            }
        }
    })
}

fn item_of(item: PageItem<'_>) -> Item {
    let number = item.key().strip_prefix(&[0; 8]).expect("a row of manifest 0");
    let number = u64::from_be_bytes(number.try_into().expect("the number of a row has 8 bytes"));
    (number, item.size_hint().expect("files know sizes"), item.token().map(<[u8]>::to_vec))
}

/// What opening the first and the last row gives.
fn check_bodies(connector: &dyn Connector, rows: &[Listed], file: &[u8], is_json: bool) {
    let mut scratch = Vec::new();
    for row in rows.first().into_iter().chain(rows.last()) {
        let expected = &file[row.start..row.end];
        let key = row_key(row.number);
        match connector.open(PageItem::new(&key), &mut scratch) {
            Ok(ItemBody::Bytes(body)) => {
                assert_eq!(body, expected, "another body");
                assert!(!is_json || is_text(body), "JSON that is no text");
            }
            Ok(_) => panic!("a short row is inline"),
            Err(OpenError::Malformed) => {
                let parsed = serde_json::from_slice::<serde_json::Value>(expected);
                assert!(is_json && parsed.is_err(), "a good row is refused");
            }
            Err(other) => panic!("a row that was listed is not opened: {other}"),
        }
    }
}

fn is_text(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok()
}

/// The rows of a file, byte by byte; `None` if it ends inside quotes.
fn naive_rows(file: &[u8], is_csv: bool) -> Option<Vec<Listed>> {
    let (mut rows, mut start, mut number) = (Vec::new(), 0, 1);
    // Inside quotes; and whether the next byte begins a field, or may be the second of two quotes.
    let (mut quoted, mut begins, mut doubled) = (false, true, false);
    for (at, &byte) in file.iter().enumerate() {
        let opens = is_csv && byte == b'"' && !quoted && (begins || doubled);
        let closes = byte == b'"' && quoted;
        if byte == b'\n' && !quoted {
            let end = if at > start && file[at - 1] == b'\r' { at - 1 } else { at };
            rows.push(Listed { number, start, end });
            (start, number) = (at + 1, number + 1);
        }
        begins = !quoted && (byte == b'\n' || byte == b',');
        doubled = closes;
        quoted = (quoted || opens) && !closes;
    }
    if start < file.len() {
        rows.push(Listed { number, start, end: file.len() });
    }
    (!quoted).then_some(rows)
}
