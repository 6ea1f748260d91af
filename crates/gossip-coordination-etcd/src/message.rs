//! A transaction on its way to a server: as a message of [`proto`](crate::proto), or as the bytes
//! of one.
//!
//! A model of etcd reads the message, a client of real servers sends the bytes. Most commits are
//! one small transaction of the store layer. To build its message and then encode that takes a
//! dozen allocations; [`LoneTxn`] writes the same bytes into one.
//!
//! # Never
//! - says anything but what [`wire::txn_request`] says: a test compares the bytes;
//! - holds a lease of its own: the sender passes it.

use std::fmt;

use gossip_coordination::store::{Compare, Key, KeyBytes, KeyRange, Txn, Write};
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::keyspace::Namespace;
use crate::proto::{CompareTarget, TxnRequest};
use crate::txn_effect::{Effect, effect};
use crate::wire;

/// A transaction that can be sent.
pub trait TxnMessage: Send {
    /// As a message.
    fn into_request(self) -> TxnRequest;

    /// As the bytes of that message.
    fn encode(self) -> EncodedTxn;
}

/// The bytes of a transaction.
#[derive(Clone)]
pub struct EncodedTxn {
    pub(crate) bytes: Bytes,
    pub(crate) effect: Effect,
}

/// They hold keys and values.
impl fmt::Debug for EncodedTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedTxn(<{} bytes>)", self.bytes.len())
    }
}

impl TxnMessage for TxnRequest {
    fn into_request(self) -> TxnRequest {
        self
    }

    fn encode(self) -> EncodedTxn {
        EncodedTxn { effect: effect(&self), bytes: Bytes::from(self.encode_to_vec()) }
    }
}

/// A transaction of the store layer that travels alone.
#[derive(Clone, Copy)]
pub(crate) struct LoneTxn<'t> {
    pub(crate) namespace: &'t Namespace,
    pub(crate) txn: &'t Txn,
    /// For the keys that it binds.
    pub(crate) lease: i64,
    /// Bytes of the message, if it was measured with this lease.
    pub(crate) measured: Option<usize>,
}

impl TxnMessage for LoneTxn<'_> {
    fn into_request(self) -> TxnRequest {
        let mut request = wire::txn_request(self.namespace, self.txn);
        wire::set_lease(&mut request, self.lease);
        request
    }

    fn encode(self) -> EncodedTxn {
        let len = self.measured.unwrap_or_else(|| self.encoded_len());
        let mut out = Vec::with_capacity(len);
        self.write(&mut out);
        // Lengths are written before their content, so a wrong one would shift everything behind
        // it.
        assert!(out.len() == len, "the measured length is the written one");
        EncodedTxn { bytes: Bytes::from(out), effect: self.effect() }
    }
}

// Numbers of fields that are sent. Each is below 16, so that its tag is one byte, but for
// `RANGE_END_OF_COMPARE`.
const COMPARE: u32 = 1;
const SUCCESS: u32 = 2;
const FAILURE: u32 = 3;
const RANGE: u32 = 1;
const PUT: u32 = 2;
const DELETE: u32 = 3;
/// Of a range, a put and a deletion.
const KEY: u32 = 1;
const RANGE_END: u32 = 2;
const LIMIT: u32 = 3;
const VALUE: u32 = 2;
const LEASE: u32 = 3;
const TARGET: u32 = 2;
const KEY_OF_COMPARE: u32 = 3;
const VERSION: u32 = 4;
const MOD_REVISION: u32 = 6;
const VALUE_OF_COMPARE: u32 = 7;
const RANGE_END_OF_COMPARE: u32 = 64;

/// Bytes of the tag of [`RANGE_END_OF_COMPARE`].
const LONG_TAG_LEN: usize = 2;

/// How a number and a string of bytes are marked beside the number of their field.
const VARINT: u32 = 0;
const BYTES: u32 = 2;

impl<'t> LoneTxn<'t> {
    /// Returns the number of operations in its longest list.
    pub(crate) fn op_count(self) -> usize {
        // The reads of the failure branch are at most as many as the compares.
        self.targets().count().max(self.txn.writes().len())
    }

    /// Returns the length of the message in bytes.
    pub(crate) fn encoded_len(self) -> usize {
        let compares = self.targets().map(|target| nested_len(self.compare_len(target)));
        // Nested twice, because an operation is a message around the request.
        let read = |target| nested_len(nested_len(self.read_len(target)));
        let write = |write: &Write| nested_len(nested_len(self.write_len(write)));
        let writes = self.txn.writes().iter().map(write);
        compares.sum::<usize>()
            + self.read_targets().map(read).sum::<usize>()
            + writes.sum::<usize>()
    }

    fn effect(self) -> Effect {
        let effects = self.txn.writes().iter().map(|write| match write {
            Write::Put(..) | Write::Bind(..) => Effect::Grows,
            Write::Delete(_) => Effect::Shrinks,
        });
        effects.max().unwrap_or(Effect::None)
    }

