//! Two listers that share no code give the same keys, or one of them is wrong.

use std::ffi::OsString;
use std::os::unix::fs::symlink;

use gossip_contracts::connector::{CheckedEnumeration, ConnectorError, Page};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::recount::*;
use crate::connectors::test_support::*;
use crate::connectors::{Source, SourceOptions, row_key};

fn source(scheme: &str, directory: &TempDir, name: &str, options: SourceOptions) -> Source {
    let mut typed = OsString::from(scheme);
    typed.push(directory.path().join(name));
    Source::parse(&typed, options).unwrap()
}

/// Whole, and from and to each key.
fn assert_same(source: &Source) {
    let (ours, theirs) = (recount(source).unwrap(), source.open().unwrap());
    let keys = all_keys(&*theirs);
    assert_eq!(all_keys(&*ours), keys);
    for key in keys {
        let initial = CursorUpdate::initial();
        for range in [ShardSpecRef::new(&key, b"", b""), ShardSpecRef::new(b"", &key, b"")] {
            let (ours, theirs) =
                (keys_from(&*ours, range, initial), keys_from(&*theirs, range, initial));
            assert_eq!(ours, theirs);
        }
        let from = CursorUpdate::with_last_key(&key);
        assert_eq!(keys_from(&*ours, WHOLE, from), keys_from(&*theirs, WHOLE, from));
    }
}

#[rstest]
#[case::plain(false, false)]
#[case::links_followed(false, true)]
#[case::ignore_files_heard(true, false)]
#[case::both(true, true)]
fn a_tree_is_listed_alike(#[case] ignore: bool, #[case] follow_links: bool) {
    let directory = TempDir::new();
    for path in ["a-b", "a/b", "a/b-c", "a0", "b/c/d", "b/c-d", ".hidden", "x.log", "d/.e/f"] {
        directory.write(path, "");
    }
    directory.write(".gitignore", "*.log\n");
    std::fs::create_dir_all(directory.path().join("empty/deeper")).unwrap();
    let link = |to: &str, name: &str| symlink(to, directory.path().join(name)).unwrap();
    link("a", "link");
    link("..", "b/up");
    link("nowhere", "dangling");
    link("loop", "loop");
    link("a0", "alias");
    let options = SourceOptions { ignore, follow_links, no_header: false };
    assert_same(&source("tree:", &directory, "", options));
}

#[test]
fn integers_are_counted_alike() {
    for typed in ["range:0..0", "range:7..8", "range:95..=105"] {
        assert_same(&Source::parse(typed.as_ref(), SourceOptions::NONE).unwrap());
    }
    let typed = "range:0..18446744073709551615";
    let everything = recount(&Source::parse(typed.as_ref(), SourceOptions::NONE).unwrap()).unwrap();
    let (start, end) = (row_key(u64::MAX - 2), row_key(u64::MAX));
    let last = ShardSpecRef::new(&start, &end, b"");
    assert_eq!(keys_from(&*everything, last, CursorUpdate::initial()).len(), 2);
}

/// Behind a directory that cannot be read the rest is listed, and in front of it too.
#[test]
fn what_cannot_be_listed_stops_only_those_who_need_it() {
    let source = with_unlisted_prefix(&["a", "c/x", "d"], b"b/", ConnectorError::PermissionDenied);
    let list = |start: &[u8], end: &[u8]| {
        let range = ShardSpecRef::new(start, end, b"");
        let mut listing =
            CheckedEnumeration::open(&*source, range, CursorUpdate::initial()).unwrap();
        let (mut page, mut keys) = (Page::default(), 0);
        loop {
            listing.next_page(&mut page).map_err(|_| keys)?;
            keys += page.len();
            if page.is_exhausted() {
                return Ok(keys);
            }
        }
    };
    assert_eq!(list(b"", b""), Err(1));
    assert_eq!(list(b"", b"b/"), Ok(1));
    assert_eq!(list(b"b0", b""), Ok(2));
    assert_eq!(list(b"b/y", b"c"), Err(0));
}

#[test]
fn a_root_that_is_not_there_is_not_empty() {
    let directory = TempDir::new();
    std::fs::create_dir(directory.path().join("t")).unwrap();
    let source = source("tree:", &directory, "t", SourceOptions::NONE);
    std::fs::remove_dir(directory.path().join("t")).unwrap();
    let refused = recount(&source).map(drop).unwrap_err();
    assert_eq!(refused, ConnectorError::NotFound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_are_listed_alike(
        content in vec(prop::sample::select(b"a,\"\r\n".to_vec()), 0..30),
        scheme in prop::sample::select(vec!["lines:", "jsonl:", "csv:"]),
        no_header: bool,
    ) {
        let directory = TempDir::new();
        directory.write("rows", &content);
        let no_header = no_header && scheme == "csv:";
        let options = SourceOptions { no_header, ..SourceOptions::NONE };
        let source = source(scheme, &directory, "rows", options);
        let theirs = source.open().unwrap();
        match recount(&source) {
            Ok(ours) => prop_assert_eq!(all_keys(&*ours), all_keys(&*theirs)),
            Err(ours) => {
                let refused = theirs.enumerate(WHOLE, CursorUpdate::initial()).map(drop);
                prop_assert_eq!(refused, Err(ours));
            }
        }
    }
}
