use std::path::PathBuf;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{Connector, ConnectorError, ItemBody, OpenError, Page, PageItem};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::manifest::*;
use super::row_keys::row_key;
use super::test_support::*;

const CSV: ManifestFormat = ManifestFormat::Csv { header: true };
const BARE_CSV: ManifestFormat = ManifestFormat::Csv { header: false };
const JSONL: ManifestFormat = ManifestFormat::JsonLines;

struct Rows {
    directory: TempDir,
    format: ManifestFormat,
    /// Numbers and bodies of the items.
    items: Vec<(u64, Vec<u8>)>,
}

impl Rows {
    fn new(format: ManifestFormat, content: &[u8], items: &[(u64, &[u8])]) -> Self {
        let directory = TempDir::new();
        directory.write("rows", content);
        let items = items.iter().map(|(number, body)| (*number, body.to_vec())).collect();
        Self { directory, format, items }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("rows")
    }

    fn open(&self) -> Manifest {
        Manifest::open(&self.path(), self.format).unwrap()
    }
}

impl Fixture for Rows {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.open())
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let item =
            |(number, body): &(u64, Vec<u8>)| ExpectedItem::new(row_key(*number), body.clone());
        self.items.iter().map(item).collect()
    }
}

#[test]
fn json_lines_conform() {
    let content = b"{\"a\":1}\n\n[2,\"\\n\"]\r\n\r\n3\n3\n\"four\"";
    let items: [(u64, &[u8]); 5] =
        [(1, b"{\"a\":1}"), (3, b"[2,\"\\n\"]"), (5, b"3"), (6, b"3"), (7, b"\"four\"")];
    assert_conforms(&mut Rows::new(JSONL, content, &items));
}

#[test]
fn csv_conforms() {
    let content = b"name,note\na,\"two\nlines\"\n\nb,\"say \"\"hi\"\"\"\r\nb,\nc,1\n";
    let items: [(u64, &[u8]); 4] =
        [(2, b"a,\"two\nlines\""), (4, b"b,\"say \"\"hi\"\"\""), (5, b"b,"), (6, b"c,1")];
    assert_conforms(&mut Rows::new(CSV, content, &items));
    let with_first: Vec<_> = [(1, &b"name,note"[..])].into_iter().chain(items).collect();
    assert_conforms(&mut Rows::new(BARE_CSV, content, &with_first));
}

/// Up to 64 rows the index has one entry; here it has two.
#[test]
fn manifests_with_several_index_entries_conform() {
    let rows: Vec<Vec<u8>> = (0..70_u32).map(|n| n.to_string().into_bytes()).collect();
    let items: Vec<_> =
        rows.iter().enumerate().map(|(at, row)| (at as u64 + 1, &row[..])).collect();
    assert_conforms(&mut Rows::new(JSONL, &rows.join(&b"\n"[..]), &items));
}

#[rstest]
#[case(b"")]
#[case(b"\n")]
#[case(b"\n\r\n\n")]
fn a_manifest_without_rows_lists_nothing(
    #[case] content: &[u8],
    #[values(JSONL, CSV, BARE_CSV)] format: ManifestFormat,
) {
    let file = Rows::new(format, content, &[]);
    let manifest = file.open();
    assert!(all_keys(&manifest).is_empty());
    assert_eq!(manifest.count_keys(WHOLE), Ok(Some(0)));
    assert_eq!(sample_of(&manifest, WHOLE, 10), (vec![], true));
}

#[test]
fn a_header_alone_lists_nothing() {
    let file = Rows::new(CSV, b"name,note\n", &[]);
    assert!(all_keys(&file.open()).is_empty());
}

#[rstest]
#[case(b"{\"a\":}")]
#[case(b"{} {}")]
#[case(b"nonsense")]
#[case(b"\"\xff\"")]
#[case(b" ")]
fn a_row_that_is_no_json_is_malformed_and_its_neighbours_are_not(#[case] bad: &[u8]) {
    let file = Rows::new(JSONL, &[b"1\n", bad, b"\n3\n"].concat(), &[]);
    let manifest = file.open();
    assert_eq!(all_keys(&manifest).len(), 3);
    let open = |row| manifest.open(PageItem::new(&row_key(row)), &mut Vec::new()).map(drop);
    assert_eq!([open(1), open(2), open(3)], [Ok(()), Err(OpenError::Malformed), Ok(())]);
}

#[test]
fn a_file_that_ends_inside_quotes_is_malformed() {
    let file = Rows::new(CSV, b"h\na\n\"b\nc\n", &[]);
    let manifest = file.open();
    let refused = manifest.enumerate(WHOLE, CursorUpdate::initial()).map(drop);
    assert_eq!(refused, Err(ConnectorError::Malformed { position: 4 }));
}

