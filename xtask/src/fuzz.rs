//! `cargo xtask fuzz TARGET SECONDS`: runs one fuzz target for a time; with `--runs N` for a number
//! of executions; `--all` is a [campaign] over every target.
//!
//! A run starts from the inputs in `verify/fuzz/kept`, which the tests of the laws also check, and
//! from those that earlier runs left in `verify/fuzz/corpus`, where it adds its own. Copy an input
//! worth keeping, or one that failed, into `kept` by hand; `cargo fuzz cmin` removes duplicates.
//!
//! The targets are in `verify/fuzz`, a separate workspace, so that libFuzzer stays out of the
//! product's lock file. They run on the stable toolchain without a sanitizer: the crates they
//! exercise forbid unsafe code, and fuzzing is ten times faster without one.

mod campaign;
mod progress;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process::{self, Pipe};
use crate::setup;
use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "TARGET SECONDS | TARGET --runs N | --list | \
     --all [--runs N] [--jobs N] [--since COMMIT] [--progress FILE] [--save]";

/// The workspace of the targets. `cargo fuzz` would look for it in the root of the repository.
const DIRECTORY: &str = "verify/fuzz";

const TARGETS: &str = "verify/fuzz/fuzz_targets";

/// Inputs that are part of the repository; read, and never written.
const KEPT: &str = "verify/fuzz/kept";

/// Inputs that runs on this machine found.
const CORPUS: &str = "verify/fuzz/corpus";

/// Maximum input length: above the 16 KiB that the largest decoder accepts, so that its upper
/// limits are exercised. libFuzzer's default is 4 KiB.
const INPUT_LEN_MAX: u32 = 20_000;

/// Maximum input length of a run by executions: decoders branch on the first bytes, and short
/// inputs run ten times as often. Runs by time exercise the upper limits.
const SHORT_LEN_MAX: u32 = 128;

/// The same for targets that need more bytes, which get the length of their seeds, and for targets
/// whose cost grows with every byte and that need fewer.
const LENGTHS: [(&str, u32); 13] = [
    ("certificate", 640),
    ("command_template", 48),
    ("etcd_answers", 256),
    ("line_file", 24),
    ("manifest_rows", 40),
    ("operation_sequences", 512),
    ("record_decode", 256),
    ("run_head", 192),
    ("shard_cold", 192),
    ("shard_hot", 256),
    ("store_key", 192),
    ("store_url", 192),
    ("stream_answer", 96),
];

/// libFuzzer options for a run by executions, which spend the time on executing inputs. Without
/// them it spends half of it on shortening inputs, on weighing which to try, and on reloading
/// unchanged files.
const QUICK: [&str; 4] = ["-len_control=0", "-entropic=0", "-reduce_inputs=0", "-reload=0"];

/// libFuzzer's line with the number of executed inputs.
const EXECUTIONS: &str = "stat::number_of_executed_units:";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let workspace = Workspace::load()?;
    let targets = targets(&workspace.root)?;
    match arguments {
        [flag, rest @ ..] if flag == "--all" => campaign::run(rest, &targets)?,
        [flag] if flag == "--list" => targets.iter().for_each(|target| println!("{target}")),
        [target, seconds] => {
            let bound = Bound::Seconds(parse(target, seconds, &targets)?);
            fuzz(&workspace, target, bound)?;
        }
        [target, flag, runs] if flag == "--runs" => {
            let bound = Bound::Runs(parse(target, runs, &targets)?);
            fuzz(&workspace, target, bound)?;
        }
        _ => {
            return Err(Failure::usage("fuzz", "a target and a time are required", USAGE));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Seconds(u32),
    Runs(u32),
}

/// Returns the names of the targets, one file each.
fn targets(root: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(
            format!("{TARGETS} was not read"),
            error.to_string(),
            "git checkout verify/fuzz",
        )
    };
    let mut targets = Vec::new();
    for entry in fs::read_dir(root.join(TARGETS)).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let name = name.to_string_lossy();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

/// Checks both arguments and returns the number.
fn parse(target: &str, number: &str, targets: &[String]) -> Result<u32, Failure> {
    if !targets.iter().any(|known| known == target) {
        let why = format!("there is no target `{target}`; the targets are {}", targets.join(", "));
        return Err(Failure::usage("fuzz", why, USAGE));
    }
    match number.parse() {
        // Zero means "forever" to libFuzzer, and every run must be bounded.
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Failure::usage("fuzz", "the bound must be 1 or more", USAGE)),
    }
}

/// Runs libFuzzer and prints a summary line on stdout.
fn fuzz(workspace: &Workspace, target: &str, bound: Bound) -> Result<(), Failure> {
    setup::packages_for("fuzz", workspace)?;
    setup::cargo_tool("cargo-fuzz")?;
    let mut executions = None;
    make_corpus(&workspace.root, target)?;
    let mut command = command(&workspace.root, target, bound);
    let status = process::stream(&mut command, Pipe::Stderr, &mut |line| {
        if let Some(number) = line.strip_prefix(EXECUTIONS) {
            executions = Some(number.trim().to_owned());
        }
    })?;
    // A failed build or a killed process prints no statistics.
    let executions = executions.unwrap_or_else(|| "an unknown number of".to_owned());
    let result = if status.success() { "no finding" } else { "FOUND something" };
    println!("{target}: {executions} executions, {result}");
    let next =
        format!("keep the input named above as a test, then fix the code that `{target}` reached");
    process::expect_success(&command, status, &next)
}

/// Creates the directory to which libFuzzer writes its inputs.
fn make_corpus(root: &Path, target: &str) -> Result<(), Failure> {
    let place = root.join(CORPUS).join(target);
    fs::create_dir_all(&place).map_err(|error| {
        Failure::new(
            format!("{CORPUS}/{target} was not created"),
            error.to_string(),
            "check the directory",
        )
    })
}

/// Returns the command; `-s none` disables sanitizers, `-O` optimizes.
fn command(root: &Path, target: &str, bound: Bound) -> Command {
    let mut command = process::cargo_of("stable");
    command.args(["fuzz", "run", "--fuzz-dir", DIRECTORY, "-s", "none", "-O", target]);
    // It writes into the first.
    command.args([CORPUS, KEPT].map(|place| format!("{place}/{target}"))).arg("--");
    match bound {
        Bound::Seconds(seconds) => {
            command.arg(format!("-max_total_time={seconds}"));
            command.arg(format!("-max_len={INPUT_LEN_MAX}"));
        }
        Bound::Runs(runs) => {
            let own = LENGTHS.iter().find(|(name, _)| *name == target);
            let len_max = own.map_or(SHORT_LEN_MAX, |(_, len)| *len);
            command.arg(format!("-runs={runs}")).arg(format!("-max_len={len_max}")).args(QUICK);
        }
    }
    command.arg("-print_final_stats=1");
    // Coverage instrumentation is an unstable flag; this makes the stable compiler accept it.
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let targets = ["a".to_owned(), "b".to_owned()];
        assert_eq!(parse("a", "10", &targets).unwrap(), 10);
        assert!(
            parse("c", "10", &targets).unwrap_err().to_string().contains("the targets are a, b")
        );
        for seconds in ["0", "-1", "ten", ""] {
            assert!(parse("a", seconds, &targets).is_err(), "{seconds:?}");
        }
    }

    #[test]
    fn every_target_is_declared_in_its_manifest() {
        let root = Workspace::load().unwrap().root;
        let manifest = fs::read_to_string(root.join("verify/fuzz/Cargo.toml")).unwrap();
        for target in targets(&root).unwrap() {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
        }
    }
}
