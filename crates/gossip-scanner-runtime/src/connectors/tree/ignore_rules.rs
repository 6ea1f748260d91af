//! What ripgrep passes over.
//!
//! In each directory the files `.rgignore`, `.ignore`, `.gitignore` and `.git/info/exclude` hold
//! patterns, in this order of precedence; within one kind the innermost directory speaks first.
//! What begins with a dot is left out unless a pattern wants it. Patterns that cannot be understood
//! are passed over.
//!
//! So that the same source means the same on every machine, this matches ripgrep with
//! `--no-ignore-parent`, `--no-ignore-global` and `--no-require-git`: nothing above the root and no
//! settings of the user are read, and `.gitignore` counts with or without a repository.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use gossip_contracts::connector::ConnectorError;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The longest ignore file that is read; a longer one is [`ConnectorError::Malformed`], since to
/// leave out the rest would change what the source is.
const IGNORE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The rules of one directory, and of those above it.
pub(super) struct Rules {
    /// One for each kind, in the order of precedence.
    patterns: [Gitignore; KINDS.len()],
    above: Option<Arc<Self>>,
}

/// The kinds of ignore files, by their place in the directory.
const KINDS: [&str; 4] = [".rgignore", ".ignore", ".gitignore", ".git/info/exclude"];

impl Rules {
    /// Reads the rules of `directory`, which lies in the one that `above` is of.
    ///
    /// # Errors
    ///
    /// An ignore file is there and cannot be read, or is too long.
    pub(super) fn read(
        directory: &Path,
        above: Option<Arc<Self>>,
    ) -> Result<Arc<Self>, ConnectorError> {
        let mut patterns = [const { None }; KINDS.len()];
        for (slot, kind) in patterns.iter_mut().zip(&KINDS) {
            *slot = Some(read_patterns(directory, kind)?);
        }
        let patterns = patterns.map(|slot| slot.unwrap_or_else(Gitignore::empty));
        Ok(Arc::new(Self { patterns, above }))
    }

    /// Returns whether the entry at `path`, which lies in this directory, is left out: the kinds of
    /// ignore files are tried in the order of precedence, and the first that matches decides.
    /// Hidden entries that no pattern matches are left out. It reads nothing.
    pub(super) fn exclude(&self, path: &Path, name: &[u8], is_directory: bool) -> bool {
        for index in 0..KINDS.len() {
            match self.verdict(index, path, is_directory) {
                Match::None => {}
                Match::Ignore(()) => return true,
                Match::Whitelist(()) => return false,
            }
        }
        // After all patterns, because a pattern may include a hidden file.
        name.starts_with(b".")
    }

    /// Returns the decision of one kind of ignore file: that of the innermost directory whose
    /// patterns match, or `Match::None` if none do up to the root.
    fn verdict(&self, index: usize, path: &Path, is_directory: bool) -> Match<()> {
        let mut rules = Some(self);
        while let Some(here) = rules {
            let verdict = here.patterns[index].matched(path, is_directory).map(|_| ());
            if !verdict.is_none() {
                return verdict;
            }
            rules = here.above.as_deref();
        }
        Match::None
    }
}

/// Returns the patterns of one ignore file; none if it does not exist or is not a regular file.
///
/// Fails if the file exists and cannot be read, or is longer than [`IGNORE_FILE_BYTES_MAX`]. Lines
/// that are not valid patterns are ignored.
fn read_patterns(directory: &Path, file: &str) -> Result<Gitignore, ConnectorError> {
    let path = directory.join(file);
    // The kind of file is checked before it is opened, because opening a pipe waits for a writer.
    let opened = match std::fs::metadata(&path) {
        Ok(found) if !found.is_file() => return Ok(Gitignore::empty()),
        Ok(_) => File::open(&path),
        Err(error) => Err(error),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Gitignore::empty());
        }
        Err(error) => return Err(ConnectorError::from_io(&error)),
    };
    let mut bytes = Vec::new();
    // One byte more than the limit: a file of exactly the limit is valid, and a longer one must
    // not be cut silently.
    let read = opened.take(IGNORE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| ConnectorError::from_io(&error))?;
    if bytes.len() as u64 > IGNORE_FILE_BYTES_MAX {
        return Err(ConnectorError::Malformed { position: IGNORE_FILE_BYTES_MAX });
    }
    Ok(parse_patterns(directory, &bytes))
}

fn parse_patterns(directory: &Path, bytes: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(directory);
    let text = String::from_utf8_lossy(bytes);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // ripgrep ignores an invalid pattern too, and this must list the same items.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
