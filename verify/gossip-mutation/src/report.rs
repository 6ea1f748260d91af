//! The results of a campaign.

use std::fmt::{self, Write};

use crate::area::{Area, Program};
use crate::generate::Mutant;
use crate::trial::Outcome;

/// The results of a campaign.
#[derive(Debug)]
pub struct Report {
    pub(crate) rows: Vec<Row>,
    /// Entries of the list of equivalent mutants that match no mutant.
    pub(crate) unknown: Vec<String>,
}

/// The results of one area.
#[derive(Debug)]
pub(crate) struct Row {
    area: Area,
    generated: usize,
    const_only: usize,
    viable: usize,
    ran: usize,
    caught: usize,
    timed_out: Vec<String>,
    missed: Vec<String>,
    equivalent: usize,
    /// Mutants that are listed as equivalent, and that a test caught.
    not_equivalent: Vec<String>,
}

impl Row {
    pub(crate) const fn new(
        area: &Area,
        generated: usize,
        const_only: usize,
        viable: usize,
    ) -> Self {
        Self {
            area: *area,
            generated,
            const_only,
            viable,
            ran: 0,
            caught: 0,
            timed_out: Vec::new(),
            missed: Vec::new(),
            equivalent: 0,
            not_equivalent: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, mutant: &Mutant, outcome: Outcome, is_equivalent: bool) {
        self.ran += 1;
        match (outcome, is_equivalent) {
            (Outcome::Missed, true) => self.equivalent += 1,
            (Outcome::Missed, false) => self.missed.push(mutant.identity()),
            (Outcome::TimedOut, _) => self.timed_out.push(mutant.identity()),
            (Outcome::Caught, listed) => {
                self.caught += 1;
                if listed {
                    self.not_equivalent.push(mutant.identity());
                }
            }
        }
    }

    /// The share of the mutants that were caught or missed, in tenths of a percent, rounded down.
    /// An area without mutants reaches no goal: its files have moved.
    fn share(&self) -> usize {
        let judged = self.caught + self.missed.len();
        (self.caught * 1_000).checked_div(judged).unwrap_or(0)
    }

    fn complaint(&self) -> Option<String> {
        let goal = self.area.goal as usize * 10;
        (self.share() < goal).then(|| {
            format!(
                "{}: {} caught, the goal is {} %",
                self.area.name,
                self.percent(),
                self.area.goal
            )
        })
    }

    fn percent(&self) -> String {
        format!("{}.{} %", self.share() / 10, self.share() % 10)
    }
}

impl Report {
    /// Returns what the goals demand and the results do not show.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut all: Vec<String> = self.rows.iter().filter_map(Row::complaint).collect();
        for row in &self.rows {
            let caught = row.not_equivalent.iter();
            all.extend(caught.map(|it| format!("listed as equivalent, but caught: {it}")));
        }
        let unknown = self.unknown.iter();
        all.extend(unknown.map(|it| format!("listed as equivalent, but no mutant: {it}")));
        all
    }

    /// Returns the mutants that no test caught, with those that are listed as equivalent left out.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.missed).map(String::as_str)
    }

    /// Returns the number of mutants that a test caught.
    #[must_use]
    pub fn caught(&self) -> usize {
        self.rows.iter().map(|row| row.caught).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "| area | tests | generated | not viable | not generated (const) | run | caught | \
             timed out | equivalent | missed | share | goal |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        )?;
        for row in &self.rows {
            let Row { area, generated, const_only, viable, ran, caught, equivalent, .. } = row;
            let tests: Vec<String> = area.programs.iter().map(Program::to_string).collect();
            writeln!(
                f,
                "| {} | {} | {generated} | {} | {const_only} | {ran} | {caught} | {} | \
                 {equivalent} | {} | {} | {} % |",
                area.name,
                tests.join(", "),
                generated - viable,
                row.timed_out.len(),
                row.missed.len(),
                row.percent(),
                area.goal,
            )?;
        }
        list(f, "Missed", self.rows.iter().flat_map(|row| &row.missed))?;
        list(f, "Timed out", self.rows.iter().flat_map(|row| &row.timed_out))
    }
}

fn list<'r>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    mutants: impl Iterator<Item = &'r String>,
) -> fmt::Result {
    let mut items = String::new();
    for mutant in mutants {
        // Paths of crates begin alike.
        writeln!(items, "- {}", mutant.trim_start_matches("crates/"))?;
    }
    if items.is_empty() { Ok(()) } else { write!(f, "\n{title}:\n\n{items}") }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}", self.package)?;
        self.test.map_or(Ok(()), |test| write!(f, " --test {test}"))?;
        if !self.words.is_empty() {
            write!(f, " {}", self.words.join(" "))?;
        }
        f.write_str("`")
    }
}
