//! `cargo xtask etcd-faults`: the long form of the campaign against three etcd servers.
//!
//! Workers go on while the leader is killed, stopped and cut off, again and again, and an oracle
//! looks at everything that is acknowledged; then bare writes while it is lost in four ways. The
//! tests of the crate lose it once in each way. This prints the figures of `docs/reliability.md`.
//! It is the debug build, whose assertions look as well.

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{process, setup};

/// Losses in each way, as in the figures that are written down.
const ROUNDS: &str = "8";

const USAGE: &str = "[--rounds N]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let rounds = parse(arguments)?;
    setup::packages_for("etcd-faults", &Workspace::load()?)?;
    let next = "what the servers said at the end stands above";
    process::run(example("faults").arg(rounds), next)?;
    process::run(&mut example("lose_leader"), next)?;
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<&str, Failure> {
    match arguments {
        [] => Ok(ROUNDS),
        [name, number] if name == "--rounds" && number.parse::<u32>().is_ok_and(|it| it > 0) => {
            Ok(number)
        }
        words => {
            let why = format!("`{}` is not understood", words.join(" "));
            Err(Failure::usage("etcd-faults", why, USAGE))
        }
    }
}

fn example(name: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-coordination-etcd"]);
    command.args(["--features", "test-support", "--example", name, "--"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).map(str::to_owned).ok()
        };
        assert_eq!(parsed(&[]), Some(ROUNDS.to_owned()));
        assert_eq!(parsed(&["--rounds", "3"]), Some("3".to_owned()));
        for bad in [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["3"]] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
