//! Samples the keys of a tree, so that its shards can be cut where the files are.
//!
//! The sampler reads the tree level by level, at most [`SAMPLE_DIRECTORIES_MAX`] directories in
//! all. If a level has more directories than the budget allows, it reads some of them, evenly
//! spread over the level. Every key that it finds has a weight: a file weighs 1, and a directory
//! that was not read weighs as much as the average number of entries in the directories of its
//! level that were read. The sample consists of keys between which the weights are about equal.
//!
//! The sample is exact if everything was read. It is rough if most files lie in a few deep
//! directories; the splits of busy shards balance that later.

use std::sync::Arc;

use gossip_contracts::connector::{ConnectorError, Page, PageItem, PushError};
use gossip_frontier::BytePathKey;

use super::Tree;
use super::bounds::Bounds;
use super::directory::{Entries, Reading};
use super::ignore_rules::Rules;

/// Maximum number of directories that one sample reads: some ten milliseconds on a disk in use, and
/// enough for several hundred cuts.
const SAMPLE_DIRECTORIES_MAX: usize = 512;

/// Maximum number of entries that one sample uses. Of a directory with more it uses those that the
/// system returns first, or some at even distances if a shard has read them all.
const SAMPLE_ENTRIES_MAX: usize = 64 * 1024;

/// Maximum bytes of paths that one sample keeps. The directory that exceeds it is still taken as a
/// whole.
const SAMPLE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Fills an empty `sample` with keys of `bounds`, and marks it as exhausted if they are all keys.
///
/// Fails only if the root or its ignore files cannot be read. A directory below it that cannot be
/// read is weighed like one that the budget did not allow.
pub(super) fn sample(
    tree: &Tree,
    bounds: &Bounds,
    sample: &mut Page,
) -> Result<(), ConnectorError> {
    let mut sampler = Sampler::new(tree, bounds);
    sampler.run()?;
    sampler.fill(sample);
    Ok(())
}

/// A sample that is being taken, and the budget that it has left.
struct Sampler<'a> {
    tree: &'a Tree,
    bounds: &'a Bounds,
    directories_left: usize,
    entries_left: usize,
    bytes_left: usize,
    /// The keys that were found; sorted when the tree has been read.
    found: Vec<Found>,
    /// Whether `found` has every key of the bounds.
    is_complete: bool,
}

/// A file, or a directory that was not read.
struct Found {
    key: Vec<u8>,
    /// The number of files that the key represents, at least 1: estimated for a directory.
    weight: u64,
}

/// A directory of the next level.
struct Directory {
    prefix: Vec<u8>,
    /// The rules of the directory that it lies in, if there are rules.
    above: Option<Arc<Rules>>,
}

impl<'a> Sampler<'a> {
    const fn new(tree: &'a Tree, bounds: &'a Bounds) -> Self {
        Self {
            tree,
            bounds,
            directories_left: SAMPLE_DIRECTORIES_MAX,
            entries_left: SAMPLE_ENTRIES_MAX,
            bytes_left: SAMPLE_BYTES_MAX,
            found: Vec::new(),
            is_complete: true,
        }
    }

