//! One directory, read and put in order.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gossip_contracts::connector::ConnectorError;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, OFlags, statat};
use rustix::io::Errno;

use super::bounds::{Bounds, Window};
use super::listings::{LISTINGS_BYTES_MAX, Listing, Read};
use super::names::{Gathered, Names};
use super::{Tree, identity_of};

/// The entries of one directory that a listing wants, in the order of their keys.
pub(super) struct Entries {
    pub(super) names: Arc<Names>,
    /// The first that was not taken.
    next: usize,
    /// Behind the last wanted one.
    end: usize,
}

impl Entries {
    fn new(names: Arc<Names>, window: Window<'_>) -> Self {
        let next = names.partition_point(|name| window.is_before(name));
        let end = names.partition_point(|name| !window.is_behind(name));
        Self { names, next, end }
    }

    /// Takes the next one. That of a directory has a `/` behind it.
    pub(super) fn take(&mut self) -> Option<&[u8]> {
        if self.next >= self.end {
            return None;
        }
        self.next += 1;
        self.names.get(self.next - 1)
    }

    /// Takes the next one and passes over the `skipped` ones behind it.
    pub(super) fn take_and_skip(&mut self, skipped: usize) -> Option<&[u8]> {
        let at = self.next;
        self.take()?;
        self.next = self.next.saturating_add(skipped);
        self.names.get(at)
    }

    /// Returns how many were not taken.
    pub(super) fn len(&self) -> usize {
        self.end.saturating_sub(self.next)
    }

    /// Returns whether some were left out because there were too many.
    pub(super) fn is_cut_short(&self) -> bool {
        self.names.is_cut_short()
    }
}

/// What to read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) tree: &'a Tree,
    /// The path below the root with a `/` behind it, empty for the root itself.
    pub(super) prefix: &'a [u8],
    pub(super) bounds: &'a Bounds,
    /// Reading may stop after so many entries.
    pub(super) entries_max: usize,
}

impl Reading<'_> {
    /// Returns the entries that are wanted. A directory that is gone has none.
    ///
    /// A directory that lies only partly in the bounds is read once for all shards of the process
    /// that it lies in, as long as it does not change.
    ///
    /// # Errors
    ///
    /// It may not be read; or the root is not there.
    pub(super) fn entries(&self) -> Result<Entries, ConnectorError> {
        let (listings, is_limited) = (&self.tree.listings, self.entries_max < usize::MAX);
        let names = match self.bounds.contain_all(self.prefix) {
            false => {
                let is_usable = |names: &Names| !names.is_cut_short() || is_limited;
                listings.get(self.prefix, is_usable, || self.stamp(), || self.read())?
            }
            // A sample covers directories that shards have read a part of.
            true => match is_limited.then(|| listings.find(self.prefix)).flatten() {
                Some(known) if self.stamp() == Some(known.stamp) => known.names,
                Some(_) | None => self.read()?.listing.names,
            },
        };
        Ok(Entries::new(names, self.bounds.within(self.prefix)))
    }

    fn read(&self) -> Result<Read, ConnectorError> {
        let opened = self.open().and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(error) if self.is_gone(&error) => {
                // A directory may be deleted during a scan; if the root is gone, everything would
                // look deleted.
                self.tree.check_root()?;
                return Ok(Read { listing: Listing::default(), is_shareable: false });
            }
            // Together with the root the path is too long for the system, and will stay so.
            Err(error) if error.kind() == ErrorKind::InvalidFilename => {
                return Err(ConnectorError::Malformed { position: self.prefix.len() as u64 });
            }
            Err(error) => return Err(ConnectorError::from_io(&error)),
        };
        // Before the names are read: a change during the reading shows later in the stamp.
        let stamp = Stamp::of(&metadata);
        let is_settled = stamp.is_settled(SystemTime::now());
        let mut found = Found::default();
        self.collect(file, &mut found)?;
        let (gathered, is_whole) = (found.gathered, found.is_whole);
        let listing = Listing { stamp, names: Arc::new(gathered.sort()) };
        Ok(Read { listing, is_shareable: is_settled && is_whole })
    }

    /// Opens the directory. A link that took its place since it was listed is not followed.
    fn open(&self) -> io::Result<File> {
        let mut flags = OFlags::DIRECTORY;
        // The root may be a link.
        if !self.prefix.is_empty() && !self.tree.options.follow_links {
            flags |= OFlags::NOFOLLOW;
        }
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        // With a `/` behind it, the system would follow a link nevertheless.
        options.open(self.tree.path(self.prefix.strip_suffix(b"/").unwrap_or_default()))
    }

    /// Returns the present stamp of the directory; `None` if it cannot be looked at.
    fn stamp(&self) -> Option<Stamp> {
        let path = self.tree.path(self.prefix.strip_suffix(b"/").unwrap_or_default());
        let is_followed = self.prefix.is_empty() || self.tree.options.follow_links;
        let found = match is_followed {
            true => std::fs::metadata(path),
            false => std::fs::symlink_metadata(path),
        };
        found.ok().map(|metadata| Stamp::of(&metadata))
    }

    fn collect(&self, file: File, found: &mut Found) -> Result<(), ConnectorError> {
        let failed = |error: Errno| ConnectorError::from_io(&error.into());
        let mut directory = Dir::new(OwnedFd::from(file)).map_err(failed)?;
        let window = self.bounds.within(self.prefix);
        let mut seen = 0;
        while let Some(entry) = directory.read() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            // Counted before any filter: a directory of millions of excluded entries must not cost
            // their time.
            if seen == self.entries_max {
                found.gathered.cut_short();
                break;
            }
            seen += 1;
            if let Some(is_directory) = self.kind(&directory, &entry, found)? {
                found.take(name, is_directory, window)?;
            }
        }
        Ok(())
    }

    /// Returns whether an entry is a directory or an item; `None` if it is neither.
    fn kind(
        &self,
        directory: &Dir,
        entry: &DirEntry,
        found: &mut Found,
    ) -> Result<Option<bool>, ConnectorError> {
        let look = |flags| {
            let looked = statat(directory.fd()?, entry.file_name(), flags)?;
            Ok(FileType::from_raw_mode(looked.st_mode))
        };
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = match look(AtFlags::SYMLINK_NOFOLLOW) {
                Ok(kind) => kind,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(ConnectorError::from_io(&io::Error::from(error))),
            };
        }
        if kind == FileType::Symlink && self.tree.options.follow_links {
            // What a link leads to may change without a change of this directory.
            found.is_whole = false;
            // A dangling link is an item, so that opening it reports the failure.
            return Ok(look(AtFlags::empty()).map_or(Some(false), kind_of));
        }
        Ok(kind_of(kind))
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        let gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        // Some systems report so that the last name is a link.
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        // A missing root is an error, a missing directory below it a change of the source.
        (gone || (is_link && !self.tree.options.follow_links)) && !self.prefix.is_empty()
    }
}

