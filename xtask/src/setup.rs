//! `cargo xtask setup [COMMAND]`: what the commands need beyond a Rust toolchain.
//!
//! Debian packages stand in [`PACKAGES`]; nothing is installed that is already there, and with
//! nothing missing no other program is started. Where we cannot install (no root, no apt), the
//! missing packages are named. Cargo tools and rustup components are fetched by the one command
//! that uses them, through [`cargo_tool`] and [`component`].

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The command whose needs `cargo xtask setup` alone looks after.
const DEFAULT_COMMAND: &str = "test";

/// A Debian package and who needs it.
struct DebianPackage {
    package: &'static str,
    /// The program whose presence shows that the package is installed.
    binary: &'static str,
    needed_by: &'static [&'static str],
    /// Needed only from the day this crate is part of the workspace; cargo knows whether it is.
    with_crate: Option<&'static str>,
    /// Shown when it is missing, so that nobody wonders what it is for.
    reason: &'static str,
}

/// Everything we take from Debian. A new row is all that a new need takes.
const PACKAGES: [DebianPackage; 6] = [
    DebianPackage {
        package: "build-essential",
        binary: "cc",
        needed_by: &["test", "bench", "fuzz", "kill-sqlite", "etcd-faults", "coverage", "mutation"],
        with_crate: None,
        reason: "BLAKE3 and SQLite are compiled from C",
    },
    DebianPackage {
        package: "valgrind",
        binary: "valgrind",
        needed_by: &["bench"],
        with_crate: None,
        reason: "counts instructions",
    },
    DebianPackage {
        package: "etcd-server",
        binary: "etcd",
        // Debian may start a server of its own with it; ours listen elsewhere and leave it alone.
        needed_by: &["test", "bench", "etcd-faults", "fleet", "coverage", "mutation"],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "the tests of the etcd store start real servers",
    },
    DebianPackage {
        package: "etcd-client",
        binary: "etcdctl",
        needed_by: &["test", "coverage", "mutation"],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "the tests of the etcd store type what docs/etcd.md says",
    },
    DebianPackage {
        package: "default-jre-headless",
        binary: "java",
        needed_by: &["tla"],
        with_crate: None,
        reason: "TLC, which checks the specification, is a Java program",
    },
    DebianPackage {
        package: "python3-pip",
        binary: "pip3",
        needed_by: &["tla"],
        with_crate: None,
        reason: "fetches TLC",
    },
];

impl DebianPackage {
    fn is_needed(&self, command: &str, workspace: &Workspace) -> bool {
        let crate_exists = self.with_crate.is_none_or(|name| workspace.package(name).is_some());
        crate_exists && self.needed_by.contains(&command)
    }
}

/// Installs what a command needs and mentions what only others would miss.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let command = parse(arguments)?;
    let workspace = Workspace::load()?;
    packages_for(command, &workspace)?;
    eprintln!("everything that `cargo xtask {command}` needs is installed");
    mention_others(command, &workspace);
    Ok(ExitCode::SUCCESS)
}

/// The command whose needs are meant.
fn parse(arguments: &[String]) -> Result<&str, Failure> {
    let why = match arguments {
        [] => return Ok(DEFAULT_COMMAND),
        [command] if crate::find(command).is_some() => return Ok(command),
        [command] => format!("there is no command `{command}`"),
        _ => "it takes one argument".to_owned(),
    };
    Err(Failure::usage("setup", why, "[COMMAND]"))
}

