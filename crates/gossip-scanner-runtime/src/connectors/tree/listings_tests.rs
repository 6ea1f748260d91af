//! Listings that shards share: how often a directory is read, when it is read again, and how many
//! listings are kept.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use gossip_contracts::connector::{
    CheckedEnumeration, Connector as _, ConnectorError, OpenError, Page, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;

use super::bounds::Bounds;
use super::directory::{Entries, Found, Reading, Stamp};
use super::listings::{LISTINGS_BYTES_MAX, LISTINGS_MAX, Listing, Listings, Read};
use super::names::{Gathered, Names};
use super::tree_tests::Files;
use super::{FileTree, TreeOptions};
use crate::connectors::test_support::{WHOLE, keys_from, small_page};

const HOUR: Duration = Duration::from_secs(3600);

/// A time at which a directory was last changed.
fn stamp(second: i64) -> Stamp {
    let mut stamp = Stamp::default();
    stamp.modified = (second, 1);
    stamp
}

fn names_of(names: &[&[u8]]) -> Arc<Names> {
    let mut gathered = Gathered::default();
    names.iter().for_each(|name| gathered.push(name, false).unwrap());
    Arc::new(gathered.sort())
}

/// A directory, and how often it was read.
#[derive(Default)]
struct Directory {
    stamp: Stamp,
    names: Arc<Names>,
    is_volatile: bool,
    reads: AtomicUsize,
}

impl Directory {
    fn get(&self, listings: &Listings, prefix: &[u8]) -> Arc<Names> {
        let read = || {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let listing = Listing { stamp: self.stamp, names: Arc::clone(&self.names) };
            Ok(Read { listing, is_shareable: !self.is_volatile })
        };
        listings.get(prefix, |names| !names.is_cut_short(), || Some(self.stamp), read).unwrap()
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[test]
fn a_directory_that_does_not_change_is_read_once() {
    let (listings, directory) = (Listings::default(), Directory::default());
    let first = directory.get(&listings, b"a/");
    assert!(Arc::ptr_eq(&first, &directory.get(&listings, b"a/")));
    assert_eq!(directory.reads(), 1);
    directory.get(&listings, b"b/");
    assert_eq!(directory.reads(), 2, "it is another directory");
}

#[test]
fn threads_that_need_a_directory_at_once_read_it_once() {
    let (listings, directory) = (Listings::default(), Directory::default());
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                directory.get(&listings, b"")
            });
        }
    });
    assert_eq!(directory.reads(), 1);
}

#[test]
fn a_directory_that_changed_or_is_changing_is_read_again() {
    let (listings, mut directory) = (Listings::default(), Directory::default());
    directory.get(&listings, b"");
    directory.stamp = stamp(1);
    directory.get(&listings, b"");
    assert_eq!(directory.reads(), 2);
    (directory.stamp, directory.is_volatile) = (stamp(2), true);
    directory.get(&listings, b"");
    directory.get(&listings, b"");
    assert_eq!(directory.reads(), 4);
}

#[test]
fn a_part_of_a_directory_serves_no_shard() {
    let listings = Listings::default();
    let mut gathered = Gathered::default();
    gathered.cut_short();
    let part = Directory { names: Arc::new(gathered.sort()), ..Directory::default() };
    part.get(&listings, b"");
    part.get(&listings, b"");
    assert_eq!(part.reads(), 2);
}

#[test]
fn a_reading_that_fails_leaves_no_names_behind() {
    let (listings, mut directory) = (Listings::default(), Directory::default());
    directory.get(&listings, b"");
    directory.stamp = stamp(1);
    let failed = Err(ConnectorError::PermissionDenied);
    let refused = listings.get(b"", |_| true, || Some(stamp(1)), || failed).map(drop);
    assert_eq!(refused, Err(ConnectorError::PermissionDenied));
    directory.stamp = Stamp::default();
    directory.get(&listings, b"");
    assert_eq!(directory.reads(), 2);
}

#[test]
fn the_number_of_kept_listings_is_bounded() {
    let (listings, directory) = (Listings::default(), Directory::default());
    let prefix = |number: usize| number.to_be_bytes();
    (0..LISTINGS_MAX).for_each(|number| drop(directory.get(&listings, &prefix(number))));
    // Used again, so that the second is the one that was not used for longest.
    directory.get(&listings, &prefix(0));
    directory.get(&listings, &prefix(LISTINGS_MAX));
    let reads = directory.reads();
    directory.get(&listings, &prefix(0));
    assert_eq!(directory.reads(), reads);
    directory.get(&listings, &prefix(1));
    assert_eq!(directory.reads(), reads + 1);
}

