//! The files of a directory tree.
//!
//! The key of a file is its path below the root with `/` between names: a [`PathKey`], or a
//! [`BytePathKey`] if a name is not UTF-8. Both are the bytes of the path. Keys are listed in the
//! byte order of whole paths, which is not the order of a sorted walk: `a-b` comes before `a/b`,
//! because `-` sorts before `/`. A walk that compares directories as their name with a `/` behind
//! gives that order.
//!
//! # Items
//!
//! - **Every regular file**, hidden ones too. With [`TreeOptions::ignore`] what ripgrep would pass
//!   over is left out; `ignore_rules.rs` says exactly what.
//! - **Symbolic links** are neither followed nor items, whatever they point at. With
//!   [`TreeOptions::follow_links`] a link counts as what it leads to; one that leads back to a
//!   directory it lies in is left out, since its files have shorter names already, and one that
//!   leads nowhere, or to itself, is an item that cannot be read. The root itself may be a link.
//! - Directories, pipes, sockets and devices are no items.
//!
//! # What may happen meanwhile
//!
//! A directory that vanishes, or becomes a file, has nothing to list. One that **may not be read**
//! is [`ConnectorError::PermissionDenied`], after everything before it was listed: it is cut off
//! from what lies behind it and parked alone, until someone has granted access. A file that
//! vanished is [`OpenError::Vanished`]; one that is no regular file any more is
//! [`OpenError::Changed`]. A path longer than a key may be, or than the system takes, is
//! [`ConnectorError::Malformed`], with its length, and is parked in the same way. Files made or
//! renamed while a shard is listed may be seen or not. A file system that shows changes of a
//! directory late, such as NFS, delays this for the shards of one process: they share listings.
//!
//! A directory that is **replaced by a link** is not entered: a listing follows no link in the last
//! name, [`Connector::open`] checks every name, and [`Connector::check`] every directory that it
//! was not given as checked.
//!
//! The **root** must stay the directory that was opened. Before anything is taken for gone, and
//! before a listing ends, it is looked at once more: if it is not there, or another directory is in
//! its place (a disk was unmounted, and only its empty mount point remains), nothing below it is
//! believed. That is [`ConnectorError::NotFound`] or [`ConnectorError::SourceChanged`]. A file
//! system that is mounted further down and removed cannot be distinguished from deleted files.
//!
//! # Cost
//!
//! A listing reads the directories on the way to its cursor and no others before it. It holds the
//! names of one directory for each level. A directory cannot be entered in the middle: the shards
//! of a process that lie in it share one reading (`listings.rs`), as long as the directory does not
//! change. Sizes are not known, as each would take a call to the system.
//!
//! No directory is held open between two calls, because that would keep a file system from being
//! unmounted.

mod bounds;
mod directory;
mod ignore_rules;
mod listings;
mod names;
mod sampler;
mod walk;

#[cfg(test)]
mod denied_tests;
#[cfg(test)]
mod ignore_tests;
#[cfg(test)]
mod listings_tests;
#[cfg(test)]
mod tree_tests;

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};
#[cfg(doc)]
use gossip_frontier::{BytePathKey, PathKey};
use rustix::io::Errno;

use self::bounds::Bounds;
use self::ignore_rules::Rules;
use self::listings::Listings;
use self::walk::Walk;

/// The longest name that a file system in use gives a file; a longer one is nowhere.
pub(super) const NAME_LEN_MAX: usize = 255;

/// The files below one directory.
pub struct FileTree {
    tree: Arc<Tree>,
    /// The directory of the item opened last, and its rules: items are opened in about the order of
    /// their keys, so most are beside the one before.
    opened_beside: Mutex<Option<(Vec<u8>, Arc<Rules>)>>,
}

/// Which files are part of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeOptions {
    /// Leaves out what ripgrep passes over: hidden files, and what ignore files name.
    pub ignore: bool,
    /// Takes a symbolic link for what it leads to.
    pub follow_links: bool,
}

impl TreeOptions {
    /// Every regular file; links are not followed.
    pub const EVERYTHING: Self = Self { ignore: false, follow_links: false };

    /// Leaves out what ripgrep passes over.
    #[must_use]
    pub const fn with_ignore(self, ignore: bool) -> Self {
        Self { ignore, ..self }
    }

