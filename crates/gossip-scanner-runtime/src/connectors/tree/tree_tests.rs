use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::connector::{
    CheckedEnumeration, Connector, ConnectorError, OpenError, Page, PageItem, Spoil,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::connectors::test_support::*;

/// Names whose order as paths is not their order as names.
const TRICKY: [&str; 14] = [
    "a-b",
    "a/b",
    "a/b-c",
    "a.txt",
    "a0",
    "b/c/d",
    "b/c-d",
    "b/c0",
    "b/.hidden",
    "line\nbreak",
    " space ",
    "é",
    "z/z/z",
    "~",
];

pub(super) struct Files {
    pub(super) directory: TempDir,
    options: TreeOptions,
    items: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Files {
    pub(super) fn new<P: AsRef<[u8]>>(paths: impl IntoIterator<Item = P>) -> Self {
        let (directory, mut items) = (TempDir::new(), BTreeMap::new());
        for path in paths {
            let path = path.as_ref();
            let body = [b"body of ", path].concat();
            directory.write(OsStr::from_bytes(path), &body);
            items.insert(path.to_vec(), body);
        }
        Self { directory, options: TreeOptions::EVERYTHING, items }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    pub(super) fn open(&self) -> FileTree {
        FileTree::open(self.directory.path(), self.options).unwrap()
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.items.keys().cloned().collect()
    }
}

impl Fixture for Files {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.open())
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let item = |(key, body): (&Vec<u8>, &Vec<u8>)| ExpectedItem::new(key.clone(), body.clone());
        self.items.iter().map(item).collect()
    }

    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        let path = self.directory.path().join(OsStr::from_bytes(key));
        match spoil {
            Spoil::Vanish => {
                std::fs::remove_file(path).unwrap();
                self.items.remove(key);
            }
            Spoil::Change => {
                std::fs::remove_file(&path).unwrap();
                std::fs::create_dir(path).unwrap();
                self.items.remove(key);
            }
            // The superuser reads everything; see `denied_tests.rs`.
            _ if is_superuser() => return false,
            _ => deny(&path),
        }
        true
    }
}

#[test]
fn trees_conform() {
    assert_conforms(&mut Files::new(TRICKY));
}

#[test]
fn trees_whose_names_are_no_text_conform() {
    let names: [&[u8]; 6] =
        [b"\xff", b"\xfe/\xfe", b"\x01", b"d\x80/x", b"d\x80-x", b"d\x80/\xc3\x28"];
    assert_conforms(&mut Files::new(names));
}

#[test]
fn keys_come_in_the_order_of_whole_paths() {
    let files = Files::new(["a/b", "a-b", "a", "a.b/c", "a/b.c", "a0"].map(|path| {
        // One name cannot be both file and directory.
        if path == "a" { "A" } else { path }
    }));
    let expected = ["A", "a-b", "a.b/c", "a/b", "a/b.c", "a0"].map(|key| key.as_bytes().to_vec());
    assert_eq!(all_keys(&files.open()), expected);
}

#[test]
fn an_empty_tree_lists_nothing() {
    let files = Files::new::<&str>([]);
    std::fs::create_dir_all(files.path("empty/deeper")).unwrap();
    assert!(all_keys(&files.open()).is_empty());
    assert_eq!(sample_of(&files.open(), WHOLE, 10), (vec![], true));
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let files = Files::new(["file"]);
    let refused = |path: &str| {
        FileTree::open(&files.path(path), TreeOptions::EVERYTHING).map(drop).unwrap_err()
    };
    assert_eq!(refused("missing"), ConnectorError::NotFound);
    assert_eq!(refused("file"), ConnectorError::NotFound);
}

#[test]
fn a_root_that_vanishes_is_not_found() {
    let files = Files::new(["file"]);
    let tree = files.open();
    std::fs::remove_dir_all(files.directory.path()).unwrap();
    let refused = tree.enumerate(WHOLE, CursorUpdate::initial()).map(drop);
    assert_eq!(refused, Err(ConnectorError::NotFound));
}