    /// Returns the compare targets. A range whose end is not behind its start is empty for ever, so
    /// it is left out.
    fn targets(self) -> impl Iterator<Item = Target<'t>> {
        self.txn.compares().iter().filter_map(|compare| match compare {
            Compare::At { key, revision } => {
                // etcd's revisions are signed. No key has the highest one, so the compare fails, as
                // it should.
                let revision = (*revision).min(i64::MAX.cast_unsigned());
                Some(Target::Key { key, state: State::At(revision) })
            }
            Compare::Value { key, value } => Some(Target::Key { key, state: State::Holds(value) }),
            Compare::Absent(key) => Some(Target::Key { key, state: State::Absent }),
            Compare::Empty(range) => {
                let (start, end) = (range.start().as_bytes(), range.end().as_bytes());
                (start < end).then_some(Target::Range(range))
            }
        })
    }

    /// Returns the targets that are read back on a conflict.
    fn read_targets(self) -> impl Iterator<Item = Target<'t>> {
        self.targets().filter(move |_| !self.txn.is_without_read_back())
    }

    /// Writes the whole message; [`encoded_len`](Self::encoded_len) bytes.
    fn write(self, out: &mut Vec<u8>) {
        // In the order of the field numbers, as prost writes them. Compares come first, so writes
        // and reads can copy their keys.
        let mut spelled = Spelled::default();
        for (index, target) in self.targets().enumerate() {
            open(COMPARE, self.compare_len(target), out);
            self.write_compare(target, index, &mut spelled, out);
        }
        for write in self.txn.writes() {
            let len = self.write_len(write);
            open(SUCCESS, nested_len(len), out);
            self.write_write(write, len, &spelled, out);
        }
        for (index, target) in self.read_targets().enumerate() {
            let len = self.read_len(target);
            open(FAILURE, nested_len(len), out);
            open(RANGE, len, out);
            self.write_read(target, spelled.at(index), out);
        }
    }

    fn compare_len(self, target: Target<'_>) -> usize {
        let key = nested_len(self.key_len(target.start_len()));
        match target {
            Target::Key { state: State::At(revision), .. } => {
                number_len(CompareTarget::Mod as u64) + key + number_len(revision)
            }
            Target::Key { state: State::Holds(value), .. } => {
                number_len(CompareTarget::Value as u64) + key + nested_len(value.len())
            }
            Target::Key { state: State::Absent, .. } => key + number_len(0),
            Target::Range(range) => {
                let end = self.key_len(range.end().as_bytes().len());
                key + number_len(0) + LONG_TAG_LEN + encoded_len_varint(end as u64) + end
            }
        }
    }

    /// Writes one compare, without its tag and length, and notes the position of its key.
    fn write_compare(
        self,
        target: Target<'_>,
        index: usize,
        spelled: &mut Spelled,
        out: &mut Vec<u8>,
    ) {
        // Protobuf leaves out fields that are zero: the result `Equal` and the target `Version`.
        match target {
            Target::Key { state: State::At(_), .. } => {
                number(TARGET, CompareTarget::Mod as u64, out);
            }
            Target::Key { state: State::Holds(_), .. } => {
                number(TARGET, CompareTarget::Value as u64, out);
            }
            Target::Key { state: State::Absent, .. } | Target::Range(_) => {}
        }
        target.with_start(|start| self.write_key(KEY_OF_COMPARE, start, out));
        // Counted from the end, because the length prefix before the key varies in size.
        spelled.note(index, out.len() - self.key_len(target.start_len()));
        match target {
            Target::Key { state: State::At(revision), .. } => number(MOD_REVISION, revision, out),
            Target::Key { state: State::Holds(value), .. } => {
                open(VALUE_OF_COMPARE, value.len(), out);
                out.extend_from_slice(value);
            }
            // Sent although it is zero: the presence of the field selects the compared property.
            Target::Key { state: State::Absent, .. } => number(VERSION, 0, out),
            Target::Range(range) => {
                number(VERSION, 0, out);
                self.write_key(RANGE_END_OF_COMPARE, range.end(), out);
            }
        }
    }

    /// Returns the length of the read of a compare that failed.
    fn read_len(self, target: Target<'_>) -> usize {
        let key = nested_len(self.key_len(target.start_len()));
        match target {
            Target::Key { .. } => key,
            Target::Range(range) => {
                let end = self.key_len(range.end().as_bytes().len());
                key + nested_len(end) + number_len(1)
            }
        }
    }

    fn write_read(self, target: Target<'_>, spelled: Option<usize>, out: &mut Vec<u8>) {
        match spelled {
            Some(place) => self.write_again(KEY, place, target.start_len(), out),
            None => target.with_start(|start| self.write_key(KEY, start, out)),
        }
        if let Target::Range(range) = target {
            self.write_key(RANGE_END, range.end(), out);
            number(LIMIT, 1, out);
        }
    }

    fn write_len(self, write: &Write) -> usize {
        let key = nested_len(self.key_len(write.key().kind().key_len()));
        match write {
            Write::Put(_, value) => key + value_len(value),
            Write::Bind(_, value) => key + value_len(value) + self.lease_len(),
            Write::Delete(_) => key,
        }
    }

    /// Writes one write without the tag and length of its operation; `len` is that of the request
    /// in it.
    fn write_write(self, write: &Write, len: usize, spelled: &Spelled, out: &mut Vec<u8>) {
        let (kind, value, lease) = match write {
            Write::Put(_, value) => (PUT, &**value, 0),
            Write::Bind(_, value) => (PUT, &**value, self.lease),
            Write::Delete(_) => (DELETE, &[][..], 0),
        };
        open(kind, len, out);
        match self.compared(write.key()).and_then(|index| spelled.at(index)) {
            Some(place) => self.write_again(KEY, place, write.key().kind().key_len(), out),
            None => self.write_key(KEY, &write.key().to_bytes(), out),
        }
        // As prost does, fields with their default value are left out; `write_len` counts on it.
        if !value.is_empty() {
            open(VALUE, value.len(), out);
            out.extend_from_slice(value);
        }
        if lease != 0 {
            number(LEASE, lease.cast_unsigned(), out);
        }
    }

    /// Returns which of the first targets is this key. Usually one is, and it is the first.
    fn compared(self, written: &Key) -> Option<usize> {
        self.targets().take(SPELLED_MAX).position(|target| match target {
            Target::Key { key, .. } => key == written,
            Target::Range(_) => false,
        })
    }

    fn lease_len(self) -> usize {
        if self.lease == 0 { 0 } else { number_len(self.lease.cast_unsigned()) }
    }

    /// Returns the length of an etcd key of which `len` bytes are the store layer's.
    fn key_len(self, len: usize) -> usize {
        self.namespace.prefix().len() + len
    }

    fn write_key(self, field: u32, key: &KeyBytes, out: &mut Vec<u8>) {
        open(field, self.key_len(key.as_bytes().len()), out);
        out.extend_from_slice(self.namespace.prefix());
        out.extend_from_slice(key.as_bytes());
    }

    /// Copies the key at `place`, of which `len` bytes are the store layer's. Copying it takes a
    /// tenth of the time of formatting its digits.
    fn write_again(self, field: u32, place: usize, len: usize, out: &mut Vec<u8>) {
        let len = self.key_len(len);
        open(field, len, out);
        out.extend_from_within(place..place + len);
    }
}

