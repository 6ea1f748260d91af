//! An atomic transaction: compares, writes and deletions.
//!
//! A transaction is data. An engine checks every compare and then applies every write, or applies
//! nothing and returns a key whose compare failed.
//!
//! # Invariants
//! - A key is written at most once: some engines refuse more, and the result would depend on an
//!   order of writes that the contract does not define.

use std::fmt;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::key::Key;
use super::range::KeyRange;

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must check every kind")]
pub enum Compare {
    /// The key is unchanged since it was loaded.
    At {
        /// The key.
        key: Key,
        /// Its revision at the load.
        revision: u64,
    },
    /// The key has this value, at whatever revision. For values that must not be mistaken after a
    /// restore from a backup, when revisions repeat.
    Value {
        /// The key.
        key: Key,
        /// Its value.
        value: Arc<Vec<u8>>,
    },
    /// The key does not exist.
    Absent(Key),
    /// No key lies in the range.
    Empty(KeyRange),
}

impl Compare {
    /// Returns the compared key, if it is a single one.
    #[must_use]
    pub const fn key(&self) -> Option<Key> {
        match self {
            Self::At { key, .. } | Self::Value { key, .. } | Self::Absent(key) => Some(*key),
            Self::Empty(_) => None,
        }
    }
}

/// Shows lengths of values only.
impl fmt::Debug for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { key, revision } => write!(f, "At({key:?}, {revision})"),
            Self::Value { key, value } => write!(f, "Value({key:?}, {} bytes)", value.len()),
            Self::Absent(key) => write!(f, "Absent({key:?})"),
            Self::Empty(range) => write!(f, "Empty({range:?})"),
        }
    }
}

/// One write of one key.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must do every kind")]
pub enum Write {
    /// Stores the bytes under the key.
    Put(Key, Vec<u8>),
    /// Deletes the key; no effect if it does not exist.
    Delete(Key),
    /// As `Put`, but the key vanishes when this process dies. Only for stores that bind keys
    /// ([`Store::binding`](super::Store::binding)).
    Bind(Key, Vec<u8>),
}

impl Write {
    /// Returns the written key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) | Self::Bind(key, _) => key,
        }
    }
}

/// Shows lengths only: values contain keys and tokens of tenants.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(key, bytes) => write!(f, "Put({:?}, {} bytes)", key.kind(), bytes.len()),
            Self::Delete(key) => write!(f, "Delete({:?})", key.kind()),
            Self::Bind(key, bytes) => write!(f, "Bind({:?}, {} bytes)", key.kind(), bytes.len()),
        }
    }
}

/// Number of writes up to which duplicates are found by comparison: comparing a few keys costs less
/// than hashing one.
const WRITES_COMPARED: usize = 8;

/// Compares and writes that are applied together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    compares: Vec<Compare>,
    writes: Vec<Write>,
    /// The keys of `writes`, once there are more than [`WRITES_COMPARED`]; empty before.
    written: HashSet<Key, FixedState>,
    /// Bytes of written keys and values, and of compared values.
    byte_count: usize,
    /// Whether a conflict need not return the current values.
    without_read_back: bool,
}

impl Txn {
    /// Creates an empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty transaction with capacity for so many compares and writes.
    #[must_use]
    pub(crate) fn with_room(compares: usize, writes: usize) -> Self {
        Self {
            compares: Vec::with_capacity(compares),
            writes: Vec::with_capacity(writes),
            // The set of written keys is not allocated here, because few transactions need it.
            ..Self::default()
        }
    }

    /// Requires that `key` is unchanged since it was loaded: at its revision, or absent.
    pub fn expect(&mut self, key: Key, loaded: Option<&Versioned>) {
        self.expect_revision(key, loaded.map(|versioned| versioned.revision));
    }

    /// Requires that `key` is at `revision`, or absent if `None`.
    pub fn expect_revision(&mut self, key: Key, revision: Option<u64>) {
        // A key never has the same revision twice, so equal revisions mean equal values.
        self.compares.push(match revision {
            Some(revision) => Compare::At { key, revision },
            None => Compare::Absent(key),
        });
    }

    /// Requires that `key` has `value`, at whatever revision.
    pub fn expect_value(&mut self, key: Key, value: Arc<Vec<u8>>) {
        // Engines limit the size of the request, which contains the value.
        self.byte_count += value.len();
        self.compares.push(Compare::Value { key, value });
    }

    /// Requires that `key` has the loaded value, at whatever revision, or is absent.
    pub(crate) fn expect_same(&mut self, key: Key, loaded: Option<&Versioned>) {
        match loaded {
            Some(loaded) => self.expect_value(key, Arc::new(loaded.bytes.clone())),
            None => self.expect_revision(key, None),
        }
    }

    /// Requires that no key lies in `range`.
    pub fn expect_empty(&mut self, range: KeyRange) {
        self.compares.push(Compare::Empty(range));
    }

