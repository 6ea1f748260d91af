//! Names of items of real files.

use std::ffi::OsStr;
use std::path::Path;

use super::item_names::*;
use super::lines::LineEnd;
use super::manifest::ManifestFormat;
use super::row_keys::row_key;
use super::source::Source;
use super::test_support::*;
use super::tree::TreeOptions;

fn lines(path: &Path, end: LineEnd) -> Source {
    Source::Lines { path: path.to_owned(), end }
}

fn name(names: &ItemNames, offset: u64) -> String {
    String::from_utf8(names.name(&row_key(offset))).unwrap()
}

#[test]
fn lines_are_named_by_number_and_text() {
    let directory = TempDir::new();
    let path = directory.write("urls.txt", "https://a\nhttps://bad/2\r\n\nlast");
    let names = ItemNames::of(&lines(&path, LineEnd::Feed));
    // Not in the order of the file: a later one is counted first.
    assert_eq!(name(&names, 26), "urls.txt:4 last");
    assert_eq!(name(&names, 10), "urls.txt:2 https://bad/2");
    assert_eq!(name(&names, 0), "urls.txt:1 https://a");
    assert_eq!(name(&names, 25), "urls.txt:3");
    assert_eq!(names.brief(&row_key(10)), b"https://bad/2");
    let names = names.as_typed(OsStr::new("lines:lists/urls.txt"));
    assert_eq!(name(&names, 10), "lists/urls.txt:2 https://bad/2");
    assert_eq!(&*names.place(&row_key(10)).unwrap(), "lists/urls.txt:2 https://bad/2");
    assert_eq!(name(&names.by_text(), 10), "https://bad/2");
}

#[test]
fn parts_are_named_like_lines() {
    let directory = TempDir::new();
    let path = directory.write("parts", b"a\nb\0\xff\0");
    let names = ItemNames::of(&lines(&path, LineEnd::Nul));
    assert_eq!(name(&names, 0), "parts:1 a\nb");
    assert_eq!(&*names.place(&row_key(4)).unwrap(), "parts:2 \\xff");
}

#[test]
fn long_lines_are_cut_within_the_limit_of_a_record() {
    let directory = TempDir::new();
    let path = directory.write("long", "ü".repeat(4096));
    let names = ItemNames::of(&lines(&path, LineEnd::Feed));
    let name = name(&names, 0);
    assert!(name.ends_with("üü…") && name.len() <= 600, "{} bytes", name.len());
}

#[test]
fn lines_of_a_file_that_is_gone_are_named_by_their_offsets() {
    let directory = TempDir::new();
    let path = directory.write("gone.txt", "a\nb\n");
    let names = ItemNames::of(&lines(&path, LineEnd::Feed));
    assert_eq!(name(&names, 2), "gone.txt:2 b");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(name(&names, 2), "gone.txt at byte 2");
}

#[test]
fn files_and_rows_are_named_as_typed() {
    let tree = Source::Tree { root: "/data/photos".into(), options: TreeOptions::default() };
    let names = ItemNames::of(&tree);
    assert_eq!(names.name(b"a/b.jpg"), b"/data/photos/a/b.jpg");
    let names = names.as_typed(OsStr::new("photos/"));
    assert_eq!(names.name(b"a/\xff"), b"photos/a/\xff");
    assert_eq!(&*names.place(b"a/\xff").unwrap(), "photos/a/\\xff");
    let format = ManifestFormat::Csv { header: true };
    let table = Source::Manifest { path: "/data/table.csv".into(), format };
    assert_eq!(name(&ItemNames::of(&table), 17), "table.csv:17");
    let numbers = Source::parse(OsStr::new("range:0..5"), Default::default()).unwrap();
    assert_eq!(name(&ItemNames::of(&numbers), 4), "4");
    assert_eq!(ItemNames::of(&numbers).place(&row_key(4)), None);
}
