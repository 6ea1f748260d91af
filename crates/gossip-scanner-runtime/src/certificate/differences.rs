//! The leaves of a certificate whose keys a source does not have.

use std::fmt;

use super::record::LeafRecord;
use super::refusal::Refusal;

/// Leaves that are listed; of a source that has nothing in common with the certificate every leaf
/// differs.
pub const DIFFERENCES_MAX: usize = 20;

/// The leaves that differ from a source: the first ones, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Differences {
    /// The first [`DIFFERENCES_MAX`], in the order of their ranges.
    pub listed: Vec<LeafDifference>,
    /// All of them.
    pub count: u64,
}

/// A leaf of which the source has other keys than the certificate states.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeafDifference {
    /// The number of the leaf, from one.
    pub leaf: u64,
    /// The first key of its range.
    pub start: Box<[u8]>,
    /// The end of its range, exclusive.
    pub end: Box<[u8]>,
    /// Keys that the certificate states.
    pub stated: u64,
    /// Keys that the source has; with as many as stated, they are others.
    pub found: u64,
}

impl Differences {
    pub(super) fn add(&mut self, number: u64, leaf: &LeafRecord, found: u64) {
        self.count += 1;
        if self.listed.len() < DIFFERENCES_MAX {
            self.listed.push(LeafDifference {
                leaf: number,
                start: leaf.start[..].into(),
                end: leaf.end[..].into(),
                stated: leaf.accumulator.count(),
                found,
            });
        }
    }

    /// Returns the refusal for the first difference.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let &LeafDifference { leaf, stated, found, .. } = self.listed.first()?;
        Some(match stated == found {
            true => Refusal::KeysDiffer { leaf, count: found },
            false => Refusal::CountDiffers { leaf, stated, found },
        })
    }
}

// Numbers and lengths only: bounds are keys.
impl fmt::Debug for LeafDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafDifference")
            .field("leaf", &self.leaf)
            .field("stated", &self.stated)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}
