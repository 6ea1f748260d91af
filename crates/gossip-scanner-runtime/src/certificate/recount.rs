//! Listing a source a second time, by other means than the engine's.
//!
//! A comparison of a certificate with its source must not use the connectors that made it: a key
//! that they leave out would be missing on both sides. So everything is written here once more, as
//! plainly as can be: a directory tree is read whole, in whatever order the system gives, and all
//! paths are sorted in memory; what ripgrep passes over is asked of ripgrep's own walker; files are
//! read from their first byte to their last; integers are counted. Shared are only the form of a
//! key, the comparison of keys, and the contract that a listing is held to.
//!
//! # Limits
//!
//! - Plainness takes memory: a path takes its length and 16 bytes, a row 8, and a source that needs
//!   more than [`RECOUNT_BYTES_MAX`] is refused.
//! - A tree in which links are followed *and* ignore files heard is listed by its own connector:
//!   ripgrep's walker does not say of a link that leads nowhere whether it is ignored.
//!
//! It never opens an item of a tree, and never uses the engine's test for directories.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, FileType, Metadata};
use std::io::{self, BufReader, Bytes, ErrorKind, Read as _};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
};
use gossip_contracts::coordination::{
    CursorUpdate, MAX_KEY_SIZE, ShardSpecRef, prefix_successor_into,
};
use ignore::WalkBuilder;

use crate::connectors::{LineEnd, ManifestFormat, Source};

/// Maximum memory for the keys of one source: some fifty million paths, or half a thousand million
/// rows. Larger sources are compared part by part.
pub const RECOUNT_BYTES_MAX: u64 = 4 << 30;

/// Lists a source for a comparison.
///
/// # Errors
///
/// It is not there or may not be read as a whole, or it needs more than [`RECOUNT_BYTES_MAX`].
pub fn recount(source: &Source) -> Result<Box<dyn Connector>, ConnectorError> {
    let mut found = Found::default();
    let keys = match source {
        Source::Tree { options, .. } if options.ignore && options.follow_links => {
            return source.open();
        }
        Source::Tree { root, options } if options.ignore => {
            found.walk_as_ripgrep(root)?;
            Keys::Paths(found.paths.sorted())
        }
        Source::Tree { root, options } => {
            let tree = Tree { root, follow_links: options.follow_links };
            let mut above = identity(root).into_iter().collect();
            found.read_directory(&tree, b"", &mut above)?;
            Keys::Paths(found.paths.sorted())
        }
        Source::Lines { path, end } => Keys::Numbers(lines_of(path, *end)?),
        Source::Manifest { path, format } => Keys::Numbers(rows_of(path, *format)?),
        Source::Integers(integers) => {
            Keys::Integers { first: integers.first(), last: integers.last() }
        }
        // A connector of the user has no second implementation here, and that of git is git itself.
        Source::Git { .. } | Source::Registered(_) => return source.open(),
    };
    // A listing searches the prefix with the smallest key, and the walk finds them in the order of
    // directories.
    found.unlisted.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix));
    let source = Recounted { keys, unlisted: found.unlisted };
    Ok(Box::new(Shared(Arc::new(source))))
}

/// Everything that a source holds, in the order of keys.
struct Recounted {
    keys: Keys,
    /// The prefixes whose keys could not be listed, in ascending order.
    unlisted: Vec<UnlistedPrefix>,
}

/// A prefix whose keys could not be listed, such as a directory without read permission.
struct UnlistedPrefix {
    prefix: Vec<u8>,
    error: ConnectorError,
}

enum Keys {
    Paths(Paths),
    /// Ascending.
    Numbers(Vec<u64>),
    /// All of them from the first to the last.
    Integers {
        first: u64,
        last: Option<u64>,
    },
}

impl Keys {
    fn len(&self) -> u128 {
        match self {
            Self::Paths(paths) => paths.spans.len() as u128,
            Self::Numbers(numbers) => numbers.len() as u128,
            Self::Integers { first, last } => {
                last.map_or(0, |last| u128::from(last) - u128::from(*first) + 1)
            }
        }
    }

    /// Puts the key at `index` into `key`.
    fn write(&self, index: u128, key: &mut Vec<u8>) {
        key.clear();
        let place = || usize::try_from(index).expect("an index of a list in memory");
        let number = match self {
            Self::Paths(paths) => return key.extend_from_slice(paths.get(place())),
            Self::Numbers(numbers) => numbers[place()],
            Self::Integers { first, .. } => {
                first + u64::try_from(index).expect("below the number of integers")
            }
        };
        // Written out and not shared with `row_key`, so that a mistake there shows: manifest 0,
        // then the row, both big-endian.
        key.extend_from_slice(&[0; 8]);
        key.extend_from_slice(&number.to_be_bytes());
    }

