//! The tables of `specs/coordination/README.md`.

use std::fmt::Write as _;
use std::time::Duration;

use super::spec::Specification;
use super::tlc::Outcome;
use crate::failure::Failure;
use crate::numbers::{grouped, grouped_in};
use crate::saved::{self, Block, Made};

pub(crate) use crate::saved::SPECIFICATION as README;

/// A section of the page that `--save` writes; the rest is written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Configurations,
    Mutations,
}

impl Section {
    pub(crate) const ALL: [Self; 2] = [Self::Configurations, Self::Mutations];

    /// Returns the block of the section.
    const fn block(self) -> Block {
        match self {
            Self::Configurations => saved::TLA_CONFIGURATIONS,
            Self::Mutations => saved::TLA_MUTATIONS,
        }
    }

    /// Returns the text of the section in the page.
    pub(crate) fn find(self, page: &str) -> Option<&str> {
        self.block().find(page)
    }

    fn render(self, specification: &Specification, lines: &[Line]) -> String {
        match self {
            Self::Configurations => configurations(specification, lines),
            Self::Mutations => mutations(specification, lines),
        }
    }
}

/// The result of one configuration or mutation.
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
    section: Section,
    specification: &Specification,
    lines: &[Line],
    made: &Made,
) -> Result<(), Failure> {
    let table = grouped_in(&section.render(specification, lines));
    section.block().save(&format!("{}\n{table}", seal(specification)), made)
}

/// Returns the words that tie a section to its specification files.
pub(crate) fn seal(specification: &Specification) -> String {
    format!("Specification {:016x}.", specification.fingerprint)
}

/// Returns the table of configurations. Every queue was empty, otherwise nothing is saved.
fn configurations(specification: &Specification, lines: &[Line]) -> String {
    let distinct: u64 = lines.iter().map(|line| line.outcome.distinct).sum();
    let generated: u64 = lines.iter().map(|line| line.outcome.generated).sum();
    format!(
        "Every queue was emptied and every law held: {} distinct of {} states in \
         {}.\n\n{}",
        grouped(distinct),
        grouped(generated),
        seconds(total_time(lines)),
        configurations_table(specification, lines)
    )
}

fn mutations(specification: &Specification, lines: &[Line]) -> String {
    format!(
        "{} mutations, each detected by the law it names, in {}.\n\n{}",
        lines.len(),
        seconds(total_time(lines)),
        mutations_table(specification, lines)
    )
}

fn total_time(lines: &[Line]) -> Duration {
    lines.iter().map(|line| line.outcome.time).sum()
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn configurations_table(specification: &Specification, lines: &[Line]) -> String {
    let mut table = String::from(
        "| configuration | purpose | laws | distinct states | states | depth | time |\n\
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
        .expect("writing to a String is infallible");
    }
    table
}

fn mutations_table(specification: &Specification, lines: &[Line]) -> String {
    let mut table = String::from(
        "| mutation | replaces | bug | detected by | configuration | distinct states | time |\n\
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
        .expect("writing to a String is infallible");
    }
    table
}
