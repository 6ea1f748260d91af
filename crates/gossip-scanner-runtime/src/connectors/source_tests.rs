use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::source::*;
use super::test_support::*;

fn parse(text: impl AsRef<OsStr>) -> Result<Source, SourceError> {
    Source::parse(text.as_ref(), SourceOptions::NONE)
}

/// A directory with one file of each kind.
fn files() -> TempDir {
    let directory = TempDir::new();
    for name in ["a.txt", "b.jsonl", "c.csv", "d.ndjson", "dir/x", "dir/lines:y"] {
        directory.write(name, "{}\n{}\n");
    }
    directory
}

fn below(directory: &TempDir, scheme: &str, name: &str) -> OsString {
    let mut text = OsString::from(scheme);
    text.push(directory.path().join(name));
    text
}

#[rstest]
#[case("", "dir", "Tree")]
#[case("tree:", "dir", "Tree")]
#[case("", "b.jsonl", "Manifest")]
#[case("", "d.ndjson", "Manifest")]
#[case("", "c.csv", "Manifest")]
#[case("lines:", "a.txt", "Lines")]
#[case("lines:", "c.csv", "Lines")]
#[case("jsonl:", "a.txt", "Manifest")]
#[case("csv:", "a.txt", "Manifest")]
fn what_users_type(#[case] scheme: &str, #[case] name: &str, #[case] kind: &str) {
    let directory = files();
    let source = parse(below(&directory, scheme, name)).unwrap();
    assert!(format!("{source:?}").starts_with(kind), "{source:?}");
    assert!(source.open().is_ok());
    // The printed form can be typed again.
    assert_eq!(parse(source.text()), Ok(source));
}

#[rstest]
#[case("", "a.txt", SourceError::BareFile)]
#[case("", "missing", SourceError::NotFound)]
#[case("", "a.txt/x", SourceError::NotFound)]
#[case("lines:", "missing", SourceError::NotFound)]
#[case("lines:", "dir", SourceError::NotAFile)]
#[case("tree:", "a.txt", SourceError::NotADirectory)]
fn an_unknown_source_is_refused_with_advice(
    #[case] scheme: &str,
    #[case] name: &str,
    #[case] expected: SourceError,
) {
    let directory = files();
    assert_eq!(parse(below(&directory, scheme, name)), Err(expected.clone()));
    assert!(expected.to_string().contains("FILE") || expected.to_string().contains("DIR"));
}

#[rstest]
#[case("range:1..10", Some((1, Some(9))))]
#[case("range:1..=10", Some((1, Some(10))))]
#[case("range:0..1_000_000", Some((0, Some(999_999))))]
#[case("range:5..5", Some((5, None)))]
#[case("range:7..=7", Some((7, Some(7))))]
#[case("range:0..=18446744073709551614", Some((0, Some(u64::MAX - 1))))]
#[case("range:0..18446744073709551615", Some((0, Some(u64::MAX - 1))))]
#[case("range:18446744073709551615..18446744073709551615", Some((u64::MAX, None)))]
#[case("range:0..=18446744073709551616", None)]
#[case("range:1..", None)]
#[case("range:..3", None)]
#[case("range:_.._", None)]
#[case("range:1", None)]
#[case("range:1..-3", None)]
#[case("range:+1..3", None)]
#[case("range:1...3", None)]
#[case("range:a..b", None)]
#[case("range: 1..3", None)]
fn ranges(#[case] text: &str, #[case] expected: Option<(u64, Option<u64>)>) {
    match (parse(text), expected) {
        (Ok(Source::Integers(range)), Some((first, last))) => {
            assert_eq!((range.first(), range.last()), (first, last));
            let source = Source::Integers(range);
            assert_eq!(parse(source.text()), Ok(source));
        }
        (found, None) => assert_eq!(found, Err(SourceError::MalformedRange)),
        (found, Some(_)) => panic!("{found:?}"),
    }
}

