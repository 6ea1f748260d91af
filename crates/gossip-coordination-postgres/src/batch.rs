//! The arguments of one call: a batch of independent transactions, and its answer as their
//! outcomes.
//!
//! # Invariants
//! - No transaction of a batch writes a key that another compares or writes. The server applies
//!   them together, so neither may depend on the other.
//! - A transaction without an answer is [`CommitOutcome::Unknown`].

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    CommitOutcome, Compare, Conflict, Footprint, Key, Txn, Versioned, Write,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::locks::LockPlan;
use crate::param::Param;

/// Transactions of one call. More would make each wait longer for a commit that costs as much.
const TXNS_MAX: usize = 256;

/// Bytes of one call: a batch of this size takes some ten milliseconds.
const BYTES_MAX: usize = 4 << 20;

/// The outcome of one transaction. An error means that it was not applied.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// Independent transactions and a note for each of them.
#[derive(Debug)]
pub(crate) struct Batch<N> {
    txns: Vec<(Txn, N)>,
    /// `None` while there is only one.
    footprint: Option<Footprint>,
    bytes: usize,
}

impl<N> Batch<N> {
    /// Returns a batch of one.
    pub(crate) fn of(txn: Txn, note: N) -> Self {
        Self { bytes: txn.byte_count(), txns: vec![(txn, note)], footprint: None }
    }

    /// Adds a transaction and returns `None`, or returns it unchanged if it must go into another
    /// batch.
    pub(crate) fn add(&mut self, txn: Txn, note: N) -> Option<(Txn, N)> {
        let bytes = self.bytes + txn.byte_count();
        let txns = &self.txns;
        // Built for the second transaction: a batch of one, the usual case, needs no sets.
        let footprint =
            self.footprint.get_or_insert_with(|| txns.iter().map(|(txn, _)| txn).collect());
        if txns.len() >= TXNS_MAX || bytes > BYTES_MAX || footprint.conflicts_with(&txn) {
            return Some((txn, note));
        }
        footprint.add(&txn);
        self.bytes = bytes;
        self.txns.push((txn, note));
        None
    }

    /// Returns whether another transaction may fit.
    pub(crate) fn has_room(&self) -> bool {
        self.txns.len() < TXNS_MAX && self.bytes < BYTES_MAX
    }

    /// Returns the number of transactions; at least one.
    pub(crate) fn len(&self) -> usize {
        self.txns.len()
    }

    /// Returns each transaction with its note.
    pub(crate) fn apart(self) -> impl Iterator<Item = (Txn, N)> {
        self.txns.into_iter()
    }

    /// Returns the transactions.
    pub(crate) fn txns(&self) -> impl Iterator<Item = &Txn> + Clone {
        self.txns.iter().map(|(txn, _)| txn)
    }

    /// Returns each note with its outcome.
    pub(crate) fn answer(
        self,
        outcomes: impl IntoIterator<Item = Outcome>,
    ) -> impl Iterator<Item = (N, Outcome)> {
        // A transaction without an answer may be applied all the same, so it is reported as
        // unknown and not as an error.
        let missing = std::iter::repeat_with(|| Ok(CommitOutcome::Unknown));
        self.txns.into_iter().map(|(_, note)| note).zip(outcomes.into_iter().chain(missing))
    }
}

/// The arguments of the function `commit`.
#[derive(Debug, Default)]
pub(crate) struct CommitCall<'t> {
    incarnation: i64,
    locks: Vec<i64>,
    exclusive: Vec<bool>,
    locks_table: bool,
    anchors: Param<Vec<Vec<u8>>>,
    compare_txn: Vec<i32>,
    compare_key: Param<Vec<Vec<u8>>>,
    compare_revision: Vec<Option<i64>>,
    compare_value: Param<Vec<Option<&'t [u8]>>>,
    compare_reads: Vec<bool>,
    range_txn: Vec<i32>,
    range_start: Param<Vec<&'t [u8]>>,
    range_end: Param<Vec<&'t [u8]>>,
    put_txn: Vec<i32>,
    put_key: Param<Vec<Vec<u8>>>,
    put_value: Param<Vec<&'t [u8]>>,
    delete_txn: Vec<i32>,
    delete_key: Param<Vec<Vec<u8>>>,
}

impl<'t> CommitCall<'t> {
    /// The parameters of the call, in the order of [`CommitCall::params`].
    pub(crate) const TYPES: [Type; 18] = [
        Type::INT8,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::BOOL,
        Type::BYTEA_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
    ];

    /// Returns the call that applies `txns`, under the locks of `plan`.
    pub(crate) fn new(
        incarnation: i64,
        plan: LockPlan,
        txns: impl Iterator<Item = &'t Txn>,
    ) -> Self {
        let LockPlan { groups, locks_table, anchors } = plan;
        let (locks, exclusive) = groups.into_iter().unzip();
        let anchors = Param(anchors.into_iter().collect());
        let mut call =
            Self { incarnation, locks, exclusive, locks_table, anchors, ..Self::default() };
        for (txn, number) in txns.zip(1..) {
            call.add(number, txn);
        }
        call
    }

