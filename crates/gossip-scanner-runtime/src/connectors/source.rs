//! A source as a user types it.
//!
//! | typed | items |
//! |---|---|
//! | `DIR`, `tree:DIR` | the files below a directory |
//! | `lines:FILE`, `@FILE` | the lines of a file |
//! | `lines0:FILE` | the parts of a file that end with a zero byte |
//! | `jsonl:FILE`, `FILE.jsonl`, `FILE.ndjson` | the rows of a JSON Lines file |
//! | `csv:FILE`, `FILE.csv` | the rows of a CSV file |
//! | `git:REPO` | the contents of files in the history of a repository |
//! | `range:A..B`, `range:A..=B` | integers, without or with the last; `_` may group digits |
//!
//! A bare file with another name is refused with what to type: most files are both lines and
//! something else, and a guess would decide what a key is. What begins with a known word and a
//! colon is never taken for a path; a directory of such a name is typed `./lines:x`.
//!
//! Paths are resolved when they are parsed, links included, so the same source is the same from
//! every directory, and a link that leads elsewhere tomorrow is another source.
//!
//! The run's id is derived from [`Source::canonical`]: the listed object, and nothing that may
//! differ between two processes of one run. A later change of a file is detected by its
//! [`SourceStamp`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::{MAX_KEY_SIZE, ShardSpec, ShardSpecRef};
use gossip_frontier::{ShardSpecScratch, manifest_shard_ref, range_shard_ref};
use thiserror::Error;

use super::git::{GitBlobs, repository_of};
use super::integers::IntegerRange;
use super::key_format::{FIRST_PATH, KeyFormat};
use super::lines::{LineEnd, LineFile};
use super::manifest::{Manifest, ManifestFormat};
use super::registry::{RegisteredSource, SourceRefusal, SourceRegistry};
use super::row_keys::{ROWS_END, SOURCE_MANIFEST_ID};
use super::source_file::SourceFile;
use super::tree::{FileTree, NAME_LEN_MAX, TreeOptions};

/// Behind every path: no name has so many bytes, so at this place the greatest path has ended or
/// has a `/`.
pub(super) const END_OF_PATHS: [u8; NAME_LEN_MAX + 1] = [0xFF; NAME_LEN_MAX + 1];

const _: () = assert!(END_OF_PATHS.len() <= MAX_KEY_SIZE);

/// Something that has keys, not yet opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The files below a directory.
    Tree {
        /// Absolute, without links.
        root: PathBuf,
        /// Which files are part of it.
        options: TreeOptions,
    },
    /// The lines of a file.
    Lines {
        /// Absolute, without links.
        path: PathBuf,
        /// What ends each.
        end: LineEnd,
    },
    /// The rows of a file.
    Manifest {
        /// Absolute, without links.
        path: PathBuf,
        /// How they are written.
        format: ManifestFormat,
    },
    /// Integers.
    Integers(IntegerRange),
    /// The blobs of a git repository.
    Git {
        /// Its directory of objects and refs, absolute, without links.
        git_dir: PathBuf,
    },
    /// A source of a family that a program registered.
    Registered(RegisteredSource),
}

/// What a user may say about a source beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// Leave out what ripgrep passes over; trees only.
    pub ignore: bool,
    /// Follow symbolic links; trees only.
    pub follow_links: bool,
    /// The first row is an item like others; CSV only.
    pub no_header: bool,
}

impl SourceOptions {
    /// None.
    pub const NONE: Self = Self { ignore: false, follow_links: false, no_header: false };
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self::NONE
    }
}

/// What changes when the file behind a source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    /// Its size in bytes.
    pub len: u64,
    /// When it was changed, in nanoseconds since the epoch.
    pub modified: u64,
}

impl Source {
    /// Reads what a user typed, with the built-in families; the module lists the forms.
    ///
    /// # Errors
    ///
    /// As [`SourceRegistry::parse`].
    pub fn parse(text: &OsStr, options: SourceOptions) -> Result<Self, SourceError> {
        SourceRegistry::new().parse(text, options)
    }

    /// Reads what [`Self::text`] returned for a source of a built-in family.
    ///
    /// # Errors
    ///
    /// As [`SourceRegistry::restore`].
    pub fn restore(text: &OsStr, options: SourceOptions) -> Result<Self, SourceError> {
        SourceRegistry::new().restore(text, options)
    }