/// The tree is moved away between two pages, and perhaps an empty one put in its place, as an
/// unmounted disk does: nothing is taken for deleted.
#[rstest]
#[case(false, ConnectorError::NotFound)]
#[case(true, ConnectorError::SourceChanged)]
fn a_root_that_goes_away_between_pages_ends_no_listing(
    #[case] replaced: bool,
    #[case] expected: ConnectorError,
) {
    let files = Files::new(["t/a", "t/b/x", "t/b/y", "t/c/x", "t/c/y", "t/d"]);
    let root = files.path("t");
    let tree = FileTree::open(&root, TreeOptions::EVERYTHING).unwrap();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    let mut page = small_page();
    listing.next_page(&mut page).unwrap();
    std::fs::rename(&root, files.path("t.old")).unwrap();
    if replaced {
        std::fs::create_dir(&root).unwrap();
    }
    let last = page.item(2).unwrap();
    let opened = tree.open(last, &mut Vec::new()).map(drop);
    assert_eq!(opened, Err(OpenError::Source(expected)));
    let mut rest = small_page();
    let mut listed = listing.next_page(&mut rest);
    if listed.is_ok() {
        assert!(!rest.is_exhausted(), "what came before the failure is given first");
        rest.clear();
        listed = listing.next_page(&mut rest);
    }
    assert_eq!(listed, Err(expected));
}

/// What a worker sees that claims its shard after the disk was unmounted.
#[test]
fn an_empty_directory_in_place_of_the_root_lists_nothing() {
    let files = Files::new(["t/a"]);
    let root = files.path("t");
    let tree = FileTree::open(&root, TreeOptions::EVERYTHING).unwrap();
    std::fs::rename(&root, files.path("t.old")).unwrap();
    std::fs::create_dir(&root).unwrap();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    assert_eq!(listing.next_page(&mut small_page()), Err(ConnectorError::SourceChanged));
}

/// A seek must not read what lies before it: here that is a directory which would fail.
#[test]
fn a_listing_does_not_enter_directories_before_its_cursor() {
    let files = Files::new(["a/x", "b/x", "c/d/x", "c/e/x"]);
    let tree = files.open();
    // Too long for a key: entering `a` fails.
    make_deep(&files.path("a"), 200);
    let failed = CheckedEnumeration::open(&tree, WHOLE, CursorUpdate::initial())
        .map_err(drop)
        .and_then(|mut listing| listing.next_page(&mut Page::default()).map_err(drop));
    assert_eq!(failed, Err(()));
    let from = CursorUpdate::with_last_key(b"c/d/x");
    assert_eq!(keys_from(&tree, WHOLE, from), [b"c/e/x".to_vec()]);
    let range = ShardSpecRef::new(b"b", b"c/e", b"");
    let expected = [b"b/x".to_vec(), b"c/d/x".to_vec()];
    assert_eq!(keys_from(&tree, range, CursorUpdate::initial()), expected);
}

#[test]
fn a_path_too_long_for_a_key_is_an_error_after_what_lies_before_it() {
    let files = Files::new(["a", "z"]);
    make_deep(&files.path("deep"), 200);
    let tree = files.open();
    let (mut page, mut keys) = (Page::default(), Vec::new());
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    listing.next_page(&mut page).unwrap();
    keys.extend(page.items().map(|item| item.key().to_vec()));
    assert_eq!(keys, [b"a".to_vec()]);
    page.clear();
    let refused = listing.next_page(&mut page).unwrap_err();
    assert!(matches!(refused, ConnectorError::Malformed { position: 4097.. }), "{refused}");
    let behind = listing.behind_failure().unwrap();
    let rest = keys_from(&tree, ShardSpecRef::new(behind, b"", b""), CursorUpdate::initial());
    assert_eq!(rest, [b"z".to_vec()]);
    let (sample, exhausted) = sample_of(&tree, WHOLE, 10);
    assert!(sample.contains(&b"z".to_vec()) && !exhausted);
}

