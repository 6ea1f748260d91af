//! `gossip-mutation ROOT TARGET [OPTIONS]`: the program of `cargo xtask mutation`.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program: the table on stdout, everything else on stderr"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use gossip_mutation::Places;
use gossip_mutation::area::AREAS;
use gossip_mutation::campaign::{Options, list, run};

const USAGE: &str = "usage: gossip-mutation ROOT TARGET [--area NAME] [--sample N] [--seed N] \
                     [--all] [--match TEXT] | --list";

/// The seed of a campaign that names none.
const SEED: u64 = 20_261_118;

/// The mutants that change nothing observable. A change of the list does not change the copy.
const EQUIVALENT: &str = include_str!("../equivalent.txt");

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [root, _, word] = &words[..]
        && word == "--list"
    {
        return match list(root.as_ref(), AREAS) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let Some((places, options)) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&places, AREAS, EQUIVALENT, &options) {
        Ok(report) => {
            print!("{report}");
            let complaints = report.complaints();
            complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
            if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<(Places, Options)> {
    let [root, target, rest @ ..] = words else { return None };
    let mut options = Options { seed: SEED, ..Options::default() };
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--area" => options.area = Some(rest.next()?.clone()),
            "--sample" => options.sample = Some(rest.next()?.parse().ok()?),
            "--seed" => options.seed = rest.next()?.parse().ok()?,
            "--all" => options.runs_all = true,
            "--match" => options.matching = Some(rest.next()?.clone()),
            _ => return None,
        }
    }
    let target = PathBuf::from(target);
    let copy = target.join("mutation/workspace");
    Some((Places { root: root.into(), copy, target }, options))
}