    pub(super) fn restore_scheme(
        scheme: Scheme,
        rest: &OsStr,
        options: SourceOptions,
    ) -> Result<Self, SourceError> {
        // Not resolved: the text was canonical when it was stored, and the file may be on another
        // machine.
        let path = PathBuf::from(rest);
        Ok(match scheme {
            _ if rest.is_empty() => return Err(SourceError::Empty),
            Scheme::Tree => Self::Tree { root: path, options: tree_options(options) },
            Scheme::Lines => Self::Lines { path, end: LineEnd::Feed },
            Scheme::Lines0 => Self::Lines { path, end: LineEnd::Nul },
            Scheme::Jsonl => Self::Manifest { path, format: ManifestFormat::JsonLines },
            Scheme::Csv => Self::Manifest { path, format: csv(options) },
            Scheme::Range => Self::Integers(parse_range(rest.as_bytes())?),
            Scheme::Git => Self::Git { git_dir: path },
        })
    }

    /// Returns what the source is, as bytes: equal for equal sources, different for different ones.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let path_after = |head: &[u8], path: &Path| [head, path.as_os_str().as_bytes()].concat();
        // The path comes last, after a head whose length is known by its first byte.
        match self {
            Self::Tree { root, options: TreeOptions { ignore, follow_links } } => {
                path_after(&[1, u8::from(*ignore), u8::from(*follow_links)], root)
            }
            Self::Lines { path, end: LineEnd::Feed } => path_after(&[2], path),
            Self::Lines { path, end: LineEnd::Nul } => path_after(&[8], path),
            Self::Manifest { path, format: ManifestFormat::JsonLines } => path_after(&[3], path),
            Self::Manifest { path, format: ManifestFormat::Csv { header } } => {
                path_after(&[4, u8::from(*header)], path)
            }
            Self::Integers(integers) => {
                let last = integers.last();
                let mut bytes = vec![5, u8::from(last.is_some())];
                // Both numbers in fixed width, so that no two ranges have the same bytes.
                bytes.extend_from_slice(&integers.first().to_be_bytes());
                bytes.extend_from_slice(&last.unwrap_or_default().to_be_bytes());
                bytes
            }
            Self::Git { git_dir } => path_after(&[7], git_dir),
            // The scheme holds no colon, so it ends at the first.
            Self::Registered(_) => [&[6], self.text().as_bytes()].concat(),
        }
    }

    /// Returns the range that every key of such a source lies in, with its hint: the root of a run.
    #[must_use]
    pub fn root(&self) -> ShardSpec {
        match self {
            // Above every object id, too: no id has as many bytes as the end.
            Self::Tree { .. } | Self::Git { .. } => root_of_paths(),
            Self::Lines { .. } | Self::Manifest { .. } => root_of_rows(0, ROWS_END),
            Self::Integers(integers) => {
                // A shard has at least one row, also if the range has no integers.
                let first = integers.first().min(ROWS_END - 1);
                root_of_rows(first, integers.last().unwrap_or(first) + 1)
            }
            Self::Registered(source) => source.family().root(source.name()),
        }
    }

    /// Returns how its keys are written for users.
    #[must_use]
    pub fn key_format(&self) -> KeyFormat {
        match self {
            Self::Tree { .. } => KeyFormat::Bytes,
            Self::Lines { .. } | Self::Manifest { .. } | Self::Integers(_) => KeyFormat::Row,
            Self::Git { .. } => KeyFormat::Hex,
            Self::Registered(source) => source.family().key_format(source.name()),
        }
    }

    /// Connects to it.
    ///
    /// # Errors
    ///
    /// It does not exist any more, or may not be read.
    pub fn open(&self) -> Result<Box<dyn Connector>, ConnectorError> {
        Ok(match self {
            Self::Tree { root, options } => Box::new(FileTree::open(root, *options)?),
            Self::Lines { path, end } => Box::new(LineFile::open_with(path, *end)?),
            Self::Manifest { path, format } => Box::new(Manifest::open(path, *format)?),
            Self::Integers(integers) => Box::new(*integers),
            Self::Git { git_dir } => Box::new(GitBlobs::open(git_dir)?),
            Self::Registered(source) => source.family().open(source.name())?,
        })
    }

    /// Returns the state of the file behind it; `None` for sources that are no single file.
    ///
    /// # Errors
    ///
    /// The file is gone or may not be looked at.
    pub fn stamp(&self) -> Result<Option<SourceStamp>, ConnectorError> {
        match self {
            Self::Lines { path, .. } | Self::Manifest { path, .. } => {
                let stamp = SourceFile::open(path)?.stamp();
                Ok(Some(SourceStamp { len: stamp.len, modified: stamp.modified }))
            }
            // Keys of blobs are their contents: they never mean something else.
            Self::Tree { .. } | Self::Integers(_) | Self::Git { .. } => Ok(None),
            Self::Registered(source) => source.family().stamp(source.name()),
        }
    }

    /// Returns whether a source of this kind may have a stamp.
    pub(crate) const fn may_have_stamp(&self) -> bool {
        match self {
            Self::Lines { .. } | Self::Manifest { .. } | Self::Registered(_) => true,
            Self::Tree { .. } | Self::Integers(_) | Self::Git { .. } => false,
        }
    }

    /// Returns whether the file behind it is as it was when its stamp was taken. Keys of rows are
    /// positions, so a run over another state of the file must not continue: they mean other rows
    /// now.
    ///
    /// # Errors
    ///
    /// [`ConnectorError::SourceChanged`], or as [`Self::stamp`].
    pub fn check_stamp(&self, taken: Option<SourceStamp>) -> Result<(), ConnectorError> {
        if self.stamp()? == taken { Ok(()) } else { Err(ConnectorError::SourceChanged) }
    }

    /// Returns the source as it can be typed again, with its options.
    #[must_use]
    pub fn text(&self) -> OsString {
        let with_path = |scheme: &str, path: &Path| {
            OsString::from_vec([scheme.as_bytes(), path.as_os_str().as_bytes()].concat())
        };
        match self {
            Self::Tree { root, .. } => with_path("tree:", root),
            Self::Lines { path, end: LineEnd::Feed } => with_path("lines:", path),
            Self::Lines { path, end: LineEnd::Nul } => with_path("lines0:", path),
            Self::Manifest { path, format: ManifestFormat::JsonLines } => with_path("jsonl:", path),
            Self::Manifest { path, format: ManifestFormat::Csv { .. } } => with_path("csv:", path),
            Self::Integers(integers) => {
                let first = integers.first();
                let range = integers.last().map_or_else(
                    // An empty range has no last integer to write.
                    || format!("{first}..{first}"),
                    |last| format!("{first}..={last}"),
                );
                format!("range:{range}").into()
            }
            Self::Git { git_dir } => with_path("git:", git_dir),
            Self::Registered(source) => {
                let scheme = source.scheme().as_bytes();
                OsString::from_vec([scheme, b":", source.name().as_bytes()].concat())
            }
        }
    }

    /// Returns the options given when it was parsed.
    #[must_use]
    pub const fn options(&self) -> SourceOptions {
        let none = SourceOptions::NONE;
        match self {
            Self::Tree { options: TreeOptions { ignore, follow_links }, .. } => {
                SourceOptions { ignore: *ignore, follow_links: *follow_links, ..none }
            }
            Self::Manifest { format: ManifestFormat::Csv { header }, .. } => {
                SourceOptions { no_header: !*header, ..none }
            }
            Self::Manifest { format: ManifestFormat::JsonLines, .. }
            | Self::Lines { .. }
            | Self::Integers(_)
            | Self::Git { .. }
            | Self::Registered(_) => none,
        }
    }

    /// Returns the options of the source, by their names on the command line.
    #[must_use]
    pub(crate) fn settings(&self) -> Vec<(&'static str, bool)> {
        match self {
            Self::Tree { options, .. } => {
                vec![("ignore", options.ignore), ("follow-links", options.follow_links)]
            }
            Self::Manifest { format: ManifestFormat::Csv { header }, .. } => {
                vec![("no-header", !header)]
            }
            Self::Manifest { format: ManifestFormat::JsonLines, .. }
            | Self::Lines { .. }
            | Self::Integers(_)
            | Self::Git { .. }
            | Self::Registered(_) => vec![],
        }
    }

    /// Returns what lies in the source and is no item of it, in words.
    #[must_use]
    pub(crate) fn excluded(&self) -> Vec<&'static str> {
        match self {
            Self::Tree { options, .. } => {
                let mut excluded = vec!["directories, pipes, sockets, devices"];
                if !options.follow_links {
                    excluded.push("symbolic links and what they lead to");
                }
                if options.ignore {
                    excluded.push("hidden files, and what ignore files below the root name");
                }
                excluded
            }
            Self::Manifest { format: ManifestFormat::Csv { header: true }, .. } => {
                vec!["rows of no bytes", "the first row"]
            }
            Self::Manifest { .. } => vec!["rows of no bytes"],
            Self::Git { .. } => vec!["objects that no ref, stash or reflog reaches"],
            Self::Lines { .. } | Self::Integers(_) | Self::Registered(_) => vec![],
        }
    }

    pub(super) fn of_scheme(
        scheme: Scheme,
        rest: &OsStr,
        options: SourceOptions,
    ) -> Result<Self, SourceError> {
        if rest.is_empty() {
            return Err(SourceError::Empty);
        }
        let path = Path::new(rest);
        match scheme {
            Scheme::Tree => Self::tree(path, options),
            Scheme::Lines => Ok(Self::Lines { path: file(path)?, end: LineEnd::Feed }),
            Scheme::Lines0 => Ok(Self::Lines { path: file(path)?, end: LineEnd::Nul }),
            Scheme::Jsonl => Self::manifest(path, ManifestFormat::JsonLines),
            Scheme::Csv => Self::manifest(path, csv(options)),
            Scheme::Range => parse_range(rest.as_bytes()).map(Self::Integers),
            Scheme::Git => Ok(Self::Git { git_dir: resolve(&repository_of(&resolve(path)?)?)? }),
        }
    }

    pub(super) fn of_path(path: &Path, options: SourceOptions) -> Result<Self, SourceError> {
        if path.as_os_str().is_empty() {
            return Err(SourceError::Empty);
        }
        // The disk decides between directory and file, because names do not.
        let found = std::fs::metadata(path).map_err(|error| SourceError::from_io(&error))?;
        if found.is_dir() {
            return Self::tree(path, options);
        }
        match path.extension().map(OsStr::as_bytes) {
            Some(b"jsonl" | b"ndjson") => Self::manifest(path, ManifestFormat::JsonLines),
            Some(b"csv") => Self::manifest(path, csv(options)),
            // Not guessed: a file of lines and a CSV file have different items.
            Some(_) | None => Err(SourceError::BareFile),
        }
    }

    fn tree(path: &Path, options: SourceOptions) -> Result<Self, SourceError> {
        // Resolved first, so that two spellings of one directory are one source.
        let root = resolve(path)?;
        if !root.is_dir() {
            return Err(SourceError::NotADirectory);
        }
        Ok(Self::Tree { root, options: tree_options(options) })
    }

    fn manifest(path: &Path, format: ManifestFormat) -> Result<Self, SourceError> {
        Ok(Self::Manifest { path: file(path)?, format })
    }

    /// Refuses an option without effect: it would be a mistake that goes unnoticed.
    pub(super) fn check_options(&self, options: SourceOptions) -> Result<(), SourceError> {
        let is_tree = matches!(self, Self::Tree { .. });
        let is_csv = matches!(self, Self::Manifest { format: ManifestFormat::Csv { .. }, .. });
        let given = [
            ("ignore", options.ignore && !is_tree),
            ("follow-links", options.follow_links && !is_tree),
            ("no-header", options.no_header && !is_csv),
        ];
        match given.into_iter().find(|(_, misplaced)| *misplaced) {
            Some((option, _)) => Err(SourceError::OptionMisplaced { option }),
            None => Ok(()),
        }
    }
}

