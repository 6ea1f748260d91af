//! The journal of a process: its calls and their acknowledgements.
//!
//! A line is one `write` call, which survives a kill of the process. `ask` is written before a call
//! and `got` after its answer. Every `got` must therefore be in the store, and everything in the
//! store must have an `ask`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use gossip_testkit::recording_vfs::Recorder;

use crate::Failure;

/// One call on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A lease; when acknowledged, under this fence.
    Grant { fence: u64 },
    /// A cursor moved to the key with this number.
    Checkpoint { fence: u64, op: u64, key: u128 },
    /// A released lease.
    Release { fence: u64, op: u64 },
    /// A residual split; when acknowledged, with the id of the new shard.
    Split { fence: u64, op: u64, child: u64 },
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) is_acknowledged: bool,
    pub(crate) shard: u64,
    pub(crate) call: Call,
}

/// A journal.
#[derive(Debug)]
pub(crate) enum Journal {
    /// In a file that outlives the process.
    File(File),
    /// In the record of the database's writes and syncs, so that their order is known.
    Record(Recorder),
}

impl Journal {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self::File(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(crate) fn ask(&mut self, shard: u64, call: Call) -> Result<(), Failure> {
        self.add(Line { is_acknowledged: false, shard, call })
    }

    pub(crate) fn got(&mut self, shard: u64, call: Call) -> Result<(), Failure> {
        self.add(Line { is_acknowledged: true, shard, call })
    }

    fn add(&mut self, line: Line) -> Result<(), Failure> {
        match self {
            Self::File(file) => file.write_all(line.to_text().as_bytes())?,
            Self::Record(recorder) => recorder.mark(line.to_text()),
        }
        Ok(())
    }
}

/// Returns the complete lines of a journal. If the last one is torn, its call was not made.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, Failure> {
    // A process may be killed before it creates the file.
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| Line::parse(line.trim_end()).ok_or_else(|| format!("journal: {line}").into()))
        .collect()
}

impl Line {
    fn to_text(self) -> String {
        let word = if self.is_acknowledged { "got" } else { "ask" };
        let shard = self.shard;
        match self.call {
            Call::Grant { fence } => format!("{word} grant {shard} {fence} 0 0\n"),
            Call::Checkpoint { fence, op, key } => {
                format!("{word} checkpoint {shard} {fence} {op} {key}\n")
            }
            Call::Release { fence, op } => format!("{word} release {shard} {fence} {op} 0\n"),
            Call::Split { fence, op, child } => {
                format!("{word} split {shard} {fence} {op} {child}\n")
            }
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let is_acknowledged = words.next()? == "got";
        let kind = words.next()?;
        let shard = words.next()?.parse().ok()?;
        let fence = words.next()?.parse().ok()?;
        let op = words.next()?.parse().ok()?;
        let last: u128 = words.next()?.parse().ok()?;
        let call = match kind {
            "grant" => Call::Grant { fence },
            "checkpoint" => Call::Checkpoint { fence, op, key: last },
            "release" => Call::Release { fence, op },
            "split" => Call::Split { fence, op, child: u64::try_from(last).ok()? },
            _ => return None,
        };
        Some(Self { is_acknowledged, shard, call })
    }
}