#[test]
fn the_size_of_kept_listings_is_bounded() {
    let listings = Listings::default();
    let of_size =
        |size: usize| Directory { names: names_of(&[&vec![b'n'; size]]), ..<_>::default() };
    let half = of_size(LISTINGS_BYTES_MAX / 2);
    half.get(&listings, b"a/");
    half.get(&listings, b"b/");
    half.get(&listings, b"b/");
    assert_eq!(half.reads(), 2);
    half.get(&listings, b"a/");
    assert_eq!(half.reads(), 3, "both together are too large");
    let large = of_size(LISTINGS_BYTES_MAX + 1);
    large.get(&listings, b"c/");
    large.get(&listings, b"c/");
    assert_eq!(large.reads(), 2);
}

/// A directory that is too large to be shared: a shard keeps its own names only.
#[test]
fn a_listing_that_is_too_large_keeps_the_names_of_its_range() {
    let bounds = Bounds::new(ShardSpecRef::new(b"d/b", b"d/d", b""), CursorUpdate::initial());
    let window = bounds.within(b"d/");
    let mut found = Found::default();
    let long = |letter: u8| [&[letter][..], &vec![b'x'; LISTINGS_BYTES_MAX / 4]].concat();
    for letter in *b"fedcba" {
        found.take(&long(letter), false, window).unwrap();
    }
    assert!(!found.is_whole);
    let names = found.gathered.sort();
    assert_eq!(names.get(0), Some(&long(b'b')[..]));
    assert_eq!(names.get(1), Some(&long(b'c')[..]));
    assert_eq!(names.get(2), None);
}

