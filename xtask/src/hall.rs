//! `cargo xtask hall`: every planted bug must be found, and a broken build must be noticed.
//!
//! Without arguments it plants one bug after the other in an optimized build and lets the model
//! checker, the simulator and the search of planned moves look for it; `--save` writes the table
//! between two marks in `docs/reliability.md`.
//!
//! `--broken` plants one bug in the whole of the tests of gossip-coordination and the conformance
//! suite instead, three times over, and runs the ordinary ones of the rules: each of the three must
//! be red, and the same tests without a bug green. One build serves all four.

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process::{self, Pipe};
use crate::saved::{self, Made};

const USAGE: &str = "[--save] | --broken [--save]";
/// The switches are compiled in by this, and by nothing else.
const SWITCHES: &str = "--cfg planted_bugs";
/// Which bug a whole process has, if its build has switches.
const BUG_OF_PROCESS: &str = "GOSSIP_PLANTED_BUG";
/// The bugs of `--broken`: one in the kernel's ladder, one in its changes, one in the store layer.
const BROKEN: [&str; 3] = ["FenceIgnored", "ChildLost", "LostReplyIsFailure"];
/// The tests that are run: rules, sessions, lost replies, and the suite that every backend is held
/// to. They take seconds, and none of them looks for a planted bug.
const ORDINARY: [&str; 7] = [
    "protocol::",
    "validation_tests",
    "scenario_tests",
    "session_tests",
    "store::doubt_tests",
    "conformance_tests::every",
    "conformance_tests::the",
];

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (broken, saves) = match words[..] {
        [] => (false, false),
        ["--save"] => (false, true),
        ["--broken"] => (true, false),
        ["--broken", "--save"] => (true, true),
        _ => return Err(Failure::usage("hall", "it is not understood", USAGE)),
    };
    let made = Made::now("hall", arguments)?;
    let (block, table) = if broken { (saved::BROKEN, break_it()?) } else { (saved::HALL, hunt()?) };
    if saves {
        block.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks for every bug. Answers the table.
fn hunt() -> Result<String, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-handoff"]);
    command.args(["--example", "hall"]).env("RUSTFLAGS", SWITCHES);
    process::show(&mut command, "see which row above says `not found`")
}

/// Runs ordinary tests without a bug and with each of three. Answers a table.
fn break_it() -> Result<String, Failure> {
    let mut table = String::from("| planted | tests passed | tests failed |\n|---|---|---|\n");
    let mut wrong = Vec::new();
    for bug in [None].into_iter().chain(BROKEN.map(Some)) {
        let name = bug.unwrap_or("nothing");
        let Tally { passed, failed } = test(bug)?;
        table.push_str(&format!("| {name} | {passed} | {failed} |\n"));
        if passed == 0 || bug.is_some() != (failed > 0) {
            wrong.push(name);
        }
    }
    table.push_str(&format!("\nRun: `{}`.\n", ORDINARY.join("`, `")));
    println!("{table}");
    if wrong.is_empty() {
        return Ok(table);
    }
    let why = "tests with a bug must fail, and those without must not".to_owned();
    let what = format!("not as it should be: {}", wrong.join(", "));
    Err(Failure::new(what, why, "read what its tests said above"))
}

/// How many tests passed and failed.
#[derive(Debug, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Runs the ordinary tests of the kernel and the conformance suite with `bug`.
fn test(bug: Option<&str>) -> Result<Tally, Failure> {
    let mut command = test_command(bug);
    let mut tally = None;
    // It may well fail: how it ended is in the tally.
    process::stream(&mut command, Pipe::Stdout, &mut |line| {
        if let Some(told) = tally_of(line) {
            let sum = tally.get_or_insert(Tally { passed: 0, failed: 0 });
            sum.passed += told.passed;
            sum.failed += told.failed;
        }
    })?;
    tally.ok_or_else(|| {
        let why = "it was not built, or it was killed".to_owned();
        Failure::new("the tests told no result", why, "run the command by hand")
    })
}

fn test_command(bug: Option<&str>) -> Command {
    let mut command = process::cargo();
    command.args(["test", "--quiet", "--no-fail-fast", "--package", "gossip-coordination"]);
    command.args(["--package", "gossip-conformance", "--lib", "--"]);
    command.args(ORDINARY).env("RUSTFLAGS", SWITCHES);
    // Thousands of lines of what went wrong say nothing more than that it did.
    command.env("RUST_BACKTRACE", "0");
    match bug {
        Some(bug) => command.env(BUG_OF_PROCESS, bug),
        None => command.env_remove(BUG_OF_PROCESS),
    };
    command
}

/// The numbers in `test result: FAILED. 12 passed; 3 failed; …`.
fn tally_of(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |what: &str| {
        let part = rest.split([';', '.']).find(|part| part.ends_with(what))?;
        part.trim_end_matches(what).trim().parse().ok()
    };
    Some(Tally { passed: number(" passed")?, failed: number(" failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_tests_is_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 4 filtered \
                    out; finished in 1.50s";
        assert_eq!(tally_of(line), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(tally_of("test a::b ... ok"), None);
        assert_eq!(tally_of("test result: nothing"), None);
    }

    #[test]
    fn a_sound_run_has_no_bug_whatever_the_environment_says() {
        let sound = test_command(None);
        assert!(sound.get_envs().any(|(key, value)| key == BUG_OF_PROCESS && value.is_none()));
        let broken = test_command(Some(BROKEN[0]));
        assert!(broken.get_envs().any(|(key, value)| key == BUG_OF_PROCESS && value.is_some()));
    }
}
