//! `cargo xtask dist`: the files of a release, below `target/dist`.
//!
//! One directory per target: the stripped binary, its debug information beside it, completions, man
//! pages and licences, and one file of checksums for all. The static target is built where its
//! toolchain and `musl-gcc` are installed, and left out with a message where they are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The static target.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// The C compiler of the static target: SQLite and ring are compiled from C.
const MUSL_COMPILER: &str = "musl-gcc";

const SHELLS: [(&str, &str); 3] =
    [("bash", "gossip.bash"), ("zsh", "_gossip"), ("fish", "gossip.fish")];

/// Files of the repository that belong to a release.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("dist", "it takes no arguments", ""));
    }
    let workspace = Workspace::load()?;
    let root = workspace.target.join("dist");
    let host = host_target()?;
    let mut made = vec![make(&workspace, &root, &host)?];
    match missing_for_musl() {
        None => made.push(make(&workspace, &root, MUSL)?),
        Some(missing) => eprintln!("no static binary: {missing}"),
    }
    checksums(&root, &made)?;
    for directory in &made {
        println!("{}", directory.display());
    }
    println!("{}", root.join("SHA256SUMS").display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the target of the compiler itself.
fn host_target() -> Result<String, Failure> {
    let text = process::capture(Command::new("rustc").arg("-vV"), "install Rust")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| {
        Failure::new("no release was made", "rustc -vV prints no host", "install Rust with rustup")
    })
}

/// Returns what the static target lacks.
fn missing_for_musl() -> Option<String> {
    let library = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", MUSL])
        .output()
        .ok()
        .map(|ran| PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim()));
    if library.is_none_or(|library| !library.is_dir()) {
        return Some(format!("the target {MUSL} is missing: rustup target add {MUSL}"));
    }
    let found = Command::new(MUSL_COMPILER).arg("--version").output();
    let is_found = found.is_ok_and(|ran| ran.status.success());
    (!is_found).then(|| format!("{MUSL_COMPILER} is missing: apt-get install musl-tools"))
}

/// Builds one target and fills its directory.
fn make(workspace: &Workspace, root: &Path, target: &str) -> Result<PathBuf, Failure> {
    let mut cargo = process::cargo();
    cargo.current_dir(&workspace.root);
    cargo.args(["build", "--release", "--locked", "--package", "gossip-cli", "--target", target]);
    if target == MUSL {
        cargo.env("CC_x86_64_unknown_linux_musl", MUSL_COMPILER);
    }
    process::run(&mut cargo, "fix the build")?;
    let built = workspace.target.join(target).join("release/gossip");
    let directory = root.join(format!("gossip-{}-{target}", env!("CARGO_PKG_VERSION")));
    // Files of an earlier version must not stay.
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(|error| unwritten(&directory, &error))?;
    }
    let completions = directory.join("completions");
    fs::create_dir_all(&completions).map_err(|error| unwritten(&completions, &error))?;
    split_debug_info(&built, &directory)?;
    let binary = directory.join("gossip");
    for (shell, name) in SHELLS {
        let mut command = Command::new(&binary);
        let text = process::capture(command.args(["completions", shell]), "run gossip doctor")?;
        let path = completions.join(name);
        fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
    }
    let mut man = Command::new(&binary);
    process::run(man.args(["man", "--to"]).arg(directory.join("man")), "run gossip doctor")?;
    for name in DOCUMENTS {
        let from = workspace.root.join(name);
        fs::copy(from, directory.join(name)).map_err(|error| unwritten(&directory, &error))?;
    }
    Ok(directory)
}

/// Copies a binary without its debug information, which goes into `gossip.debug` beside it.
fn split_debug_info(built: &Path, directory: &Path) -> Result<(), Failure> {
    let (binary, debug) = (directory.join("gossip"), directory.join("gossip.debug"));
    let next = "install binutils";
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        process::run(Command::new("objcopy").args(arguments).arg(from).arg(to), next)
    };
    objcopy(&["--only-keep-debug"], built, &debug)?;
    objcopy(&["--strip-all"], built, &binary)?;
    // The link is the file's name and checksum, so debuggers find it in the same directory.
    let mut link = Command::new("objcopy");
    link.current_dir(directory).args(["--add-gnu-debuglink=gossip.debug", "gossip"]);
    process::run(&mut link, next)
}

/// Writes the checksums of all files, in the form that `sha256sum --check` reads.
fn checksums(root: &Path, made: &[PathBuf]) -> Result<(), Failure> {
    let mut files = Vec::new();
    for directory in made {
        files_below(directory, &mut files)?;
    }
    files.sort();
    let names = files.iter().filter_map(|file| file.strip_prefix(root).ok());
    let mut command = Command::new("sha256sum");
    command.current_dir(root).args(names);
    let sums = process::capture(&mut command, "install coreutils")?;
    let path = root.join("SHA256SUMS");
    fs::write(&path, sums).map_err(|error| unwritten(&path, &error))
}

fn files_below(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = fs::read_dir(directory).map_err(|error| unwritten(directory, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| unwritten(directory, &error))?.path();
        match path.is_dir() {
            true => files_below(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let why = format!("{}: {error}", path.display());
    Failure::new("the release cannot be written", why, "df -h; ls -ld target/dist")
}
