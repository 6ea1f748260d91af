//! A newer etcd than the installed one: the package of the next Debian suite, unpacked below the
//! target directory and never installed.
//!
//! apt gets a source list and a state of its own, with the mirror of the machine's list and another
//! suite. Its signatures are checked as those of the machine are. The package remains for later
//! runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// The suite that follows the one of our machines.
const SUITE: &str = "trixie";
/// The list of sources of a Debian machine, which names its mirror.
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";
const PACKAGE: &str = "etcd-server";

/// Returns the directory that holds the program `etcd`.
///
/// # Errors
///
/// Why it cannot be had.
pub(crate) fn directory(workspace: &Workspace) -> Result<PathBuf, String> {
    let root = workspace.target.join("newer-etcd");
    let programs = root.join("root/usr/bin");
    if !programs.join("etcd").is_file() {
        unpack(&root)?;
    }
    match programs.join("etcd").is_file() {
        true => Ok(programs),
        false => Err(format!("the package {PACKAGE} of {SUITE} has no program `etcd`")),
    }
}

fn unpack(root: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    for directory in ["parts", "lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(root.join(directory)).map_err(failed)?;
    }
    let list = fs::read_to_string(SOURCES).map_err(|_| format!("there is no {SOURCES}"))?;
    fs::write(root.join("parts/next.sources"), sources(&list)?).map_err(failed)?;
    run(apt_get(root).arg("update"))?;
    run(apt_get(root).args(["download", PACKAGE]))?;
    let packages = fs::read_dir(root).map_err(failed)?.flatten().map(|entry| entry.path());
    let is_package = |path: &PathBuf| path.extension().is_some_and(|it| it == "deb");
    let package = packages.filter(is_package).max().ok_or("apt-get downloaded no package")?;
    run(Command::new("dpkg").arg("-x").arg(package).arg(root.join("root")))
}

/// Returns the first entry of a list with the other suite.
fn sources(list: &str) -> Result<String, String> {
    let entry = list.split("\n\n").find(|entry| entry.contains("URIs:"));
    let entry = entry.ok_or_else(|| format!("{SOURCES} has no entry"))?;
    let line = |line: &str| match line.starts_with("Suites:") {
        true => format!("Suites: {SUITE}\n"),
        false => format!("{line}\n"),
    };
    Ok(entry.lines().map(line).collect())
}

/// Returns apt-get with lists and packages of its own, in the directory of the package.
fn apt_get(root: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(root).args(["-q", "-o", "Dir::Etc::SourceList=/dev/null"]);
    let places = [
        ("Dir::Etc::SourceParts", "parts"),
        ("Dir::State::Lists", "lists"),
        ("Dir::Cache", "cache"),
    ];
    for (name, place) in places {
        command.arg("-o").arg(format!("{name}={}", root.join(place).display()));
    }
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{program}` could not be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // The rest names mirrors of this machine.
    let what = errors.lines().last().unwrap_or_default().split("http").next().unwrap_or_default();
    Err(format!("`{program}` failed: {}", what.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_suite_has_the_mirror_and_the_keys_of_the_machine() {
        let list = "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\nSigned-By: /keys\n\nTypes: deb\nURIs: http://other\n";
        let expected = "Types: deb\nURIs: http://mirror/debian\nSuites: trixie\n\
                        Components: main\nSigned-By: /keys\n";
        assert_eq!(sources(list).as_deref(), Ok(expected));
        assert!(sources("").is_err());
    }
}