    /// Reads level by level until the tree is read or the budget is exhausted, then sorts the keys.
    ///
    /// Fails if the root cannot be read. The loop ends, because a level that may read no directory
    /// has none below it.
    fn run(&mut self) -> Result<(), ConnectorError> {
        let mut next_level = Vec::new();
        self.read(b"", self.tree.root_rules()?, &mut next_level)?;
        while !next_level.is_empty() {
            next_level = self.read_level(next_level);
        }
        self.found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    /// Reads directories of a level, as many as the budget allows, and weighs the others.
    ///
    /// Returns the directories that were found in those that were read: the next level. It is empty
    /// if there are none or the budget is exhausted.
    fn read_level(&mut self, level: Vec<Directory>) -> Vec<Directory> {
        // Half of the remaining budget, so that a wide level leaves something for the levels below
        // it. Rounded up, because otherwise the last directory of the budget would never be read.
        let allowed = level.len().min(self.directories_left.div_ceil(2));
        let entries_before = self.entries_left;
        let (mut below, mut unread) = (Vec::new(), Vec::new());
        let (len, mut read) = (level.len(), 0);
        for (at, directory) in level.into_iter().enumerate() {
            // The quotient rises by one at exactly `allowed` of the `len` positions, at even
            // distances. The first `allowed` directories would all lie at one end of the keys.
            let is_chosen = (at + 1) * allowed / len > at * allowed / len;
            if !is_chosen || self.is_exhausted() {
                unread.push(directory);
                continue;
            }
            // A sample must not fail for one directory. The listing meets the same failure and
            // reports it.
            match self.read_below(&directory, &mut below) {
                Ok(()) => read += 1,
                Err(_) => unread.push(directory),
            }
        }
        let entries = entries_before - self.entries_left;
        // Rounded down, which is exact enough for cuts. At least 1, because a key without weight is
        // never chosen; 1 too if no directory of the level was read, since nothing is known then.
        let weight = (entries as u64).checked_div(read).unwrap_or(1).max(1);
        unread.into_iter().for_each(|directory| self.note_unread(directory, weight));
        below
    }

    /// Returns whether no further directory may be read.
    fn is_exhausted(&self) -> bool {
        self.directories_left == 0 || self.entries_left == 0 || self.bytes_left == 0
    }

    /// Reads a directory below the root, with the ignore rules that apply in it.
    ///
    /// Adds its files to `found` and its directories to `below`. Fails, and adds nothing, if it or
    /// its ignore files cannot be read.
    fn read_below(
        &mut self,
        directory: &Directory,
        below: &mut Vec<Directory>,
    ) -> Result<(), ConnectorError> {
        let rules = match &directory.above {
            // Read here and not when the directory was found: most directories of a wide level are
            // never read, and their ignore files need not be either.
            Some(above) => {
                let path = self.tree.path(&directory.prefix);
                Some(Rules::read(&path, Some(Arc::clone(above)))?)
            }
            None => None,
        };
        self.read(&directory.prefix, rules, below)
    }

    /// Reads the directory at `prefix`, in which `rules` apply, like [`Self::read_below`].
    fn read(
        &mut self,
        prefix: &[u8],
        rules: Option<Arc<Rules>>,
        below: &mut Vec<Directory>,
    ) -> Result<(), ConnectorError> {
        let reading = Reading {
            tree: self.tree,
            prefix,
            bounds: self.bounds,
            entries_max: self.entries_left,
        };
        // Before the read, because one that fails costs time as well.
        self.directories_left = self.directories_left.saturating_sub(1);
        let entries = reading.entries()?;
        self.take(prefix, entries, rules.as_ref(), below);
        Ok(())
    }

    /// Adds the files among `entries` to `found` and the directories to `below`.
    fn take(
        &mut self,
        prefix: &[u8],
        mut entries: Entries,
        rules: Option<&Arc<Rules>>,
        below: &mut Vec<Directory>,
    ) {
        // The listing of a shard may have more entries than a sample uses.
        let skipped = entries.len().div_ceil(self.entries_left.max(1)).saturating_sub(1);
        self.is_complete &= !entries.is_cut_short() && skipped == 0;
        while let Some(name) = entries.take_and_skip(skipped) {
            let path = [prefix, name].concat();
            self.entries_left = self.entries_left.saturating_sub(1);
            self.bytes_left = self.bytes_left.saturating_sub(path.len());
            if rules.is_some_and(|rules| self.tree.excludes(rules, &path)) {
                continue;
            }
            // The path cannot be a key, such as one that is too long. The listing reports that; a
            // sample must not fail for one entry.
            if BytePathKey::try_new(&path).is_err() {
                self.is_complete = false;
                continue;
            }
            if path.ends_with(b"/") {
                below.push(Directory { prefix: path, above: rules.cloned() });
            } else {
                self.found.push(Found { key: path, weight: 1 });
            }
        }
    }

    /// Represents a directory that was not read by one key with the estimated weight.
    fn note_unread(&mut self, directory: Directory, weight: u64) {
        self.is_complete = false;
        // The prefix may be below the start of the range, although keys that begin with it are not.
        let key = self.bounds.clamp(directory.prefix);
        self.found.push(Found { key, weight });
    }

    /// Pushes keys at even distances of weight into the page: all of them, or as many as fit.
    fn fill(&self, sample: &mut Page) {
        let mut wanted = self.found.len().min(sample.limits().items());
        // Long keys fill the bytes before the items. One key always fits, so this ends.
        while !self.push_spread(wanted as u64, sample) {
            wanted /= 2;
        }
        if self.is_complete && wanted == self.found.len() {
            sample.mark_exhausted();
        }
    }

    /// Clears the page and pushes about `wanted` keys, between which the weights are about equal.
    ///
    /// Returns `false` if they do not fit; the page then holds a part of them. Pushes fewer if a
    /// key weighs more than one distance.
    fn push_spread(&self, wanted: u64, sample: &mut Page) -> bool {
        sample.clear();
        let total: u128 = self.found.iter().map(|found| u128::from(found.weight)).sum();
        // The total weight is divided into `wanted` slots, and each key whose weight reaches into
        // another slot is pushed. In 128 bits, because the product may not fit in 64.
        let slot = |passed: u128| passed * u128::from(wanted) / total.max(1);
        let mut passed = 0;
        for found in &self.found {
            let before = slot(passed);
            passed += u128::from(found.weight);
            if slot(passed) == before {
                continue;
            }
            if sample.push(PageItem::new(&found.key)) == Err(PushError::Full) {
                return false;
            }
        }
        true
    }
}
