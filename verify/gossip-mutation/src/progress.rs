//! The progress file: a campaign that was interrupted continues where it was.
//!
//! The file belongs to one state of the sources; if they have changed, it begins anew.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::consts::ConstFn;
use crate::source::Choice;
use crate::trial::Outcome;

/// Viability and results of the mutants.
#[derive(Debug)]
pub(crate) struct Progress {
    file: File,
    pub(crate) choice: Choice,
    /// By number: how many programs have passed with the mutant.
    pub(crate) passed: BTreeMap<u32, usize>,
    /// By number: the outcome, and the test that failed.
    pub(crate) outcomes: BTreeMap<u32, (Outcome, String)>,
}

impl Progress {
    /// Opens the file, which is emptied if it belongs to other sources.
    pub(crate) fn open(path: &Path, hash: u64) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let header = format!("sources {hash:016x}\n");
        let old = fs::read_to_string(path).unwrap_or_default();
        // A line without its end was being written when the campaign was interrupted.
        let whole = old.rfind('\n').map_or("", |end| &old[..=end]);
        let text = if whole.starts_with(&header) { whole } else { &header };
        fs::write(path, text).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        let mut progress = Self {
            file,
            choice: Choice::default(),
            passed: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        };
        for line in text.lines() {
            progress.read(line);
        }
        Ok(progress)
    }

    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["drop", number] => self.choice.dropped.extend(number.parse::<u32>()),
            ["const", owner, name] => {
                self.choice.kept.insert(ConstFn::new(owner, name));
            }
            ["passed", number, count] => {
                if let (Ok(number), Ok(count)) = (number.parse(), count.parse()) {
                    self.passed.insert(number, count);
                }
            }
            ["result", number, outcome, by] => {
                let outcome = Outcome::ALL.into_iter().find(|it| it.name() == outcome);
                if let (Ok(number), Some(outcome)) = (number.parse(), outcome) {
                    self.outcomes.insert(number, (outcome, by.to_owned()));
                }
            }
            _ => {}
        }
    }

    /// Records the mutants that were left out to make the copy compile.
    pub(crate) fn record_choice(&mut self) -> Result<(), String> {
        let dropped = self.choice.dropped.iter().map(|number| format!("drop {number}\n"));
        let kept = self.choice.kept.iter();
        let kept = kept.map(|it| format!("const {} {}\n", it.owner, it.name));
        let text: String = dropped.chain(kept).collect();
        self.file.write_all(text.as_bytes()).map_err(|error| error.to_string())
    }

    /// Records that `count` programs have passed with the mutant.
    pub(crate) fn record_passed(&mut self, mutant: u32, count: usize) -> Result<(), String> {
        self.passed.insert(mutant, count);
        let line = format!("passed {mutant} {count}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| error.to_string())
    }

    pub(crate) fn record(
        &mut self,
        mutant: u32,
        outcome: Outcome,
        by: impl Display,
    ) -> Result<(), String> {
        let line = format!("result {mutant} {} {by}\n", outcome.name());
        self.outcomes.insert(mutant, (outcome, by.to_string()));
        self.file.write_all(line.as_bytes()).map_err(|error| error.to_string())
    }
}
