//! Names that the specification asks for exist in the code.
//!
//! Each crate has a list, `xtask/names/CRATE.txt`, one name per line; `#` starts a comment:
//!
//! ```text
//! type KeyBuf                            public, or exported by a `pub use`
//! fn prefix_successor                    public, anywhere in the crate
//! fn KeyBuf::copy_from_slice             public, in a block of that type or trait, or in a list
//!                                        (`for_each_…!`) that the trait invokes
//! const MAX_KEY_SIZE                     likewise; `const KeyBuf::CAPACITY` too
//! variant PrefixShardError::NoSuccessor
//! module key_encoding
//! file src/key_encoding.rs
//! text SPLIT_ID_V1 = "gossip/coord/v1/split-id"    these characters, for what macros declare
//! test prefix_successor_basic in key_encoding_tests.rs
//! test byte_midpoint_edge_cases in key_encoding_tests.rs cases 8
//! ```
//!
//! A list for a crate that does not exist yet waits for it. A crate of ours without a list is a
//! finding. Whether a test checks what its name promises is for a reader to judge.

use super::{Finding, rust_files};
use crate::items::{Item, Kind, items};
use crate::workspace::{File, Package, Workspace};

/// Crates below this directory belong to the product, and each has a list. Other crates have one
/// if the specification names something in them.
const PRODUCT: &str = "crates/";

/// Checks the list of every crate that exists.
pub(super) fn check(workspace: &Workspace, files: &[File], directory: &str) -> Vec<Finding> {
    workspace.packages.iter().flat_map(|it| check_package(it, files, directory)).collect()
}

fn check_package(package: &Package, files: &[File], directory: &str) -> Vec<Finding> {
    let path = format!("{directory}/{}.txt", package.name);
    match files.iter().find(|file| file.path == path) {
        Some(list) => check_list(list, &Declared::of(package, files)),
        None if package.directory.starts_with(PRODUCT) => {
            vec![Finding::new(path, "does not exist, but its crate does")]
        }
        None => Vec::new(),
    }
}

/// One finding per line that asks for something the crate does not have.
fn check_list(list: &File, declared: &Declared) -> Vec<Finding> {
    let mut seen: Vec<&str> = Vec::new();
    let mut findings = Vec::new();
    for (line, number) in list.text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if seen.contains(&line) {
            findings.push(Finding::at(&list.path, number, format!("`{line}` is listed twice")));
        }
        seen.push(line);
        let problem = match Wanted::parse(line) {
            Some(wanted) => wanted.problem(declared),
            None => Some(format!("`{line}` is not understood; see tidy/names.rs")),
        };
        findings.extend(problem.map(|what| Finding::at(&list.path, number, what)));
    }
    findings
}

/// Everything a crate declares, with its file.
struct Declared {
    /// Paths relative to the crate.
    files: Vec<String>,
    /// The text of every file that is not a test.
    texts: Vec<String>,
    /// File name and item.
    items: Vec<(String, Item)>,
}

impl Declared {
    /// Reads all Rust files of a package, its tests and benchmarks included.
    fn of(package: &Package, files: &[File]) -> Self {
        let mut declared = Self { files: Vec::new(), texts: Vec::new(), items: Vec::new() };
        for file in rust_files(files, &package.directory) {
            let is_test = file.is_test();
            declared.files.push(file.path[package.directory.len() + 1..].to_owned());
            declared.texts.extend((!is_test).then(|| file.text.clone()));
            for mut item in items(&file.code) {
                item.in_tests |= is_test;
                declared.items.push((file.name().to_owned(), item));
            }
        }
        declared
    }

    /// Includes private modules, whose items are exported under other paths.
    fn has_module(&self, name: &str) -> bool {
        let mut items = self.items.iter().map(|(_, item)| item);
        items.any(|item| item.kind == Kind::Module && item.name == name)
    }

    /// Whether `owner` declares the rows of a list that has a row `name`.
    fn has_row(&self, owner: &str, name: &str) -> bool {
        let items = self.items.iter().map(|(_, item)| item);
        let mut lists = items
            .clone()
            .filter(|item| item.kind == Kind::List && item.owner.as_deref() == Some(owner));
        lists.any(|list| {
            items.clone().any(|item| {
                let is_row = item.owner.as_deref() == Some(list.name.as_str());
                is_row && item.kind == Kind::Function && item.name == name
            })
        })
    }

