//! One atomic write: what must still hold, what to write, what to delete.
//!
//! A transaction is data. An engine checks every compare and then does every write, or does nothing
//! and names a key that was not as expected.
//!
//! # Invariants
//! - A key is written at most once: some engines refuse more, and the order of two writes would be
//!   a rule that nobody wrote down.

use std::fmt;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::key::Key;
use super::range::KeyRange;

/// What must hold for a transaction to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must check every kind")]
pub enum Compare {
    /// The key is as it was when it was loaded.
    At {
        /// Which key.
        key: Key,
        /// Its revision then.
        revision: u64,
    },
    /// There is no such key.
    Absent(Key),
    /// No key lies in the range.
    Empty(KeyRange),
}

impl Compare {
    /// The key that is compared, if it is a single one.
    #[must_use]
    pub const fn key(&self) -> Option<Key> {
        match self {
            Self::At { key, .. } | Self::Absent(key) => Some(*key),
            Self::Empty(_) => None,
        }
    }
}

/// One change of one key.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must do every kind")]
pub enum Write {
    /// Store the bytes under the key.
    Put(Key, Vec<u8>),
    /// Remove the key; nothing happens if it is not there.
    Delete(Key),
    /// As `Put`, and the key vanishes when this process is gone. Only for stores that bind
    /// ([`Store::binding`](super::Store::binding)).
    Bind(Key, Vec<u8>),
}

impl Write {
    /// The key that is changed.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) | Self::Bind(key, _) => key,
        }
    }
}

/// Values hold keys and tokens of tenants, so only their length is shown.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(key, bytes) => write!(f, "Put({:?}, {} bytes)", key.kind(), bytes.len()),
            Self::Delete(key) => write!(f, "Delete({:?})", key.kind()),
            Self::Bind(key, bytes) => write!(f, "Bind({:?}, {} bytes)", key.kind(), bytes.len()),
        }
    }
}

/// Writes up to which a transaction looks through them to see that a key is new: comparing a few
/// keys costs less than hashing one.
const WRITES_COMPARED: usize = 8;

/// Compares and writes that happen together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    compares: Vec<Compare>,
    writes: Vec<Write>,
    /// The keys of `writes`, once there are more than [`WRITES_COMPARED`]; empty before.
    written: HashSet<Key, FixedState>,
    /// Bytes of keys and values to be written.
    byte_count: usize,
    /// Whether a conflict need not tell what is there.
    without_read_back: bool,
}

impl Txn {
    /// A transaction that does nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A transaction that does nothing yet, with room for so many compares and writes.
    #[must_use]
    pub fn with_room(compares: usize, writes: usize) -> Self {
        Self {
            compares: Vec::with_capacity(compares),
            writes: Vec::with_capacity(writes),
            ..Self::default()
        }
    }

    /// Requires that `key` is as it was when it was loaded: at a revision, or absent.
    pub fn expect(&mut self, key: Key, loaded: Option<&Versioned>) {
        self.expect_revision(key, loaded.map(|versioned| versioned.revision));
    }

    /// Requires that `key` is at `revision`, or absent if there is none.
    pub fn expect_revision(&mut self, key: Key, revision: Option<u64>) {
        self.compares.push(match revision {
            Some(revision) => Compare::At { key, revision },
            None => Compare::Absent(key),
        });
    }

    /// Requires that no key lies in `range`.
    pub fn expect_empty(&mut self, range: KeyRange) {
        self.compares.push(Compare::Empty(range));
    }

    /// Writes `bytes` under `key`.
    ///
    /// # Panics
    ///
    /// If the transaction writes the key already.
    pub fn put(&mut self, key: Key, bytes: Vec<u8>) {
        self.byte_count += bytes.len();
        self.write(Write::Put(key, bytes));
    }

    /// Writes `bytes` under `key` for as long as this process lives.
    ///
    /// # Panics
    ///
    /// If the transaction writes the key already.
    pub fn bind(&mut self, key: Key, bytes: Vec<u8>) {
        self.byte_count += bytes.len();
        self.write(Write::Bind(key, bytes));
    }