    /// Returns the index of the first key for which the predicate fails, by binary search.
    fn first_not(&self, is_before: impl Fn(&[u8]) -> bool) -> u128 {
        let (mut low, mut high) = (0, self.len());
        let mut key = Vec::new();
        while low < high {
            let middle = low + (high - low) / 2;
            self.write(middle, &mut key);
            if is_before(&key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Paths below a root, one after another.
#[derive(Default)]
struct Paths {
    bytes: Vec<u8>,
    /// Where each lies.
    spans: Vec<(usize, u32)>,
}

impl Paths {
    fn get(&self, index: usize) -> &[u8] {
        let (start, len) = self.spans[index];
        &self.bytes[start..][..len as usize]
    }

    fn push(&mut self, path: &[u8]) -> Result<(), ConnectorError> {
        let len = u32::try_from(path.len()).map_err(|_| too_large())?;
        self.spans.push((self.bytes.len(), len));
        self.bytes.extend_from_slice(path);
        // Checked with every path, so that a huge tree is refused before it exhausts the memory.
        let taken = self.bytes.len() + 16 * self.spans.len();
        if taken as u64 > RECOUNT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    fn sorted(mut self) -> Self {
        let bytes = &self.bytes;
        let path = |(start, len): (usize, u32)| &bytes[start..][..len as usize];
        self.spans.sort_unstable_by(|a, b| path(*a).cmp(path(*b)));
        self
    }
}

const fn too_large() -> ConnectorError {
    ConnectorError::Unavailable { kind: ErrorKind::OutOfMemory }
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    root: &'a Path,
    follow_links: bool,
}

impl Tree<'_> {
    fn path(&self, below: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(below))
    }
}

/// What a reading of a tree has found.
#[derive(Default)]
struct Found {
    paths: Paths,
    unlisted: Vec<UnlistedPrefix>,
}

impl Found {
    /// Adds the files of the directory `prefix`, which ends with a `/` unless it is the root, and
    /// of those in it. `above` are device and inode of the directories that it lies in.
    ///
    /// A directory that cannot be read becomes an unlisted prefix. Fails only if the root cannot be
    /// read or the paths need too much memory.
    fn read_directory(
        &mut self,
        tree: &Tree<'_>,
        prefix: &[u8],
        above: &mut Vec<(u64, u64)>,
    ) -> Result<(), ConnectorError> {
        let entries = match names_in(tree, prefix) {
            Ok(entries) => entries,
            Err(error) if prefix.is_empty() => return Err(ConnectorError::from_io(&error)),
            // Deleted since its name was read, so its keys are gone and not unknown.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.add_unlisted(prefix, &error);
                return Ok(());
            }
        };
        for (name, is_directory) in entries {
            let path = [prefix, &name].concat();
            if !is_directory {
                self.file(&path)?;
                continue;
            }
            // A link may lead to a directory above it; following it would not end.
            let identity = identity(&tree.path(&path));
            if tree.follow_links && identity.is_some_and(|identity| above.contains(&identity)) {
                continue;
            }
            let depth = above.len();
            above.extend(identity);
            self.read_directory(tree, &[&path, &b"/"[..]].concat(), above)?;
            above.truncate(depth);
        }
        Ok(())
    }

    fn file(&mut self, path: &[u8]) -> Result<(), ConnectorError> {
        if path.len() > MAX_KEY_SIZE {
            self.add_unlisted(path, &ErrorKind::InvalidFilename.into());
            return Ok(());
        }
        self.paths.push(path)
    }

    fn add_unlisted(&mut self, prefix: &[u8], error: &io::Error) {
        let prefix = prefix[..prefix.len().min(MAX_KEY_SIZE)].to_vec();
        self.unlisted.push(UnlistedPrefix { prefix, error: ConnectorError::from_io(error) });
    }

    /// Adds the files that ripgrep's walker finds, with the settings that the documentation of
    /// sources promises. Directories that it cannot read become unlisted prefixes.
    ///
    /// Fails if the root cannot be read or the paths need too much memory.
    fn walk_as_ripgrep(&mut self, root: &Path) -> Result<(), ConnectorError> {
        // A missing root is an error of the source as a whole, not a part that could not be listed.
        std::fs::read_dir(root).map_err(|error| ConnectorError::from_io(&error))?;
        let mut walk = WalkBuilder::new(root);
        // Only rules inside the source count, so that two machines list the same items.
        walk.parents(false).git_global(false).require_git(false);
        walk.add_custom_ignore_filename(".rgignore");
        for entry in walk.build() {
            match entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                    self.file(below(root, entry.path()))?;
                }
                Ok(_) => {}
                Err(error) => {
                    let at = path_of(&error).map_or(&b""[..], |path| below(root, path));
                    let inside = if at.is_empty() { vec![] } else { [at, b"/"].concat() };
                    let kind = error.io_error().map_or(ErrorKind::Other, io::Error::kind);
                    self.add_unlisted(&inside, &kind.into());
                }
            }
        }
        Ok(())
    }
}

