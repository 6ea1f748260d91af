//! Finds, runs and compares the scripts on disk, and rewrites them on request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ScriptBackend;
use super::coverage::FileCoverage;
use super::executor::{Executor, LocalExecutor};
use super::run::{ScriptOutcome, run_script_on};

/// The number of scripts when one was last counted. Fewer would mean that some were not found.
pub const SCRIPTS_MIN: usize = 262;

/// Result of all scripts.
#[derive(Debug, Default)]
pub struct Report {
    /// Coverage of each script that ran.
    pub files: Vec<FileCoverage>,
    /// Scripts whose settings the backend does not support.
    pub skipped: Vec<String>,
    /// Scripts whose answers differ, with the first difference.
    pub failures: Vec<String>,
}

/// Runs every script on `backend` and compares its answers, or rewrites the scripts with them.
///
/// Rewrite only what you can explain: a golden file is a statement about the protocol.
///
/// # Errors
///
/// If the scripts cannot be read or written, or there are fewer than [`SCRIPTS_MIN`].
pub fn check_scripts<B: ScriptBackend>(backend: &mut B, rewrite: bool) -> io::Result<Report> {
    check_scripts_on(&mut LocalExecutor::new(backend), rewrite)
}

/// Runs every script on any executor; see [`check_scripts`].
///
/// # Errors
///
/// As for [`check_scripts`].
pub fn check_scripts_on<S: Executor>(executor: &mut S, rewrite: bool) -> io::Result<Report> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let mut report = Report::default();
    for path in scripts_below(&root)? {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        match run_script_on(executor, &text) {
            Ok(ScriptOutcome::Skipped) => report.skipped.push(name),
            Ok(ScriptOutcome::Done { text: actual, mut coverage }) => {
                coverage.name.clone_from(&name);
                report.files.push(coverage);
                if rewrite && actual != text {
                    fs::write(&path, &actual)?;
                } else if actual != text {
                    report.failures.push(format!("{name}: {}", first_difference(&text, &actual)));
                }
            }
            Err(error) => report.failures.push(format!("{name}: {error}")),
        }
    }
    Ok(report)
}

/// Returns every file of every topic, sorted.
fn scripts_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for topic in fs::read_dir(root)? {
        for script in fs::read_dir(topic?.path())? {
            paths.push(script?.path());
        }
    }
    if paths.len() < SCRIPTS_MIN {
        let why = format!("{} scripts of {SCRIPTS_MIN} are left", paths.len());
        return Err(io::Error::other(why));
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Describes the first line in which a script and its actual output differ.
fn first_difference(written: &str, actual: &str) -> String {
    let mut lines = written.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (written, actual))| written != actual) {
        Some((index, (written, actual))) => {
            format!("line {}\n  written: {written}\n  actual:  {actual}", index + 1)
        }
        None => "the output is longer or shorter than written".to_owned(),
    }
}
