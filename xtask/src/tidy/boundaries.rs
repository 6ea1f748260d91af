//! Which crate may know which, and what none of them may do.
//!
//! ```text
//!  gossip-stdx
//!    └─ gossip-contracts
//!         ├─ gossip-frontier                (never meets coordination)
//!         └─ gossip-coordination
//!              ├─ gossip-coordination-*     one crate per store engine
//!              └─ gossip-handoff
//!  gossip-scan                              detection over bytes; knows no coordination
//!  gossip-scanner-runtime                   generic over the store
//!    └─ gossip-source-*                     sources with an engine or a network of their own
//!  gossip-engine                            the crate for users; selects a store
//!  gossip-cli                               a client of it
//!  verify/*                                 may know all of them; product tests may know it
//!  xtask                                    knows none of them
//! ```
//!
//! The tables below are that picture in full. They hold rows for crates that do not exist yet; a
//! row applies from the day its crate appears, and a crate without a row is a finding.

use super::{Finding, rust_files};
use crate::source::{Token, tokens};
use crate::workspace::{Dependency, File, Package, Workspace};

/// The directories of the crates that may hold `unsafe`.
pub(super) const UNSAFE_DIRECTORIES: [&str; 2] = ["crates/gossip-stdx", "verify/gossip-testkit"];

/// Verification lives below this directory. It may depend on everything; product crates depend on
/// it in tests only.
const VERIFICATION: &str = "verify/";

/// What one crate may depend on.
struct Edges {
    package: &'static str,
    /// Crates of this workspace, in every kind of dependency: a test that needs a forbidden
    /// neighbour tests the wrong crate.
    internal: &'static [&'static str],
    /// Other crates, in normal dependencies. `None` leaves the choice to review.
    external: Option<&'static [&'static str]>,
}

/// One row per crate, from the bottom of the picture to its top.
const EDGES: [Edges; 16] = [
    Edges {
        package: "gossip-stdx",
        internal: &[],
        // The last two for the system calls of `spawn`.
        external: Some(&["arrayvec", "thiserror", "libc", "rustix"]),
    },
    Edges {
        package: "gossip-contracts",
        internal: &["gossip-stdx"],
        external: Some(&["blake3", "thiserror"]),
    },
    Edges {
        package: "gossip-frontier",
        internal: &["gossip-contracts", "gossip-stdx"],
        external: Some(&["thiserror"]),
    },
    Edges {
        package: "gossip-coordination",
        internal: &["gossip-contracts", "gossip-stdx"],
        external: Some(&["blake3", "foldhash", "hashbrown", "thiserror"]),
    },
    Edges { package: "gossip-coordination-sqlite", internal: STORE_EDGES, external: None },
    Edges { package: "gossip-coordination-etcd", internal: STORE_EDGES, external: None },
    Edges { package: "gossip-coordination-postgres", internal: STORE_EDGES, external: None },
    Edges {
        package: "gossip-handoff",
        internal: &["gossip-contracts", "gossip-coordination", "gossip-stdx"],
        external: Some(&["blake3", "thiserror"]),
    },
    Edges {
        package: "gossip-scan",
        internal: &["gossip-contracts"],
        external: Some(&[
            "aho-corasick",
            "crc32fast",
            "flate2",
            "memchr",
            "regex-automata",
            "regex-syntax",
            "ruzstd",
            "serde",
            "serde_json",
            "thiserror",
            "toml",
        ]),
    },
    Edges {
        package: "gossip-scanner-runtime",
        internal: &[
            "gossip-contracts",
            "gossip-coordination",
            "gossip-frontier",
            "gossip-handoff",
            "gossip-scan",
            "gossip-stdx",
        ],
        external: None,
    },
    Edges {
        package: "gossip-source-buckets",
        internal: &["gossip-contracts", "gossip-frontier", "gossip-scanner-runtime"],
        external: None,
    },
    Edges {
        package: "gossip-source-tables",
        internal: &[
            "gossip-contracts",
            // Its connections, with passwords and TLS.
            "gossip-coordination-postgres",
            "gossip-frontier",
            "gossip-scanner-runtime",
            "gossip-stdx",
        ],
        external: None,
    },
    Edges {
        package: "gossip-engine",
        internal: &[
            "gossip-contracts",
            "gossip-coordination",
            "gossip-coordination-etcd",
            "gossip-coordination-postgres",
            "gossip-coordination-sqlite",
            "gossip-frontier",
            "gossip-handoff",
            "gossip-scan",
            "gossip-scanner-runtime",
            "gossip-source-buckets",
            "gossip-source-tables",
        ],
        external: Some(&["serde", "serde_json", "thiserror"]),
    },
    Edges { package: "gossip-serve", internal: &["gossip-engine"], external: None },
    Edges { package: "gossip-cli", internal: &["gossip-engine", "gossip-serve"], external: None },
    Edges { package: "xtask", internal: &[], external: Some(&["serde_json"]) },
];

