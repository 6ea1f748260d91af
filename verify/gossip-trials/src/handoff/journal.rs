//! The journal of a process. A line is written before anything that depends on it, and it survives
//! `kill -9`, because the kernel already has it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::Failure;
use crate::run::micros;

/// An event of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The process froze the shard for a handoff.
    Froze,
    /// The process acquired the shard by a handoff.
    Accepted,
    /// The process claimed the shard.
    Claimed,
    /// The process processed the key of this number.
    Did(u64),
    /// The process continues after a handoff that did not happen.
    Kept,
    /// The store has acknowledged progress up to the key of this number, included.
    Saved(u64),
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: u64,
    pub(crate) shard: u64,
    pub(crate) fence: u64,
    pub(crate) what: What,
}

/// The journal of one process, shared by its threads.
#[derive(Clone)]
pub(crate) struct SharedJournal(Arc<File>);

impl SharedJournal {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self(Arc::new(OpenOptions::new().create_new(true).append(true).open(path)?)))
    }

    /// Writes lines in one call, so that a crash truncates at most the last line.
    pub(crate) fn note(&self, shard: u64, fence: u64, what: &[What]) -> Result<(), Failure> {
        let at = micros();
        let line = |what: &What| {
            let (letter, number) = match what {
                What::Froze => ('f', 0),
                What::Accepted => ('a', 0),
                What::Claimed => ('c', 0),
                What::Did(number) => ('d', *number),
                What::Kept => ('k', 0),
                What::Saved(number) => ('s', *number),
            };
            format!("{letter} {at} {shard} {fence} {number}\n")
        };
        let text: String = what.iter().map(line).collect();
        Ok((&*self.0).write_all(text.as_bytes())?)
    }
}

/// Returns the complete lines of a journal.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, Failure> {
    let text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse).collect()
}

fn parse(text: &str) -> Result<Line, Failure> {
    let words: Vec<&str> = text.split(' ').collect();
    let [letter, at, shard, fence, number] = words[..] else {
        return Err(format!("a line of {} words", words.len()).into());
    };
    let what = match letter {
        "f" => What::Froze,
        "a" => What::Accepted,
        "c" => What::Claimed,
        "d" => What::Did(number.parse()?),
        "k" => What::Kept,
        "s" => What::Saved(number.parse()?),
        _ => return Err("a line of an unknown kind".into()),
    };
    Ok(Line { at: at.parse()?, shard: shard.parse()?, fence: fence.parse()?, what })
}
