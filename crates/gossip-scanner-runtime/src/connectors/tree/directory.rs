//! One directory, read and put in order.

use std::fs::{DirEntry, FileType, ReadDir};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gossip_contracts::connector::ConnectorError;

use super::bounds::Bounds;
use super::ignore_rules::Rules;
use super::{Tree, name_of};

/// Files and directories of one directory, in the order of their keys.
#[derive(Default)]
pub(super) struct Entries {
    /// All names, one after another; that of a directory has a `/` behind it, which puts it in its
    /// place among the others.
    names: Vec<u8>,
    /// Where each lies; sorted by name.
    spans: Vec<Span>,
    /// The first that was not taken.
    next: usize,
    /// Whether some were left out because there were too many.
    pub(super) is_cut_short: bool,
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    len: u32,
}

impl Entries {
    /// Takes the next one.
    pub(super) fn take(&mut self) -> Option<&[u8]> {
        let span = *self.spans.get(self.next)?;
        self.next += 1;
        Some(&self.names[span.start..][..span.len as usize])
    }

    fn push(&mut self, name: &[u8], is_directory: bool) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        if is_directory {
            self.names.push(b'/');
        }
        let len = u32::try_from(self.names.len() - start).expect("a name is at most 256 bytes");
        self.spans.push(Span { start, len });
    }

    fn sort(&mut self) {
        let name = |span: &Span| &self.names[span.start..][..span.len as usize];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }
}

/// What to read.
pub(super) struct Reading<'a> {
    pub(super) tree: &'a Tree,
    /// The path below the root with a `/` behind it, empty for the root itself.
    pub(super) prefix: &'a [u8],
    pub(super) rules: Option<&'a Rules>,
    pub(super) bounds: &'a Bounds,
    /// Reading stops after so many entries.
    pub(super) entries_max: usize,
}

impl Reading<'_> {
    /// Reads the entries that are wanted. A directory that is gone has none.
    ///
    /// # Errors
    ///
    /// It may not be read; or the root is not there.
    pub(super) fn read(&self) -> Result<Entries, ConnectorError> {
        let mut entries = Entries::default();
        let listing = match std::fs::read_dir(self.tree.path(self.prefix)) {
            Ok(listing) => listing,
            Err(error) if self.is_gone(&error) => {
                // A directory may be deleted during a scan; if the root is gone, everything would
                // look deleted.
                self.tree.check_root()?;
                return Ok(entries);
            }
            // Together with the root the path is too long for the system, and will stay so.
            Err(error) if error.kind() == ErrorKind::InvalidFilename => {
                return Err(ConnectorError::Malformed { position: self.prefix.len() as u64 });
            }
            Err(error) => return Err(ConnectorError::from_io(&error)),
        };
        self.collect(listing, &mut entries)?;
        entries.sort();
        Ok(entries)
    }

    fn collect(&self, listing: ReadDir, entries: &mut Entries) -> Result<(), ConnectorError> {
        let mut key = self.prefix.to_vec();
        for (seen, entry) in listing.enumerate() {
            // Counted before any filter: a directory of millions of excluded entries must not cost
            // their time.
            if seen == self.entries_max {
                entries.is_cut_short = true;
                break;
            }
            let entry = entry.map_err(|error| ConnectorError::from_io(&error))?;
            let Some(is_directory) = self.kind(&entry)? else {
                continue;
            };
            key.truncate(self.prefix.len());
            key.extend_from_slice(entry.file_name().as_bytes());
            if self.is_wanted(&mut key, is_directory) {
                entries.push(entry.file_name().as_bytes(), is_directory);
            }
        }
        Ok(())
    }

    /// Returns whether an entry is a directory or an item; `None` if it is neither.
    fn kind(&self, entry: &DirEntry) -> Result<Option<bool>, ConnectorError> {
        let found = match entry.file_type() {
            Ok(found) if found.is_symlink() && self.tree.options.follow_links => {
                return Ok(self.kind_behind_link(entry.path()));
            }
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ConnectorError::from_io(&error)),
        };
        Ok(kind_of(found))
    }

    /// Returns the kind of a link's target. A dangling link is an item, so that opening it reports
    /// the failure.
    fn kind_behind_link(&self, link: PathBuf) -> Option<bool> {
        match std::fs::metadata(link) {
            Ok(metadata) => kind_of(metadata.file_type()),
            Err(_) => Some(false),
        }
    }

    /// Leaves a `/` behind the key of a directory.
    fn is_wanted(&self, key: &mut Vec<u8>, is_directory: bool) -> bool {
        let is_excluded =
            |rules: &Rules| rules.exclude(&self.tree.path(key), name_of(key), is_directory);
        if self.rules.is_some_and(is_excluded) {
            return false;
        }
        if is_directory {
            // The keys below it begin with its name and a slash; only they decide whether it is
            // read.
            key.push(b'/');
            return self.bounds.may_begin_with(key);
        }
        self.bounds.admit(key)
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        let gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        // A missing root is an error, a missing directory below it a change of the source.
        gone && !self.prefix.is_empty()
    }
}

fn kind_of(found: FileType) -> Option<bool> {
    match (found.is_dir(), found.is_file()) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        // A link, pipe, socket or device.
        (false, false) => None,
    }
}
