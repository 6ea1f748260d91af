//! `cargo xtask kill-worker`: the long form of the test that kills `gossip exec`.
//!
//! The tests of the command line kill it a few times. This kills it as often as the specification
//! asks for, over jobs of 10⁵ keys, and prints the figures of `docs/reliability.md`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// As many as the specification asks for.
const KILLS: &str = "1000";
/// A campaign without `--seed` is the one whose figures are written down.
const SEED: &str = "20261115";

const USAGE: &str = "[--kills N] [--seed N]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (kills, seed) = parse(arguments)?;
    let directory = Workspace::load()?.target.join("worker-campaign");
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--package", "gossip-cli", "--bins", "--examples"]);
    process::run(&mut build, "mend the build")?;
    let mut campaign = process::cargo();
    campaign.args(["run", "--quiet", "--package", "gossip-cli", "--example", "kill_worker", "--"]);
    campaign.args([kills, seed]).arg(&directory);
    let next = format!("look at {}, then --seed {seed} again", directory.display());
    process::run(&mut campaign, &next)?;
    Ok(ExitCode::SUCCESS)
}

/// Kills and seed.
fn parse(arguments: &[String]) -> Result<(&str, &str), Failure> {
    let (mut kills, mut seed) = (KILLS, SEED);
    for pair in arguments.chunks(2) {
        match pair {
            [name, number] if name == "--kills" && is_number(number) => kills = number,
            [name, number] if name == "--seed" && is_number(number) => seed = number,
            _ => {
                let why = format!("`{}` is not understood", pair.join(" "));
                return Err(Failure::usage("kill-worker", why, USAGE));
            }
        }
    }
    Ok((kills, seed))
}

/// Not zero: the dice would stand still.
fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|number| number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).map(|(kills, seed)| format!("{kills} {seed}")).ok()
        };
        assert_eq!(parsed(&[]), Some(format!("{KILLS} {SEED}")));
        assert_eq!(parsed(&["--seed", "7", "--kills", "5"]), Some("5 7".to_owned()));
        for bad in [&["--kills"][..], &["--kills", "many"], &["5"], &["--seed", "0"]] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