/// Sixteen names make a key that is short enough and, with the root before it, a path that is not.
#[test]
fn a_path_too_long_for_the_system_is_an_error_and_no_retry() {
    let files = Files::new(["a", "z"]);
    make_deep(&files.path("d"), 253);
    let tree = files.open();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    page.clear();
    let refused = listing.next_page(&mut page).unwrap_err();
    assert!(matches!(refused, ConnectorError::Malformed { position: ..=4096 }), "{refused}");
    let (sample, exhausted) = sample_of(&tree, WHOLE, 10);
    assert!(sample.contains(&b"z".to_vec()) && !exhausted);
}

#[test]
fn a_directory_that_vanishes_during_a_listing_is_passed_over() {
    let files = Files::new(["a", "b/x", "b/y", "c"]);
    let tree = files.open();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    std::fs::remove_dir_all(files.path("b")).unwrap();
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    let keys: Vec<_> = page.items().map(|item| item.key().to_vec()).collect();
    assert_eq!(keys, [b"a".to_vec(), b"c".to_vec()]);
}

#[test]
fn a_directory_that_becomes_a_file_during_a_listing_is_passed_over() {
    let files = Files::new(["a", "b/x", "c"]);
    let mut listing = files.open().enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    std::fs::remove_dir_all(files.path("b")).unwrap();
    files.directory.write("b", "now a file");
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    assert_eq!(page.len(), 2);
}

#[test]
fn links_are_neither_items_nor_followed() {
    let files = Files::new(["real/file", "other"]);
    symlink("real", files.path("link")).unwrap();
    symlink("other", files.path("alias")).unwrap();
    symlink("nowhere", files.path("dangling")).unwrap();
    let tree = files.open();
    assert_eq!(all_keys(&tree), files.keys());
    let open = |key: &str| tree.open(PageItem::new(key.as_bytes()), &mut Vec::new()).map(drop);
    assert_eq!(open("link/file"), Err(OpenError::Vanished));
    assert_eq!(open("alias"), Err(OpenError::Changed));
}

#[test]
fn links_count_as_what_they_lead_to_if_asked_for() {
    let mut files = Files::new(["real/file", "real/sub/x", "other"]);
    files.options = TreeOptions::EVERYTHING.with_follow_links(true);
    symlink("real", files.path("link")).unwrap();
    symlink("other", files.path("alias")).unwrap();
    symlink("nowhere", files.path("dangling")).unwrap();
    symlink("..", files.path("real/sub/up")).unwrap();
    symlink("loop", files.path("loop")).unwrap();
    let expected = [
        "alias",
        "dangling",
        "link/file",
        "link/sub/x",
        "loop",
        "other",
        "real/file",
        "real/sub/x",
    ];
    let tree = files.open();
    assert_eq!(all_keys(&tree), expected.map(|key| key.as_bytes().to_vec()));
    assert_every_cursor_gives_the_suffix(&tree);
    let open = |key: &str| tree.open(PageItem::new(key.as_bytes()), &mut Vec::new()).map(drop);
    assert_eq!(open("link/sub/x"), Ok(()));
    assert_eq!(open("alias"), Ok(()));
    // A recount lists them again, so they are unread and not gone.
    assert_eq!(open("dangling"), Err(OpenError::Changed));
    assert_eq!(open("loop"), Err(OpenError::Changed));
    std::fs::remove_file(files.path("dangling")).unwrap();
    assert_eq!(open("dangling"), Err(OpenError::Vanished));
}

#[test]
fn a_root_may_be_a_link() {
    let files = Files::new(["real/file"]);
    symlink("real", files.path("link")).unwrap();
    let tree = FileTree::open(&files.path("link"), TreeOptions::EVERYTHING).unwrap();
    assert_eq!(all_keys(&tree), [b"file".to_vec()]);
}

/// A socket represents everything that is neither file nor directory; opening a pipe would wait.
#[test]
fn special_files_are_no_items() {
    let files = Files::new(["file"]);
    let _socket = std::os::unix::net::UnixListener::bind(files.path("socket")).unwrap();
    let tree = files.open();
    assert_eq!(all_keys(&tree), files.keys());
    let opened = tree.open(PageItem::new(b"socket"), &mut Vec::new()).map(drop);
    assert_eq!(opened, Err(OpenError::Changed));
}