    /// Takes a symbolic link for what it leads to.
    #[must_use]
    pub const fn with_follow_links(self, follow_links: bool) -> Self {
        Self { follow_links, ..self }
    }
}

/// What listings share with their connector.
pub(crate) struct Tree {
    root: PathBuf,
    /// Device and number of the root when it was opened.
    identity: (u64, u64),
    options: TreeOptions,
    listings: Listings,
}

impl Tree {
    /// Returns whether the root is still the directory that was opened. Where it is not, whatever
    /// is missing below it says nothing.
    fn check_root(&self) -> Result<(), ConnectorError> {
        match std::fs::metadata(&self.root) {
            Ok(metadata) if identity_of(&metadata) == self.identity => Ok(()),
            Ok(_) => Err(ConnectorError::SourceChanged),
            Err(error) => Err(ConnectorError::from_io(&error)),
        }
    }

    /// Returns where a key, or a directory with or without its last `/`, lies in the file system.
    fn path(&self, relative: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(relative))
    }

    /// Returns whether the rules of its directory leave out the entry at `path`, which has a `/`
    /// behind it if it is a directory.
    fn excludes(&self, rules: &Rules, path: &[u8]) -> bool {
        let bare = path.strip_suffix(b"/");
        let (path, is_directory) = (bare.unwrap_or(path), bare.is_some());
        rules.exclude(&self.path(path), name_of(path), is_directory)
    }

    /// Returns the rules of the root, if rules are asked for.
    fn root_rules(&self) -> Result<Option<Arc<Rules>>, ConnectorError> {
        if self.options.ignore { Rules::read(&self.root, None).map(Some) } else { Ok(None) }
    }
}

impl FileTree {
    /// Opens the tree below `root`.
    ///
    /// # Errors
    ///
    /// It does not exist, may not be looked at, or is no directory.
    pub fn open(root: &Path, options: TreeOptions) -> Result<Self, ConnectorError> {
        let metadata = std::fs::metadata(root).map_err(|error| ConnectorError::from_io(&error))?;
        if !metadata.is_dir() {
            return Err(ConnectorError::NotFound);
        }
        let (identity, listings) = (identity_of(&metadata), Listings::default());
        let tree = Tree { root: root.to_owned(), identity, options, listings };
        Ok(Self { tree: Arc::new(tree), opened_beside: Mutex::new(None) })
    }

    fn open_listed(&self, key: &[u8]) -> Result<File, OpenError> {
        if !is_path(key) {
            return Err(OpenError::Vanished);
        }
        self.check_listed(key)?;
        let path = self.tree.path(key);
        let metadata = match self.tree.options.follow_links {
            true => std::fs::metadata(&path).map_err(|error| behind_link(&path, &error)),
            false => std::fs::symlink_metadata(&path).map_err(|error| OpenError::from_io(&error)),
        }?;
        // The kind of file is checked before it is opened, because opening a pipe waits for a
        // writer.
        if !metadata.is_file() {
            return Err(OpenError::Changed);
        }
        let file = File::open(&path).map_err(|error| OpenError::from_io(&error))?;
        let opened = file.metadata().map_err(|error| OpenError::from_io(&error))?;
        // The name may have been given to another file, or to a link, between the two calls.
        if identity_of(&opened) != identity_of(&metadata) {
            return Err(OpenError::Changed);
        }
        Ok(file)
    }

    /// Refuses a key that no listing gives: below a link that is not followed, or ignored.
    fn check_listed(&self, key: &[u8]) -> Result<(), OpenError> {
        if !self.tree.options.follow_links {
            self.check_directories(ancestors(key))?;
        }
        match self.tree.options.ignore {
            true => self.check_not_ignored(key),
            false => Ok(()),
        }
    }