    /// Removes `key`.
    ///
    /// # Panics
    ///
    /// If the transaction writes the key already.
    pub fn delete(&mut self, key: Key) {
        self.write(Write::Delete(key));
    }

    /// Lets a conflict go without what is there instead: for those who expect none, or who would
    /// have to look at more than was compared. A server that must be told beforehand what to read
    /// then is spared that.
    pub const fn skip_read_back(&mut self) {
        self.without_read_back = true;
    }

    /// Whether a conflict need not tell what is there. An engine may tell it all the same.
    #[must_use]
    pub const fn is_without_read_back(&self) -> bool {
        self.without_read_back
    }

    /// What must hold.
    #[must_use]
    pub fn compares(&self) -> &[Compare] {
        &self.compares
    }

    /// What is done then.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The larger of the number of compares and of writes, which is what engines bound.
    #[must_use]
    pub const fn op_count(&self) -> usize {
        if self.compares.len() > self.writes.len() {
            self.compares.len()
        } else {
            self.writes.len()
        }
    }

    /// Bytes of the keys and values to be written.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.byte_count
    }

    fn write(&mut self, write: Write) {
        assert!(self.is_new(write.key()), "a transaction writes a key once");
        self.byte_count += write.key().kind().key_len();
        self.writes.push(write);
    }

    fn is_new(&mut self, key: &Key) -> bool {
        if self.writes.len() < WRITES_COMPARED {
            return self.writes.iter().all(|write| write.key() != key);
        }
        if self.written.is_empty() {
            self.written.extend(self.writes.iter().map(|write| *write.key()));
        }
        self.written.insert(*key)
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN 4: exactly these three")]
pub enum CommitOutcome {
    /// It happened.
    Applied {
        /// Of every key that it wrote.
        revision: u64,
    },
    /// It did not, because something was not as expected.
    Conflict(Conflict),
    /// The reply was lost: it happened, or did not, or will.
    Unknown,
}

/// What was not as a transaction expected, and what is there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    key: Key,
    /// Empty only if the transaction was terse.
    found: Vec<(Key, Option<Versioned>)>,
}

impl Conflict {
    /// A conflict on the keys of `found`, or `None` without any. For a range that was not empty,
    /// one of its keys stands.
    #[must_use]
    pub fn new(found: Vec<(Key, Option<Versioned>)>) -> Option<Self> {
        let (key, _) = *found.first()?;
        Some(Self { key, found })
    }

    /// What became of `txn` if it was `broken` by these: a conflict that tells of them, unless it
    /// need not; `None` without any.
    #[must_use]
    pub fn of(
        txn: &Txn,
        mut broken: impl Iterator<Item = (Key, Option<Versioned>)>,
    ) -> Option<Self> {
        match txn.is_without_read_back() {
            true => broken.next().and_then(|_| Self::untold(txn)),
            false => Self::new(broken.collect()),
        }
    }

    /// A conflict of a terse transaction: something that it compares was not as expected, and
    /// nothing is told of it. `None` if it compares no key, which none does that is terse.
    #[must_use]
    pub fn untold(txn: &Txn) -> Option<Self> {
        debug_assert!(txn.is_without_read_back(), "who asked what is there is told");
        let key = txn.compares().iter().find_map(Compare::key)?;
        Some(Self { key, found: Vec::new() })
    }

    /// A key that was not as expected; if nothing was told, one that was compared.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Every key that was not as expected, with its value now. Empty if that was not told.
    #[must_use]
    pub fn found(&self) -> &[(Key, Option<Versioned>)] {
        &self.found
    }

    /// The same, for keeps.
    #[must_use]
    pub fn into_found(self) -> Vec<(Key, Option<Versioned>)> {
        self.found
    }
}

/// A stored value and when it was last written.
#[derive(Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Rises with every write of the key, and never comes back.
    pub revision: u64,
    /// The value.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versioned")
            .field("revision", &self.revision)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