#[test]
fn keys_that_are_no_paths_are_vanished() {
    let files = Files::new(["dir/file"]);
    let tree = files.open();
    let long = vec![b'x'; NAME_LEN_MAX + 1];
    let bad: [&[u8]; 11] = [
        b"",
        b"/",
        b"dir/",
        b"/dir/file",
        b"dir//file",
        b"./dir/file",
        b"dir/../dir/file",
        b"..",
        b"dir/file\0",
        b"dir/file/more",
        &long,
    ];
    for key in bad {
        let opened = tree.open(PageItem::new(key), &mut Vec::new()).map(drop);
        assert_eq!(opened, Err(OpenError::Vanished), "a key of {} bytes", key.len());
    }
}

#[test]
fn a_small_tree_is_sampled_whole() {
    let files = Files::new(TRICKY);
    assert_eq!(sample_of(&files.open(), WHOLE, 100), (files.keys(), true));
}

#[test]
fn a_wide_tree_is_sampled_evenly_without_reading_it_all() {
    let paths = (0..600).map(|n| format!("{n:03}/file"));
    let files = Files::new(paths);
    let (sample, exhausted) = sample_of(&files.open(), WHOLE, 50);
    assert!(!exhausted, "more directories than one sample reads");
    assert_eq!(sample.len(), 50);
    let numbers: Vec<i64> =
        sample.iter().map(|key| std::str::from_utf8(&key[..3]).unwrap().parse().unwrap()).collect();
    let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| (5..25).contains(&gap)), "{numbers:?}");
}

#[test]
fn a_sample_stays_in_its_range_where_a_directory_straddles_it() {
    let files = Files::new((0..400).map(|n| format!("d/{n:03}/e/file")));
    let range = ShardSpecRef::new(b"d/100/e/a", b"d/380/e/z", b"");
    let (sample, _) = sample_of(&files.open(), range, 20);
    assert!(!sample.is_empty());
    assert!(sample.iter().all(|key| range.contains_key(key)));
    assert!(sample.is_sorted_by(|a, b| a < b));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Names of few letters, so that prefixes, `-` beside `/` and deep paths are common. A name
    /// that would be both file and directory ends in a letter of its own.
    #[test]
    fn every_cursor_gives_the_suffix(
        paths in btree_set(vec(prop::sample::select(vec!["a", "b", "a-", "a0", "~"]), 1..4), 0..12),
    ) {
        let paths: Vec<String> =
            paths.iter().map(|names| format!("{}.f", names.join("/"))).collect();
        let files = Files::new(&paths);
        prop_assert_eq!(all_keys(&files.open()), files.keys());
        assert_every_cursor_gives_the_suffix(&files.open());
    }

    #[test]
    fn ranges_that_tile_list_every_file_once(cuts in btree_set(vec(any::<u8>(), 1..4), 0..6)) {
        let files = Files::new(TRICKY);
        let tree = files.open();
        let starts = [vec![]].into_iter().chain(cuts.clone());
        let ends = cuts.into_iter().chain([vec![]]);
        let listed: Vec<_> = starts
            .zip(ends)
            .flat_map(|(start, end)| {
                let range = ShardSpecRef::new(&start, &end, b"");
                keys_from(&tree, range, CursorUpdate::initial())
            })
            .collect();
        prop_assert_eq!(listed, files.keys());
    }
}

/// Whether permissions mean nothing here.
pub(super) fn is_superuser() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

pub(super) fn deny(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap();
}

/// Else the directory of the test could not be removed.
pub(super) fn allow(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Makes directories below `path` until a path below the root is longer than a key.
///
/// The system takes no path that long, so the last steps are made by moving the existing part into
/// a new directory above it.
fn make_deep(path: &Path, name_len: usize) {
    let name = "d".repeat(name_len);
    let mut deep = PathBuf::from(&name);
    for _ in 0..9 {
        deep.push(&name);
    }
    std::fs::create_dir_all(path.join(&deep)).unwrap();
    for _ in 0..12 {
        let aside = path.with_extension("aside");
        std::fs::rename(path.join(&name), &aside).unwrap();
        std::fs::create_dir_all(path.join(&name)).unwrap();
        std::fs::rename(&aside, path.join(&name).join(&name)).unwrap();
    }
}