/// Returns the names in a directory that are items or directories, each with whether it is a
/// directory. Fails if the directory or one of its entries cannot be read.
fn names_in(tree: &Tree<'_>, prefix: &[u8]) -> io::Result<Vec<(Vec<u8>, bool)>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(tree.path(prefix))? {
        let entry = entry?;
        let name = entry.file_name().as_bytes().to_vec();
        let mut kind = entry.file_type()?;
        if kind.is_symlink() {
            if !tree.follow_links {
                continue;
            }
            match std::fs::metadata(entry.path()) {
                Ok(behind) => kind = behind.file_type(),
                // The connector lists a dangling link too, so that opening it reports the failure.
                Err(_) => {
                    names.push((name, false));
                    continue;
                }
            }
        }
        names.extend(is_directory(kind).map(|is_directory| (name, is_directory)));
    }
    Ok(names)
}

fn is_directory(kind: FileType) -> Option<bool> {
    if kind.is_dir() { Some(true) } else { kind.is_file().then_some(false) }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let of = |found: Metadata| (found.dev(), found.ino());
    std::fs::metadata(path).ok().map(of)
}

fn below<'a>(root: &Path, path: &'a Path) -> &'a [u8] {
    path.strip_prefix(root).map_or(&[], |path| path.as_os_str().as_bytes())
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            path_of(err)
        }
        _ => None,
    }
}

/// Returns where each line begins.
fn lines_of(path: &Path, end: LineEnd) -> Result<Vec<u64>, ConnectorError> {
    let mut text = Text::open(path)?;
    let mut starts = Vec::new();
    if end == LineEnd::Nul {
        while text.peek()?.is_some() {
            keep(&mut starts, text.offset)?;
            while text.take()?.is_some_and(|byte| byte != 0) {}
        }
        return Ok(starts);
    }
    while let Some(row) = text.row(false)? {
        keep(&mut starts, row.start)?;
    }
    Ok(starts)
}

/// Returns the number of each row that is an item, counted from 1. Blank rows and a header are no
/// items.
fn rows_of(path: &Path, format: ManifestFormat) -> Result<Vec<u64>, ConnectorError> {
    let (quotes, header) = match format {
        ManifestFormat::JsonLines => (false, false),
        ManifestFormat::Csv { header } => (true, header),
    };
    let mut text = Text::open(path)?;
    let (mut numbers, mut number) = (Vec::new(), 0);
    while let Some(row) = text.row(quotes)? {
        number += 1;
        // The header has a row number, as it has for the connector, but is no item.
        let is_header = header && number == 1;
        if !is_header && !row.is_blank {
            keep(&mut numbers, number)?;
        }
    }
    Ok(numbers)
}

