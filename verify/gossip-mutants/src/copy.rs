//! The copy of the workspace in which every mutant is a switch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::catalog::Catalog;
use crate::edit::{Edit, apply};

/// Where crates whose sources call the switch declare their dependencies.
const DEPENDENCIES: &str = "[dependencies]\n";
/// The dependency that they get.
const DEPENDENCY: &str = "gossip-mutants.workspace = true\n";
/// The call that needs the dependency.
const CALL: &str = "gossip_mutants::";

/// Writes the edited copy of the workspace at `root` to `destination`.
///
/// Files that are already as they must be are not written, so that incremental builds of the copy
/// stay valid, and files that the workspace no longer has are removed.
///
/// # Errors
///
/// Every edit that does not fit its file, one per line, or the first failure to read or write.
pub fn make(root: &Path, destination: &Path, catalog: &Catalog) -> Result<(), String> {
    write(root, destination, &tracked(root)?, &edited(root, catalog)?)
}

/// Writes the files of the workspace at `root` to `destination`, with the texts of `edited` instead
/// of their own.
///
/// # Errors
///
/// The first failure to read or write.
pub fn write(
    root: &Path,
    destination: &Path,
    files: &[String],
    edited: &BTreeMap<String, String>,
) -> Result<(), String> {
    for file in files {
        let result = match edited.get(file.as_str()) {
            Some(text) => write_if_changed(&destination.join(file), text.as_bytes()),
            None => fs::read(root.join(file))
                .and_then(|bytes| write_if_changed(&destination.join(file), &bytes)),
        };
        result.map_err(|error| format!("{file}: {error}"))?;
    }
    let keep: BTreeSet<PathBuf> = files.iter().map(|file| destination.join(file)).collect();
    // Cargo rewrites it for the version of the copy.
    remove_others(destination, &keep).map_err(|error| format!("{}: {error}", destination.display()))
}

/// Returns the text of each edited file, by its path.
///
/// # Errors
///
/// Every edit that does not fit its file, one per line, or the first file that cannot be read.
pub fn edited(root: &Path, catalog: &Catalog) -> Result<BTreeMap<String, String>, String> {
    let mut by_file: BTreeMap<&str, Vec<&Edit>> = BTreeMap::new();
    for edit in &catalog.edits {
        by_file.entry(edit.file).or_default().push(edit);
    }
    let (mut texts, mut errors, mut callers) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for (file, edits) in by_file {
        let text = read(root, file)?;
        match apply(&edits, &text) {
            Ok(text) => {
                if text.contains(CALL) {
                    callers.extend(file.split_once("/src/").map(|(package, _)| package));
                }
                texts.insert(file.to_owned(), text);
            }
            Err(refused) => errors.extend(refused.iter().map(ToString::to_string)),
        }
    }
    for package in callers {
        let file = format!("{package}/Cargo.toml");
        let manifest = read(root, &file)?;
        let with = manifest.replacen(DEPENDENCIES, &format!("{DEPENDENCIES}{DEPENDENCY}"), 1);
        if with == manifest {
            errors.push(format!("{file}: it has no [dependencies]"));
        }
        texts.insert(file, with);
    }
    if errors.is_empty() { Ok(texts) } else { Err(errors.join("\n")) }
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

/// Returns the files of the workspace that git tracks, and new ones that it does not ignore.
///
/// # Errors
///
/// If git cannot list them.
pub fn tracked(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().map_err(|error| format!("git ls-files: {error}"))?;
    if !output.status.success() {
        return Err("git ls-files failed: run it inside a git checkout".to_owned());
    }
    let list = String::from_utf8(output.stdout).map_err(|_| "a path is not UTF-8".to_owned())?;
    // A deleted file can still be in git's index.
    let exists = |file: &&str| !file.is_empty() && root.join(file).is_file();
    Ok(list.split('\0').filter(exists).map(str::to_owned).collect())
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, bytes)
}

fn remove_others(directory: &Path, keep: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