#[test]
fn a_range_the_wrong_way_round_is_refused() {
    let refused = Err(SourceError::InvertedRange { first: 5, end: 3 });
    assert_eq!(parse("range:5..3"), refused);
    assert_eq!(parse("range:5..=3"), refused);
}

/// The greatest number bounds every range of rows and lies in none, so it is refused and not left
/// out.
#[test]
fn a_range_with_the_greatest_number_is_refused() {
    assert_eq!(parse("range:0..=18446744073709551615"), Err(SourceError::RangeTooLarge));
}

#[test]
fn nothing_is_no_source() {
    for text in ["", "lines:", "tree:", "range:"] {
        assert_eq!(parse(text), Err(SourceError::Empty), "{text}");
    }
}

#[test]
fn a_file_whose_name_looks_like_a_scheme_can_be_named() {
    let directory = files();
    let text = below(&directory, "lines:", "dir/lines:y");
    assert!(matches!(parse(text), Ok(Source::Lines { .. })));
    assert_eq!(parse("other:thing"), Err(SourceError::NotFound));
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let directory = files();
    let with = |text: &OsStr, options| Source::parse(text, options).map(drop);
    let tree = below(&directory, "", "dir");
    let lines = below(&directory, "lines:", "a.txt");
    let csv = below(&directory, "", "c.csv");
    let refused = |option| Err(SourceError::OptionMisplaced { option });
    let ignore = SourceOptions { ignore: true, ..SourceOptions::NONE };
    let follow = SourceOptions { follow_links: true, ..SourceOptions::NONE };
    let bare = SourceOptions { no_header: true, ..SourceOptions::NONE };
    assert_eq!(with(&tree, ignore), Ok(()));
    assert_eq!(with(&tree, follow), Ok(()));
    assert_eq!(with(&csv, bare), Ok(()));
    assert_eq!(with(&lines, ignore), refused("ignore"));
    assert_eq!(with(&csv, follow), refused("follow-links"));
    assert_eq!(with(&tree, bare), refused("no-header"));
    assert_eq!(with(OsStr::new("range:1..2"), bare), refused("no-header"));
}

#[test]
fn the_same_directory_is_the_same_source_by_every_name() {
    let directory = files();
    symlink("dir", directory.path().join("link")).unwrap();
    let canonical = |name: &str| parse(below(&directory, "", name)).unwrap().canonical();
    assert_eq!(canonical("dir"), canonical("link"));
    assert_eq!(canonical("dir"), canonical("./dir/../dir/"));
}

#[test]
fn different_sources_have_different_canonical_bytes() {
    let directory = files();
    let mut seen = BTreeSet::new();
    let mut count = 0;
    let mut add = |source: Result<Source, SourceError>| {
        count += 1;
        seen.insert(source.unwrap().canonical());
    };
    for flags in 0..4 {
        let (ignore, follow_links) = (flags & 1 > 0, flags & 2 > 0);
        let options = SourceOptions { ignore, follow_links, no_header: false };
        add(Source::parse(&below(&directory, "", "dir"), options));
    }
    let bare = SourceOptions { no_header: true, ..SourceOptions::NONE };
    for scheme in ["lines:", "jsonl:", "csv:"] {
        add(parse(below(&directory, scheme, "c.csv")));
        add(parse(below(&directory, scheme, "a.txt")));
    }
    add(Source::parse(&below(&directory, "csv:", "c.csv"), bare));
    for text in ["range:0..0", "range:0..1", "range:0..2", "range:1..1", "range:1..2"] {
        add(parse(text));
    }
    assert_eq!(seen.len(), count);
}