/// Targets whose place is remembered: most transactions have two, and to look for a key among many
/// would cost more than to write it.
const SPELLED_MAX: usize = 4;

/// Where in the message the keys of the first targets stand.
#[derive(Default)]
struct Spelled {
    places: [Option<usize>; SPELLED_MAX],
}

impl Spelled {
    fn note(&mut self, index: usize, place: usize) {
        if let Some(room) = self.places.get_mut(index) {
            *room = Some(place);
        }
    }

    fn at(&self, index: usize) -> Option<usize> {
        self.places.get(index).copied().flatten()
    }
}

/// The expected state of a key.
#[derive(Clone, Copy)]
enum State<'t> {
    Absent,
    At(u64),
    Holds(&'t [u8]),
}

/// A compared key or range, read back on a conflict.
#[derive(Clone, Copy)]
enum Target<'t> {
    Key {
        key: &'t Key,
        state: State<'t>,
    },
    /// Is empty.
    Range(&'t KeyRange),
}

impl Target<'_> {
    fn start_len(self) -> usize {
        match self {
            Self::Key { key, .. } => key.kind().key_len(),
            Self::Range(range) => range.start().as_bytes().len(),
        }
    }

    fn with_start(self, write: impl FnOnce(&KeyBytes)) {
        match self {
            Self::Key { key, .. } => write(&key.to_bytes()),
            Self::Range(range) => write(range.start()),
        }
    }
}

/// Writes the tag and the length of a field of `len` bytes.
fn open(field: u32, len: usize, out: &mut Vec<u8>) {
    encode_varint(u64::from(field << 3 | BYTES), out);
    encode_varint(len as u64, out);
}

fn number(field: u32, number: u64, out: &mut Vec<u8>) {
    encode_varint(u64::from(field << 3 | VARINT), out);
    encode_varint(number, out);
}

/// Returns the length of a field of `len` bytes.
fn nested_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

fn number_len(number: u64) -> usize {
    1 + encoded_len_varint(number)
}

/// Returns the length of a field that is not sent if it is empty.
fn value_len(value: &[u8]) -> usize {
    if value.is_empty() { 0 } else { nested_len(value.len()) }
}
