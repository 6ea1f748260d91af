//! `cargo xtask etcd-network`: the long form of the campaign with faults of the network on etcd.
//!
//! Three servers and six workers in network namespaces; links are cut, flap and are slow, leaders
//! and workers are stopped, clocks differ. The tests of `gossip-trials` run the same program with a
//! handful of short faults. It runs once with the installed etcd and once with the newer one of the
//! next Debian suite, if that can be had ([`crate::newer_etcd`]); `--etcd` selects one of them.
//! `--save` writes the tables of `docs/reliability.md`.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::numbers::{grouped_in, is_number};
use crate::saved::{self, Made};
use crate::workspace::Workspace;
use crate::{newer_etcd, process, setup};

/// The numbers that the specification requires.
const PARTITIONS: &str = "200";
const PAUSES: &str = "200";
/// The default seed; the documented figures use it.
const SEED: &str = "20261118";
/// The titles of the sections that the program prints.
const SECTIONS: [&str; 2] = ["faults", "judged"];

pub(crate) const USAGE: &str =
    "[--partitions N] [--pauses N] [--seed N] [--etcd installed|newer] [--save]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let order = parse(arguments)?;
    let workspace = Workspace::load()?;
    setup::packages_for("etcd-network", &workspace)?;
    let made = Made::now("etcd-network", arguments)?.remarking("Unoptimised build.");
    let mut text = format!("Seed {}.\n", order.seed);
    for etcd in order.etcds.iter().copied() {
        let directory = match etcd {
            Etcd::Installed => Ok(None),
            Etcd::Newer => newer_etcd::directory(&workspace).map(Some),
        };
        match directory {
            Ok(directory) => {
                let output = campaign(&order, etcd, directory, &workspace)?;
                for title in SECTIONS {
                    text.push_str(&format!("\n{}", grouped_in(saved::section(&output, title)?)));
                }
            }
            // A stage that could not run is not one that passed.
            Err(why) => {
                println!("NOT RUN: the campaign with a newer etcd: {why}");
                text.push_str(&format!("\nNot run with a newer etcd: {why}.\n"));
            }
        }
    }
    if order.saves {
        saved::ETCD_NETWORK.save(&text, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the campaign with the etcd of a directory, or with the installed one.
fn campaign(
    order: &Order<'_>,
    etcd: Etcd,
    directory: Option<PathBuf>,
    workspace: &Workspace,
) -> Result<String, Failure> {
    let histories = workspace.target.join("etcd-network").join(etcd.name());
    let mut command: Command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-trials", "--bin", "etcd-network", "--"]);
    command.args([order.partitions, order.pauses, order.seed]).arg(&histories);
    if let Some(directory) = directory {
        let path = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(directory).chain(env::split_paths(&path));
        let path = env::join_paths(all).map_err(|error| {
            Failure::new("no search path for a newer etcd", error.to_string(), "check PATH")
        })?;
        command.env("PATH", path);
    }
    let next = format!("read the histories; repeat with --seed {}", order.seed);
    process::show(&mut command, &next)
}

/// Which etcd servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Etcd {
    Installed,
    Newer,
}

impl Etcd {
    const ALL: &'static [Self] = &[Self::Installed, Self::Newer];

    const fn name(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Newer => "newer",
        }
    }
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Order<'a> {
    partitions: &'a str,
    pauses: &'a str,
    seed: &'a str,
    etcds: &'static [Etcd],
    saves: bool,
}

fn parse(arguments: &[String]) -> Result<Order<'_>, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    let mut order =
        Order { partitions: PARTITIONS, pauses: PAUSES, seed: SEED, etcds: Etcd::ALL, saves };
    for pair in arguments[..arguments.len() - usize::from(saves)].chunks(2) {
        match pair {
            [name, number] if name == "--partitions" && is_number(number) => {
                order.partitions = number;
            }
            [name, number] if name == "--pauses" && is_number(number) => order.pauses = number,
            [name, number] if name == "--seed" && is_number(number) => order.seed = number,
            [name, which] if name == "--etcd" && which == "installed" => {
                order.etcds = &[Etcd::Installed];
            }
            [name, which] if name == "--etcd" && which == "newer" => order.etcds = &[Etcd::Newer],
            _ => {
                let why = format!("`{}` is not a valid argument", pair.join(" "));
                return Err(Failure::usage("etcd-network", why, USAGE));
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let text = |order: Order<'_>| {
                let Order { partitions, pauses, seed, etcds, saves } = order;
                format!("{partitions} {pauses} {seed} {} {saves}", etcds.len())
            };
            parse(&words).map(text).ok()
        };
        assert_eq!(parsed(&[]), Some(format!("{PARTITIONS} {PAUSES} {SEED} 2 false")));
        let words = ["--pauses", "5", "--partitions", "6", "--etcd", "newer", "--save"];
        assert_eq!(parsed(&words), Some(format!("6 5 {SEED} 1 true")));
        let bad = [&["--pauses"][..], &["--seed", "x"], &["--etcd", "3.6"], &["--save", "--seed"]];
        for bad in bad {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
