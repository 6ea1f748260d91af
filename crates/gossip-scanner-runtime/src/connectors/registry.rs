//! The table of source families: scheme → connector.
//!
//! The command line, programs and workers that join a run read sources through one table. It holds
//! the built-in families; a program adds its own under a scheme of its own. A worker in another
//! process finds the source of a run by the same text, so it registers the same families.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::ShardSpec;
use thiserror::Error;

use super::key_format::KeyFormat;
use super::source::{Scheme, Source, SourceError, SourceOptions, SourceStamp, root_of_paths};

/// Longest scheme. It is part of the run's identity and is stored with each shard.
pub const SCHEME_LEN_MAX: usize = 32;

/// A kind of source that a program brings itself.
pub trait SourceFamily: Send + Sync {
    /// Connects to the source `name`, the text after the colon.
    ///
    /// The name is part of the run's identity and is passed to workers in other processes: it must
    /// mean the same source there, and must not contain a credential.
    ///
    /// # Errors
    ///
    /// The source does not exist, or cannot be read.
    fn open(&self, name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError>;

    /// Returns the range that contains all keys of the source: by default from the first key to 256
    /// bytes of `0xFF`. A source with a key outside it is refused when its run is created.
    ///
    /// The hint in its metadata is propagated to every shard of the run. A family of rows returns a
    /// shard of [`manifest_shard_ref`](gossip_frontier::manifest_shard_ref); then all of its keys
    /// must be row keys of that manifest, and cuts fall on rows.
    fn root(&self, name: &OsStr) -> ShardSpec {
        let _ = name;
        root_of_paths()
    }

    /// Returns the name under which the source is stored, which means the same source in another
    /// directory and for another process. By default the name itself.
    ///
    /// Called when a user has typed the name, before a run is created or resumed. A family that
    /// can explain why a source is unusable, and how to correct it, does so here.
    ///
    /// # Errors
    ///
    /// The name is malformed, or the source cannot be processed.
    fn resolve(&self, name: &OsStr) -> Result<OsString, SourceRefusal> {
        Ok(name.to_owned())
    }

    /// Returns whether `{}` of a command is the content of an item, as with rows, and not its key.
    fn is_content(&self, name: &OsStr) -> bool {
        let _ = name;
        false
    }

    /// Returns the columns whose names a command may have in braces, if the content of each item is
    /// a JSON object with these members; by default `None`, and braces are text.
    ///
    /// # Errors
    ///
    /// The source cannot be reached.
    fn columns(&self, name: &OsStr) -> Result<Option<Vec<String>>, ConnectorError> {
        let _ = name;
        Ok(None)
    }

    /// Returns how its keys are written for users: by default as they are.
    fn key_format(&self, name: &OsStr) -> KeyFormat {
        let _ = name;
        KeyFormat::Bytes
    }

    /// Returns the version of the source if its keys are positions, whose meaning changes with the
    /// content: a run is not resumed after the stamp has changed.
    ///
    /// # Errors
    ///
    /// The source cannot be reached.
    fn stamp(&self, name: &OsStr) -> Result<Option<SourceStamp>, ConnectorError> {
        let _ = name;
        Ok(None)
    }
}

/// A function that opens a source by name is a family.
impl<F> SourceFamily for F
where
    F: Fn(&OsStr) -> Result<Box<dyn Connector>, ConnectorError> + Send + Sync,
{
    fn open(&self, name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        self(name)
    }
}

/// A source of a registered family.
#[derive(Clone)]
pub struct RegisteredSource {
    scheme: Arc<str>,
    name: OsString,
    family: Arc<dyn SourceFamily>,
}

impl RegisteredSource {
    /// Returns the scheme of its family.
    #[must_use]
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the text after the colon.
    #[must_use]
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns whether `{}` of a command is the content of an item.
    pub(crate) fn is_content(&self) -> bool {
        self.family.is_content(&self.name)
    }

    /// Returns the columns of its rows, if it has any.
    pub(crate) fn columns(&self) -> Result<Option<Vec<String>>, ConnectorError> {
        self.family.columns(&self.name)
    }

    pub(super) fn family(&self) -> &dyn SourceFamily {
        &*self.family
    }
}

/// Equal names of one scheme are one source; a scheme belongs to one family.
impl PartialEq for RegisteredSource {
    fn eq(&self, other: &Self) -> bool {
        (&self.scheme, &self.name) == (&other.scheme, &other.name)
    }
}

impl Eq for RegisteredSource {}

// The name belongs to the user.
impl fmt::Debug for RegisteredSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredSource").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// One row of the table.
#[derive(Clone)]
enum Family {
    BuiltIn(Scheme),
    Registered(Arc<str>, Arc<dyn SourceFamily>),
}

/// The table of source families.
#[derive(Clone)]
pub struct SourceRegistry {
    families: BTreeMap<Box<[u8]>, Family>,
}

impl SourceRegistry {
    /// Returns the table of the built-in families.
    #[must_use]
    pub fn new() -> Self {
        let row =
            |(scheme, name): (Scheme, &str)| (name.as_bytes().into(), Family::BuiltIn(scheme));
        Self { families: Scheme::ALL.into_iter().map(row).collect() }
    }

