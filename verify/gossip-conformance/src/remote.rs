//! A store in another process: requests and replies as bytes.
//!
//! [`RemoteStore`] encodes each request, sends it through a [`Carrier`] and decodes the reply;
//! [`serve`] is the other end. The store of a handle can thus run in another process, and a suite
//! in one process can test several processes.
//!
//! Both ends are built from the same sources, and the encoding has no version: it is never stored.
//!
//! # Invariants
//! - No state is kept between two requests.
//! - No allocation is sized by a decoded number.

use std::sync::Arc;

use gossip_coordination::store::{
    Answer, CommitOutcome, Compare, Conflict, Key, KeyRange, Page, Read, Store, StoreLimits, Txn,
    Versioned, Write,
};
use gossip_coordination::{InfraError, StoreRefusal};

/// Operation name in errors of a remote store; the message has the operation of the other end.
const STEP: &str = "remote";

/// Transport to a store.
pub trait Carrier {
    /// Sends a request to [`serve`] and returns its reply.
    fn carry(&mut self, request: Vec<u8>) -> Vec<u8>;

    /// See [`Store::wait`].
    fn wait(&mut self, ticks: u64);

    /// The limits of the store at the other end.
    fn limits(&self) -> StoreLimits;

    /// Returns whether to lose the reply to this commit, which is applied all the same.
    fn loses_reply(&mut self) -> bool {
        false
    }
}

/// A store that sends its requests through a [`Carrier`].
#[derive(Debug)]
pub struct RemoteStore<C>(C);

impl<C: Carrier> RemoteStore<C> {
    /// Creates a store over `carrier`.
    pub const fn new(carrier: C) -> Self {
        Self(carrier)
    }

    /// Returns the carrier.
    pub const fn carrier(&self) -> &C {
        &self.0
    }
}

impl<C: Carrier> Store for RemoteStore<C> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let reply = self.0.carry(encoded(&Request::Read(reads)));
        decoded::<Result<Vec<Answer>, InfraError>>(&reply).expect("the reply matches the request")
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let count = txns.len();
        let reply = self.0.carry(encoded(&Request::Commit(txns)));
        if self.0.loses_reply() {
            return vec![Ok(CommitOutcome::Unknown); count];
        }
        decoded::<Vec<Result<CommitOutcome, InfraError>>>(&reply)
            .expect("the reply matches the request")
    }

    fn wait(&mut self, ticks: u64) {
        self.0.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }
}

/// Runs `request` on `store` and returns the reply; `None` if the request is invalid.
pub fn serve(store: &mut impl Store, request: &[u8]) -> Option<Vec<u8>> {
    Some(match decoded(request)? {
        Request::Read(reads) => encoded(&store.read(reads)),
        Request::Commit(txns) => encoded(&store.commit(txns)),
    })
}

/// Encodes bytes as one line of text.
#[must_use]
pub fn to_line(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut line, byte| {
        line.extend([byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)])));
        line
    })
}

/// Decodes a line of [`to_line`]; `None` if it is invalid.
#[must_use]
pub fn from_line(line: &str) -> Option<Vec<u8>> {
    let half = |digit: u8| DIGITS.iter().position(|known| *known == digit);
    let byte = |pair: &[u8]| u8::try_from(half(pair[0])? << 4 | half(*pair.get(1)?)?).ok();
    line.as_bytes().chunks(2).map(byte).collect()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A request.
enum Request {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
}

/// A value that can be encoded.
trait Wire: Sized {
    fn write(&self, out: &mut Vec<u8>);

    /// Decodes a value from the front of `bytes`.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.write(&mut out);
    out
}

fn decoded<T: Wire>(mut bytes: &[u8]) -> Option<T> {
    let value = T::read(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

/// Decodes the tag of a variant.
fn tag(bytes: &mut &[u8]) -> Option<u8> {
    let (tag, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*tag)
}

impl Wire for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(Self::from_le_bytes(*number))
    }
}

impl Wire for usize {
    fn write(&self, out: &mut Vec<u8>) {
        (*self as u64).write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Self::try_from(u64::read(bytes)?).ok()
    }
}

/// Encodes bytes with a length prefix. A function, because `Vec<T>` implements lists.
fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.len().write(out);
    out.extend(bytes);
}

fn read_bytes<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::read(bytes)?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let count = usize::read(bytes)?;
        let mut values = Self::new();
        for _ in 0..count {
            values.push(T::read(bytes)?);
        }
        Some(values)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        self.iter().for_each(|value| value.write(out));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(None),
            1 => Some(Some(T::read(bytes)?)),
            _ => None,
        }
    }
}

