//! `cargo xtask tla`: searches the specification in `specs/coordination` exhaustively with TLC.
//!
//! First every configuration must keep every law it lists until the queue is empty. Then every
//! mutation must break the law it names, and no other one before it. [`spec`] reads configurations
//! and mutations from the files themselves, so a new one needs no change here. `--save` writes the
//! tables of the README ([`report`]); `cargo xtask tidy` compares them with the files.

mod report;
pub(crate) mod spec;
mod tlc;
mod tools;

use std::fs;
use std::process::ExitCode;

use self::report::Line;
use self::spec::{Configuration, Mutation, Specification};
use self::tlc::{Outcome, Tlc, Verdict};
use crate::failure::Failure;
use crate::saved::Made;
use crate::setup;
use crate::tally::Tally;
use crate::workspace::Workspace;

pub(crate) use self::report::{README, Section, seal};

const USAGE: &str = "[--short] | [--mutations] [--save]";

/// The scope of the tests: the smallest configuration with the most rules, and two mutations that
/// show that a violation is detected. Together they take about five seconds of one core.
const SHORT_CONFIGURATIONS: [&str; 1] = ["clocks"];
const SHORT_MUTATIONS: [&str; 2] = ["FenceIgnored", "CursorReset"];

/// The scope of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Everything,
    Short,
    Mutations,
}

impl Scope {
    fn has_configuration(self, configuration: &Configuration) -> bool {
        match self {
            Self::Everything => true,
            Self::Short => SHORT_CONFIGURATIONS.contains(&configuration.name.as_str()),
            Self::Mutations => false,
        }
    }

    fn has_mutation(self, mutation: &Mutation) -> bool {
        match self {
            Self::Everything | Self::Mutations => true,
            Self::Short => SHORT_MUTATIONS.contains(&mutation.name.as_str()),
        }
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (scope, save) = parse(arguments)?;
    let workspace = Workspace::load()?;
    setup::packages_for("tla", &workspace)?;
    let jar = tools::jar(&workspace.target)?;
    let tlc = Tlc::new(&workspace, jar)?;
    let specification = read(&workspace)?;
    let made = Made::now("tla", arguments)?;
    let save = |section, lines: &[Line]| match save {
        true => report::save(section, &specification, lines, &made),
        false => Ok(()),
    };
    if scope != Scope::Mutations {
        let lines = check_configurations(&tlc, &specification, scope)?;
        save(Section::Configurations, &lines)?;
    }
    let lines = check_mutations(&tlc, &specification, scope)?;
    save(Section::Mutations, &lines)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the short form as a stage of `cargo xtask test`. It downloads its dependencies. If that
/// fails the stage fails, as for every tool: the failure names the missing file.
pub(crate) fn check_short(tally: &mut Tally) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    setup::packages_for("tla", &workspace)?;
    let jar = tools::jar(&workspace.target)?;
    let tlc = Tlc::new(&workspace, jar)?;
    let specification = read(&workspace)?;
    check_configurations(&tlc, &specification, Scope::Short)?;
    check_mutations(&tlc, &specification, Scope::Short)?;
    tally.add_passed_stage();
    Ok(())
}

/// Parses the scope, and whether to save the results. The short form does not have all figures.
fn parse(arguments: &[String]) -> Result<(Scope, bool), Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => Ok((Scope::Everything, false)),
        ["--short"] => Ok((Scope::Short, false)),
        ["--mutations"] => Ok((Scope::Mutations, false)),
        ["--save"] => Ok((Scope::Everything, true)),
        ["--mutations", "--save"] => Ok((Scope::Mutations, true)),
        _ => Err(Failure::usage(
            "tla",
            format!("`{}` is not a valid argument", words.join(" ")),
            USAGE,
        )),
    }
}

fn read(workspace: &Workspace) -> Result<Specification, Failure> {
    Specification::parse(&workspace.files()?).map_err(|why| {
        Failure::new("the specification cannot be parsed", why, "check specs/coordination")
    })
}

/// Searches the configurations exhaustively. The first violation ends the run, because it matters
/// more than the rest.
fn check_configurations(
    tlc: &Tlc,
    specification: &Specification,
    scope: Scope,
) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    for configuration in &specification.configurations {
        if !scope.has_configuration(configuration) {
            continue;
        }
        let (name, text) = (&configuration.name, &configuration.text);
        let outcome = tlc.run(name, &configuration.module, text)?;
        if outcome.verdict != Verdict::Kept {
            return Err(not_kept(configuration, &outcome));
        }
        println!("{name}: {}", outcome.figures());
        println!("  laws kept: {}", configuration.laws.join(" "));
        lines.push(Line::of(name, outcome));
    }
    Ok(lines)
}

fn not_kept(configuration: &Configuration, outcome: &Outcome) -> Failure {
    let log = outcome.log.display();
    Failure::new(
        format!("the configuration `{}` violates a law", configuration.name),
        format!("{}; {}", outcome.verdict, outcome.figures()),
        format!("read the trace that TLC wrote to {log}"),
    )
}

/// Runs all mutations before it reports, so that one run shows every undetected one.
fn check_mutations(
    tlc: &Tlc,
    specification: &Specification,
    scope: Scope,
) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    let mut unnoticed = Vec::new();
    for mutation in specification.mutations.iter().filter(|it| scope.has_mutation(it)) {
        let text = specification.mutated(mutation);
        let outcome = tlc.run(&mutation.name, &mutation.module, &text)?;
        let noticed = outcome.verdict == Verdict::Broken(mutation.law.clone());
        println!("{}: {}; {}", mutation.name, outcome.verdict, outcome.figures());
        if !noticed {
            unnoticed.push(format!("{} should break {}", mutation.name, mutation.law));
        }
        lines.push(Line::of(&mutation.name, outcome));
    }
    if unnoticed.is_empty() {
        return Ok(lines);
    }
    Err(Failure::new(
        "some mutations were not detected by the law they name",
        unnoticed.join(", "),
        format!("read the output of TLC in {}", tlc.directory().display()),
    ))
}

/// Writes a file below the target directory.
fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    let written =
        path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|error| {
        let what = format!("{} was not written", path.display());
        Failure::new(what, error.to_string(), "free disk space, or make the directory writable")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).ok()
        };
        assert_eq!(parsed(&[]), Some((Scope::Everything, false)));
        assert_eq!(parsed(&["--save"]), Some((Scope::Everything, true)));
        assert_eq!(parsed(&["--short"]), Some((Scope::Short, false)));
        assert_eq!(parsed(&["--short", "--save"]), None);
        assert_eq!(parsed(&["--long"]), None);
    }

    #[test]
    fn the_short_form_names_existing_items() {
        let files = Workspace::load().unwrap().files().unwrap();
        let specification = Specification::parse(&files).unwrap();
        let configurations = specification.configurations.iter();
        let short = configurations.filter(|it| Scope::Short.has_configuration(it)).count();
        assert_eq!(short, SHORT_CONFIGURATIONS.len());
        let mutations = specification.mutations.iter();
        let short = mutations.filter(|it| Scope::Short.has_mutation(it)).count();
        assert_eq!(short, SHORT_MUTATIONS.len());
    }
}
