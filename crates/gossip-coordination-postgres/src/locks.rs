//! The locks under which a transaction is compared and applied.
//!
//! Every key belongs to a *group*: those of a run, those of a tenant that belong to no run, those
//! of the operator. A transaction locks the groups of all keys that it compares or writes, each in
//! a shared or in the exclusive mode, and then the rows of its *anchors*:
//!
//! - *Guards* are keys that many transactions compare and few write, above all the head of a run.
//!   Comparing one needs the shared lock of its group, writing one the exclusive lock.
//! - Every other key has an anchor: the hot part of its shard, the record of its handoff, or the
//!   key itself. If the transaction compares the anchor's revision, its row is locked, and that
//!   protects the key while the group is shared. Otherwise the group is locked exclusively; so are
//!   the groups of new keys, which have no row to lock.
//! - An event is written by one process and its key compared by no operation, so writing one locks
//!   nothing besides the shared lock of its group, which its transaction has anyway.
//! - A compared range within a run needs the exclusive lock of the run; any other range locks the
//!   whole table against writers.
//!
//! So two transactions run at the same time only if neither writes what the other compares or
//! writes. Groups are locked in the order of their numbers and rows in the order of their keys, and
//! no lock is taken after the first row, so no two transactions wait for each other.
//!
//! The mapping from keys to locks is part of the schema: programs that share a store must agree on
//! it, so a change of it needs a new version of the schema.
//!
//! An advisory lock has no owner and no access rule. It orders transactions and never separates
//! tenants.

use std::collections::{BTreeMap, BTreeSet};

use gossip_coordination::store::{Compare, Key, KeyBytes, KeyRange, Txn};

/// Locks of one call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LockPlan {
    /// Whether each group is locked exclusively, by the number of its lock.
    pub(crate) groups: BTreeMap<i64, bool>,
    /// Whether the whole table is locked against writers.
    pub(crate) locks_table: bool,
    /// Keys whose rows are locked.
    pub(crate) anchors: BTreeSet<Vec<u8>>,
}

impl LockPlan {
    /// Adds the locks of `txn` on the store with this seed (see [`seed`]).
    pub(crate) fn add(&mut self, seed: u64, txn: &Txn) {
        let mut locked = BTreeSet::new();
        for compare in txn.compares() {
            // If the revision is compared, the row exists or the transaction fails, so its lock
            // suffices. An absent key has no row to lock.
            if let Compare::At { key, .. } = compare
                && protection(key).is_row_of(key)
            {
                locked.insert(key.to_bytes().as_bytes().to_vec());
            }
        }
        let is_anchored = |key: &Key| match protection(key) {
            Protection::Guard => None,
            Protection::OwnRow => Some(locked.contains(key.to_bytes().as_bytes())),
            Protection::Anchor(anchor) => Some(locked.contains(anchor.to_bytes().as_bytes())),
        };
        for compare in txn.compares() {
            match compare {
                Compare::At { key, .. } | Compare::Value { key, .. } | Compare::Absent(key) => {
                    // A guard is only compared, which other transactions may do as well.
                    self.lock(seed, group(key), !is_anchored(key).unwrap_or(true));
                }
                Compare::Empty(range) => match group_of_range(range) {
                    Some(group) => self.lock(seed, group, true),
                    None => self.locks_table = true,
                },
            }
        }
        for write in txn.writes() {
            let key = write.key();
            let is_free = matches!(protection(key), Protection::OwnRow);
            self.lock(seed, group(key), !is_free && !is_anchored(key).unwrap_or(false));
        }
        self.anchors.append(&mut locked);
    }

    fn lock(&mut self, seed: u64, group: KeyBytes, is_exclusive: bool) {
        // The stronger mode wins. An upgrade from shared to exclusive would be a deadlock of two
        // such transactions.
        *self.groups.entry(number(seed, group.as_bytes())).or_default() |= is_exclusive;
    }
}

/// Returns the number from which the locks of a schema are derived: locks belong to the database,
/// and several stores may share one.
pub(crate) fn seed(schema: &str) -> u64 {
    hash(FNV_OFFSET, schema.as_bytes())
}

