//! The scripts on disk: found, played, compared, and rewritten when asked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ScriptBackend;
use super::coverage::FileCoverage;
use super::play::{Played, play_on};
use super::stage::{Here, Stage};

/// What came of all scripts.
#[derive(Debug, Default)]
pub struct Report {
    /// What each script that was played covers.
    pub files: Vec<FileCoverage>,
    /// Scripts that the backend cannot play.
    pub skipped: Vec<String>,
    /// Scripts that were not answered as they say, with the first difference.
    pub failures: Vec<String>,
}

/// Plays every script through `backend`, or rewrites them all with what it answers.
///
/// Rewrite only what you can explain: a golden file is a statement about the protocol.
///
/// # Errors
///
/// If the scripts cannot be read or written.
pub fn check_scripts<B: ScriptBackend>(backend: &mut B, rewrite: bool) -> io::Result<Report> {
    check_scripts_on(&mut Here::new(backend), rewrite)
}

/// As [`check_scripts`], on any stage.
///
/// # Errors
///
/// As [`check_scripts`].
pub fn check_scripts_on<S: Stage>(stage: &mut S, rewrite: bool) -> io::Result<Report> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let mut report = Report::default();
    for path in scripts_below(&root)? {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        match play_on(stage, &text) {
            Ok(Played::Skipped) => report.skipped.push(name),
            Ok(Played::Done { text: played, mut coverage }) => {
                coverage.name.clone_from(&name);
                report.files.push(coverage);
                if rewrite && played != text {
                    fs::write(&path, &played)?;
                } else if played != text {
                    report.failures.push(format!("{name}: {}", first_difference(&text, &played)));
                }
            }
            Err(error) => report.failures.push(format!("{name}: {error}")),
        }
    }
    Ok(report)
}

/// Every file of every topic, sorted.
fn scripts_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for topic in fs::read_dir(root)? {
        for script in fs::read_dir(topic?.path())? {
            paths.push(script?.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Where a script and what came of it part.
fn first_difference(written: &str, played: &str) -> String {
    let mut lines = written.lines().zip(played.lines()).enumerate();
    match lines.find(|(_, (written, played))| written != played) {
        Some((index, (written, played))) => {
            format!("line {}\n  written: {written}\n  played:  {played}", index + 1)
        }
        None => "the output is longer or shorter than written".to_owned(),
    }
}
