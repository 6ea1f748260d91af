//! `cargo xtask bench scan`: compares `gossip scan` with other scanners on trees of this machine.
//!
//! Every tool reads the same directories, warm, one after the other in each round, so that load
//! from outside hits all of them. A tool or a directory that is not there is named and left out.
//! Peers are looked for in `PATH`; verification and update checks are off.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Measures wall time, processor time and memory of a process and its children.
const TIME: &str = "/usr/bin/time";

/// Rounds; the median of an odd number is one of them.
const ROUNDS: usize = 3;

/// Longest time of a run. A tool that takes longer on a tree has no figure there.
const RUN_SECONDS_MAX: &str = "300";

/// Trees above this size are left out for peers that read a few megabytes per second: they would
/// take hours.
const SLOW_BYTES_MAX: u64 = 60_000_000;

/// A directory and what it holds.
struct Tree {
    name: &'static str,
    path: PathBuf,
    bytes: u64,
    files: u64,
}

/// A command over a directory.
struct Tool {
    name: &'static str,
    words: Vec<String>,
}

/// One run.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    processor_seconds: f64,
    memory_kib: u64,
}

pub(super) fn run(saves: bool, made: &Made) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    for words in [
        &["build", "--release", "--quiet", "--package", "gossip-cli"][..],
        &["build", "--release", "--quiet", "--package", "gossip-scan", "--example", "bare"],
    ] {
        process::show(process::cargo().args(words), "fix the errors above")?;
    }
    let release = workspace.target.join("release");
    let scratch = workspace.target.join("bench-scan");
    let mut text = String::new();
    let _ = writeln!(text, "| tree | tool | s | CPU s | MB/s | MB per CPU s | peak MiB |");
    let _ = writeln!(text, "|---|---|---:|---:|---:|---:|---:|");
    for tree in trees(&workspace.root) {
        let tools = tools(&release, &scratch, &tree);
        let mut runs: Vec<Vec<Run>> = tools.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for (tool, runs) in tools.iter().zip(&mut runs) {
                // Each round is a scan of its own.
                let _ = std::fs::remove_dir_all(&scratch);
                std::fs::create_dir_all(&scratch).map_err(|error| failed(&error.to_string()))?;
                // A tool that took too long once would do so again.
                if runs.len() == round {
                    runs.extend(measure(tool));
                }
            }
        }
        for (tool, runs) in tools.iter().zip(&mut runs) {
            let megabytes = tree.bytes as f64 / 1e6;
            let label = format!("{} ({:.0} MB, {} files)", tree.name, megabytes, tree.files);
            // A tool that failed or took too long in some round has no median.
            if runs.len() < ROUNDS {
                let _ =
                    writeln!(text, "| {label} | {} | not finished | – | – | – | – |", tool.name);
                continue;
            }
            runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let Run { seconds, processor_seconds, memory_kib } = runs[ROUNDS / 2];
            let _ = writeln!(
                text,
                "| {label} | {} | {seconds:.2} | {processor_seconds:.2} | {:.0} | {:.0} | {} |",
                tool.name,
                megabytes / seconds,
                megabytes / processor_seconds.max(0.01),
                memory_kib / 1024,
            );
        }
    }
    println!("{text}");
    if saves {
        saved::SCAN.save(&text, made)?;
    }
    Ok(())
}

/// The trees of this machine that exist.
fn trees(project: &Path) -> Vec<Tree> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let rust = home.join(".rustup/toolchains");
    let documentation = std::fs::read_dir(rust).into_iter().flatten().flatten();
    let documentation =
        documentation.map(|entry| entry.path().join("share")).find(|it| it.is_dir());
    let named = [
        ("this project", Some(project.join("crates"))),
        ("crate sources", Some(cargo.join("registry/src"))),
        ("crate archives", Some(cargo.join("registry/cache"))),
        ("Rust documentation", documentation),
        ("/usr/share", Some(PathBuf::from("/usr/share"))),
    ];
    named
        .into_iter()
        .filter_map(|(name, path)| {
            let path = path.filter(|path| path.is_dir())?;
            let (bytes, files) = size_of(&path);
            Some(Tree { name, path, bytes, files })
        })
        .collect()
}

/// Returns bytes and number of the regular files below a directory.
fn size_of(directory: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => waiting.push(entry.path()),
                Ok(metadata) if metadata.is_file() => {
                    bytes += metadata.len();
                    files += 1;
                }
                _ => {}
            }
        }
    }
    (bytes, files)
}

fn tools(release: &Path, scratch: &Path, tree: &Tree) -> Vec<Tool> {
    let is_large = tree.bytes > SLOW_BYTES_MAX;
    let tree = tree.path.display().to_string();
    let gossip = release.join("gossip").display().to_string();
    let bare = release.join("examples/bare").display().to_string();
    let (store, key) = (scratch.join("store.db"), scratch.join("key"));
    let scan = |jobs: &str| {
        // The key of the measurement is made in its directory and not in the user's.
        let script = format!(
            "umask 077; printf '%064d\\n' 7 > {key}; exec {gossip} --store sqlite:{store} scan \
             {tree} --secret-key-file {key} --jobs {jobs} -o jsonl",
            key = key.display(),
            store = store.display(),
        );
        vec!["sh".to_owned(), "-c".to_owned(), script]
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut tools = vec![
        Tool { name: "gossip scan, 2 jobs", words: scan("2") },
        Tool { name: "gossip scan, 1 job", words: scan("1") },
        Tool { name: "open + read + engine, 2 threads", words: words(&[&bare, "2", &tree]) },
        Tool { name: "open + read + engine, 1 thread", words: words(&[&bare, "1", &tree]) },
    ];
    let peers = [
        ("kingfisher", &["scan", "--no-validate", "--no-update-check", "--jobs", "2"][..]),
        (
            "kingfisher --turbo",
            &["scan", "--turbo", "--no-validate", "--no-update-check", "--jobs", "2"],
        ),
        ("gitleaks", &["dir", "--no-banner", "--exit-code", "0"]),
        ("trufflehog", &["filesystem", "--no-verification", "--no-update"]),
        ("detect-secrets", &["scan", "--all-files", "--no-verify"]),
    ];
    for (name, options) in peers {
        let program = name.split(' ').next().unwrap_or(name);
        if is_large && program != "kingfisher" {
            continue;
        }
        if find(program) {
            let mut words = words(&[program]);
            words.extend(options.iter().map(|word| (*word).to_owned()));
            words.push(tree.clone());
            tools.push(Tool { name, words });
        } else {
            eprintln!("{program} is not in PATH and is left out");
        }
    }
    tools
}

fn find(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a tool once; `None` if it fails or takes too long.
fn measure(tool: &Tool) -> Option<Run> {
    let mut command = Command::new(TIME);
    command.args(["-f", "TIMED %e %U %S %M", "timeout", RUN_SECONDS_MAX]).args(&tool.words);
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().rev().find_map(|line| line.strip_prefix("TIMED "))?;
    let figures: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    // Findings and unread files are no failure; 124 is that of `timeout`.
    if output.status.code() == Some(124) {
        return None;
    }
    let [seconds, user, system, memory] = figures[..] else { return None };
    Some(Run { seconds, processor_seconds: user + system, memory_kib: memory as u64 })
}

fn failed(why: &str) -> Failure {
    Failure::usage("bench scan", why.to_owned(), "[--save]")
}