    /// Writes `bytes` under `key`.
    ///
    /// # Panics
    ///
    /// Panics if the transaction already writes the key.
    pub fn put(&mut self, key: Key, bytes: Vec<u8>) {
        self.byte_count += bytes.len();
        self.write(Write::Put(key, bytes));
    }

    /// Writes `bytes` under `key` for the lifetime of this process.
    ///
    /// # Panics
    ///
    /// Panics if the transaction already writes the key.
    pub fn bind(&mut self, key: Key, bytes: Vec<u8>) {
        self.byte_count += bytes.len();
        self.write(Write::Bind(key, bytes));
    }

    /// Deletes `key`.
    ///
    /// # Panics
    ///
    /// Panics if the transaction already writes the key.
    pub fn delete(&mut self, key: Key) {
        self.write(Write::Delete(key));
    }

    /// Lets a conflict omit the current values, for callers that expect no conflict or would have
    /// to read more than was compared anyway. A server that needs the reads in the request is
    /// spared them.
    pub const fn skip_read_back(&mut self) {
        self.without_read_back = true;
    }

    /// Returns whether a conflict need not return the current values. An engine may return them.
    #[must_use]
    pub const fn is_without_read_back(&self) -> bool {
        self.without_read_back
    }

    /// Returns the conditions.
    #[must_use]
    pub fn compares(&self) -> &[Compare] {
        &self.compares
    }

    /// Returns the writes.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns the larger of the numbers of compares and of writes, which engines bound.
    #[must_use]
    pub const fn op_count(&self) -> usize {
        // `Ord::max` cannot be called in a const function.
        if self.compares.len() > self.writes.len() {
            self.compares.len()
        } else {
            self.writes.len()
        }
    }

    /// Returns the bytes of written keys and values, and of compared values.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.byte_count
    }

    fn write(&mut self, write: Write) {
        assert!(self.is_new(write.key()), "a transaction writes a key once");
        // Engines limit the size of the request, which contains the keys as well.
        self.byte_count += write.key().kind().key_len();
        self.writes.push(write);
    }

    fn is_new(&mut self, key: &Key) -> bool {
        // Most transactions have few writes and never build the set.
        if self.writes.len() < WRITES_COMPARED {
            return self.writes.iter().all(|write| write.key() != key);
        }
        // Built once, when the comparison above would become quadratic.
        if self.written.is_empty() {
            self.written.extend(self.writes.iter().map(|write| *write.key()));
        }
        self.written.insert(*key)
    }
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 4: exactly these three")]
pub enum CommitOutcome {
    /// The transaction was applied.
    Applied {
        /// The revision of every key it wrote.
        revision: u64,
    },
    /// The transaction was not applied, because a compare failed.
    Conflict(Conflict),
    /// The reply was lost: the transaction was applied, was not, or will be.
    Unknown,
}

/// The failed compares of a transaction, and the current values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    key: Key,
    /// Empty only if the transaction skips read-back.
    found: Vec<(Key, Option<Versioned>)>,
}

impl Conflict {
    /// Creates a conflict on the keys of `found`; `None` if it is empty. A range that was not empty
    /// is represented by one of its keys.
    #[must_use]
    pub fn new(found: Vec<(Key, Option<Versioned>)>) -> Option<Self> {
        let (key, _) = *found.first()?;
        Some(Self { key, found })
    }

    /// Creates the conflict of `txn` from its `broken` compares, with their values unless the
    /// transaction skips read-back; `None` if there are none.
    #[must_use]
    pub fn of(
        txn: &Txn,
        mut broken: impl Iterator<Item = (Key, Option<Versioned>)>,
    ) -> Option<Self> {
        match txn.is_without_read_back() {
            // One failed compare suffices: without values the other compares need no check.
            true => broken.next().and_then(|_| Self::without_values(txn)),
            false => Self::new(broken.collect()),
        }
    }

    /// Creates a conflict without values, for a transaction that skips read-back. `None` if the
    /// transaction compares no key.
    #[must_use]
    pub fn without_values(txn: &Txn) -> Option<Self> {
        assert!(txn.is_without_read_back(), "only a transaction without read-back omits values");
        // Any compared key: the engine did not say which one failed.
        let key = txn.compares().iter().find_map(Compare::key)?;
        Some(Self { key, found: Vec::new() })
    }

    /// Returns a key whose compare failed; without values, one that was compared.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns every key whose compare failed, with its current value. Empty without read-back.
    #[must_use]
    pub fn found(&self) -> &[(Key, Option<Versioned>)] {
        &self.found
    }

    /// Consumes the conflict and returns [`Conflict::found`].
    #[must_use]
    pub(crate) fn into_found(self) -> Vec<(Key, Option<Versioned>)> {
        self.found
    }
}

/// A stored value and its revision.
#[derive(Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Increases with every write of the key and never repeats.
    pub revision: u64,
    /// The value.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the length of the value: it contains keys and tokens of tenants.
        f.debug_struct("Versioned")
            .field("revision", &self.revision)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