impl Edges {
    fn allow(&self, dependency: &Dependency, is_internal: bool) -> bool {
        let name = dependency.name.as_str();
        match (is_internal, self.external) {
            (true, _) => self.internal.contains(&name),
            // Dependencies of tests and benchmarks are in no shipped binary.
            (false, Some(external)) => external.contains(&name) || !dependency.is_normal,
            (false, None) => true,
        }
    }
}

/// A store knows the protocol it stores for, and no other store.
const STORE_EDGES: &[&str] = &["gossip-contracts", "gossip-coordination", "gossip-stdx"];

/// Libraries that only a few crates may use, in any kind of dependency: a store, or a source, hides
/// its engine.
const ENGINES: [(&str, &[&str]); 5] = [
    // Its calls need unsafe code.
    ("libc", &["gossip-stdx"]),
    ("rusqlite", &["gossip-coordination-sqlite", "gossip-source-tables"]),
    ("etcd-client", &["gossip-coordination-etcd"]),
    ("tonic", &["gossip-coordination-etcd"]),
    ("tokio-postgres", &["gossip-coordination-postgres", "gossip-source-tables"]),
];

/// Crates that may read clocks, start threads or read arguments, and so may have a clippy.toml of
/// their own instead of the workspace's bans.
const MAY_RELAX_CLIPPY: [&str; 10] = [
    "gossip-coordination-sqlite",
    "gossip-coordination-etcd",
    "gossip-coordination-postgres",
    "gossip-scanner-runtime",
    "gossip-source-buckets",
    "gossip-source-tables",
    "gossip-engine",
    "gossip-serve",
    "gossip-cli",
    "xtask",
];

/// Words that the code of a directory may not contain.
struct Silence {
    package: &'static str,
    /// Below the package's directory.
    directory: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
}

/// What the types of a dependency cannot express: crates that may be linked and yet not be named
/// everywhere.
const SILENCES: [Silence; 2] = [
    Silence {
        package: "gossip-frontier",
        directory: "src",
        words: &["connector"],
        reason: "the frontier does not name the connector contract",
    },
    Silence {
        package: "gossip-coordination",
        directory: "src/protocol",
        words: &[
            "store",
            "Store",
            "Instant",
            "SystemTime",
            "time",
            "rand",
            "random",
            "RandomState",
            "HashMap",
            "HashSet",
            "thread",
            "spawn",
            "tokio",
            "async",
            "await",
            "Future",
            "fs",
            "net",
            "env",
            "process",
        ],
        reason: "the kernel names no store, clock, random source, thread or future",
    },
];

/// Checks every rule of this page.
pub(super) fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        findings.extend(check_edges(package, workspace));
        findings.extend(check_engines(package));
        findings.extend(check_manifest(package, files));
        findings.extend(check_roots(package, files));
        findings.extend(check_silence(package, files));
    }
    findings
}