#[test]
fn the_root_holds_every_key() {
    let directory = files();
    directory.write(OsStr::from_bytes(&[0xFF; 255]), "");
    directory.write(OsStr::from_bytes(b"\x01"), "");
    let mut deep = [0xFF; 511];
    deep[255] = b'/';
    directory.write(OsStr::from_bytes(b"\xfe/x"), "");
    for text in [
        below(&directory, "", ""),
        below(&directory, "lines:", "a.txt"),
        below(&directory, "jsonl:", "a.txt"),
        below(&directory, "csv:", "a.txt"),
        "range:7..=9".into(),
        "range:0..=0".into(),
        "range:18446744073709551614..=18446744073709551614".into(),
    ] {
        let source = parse(&text).unwrap();
        let keys = all_keys(&*source.open().unwrap());
        assert!(!keys.is_empty());
        assert!(keys.iter().all(|key| source.root().contains_key(key)), "{source:?}");
    }
    assert!(parse(below(&directory, "", "")).unwrap().root().contains_key(&deep));
    for text in ["range:7..7", "range:18446744073709551615..18446744073709551615"] {
        let empty = parse(text).unwrap().root();
        assert!(!empty.start().is_empty() && !empty.end().is_empty());
    }
}

#[test]
fn a_stamp_differs_for_a_changed_file() {
    let directory = files();
    let source = parse(below(&directory, "lines:", "a.txt")).unwrap();
    let before = source.stamp().unwrap().unwrap();
    assert_eq!(source.stamp(), Ok(Some(before)));
    directory.write("a.txt", "longer than it was before\n");
    assert_ne!(source.stamp(), Ok(Some(before)));
    assert_eq!(parse("range:0..1").unwrap().stamp(), Ok(None));
}

#[test]
fn exclusions_are_reported() {
    let directory = files();
    let tree = parse(below(&directory, "", "dir")).unwrap();
    assert!(tree.excluded().iter().any(|words| words.contains("symbolic links")));
    assert_eq!(tree.settings(), [("ignore", false), ("follow-links", false)]);
    let csv = parse(below(&directory, "", "c.csv")).unwrap();
    assert!(csv.excluded().contains(&"the first row"));
    assert_eq!(csv.settings(), [("no-header", false)]);
}

proptest! {
    #[test]
    fn any_bytes_are_a_source_or_an_error(bytes in vec(any::<u8>(), 0..20)) {
        let ranged = [b"range:", &bytes[..]].concat();
        for text in [&bytes[..], &ranged] {
            // Whatever lies in the directory of the tests may be named by chance; nothing panics.
            let _ = parse(OsStr::from_bytes(text));
        }
    }

    #[test]
    fn typed_ranges_are_the_integers_between(first in 0..1000_u64, len in 0..20_u64) {
        let source = parse(format!("range:{first}..{}", first + len)).unwrap();
        let keys = all_keys(&*source.open().unwrap());
        prop_assert_eq!(keys.len() as u64, len);
        prop_assert!(keys.iter().all(|key| source.root().contains_key(key)));
    }
}

/// What a run stores is read again where its files are not.
#[rstest]
#[case::tree("tree:/no/such/place", SourceOptions { ignore: true, ..SourceOptions::NONE })]
#[case::lines("lines:/no/such/file", SourceOptions::NONE)]
#[case::jsonl("jsonl:/no/such/file", SourceOptions::NONE)]
#[case::csv("csv:/no/such/file", SourceOptions { no_header: true, ..SourceOptions::NONE })]
#[case::range("range:3..=9", SourceOptions::NONE)]
fn a_source_is_restored_without_its_files(#[case] text: &str, #[case] options: SourceOptions) {
    let source = Source::restore(OsStr::new(text), options).unwrap();
    assert_eq!((source.text(), source.options()), (text.into(), options));
    assert_eq!(Source::restore(OsStr::new("/a/path"), options), Err(SourceError::Empty));
}

#[test]
fn a_restored_source_equals_the_parsed_one() {
    let directory = TempDir::new();
    let path = directory.write("rows.csv", "a\n");
    let parsed = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    assert_eq!(Source::restore(&parsed.text(), parsed.options()), Ok(parsed));
}