proptest! {
    #[test]
    fn names_are_sorted_as_bytes_each_once(
        names in vec(vec(prop::sample::select(b"/aa\x01\xffb".to_vec()), 1..20), 0..40),
        common in vec(any::<u8>(), 0..10),
        pivot in vec(any::<u8>(), 0..12),
    ) {
        let mut all: Vec<Vec<u8>> = names.iter().map(|name| [&common[..], name].concat()).collect();
        let mut gathered = Gathered::default();
        all.iter().for_each(|name| gathered.push(name, false).unwrap());
        let sorted = gathered.sort();
        all.sort();
        all.dedup();
        let found: Vec<_> = (0..).map_while(|at| sorted.get(at).map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(sorted.partition_point(|name| *name < *pivot),
            all.partition_point(|name| *name < pivot));
        prop_assert_eq!(found, all);
    }
}

/// Sets when the names of a directory last changed, as far as the file system shows it.
fn set_changed(files: &Files, below: &str, when: SystemTime) {
    File::open(files.path(below)).unwrap().set_modified(when).unwrap();
}

/// What a shard of this range reads of a directory.
fn entries(tree: &FileTree, prefix: &[u8], start: &[u8], end: &[u8]) -> Entries {
    let bounds = Bounds::new(ShardSpecRef::new(start, end, b""), CursorUpdate::initial());
    let reading = Reading { tree: &tree.tree, prefix, bounds: &bounds, entries_max: usize::MAX };
    reading.entries().unwrap()
}

#[test]
fn shards_of_one_directory_share_its_listing() {
    let files = Files::new(["d/a", "d/b", "d/c", "e/a"]);
    set_changed(&files, "d", SystemTime::now() - HOUR);
    let tree = files.open();
    let lower = entries(&tree, b"d/", b"", b"d/b");
    let upper = entries(&tree, b"d/", b"d/b", b"");
    assert!(Arc::ptr_eq(&lower.names, &upper.names));
    assert_eq!((lower.len(), upper.len()), (1, 2));
}

/// A sample of the whole tree, in which the directory lies wholly, takes what shards have read.
#[test]
fn a_sample_uses_the_listing_of_a_shard() {
    let files = Files::new(["d/a", "d/b", "d/c"]);
    set_changed(&files, "d", SystemTime::now() - HOUR);
    let tree = files.open();
    let sampled = |tree: &FileTree| {
        let bounds = Bounds::new(WHOLE, CursorUpdate::initial());
        let reading = Reading { tree: &tree.tree, prefix: b"d/", bounds: &bounds, entries_max: 2 };
        reading.entries().unwrap()
    };
    assert!(sampled(&tree).is_cut_short());
    let shard = entries(&tree, b"d/", b"", b"d/b");
    let whole = sampled(&tree);
    assert!(Arc::ptr_eq(&shard.names, &whole.names));
    assert_eq!(whole.len(), 3);
    files.directory.write("d/d", "");
    assert!(sampled(&tree).is_cut_short(), "it is read again");
}

/// Its time may be that of the next change too.
#[test]
fn a_directory_that_changed_just_now_is_not_shared() {
    let files = Files::new(["d/a", "d/b"]);
    set_changed(&files, "d", SystemTime::now() + HOUR);
    let tree = files.open();
    let lower = entries(&tree, b"d/", b"", b"d/b");
    let upper = entries(&tree, b"d/", b"d/b", b"");
    assert!(!Arc::ptr_eq(&lower.names, &upper.names));
}

/// The first shard is in the middle of the directory when a file is added to the part of the
/// second: the first lists what it began with, and the second what there is when it begins.
#[test]
fn a_directory_that_changes_between_two_shards_is_read_again() {
    let files = Files::new(["d/a", "d/b", "d/c", "d/d", "d/k", "d/m"]);
    set_changed(&files, "d", SystemTime::now() - HOUR);
    let tree = files.open();
    let lower = ShardSpecRef::new(b"", b"d/k", b"");
    let mut listing = CheckedEnumeration::open(&tree, lower, CursorUpdate::initial()).unwrap();
    let mut page = small_page();
    listing.next_page(&mut page).unwrap();
    files.directory.write("d/l", "");
    files.directory.write("d/e", "");
    std::fs::remove_file(files.path("d/m")).unwrap();
    let upper = ShardSpecRef::new(b"d/k", b"", b"");
    let expected = [b"d/k".to_vec(), b"d/l".to_vec()];
    assert_eq!(keys_from(&tree, upper, CursorUpdate::initial()), expected);
    listing.next_page(&mut page).unwrap();
    let keys: Vec<_> = page.items().map(|item| item.key().to_vec()).collect();
    assert_eq!((keys, page.is_exhausted()), (vec![b"d/d".to_vec()], true));
}

/// What a link leads to changes without its directory.
#[test]
fn a_directory_with_followed_links_is_not_shared() {
    let files = Files::new(["d/a", "d/c", "target"]);
    symlink("../target", files.path("d/b")).unwrap();
    set_changed(&files, "d", SystemTime::now() - HOUR);
    let options = TreeOptions::EVERYTHING.with_follow_links(true);
    let tree = FileTree::open(files.directory.path(), options).unwrap();
    let lower = entries(&tree, b"d/", b"", b"d/b");
    let upper = entries(&tree, b"d/", b"d/b", b"");
    assert!(!Arc::ptr_eq(&lower.names, &upper.names));
    assert_eq!(upper.len(), 2);
}

/// A link takes the place of a directory between the listing of its parent and its own.
#[test]
fn a_directory_that_becomes_a_link_during_a_listing_is_passed_over() {
    let files = Files::new(["t/a", "t/b/x", "t/c", "secret/key"]);
    let tree = FileTree::open(&files.path("t"), TreeOptions::EVERYTHING).unwrap();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    std::fs::remove_dir_all(files.path("t/b")).unwrap();
    symlink(files.path("secret"), files.path("t/b")).unwrap();
    let mut page = Page::default();
    listing.next_page(&mut page).unwrap();
    let keys: Vec<_> = page.items().map(|item| item.key().to_vec()).collect();
    assert_eq!(keys, [b"a".to_vec(), b"c".to_vec()]);
}

#[test]
fn a_check_refuses_a_path_through_a_link() {
    let files = Files::new(["t/a/b/x", "t/a/b/y", "t/a/c", "secret/b/x"]);
    let tree = FileTree::open(&files.path("t"), TreeOptions::EVERYTHING).unwrap();
    let check = |key: &[u8], beside: Option<&[u8]>| {
        tree.check(PageItem::new(key), beside.map(PageItem::new), &mut Vec::new())
    };
    assert_eq!(check(b"a/b/x", None), Ok(()));
    std::fs::rename(files.path("t/a"), files.path("t/old")).unwrap();
    symlink(files.path("secret"), files.path("t/a")).unwrap();
    assert_eq!(check(b"a/b/x", None), Err(OpenError::Vanished));
    assert_eq!(check(b"a/b/x", Some(b"ab")), Err(OpenError::Vanished));
    assert_eq!(check(b"old/../a/c", None), Err(OpenError::Vanished));
    // The directories of both were checked with the first.
    assert_eq!(check(b"a/b/y", Some(b"a/b/x")), Ok(()));
    std::fs::rename(files.path("t"), files.path("gone")).unwrap();
    let gone = OpenError::Source(ConnectorError::NotFound);
    assert_eq!(check(b"a/b/x", None), Err(gone));
}