/// Every dependency is an edge of the picture.
fn check_edges(package: &Package, workspace: &Workspace) -> Vec<Finding> {
    if is_verification(package) {
        return Vec::new();
    }
    let place = format!("{}/Cargo.toml", package.directory);
    let Some(edges) = EDGES.iter().find(|edges| edges.package == package.name) else {
        let what = format!("`{}` has no row in EDGES of tidy/boundaries.rs; add one", package.name);
        return vec![Finding::new(place, what)];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let neighbour = workspace.package(&dependency.name);
        let is_allowed = match neighbour {
            Some(neighbour) if is_verification(neighbour) => !dependency.is_normal,
            _ => edges.allow(dependency, neighbour.is_some()),
        };
        if !is_allowed {
            let what = format!("`{}` must not depend on `{}`", package.name, dependency.name);
            findings.push(Finding::new(place.clone(), what));
        }
    }
    findings
}

fn is_verification(package: &Package) -> bool {
    package.directory.starts_with(VERIFICATION)
}

/// An engine is private even in tests: a test that needs SQLite is a test of the SQLite store.
fn check_engines(package: &Package) -> Vec<Finding> {
    if is_verification(package) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (engine, owners) in ENGINES {
        let is_used = package.dependencies.iter().any(|dependency| dependency.name == engine);
        if is_used && !owners.contains(&&*package.name) {
            let what = format!("only `{}` may use `{engine}`", owners.join("` and `"));
            findings.push(Finding::new(format!("{}/Cargo.toml", package.directory), what));
        }
    }
    findings
}

/// The workspace's lints apply to every crate, and its bans to all but a few.
fn check_manifest(package: &Package, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifest = format!("{}/Cargo.toml", package.directory);
    // `cargo metadata` does not tell about lints, so we look at the text.
    let text = files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
    let has_lints =
        text.contains("[lints]\nworkspace = true") || text.contains("lints.workspace = true");
    if !has_lints {
        findings.push(Finding::new(manifest, "needs `[lints]` with `workspace = true`"));
    }
    let clippy = format!("{}/clippy.toml", package.directory);
    let is_relaxed = files.iter().any(|file| file.path == clippy);
    let may_relax = is_verification(package) || MAY_RELAX_CLIPPY.contains(&package.name.as_str());
    if is_relaxed && !may_relax {
        let what = "a deterministic crate keeps the workspace's clippy.toml";
        findings.push(Finding::new(clippy, what));
    }
    findings
}

/// Every library and program but one forbids unsafe code at its root.
fn check_roots(package: &Package, files: &[File]) -> Vec<Finding> {
    if UNSAFE_DIRECTORIES.contains(&package.directory.as_str()) {
        return Vec::new();
    }
    let roots = package.targets.iter().filter(|target| matches!(&*target.kind, "lib" | "bin"));
    let mut findings = Vec::new();
    for root in roots {
        let code = files.iter().find(|file| file.path == root.path).map_or("", |file| &file.code);
        if !forbids_unsafe(&tokens(code)) {
            findings.push(Finding::new(root.path.clone(), "needs `#![forbid(unsafe_code)]`"));
        }
    }
    findings
}

/// Returns whether the code has the attribute; comments are masked.
fn forbids_unsafe(tokens: &[Token<'_>]) -> bool {
    const ATTRIBUTE: [&str; 8] = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];
    let mut windows = tokens.windows(ATTRIBUTE.len());
    windows.any(|window| window.iter().map(|token| token.text).eq(ATTRIBUTE))
}

/// Looks at words of the code, so that documentation may still talk about what code may not name.
fn check_silence(package: &Package, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for silence in SILENCES.iter().filter(|silence| silence.package == package.name) {
        let directory = format!("{}/{}", package.directory, silence.directory);
        for file in rust_files(files, &directory) {
            for token in tokens(&file.code).iter().filter(|it| silence.words.contains(&it.text)) {
                let what = format!("names `{}`, but {}", token.text, silence.reason);
                findings.push(Finding::at(&file.path, token.line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
#[path = "boundaries_tests.rs"]
mod boundaries_tests;
