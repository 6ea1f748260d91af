//! Small workspaces, each of which breaks one rule.

use std::path::PathBuf;

use super::*;
use crate::workspace::{Dependency, Target};

/// A crate that keeps every rule, with these dependencies; a `~` marks one for tests only.
fn package(name: &str, dependencies: &[&str]) -> Package {
    let directory = format!("crates/{name}");
    let dependencies = dependencies.iter().map(|dependency| Dependency {
        name: dependency.trim_start_matches('~').to_owned(),
        is_normal: !dependency.starts_with('~'),
    });
    Package {
        name: name.to_owned(),
        dependencies: dependencies.collect(),
        targets: vec![Target {
            name: name.to_owned(),
            kind: "lib".to_owned(),
            path: format!("{directory}/src/lib.rs"),
        }],
        directory,
    }
}

fn workspace(packages: Vec<Package>) -> Workspace {
    Workspace { root: PathBuf::new(), target: PathBuf::new(), packages }
}

fn files_of(package: &Package) -> Vec<File> {
    vec![
        File::new(format!("{}/Cargo.toml", package.directory), "[lints]\nworkspace = true\n"),
        File::new(format!("{}/src/lib.rs", package.directory), "#![forbid(unsafe_code)]\n"),
    ]
}

/// What the check says about these packages, each with well-behaved files.
fn complaints(packages: Vec<Package>) -> Vec<String> {
    let files: Vec<File> = packages.iter().flat_map(files_of).collect();
    texts(check(&workspace(packages), &files))
}

/// What the check says about one package with these files besides its usual ones.
fn complaints_with(name: &str, path: &str, text: &str) -> Vec<String> {
    let package = package(name, &[]);
    let path = format!("{}/{path}", package.directory);
    let mut files: Vec<File> =
        files_of(&package).into_iter().filter(|file| file.path != path).collect();
    files.push(File::new(path, text));
    texts(check(&workspace(vec![package]), &files))
}

fn texts(findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn the_layers_as_designed_are_accepted() {
    let packages = vec![
        package("gossip-stdx", &["arrayvec", "~proptest"]),
        package("gossip-contracts", &["gossip-stdx", "blake3", "thiserror", "~rstest"]),
        package("gossip-frontier", &["gossip-contracts", "gossip-stdx", "thiserror"]),
        package("gossip-coordination", &["gossip-contracts", "hashbrown"]),
        package("gossip-coordination-sqlite", &["gossip-coordination", "rusqlite"]),
    ];
    assert_eq!(complaints(packages), Vec::<String>::new());
}

#[test]
fn frontier_and_coordination_never_meet() {
    for kind in ["", "~"] {
        let to_coordination = format!("{kind}gossip-coordination");
        let to_frontier = format!("{kind}gossip-frontier");
        let found = complaints(vec![
            package("gossip-frontier", &[&to_coordination]),
            package("gossip-coordination", &[&to_frontier]),
        ]);
        assert_eq!(
            found,
            [
                "`gossip-frontier` must not depend on `gossip-coordination`",
                "`gossip-coordination` must not depend on `gossip-frontier`",
            ]
        );
    }
}

#[test]
fn a_pure_crate_takes_no_other_library() {
    let found = complaints(vec![package("gossip-contracts", &["tokio"])]);
    assert_eq!(found, ["`gossip-contracts` must not depend on `tokio`"]);
}

fn verification(name: &str, dependencies: &[&str]) -> Package {
    let directory = format!("verify/{name}");
    let product = package(name, dependencies);
    let target = Target { path: format!("{directory}/src/lib.rs"), ..product.targets[0].clone() };
    Package { directory, targets: vec![target], ..product }
}

#[test]
fn verification_may_depend_on_everything() {
    let packages = vec![
        verification("gossip-sim", &["gossip-frontier", "gossip-coordination", "rusqlite"]),
        package("gossip-frontier", &[]),
        package("gossip-coordination", &["~gossip-sim"]),
    ];
    assert_eq!(complaints(packages), Vec::<String>::new());
}

#[test]
fn product_depends_on_verification_only_in_tests() {
    let packages = vec![verification("gossip-sim", &[]), package("gossip-cli", &["gossip-sim"])];
    assert_eq!(complaints(packages), ["`gossip-cli` must not depend on `gossip-sim`"]);
}

#[test]
fn an_engine_stays_in_its_store() {
    let found = complaints(vec![package("gossip-cli", &["~rusqlite"])]);
    assert_eq!(
        found,
        ["only `gossip-coordination-sqlite` and `gossip-source-tables` may use `rusqlite`"]
    );
}

#[test]
fn a_crate_without_a_row_is_found() {
    let found = complaints(vec![package("gossip-surprise", &[])]);
    assert!(found[0].contains("no row"), "{found:?}");
}

#[test]
fn a_crate_without_the_workspace_lints_is_found() {
    let found = complaints_with("gossip-frontier", "Cargo.toml", "[package]\n");
    assert_eq!(found, ["needs `[lints]` with `workspace = true`"]);
}

#[test]
fn a_root_that_does_not_forbid_unsafe_code_is_found() {
    let commented = "// #![forbid(unsafe_code)]\n";
    let found = complaints_with("gossip-frontier", "src/lib.rs", commented);
    assert_eq!(found, ["needs `#![forbid(unsafe_code)]`"]);
    let found = complaints_with("gossip-stdx", "src/lib.rs", "");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_deterministic_crate_may_not_relax_clippy() {
    let found = complaints_with("gossip-frontier", "clippy.toml", "");
    assert_eq!(found, ["a deterministic crate keeps the workspace's clippy.toml"]);
    let found = complaints_with("gossip-cli", "clippy.toml", "");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_frontier_does_not_name_connectors() {
    let named = "use gossip_contracts::{connector::Cursor};";
    let found = complaints_with("gossip-frontier", "src/hint.rs", named);
    assert_eq!(found.len(), 1, "{found:?}");
    let spoken = "/// Extra bytes of a connector.\nstruct X { connector_extra: u8 }";
    let found = complaints_with("gossip-frontier", "src/hint.rs", spoken);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_kernel_names_nothing_impure() {
    let impure = "use std::time::Instant;";
    let found = complaints_with("gossip-coordination", "src/protocol/renew.rs", impure);
    assert_eq!(found.len(), 2, "{found:?}");
    let found = complaints_with("gossip-coordination", "src/session.rs", impure);
    assert_eq!(found, Vec::<String>::new());
}