// Kinds and lengths only: paths of the user's may be keys elsewhere.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Tree { .. } => "Tree",
            Self::Lines { .. } => "Lines",
            Self::Manifest { .. } => "Manifest",
            Self::Integers(_) => "Integers",
            Self::Git { .. } => "Git",
            Self::Registered(_) => "Registered",
        };
        f.debug_struct(kind).field("text_len", &self.text().len()).finish_non_exhaustive()
    }
}

/// Why a text names no source. Each says what to type instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing, or nothing behind the colon.
    #[error("no source given; use a directory, lines:FILE, jsonl:FILE, csv:FILE or range:A..B")]
    Empty,
    /// A path that leads nowhere.
    #[error(
        "no such file or directory; \
         a source is a directory, lines:FILE, jsonl:FILE, csv:FILE or range:A..B"
    )]
    NotFound,
    /// A path that may not be followed.
    #[error("permission denied for the path of the source")]
    PermissionDenied,
    /// A file of which it is not clear what its items are.
    #[error(
        "it is a file; use lines:FILE, jsonl:FILE or csv:FILE to choose its format, \
         or quote a pattern ('*.txt') to process files themselves"
    )]
    BareFile,
    /// A directory was asked for.
    #[error("not a directory; for a file use lines:FILE, jsonl:FILE or csv:FILE")]
    NotADirectory,
    /// The source must be a file.
    #[error("not a regular file; for a directory use its path or tree:DIR")]
    NotAFile,
    /// The program `git` is missing, which reads repositories.
    #[error("git is not installed; git:REPO needs the program `git` in PATH")]
    NoGit,
    /// Nothing that git accepts as a repository.
    #[error("no git repository, or one that git refuses; `git -C DIR log -1` says why")]
    NotARepository,
    /// Not two integers.
    #[error("a range is range:A..B without B, or range:A..=B with B")]
    MalformedRange,
    /// Its end lies below its beginning.
    #[error("the range ends at {end}, before its start {first}; put the smaller number first")]
    InvertedRange {
        /// The first integer.
        first: u64,
        /// The given end.
        end: u64,
    },
    /// It contains the one number that cannot be a row.
    #[error("the last integer of a range is at most {}", ROWS_END - 1)]
    RangeTooLarge,
    /// An option that means nothing for this source.
    #[error("--{option} does not apply to this kind of source; remove it")]
    OptionMisplaced {
        /// Its name.
        option: &'static str,
    },
    /// The family of the source refuses it.
    #[error(transparent)]
    Refused(SourceRefusal),
    /// The system could not look.
    #[error("the path of the source could not be accessed ({kind}); try again")]
    Unavailable {
        /// How it failed.
        kind: io::ErrorKind,
    },
}

