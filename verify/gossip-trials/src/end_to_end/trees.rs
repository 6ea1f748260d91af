//! Trees of empty files, made once and kept for the next time.

use std::fs::{self, File};
use std::path::Path;

use super::Bench;
use crate::Outcome;

/// Files of each tree.
pub(super) const FILES: usize = 200_000;

/// Directories of the two-level tree, and of each level of the deep one.
const WIDE: usize = 200;
const NARROW: usize = 10;

/// Levels of directories of the deep tree.
const LEVELS: u32 = 4;

/// The names of the trees, below the directory of the benchmark.
pub(super) const TREES: [&str; 3] = ["flat", "two-levels", "deep"];

/// Makes the trees that are missing.
pub(super) fn make(bench: &Bench) -> Outcome<()> {
    let files = bench.scaled(FILES);
    for name in TREES {
        let (tree, mark) =
            (bench.directory.join(name), bench.directory.join(format!("{name}.made")));
        if fs::read_to_string(&mark).is_ok_and(|made| made == files.to_string()) {
            continue;
        }
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        match name {
            "flat" => fill(&tree, files)?,
            "two-levels" => {
                (0..WIDE).try_for_each(|at| fill(&tree.join(format!("d{at:03}")), files / WIDE))?;
            }
            _ => deep(&tree, LEVELS, files)?,
        }
        fs::write(mark, files.to_string())?;
    }
    Ok(())
}

fn deep(directory: &Path, levels: u32, files: usize) -> Outcome<()> {
    match levels {
        0 => fill(directory, files),
        _ => (0..NARROW)
            .try_for_each(|at| deep(&directory.join(format!("d{at}")), levels - 1, files / NARROW)),
    }
}

fn fill(directory: &Path, files: usize) -> Outcome<()> {
    fs::create_dir_all(directory)?;
    for at in 0..files {
        File::create(directory.join(format!("file{at:06}.txt")))?;
    }
    Ok(())
}
