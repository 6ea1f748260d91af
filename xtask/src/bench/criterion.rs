//! Time per operation, by the criterion benchmarks of every crate.
//!
//! criterion prints for people and stores its estimates as JSON below the target directory. This
//! module runs the benchmarks and reads the estimates that the run wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use super::{Figure, instructions, stores};
use crate::failure::Failure;
use crate::process;
use crate::workspace::{Package, Workspace};

/// Runs the benchmarks whose names contain the filter.
pub(super) fn measure(workspace: &Workspace, filter: Option<&str>) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for package in &workspace.packages {
        // criterion does not record the crate of a benchmark; the file time attributes it to this
        // run.
        let start = SystemTime::now();
        for bench in benches(package) {
            let mut command = process::cargo();
            command.args(["bench", "--all-features", "--package", &package.name, "--bench", bench]);
            command.args(["--", "--noplot"]).args(filter).stdout(std::io::stderr());
            process::run(&mut command, "fix the benchmark named above")?;
        }
        figures.extend(estimates(&workspace.target.join("criterion"), start, &package.name));
    }
    Ok(figures)
}

/// Returns the criterion benchmarks; instruction counts and stores have their own targets.
fn benches(package: &Package) -> impl Iterator<Item = &str> {
    let benches = package.targets.iter().filter(|target| target.kind == "bench");
    let names = benches.map(|target| target.name.as_str());
    names.filter(|name| *name != instructions::TARGET && !stores::is_one(name))
}

/// Returns the estimates written since `start`, in order of name.
fn estimates(directory: &Path, start: SystemTime, package: &str) -> Vec<Figure> {
    let mut figures: Vec<Figure> = reports(directory)
        .iter()
        .filter(|report| is_newer(&report.join("estimates.json"), start))
        .filter_map(|report| estimate(report, package))
        .collect();
    figures.sort_by(|a, b| a.name.cmp(&b.name));
    figures
}

/// Returns every directory `new`, at any depth; each holds the latest result of one benchmark.
fn reports(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .filter(|path| path.is_dir())
        .flat_map(|path| if path.ends_with("new") { vec![path] } else { reports(&path) })
        .collect()
}

/// Returns whether a file was written after `start`: results of earlier runs stay on disk and must
/// not be reported.
fn is_newer(path: &Path, start: SystemTime) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified >= start)
}

/// Returns name and median of one benchmark, or `None` if criterion changed its file format.
fn estimate(report: &Path, package: &str) -> Option<Figure> {
    let read = |name: &str| -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(report.join(name)).ok()?).ok()
    };
    Some(Figure {
        package: package.to_owned(),
        name: read("benchmark.json")?["full_id"].as_str()?.to_owned(),
        nanoseconds: Some(read("estimates.json")?["median"]["point_estimate"].as_f64()?),
        instructions: None,
    })
}