    /// Refuses a path through a directory that is a link, or none.
    fn check_directories<'k>(
        &self,
        directories: impl Iterator<Item = &'k [u8]>,
    ) -> Result<(), OpenError> {
        for directory in directories {
            let metadata = std::fs::symlink_metadata(self.tree.path(directory));
            let metadata = metadata.map_err(|error| OpenError::from_io(&error))?;
            if !metadata.is_dir() {
                return Err(OpenError::Vanished);
            }
        }
        Ok(())
    }

    /// Returns the error, unless the item is gone together with the root: then it was not deleted
    /// alone, and the source is unavailable.
    fn unless_root_gone<T>(&self, error: OpenError) -> Result<T, OpenError> {
        // Only then: an item that vanished is passed over for good, which must not happen to all
        // files of an unmounted disk.
        if error == OpenError::Vanished {
            self.tree.check_root()?;
        }
        Err(error)
    }

    fn check_not_ignored(&self, key: &[u8]) -> Result<(), OpenError> {
        let directory = ancestors(key).last().unwrap_or_default();
        let known = {
            let slot = self.opened_beside.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_ref().filter(|(known, _)| known == directory).map(|(_, rules)| rules.clone())
        };
        // Read without the lock: reading rules takes calls to the file system, and other threads
        // open items meanwhile.
        let rules = match known {
            Some(rules) => rules,
            None => self.rules_of(directory)?,
        };
        let excluded = rules.exclude(&self.tree.path(key), name_of(key), false);
        let mut slot = self.opened_beside.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((directory.to_vec(), rules));
        if excluded { Err(OpenError::Vanished) } else { Ok(()) }
    }

    /// Returns the rules inside a directory, unless it or one above it is ignored itself.
    fn rules_of(&self, directory: &[u8]) -> Result<Arc<Rules>, OpenError> {
        let mut rules = Rules::read(&self.tree.root, None)?;
        // With a `/` behind it, a directory is an ancestor of what would come next.
        let inside = [directory, b"/"].concat();
        for ancestor in ancestors(&inside) {
            let path = self.tree.path(ancestor);
            if rules.exclude(&path, name_of(ancestor), true) {
                return Err(OpenError::Vanished);
            }
            rules = Rules::read(&path, Some(rules))?;
        }
        Ok(rules)
    }
}

impl Connector for FileTree {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let walk = Walk::new(Arc::clone(&self.tree), Bounds::new(range, from))?;
        Ok(Box::new(walk))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        _scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let opened = self.open_listed(item.key()).or_else(|error| self.unless_root_gone(error));
        opened.map(ItemBody::File)
    }

    fn check(
        &self,
        item: PageItem<'_>,
        beside: Option<PageItem<'_>>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        // A link that leads nowhere was listed, and only opening it shows that.
        if self.tree.options.follow_links {
            return self.open(item, scratch).map(drop);
        }
        if !is_path(item.key()) {
            return Err(OpenError::Vanished);
        }
        let known = beside.map_or(&[][..], |beside| beside.key());
        // The item that was checked right before shares most of its directories with this one.
        let is_new = |directory: &&[u8]| !is_inside(known, directory);
        let checked = self.check_directories(ancestors(item.key()).filter(is_new));
        checked.or_else(|error| self.unless_root_gone(error))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        sampler::sample(&self.tree, &Bounds::new(range, CursorUpdate::initial()), sample)
    }
}

// Options only: the root is a path of the user's.
impl fmt::Debug for FileTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTree").field("options", &self.tree.options).finish_non_exhaustive()
    }
}

/// Why a path could not be followed. A link that is there and leads nowhere, or to itself, was
/// listed and will be again: it is not gone.
fn behind_link(path: &Path, error: &io::Error) -> OpenError {
    let is_link = || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let leads_round = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    match OpenError::from_io(error) {
        OpenError::Vanished if is_link() => OpenError::Changed,
        OpenError::Source(_) if leads_round && is_link() => OpenError::Changed,
        error => error,
    }
}

/// Identifies a file or directory as long as it exists.
fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns whether a file could have this path: names of legal length, none that the system reads
/// as another directory.
fn is_path(key: &[u8]) -> bool {
    let is_name =
        |name: &[u8]| (1..=NAME_LEN_MAX).contains(&name.len()) && !matches!(name, b"." | b"..");
    key.len() <= MAX_KEY_SIZE && !key.contains(&0) && key.split(|byte| *byte == b'/').all(is_name)
}

/// Returns the directories above a key, outermost first, without their last `/`; the root is left
/// out.
fn ancestors(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    memchr::memchr_iter(b'/', key).map(|slash| &key[..slash])
}

/// Returns whether a key lies in or below a directory.
fn is_inside(key: &[u8], directory: &[u8]) -> bool {
    key.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns the last name of a path.
fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