/// What keeps a key unchanged between its comparison and the commit.
enum Protection {
    /// The lock of its group.
    Guard,
    /// The row of this key, if its revision is compared; the lock of the group otherwise.
    Anchor(Key),
    /// As an anchor that is the key itself, for one that a single process writes without a
    /// comparison: a write needs no lock.
    OwnRow,
}

impl Protection {
    /// Returns whether the row of `key` is locked if its revision is compared.
    fn is_row_of(&self, key: &Key) -> bool {
        match self {
            Self::Guard => false,
            Self::Anchor(anchor) => anchor == key,
            Self::OwnRow => true,
        }
    }
}

fn protection(key: &Key) -> Protection {
    match *key {
        Key::ShardHot { tenant, shard }
        | Key::ShardCold { tenant, shard }
        | Key::Owner { tenant, shard }
        | Key::ClaimIndex { tenant, shard, .. }
        | Key::ParkedIndex { tenant, shard }
        | Key::Failure { tenant, shard, .. }
        | Key::KeyLedger { tenant, shard, .. }
        | Key::ResultBlock { tenant, shard, .. } => {
            Protection::Anchor(Key::ShardHot { tenant, shard })
        }
        Key::Handoff { tenant, handoff } | Key::HandoffIndex { tenant, handoff, .. } => {
            Protection::Anchor(Key::Handoff { tenant, handoff })
        }
        Key::TenantCounter { .. } | Key::Worker { .. } => Protection::Anchor(*key),
        Key::Event { .. } => Protection::OwnRow,
        // Right for every kind, and slow for those that many transactions write.
        Key::RunHead { .. }
        | Key::RunRoots { .. }
        | Key::Tombstone { .. }
        | Key::FenceFloor { .. }
        | Key::Budget { .. }
        | Key::Allotment { .. }
        | Key::TenantEntry { .. }
        | Key::SchemaVersion => Protection::Guard,
    }
}

/// Returns a key that names the group of `key`.
fn group(key: &Key) -> KeyBytes {
    let name = match *key {
        Key::RunHead { tenant, run }
        | Key::RunRoots { tenant, run, .. }
        | Key::Tombstone { tenant, run }
        | Key::FenceFloor { tenant, run }
        | Key::Event { tenant, run, .. }
        | Key::Budget { tenant, run, .. } => Key::RunHead { tenant, run },
        Key::ShardHot { tenant, shard }
        | Key::ShardCold { tenant, shard }
        | Key::Owner { tenant, shard }
        | Key::ClaimIndex { tenant, shard, .. }
        | Key::ParkedIndex { tenant, shard }
        | Key::Failure { tenant, shard, .. }
        | Key::KeyLedger { tenant, shard, .. }
        | Key::ResultBlock { tenant, shard, .. } => Key::RunHead { tenant, run: shard.run() },
        Key::TenantCounter { tenant }
        | Key::Worker { tenant, .. }
        | Key::Handoff { tenant, .. }
        | Key::HandoffIndex { tenant, .. } => Key::TenantCounter { tenant },
        Key::Allotment { .. } | Key::TenantEntry { .. } | Key::SchemaVersion => Key::SchemaVersion,
    };
    name.to_bytes()
}

/// Returns the group of a range if it lies within one run.
fn group_of_range(range: &KeyRange) -> Option<KeyBytes> {
    // The first keys at both ends are of the same run, and the kinds of a run are contiguous.
    let (start, end) = (range.start().as_bytes(), range.end().as_bytes());
    let shared = start.iter().zip(end).take_while(|(one, other)| one == other).count();
    let mut parts = start[..shared].split(|byte| *byte == b'/');
    let (scope, tenant) = (parts.next()?, parts.next()?);
    let (kind, run) = (parts.next()?, parts.next()?);
    let is_of_run = matches!(kind, b"claim" | b"parked" | b"hot" | b"cold" | b"owner" | b"roots");
    if !is_of_run {
        return None;
    }
    // Refused unless it is spelled as a key, so a part that is cut short names no run.
    let head = Key::parse(&[scope, tenant, b"run", run].join(&b'/')).ok()?;
    Some(head.to_bytes())
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the number of a lock: the same in every process and on every machine. Two groups with
/// one number wait for each other and are otherwise unharmed.
fn number(seed: u64, group: &[u8]) -> i64 {
    hash(seed, group).cast_signed()
}

/// FNV-1a.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}