    /// Whether some public item that is not test code satisfies `is_wanted`.
    fn has_public(&self, is_wanted: impl Fn(&Item) -> bool) -> bool {
        let mut items = self.items.iter().map(|(_, item)| item);
        items.any(|item| item.is_public && !item.in_tests && is_wanted(item))
    }
}

/// One line of a list.
enum Wanted<'a> {
    /// A type, function or constant, alone or as a member of an owner.
    Item {
        kind: Kind,
        owner: Option<&'a str>,
        name: &'a str,
    },
    Module {
        name: &'a str,
    },
    File {
        path: &'a str,
    },
    Text {
        text: &'a str,
    },
    Test {
        name: &'a str,
        file: &'a str,
        cases: usize,
    },
}

impl<'a> Wanted<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        if let Some(text) = line.strip_prefix("text ") {
            return Some(Self::Text { text });
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["type", name] => Some(Self::item(Kind::Type, name)),
            ["fn", name] => Some(Self::item(Kind::Function, name)),
            ["const", name] => Some(Self::item(Kind::Constant, name)),
            ["variant", name] if name.contains("::") => Some(Self::item(Kind::Variant, name)),
            ["module", name] => Some(Self::Module { name }),
            ["file", path] => Some(Self::File { path }),
            ["test", name, "in", file] => Some(Self::Test { name, file, cases: 0 }),
            ["test", name, "in", file, "cases", cases] => {
                Some(Self::Test { name, file, cases: cases.parse().ok()? })
            }
            _ => None,
        }
    }

    /// Reads `name` or `Owner::name`.
    fn item(kind: Kind, path: &'a str) -> Self {
        match path.split_once("::") {
            Some((owner, name)) => Self::Item { kind, owner: Some(owner), name },
            None => Self::Item { kind, owner: None, name: path },
        }
    }

    /// Returns the finding, if the crate does not declare the item.
    fn problem(&self, declared: &Declared) -> Option<String> {
        match *self {
            Self::Item { kind, owner, name } => item_problem(kind, owner, name, declared),
            Self::Module { name } => {
                (!declared.has_module(name)).then(|| format!("there is no module `{name}`"))
            }
            Self::File { path } => (!declared.files.iter().any(|file| file == path))
                .then(|| format!("there is no file `{path}`")),
            Self::Text { text } => (!declared.texts.iter().any(|file| file.contains(text)))
                .then(|| format!("no source file contains `{text}`")),
            Self::Test { name, file, cases } => test_problem(name, file, cases, declared),
        }
    }
}

fn item_problem(
    kind: Kind,
    owner: Option<&str>,
    name: &str,
    declared: &Declared,
) -> Option<String> {
    let exists = declared.has_public(|item| {
        let is_declared = item.kind == kind && (owner.is_none() || item.owner.as_deref() == owner);
        // What a macro declares is seen only where it is exported.
        let is_exported = item.kind == Kind::Export && owner.is_none();
        item.name == name && (is_declared || is_exported)
    });
    let word = match kind {
        Kind::Type => "type",
        Kind::Function => "function",
        Kind::Constant => "constant",
        Kind::Variant => "variant",
        Kind::Module | Kind::Export | Kind::List => "item",
    };
    let path = owner.map_or_else(|| name.to_owned(), |owner| format!("{owner}::{name}"));
    let is_row = owner.is_some_and(|owner| kind == Kind::Function && declared.has_row(owner, name));
    (!exists && !is_row).then(|| format!("there is no public {word} `{path}`"))
}

/// Compares the file as well, because the specification runs tests by file.
fn test_problem(name: &str, file: &str, cases: usize, declared: &Declared) -> Option<String> {
    let test = declared.items.iter().find(|(path, item)| {
        path == file && item.kind == Kind::Function && item.name == name && item.is_test
    });
    match test {
        None => Some(format!("there is no test `{name}` in a file `{file}`")),
        Some((_, item)) if item.cases < cases => {
            Some(format!("test `{name}` has {} cases, the list asks for {cases}", item.cases))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod names_tests;
