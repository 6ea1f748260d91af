//! Items as users know them: `photos/a.jpg`, `urls.txt:2 https://bad/2`, `table.csv:17`.
//!
//! Keys of lines are offsets, and keys of files are relative to their directory. A name is for
//! people: it is derived from the key and the source when it is shown, and is part of no identity.
//! A file that cannot be read, or has changed, never fails a caller: its items are named by their
//! keys.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::key_format::{KeyFormat, readable};
use super::lines::LineEnd;
use super::row_keys::parse_row_key;
use super::source::Source;
use super::source_file::SourceFile;

/// Bytes of a line that its name has at most: a URL or a path of usual length.
const TEXT_MAX: usize = 512;

/// Bytes read to count the lines before an item: a second of reading. An item farther from every
/// counted one is named by its offset.
const COUNTED_BYTES_MAX: u64 = 1 << 30;

/// Offsets whose line numbers are kept, so that later lines are counted from there.
const KNOWN_MAX: usize = 4096;

/// Bytes read at a time while lines are counted.
const COUNT_BUFFER: usize = 64 << 10;

/// Names the items of one source.
pub struct ItemNames(Naming);

enum Naming {
    /// Files below this directory.
    Path(PathBuf),
    /// The lines or parts of a file.
    Lines(LineNames),
    /// The rows of a file with this name.
    Rows(Vec<u8>),
    /// By the key.
    Key(KeyFormat),
}

struct LineNames {
    path: PathBuf,
    end: LineEnd,
    /// The name of the file; `None` if users do not know the file.
    label: Option<Vec<u8>>,
    /// Opened by the first name.
    file: OnceLock<Option<SourceFile>>,
    /// Line numbers, from 1, by offset.
    known: Mutex<BTreeMap<u64, u64>>,
}

impl ItemNames {
    /// Returns the names of the items of `source`: paths are whole, files of lines and rows have
    /// their last component.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        let label = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).as_bytes().to_vec();
        Self(match source {
            Source::Tree { root, .. } => Naming::Path(root.clone()),
            Source::Lines { path, end } => Naming::Lines(LineNames {
                path: path.clone(),
                end: *end,
                label: Some(label(path)),
                file: OnceLock::new(),
                known: Mutex::default(),
            }),
            Source::Manifest { path, .. } => Naming::Rows(label(path)),
            Source::Integers(_) | Source::Git { .. } | Source::Registered(_) => {
                Naming::Key(source.key_format())
            }
        })
    }

    /// Uses the directory or file as it was typed, with or without its scheme.
    #[must_use]
    pub fn as_typed(mut self, typed: &OsStr) -> Self {
        let typed = typed.as_bytes();
        let path = |schemes: &[&str]| {
            let stripped = schemes.iter().find_map(|it| typed.strip_prefix(it.as_bytes()));
            stripped.unwrap_or(typed).to_vec()
        };
        match &mut self.0 {
            Naming::Path(root) => *root = PathBuf::from(OsStr::from_bytes(&path(&["tree:"]))),
            Naming::Lines(lines) => lines.label = Some(path(&["lines:", "lines0:", "@"])),
            Naming::Rows(label) => *label = path(&["csv:", "jsonl:"]),
            Naming::Key(_) => {}
        }
        self
    }

    /// Names lines by their text alone, for a list in a file that users do not know.
    #[must_use]
    pub fn by_text(mut self) -> Self {
        if let Naming::Lines(lines) = &mut self.0 {
            lines.label = None;
        }
        self
    }

    /// Returns the name of the item with this key. It may count the lines before it.
    #[must_use]
    pub fn name(&self, key: &[u8]) -> Vec<u8> {
        match &self.0 {
            Naming::Lines(lines) => lines.name(key),
            Naming::Path(_) | Naming::Rows(_) | Naming::Key(_) => self.brief(key),
        }
    }

    /// As [`Self::name`], without the number of a line, which takes a time that grows with the
    /// file.
    #[must_use]
    pub fn brief(&self, key: &[u8]) -> Vec<u8> {
        match &self.0 {
            Naming::Path(root) => below(root, key),
            Naming::Lines(lines) => {
                let text = lines.text(key).filter(|text| !text.is_empty());
                text.unwrap_or_else(|| lines.by_offset(key, None))
            }
            Naming::Rows(label) => match parse_row_key(key) {
                Some(row) => [label, format!(":{row}").as_bytes()].concat(),
                None => key.to_vec(),
            },
            Naming::Key(format) => format.text(key).into_owned(),
        }
    }

    /// Returns the name as text for a failure record: a byte that is not UTF-8 is `\xNN`. `None` if
    /// the key says as much.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Option<Box<str>> {
        match &self.0 {
            Naming::Path(_) | Naming::Lines(_) | Naming::Rows(_) => {
                Some(readable(&self.name(key)).into())
            }
            Naming::Key(_) => None,
        }
    }
}

