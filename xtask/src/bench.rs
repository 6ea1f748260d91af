//! `cargo xtask bench [FILTER] [--save]`: measures times and instruction counts.
//!
//! Times come from criterion ([`criterion`]) and depend on the machine and its load. Instruction
//! counts come from valgrind ([`instructions`]); they do not depend on load, so they show small
//! changes that times cannot. Both are printed in one table ([`table`]), which `--save` writes into
//! `docs/benchmarks.md`. `cargo xtask bench stores` ([`stores`]), `cargo xtask bench scan`
//! ([`scan`]), `cargo xtask bench end-to-end` ([`end_to_end`]) and `cargo xtask bench runtime`
//! ([`scheduling`]) are separate runs.

mod criterion;
mod end_to_end;
mod instructions;
mod scan;
mod stores;
mod table;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::saved::Made;
use crate::workspace::Workspace;
use crate::{scheduling, setup};

const USAGE: &str = "[FILTER] [--save]";

/// The measurements of one benchmark.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    package: String,
    name: String,
    /// Median over criterion's samples.
    nanoseconds: Option<f64>,
    instructions: Option<f64>,
}

/// The command line of `bench`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    filter: Option<String>,
    save: bool,
}

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let options = parse(arguments)?;
    let workspace = Workspace::load()?;
    setup::packages_for("bench", &workspace)?;
    let filter = options.filter.as_deref();
    if filter == Some("runtime") {
        return scheduling::costs(options.save);
    }
    let made = Made::now("bench", arguments)?;
    if filter == Some("end-to-end") {
        end_to_end::run(&workspace, options.save, &made)?;
        return Ok(ExitCode::SUCCESS);
    }
    if filter == Some("scan") {
        scan::run(options.save, &made)?;
        return Ok(ExitCode::SUCCESS);
    }
    if filter == Some("stores") {
        stores::run(options.save, &made)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut figures = criterion::measure(&workspace, filter)?;
    for figure in instructions::measure(&workspace, filter)? {
        merge(&mut figures, figure);
    }
    sort(&mut figures);
    // All other output goes to stderr, so stdout contains only the table.
    let table = table::render(&figures);
    println!("{table}");
    if options.save {
        table::save(&table, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the arguments, in any order.
fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options { filter: None, save: false };
    for argument in arguments {
        match argument.as_str() {
            "--save" => options.save = true,
            flag if flag.starts_with('-') => {
                return Err(Failure::usage("bench", format!("`{flag}` is unknown"), USAGE));
            }
            _ if options.filter.is_some() => {
                return Err(Failure::usage("bench", "at most one filter is allowed", USAGE));
            }
            filter => options.filter = Some(filter.to_owned()),
        }
    }
    // A table with some of the figures would be indistinguishable from a complete one.
    let is_whole = |filter: &str| ["end-to-end", "runtime", "scan", "stores"].contains(&filter);
    if options.save && !options.filter.as_deref().is_none_or(is_whole) {
        let why = "the saved table contains every benchmark, so --save allows no filter";
        return Err(Failure::usage("bench", why, "--save"));
    }
    Ok(options)
}

/// Merges the time and the instruction count of one benchmark, identified by crate and name.
fn merge(figures: &mut Vec<Figure>, new: Figure) {
    let same = |old: &&mut Figure| old.package == new.package && old.name == new.name;
    match figures.iter_mut().find(same) {
        Some(old) => old.instructions = new.instructions,
        None => figures.push(new),
    }
}

/// Groups the rows by crate: rows without a time would otherwise be at the end.
fn sort(figures: &mut [Figure]) {
    figures.sort_by(|a, b| (&a.package, &a.name).cmp(&(&b.package, &b.name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Option<Options> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse(&words).ok()
    }

    #[test]
    fn options_are_read() {
        assert_eq!(options(""), Some(Options { filter: None, save: false }));
        assert_eq!(options("--save"), Some(Options { filter: None, save: true }));
        assert_eq!(options("ring"), Some(Options { filter: Some("ring".into()), save: false }));
    }

    #[test]
    fn a_partial_table_is_never_saved() {
        assert_eq!(options("ring --save"), None);
        assert!(options("stores --save").is_some_and(|options| options.save));
        assert!(options("end-to-end --save").is_some_and(|options| options.save));
        assert_eq!(options("--all"), None);
        assert_eq!(options("a b"), None);
    }

    #[test]
    fn time_and_instructions_of_one_name_share_a_row() {
        let timed = Figure {
            package: "a".into(),
            name: "x".into(),
            nanoseconds: Some(1.0),
            instructions: None,
        };
        let counted = Figure { nanoseconds: None, instructions: Some(2.0), ..timed.clone() };
        let mut figures = vec![timed];
        merge(&mut figures, counted.clone());
        merge(&mut figures, Figure { package: "b".into(), ..counted });
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].nanoseconds, figures[0].instructions), (Some(1.0), Some(2.0)));
    }

    #[test]
    fn the_rows_of_a_crate_are_adjacent() {
        let figure = |package: &str, name: &str| Figure {
            package: package.into(),
            name: name.into(),
            nanoseconds: None,
            instructions: None,
        };
        let mut figures = [figure("b", "x"), figure("a", "z"), figure("b", "w")];
        sort(&mut figures);
        let expected = [figure("a", "z"), figure("b", "w"), figure("b", "x")];
        assert_eq!(figures, expected);
    }
}
