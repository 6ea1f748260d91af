//! The progress of a fuzz campaign: a file with one line for each completed run.
//!
//! ```text
//!  target · commit · date · executions · seconds · edges · corpus · crashes     (tabs between)
//! ```
//!
//! Executions of one target add up over its lines, so that an interrupted campaign resumes where it
//! stopped. An invalid line is an error and is not skipped: missing figures would look as if they
//! had never been measured.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::failure::Failure;
use crate::numbers::grouped;

/// One completed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) target: String,
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) executions: u64,
    pub(super) seconds: u64,
    /// Edges of the code that some input reached.
    pub(super) edges: u64,
    /// Inputs that reached new edges.
    pub(super) corpus: u64,
    pub(super) crashes: u64,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let [target, commit, date, numbers @ ..] = words.as_slice() else { return None };
        let numbers: Option<Vec<u64>> = numbers.iter().map(|word| word.parse().ok()).collect();
        let [executions, seconds, edges, corpus, crashes] = numbers?.try_into().ok()?;
        let [target, commit, date] = [target, commit, date].map(|word| (*word).to_owned());
        Some(Self { target, commit, date, executions, seconds, edges, corpus, crashes })
    }

    fn line(&self) -> String {
        let numbers = [self.executions, self.seconds, self.edges, self.corpus, self.crashes];
        let mut words = vec![self.target.clone(), self.commit.clone(), self.date.clone()];
        words.extend(numbers.map(|number| number.to_string()));
        words.join("\t")
    }
}

/// Returns the rows of `file` in order; none if the file does not exist.
pub(super) fn load(file: &Path) -> Result<Vec<Row>, Failure> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(file, error.to_string())),
    };
    let row = |(index, line): (usize, &str)| {
        let why = || unusable(file, format!("line {} is not a row", index + 1));
        Row::parse(line).ok_or_else(why)
    };
    text.lines().enumerate().map(row).collect()
}

/// Appends `row` to the file.
pub(super) fn add(file: &Path, row: &Row) -> Result<(), Failure> {
    let failed = |error: std::io::Error| unusable(file, error.to_string());
    let mut file = OpenOptions::new().create(true).append(true).open(file).map_err(failed)?;
    // One write, so that two campaigns on one file do not interleave their lines.
    file.write_all(format!("{}\n", row.line()).as_bytes()).map_err(failed)
}

/// Returns the executions of `target` in `rows`.
pub(super) fn executions(rows: &[Row], target: &str) -> u64 {
    rows.iter().filter(|row| row.target == target).map(|row| row.executions).sum()
}

/// Returns the table for the documentation: one line for each target, with its runs combined.
pub(super) fn table(rows: &[Row]) -> String {
    let mut targets: Vec<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut table = String::from(
        "| target | executions | seconds | edges reached | inputs kept | crashes | date | commit |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for target in targets {
        let of_target = || rows.iter().filter(|row| row.target == target);
        let sum = |number: fn(&Row) -> u64| of_target().map(number).sum::<u64>();
        let edges = of_target().map(|row| row.edges).max().unwrap_or(0);
        let last = of_target().next_back().expect("a target with rows");
        table.push_str(&format!(
            "| `{target}` | {} | {} | {edges} | {} | {} | {} | {} |\n",
            grouped(sum(|row| row.executions)),
            grouped(sum(|row| row.seconds)),
            sum(|row| row.corpus),
            sum(|row| row.crashes),
            last.date,
            last.commit,
        ));
    }
    table
}

fn unusable(file: &Path, why: String) -> Failure {
    let what = format!("the campaign progress in {} is unusable", file.display());
    Failure::new(what, why, "check the file, or use another one with --progress")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: &str, executions: u64, crashes: u64) -> Row {
        let [target, commit, date] = [target, "abc", "2026-11-15"].map(str::to_owned);
        Row { target, commit, date, executions, seconds: 2, edges: 5, corpus: 3, crashes }
    }

    #[test]
    fn written_rows_are_read_back() {
        let file = std::env::temp_dir().join(format!("fuzz-progress-{}", std::process::id()));
        let rows = [row("a", 7, 0), row("b", 1_000, 1)];
        assert_eq!(load(&file).unwrap(), []);
        rows.iter().for_each(|row| add(&file, row).unwrap());
        assert_eq!(load(&file).unwrap(), rows);
        fs::write(&file, "a\tabc\t2026-11-15\t7\n").unwrap();
        assert!(load(&file).unwrap_err().to_string().contains("line 1"));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn runs_of_one_target_add_up() {
        let rows = [row("a", 1_999_999, 0), row("b", 5, 0), row("a", 1, 1)];
        assert_eq!(executions(&rows, "a"), 2_000_000);
        let table = table(&rows);
        assert!(
            table.contains("| `a` | 2,000,000 | 4 | 5 | 6 | 1 | 2026-11-15 | abc |"),
            "{table}"
        );
        assert!(table.contains("| `b` | 5 | 2 |"), "{table}");
    }
}
