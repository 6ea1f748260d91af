//! The sources of a workspace, and their mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::area::Area;
use crate::consts::{self, ConstFn, Consts};
use crate::generate::{self, Mutant};
use crate::rewrite::{self, Piece};

/// All mutants of a workspace, before any is compiled.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Text of every file of Rust, by its path.
    texts: BTreeMap<String, String>,
    /// Constants of all files.
    consts: BTreeMap<String, Consts>,
    /// The directories of the crates with mutants.
    crates: BTreeSet<String>,
    /// In the order of files and places; the number of a mutant is its place from one.
    pub(crate) mutants: Vec<Mutant>,
    /// The hash of the files, the mutants and the areas.
    pub(crate) hash: u64,
}

/// The mutants that a copy has.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Numbers of mutants that do not compile.
    pub(crate) dropped: BTreeSet<u32>,
    /// Functions that must stay `const`, beyond those that constants use.
    pub(crate) kept: BTreeSet<ConstFn>,
}

/// The files of a copy that differ, and where mutants are in them.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) pieces: BTreeMap<String, Vec<Piece>>,
    /// Numbers of mutants in functions that must stay `const`.
    pub(crate) not_generated: BTreeSet<u32>,
}

impl Sources {
    /// Reads the workspace at `root` and finds the mutants of the areas.
    pub(crate) fn load(root: &Path, files: &[String], areas: &[Area]) -> Result<Self, String> {
        let mut sources = Self {
            texts: BTreeMap::new(),
            consts: BTreeMap::new(),
            crates: areas
                .iter()
                .flat_map(|area| area.files)
                .map(|file| crate_of(file).to_owned())
                .collect(),
            mutants: Vec::new(),
            hash: FNV_OFFSET,
        };
        for file in files {
            let bytes = fs::read(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
            let is_tool = file.starts_with("xtask/") || file.starts_with("verify/gossip-mutation/");
            let is_page = file.ends_with(".md") || file.ends_with(".txt");
            if !is_tool && !is_page {
                sources.hash = fnv(fnv(sources.hash, file.as_bytes()), &bytes);
            }
            if file.ends_with(".rs") {
                let text = String::from_utf8(bytes).map_err(|_| format!("{file}: not UTF-8"))?;
                sources.texts.insert(file.clone(), text);
            }
        }
        sources.find(areas)?;
        for mutant in &sources.mutants {
            sources.hash = fnv(sources.hash, mutant.identity().as_bytes());
        }
        sources.hash = fnv(sources.hash, format!("{areas:?}").as_bytes());
        Ok(sources)
    }

    fn find(&mut self, areas: &[Area]) -> Result<(), String> {
        let mut test_only = Vec::new();
        for (file, text) in &self.texts {
            let failed = |error: syn::Error| format!("{file}: {error}");
            self.consts.insert(file.clone(), consts::consts(text).map_err(failed)?);
            if self.crates.contains(crate_of(file)) {
                test_only.extend(consts::test_modules(file, text).map_err(failed)?);
            }
        }
        let is_test = |file: &str| {
            let is_below = |module: &String| {
                file.strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            file.ends_with("tests.rs") || test_only.iter().any(is_below)
        };
        for (file, text) in &self.texts {
            if !is_test(file) && areas.iter().any(|area| area.contains(file)) {
                let found = generate::mutants(file, text);
                self.mutants.extend(found.map_err(|error| format!("{file}: {error}"))?);
            }
        }
        Ok(())
    }

    /// Returns the mutant of a number.
    pub(crate) fn mutant(&self, number: u32) -> &Mutant {
        &self.mutants[number as usize - 1]
    }

    /// Returns every mutant with its number.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Mutant)> {
        (1_u32..).zip(&self.mutants)
    }

    /// Writes the switches of the mutants that are left.
    pub(crate) fn edited(&self, root: &Path, choice: &Choice) -> Result<Edited, String> {
        let all: Vec<&Consts> = self.consts.values().collect();
        let stays = consts::closure(&all, &choice.kept);
        let mut edited = Edited {
            texts: BTreeMap::new(),
            pieces: BTreeMap::new(),
            not_generated: BTreeSet::new(),
        };
        let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in self.numbered() {
            if mutant.const_fn.as_ref().is_some_and(|function| stays.contains(function)) {
                edited.not_generated.insert(number);
            } else if !choice.dropped.contains(&number) {
                by_file.entry(&mutant.file).or_default().push((number, mutant));
            }
        }
        let mutated = self.consts.iter().filter(|(file, _)| self.crates.contains(crate_of(file)));
        for (file, consts) in mutated {
            let removed: Vec<_> = consts
                .declared
                .iter()
                .filter(|it| !stays.contains(&it.function))
                .map(|it| it.token.clone())
                .collect();
            let mutants = by_file.remove(file.as_str()).unwrap_or_default();
            let mut written = rewrite::rewrite(&self.texts[file], &removed, &mutants);
            if file.ends_with("/src/lib.rs") {
                written.text.push_str(rewrite::MODULE);
            }
            edited.pieces.insert(file.clone(), written.pieces);
            edited.texts.insert(file.clone(), written.text);
        }
        let manifest =
            fs::read_to_string(root.join(MANIFEST)).map_err(|error| error.to_string())?;
        edited.texts.insert(MANIFEST.to_owned(), with_other_version(&manifest));
        Ok(edited)
    }
}

const MANIFEST: &str = "Cargo.toml";

/// Cargo takes packages of the copy for the product's in a shared target directory, unless their
/// version differs.
fn with_other_version(manifest: &str) -> String {
    let is_version = |line: &&str| line.starts_with("version = \"");
    let version = manifest.lines().find(is_version).unwrap_or_default();
    manifest.replacen(version, &format!("{}-mutation\"", version.trim_end_matches('"')), 1)
}

/// Returns the directory of a file's crate.
fn crate_of(file: &str) -> &str {
    file.split_once("/src/").map_or(file, |(directory, _)| directory)
}

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;

/// Continues an FNV-1a hash, which distinguishes versions and is no protection against forgery.
pub(crate) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01B3;
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Returns the hash of a seed and a text; orders a sample.
pub(crate) fn seeded(seed: u64, text: &str) -> u64 {
    // The last step spreads the low bits, which differ most, over all.
    let hash = fnv(fnv(FNV_OFFSET, &seed.to_le_bytes()), text.as_bytes());
    (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
