//! Puts the version and the commit of the sources into `gossip --version`.
//!
//! The commit is that of the git work tree, or the one that `cargo package` recorded; without both
//! only the version is shown, so a build needs neither git nor a network.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Digits of the commit that are shown.
const DIGITS: usize = 12;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let version = match commit() {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=GOSSIP_VERSION={version}");
    println!("cargo::rerun-if-changed=build.rs");
}

fn commit() -> Option<String> {
    let commit = recorded().or_else(|| {
        // Rewritten by every commit and checkout.
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo::rerun-if-changed={log}");
        git(&["rev-parse", "HEAD"])
    })?;
    let digits = commit.get(..DIGITS)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| digits.to_owned())
}

/// Returns the commit in a package of the registry.
fn recorded() -> Option<String> {
    let text = fs::read_to_string(Path::new(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    Some(rest.split('"').nth(1)?.to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok().filter(|_| ran.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