impl<T: Wire> Wire for Result<T, InfraError> {
    fn write(&self, out: &mut Vec<u8>) {
        let (tag, reason) = match self {
            Ok(value) => {
                out.push(0);
                return value.write(out);
            }
            Err(InfraError::Transient { .. }) => (1, None),
            Err(InfraError::Corruption { .. }) => (2, None),
            Err(InfraError::Refused { why, .. }) => (3, Some(*why)),
            Err(other) => unreachable!("{other:?} has no tag"),
        };
        out.push(tag);
        out.extend(reason.map(|why| why as u8));
        let message = self.as_ref().err().map(ToString::to_string).unwrap_or_default();
        write_bytes(message.as_bytes(), out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let tag = tag(bytes)?;
        if tag == 0 {
            return Some(Ok(T::read(bytes)?));
        }
        let why = if tag == 3 { Some(refusal(self::tag(bytes)?)?) } else { None };
        let (operation, message) = (STEP, String::from_utf8(read_bytes(bytes)?.to_vec()).ok()?);
        Some(Err(match (tag, why) {
            (1, None) => InfraError::Transient { operation, message },
            (2, None) => InfraError::Corruption { operation, message },
            (3, Some(why)) => InfraError::Refused { operation, why, message },
            _ => return None,
        }))
    }
}

/// Decodes a refusal by its number.
fn refusal(number: u8) -> Option<StoreRefusal> {
    let all = [
        StoreRefusal::TooLarge,
        StoreRefusal::NoSpace,
        StoreRefusal::ReadOnly,
        StoreRefusal::NotPermitted,
        StoreRefusal::NewerFormat,
        StoreRefusal::Unusable,
    ];
    all.into_iter().find(|why| *why as u8 == number)
}

impl Wire for Key {
    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(self.to_bytes().as_bytes(), out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Self::parse(read_bytes(bytes)?).ok()
    }
}

impl Wire for KeyRange {
    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(self.start().as_bytes(), out);
        write_bytes(self.end().as_bytes(), out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Self::between(read_bytes(bytes)?, read_bytes(bytes)?)
    }
}

impl Wire for Versioned {
    fn write(&self, out: &mut Vec<u8>) {
        self.revision.write(out);
        write_bytes(&self.bytes, out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let revision = u64::read(bytes)?;
        Some(Self { revision, bytes: read_bytes(bytes)?.to_vec() })
    }
}

impl Wire for Request {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Read(reads) => {
                out.push(0);
                reads.write(out);
            }
            Self::Commit(txns) => {
                out.push(1);
                txns.write(out);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(Self::Read(Vec::read(bytes)?)),
            1 => Some(Self::Commit(Vec::read(bytes)?)),
            _ => None,
        }
    }
}

impl Wire for Read {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get(key) => {
                out.push(0);
                key.write(out);
            }
            Self::Scan { range, limit } => {
                out.push(1);
                range.write(out);
                limit.write(out);
            }
            Self::Count(range) => {
                out.push(2);
                range.write(out);
            }
            Self::ScanFirst { ranges, limit } => {
                out.push(3);
                ranges.write(out);
                limit.write(out);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(Self::Get(Key::read(bytes)?)),
            1 => Some(Self::Scan { range: KeyRange::read(bytes)?, limit: usize::read(bytes)? }),
            2 => Some(Self::Count(KeyRange::read(bytes)?)),
            3 => Some(Self::ScanFirst { ranges: Vec::read(bytes)?, limit: usize::read(bytes)? }),
            _ => None,
        }
    }
}

impl Wire for Answer {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(value) => {
                out.push(0);
                value.write(out);
            }
            Self::Page(page) => {
                out.push(1);
                page.write(out);
            }
            Self::Count(count) => {
                out.push(2);
                count.write(out);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(Self::Value(Option::read(bytes)?)),
            1 => Some(Self::Page(Page::read(bytes)?)),
            2 => Some(Self::Count(u64::read(bytes)?)),
            _ => None,
        }
    }
}

impl Wire for Txn {
    fn write(&self, out: &mut Vec<u8>) {
        self.compares().to_vec().write(out);
        self.writes().to_vec().write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut txn = Self::new();
        for compare in Vec::read(bytes)? {
            match compare {
                Compare::At { key, revision } => txn.expect_revision(key, Some(revision)),
                Compare::Value { key, value } => txn.expect_value(key, value),
                Compare::Absent(key) => txn.expect_revision(key, None),
                Compare::Empty(range) => txn.expect_empty(range),
            }
        }
        for write in Vec::read(bytes)? {
            match write {
                Write::Put(key, value) => txn.put(key, value),
                Write::Delete(key) => txn.delete(key),
                Write::Bind(key, value) => txn.bind(key, value),
            }
        }
        Some(txn)
    }
}

impl Wire for Compare {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::At { key, revision } => {
                out.push(0);
                key.write(out);
                revision.write(out);
            }
            Self::Absent(key) => {
                out.push(1);
                key.write(out);
            }
            Self::Empty(range) => {
                out.push(2);
                range.write(out);
            }
            Self::Value { key, value } => {
                out.push(3);
                key.write(out);
                write_bytes(value, out);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(Self::At { key: Key::read(bytes)?, revision: u64::read(bytes)? }),
            1 => Some(Self::Absent(Key::read(bytes)?)),
            2 => Some(Self::Empty(KeyRange::read(bytes)?)),
            3 => {
                let (key, value) = (Key::read(bytes)?, read_bytes(bytes)?);
                Some(Self::Value { key, value: Arc::new(value.to_vec()) })
            }
            _ => None,
        }
    }
}

impl Wire for Write {
    fn write(&self, out: &mut Vec<u8>) {
        let (tag, key, value) = match self {
            Self::Put(key, value) => (0, key, &value[..]),
            Self::Delete(key) => (1, key, &[][..]),
            Self::Bind(key, value) => (2, key, &value[..]),
        };
        out.push(tag);
        key.write(out);
        write_bytes(value, out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (tag, key) = (tag(bytes)?, Key::read(bytes)?);
        let value = read_bytes(bytes)?.to_vec();
        match tag {
            0 => Some(Self::Put(key, value)),
            1 => Some(Self::Delete(key)),
            2 => Some(Self::Bind(key, value)),
            _ => None,
        }
    }
}

impl Wire for CommitOutcome {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Applied { revision } => {
                out.push(0);
                revision.write(out);
            }
            Self::Conflict(conflict) => {
                out.push(1);
                conflict.found().to_vec().write(out);
            }
            Self::Unknown => out.push(2),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match tag(bytes)? {
            0 => Some(Self::Applied { revision: u64::read(bytes)? }),
            1 => Some(Self::Conflict(Conflict::new(Vec::read(bytes)?)?)),
            2 => Some(Self::Unknown),
            _ => None,
        }
    }
}
