//! The tables of `specs/coordination/README.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::spec::Specification;
use super::tlc::Outcome;
use crate::failure::Failure;

/// The page that explains the specification.
pub(crate) const README: &str = "specs/coordination/README.md";
/// Everything between these two lines belongs to `--save`; the rest of the page to people.
pub(crate) const BEGIN: &str = "<!-- results: begin -->";
pub(crate) const END: &str = "<!-- results: end -->";

/// What was found of one configuration or mutation.
pub(super) struct Line {
    name: String,
    outcome: Outcome,
}

impl Line {
    pub(super) fn of(name: &str, outcome: Outcome) -> Self {
        Self { name: name.to_owned(), outcome }
    }
}

/// Replaces the results in the page by these.
pub(super) fn save(
    root: &Path,
    specification: &Specification,
    configurations: &[Line],
    mutations: &[Line],
) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new(format!("{README} was not written"), why, format!("git checkout {README}"))
    };
    let path = root.join(README);
    let old = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let results = render(specification, configurations, mutations);
    let new = replace(&old, &results)
        .ok_or_else(|| failed(format!("it has no lines `{BEGIN}` and `{END}`")))?;
    fs::write(&path, new).map_err(|error| failed(error.to_string()))
}

/// The line by which the results are tied to the files.
pub(crate) fn seal(specification: &Specification) -> String {
    format!("Specification {:016x}.", specification.fingerprint)
}

fn render(specification: &Specification, configurations: &[Line], mutations: &[Line]) -> String {
    let worlds = worlds_table(specification, configurations);
    let mistakes = mistakes_table(specification, mutations);
    let of = |lines: &[Line]| lines.iter().map(|line| line.outcome.time).sum::<Duration>();
    let distinct: u64 = configurations.iter().map(|line| line.outcome.distinct).sum();
    let generated: u64 = configurations.iter().map(|line| line.outcome.generated).sum();
    format!(
        "{}\n\n### Configurations\n\nEvery queue was emptied and every law was kept: {distinct} \
         distinct of {generated} states in {:.0} s.\n\n{worlds}\n### Mutations\n\n{} mutations, \
         each noticed by the law it names, in {:.0} s.\n\n{mistakes}",
        seal(specification),
        of(configurations).as_secs_f64(),
        mutations.len(),
        of(mutations).as_secs_f64(),
    )
}

fn worlds_table(specification: &Specification, lines: &[Line]) -> String {
    let mut table = String::from(
        "| configuration | what | laws | distinct states | states | depth | time |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for line in lines {
        let world = specification.configurations.iter().find(|it| it.name == line.name);
        let (purpose, laws) = world.map_or(("", 0), |it| (it.purpose.as_str(), it.laws.len()));
        let Outcome { generated, distinct, depth, time, .. } = &line.outcome;
        let (name, seconds) = (&line.name, time.as_secs_f64());
        writeln!(
            table,
            "| {name} | {purpose} | {laws} | {distinct} | {generated} | {depth} | {seconds:.0} s |"
        )
        .expect("writing to a String never fails");
    }
    table
}

fn mistakes_table(specification: &Specification, lines: &[Line]) -> String {
    let mut table = String::from(
        "| mutation | replaces | what | noticed by | configuration | distinct states | time |\n\
         |---|---|---|---|---|---:|---:|\n",
    );
    for line in lines {
        let Some(mutation) = specification.mutations.iter().find(|it| it.name == line.name) else {
            continue;
        };
        let law = match &mutation.without {
            Some(other) => format!("{} (without {other})", mutation.law),
            None => mutation.law.clone(),
        };
        let Outcome { distinct, time, .. } = &line.outcome;
        writeln!(
            table,
            "| {} | {} | {} | {law} | {} | {distinct} | {:.0} s |",
            mutation.name,
            mutation.of,
            mutation.story,
            mutation.configuration,
            time.as_secs_f64()
        )
        .expect("writing to a String never fails");
    }
    table
}

/// The page with other results between its two marks.
fn replace(document: &str, results: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{results}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\nnew\n{END}\nafter\n");
        assert_eq!(replace(&document, "new\n").as_deref(), Some(expected.as_str()));
        assert_eq!(replace("no marks", "new\n"), None);
    }
}
