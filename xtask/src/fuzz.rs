//! `cargo xtask fuzz TARGET SECONDS`: runs one fuzz target for a time; with `--runs N` for a number
//! of executions; `--all` is a [campaign] over every target.
//!
//! A run starts from the inputs in `verify/fuzz/kept`, which the tests of the laws also check, and
//! from those that earlier runs left in `verify/fuzz/corpus`, where it adds its own. Copy an input
//! worth keeping, or one that failed, into `kept` by hand; `cargo fuzz cmin` removes duplicates.
//!
//! The targets are in `verify/fuzz`, a separate workspace, so that libFuzzer stays out of the
//! product's lock file. They run on the stable toolchain without a sanitizer: the crates they
//! exercise forbid unsafe code, and fuzzing is ten times faster without one. `--sanitizer SECONDS`
//! is one pass over every target with the address sanitizer, which checks the unsafe code below
//! them: BLAKE3, the containers of `gossip-stdx`, the libraries of other crates.

mod campaign;
mod progress;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process::{self, Pipe};
use crate::setup;
use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "TARGET SECONDS | TARGET --runs N | --list | --sanitizer SECONDS | \
     --all [--runs N] [--jobs N] [--since COMMIT] [--progress FILE] [--save]";

/// The workspace of the targets. `cargo fuzz` would look for it in the root of the repository.
const DIRECTORY: &str = "verify/fuzz";

const TARGETS: &str = "verify/fuzz/fuzz_targets";

/// Inputs that are part of the repository; read, and never written.
const KEPT: &str = "verify/fuzz/kept";

/// Inputs that runs on this machine found.
const CORPUS: &str = "verify/fuzz/corpus";

/// Maximum input length of a run by time: above the largest shard with both its parts, so that
/// upper limits are exercised. libFuzzer's default is 4 KiB.
const INPUT_LEN_MAX: u64 = 65_536;

/// Maximum input length of a run by executions, unless an input of the repository or a seed of the
/// laws is longer: decoders branch on the first bytes, and short inputs run ten times as often.
const SHORT_LEN_MAX: u64 = 128;

/// The same for a target whose every eight bytes are a whole operation, also by time.
const SEQUENCES: (&str, u64) = ("operation_sequences", 4_096);

/// The same for targets that need more bytes, which get the length of their seeds, and for targets
/// whose cost grows with every byte and that need fewer.
const LENGTHS: [(&str, u64); 14] = [
    ("certificate", 640),
    ("command_template", 48),
    ("etcd_answers", 256),
    ("line_file", 24),
    ("manifest_rows", 40),
    ("record_decode", 256),
    ("rule_text", 320),
    ("run_head", 192),
    ("scan_input", 640),
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
        [flag, seconds] if flag == "--sanitizer" => {
            let bound = Bound::Seconds(parse(&targets[0], seconds, &targets)?);
            sanitize(&workspace, &targets, bound)?;
        }
        [flag] if flag == "--list" => targets.iter().for_each(|target| println!("{target}")),
        [target, seconds] => {
            let bound = Bound::Seconds(parse(target, seconds, &targets)?);
            fuzz(&workspace, target, bound, Sanitizer::None)?;
        }
        [target, flag, runs] if flag == "--runs" => {
            let bound = Bound::Runs(parse(target, runs, &targets)?);
            fuzz(&workspace, target, bound, Sanitizer::None)?;
        }
        _ => {
            return Err(Failure::usage("fuzz", "a target and a time are required", USAGE));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What checks memory during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    None,
    Address,
}

impl Sanitizer {
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Address => "address",
        }
    }
}

/// Runs every target with the address sanitizer; the first finding ends the pass.
fn sanitize(workspace: &Workspace, targets: &[String], bound: Bound) -> Result<(), Failure> {
    for target in targets {
        fuzz(workspace, target, bound, Sanitizer::Address)?;
    }
    println!("{} targets, no finding", targets.len());
    Ok(())
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
fn fuzz(
    workspace: &Workspace,
    target: &str,
    bound: Bound,
    sanitizer: Sanitizer,
) -> Result<(), Failure> {
    setup::packages_for("fuzz", workspace)?;
    setup::cargo_tool("cargo-fuzz")?;
    let mut executions = None;
    make_corpus(&workspace.root, target)?;
    let mut command = command(&workspace.root, target, bound, sanitizer);
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

/// Returns the command; `-O` optimizes.
fn command(root: &Path, target: &str, bound: Bound, sanitizer: Sanitizer) -> Command {
    let mut command = process::cargo_of("stable");
    command.args(["fuzz", "run", "--fuzz-dir", DIRECTORY, "-s", sanitizer.word(), "-O", target]);
    // It writes into the first.
    let places = [CORPUS, KEPT].map(|place| format!("{place}/{target}"));
    let longest = places.iter().map(|place| longest_file(&root.join(place))).max();
    let len_max = len_max(target, bound, longest.unwrap_or(0));
    command.args(places).arg("--").arg(format!("-max_len={len_max}"));
    match bound {
        Bound::Seconds(seconds) => command.arg(format!("-max_total_time={seconds}")),
        Bound::Runs(runs) => command.arg(format!("-runs={runs}")).args(QUICK),
    };
    command.arg("-print_final_stats=1");
    // Coverage instrumentation is an unstable flag; this makes the stable compiler accept it.
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(root);
    command
}

/// Returns the maximum length of inputs. None that exists is cut: those at the limits of a decoder
/// are among them, such as a shard with a full operation log.
fn len_max(target: &str, bound: Bound, longest: u64) -> u64 {
    let usual = match bound {
        _ if target == SEQUENCES.0 => SEQUENCES.1,
        Bound::Seconds(_) => INPUT_LEN_MAX,
        Bound::Runs(_) => {
            let own = LENGTHS.iter().find(|(name, _)| *name == target);
            own.map_or(SHORT_LEN_MAX, |(_, len)| *len)
        }
    };
    usual.max(longest)
}

/// Returns the length of the longest file of a directory; zero if there is none.
fn longest_file(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    files.filter_map(|file| file.metadata().ok()).map(|it| it.len()).max().unwrap_or(0)
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
    fn no_input_that_exists_is_cut() {
        let (time, runs) = (Bound::Seconds(1), Bound::Runs(1));
        assert_eq!(len_max("job", runs, 7), SHORT_LEN_MAX);
        assert_eq!(len_max("job", runs, 30_000), 30_000);
        assert_eq!(len_max("shard_hot", runs, 0), 256);
        assert_eq!(len_max("job", time, 7), INPUT_LEN_MAX);
        assert_eq!(len_max("operation_sequences", time, 7), SEQUENCES.1);
    }

    #[test]
    fn a_sanitizer_is_part_of_the_command() {
        let words = |sanitizer| -> Vec<String> {
            let command = command(Path::new("/r"), "job", Bound::Seconds(9), sanitizer);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        assert!(words(Sanitizer::Address).join(" ").contains("-s address -O job"));
        assert!(words(Sanitizer::None).join(" ").contains("-s none -O job"));
        assert!(words(Sanitizer::None).contains(&"-max_total_time=9".to_owned()));
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
