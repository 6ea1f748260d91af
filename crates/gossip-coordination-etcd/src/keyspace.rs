//! Where the keys of one deployment lie among all keys of an etcd cluster.
//!
//! The store layer has one logical keyspace of typed keys. A [`Namespace`] puts a path in front of
//! it: `/team/prod//t/<tenant>/run/<run>`. Two slashes end the path, and no part of a path is
//! empty, so the path of one namespace is never the beginning of another's, even if one is called
//! `team` and the other `team/prod`. A role that may use `/team/prod//` sees that namespace and no
//! other, and one that may use `/team/prod//t/<tenant>/` sees that tenant and no other.
//!
//! # Never
//! - invents a key: everything behind the path is a [`Key`] of the store layer;
//! - takes a key for its own that another namespace wrote.
//!
//! # Invariants
//! - [`Namespace::parse`] accepts exactly what [`Namespace::key`] writes.
//! - No key of one namespace lies in [`Namespace::everything`] of another.

use std::fmt;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::{Key, KeyRange};
use thiserror::Error;

/// Length of the longest path: each compare, put and read repeats it.
pub(crate) const NAMESPACE_LEN_MAX: usize = 128;

/// Separates the parts of a path, and ends it when doubled.
const SEPARATOR: u8 = b'/';
/// Sorts directly behind [`SEPARATOR`], so it ends the range of everything below a path.
const BEHIND_SEPARATOR: u8 = b'0';

const _: () = assert!(SEPARATOR + 1 == BEHIND_SEPARATOR);

/// Bytes around a path: one slash before it and two behind it.
const FRAME_LEN: usize = 3;

/// The part of an etcd cluster that one deployment uses. Clones share its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Namespace {
    /// `/`, the path, `//`.
    prefix: Arc<[u8]>,
}

/// The two ends of a range of etcd keys: from the first up to but not including the second.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySpan {
    /// The first key in the span, if it is not empty.
    pub start: Vec<u8>,
    /// The first key behind it.
    pub end: Vec<u8>,
}

impl Namespace {
    /// Returns the namespace of a path such as `team/prod`. Slashes at both ends are ignored.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] if the path is empty, too long, or has a part that is empty or holds
    /// anything but letters, digits, `.`, `_` and `-`.
    pub fn new(path: &str) -> Result<Self, NamespaceError> {
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Err(NamespaceError::Empty);
        }
        if path.len() > NAMESPACE_LEN_MAX {
            return Err(NamespaceError::TooLong { len: path.len(), max: NAMESPACE_LEN_MAX });
        }
        // Two slashes end a namespace, so none may lie inside.
        if path.split('/').any(str::is_empty) {
            return Err(NamespaceError::EmptyPart);
        }
        if let Some(at) = path.bytes().position(|byte| !is_plain(byte)) {
            return Err(NamespaceError::Character { at });
        }
        Ok(Self { prefix: format!("/{path}//").into_bytes().into() })
    }

    /// Returns the path, without the slashes around it.
    #[must_use]
    pub fn path(&self) -> &str {
        let path = &self.prefix[1..self.prefix.len() - 2];
        std::str::from_utf8(path).expect("a namespace is made of plain characters")
    }

    /// Returns the bytes that every key of the namespace begins with.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the etcd key of `key`.
    #[must_use]
    pub fn key(&self, key: &Key) -> Vec<u8> {
        self.join(key.to_bytes().as_bytes())
    }

    /// Returns the etcd keys of `range`; `None` if its start is not below its end, so that it is
    /// empty.
    #[must_use]
    pub fn span(&self, range: &KeyRange) -> Option<KeySpan> {
        let (start, end) = (range.start().as_bytes(), range.end().as_bytes());
        (start < end).then(|| KeySpan { start: self.join(start), end: self.join(end) })
    }

    /// Returns the span of all keys of the namespace. It has no key of another.
    #[must_use]
    pub fn everything(&self) -> KeySpan {
        let mut end = self.prefix.to_vec();
        // The prefix ends with a slash. With the next byte instead, it sorts behind every key that
        // begins with the prefix.
        if let Some(last) = end.last_mut() {
            *last = BEHIND_SEPARATOR;
        }
        KeySpan { start: self.prefix.to_vec(), end }
    }

    /// Returns the key whose etcd key is `bytes`.
    ///
    /// # Errors
    ///
    /// [`InfraError::Corruption`] if the key was not written by this program.
    pub fn parse(&self, bytes: &[u8]) -> Result<Key, InfraError> {
        let foreign = |message: String| InfraError::Corruption { operation: "etcd.key", message };
        let Some(rest) = bytes.strip_prefix(&*self.prefix) else {
            return Err(foreign(format!("a key of {} bytes of another namespace", bytes.len())));
        };
        Key::parse(rest).map_err(|malformed| foreign(malformed.to_string()))
    }

    fn join(&self, rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.prefix.len() + rest.len());
        bytes.extend_from_slice(&self.prefix);
        bytes.extend_from_slice(rest);
        bytes
    }
}

/// The path is chosen by an operator and no secret, but it may name a customer.
impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace(<{} bytes>)", self.prefix.len() - FRAME_LEN)
    }
}

impl fmt::Debug for KeySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySpan(<{} bytes>..<{} bytes>)", self.start.len(), self.end.len())
    }
}

/// Why a path names no namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is no path: a deployment must not spread over a whole cluster.
    #[error("the namespace is empty; give a path such as etcd://host/team/prod")]
    Empty,
    /// The path is too long.
    #[error("a namespace of {len} bytes exceeds {max}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// Two slashes follow each other, which only the end of a namespace may have.
    #[error("the namespace has an empty part")]
    EmptyPart,
    /// A character that is not allowed.
    #[error("byte {at} of the namespace is no letter, digit, dot, underscore or hyphen")]
    Character {
        /// Where it is.
        at: usize,
    },
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | SEPARATOR)
}
