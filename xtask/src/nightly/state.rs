//! The finished parts of a night: a file with one line for each.
//!
//! ```text
//!  commit · campaign · round · how it ended · seconds · words · last line     (tabs between)
//! ```
//!
//! Parts of other commits stay in the file and do not count. A line that is not complete was being
//! written when the machine stopped: its part runs again.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    /// Without a failure, but a stage of it could not run on this machine.
    Skipped,
    Failed,
}

impl Ended {
    const ALL: [Self; 3] = [Self::Passed, Self::Skipped, Self::Failed];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped in part",
            Self::Failed => "failed",
        }
    }
}

/// A part that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    /// Counted from zero.
    pub(super) round: u64,
    pub(super) words: Vec<String>,
    pub(super) ended: Ended,
    pub(super) seconds: u64,
    /// The last line of its output.
    pub(super) last: String,
}

impl Part {
    pub(super) const fn result(&self) -> &'static str {
        self.ended.word()
    }

    fn line(&self, commit: &str) -> String {
        let Self { name, round, words, seconds, last, .. } = self;
        let (words, result) = (words.join(" "), self.result());
        format!("{commit}\t{name}\t{round}\t{result}\t{seconds}\t{words}\t{last}\n")
    }

    /// Returns the commit and the part; `None` if the line is not complete.
    fn parse(line: &str) -> Option<(&str, Self)> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [commit, name, round, result, seconds, words, last] = fields[..] else { return None };
        let part = Self {
            name: name.to_owned(),
            round: round.parse().ok()?,
            words: words.split_whitespace().map(str::to_owned).collect(),
            ended: Ended::ALL.into_iter().find(|ended| ended.word() == result)?,
            seconds: seconds.parse().ok()?,
            last: last.to_owned(),
        };
        Some((commit, part))
    }
}

/// The parts of one commit, and their file.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    commit: String,
    parts: Vec<Part>,
}

impl State {
    /// Reads the parts of `commit`; none if the file does not exist.
    pub(super) fn load(file: &Path, commit: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| unusable(file, &error);
        file.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        // Only a line with its end was written completely, and the next one must not continue it.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        if whole.len() < text.len() {
            fs::write(file, whole).map_err(failed)?;
        }
        let parts = whole.lines().filter_map(Part::parse).filter(|(of, _)| *of == commit);
        let parts = parts.map(|(_, part)| part).collect();
        Ok(Self { file: file.to_owned(), commit: commit.to_owned(), parts })
    }

    /// Returns the part, if it has ended.
    pub(super) fn find(&self, name: &str, round: u64, words: &[String]) -> Option<&Part> {
        let is_it = |part: &&Part| part.name == name && part.round == round && part.words == words;
        self.parts.iter().find(is_it)
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the time of all parts.
    pub(super) fn seconds(&self) -> f64 {
        self.parts.iter().map(|part| part.seconds as f64).sum()
    }

    /// Adds a part that has ended, on disk first.
    pub(super) fn add(&mut self, part: Part) -> Result<(), Failure> {
        append(&self.file, &part.line(&self.commit))
            .map_err(|error| unusable(&self.file, &error))?;
        self.parts.push(part);
        Ok(())
    }
}

fn append(file: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes())
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    let what = format!("the state of the night in {} is unusable", file.display());
    Failure::new(what, error.to_string(), "check the file, or remove it to begin anew")
}
