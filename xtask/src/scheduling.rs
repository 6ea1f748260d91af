//! `cargo xtask skew` and `cargo xtask bench runtime`: how evenly work is spread, and at what cost.
//!
//! Both run an example in a release build and write what it prints between marks of
//! `docs/scheduling.md`. The skew table is in virtual time and the same on every machine; the costs
//! are measured, so they want a quiet one.

use std::fs;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/scheduling.md";
const SKEW: [&str; 2] = ["<!-- skew: begin -->", "<!-- skew: end -->"];
const COSTS: [&str; 2] = ["<!-- costs: begin -->", "<!-- costs: end -->"];

/// Leaves of the certificate whose verification is timed.
const LEAVES: &str = "1000000";

const USAGE: &str = "[--save]";

/// `cargo xtask skew [--save]`.
pub(crate) fn skew(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = parse(arguments)?;
    let table = example("gossip-scanner-runtime", "skew", &["--features", "skew"], &[])?;
    println!("{table}");
    if saves {
        save(SKEW, &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask bench runtime [--save]`.
pub(crate) fn costs(saves: bool) -> Result<ExitCode, Failure> {
    let directory = Workspace::load()?.target.join("runtime-figures");
    let directory = directory.display().to_string();
    let mut told = example("gossip-cli", "runtime_figures", &[], &[&directory])?;
    let certificate = example("gossip-scanner-runtime", "certificate_rate", &[], &[LEAVES])?;
    told.push_str(&format!("\n```text\n{certificate}```\n"));
    println!("{told}");
    if saves {
        save(COSTS, &told)?;
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

/// Writes `text` between the marks.
fn save([open, close]: [&str; 2], text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("{DOCUMENT} was not written"), error.to_string(), "look at it")
    };
    let document = fs::read_to_string(DOCUMENT).map_err(failed)?;
    let parts = document.split_once(open).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(close)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        let why = "the marks around its figures are gone".to_owned();
        return Err(Failure::new(format!("{DOCUMENT} was not written"), why, "put them back"));
    };
    let text = text.trim_end();
    fs::write(DOCUMENT, format!("{before}{open}\n\n{text}\n\n{close}{after}")).map_err(failed)
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