fn keep(numbers: &mut Vec<u64>, number: u64) -> Result<(), ConnectorError> {
    numbers.push(number);
    if 8 * numbers.len() as u64 > RECOUNT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

/// A file that is read byte by byte.
struct Text {
    bytes: Peekable<Bytes<BufReader<File>>>,
    /// How many were taken.
    offset: u64,
}

struct TextRow {
    start: u64,
    /// Whether there is nothing before what ends it.
    is_blank: bool,
}

impl Text {
    fn open(path: &Path) -> Result<Self, ConnectorError> {
        let file = File::open(path).map_err(|error| ConnectorError::from_io(&error))?;
        Ok(Self { bytes: BufReader::new(file).bytes().peekable(), offset: 0 })
    }

    /// Reads one row; `None` at the end of the file. With `quotes` it is a row of CSV: a line feed
    /// between quotes is content. Fails if the file cannot be read or a quote is not closed.
    fn row(&mut self, quotes: bool) -> Result<Option<TextRow>, ConnectorError> {
        let start = self.offset;
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let mut is_return = false;
        loop {
            if quotes && self.peek()? == Some(b'"') {
                self.quoted(start)?;
            }
            // Quotes in the rest of the field are content: only one that begins a field opens.
            while let Some(byte) = self.peek()? {
                if byte == b'\n' || (quotes && byte == b',') {
                    break;
                }
                is_return = self.offset == start && byte == b'\r';
                self.take()?;
            }
            // Before the separator is taken, because its byte does not count for a blank row.
            let len = self.offset - start;
            match self.take()? {
                Some(b',') => {}
                Some(_) => {
                    let is_blank = len == 0 || (len == 1 && is_return);
                    return Ok(Some(TextRow { start, is_blank }));
                }
                // Without a line feed a carriage return is content, so the last row is never blank.
                None => return Ok(Some(TextRow { start, is_blank: false })),
            }
        }
    }

    /// Reads a quoted part, from one quote to the next that is not doubled. Fails with the offset
    /// `row` if the file ends within it.
    fn quoted(&mut self, row: u64) -> Result<(), ConnectorError> {
        self.take()?;
        loop {
            match self.take()? {
                None => return Err(ConnectorError::Malformed { position: row }),
                Some(b'"') if self.peek()? == Some(b'"') => drop(self.take()?),
                Some(b'"') => return Ok(()),
                Some(_) => {}
            }
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, ConnectorError> {
        match self.bytes.peek() {
            None => Ok(None),
            Some(Ok(byte)) => Ok(Some(*byte)),
            Some(Err(error)) => Err(ConnectorError::from_io(error)),
        }
    }

    fn take(&mut self) -> Result<Option<u8>, ConnectorError> {
        let byte = self.peek()?;
        if byte.is_some() {
            self.bytes.next();
            self.offset += 1;
        }
        Ok(byte)
    }
}

/// The source as something that can be listed, range by range.
struct Shared(Arc<Recounted>);

impl Connector for Shared {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let keys = &self.0.keys;
        let after = from.last_key();
        let next =
            keys.first_not(|key| key < range.start || after.is_some_and(|after| key <= after));
        let end = match range.end {
            b"" => keys.len(),
            end => keys.first_not(|key| key < end),
        };
        let unlisted = self.0.first_unlisted(range, after);
        Ok(Box::new(Listing { source: Arc::clone(&self.0), next, end, unlisted }))
    }

    /// Nothing is opened for a comparison.
    fn open<'a>(&'a self, _: PageItem<'_>, _: &'a mut Vec<u8>) -> Result<ItemBody<'a>, OpenError> {
        Err(OpenError::Vanished)
    }
}

// Numbers only.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recounted").field("keys", &self.0.keys.len()).finish_non_exhaustive()
    }
}

impl Recounted {
    /// Returns the index of the first unlisted prefix that keys of `range` above `after` may have;
    /// `None` if every such key is listed.
    fn first_unlisted(&self, range: ShardSpecRef<'_>, after: Option<&[u8]>) -> Option<usize> {
        let reaches_above = |prefix: &[u8], low: &[u8]| {
            let mut behind = [0; MAX_KEY_SIZE];
            prefix_successor_into(prefix, &mut behind).is_none_or(|len| behind[..len] > *low)
        };
        self.unlisted.iter().position(|it| {
            let below_end = range.end.is_empty() || *it.prefix < *range.end;
            below_end
                && reaches_above(&it.prefix, range.start)
                && after.is_none_or(|after| reaches_above(&it.prefix, after))
        })
    }
}

/// A listing of one range.
struct Listing {
    source: Arc<Recounted>,
    next: u128,
    /// At most the number of keys.
    end: u128,
    /// Nothing at or above this prefix can be listed.
    unlisted: Option<usize>,
}

impl Enumeration for Listing {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        // Keys with the prefix may be missing, and a later key would say that they do not exist. So
        // the listing ends before the prefix.
        let unlisted = self.unlisted.map(|index| &self.source.unlisted[index]);
        let mut key = Vec::new();
        while self.next < self.end {
            self.source.keys.write(self.next, &mut key);
            if unlisted.is_some_and(|unlisted| key >= unlisted.prefix) {
                break;
            }
            if page.push(PageItem::new(&key)).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        match unlisted {
            // An error returns no keys. So the keys before the prefix are returned first, and the
            // next page fails.
            Some(unlisted) if page.is_empty() => return Err(unlisted.error),
            Some(_) => {}
            None => page.mark_exhausted(),
        }
        Ok(())
    }
}

/// Returns a source of these paths, of which those with a prefix cannot be listed.
#[cfg(test)]
pub(super) fn with_unlisted_prefix(
    paths: &[&str],
    prefix: &[u8],
    error: ConnectorError,
) -> Box<dyn Connector> {
    let mut found = Found::default();
    paths.iter().for_each(|path| found.file(path.as_bytes()).expect("few paths"));
    let unlisted = vec![UnlistedPrefix { prefix: prefix.to_vec(), error }];
    Box::new(Shared(Arc::new(Recounted { keys: Keys::Paths(found.paths.sorted()), unlisted })))
}
