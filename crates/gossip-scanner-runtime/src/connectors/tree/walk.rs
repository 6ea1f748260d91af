//! A listing of a tree: down the directories that may hold wanted keys, in byte order.

use std::sync::Arc;

use gossip_contracts::connector::{ConnectorError, Enumeration, Page, PageItem};
use gossip_contracts::coordination::{MAX_KEY_SIZE, prefix_successor_into};
use gossip_frontier::BytePathKey;

use super::bounds::Bounds;
use super::directory::{Entries, Reading};
use super::ignore_rules::Rules;
use super::{Tree, identity_of};

/// A listing on its way.
pub(super) struct Walk {
    tree: Arc<Tree>,
    bounds: Bounds,
    /// One for each directory between the root and where the walk is. As every level adds at least
    /// two bytes to the path, there are at most half as many as a key has bytes.
    levels: Vec<Level>,
    /// The path of the last entry taken, which is its key if it is a file.
    path: Vec<u8>,
    /// Whether `path` is a key that no page has taken.
    is_waiting: bool,
    /// Met after some keys of a page; returned instead of the next page.
    failure: Option<ConnectorError>,
    /// The first key behind the directory or file that failed.
    behind_failure: Option<Box<[u8]>>,
    /// The path of that directory or file.
    failed_at: Option<Box<[u8]>>,
}

/// One directory, and its remaining entries.
struct Level {
    entries: Entries,
    /// How much of the path is this directory's, with the `/` behind it.
    prefix_len: usize,
    rules: Option<Arc<Rules>>,
    /// Device and number of the directory; known where links are followed, so that one that leads
    /// back is seen.
    identity: Option<(u64, u64)>,
}

impl Walk {
    pub(super) fn new(tree: Arc<Tree>, bounds: Bounds) -> Result<Self, ConnectorError> {
        let rules = tree.root_rules()?;
        let mut walk = Self {
            tree,
            bounds,
            levels: Vec::new(),
            path: Vec::new(),
            is_waiting: false,
            failure: None,
            behind_failure: None,
            failed_at: None,
        };
        walk.descend(rules)?;
        Ok(walk)
    }

    /// Moves `path` to the next key; `false` at the end.
    fn advance(&mut self) -> Result<bool, ConnectorError> {
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.prefix_len);
            let Some(name) = level.entries.take() else {
                self.levels.pop();
                continue;
            };
            self.path.extend_from_slice(name);
            if level.rules.as_ref().is_some_and(|rules| self.tree.excludes(rules, &self.path)) {
                continue;
            }
            if BytePathKey::try_new(&self.path).is_err() {
                return Err(ConnectorError::Malformed { position: self.path.len() as u64 });
            }
            if self.path.last() != Some(&b'/') {
                return Ok(true);
            }
            let rules = self.rules_inside()?;
            self.descend(rules)?;
        }
        Ok(false)
    }

    /// Records where the listing could continue, unless the whole tree failed.
    fn failed(&mut self, failure: ConnectorError) -> ConnectorError {
        if !matches!(failure, ConnectorError::NotFound | ConnectorError::SourceChanged) {
            let mut behind = [0; MAX_KEY_SIZE];
            // Of a path that is too long, nothing that begins like it is a key.
            let prefix = &self.path[..self.path.len().min(MAX_KEY_SIZE)];
            let len = prefix_successor_into(prefix, &mut behind);
            self.behind_failure = len.map(|len| behind[..len].into());
            self.failed_at = (!self.path.is_empty()).then(|| self.path.as_slice().into());
        }
        failure
    }

    /// Returns the rules inside the directory at `path`.
    fn rules_inside(&self) -> Result<Option<Arc<Rules>>, ConnectorError> {
        let above = self.levels.last().and_then(|level| level.rules.clone());
        match above {
            Some(above) => Rules::read(&self.tree.path(&self.path), Some(above)).map(Some),
            None => Ok(None),
        }
    }

    /// Enters the directory at `path`.
    fn descend(&mut self, rules: Option<Arc<Rules>>) -> Result<(), ConnectorError> {
        let identity = self.identity();
        let leads_back = |level: &Level| identity.is_some() && level.identity == identity;
        if self.levels.iter().any(leads_back) {
            return Ok(());
        }
        let reading = Reading {
            tree: &self.tree,
            prefix: &self.path,
            bounds: &self.bounds,
            entries_max: usize::MAX,
        };
        let entries = reading.entries()?;
        self.levels.push(Level { entries, prefix_len: self.path.len(), rules, identity });
        Ok(())
    }

    fn identity(&self) -> Option<(u64, u64)> {
        if !self.tree.options.follow_links {
            return None;
        }
        // A directory that was deleted meanwhile is handled by the read that follows.
        let metadata = std::fs::metadata(self.tree.path(&self.path)).ok()?;
        Some(identity_of(&metadata))
    }
}

impl Enumeration for Walk {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        loop {
            if !self.is_waiting {
                match self.advance().map_err(|failure| self.failed(failure)) {
                    Ok(true) => self.is_waiting = true,
                    // If the root was replaced, an early end must not pass for a complete listing.
                    Ok(false) => break self.tree.check_root()?,
                    // The keys before the failure are returned first. They are processed, and the
                    // next page reports the failure.
                    Err(failure) if !page.is_empty() => {
                        self.failure = Some(failure);
                        return Ok(());
                    }
                    Err(failure) => return Err(failure),
                }
            }
            if page.push(PageItem::new(&self.path)).is_err() {
                return Ok(());
            }
            self.is_waiting = false;
        }
        page.mark_exhausted();
        Ok(())
    }

    fn behind_failure(&self) -> Option<&[u8]> {
        self.behind_failure.as_deref()
    }

    fn failed_at(&self) -> Option<&[u8]> {
        self.failed_at.as_deref()
    }
}