/// Names that were found.
pub(super) struct Found {
    pub(super) gathered: Gathered,
    /// Whether they serve every shard: all of them are kept, and none depends on a link.
    pub(super) is_whole: bool,
}

impl Default for Found {
    fn default() -> Self {
        Self { gathered: Gathered::default(), is_whole: true }
    }
}

impl Found {
    /// Keeps a name, if it is wanted or serves other shards.
    pub(super) fn take(
        &mut self,
        name: &[u8],
        is_directory: bool,
        window: Window<'_>,
    ) -> Result<(), ConnectorError> {
        let is_wanted = |name: &[u8]| !window.is_before(name) && !window.is_behind(name);
        if self.is_whole && self.gathered.size() > LISTINGS_BYTES_MAX {
            // Too large to be shared, so only the part of this shard is kept.
            self.is_whole = false;
            self.gathered.retain(is_wanted);
        }
        self.gathered.push(name, is_directory)?;
        if !self.is_whole {
            self.gathered.pop_unless(is_wanted);
        }
        Ok(())
    }
}

/// Shows a change of a directory: of its names, or of the directory at its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: (u64, u64),
    /// Seconds and nanoseconds of the last change of names.
    pub(super) modified: (i64, i64),
    /// The same for any change, because programs set the other one.
    changed: (i64, i64),
}

/// How far the times of files may lag behind the clock: Linux takes them from its last tick, which
/// is at most 10 ms ago.
const TICK: Duration = Duration::from_millis(20);

/// The same for file systems that store whole seconds, of which FAT has even ones only.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: identity_of(metadata),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether every change after `now` gives the directory another stamp. One that changed
    /// right before may change again and have the same time.
    fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.modified;
        let lag = if nanoseconds == 0 { WHOLE_SECONDS } else { TICK };
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let latest = since_1970.saturating_sub(lag);
        let latest = (latest.as_secs().cast_signed(), i64::from(latest.subsec_nanos()));
        (seconds, nanoseconds) <= latest
    }
}

const fn kind_of(kind: FileType) -> Option<bool> {
    match kind {
        FileType::Directory => Some(true),
        FileType::RegularFile => Some(false),
        // A link, pipe, socket or device.
        _ => None,
    }
}
