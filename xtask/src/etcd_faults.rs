//! `cargo xtask etcd-faults`: the long form of the campaign against three etcd servers.
//!
//! Workers run while the leader is repeatedly killed, stopped and partitioned, and an oracle checks
//! every acknowledged operation; workers are stopped for longer than their leases; then bare writes
//! run while the leader is lost in each way. The tests of the crate lose it once in most ways. This
//! prints the figures of `docs/reliability.md`, and `--save` writes them there. If packets cannot
//! be dropped (network namespaces need root), it reports that and omits those rows. It is the debug
//! build, so that debug assertions run too.

use std::fs;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::saved::{self, Made};
use crate::workspace::Workspace;
use crate::{process, setup};

/// Losses of each kind, as in the documented figures.
const ROUNDS: &str = "8";

/// The titles of the sections that each program prints.
const LEADERS_AND_WORKERS: [&str; 2] = ["losses", "stopped"];
const WRITES: &str = "writes";

const USAGE: &str = "[--rounds N] [--save]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let Order { rounds, saves } = parse(arguments)?;
    setup::packages_for("etcd-faults", &Workspace::load()?)?;
    let made = Made::now("etcd-faults", arguments)?.remarking("Unoptimised build.");
    let next = "see the last output of the servers above";
    let load_before = load();
    let campaign = process::show(program("etcd-faults").arg(rounds), next)?;
    let writes = process::show(&mut program("lose-leader"), next)?;
    if saves {
        let [losses, stopped] = LEADERS_AND_WORKERS.map(|title| saved::section(&campaign, title));
        let tables = [losses?, stopped?, saved::section(&writes, WRITES)?].map(grouped_in);
        let loads = format!("Load of the machine: {load_before} before, {} at the end.", load());
        saved::ETCD_FAULTS.save(&format!("{}\n{loads}", tables.join("\n")), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Order<'a> {
    rounds: &'a str,
    saves: bool,
}

fn parse(arguments: &[String]) -> Result<Order<'_>, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    match &arguments[..arguments.len() - usize::from(saves)] {
        [] => Ok(Order { rounds: ROUNDS, saves }),
        [name, rounds] if name == "--rounds" && rounds.parse::<u32>().is_ok_and(|it| it > 0) => {
            Ok(Order { rounds, saves })
        }
        words => {
            let why = format!("`{}` is not a valid argument", words.join(" "));
            Err(Failure::usage("etcd-faults", why, USAGE))
        }
    }
}

/// Returns the load average of the last minute, which shows how far to trust the times.
fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// A program of `gossip-trials`.
fn program(name: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-trials", "--bin", name, "--"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).map(|order| (order.rounds.to_owned(), order.saves)).ok()
        };
        assert_eq!(parsed(&[]), Some((ROUNDS.to_owned(), false)));
        assert_eq!(parsed(&["--save"]), Some((ROUNDS.to_owned(), true)));
        assert_eq!(parsed(&["--rounds", "3"]), Some(("3".to_owned(), false)));
        assert_eq!(parsed(&["--rounds", "3", "--save"]), Some(("3".to_owned(), true)));
        let bad = [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["3"]];
        for bad in bad.into_iter().chain([&["--save", "--rounds"][..], &["--rounds", "--save"]]) {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
