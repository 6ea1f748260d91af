//! `cargo xtask mutation`: changes the code in many small ways and sees whether a test fails.
//!
//! `verify/gossip-mutation` does the work; this file builds it and saves its table. It keeps its
//! progress in the target directory, so that an interrupted campaign continues where it was.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::setup;
use crate::workspace::Workspace;

pub(crate) const USAGE: &str =
    "[--area NAME] [--sample N] [--seed N] [--all] [--match TEXT] | [--seed N] --save | --list";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments.iter().any(|word| word == "--save");
    let is_partial = |word: &String| ["--area", "--sample", "--match"].contains(&word.as_str());
    if saves && arguments.iter().any(is_partial) {
        return Err(Failure::usage("mutation", "only a complete campaign is saved", USAGE));
    }
    let workspace = Workspace::load()?;
    setup::packages_for("mutation", &workspace)?;
    let made = Made::now("mutation", arguments)?;
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-mutation", "--"]);
    command.args([&workspace.root, &workspace.target]);
    command.args(arguments.iter().filter(|word| *word != "--save"));
    let next = "write a test for each mutant listed as missed, or list it with a reason in \
                verify/gossip-mutation/equivalent.txt";
    let table = process::show(&mut command, next)?;
    if saves {
        saved::MUTATION.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_campaign_is_not_saved() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for partial in ["--area kernel --save", "--save --sample 3", "--match x --save"] {
            assert!(run(&words(partial)).is_err(), "{partial}");
        }
    }
}
