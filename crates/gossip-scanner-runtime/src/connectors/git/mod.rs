//! The file contents in the history of a git repository.
//!
//! An item is a **blob**: the content of a file in some commit, once however many commits and paths
//! have it. Its key is its object id as bytes. Ids are uniform, so shards are cut evenly without
//! statistics, and a blob keeps its key when history is rewritten.
//!
//! Listed is what any ref, stash or reflog reaches, including commits that a branch has been moved
//! away from. Objects that nothing refers to any more are not. An object that git lists and does
//! not have, as in a partial clone, is an item that cannot be read; nothing is fetched.
//!
//! [`Connector::origin`] gives the commit and path in which a blob first appeared, by the dates of
//! the commits.
//!
//! # Cost
//!
//! Opening walks the history once and holds about fifty bytes per blob, and every path once. Bodies
//! come from `git cat-file --batch` processes, one per item that is open at a time.
//!
//! The installed `git` does the work (docs/adr/0120-git-by-its-program.md).
//! It runs without hooks, without lazy fetches and without the caller's `GIT_*` variables, in a
//! session of its own.

mod blob;
mod listing;
mod process;
mod table;

#[cfg(test)]
mod git_tests;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Origin, Page,
    PageItem, SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use self::blob::Readers;
use self::process::Git;
use self::table::Table;
use super::source::SourceError;

/// The blobs of one repository.
pub struct GitBlobs {
    table: std::sync::Arc<Table>,
    readers: Readers,
}

impl GitBlobs {
    /// Lists the history of the repository with this directory of objects and refs, as
    /// `repository_of` returns it.
    ///
    /// # Errors
    ///
    /// `git` cannot be started, or does not read the repository.
    pub fn open(git_dir: &Path) -> Result<Self, ConnectorError> {
        let table = std::sync::Arc::new(listing::list(git_dir)?);
        Ok(Self { table, readers: Readers::new(git_dir) })
    }
}

impl Connector for GitBlobs {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_counts().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let (next, end) = self.table.part(range, from);
        Ok(Box::new(Blobs { table: std::sync::Arc::clone(&self.table), next, end }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let blob = self.table.find(item.key()).ok_or(OpenError::Vanished)?;
        self.readers.body(blob.oid(self.table.oid_len()), scratch)
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let (first, end) = self.table.part(range, CursorUpdate::initial());
        Ok(Some((end - first) as u64))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (first, end) = self.table.part(range, CursorUpdate::initial());
        let limits = sample.limits();
        let count = end - first;
        // A repository without blobs has no length of their ids either.
        let fitting = limits.bytes().checked_div(self.table.oid_len()).unwrap_or(0);
        let wanted = count.min(limits.items()).min(fitting);
        for slot in 0..wanted {
            let pushed = sample.push(PageItem::new(self.table.oid(first + slot * count / wanted)));
            debug_assert!(pushed.is_ok(), "the sample was empty and the wanted keys fit");
        }
        if wanted == count {
            sample.mark_exhausted();
        }
        Ok(())
    }

    fn origin(&self, key: &[u8]) -> Option<Origin<'_>> {
        self.table.origin(key)
    }
}

// The path of a repository belongs to the user.
impl fmt::Debug for GitBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitBlobs").field("blobs", &self.table.len()).finish_non_exhaustive()
    }
}

struct Blobs {
    table: std::sync::Arc<Table>,
    /// At most `end`.
    next: usize,
    end: usize,
}

impl Enumeration for Blobs {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.end {
            let item = PageItem::new(self.table.oid(self.next));
            let item = item.with_size_hint(self.table.size(self.next));
            // Full or faulty, the answer is the same: `next` still names the item.
            if page.push(item).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        page.mark_exhausted();
        Ok(())
    }
}

/// Returns the directory of objects and refs of the repository at or above `path`: the same for all
/// of its work trees.
///
/// # Errors
///
/// There is no `git`, or it finds no repository there that it accepts.
pub(super) fn repository_of(path: &Path) -> Result<PathBuf, SourceError> {
    let mut command = Git::isolated();
    command.arg("-C");
    command.arg(path);
    command.args(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => SourceError::NoGit,
        kind => SourceError::Unavailable { kind },
    })?;
    let found = output.as_deref().and_then(|output| output.strip_suffix(b"\n"));
    Ok(PathBuf::from(OsStr::from_bytes(found.ok_or(SourceError::NotARepository)?)))
}