impl SourceError {
    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            // A name that no file can have is the name of none.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            kind => Self::Unavailable { kind },
        }
    }
}

/// The schemes of the built-in families.
#[derive(Clone, Copy)]
pub(super) enum Scheme {
    Tree,
    Lines,
    Lines0,
    Jsonl,
    Csv,
    Range,
    Git,
}

impl Scheme {
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Tree, "tree"),
        (Self::Lines, "lines"),
        (Self::Lines0, "lines0"),
        (Self::Jsonl, "jsonl"),
        (Self::Csv, "csv"),
        (Self::Range, "range"),
        (Self::Git, "git"),
    ];
}

/// Returns the range of all paths.
pub(super) fn root_of_paths() -> ShardSpec {
    let mut scratch = ShardSpecScratch::new();
    let root = range_shard_ref(&FIRST_PATH, &END_OF_PATHS, b"", &mut scratch);
    owned(root.expect("constant bounds in ascending order"))
}

/// Returns the rows `first..end` of a source, of which there is at least one.
fn root_of_rows(first: u64, end: u64) -> ShardSpec {
    let mut scratch = ShardSpecScratch::new();
    let root = manifest_shard_ref(SOURCE_MANIFEST_ID, first, end, b"", &mut scratch);
    owned(root.expect("there is at least one row"))
}

