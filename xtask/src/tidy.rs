//! `cargo xtask tidy`: rules of the project that neither the compiler nor clippy checks.
//!
//! Also a test of xtask, so that `cargo test` reports findings. Each check takes its input as plain
//! values and returns its findings; none of them reads a file or stops at the first finding, so one
//! run shows all problems.

mod assertions;
mod boundaries;
mod documents;
mod figures;
mod hygiene;
mod language;
mod names;
mod ratchet;
mod sizes;
mod specs;
mod visibility;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::workspace::{File, Workspace};

/// The lists of names, one file per crate.
const NAMES_DIRECTORY: &str = "xtask/names";
/// Files and functions that may be longer than the rest.
const SIZE_EXCEPTIONS: &str = "xtask/size_exceptions.txt";

/// Something that breaks a rule: where it is, and which rule. Findings sort as one reads: by file,
/// then by line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// A file, or a function of a file.
    place: String,
    /// Counted from one; `None` where the whole place is meant.
    line: Option<usize>,
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), line: None, what: what.into() }
    }

    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::new(path, what) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The form that editors and terminals can jump to.
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.what),
            None => write!(f, "{}: {}", self.place, self.what),
        }
    }
}

/// Runs every check and prints what it found.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    match arguments {
        [] => {}
        [lower] if lower == "--lower" => lower_counts()?,
        _ => return Err(Failure::usage("tidy", "its only argument is --lower", "[--lower]")),
    }
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs every check; findings are printed and are a failure.
pub(crate) fn check() -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let findings = findings(&workspace)?;
    note_stale(&workspace)?;
    if findings.is_empty() {
        return Ok(());
    }
    // The findings are the result of this command, so they go to stdout.
    for finding in &findings {
        println!("{finding}");
    }
    Err(Failure::new(
        format!("tidy found {} problem(s)", findings.len()),
        "each line above names a place and the rule it breaks",
        "fix them, then run `cargo xtask tidy`",
    ))
}

/// Lists the tables whose sources have changed. No finding: no change could land before hours of
/// campaigns.
fn note_stale(workspace: &Workspace) -> Result<(), Failure> {
    let stale = crate::figures::stale(workspace, &workspace.files()?);
    let names: Vec<String> = stale.iter().map(|it| it.maker.words.join(" ")).collect();
    if !names.is_empty() {
        eprintln!("note: figures of older sources: {}", names.join(", "));
        eprintln!("      `cargo xtask figures` makes them again, `--list` says why");
    }
    Ok(())
}

/// Lowers the entries of the ratchets to the present counts.
fn lower_counts() -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let files = workspace.files()?;
    let counts = [
        (language::LIST, language::counts(&files)),
        (visibility::LIST, visibility::counts(&files)),
    ];
    for (path, counts) in counts {
        let list = ratchet::lowered(&counts, &read(&workspace.root, path)?);
        fs::write(workspace.root.join(path), list).map_err(|error| {
            let what = format!("{path} was not written");
            Failure::new(what, error.to_string(), "make the file writable, then try again")
        })?;
    }
    Ok(())
}

/// What every check found, in reading order.
fn findings(workspace: &Workspace) -> Result<Vec<Finding>, Failure> {
    let files = workspace.files()?;
    let exceptions = read(&workspace.root, SIZE_EXCEPTIONS)?;
    let mut findings = boundaries::check(workspace, &files);
    findings.extend(names::check(workspace, &files, NAMES_DIRECTORY));
    findings.extend(sizes::check(&files, SIZE_EXCEPTIONS, &exceptions));
    findings.extend(hygiene::check(&files));
    findings.extend(assertions::check(&files));
    findings.extend(language::check(&files, &read(&workspace.root, language::LIST)?));
    findings.extend(visibility::check(&files, &read(&workspace.root, visibility::LIST)?));
    findings.extend(figures::check(&files));
    findings.extend(specs::check(&files));
    findings.extend(documents::check(&files));
    findings.sort();
    Ok(findings)
}

/// Reads a file that tidy cannot do without.
fn read(root: &Path, path: &str) -> Result<String, Failure> {
    fs::read_to_string(root.join(path)).map_err(|error| {
        Failure::new(
            format!("{path} was not read"),
            error.to_string(),
            format!("git checkout {path}"),
        )
    })
}

/// The Rust files below a directory. The slash keeps `a` from matching its neighbour `ab`.
fn rust_files<'a>(files: &'a [File], directory: &str) -> impl Iterator<Item = &'a File> {
    let prefix = format!("{directory}/");
    files.iter().filter(move |file| file.is_rust() && file.path.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let findings = findings(&Workspace::load().unwrap()).unwrap();
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn a_directory_does_not_match_its_longer_neighbour() {
        let files = [File::new("a/x.rs", ""), File::new("ab/x.rs", ""), File::new("a/x.txt", "")];
        let paths: Vec<&str> = rust_files(&files, "a").map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/x.rs"]);
    }
}
