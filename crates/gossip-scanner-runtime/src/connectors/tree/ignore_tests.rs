//! Our walk against that of the crate that ripgrep is built on.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use gossip_contracts::connector::{Connector, ConnectorError, OpenError, PageItem};
use gossip_contracts::coordination::CursorUpdate;
use ignore::WalkBuilder;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::connectors::test_support::*;

fn open(directory: &TempDir) -> FileTree {
    let options = TreeOptions::EVERYTHING.with_ignore(true);
    FileTree::open(directory.path(), options).unwrap()
}

/// Returns the list of ripgrep with the flags that our module documents.
fn listed_by_ripgrep(directory: &TempDir) -> Vec<Vec<u8>> {
    let mut walk = WalkBuilder::new(directory.path());
    walk.parents(false).git_global(false).require_git(false);
    walk.add_custom_ignore_filename(".rgignore");
    let mut keys: Vec<_> = walk
        .build()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_some_and(|found| found.is_file()))
        .map(|entry| {
            let below = entry.path().strip_prefix(directory.path()).unwrap();
            below.as_os_str().as_bytes().to_vec()
        })
        .collect();
    keys.sort();
    keys
}

#[test]
fn ignored_and_hidden_files_are_left_out() {
    let directory = TempDir::new();
    for path in [".hidden", "keep", "drop.log", "sub/drop.log", "sub/keep", "target/x", "a/.b/c"] {
        directory.write(path, "");
    }
    directory.write(".gitignore", "*.log\ntarget/\n");
    directory.write("sub/.ignore", "!drop.log\n");
    let tree = open(&directory);
    let expected = ["keep", "sub/drop.log", "sub/keep"].map(|key| key.as_bytes().to_vec());
    assert_eq!(all_keys(&tree), expected);
    assert_eq!(all_keys(&tree), listed_by_ripgrep(&directory));
    assert_eq!(sample_of(&tree, WHOLE, 10), (expected.to_vec(), true));
    assert_every_cursor_gives_the_suffix(&tree);
}

/// Opening a pipe of that name would wait for a writer; a directory is no file.
#[test]
fn a_rule_path_that_is_no_file_has_no_rules() {
    const MAX_WAIT: Duration = Duration::from_secs(60);
    let directory = TempDir::new();
    directory.write("keep", "");
    std::fs::create_dir(directory.path().join(".gitignore")).unwrap();
    let pipe = directory.path().join(".ignore");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let tree = open(&directory);
    let (sender, listed) = channel();
    std::thread::spawn(move || sender.send(all_keys(&tree)));
    let listed = listed.recv_timeout(MAX_WAIT).expect("the listing waits for a pipe");
    assert_eq!(listed, [b"keep".to_vec()]);
}

#[test]
fn an_unlisted_file_does_not_open() {
    let directory = TempDir::new();
    for path in ["keep", "drop.log", "target/x", "target/y", ".hidden", "sub/keep", "sub/x.log"] {
        directory.write(path, "");
    }
    directory.write(".gitignore", "*.log\ntarget/\n");
    let tree = open(&directory);
    let open = |key: &str| tree.open(PageItem::new(key.as_bytes()), &mut Vec::new()).map(drop);
    for key in ["keep", "sub/keep", "keep"] {
        assert_eq!(open(key), Ok(()), "{key}");
    }
    for key in ["drop.log", "target/x", "target/y", ".hidden", "sub/x.log", ".gitignore"] {
        assert_eq!(open(key), Err(OpenError::Vanished), "{key}");
    }
}

#[test]
fn a_repository_inside_has_rules_of_its_own_beside_those_above() {
    let directory = TempDir::new();
    directory.write(".gitignore", "x\n");
    directory.write("inner/.git/info/exclude", "y\n");
    for path in ["x", "inner/x", "inner/y", "inner/deep/x", "inner/deep/y", "z"] {
        directory.write(path, "");
    }
    let tree = open(&directory);
    assert_eq!(all_keys(&tree), listed_by_ripgrep(&directory));
    let expected = ["z"].map(|key| key.as_bytes().to_vec());
    assert_eq!(all_keys(&tree), expected);
}

#[test]
fn an_ignore_file_that_is_too_long_is_an_error() {
    let directory = TempDir::new();
    directory.write(".ignore", vec![b'x'; 1024 * 1024 + 1]);
    let refused = open(&directory).enumerate(WHOLE, CursorUpdate::initial()).map(drop);
    assert_eq!(refused, Err(ConnectorError::Malformed { position: 1024 * 1024 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn our_rules_are_those_of_ripgrep(
        rules in vec((0..4_usize, 0..3_usize, vec(0..PATTERNS.len(), 1..4)), 0..5),
        repository in any::<bool>(),
    ) {
        let directory = TempDir::new();
        for path in ["a", "b", "c.x", "d/a", "d/c.x", "d/e/a", "d/e/b", "f/d/a", ".h", "d/.h/a"] {
            directory.write(path, "");
        }
        if repository {
            directory.write("d/.git/info/exclude", "b\n");
        }
        for (file, place, patterns) in rules {
            let file = [".gitignore", ".ignore", ".rgignore", "e/.gitignore"][file];
            let place = ["", "d", "f"][place];
            let lines: Vec<_> = patterns.iter().map(|at| PATTERNS[*at]).collect();
            directory.write(Path::new(place).join(file), lines.join("\n"));
        }
        prop_assert_eq!(all_keys(&open(&directory)), listed_by_ripgrep(&directory));
    }
}

const PATTERNS: [&str; 14] = [
    "a", "!a", "/a", "d/", "!d/", "*.x", "!*.x", "d/a", "**/b", "e/**", "!.h", "# none", "[", "d/e",
];
