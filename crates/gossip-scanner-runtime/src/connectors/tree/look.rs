//! A cheap look at where the files of a tree are.
//!
//! Level by level a bounded number of directories is read, evenly spread over the level where not
//! all can be. A file counts one; a directory that was not read counts as much as those of its
//! level that were held on average. Of all that, keys are chosen at even distances.
//!
//! The look is exact if everything was read, and rough where most of the tree lies in few deep
//! directories: splitting evens that out later.

use std::sync::Arc;

use gossip_contracts::connector::{ConnectorError, Page, PageItem, PushError};
use gossip_frontier::KeyBuf;

use super::bounds::Bounds;
use super::directory::{Entries, Reading};
use super::ignore_rules::Rules;
use super::{Tree, encode_path};

/// Directories that one look reads at most: some ten milliseconds on a disk in use, and enough for
/// several hundred cuts.
const LOOK_DIRECTORIES_MAX: usize = 512;

/// Entries that one look reads at most; of a directory with more it sees what the system gives
/// first.
const LOOK_ENTRIES_MAX: usize = 64 * 1024;

/// Bytes of paths that one look keeps at most.
const LOOK_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Fills an empty `sample`.
pub(super) fn sample(
    tree: &Tree,
    bounds: &Bounds,
    sample: &mut Page,
) -> Result<(), ConnectorError> {
    let mut look = Look::new(tree, bounds);
    look.run()?;
    look.fill(sample);
    Ok(())
}

/// A look on its way.
struct Look<'a> {
    tree: &'a Tree,
    bounds: &'a Bounds,
    directories_left: usize,
    entries_left: usize,
    bytes_left: usize,
    /// Keys and what each counts.
    found: Vec<Found>,
    /// Whether every key that there is was found.
    is_complete: bool,
}

struct Found {
    key: Vec<u8>,
    weight: u64,
}

/// A directory to be read, or not.
struct Directory {
    prefix: Vec<u8>,
    /// The rules of the directory that it lies in, if there are rules.
    above: Option<Arc<Rules>>,
}

impl<'a> Look<'a> {
    const fn new(tree: &'a Tree, bounds: &'a Bounds) -> Self {
        Self {
            tree,
            bounds,
            directories_left: LOOK_DIRECTORIES_MAX,
            entries_left: LOOK_ENTRIES_MAX,
            bytes_left: LOOK_BYTES_MAX,
            found: Vec::new(),
            is_complete: true,
        }
    }

    /// Reads level by level until all is read or the look is used up.
    fn run(&mut self) -> Result<(), ConnectorError> {
        let mut next_level = Vec::new();
        self.read(b"", self.tree.root_rules()?, &mut next_level)?;
        while !next_level.is_empty() {
            next_level = self.read_level(next_level);
        }
        self.found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    /// Reads as many directories of a level as the look allows; gives the level below.
    fn read_level(&mut self, level: Vec<Directory>) -> Vec<Directory> {
        // Half of the remaining budget, so that a wide level leaves something for those below it.
        let allowed = level.len().min(self.directories_left.div_ceil(2));
        let entries_before = self.entries_left;
        let (mut below, mut unread) = (Vec::new(), Vec::new());
        let (len, mut read) = (level.len(), 0);
        for (at, directory) in level.into_iter().enumerate() {
            let is_chosen = (at + 1) * allowed / len > at * allowed / len;
            if !is_chosen || self.is_used_up() {
                unread.push(directory);
                continue;
            }
            // The listing reports the failure. A sample must not fail for one directory.
            match self.read_below(&directory, &mut below) {
                Ok(()) => read += 1,
                Err(_) => unread.push(directory),
            }
        }
        let entries = entries_before - self.entries_left;
        let weight = (entries as u64).checked_div(read).unwrap_or(1).max(1);
        unread.into_iter().for_each(|directory| self.note_unread(directory, weight));
        below
    }

    fn is_used_up(&self) -> bool {
        self.directories_left == 0 || self.entries_left == 0 || self.bytes_left == 0
    }

    fn read_below(
        &mut self,
        directory: &Directory,
        below: &mut Vec<Directory>,
    ) -> Result<(), ConnectorError> {
        let rules = match &directory.above {
            Some(above) => {
                let path = self.tree.path(&directory.prefix);
                Some(Rules::read(&path, Some(Arc::clone(above)))?)
            }
            None => None,
        };
        self.read(&directory.prefix, rules, below)
    }

    fn read(
        &mut self,
        prefix: &[u8],
        rules: Option<Arc<Rules>>,
        below: &mut Vec<Directory>,
    ) -> Result<(), ConnectorError> {
        let reading = Reading {
            tree: self.tree,
            prefix,
            rules: rules.as_deref(),
            bounds: self.bounds,
            entries_max: self.entries_left,
        };
        self.directories_left = self.directories_left.saturating_sub(1);
        let entries = reading.read()?;
        self.take(prefix, entries, rules.as_ref(), below);
        Ok(())
    }

    fn take(
        &mut self,
        prefix: &[u8],
        mut entries: Entries,
        rules: Option<&Arc<Rules>>,
        below: &mut Vec<Directory>,
    ) {
        self.is_complete &= !entries.is_cut_short;
        let mut key = KeyBuf::new();
        while let Some(name) = entries.take() {
            let path = [prefix, name].concat();
            self.entries_left = self.entries_left.saturating_sub(1);
            self.bytes_left = self.bytes_left.saturating_sub(path.len());
            // The listing reports the failure.
            if encode_path(&path, &mut key).is_err() {
                self.is_complete = false;
                continue;
            }
            if name.ends_with(b"/") {
                below.push(Directory { prefix: path, above: rules.cloned() });
            } else {
                self.found.push(Found { key: key.as_bytes().to_vec(), weight: 1 });
            }
        }
    }

    fn note_unread(&mut self, directory: Directory, weight: u64) {
        self.is_complete = false;
        let key = self.bounds.clamp(directory.prefix);
        self.found.push(Found { key, weight });
    }

    /// Puts keys at even distances into the page: all, or as many as fit.
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

    /// Pushes about `wanted` keys; `false` if they do not fit.
    fn push_spread(&self, wanted: u64, sample: &mut Page) -> bool {
        sample.clear();
        let total: u128 = self.found.iter().map(|found| u128::from(found.weight)).sum();
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
