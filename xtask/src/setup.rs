//! `cargo xtask setup [COMMAND]`: installs what the commands need beyond a Rust toolchain.
//!
//! [`PACKAGES`] lists the Debian packages. Installed packages are skipped, and if none is missing
//! no other program is started. If installation is not possible (no root, no apt), the missing
//! packages are listed. Cargo tools and rustup components are installed by the one command that
//! uses them, through [`cargo_tool`] and [`component`].

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The S3 server of the tests, from the Python package index.
const MOTO: &str = "moto[server]==5.2.5";
/// The commands whose tests start it.
const MOTO_USERS: [&str; 3] = ["test", "coverage", "mutation"];
/// It is needed only with this crate.
const MOTO_CRATE: &str = "gossip-source-buckets";

/// The command whose packages `cargo xtask setup` without arguments installs.
const DEFAULT_COMMAND: &str = "test";

/// A Debian package and the commands that need it.
struct DebianPackage {
    package: &'static str,
    /// The program whose presence shows that the package is installed.
    binary: &'static str,
    needed_by: &'static [&'static str],
    /// Needed only if this crate is part of the workspace.
    with_crate: Option<&'static str>,
    /// Shown with a missing package as the reason for it.
    reason: &'static str,
}

/// All Debian packages in use. A new dependency needs only a new row.
const PACKAGES: [DebianPackage; 18] = [
    DebianPackage {
        package: "build-essential",
        binary: "cc",
        needed_by: &[
            "test",
            "bench",
            "fuzz",
            "kill-sqlite",
            "etcd-faults",
            "etcd-network",
            "coverage",
            "mutation",
        ],
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
        package: "time",
        binary: "time",
        needed_by: &["bench"],
        with_crate: None,
        reason: "measures processor time and memory of commands",
    },
    DebianPackage {
        package: "strace",
        binary: "strace",
        needed_by: &["bench"],
        with_crate: None,
        reason: "counts system calls",
    },
    DebianPackage {
        package: "fd-find",
        binary: "fdfind",
        needed_by: &["bench"],
        with_crate: None,
        reason: "one of the tools that `gossip exec` is compared with",
    },
    DebianPackage {
        package: "ripgrep",
        binary: "rg",
        needed_by: &["bench"],
        with_crate: None,
        reason: "one of the tools that `gossip exec` is compared with",
    },
    DebianPackage {
        package: "parallel",
        binary: "parallel",
        needed_by: &["bench"],
        with_crate: None,
        reason: "one of the tools that `gossip exec` is compared with",
    },
    DebianPackage {
        package: "etcd-server",
        binary: "etcd",
        // Debian may start a server of its own with it; ours listen elsewhere and leave it alone.
        needed_by: &[
            "test",
            "bench",
            "etcd-faults",
            "etcd-network",
            "fleet",
            "coverage",
            "mutation",
        ],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "the tests of the etcd store start real servers",
    },
    DebianPackage {
        package: "iproute2",
        binary: "ip",
        needed_by: &["test", "etcd-faults", "etcd-network"],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "the servers of a test have networks of their own",
    },
    DebianPackage {
        package: "iptables",
        binary: "iptables",
        needed_by: &["test", "etcd-network"],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "drops packets one way between workers and servers",
    },
    DebianPackage {
        package: "etcd-client",
        binary: "etcdctl",
        needed_by: &["test", "coverage", "mutation"],
        with_crate: Some("gossip-coordination-etcd"),
        reason: "the tests of the etcd store run the commands of docs/etcd.md",
    },
    DebianPackage {
        package: "faketime",
        binary: "faketime",
        needed_by: &["test", "etcd-network", "coverage", "mutation"],
        with_crate: None,
        reason: "tests set the wall clock of running workers",
    },
    DebianPackage {
        package: "postgresql",
        // On the search path, unlike the programs of a version. Debian may start a server of its
        // own with it; ours listen elsewhere and leave it alone.
        binary: "pg_ctlcluster",
        needed_by: &["test", "coverage", "mutation"],
        with_crate: Some("gossip-coordination-postgres"),
        reason: "the tests of the PostgreSQL store start real servers",
    },
    DebianPackage {
        package: "chromium",
        binary: "chromium",
        needed_by: &["test"],
        with_crate: Some("gossip-serve"),
        reason: "the tests of the page open it in a real browser",
    },
    DebianPackage {
        package: "chromium-driver",
        binary: "chromedriver",
        needed_by: &["test"],
        with_crate: Some("gossip-serve"),
        reason: "drives that browser",
    },
    DebianPackage {
        package: "python3-venv",
        binary: "python3",
        needed_by: &MOTO_USERS,
        with_crate: Some(MOTO_CRATE),
        reason: "runs the S3 server of the tests",
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

/// Installs the packages of a command and lists packages missing for other commands.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let command = parse(arguments)?;
    let workspace = Workspace::load()?;
    packages_for(command, &workspace)?;
    eprintln!("everything that `cargo xtask {command}` needs is installed");
    mention_others(command, &workspace);
    Ok(ExitCode::SUCCESS)
}

/// Returns the command whose packages are installed.
fn parse(arguments: &[String]) -> Result<&str, Failure> {
    let why = match arguments {
        [] => return Ok(DEFAULT_COMMAND),
        [command] if crate::find(command).is_some() => return Ok(command),
        [command] => format!("there is no command `{command}`"),
        _ => "at most one argument is allowed".to_owned(),
    };
    Err(Failure::usage("setup", why, "[COMMAND]"))
}

/// Installs the Debian packages that a command needs; fast if none is missing.
pub(crate) fn packages_for(command: &str, workspace: &Workspace) -> Result<(), Failure> {
    let needed = PACKAGES.iter().filter(|package| package.is_needed(command, workspace));
    let missing: Vec<&DebianPackage> =
        needed.filter(|package| !process::is_installed(package.binary)).collect();
    match (missing.is_empty(), obstacle()) {
        (true, _) => {}
        (false, Some(obstacle)) => return Err(cannot_install(command, &missing, obstacle)),
        (false, None) => install(&missing)?,
    }
    let needs_moto = MOTO_USERS.contains(&command) && workspace.package(MOTO_CRATE).is_some();
    if needs_moto { moto(workspace) } else { Ok(()) }
}

/// Installs the S3 server into an environment below `target`, unless it is there.
fn moto(workspace: &Workspace) -> Result<(), Failure> {
    let environment = workspace.target.join("moto");
    if environment.join("bin/moto_server").exists() {
        return Ok(());
    }
    eprintln!("installing {MOTO} below target");
    let next = "install the Debian package python3-venv, and check the network";
    let mut create = Command::new("python3");
    create.args(["-m", "venv"]).arg(&environment).stdout(std::io::stderr());
    process::run(&mut create, next)?;
    let mut install = Command::new(environment.join("bin/pip"));
    process::run(install.args(["install", "--quiet", MOTO]).stdout(std::io::stderr()), next)
}

/// Installs a cargo subcommand with cargo if it is missing.
pub(crate) fn cargo_tool(name: &str) -> Result<(), Failure> {
    if process::is_installed(name) {
        return Ok(());
    }
    eprintln!("installing {name}; this takes some minutes");
    let next = format!("install `{name}` another way and put it on the search path");
    process::run(process::cargo().args(["install", "--locked", name]), &next)
}

/// Installs a component of a toolchain with rustup if it is missing.
pub(crate) fn component(toolchain: &str, name: &str) -> Result<(), Failure> {
    let next = "install rustup, which provides the component";
    let mut list = Command::new("rustup");
    list.args(["component", "list", "--installed", "--toolchain", toolchain]);
    // Listing is fast and needs no network; adding needs one even if the component is installed.
    let installed = process::capture(&mut list, &format!("rustup toolchain install {toolchain}"))?;
    if installed.lines().any(|line| line.starts_with(name)) {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    process::run(add.args(["component", "add", "--toolchain", toolchain, name]), next)
}

/// Returns why packages cannot be installed here, or `None` if they can.
fn obstacle() -> Option<&'static str> {
    if !process::is_installed("apt-get") {
        return Some("there is no `apt-get`: not a Debian system");
    }
    let id = process::capture(Command::new("id").arg("-u"), "run as root");
    let is_root = id.is_ok_and(|id| id.trim() == "0");
    (!is_root).then_some("installing packages requires root")
}

/// Returns a failure that lists each missing package, its reason, and the command that installs all
/// of them.
fn cannot_install(command: &str, missing: &[&DebianPackage], obstacle: &str) -> Failure {
    let list: Vec<String> = missing
        .iter()
        .map(|it| format!("{} (program `{}`: {})", it.package, it.binary, it.reason))
        .collect();
    let names: Vec<&str> = missing.iter().map(|it| it.package).collect();
    Failure::new(
        format!(
            "`cargo xtask {command}` needs packages that are not installed: {}",
            list.join(", ")
        ),
        obstacle,
        format!("sudo apt-get install {}", names.join(" ")),
    )
}

/// Installs packages. The package list is updated only if the first attempt fails: it usually
/// exists, and updating it is the slow part.
fn install(missing: &[&DebianPackage]) -> Result<(), Failure> {
    let next = "see the output of apt-get above";
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

/// Returns apt-get without questions and with its output on stderr.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    command
}

/// Lists packages that only other commands need; that is not a failure.
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
    fn etcd_is_needed_only_with_its_crate() {
        let before = workspace(&["gossip-stdx"]);
        let after = workspace(&["gossip-stdx", "gossip-coordination-etcd"]);
        assert_eq!(needs("test", &before), ["build-essential", "faketime"]);
        let of_etcd = ["etcd-server", "iproute2", "iptables", "etcd-client"];
        let all = [&["build-essential"][..], &of_etcd, &["faketime"]].concat();
        assert_eq!(needs("test", &after), all);
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
    fn packages_that_cannot_be_installed_are_listed_with_a_command() {
        let missing: Vec<&DebianPackage> = PACKAGES.iter().collect();
        let text = cannot_install("test", &missing, "only root may").to_string();
        for part in ["build-essential", "`cc`", "only root may", "sudo apt-get install build-"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
