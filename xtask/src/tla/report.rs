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

/// A part of the page that belongs to `--save`; the rest belongs to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Configurations,
    Mutations,
}

impl Section {
    pub(crate) const ALL: [Self; 2] = [Self::Configurations, Self::Mutations];

    /// The lines between which it stands.
    const fn marks(self) -> [&'static str; 2] {
        match self {
            Self::Configurations => {
                ["<!-- configurations: begin -->", "<!-- configurations: end -->"]
            }
            Self::Mutations => ["<!-- mutations: begin -->", "<!-- mutations: end -->"],
        }
    }

    /// The section as it stands in the page.
    pub(crate) fn find(self, page: &str) -> Option<&str> {
        let [begin, end] = self.marks();
        Some(page.split_once(begin)?.1.split_once(end)?.0)
    }

    /// The page with another section.
    fn replace(self, page: &str, text: &str) -> Option<String> {
        let [begin, end] = self.marks();
        let (before, rest) = page.split_once(begin)?;
        let (_, after) = rest.split_once(end)?;
        Some(format!("{before}{begin}\n{text}{end}{after}"))
    }

    fn render(self, specification: &Specification, lines: &[Line]) -> String {
        match self {
            Self::Configurations => worlds(specification, lines),
            Self::Mutations => mistakes(specification, lines),
        }
    }
}

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

/// Replaces a section of the page.
pub(super) fn save(
    root: &Path,
    section: Section,
    specification: &Specification,
    lines: &[Line],
) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new(format!("{README} was not written"), why, format!("git checkout {README}"))
    };
    let path = root.join(README);
    let old = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let text = format!("{}\n{}", seal(specification), section.render(specification, lines));
    let new = section.replace(&old, &text).ok_or_else(|| {
        failed(format!("it does not have the lines {}", section.marks().join(" and ")))
    })?;
    fs::write(&path, new).map_err(|error| failed(error.to_string()))
}

/// The words by which a section is tied to the files it tells of.
pub(crate) fn seal(specification: &Specification) -> String {
    format!("Specification {:016x}.", specification.fingerprint)
}

/// Every queue was emptied, or there would be nothing to save.
fn worlds(specification: &Specification, lines: &[Line]) -> String {
    let distinct: u64 = lines.iter().map(|line| line.outcome.distinct).sum();
    let generated: u64 = lines.iter().map(|line| line.outcome.generated).sum();
    format!(
        "Every queue was emptied and every law was kept: {distinct} distinct of {generated} states \
         in {}.\n\n{}",
        seconds(total_time(lines)),
        worlds_table(specification, lines)
    )
}

fn mistakes(specification: &Specification, lines: &[Line]) -> String {
    format!(
        "{} mutations, each noticed by the law it names, in {}.\n\n{}",
        lines.len(),
        seconds(total_time(lines)),
        mistakes_table(specification, lines)
    )
}

fn total_time(lines: &[Line]) -> Duration {
    lines.iter().map(|line| line.outcome.time).sum()
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
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
        let (name, depth, time) = (&line.name, depth.unwrap_or_default(), seconds(*time));
        writeln!(
            table,
            "| {name} | {purpose} | {laws} | {distinct} | {generated} | {depth} | {time} |"
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
            "| {} | {} | {} | {law} | {} | {distinct} | {} |",
            mutation.name,
            mutation.of,
            mutation.story,
            mutation.configuration,
            seconds(*time)
        )
        .expect("writing to a String never fails");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let section = Section::Mutations;
        let [begin, end] = section.marks();
        let page = format!("before\n{begin}\nold\n{end}\nafter\n");
        let expected = format!("before\n{begin}\nnew\n{end}\nafter\n");
        assert_eq!(section.replace(&page, "new\n").as_deref(), Some(expected.as_str()));
        assert_eq!(section.find(&expected), Some("\nnew\n"));
        assert_eq!(Section::Configurations.replace(&page, "new\n"), None);
    }
}
