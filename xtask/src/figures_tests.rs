//! Tests of [`super`].

use std::path::PathBuf;

use super::*;
use crate::saved::BLOCKS;
use crate::workspace::{Dependency, Package};

fn package(name: &str, dependencies: &[&str]) -> Package {
    let dependency = |name: &&str| Dependency { name: (*name).to_owned(), is_normal: true };
    Package {
        name: name.to_owned(),
        directory: format!("crates/{name}"),
        dependencies: dependencies.iter().map(dependency).collect(),
        targets: Vec::new(),
    }
}

/// The simulator depends on the kernel, and the command line does not.
fn workspace() -> Workspace {
    let mut sim = package("gossip-sim", &["gossip-coordination", "hashbrown"]);
    let test_only = Dependency { name: "gossip-cli".to_owned(), is_normal: false };
    sim.dependencies.push(test_only);
    let packages = vec![sim, package("gossip-coordination", &[]), package("gossip-cli", &[])];
    Workspace { root: PathBuf::new(), target: PathBuf::new(), packages }
}

/// Returns the hash of the sources of `sim --same`.
fn hash(files: &[File]) -> u64 {
    hashes(&workspace(), files)[0]
}

const KERNEL: &str = "crates/gossip-coordination/src/lib.rs";

#[test]
fn every_block_is_made_by_one_command() {
    // The report of a night is no table of one command, and `figures` does not run nights.
    for block in BLOCKS.iter().filter(|block| **block != saved::NIGHTLY) {
        let makers = MAKERS.iter().filter(|maker| maker.blocks.contains(block)).count();
        assert_eq!(makers, 1, "{block:?}");
    }
}

#[test]
fn every_command_package_and_path_exists() {
    let workspace = Workspace::load().unwrap();
    let files = workspace.files().unwrap();
    for maker in MAKERS {
        assert!(crate::find(maker.words[0]).is_some(), "{maker:?}");
        assert_eq!(maker.words.last(), Some(&"--save"), "{maker:?}");
        assert!(maker.packages.iter().all(|name| workspace.package(name).is_some()), "{maker:?}");
        for path in maker.paths {
            assert!(files.iter().any(|file| file.path.starts_with(path)), "{path}");
        }
    }
}

#[test]
fn the_hash_changes_with_the_code_of_a_dependency() {
    let before =
        [File::new(KERNEL, "fn a() { 1 }"), File::new("crates/gossip-cli/src/main.rs", "")];
    let mut after =
        [File::new(KERNEL, "fn a() { 2 }"), File::new("crates/gossip-cli/src/main.rs", "")];
    assert_ne!(hash(&before), hash(&after));
    after[0] = File::new(KERNEL, "fn a() { \"1\" }");
    let literal = hash(&after);
    after[0] = File::new(KERNEL, "fn a() { \"2\" }");
    assert_ne!(literal, hash(&after), "a literal is code");
}

#[test]
fn the_hash_does_not_change_with_comments_tests_or_other_crates() {
    let before = hash(&[File::new(KERNEL, "fn a() { 1 }\n")]);
    let same = [
        File::new(KERNEL, "/// One.\nfn a() {\n    1 // one\n}\n"),
        File::new(KERNEL, "fn a() { 1 }\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"),
    ];
    for file in same {
        assert_eq!(hash(&[file]), before);
    }
    let others = ["crates/gossip-cli/src/main.rs", "crates/gossip-coordination/src/a_tests.rs"];
    for other in others {
        assert_eq!(hash(&[File::new(KERNEL, "fn a() { 1 }\n"), File::new(other, "x")]), before);
    }
}

#[test]
fn a_block_is_stale_if_its_sources_changed_or_are_not_recorded() {
    let block = saved::SIM_SAME;
    let stale_with = |body: &str, kernel: &str| {
        let page = format!("<!-- same: begin -->\n{body}\n<!-- same: end -->\n");
        let files = [File::new(block.page, page), File::new(KERNEL, kernel)];
        stale(&workspace(), &files).into_iter().map(|stale| stale.why).collect::<Vec<_>>()
    };
    let hash = hash(&[File::new(KERNEL, "fn a() {}")]);
    let made = format!("Made by `x`, 2026-11-15, commit 0123456789ab, sources {hash:016x}.");
    assert_eq!(stale_with(&made, "fn a() {}"), [""; 0]);
    assert_eq!(stale_with(&made, "fn a() { b() }"), ["`same` is of commit 0123456789ab"]);
    let older = "Made by `x`, 2026-11-15, commit 0123456789ab.";
    assert_eq!(stale_with(older, "fn a() {}"), ["`same` is of commit 0123456789ab"]);
    assert_eq!(stale_with("Not run yet.", "fn a() {}"), ["`same` was not run yet"]);
}

#[test]
fn only_list_is_accepted() {
    assert!(run(&["--all".to_owned()]).is_err());
}