    /// Adds a family under `scheme`: sources of it are written `SCHEME:NAME`.
    ///
    /// # Errors
    ///
    /// The scheme is taken, or is not a lower-case letter followed by at least one more lower-case
    /// letter, digit, `+`, `-` or `.`, [`SCHEME_LEN_MAX`] bytes in all.
    pub fn register(
        &mut self,
        scheme: &str,
        family: impl SourceFamily + 'static,
    ) -> Result<(), RegisterError> {
        if !is_scheme(scheme.as_bytes()) {
            return Err(RegisterError::Malformed);
        }
        let key = scheme.as_bytes();
        // Replacing a family would change which source the stored text of a run means.
        if self.families.contains_key(key) {
            return Err(RegisterError::Taken);
        }
        let family = Family::Registered(scheme.into(), Arc::new(family));
        self.families.insert(key.into(), family);
        Ok(())
    }

    /// Reads the text of a source; [`Source`] lists the built-in forms.
    ///
    /// # Errors
    ///
    /// The text has none of the forms, its path does not exist, or an option does not apply to it.
    pub fn parse(&self, text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
        let source = match self.split(text) {
            Some((Family::BuiltIn(scheme), rest)) => Source::of_scheme(*scheme, rest, options)?,
            Some((Family::Registered(scheme, family), rest)) if !rest.is_empty() => {
                registered(scheme, family, &family.resolve(rest).map_err(SourceError::Refused)?)?
            }
            Some((Family::Registered(..), _)) => return Err(SourceError::Empty),
            None => Source::of_path(Path::new(text), options)?,
        };
        source.check_options(options)?;
        Ok(source)
    }

    /// Reads a text that [`Source::text`] returned, without looking up its files: they may be on
    /// another machine.
    ///
    /// # Errors
    ///
    /// The text has none of the forms with a scheme, or an option does not apply to it.
    pub fn restore(&self, text: &OsStr, options: SourceOptions) -> Result<Source, SourceError> {
        let source = match self.split(text).ok_or(SourceError::Empty)? {
            (Family::BuiltIn(scheme), rest) => Source::restore_scheme(*scheme, rest, options)?,
            (Family::Registered(scheme, family), rest) => registered(scheme, family, rest)?,
        };
        source.check_options(options)?;
        Ok(source)
    }

    /// Splits a text at its first colon if a known scheme precedes it.
    fn split<'t>(&self, text: &'t OsStr) -> Option<(&Family, &'t OsStr)> {
        let bytes = text.as_bytes();
        let colon = memchr::memchr(b':', bytes)?;
        // An unknown scheme may be part of a file name that has a colon.
        let family = self.families.get(&bytes[..colon])?;
        Some((family, OsStr::from_bytes(&bytes[colon + 1..])))
    }
}

impl Default for SourceRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SourceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes = self.families.keys().map(|scheme| String::from_utf8_lossy(scheme));
        f.debug_set().entries(schemes).finish()
    }
}

/// Why a family refuses a source, in words for the user: the cause, and a remedy.
///
/// It may name what the user typed, and columns, and never shows a key or a credential.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct SourceRefusal {
    text: Box<str>,
}

impl SourceRefusal {
    /// Creates a refusal with this text.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into() }
    }
}

/// Why a family was not registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another family has the scheme.
    #[error("the scheme is taken by another kind of source; choose another one")]
    Taken,
    /// The scheme could be the beginning of a path.
    #[error("a scheme has 2 to {SCHEME_LEN_MAX} bytes: lower-case letters, digits, `+`, `-`, `.`")]
    Malformed,
}

fn registered(
    scheme: &Arc<str>,
    family: &Arc<dyn SourceFamily>,
    name: &OsStr,
) -> Result<Source, SourceError> {
    if name.is_empty() {
        return Err(SourceError::Empty);
    }
    let (scheme, family) = (Arc::clone(scheme), Arc::clone(family));
    Ok(Source::Registered(RegisteredSource { scheme, name: name.to_owned(), family }))
}

fn is_scheme(scheme: &[u8]) -> bool {
    let is_part =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(byte);
    // At least two letters, as in a URL; a single one is a drive on other systems.
    (2..=SCHEME_LEN_MAX).contains(&scheme.len())
        && scheme[0].is_ascii_lowercase()
        && scheme.iter().all(is_part)
}