#[test]
fn a_file_that_changes_is_noticed() {
    let rows = Rows::new(JSONL, b"1\n2\n3\n", &[]);
    let manifest = rows.open();
    let mut listing = manifest.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    std::fs::write(rows.path(), b"0\n1\n2\n3\n").unwrap();
    assert_eq!(listing.next_page(&mut Page::default()), Err(ConnectorError::SourceChanged));
}

#[rstest]
#[case::cut_short(b"1\n2", b"1\n")]
#[case::other_content(b"1\n2\n3\n", b"1\n4\n3\n5\n")]
fn a_row_of_a_changed_file_is_neither_gone_nor_given(#[case] was: &[u8], #[case] now: &[u8]) {
    let rows = Rows::new(JSONL, was, &[]);
    let manifest = rows.open();
    let mut page = Page::default();
    manifest.enumerate(WHOLE, CursorUpdate::initial()).unwrap().next_page(&mut page).unwrap();
    std::fs::write(rows.path(), now).unwrap();
    let opened = manifest.open(page.item(1).unwrap(), &mut Vec::new()).map(drop);
    assert_eq!(opened, Err(OpenError::Source(ConnectorError::SourceChanged)));
}

/// The token was written by a process that saw the file as it was before someone put a row in.
#[test]
fn a_token_of_the_file_as_it_was_is_not_believed() {
    let rows = Rows::new(JSONL, b"1\n2\n3\n4\n", &[]);
    let mut page = Page::default();
    let mut listing = rows.open().enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    listing.next_page(&mut page).unwrap();
    std::fs::write(rows.path(), b"1\n\"long\"\n2\n3\n4\n").unwrap();
    let changed = rows.open();
    let expected: Vec<_> = (3..=5).map(|row| row_key(row).to_vec()).collect();
    assert_eq!(keys_from(&changed, WHOLE, page.cursor_at(1).unwrap()), expected);
    let mut scratch = Vec::new();
    let opened = changed.open(page.item(2).unwrap(), &mut scratch).unwrap();
    assert!(matches!(opened, ItemBody::Bytes(b"2")));
}

#[test]
fn a_large_manifest_is_counted_and_sampled_by_its_index() {
    let content: Vec<u8> = (0..100_000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let file = Rows::new(JSONL, &content, &[]);
    let manifest = file.open();
    assert_eq!(manifest.count_keys(WHOLE), Ok(Some(100_000)));
    let (first, end) = (row_key(501), row_key(90_001));
    let range = ShardSpecRef::new(&first, &end, b"");
    assert_eq!(manifest.count_keys(range), Ok(Some(89_500)));
    let (sample, exhausted) = sample_of(&manifest, range, 1024);
    assert!(!exhausted);
    assert_eq!(sample.len(), 1024);
    let rest = keys_from(&manifest, range, CursorUpdate::with_last_key(&row_key(89_998)));
    assert_eq!(rest, [row_key(89_999).to_vec(), row_key(90_000).to_vec()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_cursor_gives_the_suffix(
        content in vec(prop::sample::select(b"1,\"\r\n".to_vec()), 0..40),
        format in prop::sample::select(vec![JSONL, CSV, BARE_CSV]),
    ) {
        let file = Rows::new(format, &content, &[]);
        let manifest = file.open();
        if manifest.count_keys(WHOLE).is_ok() {
            assert_every_cursor_gives_the_suffix(&manifest);
        }
    }

    /// The splitter against the same rule written the other way round: join, then split.
    #[test]
    fn csv_rows_come_back_as_they_were_joined(
        rows in vec(vec(vec(prop::sample::select(b"a\",\n".to_vec()), 0..6), 1..4), 1..8),
    ) {
        let quote = |field: &Vec<u8>| {
            let doubled: Vec<u8> = field
                .iter()
                .flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }))
                .collect();
            [b"\"", &doubled[..], b"\""].concat()
        };
        let rows: Vec<Vec<u8>> = rows
            .iter()
            .map(|row| row.iter().map(quote).collect::<Vec<_>>().join(&b","[..]))
            .collect();
        let file = Rows::new(BARE_CSV, &rows.join(&b"\n"[..]), &[]);
        let manifest = file.open();
        for (at, row) in rows.iter().enumerate() {
            let key = row_key(at as u64 + 1);
            let mut scratch = Vec::new();
            let body = manifest.open(PageItem::new(&key), &mut scratch).unwrap();
            prop_assert!(matches!(body, ItemBody::Bytes(bytes) if bytes == row));
        }
        prop_assert_eq!(manifest.count_keys(WHOLE), Ok(Some(rows.len() as u64)));
    }
}
