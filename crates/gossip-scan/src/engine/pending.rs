//! Findings that wait until nothing can overlap them any more.
//!
//! Of findings that overlap, one is reported: the more specific rule, then the more certain match.
//! Candidates arrive in the order of hits; they leave in the order of their positions, which does
//! not depend on how the input was cut.

use std::cmp::Ordering;

use super::{Candidate, LOOK_AHEAD, LOOK_BEHIND};
use crate::compiled::CompiledRule;

/// Longest span of a finding in the input.
const SPAN_MAX: u64 = (LOOK_AHEAD + LOOK_BEHIND) as u64;
/// Distance behind the search position at which findings are final: a hit at the position can
/// still produce one that begins [`LOOK_BEHIND`] earlier, and overlaps one [`SPAN_MAX`] long.
pub(crate) const HOLD: u64 = SPAN_MAX + LOOK_BEHIND as u64;

/// A candidate at its position in the item.
pub(crate) struct Placed {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) candidate: Candidate,
    /// An inline comment allows it.
    pub(crate) is_allowed: bool,
    /// A better one overlaps it.
    is_dropped: bool,
    /// It has been reported or dropped, and stays only to be compared.
    is_done: bool,
}

/// The waiting findings of one item.
#[derive(Default)]
pub(crate) struct Pending {
    placed: Vec<Placed>,
    /// Entries before this index are sorted and compared.
    is_sorted: bool,
}

impl Pending {
    pub(crate) fn push(&mut self, base: u64, candidate: Candidate, is_allowed: bool) {
        let (start, end) = (base + candidate.start as u64, base + candidate.end as u64);
        self.placed.push(Placed {
            start,
            end,
            candidate,
            is_allowed,
            is_dropped: false,
            is_done: false,
        });
        self.is_sorted = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Passes on every finding that begins before `limit`, in order; those before it are final.
    pub(crate) fn flush(
        &mut self,
        rules: &[CompiledRule],
        limit: u64,
        mut report: impl FnMut(&mut Placed),
    ) {
        if !self.is_sorted {
            self.placed.sort_by(|a, b| {
                // A total order, so that the report does not depend on the order in which hits
                // were examined.
                a.start.cmp(&b.start).then(b.end.cmp(&a.end)).then_with(|| precedence(rules, a, b))
            });
            self.is_sorted = true;
            self.drop_overlapped(rules);
        }
        for placed in self.placed.iter_mut().take_while(|it| it.start < limit) {
            if !placed.is_done && !placed.is_dropped {
                report(placed);
            }
            placed.is_done = true;
        }
        // One that reaches beyond the limit stays: a later candidate may overlap it and must be
        // compared.
        self.placed.retain(|it| !it.is_done || it.end > limit);
    }

    /// Marks every finding that a better one overlaps.
    fn drop_overlapped(&mut self, rules: &[CompiledRule]) {
        for index in 0..self.placed.len() {
            let (head, tail) = self.placed.split_at_mut(index + 1);
            let Some(first) = head.last_mut() else { continue };
            // One that is dropped still drops others, so that each pair decides alone.
            for second in tail.iter_mut().take_while(|it| it.start < first.end) {
                match precedence(rules, first, second) {
                    Ordering::Greater => first.is_dropped = true,
                    Ordering::Less | Ordering::Equal => second.is_dropped = true,
                }
            }
        }
    }
}

/// Orders the better finding first.
fn precedence(rules: &[CompiledRule], a: &Placed, b: &Placed) -> Ordering {
    let rank = |it: &Placed| rules[it.candidate.rule].rule.rank;
    let len = |it: &Placed| it.end - it.start;
    rank(b)
        .cmp(&rank(a))
        .then(b.candidate.checksum.cmp(&a.candidate.checksum))
        .then(b.candidate.confidence.cmp(&a.candidate.confidence))
        .then(a.candidate.decoded.cmp(&b.candidate.decoded))
        .then_with(|| len(b).cmp(&len(a)))
        // Text of one byte order contains the other's, one byte off; characters begin at even ones.
        .then((a.start % 2).cmp(&(b.start % 2)))
        .then(a.candidate.rule.cmp(&b.candidate.rule))
        .then(a.start.cmp(&b.start))
}
