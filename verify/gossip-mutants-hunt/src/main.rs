//! Looks for every mutant with every layer, inside the copy that `cargo xtask mutants` makes.
//!
//! ```text
//! gossip-mutants-hunt [--short] [--mutant NAME] [--tests PACKAGE PROGRAM DIRECTORY]...
//! ```
//! It prints a table as Markdown, and after a short hunt only its totals. Every layer that a mutant
//! lists must find it, by the rule that the layer names, and no layer may find anything when no
//! mutant is active. A full hunt tries all layers on every mutant; `--short` tries the first layer
//! of each list.
//!
//! Exit codes: 1 if a mutant was not found, 2 in a workspace without switches and for a command
//! line that is not understood.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program: its output is its use")]

mod engine;
mod hunt;
mod table;
mod task;

use std::process::ExitCode;

use gossip_mutants::{HAS_SWITCHES, VARIABLE, catalog};

use crate::hunt::Options;
use crate::task::TestProgram;

const EXIT_USAGE: u8 = 2;

const USAGE: &str = "[--short] [--mutant NAME] [--tests PACKAGE PROGRAM DIRECTORY]...";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let [task::RUN, rest @ ..] = &words[..] {
        // Mutants panic, and that is how they are found.
        std::panic::set_hook(Box::new(|_| ()));
        let (line, code) = task::run_here(rest);
        println!("{line}");
        return ExitCode::from(code);
    }
    if !HAS_SWITCHES {
        eprintln!("this workspace has no switches; run `cargo xtask mutants`");
        return ExitCode::from(EXIT_USAGE);
    }
    let Some(options) = parse(&words) else {
        eprintln!("usage: gossip-mutants-hunt {USAGE}");
        return ExitCode::from(EXIT_USAGE);
    };
    let hunted = catalog::load()
        .map_err(|error| error.to_string())
        .and_then(|catalog| hunt::hunt(&catalog, &options));
    match hunted {
        Ok(hunt) => {
            print!("{}", table::markdown(&hunt));
            let problems = hunt.problems();
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            if let Some(problem) = problems.first() {
                let name = problem.split(':').next().unwrap_or_default();
                eprintln!("to see one: {VARIABLE}={name} cargo test, in the copy");
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Option<Options> {
    let mut options = Options { is_short: false, only: None, programs: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--short" => options.is_short = true,
            "--mutant" => options.only = Some((*words.next()?).to_owned()),
            "--tests" => {
                let package = (*words.next()?).to_owned();
                let (path, directory) = (words.next()?.into(), words.next()?.into());
                options.programs.push(TestProgram { package, path, directory });
            }
            _ => return None,
        }
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let options = parse(&["--short", "--mutant", "A", "--tests", "p", "/x", "/y"]).unwrap();
        assert!(options.is_short && options.only.as_deref() == Some("A"));
        assert_eq!(options.programs[0].package, "p");
        assert!(parse(&["--long"]).is_none() && parse(&["--tests", "p", "/x"]).is_none());
    }
}
