//! The table of a hunt, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::hunt::{Expectation, Hunt, Row};

/// The columns of the layers.
const KINDS: [&str; 5] = ["model", "simulator", "scripts", "conformance", "tests"];

/// Returns the table and the totals below it; of a short hunt the totals only.
pub(crate) fn markdown(hunt: &Hunt) -> String {
    if hunt.is_short {
        return totals(hunt);
    }
    let mut text = String::from("| mutant | part | bug | seen in | ");
    writeln!(text, "{} | guard |", KINDS.join(" | ")).expect("a string takes everything");
    writeln!(text, "|{}", "---|".repeat(4 + KINDS.len() + 1)).expect("a string takes everything");
    for row in &hunt.rows {
        let cells: Vec<String> = KINDS.iter().map(|kind| cell(row, kind)).collect();
        let Row { name, part, what, story, .. } = row;
        let guard = if row.is_guarded { "yes" } else { "" };
        let cells = cells.join(" | ");
        writeln!(text, "| {name} | {part} | {what} | {story} | {cells} | {guard} |")
            .expect("a string takes everything");
    }
    text.push_str(&totals(hunt));
    text
}

/// Rule, effort and time of the first layer of a kind that found the mutant; `–` if none did.
fn cell(row: &Row, kind: &str) -> String {
    let mut tried = row
        .tries
        .iter()
        .filter(|it| it.kind == kind && it.expectation != Expectation::Hidden)
        .filter_map(|it| it.outcome.as_ref())
        .peekable();
    if tried.peek().is_none() {
        return String::new();
    }
    let found = tried.find_map(|outcome| Some((outcome.finding.as_ref()?, outcome.time)));
    let Some((finding, time)) = found else { return "–".to_owned() };
    let rule = if finding.rule.is_empty() { "" } else { &format!("{}, ", finding.rule) };
    format!("{rule}{}, {}", finding.after, shown(time))
}

fn totals(hunt: &Hunt) -> String {
    let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in hunt.rows.iter().flat_map(Row::kinds) {
        *by_kind.entry(kind).or_default() += 1;
    }
    let by_kind: Vec<String> =
        by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let found = hunt.rows.iter().filter(|row| !row.kinds().is_empty()).count();
    format!(
        "\n{found} of {} mutants were found, by layer: {}.\n",
        hunt.rows.len(),
        by_kind.join(", ")
    )
}

fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
