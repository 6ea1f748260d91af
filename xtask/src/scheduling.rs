//! `cargo xtask skew` and `cargo xtask bench runtime`: how evenly work is spread, and at what cost.
//!
//! Both run an example in a release build and write what it prints between marks of
//! `docs/scheduling.md`. The skew table is in virtual time and the same on every machine; the costs
//! are measured, so they want a quiet one.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Leaves of the certificate whose verification is timed.
const LEAVES: &str = "1000000";

const USAGE: &str = "[--save]";

/// `cargo xtask skew [--save]`.
pub(crate) fn skew(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = parse(arguments)?;
    let made = Made::now("skew", arguments)?;
    let table = example("gossip-scanner-runtime", "skew", &["--features", "skew"], &[])?;
    println!("{table}");
    if saves {
        saved::SKEW.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask bench runtime [--save]`.
pub(crate) fn costs(saves: bool) -> Result<ExitCode, Failure> {
    let made = Made::now("bench runtime", &["--save".to_owned()])?;
    let directory = Workspace::load()?.target.join("runtime-figures");
    let directory = directory.display().to_string();
    let mut told = example("gossip-cli", "runtime_figures", &[], &[&directory])?;
    let certificate = example("gossip-scanner-runtime", "certificate_rate", &[], &[LEAVES])?;
    told.push_str(&format!("\n```text\n{certificate}```\n"));
    println!("{told}");
    if saves {
        saved::COSTS.save(&grouped_in(&told), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<bool, Failure> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(false),
        ["--save"] => Ok(true),
        _ => Err(Failure::usage("skew", "it takes nothing but --save", USAGE)),
    }
}

/// Builds an example for release, and answers what it prints.
fn example(
    package: &str,
    name: &str,
    features: &[&str],
    words: &[&str],
) -> Result<String, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package", package, "--example", name]);
    command.args(features).arg("--").args(words);
    process::capture(&mut command, "look at what it said")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_save_is_understood() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(matches!(parse(&words(&[])), Ok(false)));
        assert!(matches!(parse(&words(&["--save"])), Ok(true)));
        assert!(parse(&words(&["5"])).is_err());
    }
}