fn owned(spec: ShardSpecRef<'_>) -> ShardSpec {
    ShardSpec::try_from(spec).expect("a borrowed spec was validated")
}

const fn tree_options(options: SourceOptions) -> TreeOptions {
    let SourceOptions { ignore, follow_links, no_header: _ } = options;
    TreeOptions::EVERYTHING.with_ignore(ignore).with_follow_links(follow_links)
}

const fn csv(options: SourceOptions) -> ManifestFormat {
    ManifestFormat::Csv { header: !options.no_header }
}

fn file(path: &Path) -> Result<PathBuf, SourceError> {
    let path = resolve(path)?;
    if path.is_file() { Ok(path) } else { Err(SourceError::NotAFile) }
}

fn resolve(path: &Path) -> Result<PathBuf, SourceError> {
    std::fs::canonicalize(path).map_err(|error| SourceError::from_io(&error))
}

fn parse_range(text: &[u8]) -> Result<IntegerRange, SourceError> {
    let text = std::str::from_utf8(text).map_err(|_| SourceError::MalformedRange)?;
    let (first, end) = text.split_once("..").ok_or(SourceError::MalformedRange)?;
    let (end, inclusive) = match end.strip_prefix('=') {
        Some(last) => (last, true),
        None => (end, false),
    };
    let (first, end) = (parse_integer(first)?, parse_integer(end)?);
    if end < first {
        return Err(SourceError::InvertedRange { first, end });
    }
    match inclusive {
        true => IntegerRange::inclusive(first, end).ok_or(SourceError::RangeTooLarge),
        false => Ok(IntegerRange::new(first, end)),
    }
}

fn parse_integer(text: &str) -> Result<u64, SourceError> {
    let digits: String = text.chars().filter(|letter| *letter != '_').collect();
    // The parser of the standard library would take a plus sign too.
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| digits.parse().ok()).flatten();
    number.ok_or(SourceError::MalformedRange)
}
