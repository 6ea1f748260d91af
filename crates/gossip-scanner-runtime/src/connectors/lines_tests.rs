use std::io::Read;
use std::path::PathBuf;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{
    Connector, ConnectorError, ItemBody, MAX_INLINE_BODY_BYTES, OpenError, Page, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::lines::*;
use super::row_keys::row_key;
use super::test_support::*;

struct Lines {
    directory: TempDir,
    content: Vec<u8>,
}

impl Lines {
    fn new(content: &[u8]) -> Self {
        let directory = TempDir::new();
        directory.write("lines", content);
        Self { directory, content: content.to_vec() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("lines")
    }

    fn open(&self) -> LineFile {
        LineFile::open(&self.path()).unwrap()
    }
}

impl Fixture for Lines {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.open())
    }

    /// By the standard library, not by our own scanner.
    fn expected(&self) -> Vec<ExpectedItem> {
        let mut offset = 0;
        let mut items = Vec::new();
        for line in self.content.split_inclusive(|byte| *byte == b'\n') {
            let body = line.strip_suffix(b"\n").unwrap_or(line);
            let body = if body.len() < line.len() { body.strip_suffix(b"\r") } else { None }
                .unwrap_or(body);
            items.push(ExpectedItem::new(row_key(offset), body));
            offset += line.len() as u64;
        }
        items
    }
}

#[test]
fn lines_conform() {
    assert_conforms(&mut Lines::new(b"same\nsame\n\n\r\nx\r\n\xff\0\nnot at the end"));
    assert_conforms(&mut Lines::new(b"a\nb\nc\nd\n"));
}

#[test]
fn lines_that_cross_buffers_conform() {
    let mut content = Vec::new();
    for len in [70_000, 3, 65_535, 65_536, 0, 131_071, 9] {
        content.extend(std::iter::repeat_n(b'x', len));
        content.push(b'\n');
    }
    assert_conforms(&mut Lines::new(&content));
}

#[test]
fn an_empty_file_has_no_lines() {
    let file = Lines::new(b"");
    let lines = file.open();
    assert!(all_keys(&lines).is_empty());
    assert_eq!(sample_of(&lines, WHOLE, 10), (vec![], true));
}

#[test]
fn a_line_too_long_to_be_inline_is_read_piece_by_piece() {
    let long = vec![b'x'; MAX_INLINE_BODY_BYTES + 1];
    let file = Lines::new(&[b"a\n", &long[..], b"\nb"].concat());
    let (lines, mut scratch) = (file.open(), Vec::new());
    let key = row_key(2);
    let ItemBody::Reader(mut body) = lines.open(PageItem::new(&key), &mut scratch).unwrap() else {
        panic!("too long to be inline");
    };
    let mut read = Vec::new();
    body.read_to_end(&mut read).unwrap();
    assert_eq!(read, long);
    drop(body);
    let ItemBody::Reader(mut body) = lines.open(PageItem::new(&key), &mut scratch).unwrap() else {
        panic!("too long to be inline");
    };
    std::fs::write(file.path(), vec![b'y'; 2 * long.len()]).unwrap();
    let cut = body.read(&mut [0; 16]).map_err(|error| OpenError::from_io(&error));
    assert_eq!(cut, Err(OpenError::Changed));
}

#[test]
fn a_file_that_changes_is_noticed() {
    let file = Lines::new(b"a\nb\nc\nd\n");
    let lines = file.open();
    let mut listing = lines.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    std::fs::write(file.path(), b"a\nb\nc\nd\ne\n").unwrap();
    assert_eq!(listing.next_page(&mut Page::default()), Err(ConnectorError::SourceChanged));
    let again = lines.enumerate(WHOLE, CursorUpdate::initial()).map(drop);
    assert_eq!(again, Err(ConnectorError::SourceChanged));
}

/// Whatever is at the place of a line now, it is neither that line nor a sign that it is gone.
#[rstest]
#[case::cut_short(b"a\nxx")]
#[case::beyond_the_end(b"a\n")]
#[case::within_a_line(b"abcdef\n")]
#[case::another_line(b"b\nyyy\nz\n")]
fn a_line_of_a_changed_file_is_neither_gone_nor_given(#[case] now: &[u8]) {
    let file = Lines::new(b"a\nxxx\nz\nz\n");
    let lines = file.open();
    let mut page = Page::default();
    lines.enumerate(WHOLE, CursorUpdate::initial()).unwrap().next_page(&mut page).unwrap();
    std::fs::write(file.path(), now).unwrap();
    let opened = lines.open(page.item(1).unwrap(), &mut Vec::new()).map(drop);
    assert_eq!(opened, Err(OpenError::Source(ConnectorError::SourceChanged)));
}

#[test]
fn an_unreadable_file_is_refused() {
    let directory = TempDir::new();
    let refused = |path: PathBuf| LineFile::open(&path).map(drop);
    let not_found = Err(ConnectorError::NotFound);
    assert_eq!(refused(directory.path().join("missing")), not_found);
    assert_eq!(refused(directory.path().to_owned()), not_found);
    assert_eq!(refused(PathBuf::from("/dev/null")), not_found);
}

#[test]
fn a_large_file_is_sampled_by_a_bounded_look() {
    let line = [&[b'x'; 99][..], b"\n"].concat();
    let file = Lines::new(&line.repeat(100_000));
    let lines = file.open();
    let (sample, exhausted) = sample_of(&lines, WHOLE, 100);
    assert!(!exhausted);
    let every_thousandth: Vec<_> =
        (0..100).map(|place| row_key(place * 100_000).to_vec()).collect();
    assert_eq!(sample, every_thousandth);
    let half = row_key(5_000_000);
    let (sample, _) = sample_of(&lines, ShardSpecRef::new(&half, b"", b""), 10);
    assert_eq!(sample.len(), 10);
    assert_eq!(sample[0], half);
}

/// A look at one huge line finds its beginning, and does not read on for the end of it.
#[test]
fn long_lines_do_not_stop_a_sample() {
    let content = [&vec![b'x'; 600_000][..], b"\nshort\n"].concat();
    let file = Lines::new(&content);
    let lines = file.open();
    let (sample, exhausted) = sample_of(&lines, WHOLE, 16);
    assert_eq!((sample, exhausted), (vec![row_key(0).to_vec()], false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_cursor_gives_the_suffix(
        content in vec(prop::sample::select(b"ab\r\n".to_vec()), 0..40),
    ) {
        let file = Lines::new(&content);
        let expected: Vec<_> = file.expected().into_iter().map(|item| item.key).collect();
        prop_assert_eq!(all_keys(&file.open()), expected);
        assert_every_cursor_gives_the_suffix(&file.open());
    }
}