    fn add(&mut self, number: i32, txn: &'t Txn) {
        for compare in txn.compares() {
            let (key, revision, value) = match compare {
                Compare::At { key, revision } => (key, Some(signed(*revision)), None),
                Compare::Value { key, value } => (key, None, Some(value.as_slice())),
                Compare::Absent(key) => (key, None, None),
                Compare::Empty(range) => {
                    // Ranges have arrays of their own, so a range has no place among the compared
                    // keys.
                    self.range_txn.push(number);
                    self.range_start.0.push(range.start().as_bytes());
                    self.range_end.0.push(range.end().as_bytes());
                    continue;
                }
            };
            self.compare_txn.push(number);
            self.compare_key.0.push(bytes_of(key));
            self.compare_revision.push(revision);
            self.compare_value.0.push(value);
            // The value of a lost compare is sent back only to callers that use it: a record may
            // be large.
            self.compare_reads.push(!txn.is_without_read_back());
        }
        for write in txn.writes() {
            match write {
                // The store binds no keys, so the core sends no `Bind`.
                Write::Put(key, bytes) | Write::Bind(key, bytes) => {
                    self.put_txn.push(number);
                    self.put_key.0.push(bytes_of(key));
                    self.put_value.0.push(bytes);
                }
                Write::Delete(key) => {
                    self.delete_txn.push(number);
                    self.delete_key.0.push(bytes_of(key));
                }
            }
        }
    }

    /// Returns the parameters of the call.
    pub(crate) fn params(&self) -> [&(dyn ToSql + Sync); 18] {
        [
            &self.incarnation,
            &self.locks,
            &self.exclusive,
            &self.locks_table,
            &self.anchors,
            &self.compare_txn,
            &self.compare_key,
            &self.compare_revision,
            &self.compare_value,
            &self.compare_reads,
            &self.range_txn,
            &self.range_start,
            &self.range_end,
            &self.put_txn,
            &self.put_key,
            &self.put_value,
            &self.delete_txn,
            &self.delete_key,
        ]
    }
}

/// The answer to a call of `commit`.
#[derive(Debug)]
pub(crate) enum CommitAnswer {
    /// One outcome per transaction.
    Outcomes(Vec<Outcome>),
    /// Nothing was applied, because the server has another incarnation.
    OtherIncarnation,
}

impl CommitAnswer {
    /// Reads the rows of an answer; `None` if they do not answer the call, which may have been
    /// applied.
    pub(crate) fn read<'t>(txns: impl Iterator<Item = &'t Txn>, rows: &[Row]) -> Option<Self> {
        let (mut revision, mut broken, mut filled) = (None, Vec::new(), Vec::new());
        for row in rows {
            let part: i32 = row.try_get(0).ok()?;
            let at: Option<i64> = row.try_get(3).ok()?;
            match part {
                0 => revision = Some(unsigned(at?)?),
                // The function writes nothing before it returns this row.
                3 => return Some(Self::OtherIncarnation),
                1 | 2 => {
                    let place: i32 = row.try_get(1).ok()?;
                    let place = usize::try_from(place).ok()?.checked_sub(1)?;
                    let bytes: Option<Vec<u8>> = row.try_get(4).ok()?;
                    let found = match (at, bytes) {
                        (Some(at), Some(bytes)) => {
                            Some(Versioned { revision: unsigned(at)?, bytes })
                        }
                        _ => None,
                    };
                    match part {
                        1 => broken.push((place, found)),
                        _ => filled.push((place, row.try_get::<_, Vec<u8>>(2).ok()?, found)),
                    }
                }
                // Unknown to this version: the commit may have been applied.
                _ => return None,
            }
        }
        // The last row: without it the answer is not complete.
        let revision = revision?;
        let (mut compares, mut ranges) = (0, 0);
        let outcomes = txns.map(|txn| {
            let is_range = |compare: &&Compare| matches!(compare, Compare::Empty(_));
            let range_count = txn.compares().iter().filter(is_range).count();
            let key_count = txn.compares().len() - range_count;
            let of_txn = |place: usize, first: usize, count: usize| {
                place.checked_sub(first).filter(|place| *place < count)
            };
            let keys: Vec<Key> = txn.compares().iter().filter_map(Compare::key).collect();
            let mut found = Vec::new();
            for (place, value) in &broken {
                if let Some(place) = of_txn(*place, compares, key_count) {
                    found.push((keys[place], value.clone()));
                }
            }
            for (place, key, value) in &filled {
                if of_txn(*place, ranges, range_count).is_some() {
                    match Key::parse(key) {
                        Ok(key) => found.push((key, value.clone())),
                        Err(malformed) => {
                            let (operation, message) = ("postgres.commit", malformed.to_string());
                            return Err(InfraError::Corruption { operation, message });
                        }
                    }
                }
            }
            (compares, ranges) = (compares + key_count, ranges + range_count);
            if found.is_empty() {
                return Ok(CommitOutcome::Applied { revision });
            }
            // A transaction that compares ranges only has no other key to name.
            let without_values = match txn.is_without_read_back() {
                true => Conflict::without_values(txn),
                false => None,
            };
            let conflict = without_values.or_else(|| Conflict::new(found));
            Ok(conflict.map_or(CommitOutcome::Unknown, CommitOutcome::Conflict))
        });
        Some(Self::Outcomes(outcomes.collect()))
    }
}

fn bytes_of(key: &Key) -> Vec<u8> {
    key.to_bytes().as_bytes().to_vec()
}

/// A revision as the server stores it. Revisions come from a sequence of positive numbers; a
/// larger number is the revision of no key.
fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(-1)
}

/// A revision as the store layer has it.
pub(crate) fn unsigned(revision: i64) -> Option<u64> {
    u64::try_from(revision).ok()
}
