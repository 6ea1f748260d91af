//! Checks that leaves tile a request, and that each leaf is consistent.

use super::read::{LeafLine, Uncovered};
use super::record::{LeafRecord, LeafStatus, Request};
use super::refusal::Refusal;
use gossip_contracts::identity::FenceEpoch;

/// How far the leaves have come.
pub(super) struct Tiling {
    /// Where the next leaf must begin.
    frontier: Vec<u8>,
    /// Where the last one must end.
    end: Vec<u8>,
    /// Leaves so far.
    leaves: u64,
}

impl Tiling {
    pub(super) fn new(request: &Request) -> Result<Self, Refusal> {
        let (start, end) = (&request.start, &request.end);
        if start.is_empty() || end.is_empty() || start >= end {
            let (start_len, end_len) = (start.len(), end.len());
            return Err(Refusal::EmptyRequest { start_len, end_len });
        }
        Ok(Self { frontier: start.clone(), end: end.clone(), leaves: 0 })
    }

    /// Adds the next leaf; gives its number.
    pub(super) fn add(&mut self, line: &LeafLine) -> Result<u64, Refusal> {
        self.leaves += 1;
        let (leaf, record) = (self.leaves, &line.leaf);
        // First: the comparisons below need both bounds.
        check_range(leaf, record)?;
        if record.start > self.frontier {
            return Err(Refusal::Gap { leaf });
        }
        if record.start < self.frontier {
            return Err(Refusal::Overlap { leaf });
        }
        if record.end > self.end {
            return Err(Refusal::BeyondRequest { leaf });
        }
        // After the tiling, because a gap or an overlap is the graver fault and is reported first.
        check_progress(leaf, record)?;
        check_uncovered(leaf, record, &line.uncovered)?;
        self.frontier.clone_from(&record.end);
        Ok(leaf)
    }

    /// Checks that the leaves reach the end of the request, after all were added.
    pub(super) fn finish(&self) -> Result<(), Refusal> {
        match self.frontier == self.end {
            true => Ok(()),
            false => Err(Refusal::EndMissing { leaves: self.leaves }),
        }
    }
}

/// Both bounds are given: an empty one would mean "no bound" and reach over its neighbours.
fn check_range(leaf: u64, record: &LeafRecord) -> Result<(), Refusal> {
    let (start, end) = (&record.start, &record.end);
    if start.is_empty() || end.is_empty() || start >= end {
        let (start_len, end_len) = (start.len(), end.len());
        return Err(Refusal::EmptyLeaf { leaf, start_len, end_len });
    }
    Ok(())
}

fn check_progress(leaf: u64, record: &LeafRecord) -> Result<(), Refusal> {
    if record.fence == FenceEpoch::ZERO {
        return Err(Refusal::NeverOwned { leaf });
    }
    let count = record.accumulator.count();
    let max = match &record.cursor {
        None if record.status == LeafStatus::Done => {
            return Err(Refusal::DoneWithoutCursor { leaf });
        }
        None => 0,
        Some(cursor) if *cursor < record.start || *cursor >= record.end => {
            return Err(Refusal::CursorOutside { leaf });
        }
        // At most the start key itself. An empty shard completes there and counts none.
        Some(cursor) if *cursor == record.start => 1,
        Some(_) => u64::MAX,
    };
    if count > max {
        return Err(Refusal::TooManyKeys { leaf, count, max });
    }
    let unread = record.unread;
    // Unread keys are among the counted ones.
    if unread > count {
        return Err(Refusal::UnreadExceedsCount { leaf, unread, count });
    }
    Ok(())
}

fn check_uncovered(leaf: u64, record: &LeafRecord, stated: &Uncovered) -> Result<(), Refusal> {
    if record.status == LeafStatus::Done {
        return Ok(());
    }
    let (is_after, from) = match &record.cursor {
        Some(cursor) => (true, cursor),
        None => (false, &record.start),
    };
    let is_right =
        stated.is_after == is_after && stated.from == *from && stated.before == record.end;
    if is_right { Ok(()) } else { Err(Refusal::UncoveredMisstated { leaf }) }
}