/// Installs the Debian packages that a command needs; quick when none is missing.
pub(crate) fn packages_for(command: &str, workspace: &Workspace) -> Result<(), Failure> {
    let needed = PACKAGES.iter().filter(|package| package.is_needed(command, workspace));
    let missing: Vec<&DebianPackage> =
        needed.filter(|package| !process::is_installed(package.binary)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(obstacle) = obstacle() {
        return Err(cannot_install(command, &missing, obstacle));
    }
    install(&missing)
}

/// Makes sure a cargo subcommand is there, by installing it with cargo.
pub(crate) fn cargo_tool(name: &str) -> Result<(), Failure> {
    if process::is_installed(name) {
        return Ok(());
    }
    eprintln!("installing {name}, which takes some minutes");
    let next = format!("install it by other means, so that `{name}` is on the search path");
    process::run(process::cargo().args(["install", "--locked", name]), &next)
}

/// Makes sure a component of a toolchain is there, by installing it with rustup.
pub(crate) fn component(toolchain: &str, name: &str) -> Result<(), Failure> {
    let next = "install rustup; only its toolchains have the component";
    let mut list = Command::new("rustup");
    list.args(["component", "list", "--installed", "--toolchain", toolchain]);
    // Asking is quick and needs no network; adding needs one even if there is nothing to add.
    let installed = process::capture(&mut list, &format!("rustup toolchain install {toolchain}"))?;
    if installed.lines().any(|line| line.starts_with(name)) {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    process::run(add.args(["component", "add", "--toolchain", toolchain, name]), next)
}

/// Why we cannot install packages here, if we cannot.
fn obstacle() -> Option<&'static str> {
    if !process::is_installed("apt-get") {
        return Some("this is no Debian: there is no `apt-get`");
    }
    let id = process::capture(Command::new("id").arg("-u"), "run as root");
    let is_root = id.is_ok_and(|id| id.trim() == "0");
    (!is_root).then_some("only root may install packages")
}

/// Names each missing package, why it is needed, and the command that someone with the right to do
/// so can type.
fn cannot_install(command: &str, missing: &[&DebianPackage], obstacle: &str) -> Failure {
    let list: Vec<String> = missing
        .iter()
        .map(|it| format!("{} (program `{}`: {})", it.package, it.binary, it.reason))
        .collect();
    let names: Vec<&str> = missing.iter().map(|it| it.package).collect();
    Failure::new(
        format!("`cargo xtask {command}` needs what is not installed: {}", list.join(", ")),
        obstacle,
        format!("sudo apt-get install {}", names.join(" ")),
    )
}

/// Installs packages. The list of packages is fetched only if the first attempt fails: on most
/// machines it is there, and fetching it is the slow part.
fn install(missing: &[&DebianPackage]) -> Result<(), Failure> {
    let next = "see what apt-get said above";
    let install = || {
        let mut command = apt_get();
        command.args(["install", "--yes"]).args(missing.iter().map(|it| it.package));
        command
    };
    if process::run(&mut install(), next).is_ok() {
        return Ok(());
    }
    process::run(apt_get().arg("update"), next)?;
    process::run(&mut install(), next)
}

/// apt-get that asks no questions and keeps its talk away from our results.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    command
}

/// What is missing for other commands is no failure of this one; people may never need it.
fn mention_others(command: &str, workspace: &Workspace) {
    for package in PACKAGES.iter().filter(|it| !it.is_needed(command, workspace)) {
        let user = package.needed_by.iter().find(|user| package.is_needed(user, workspace));
        if let (Some(user), false) = (user, process::is_installed(package.binary)) {
            let DebianPackage { package, reason, .. } = package;
            eprintln!(
                "`{package}` is missing ({reason}); if you need it: cargo xtask setup {user}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::workspace::Package;

    fn workspace(names: &[&str]) -> Workspace {
        let packages = names.iter().map(|name| Package {
            name: (*name).to_owned(),
            directory: String::new(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        });
        Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: packages.collect() }
    }

    fn needs(command: &str, workspace: &Workspace) -> Vec<&'static str> {
        let needed = PACKAGES.iter().filter(|it| it.is_needed(command, workspace));
        needed.map(|it| it.package).collect()
    }

    #[test]
    fn etcd_is_needed_from_the_day_its_crate_exists() {
        let before = workspace(&["gossip-stdx"]);
        let after = workspace(&["gossip-stdx", "gossip-coordination-etcd"]);
        assert_eq!(needs("test", &before), ["build-essential"]);
        assert_eq!(needs("test", &after), ["build-essential", "etcd-server", "etcd-client"]);
    }

    #[test]
    fn only_known_commands_need_something() {
        for package in &PACKAGES {
            for command in package.needed_by {
                assert!(crate::find(command).is_some(), "{command}");
            }
        }
        assert_eq!(needs("tidy", &workspace(&[])), Vec::<&str>::new());
    }

    #[test]
    fn what_cannot_be_installed_is_named_with_a_command() {
        let missing: Vec<&DebianPackage> = PACKAGES.iter().collect();
        let text = cannot_install("test", &missing, "only root may").to_string();
        for part in ["build-essential", "`cc`", "only root may", "sudo apt-get install build-"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
