//! What may not be read. The superuser reads everything, so these tests run themselves again as
//! another user where they are started by it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use gossip_contracts::connector::conformance::assert_conforms;
use gossip_contracts::connector::{
    Connector, ConnectorError, OpenError, Page, PageItem, ParkCause, Reaction,
};
use gossip_contracts::coordination::CursorUpdate;

use super::tree_tests::{Files, allow, deny, is_superuser};
use crate::connectors::test_support::{TempDir, WHOLE, keys_from, sample_of};

/// A user without rights, whose id is the same on every system that we know.
const ORDINARY_USER: u32 = 65_534;

/// Runs the test of this name as an ordinary user, if this one is not. Returns whether it did.
fn ran_as_ordinary_user(test: &str) -> bool {
    if !is_superuser() {
        return false;
    }
    // A copy, because an ordinary user may not be able to reach the place of the original.
    let directory = TempDir::new();
    let copy = directory.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let name = format!("connectors::tree::denied_tests::{test}");
    let mut command = Command::new(copy);
    command.args([&name, "--exact"]).current_dir("/").uid(ORDINARY_USER).gid(ORDINARY_USER);
    let output = command.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.contains("1 passed"), "{report}");
    true
}

#[test]
fn trees_conform_with_files_that_are_denied() {
    if !ran_as_ordinary_user("trees_conform_with_files_that_are_denied") {
        assert_conforms(&mut Files::new(["a", "a-b", "a.d/b", "b", "c/d", "e"]));
    }
}

#[test]
fn a_denied_directory_stops_the_listing_right_before_it() {
    if ran_as_ordinary_user("a_denied_directory_stops_the_listing_right_before_it") {
        return;
    }
    let files = Files::new(["a", "b/x", "c/secret", "d"]);
    deny(&files.path("c"));
    let tree = files.open();
    let mut page = Page::default();
    let mut listing = tree.enumerate(WHOLE, CursorUpdate::initial()).unwrap();
    listing.next_page(&mut page).unwrap();
    let keys: Vec<_> = page.items().map(|item| item.key().to_vec()).collect();
    assert_eq!(keys, [b"a".to_vec(), b"b/x".to_vec()]);
    page.clear();
    let refused = listing.next_page(&mut page).unwrap_err();
    assert_eq!(refused, ConnectorError::PermissionDenied);
    assert_eq!(refused.reaction(), Reaction::Park(ParkCause::PermissionDenied));
    // Behind it the rest can be listed, and a sample does not fail.
    assert_eq!(listing.behind_failure(), Some(&b"c0"[..]));
    assert_eq!(listing.failed_at(), Some(&b"c/"[..]));
    let behind = keys_from(&tree, WHOLE, CursorUpdate::with_last_key(b"c0"));
    assert_eq!(behind, [b"d".to_vec()]);
    let (sample, exhausted) = sample_of(&tree, WHOLE, 10);
    assert_eq!((sample.len(), exhausted), (4, false));
    let opened = tree.open(PageItem::new(b"c/secret"), &mut Vec::new()).map(drop);
    assert_eq!(opened, Err(OpenError::PermissionDenied));
    allow(&files.path("c"));
}

#[test]
fn a_denied_root_is_permission_denied() {
    if ran_as_ordinary_user("a_denied_root_is_permission_denied") {
        return;
    }
    let files = Files::new(["a"]);
    let tree = files.open();
    deny(files.directory.path());
    let refused = tree.enumerate(WHOLE, CursorUpdate::initial()).map(drop);
    assert_eq!(refused, Err(ConnectorError::PermissionDenied));
    allow(files.directory.path());
}