// The kind only: names quote the user's data.
impl fmt::Debug for ItemNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Naming::Path(_) => "Path",
            Naming::Lines(_) => "Lines",
            Naming::Rows(_) => "Rows",
            Naming::Key(_) => "Key",
        })
    }
}

impl LineNames {
    fn name(&self, key: &[u8]) -> Vec<u8> {
        let text = self.text(key);
        let (Some(label), Some(offset)) = (&self.label, parse_row_key(key)) else {
            let text = text.filter(|text| !text.is_empty());
            return text.unwrap_or_else(|| self.by_offset(key, None));
        };
        let place = match text.as_ref().and_then(|_| self.line_of(offset)) {
            Some(line) => [label, format!(":{line}").as_bytes()].concat(),
            None => self.by_offset(key, Some(label)),
        };
        match text.filter(|text| !text.is_empty()) {
            Some(text) => [&place, &b" "[..], &text].concat(),
            None => place,
        }
    }

    fn by_offset(&self, key: &[u8], label: Option<&[u8]>) -> Vec<u8> {
        match (label.or(self.label.as_deref()), parse_row_key(key)) {
            (Some(label), Some(at)) => [label, format!(" at byte {at}").as_bytes()].concat(),
            (None, Some(at)) => format!("item at byte {at}").into_bytes(),
            (_, None) => key.to_vec(),
        }
    }

    fn file(&self) -> Option<&SourceFile> {
        self.file.get_or_init(|| SourceFile::open(&self.path).ok()).as_ref()
    }

    /// Reads the line that begins at the offset in `key`, at most [`TEXT_MAX`] bytes of it.
    fn text(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (file, offset) = (self.file()?, parse_row_key(key)?);
        let mut text = vec![0; TEXT_MAX + 1];
        let read = file.read_up_to(&mut text, offset).ok()?;
        text.truncate(read);
        // After the read: the offset means another line once the file has changed.
        file.check_unchanged().ok()?;
        match memchr::memchr(self.end.byte(), &text) {
            Some(end) => text.truncate(end),
            None if read > TEXT_MAX => {
                // Not within a character.
                let valid = |chunk: std::str::Utf8Chunk<'_>| chunk.valid().len();
                let first = text[..TEXT_MAX].utf8_chunks().next().map_or(0, valid);
                text.truncate(if TEXT_MAX - first < 4 { first } else { TEXT_MAX });
                text.extend_from_slice("…".as_bytes());
            }
            None => {}
        }
        if self.end == LineEnd::Feed && text.ends_with(b"\r") {
            text.pop();
        }
        Some(text)
    }

    /// Returns the number of the line that begins at `offset`, from 1.
    fn line_of(&self, offset: u64) -> Option<u64> {
        let file = self.file()?;
        // Held while lines are counted, so that two threads do not read the same part of the file.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.range(..=offset).next_back();
        let (mut at, mut line) = before.map_or((0, 1), |(at, line)| (*at, *line));
        if offset - at > COUNTED_BYTES_MAX {
            return None;
        }
        let mut buffer = vec![0; COUNT_BUFFER];
        while at < offset {
            let wanted = usize::try_from(offset - at).unwrap_or(COUNT_BUFFER).min(COUNT_BUFFER);
            let read = file.read_up_to(&mut buffer[..wanted], at).ok().filter(|read| *read > 0)?;
            line += memchr::memchr_iter(self.end.byte(), &buffer[..read]).count() as u64;
            at += read as u64;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(offset, line);
        Some(line)
    }
}

/// Returns the path of a file below `root`.
fn below(root: &Path, key: &[u8]) -> Vec<u8> {
    let mut path = root.as_os_str().as_bytes().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(key);
    path
}
