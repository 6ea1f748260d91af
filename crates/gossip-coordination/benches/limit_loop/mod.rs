//! What no coordinator in memory can avoid, and nothing else.
//!
//! Each function does the work that an accepted operation needs by its rules, on one contiguous
//! record per shard: find it by tenant, run and id; check status, fence, expiry and owner; hash the
//! payload (one keyed block of BLAKE3); look for the operation among the sixteen remembered by
//! one-byte tags; compare keys; write. There is no replay, no event, no index of claims or
//! deadlines, no limit, no error with its reasons, no second tenant, and no way to free anything.
//!
//! It is a yardstick, not an alternative: benchmarks state how many times its time the real one
//! takes, and how many times the time of one bare keyed block it takes itself, so that it cannot
//! be padded without being seen.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use gossip_contracts::identity::{OpId, ShardKey, TenantId};
use gossip_coordination::{Lease, OP_LOG_CAP};
use hashbrown::{HashMap, HashTable};

use crate::support::{BOUND_LEN, CURSOR_LEN, METADATA, WORKER, bound, cursor_key, key_of};

/// The key of the payload hash: any will do.
pub const HASH_KEY: [u8; 32] = [42; 32];

/// One block of BLAKE3, which is also what a cursor occupies.
pub const BLOCK: usize = 64;

/// Everything about one shard, in one piece of memory.
#[repr(C, align(64))]
struct Record {
    key: ShardKey,
    fence: u64,
    owner: u64,
    /// Zero when nobody holds the shard.
    deadline: u64,
    active: bool,
    next_entry: u8,
    cursor_len: u16,
    tags: [u8; OP_LOG_CAP],
    cursor: [u8; BLOCK],
    start: [u8; BOUND_LEN],
    end: [u8; BOUND_LEN],
    metadata: [u8; METADATA.len()],
    /// Id, hash and time.
    entries: [[u64; 3]; OP_LOG_CAP],
}

/// Where a snapshot is copied to, as in an acquire.
pub struct Snapshot {
    /// Bounds, metadata and cursor.
    pub bytes: [u8; 192],
}

/// Records found by tenant, then by run and shard.
pub struct LimitLoop {
    tenants: HashMap<TenantId, HashTable<u32>, FixedState>,
    records: Vec<Record>,
}

impl LimitLoop {
    /// `shards` records, the same as those of [`crate::support::idle`], held if `held`.
    pub fn new(tenant: TenantId, shards: usize, held: bool) -> Self {
        let mut table = HashTable::with_capacity(shards);
        let mut records = Vec::with_capacity(shards);
        for index in 0..shards {
            records.push(Record::new(index, held));
            let slot = index as u32;
            table.insert_unique(hash(key_of(index)), slot, |slot| hash(key_of(*slot as usize)));
        }
        let mut tenants = HashMap::default();
        tenants.insert(tenant, table);
        Self { tenants, records }
    }

    /// The work of a checkpoint; whether it was accepted.
    #[inline(never)]
    pub fn checkpoint(
        &mut self,
        now: u64,
        tenant: TenantId,
        lease: &Lease,
        op_id: OpId,
        cursor: &[u8; CURSOR_LEN],
    ) -> bool {
        let Some(record) = self.find(tenant, lease.key()) else { return false };
        let payload_hash = payload_hash(cursor);
        if record.remembers(op_id) || !record.may(now, lease) {
            return false;
        }
        let old = &record.cursor[..usize::from(record.cursor_len)];
        let in_bounds = record.start[..] <= cursor[..] && cursor[..] < record.end[..];
        if cursor[..] < *old || !in_bounds {
            return false;
        }
        record.cursor[..CURSOR_LEN].copy_from_slice(cursor);
        record.cursor_len = CURSOR_LEN as u16;
        record.remember(op_id, payload_hash, now);
        true
    }

    /// The work of a renewal; the new deadline, or zero if it was refused.
    #[inline(never)]
    pub fn renew(&mut self, now: u64, tenant: TenantId, lease: &Lease, duration: u64) -> u64 {
        match self.find(tenant, lease.key()) {
            Some(record) if record.may(now, lease) => {
                record.deadline = record.deadline.max(now + duration);
                record.deadline
            }
            Some(_) | None => 0,
        }
    }

    /// The work of an acquire; the new fence, or zero if it was refused.
    #[inline(never)]
    pub fn acquire(
        &mut self,
        now: u64,
        tenant: TenantId,
        key: ShardKey,
        duration: u64,
        snapshot: &mut Snapshot,
    ) -> u64 {
        let Some(record) = self.find(tenant, key) else { return 0 };
        if !record.active || now < record.deadline {
            return 0;
        }
        record.fence += 1;
        record.owner = WORKER.as_raw();
        record.deadline = now + duration;
        let (cursor, rest) = snapshot.bytes.split_at_mut(BLOCK);
        cursor.copy_from_slice(&record.cursor);
        rest[..BOUND_LEN].copy_from_slice(&record.start);
        rest[BOUND_LEN..2 * BOUND_LEN].copy_from_slice(&record.end);
        rest[2 * BOUND_LEN..][..METADATA.len()].copy_from_slice(&record.metadata);
        record.fence
    }

    /// Makes a shard free again; not measured.
    pub fn release(&mut self, tenant: TenantId, key: ShardKey) {
        if let Some(record) = self.find(tenant, key) {
            record.deadline = 0;
        }
    }

    #[inline]
    fn find(&mut self, tenant: TenantId, key: ShardKey) -> Option<&mut Record> {
        let table = self.tenants.get(&tenant)?;
        let slot = table.find(hash(key), |slot| self.records[*slot as usize].key == key)?;
        Some(&mut self.records[*slot as usize])
    }
}

impl Record {
    fn new(index: usize, held: bool) -> Self {
        let mut cursor = [0; BLOCK];
        cursor[..CURSOR_LEN].copy_from_slice(&cursor_key(index, 0));
        Self {
            key: key_of(index),
            fence: if held { 2 } else { 1 },
            owner: WORKER.as_raw(),
            deadline: if held { u64::MAX / 2 } else { 0 },
            active: true,
            next_entry: 0,
            cursor_len: CURSOR_LEN as u16,
            tags: [0; OP_LOG_CAP],
            cursor,
            start: bound(index),
            end: bound(index + 1),
            metadata: *METADATA,
            entries: [[0; 3]; OP_LOG_CAP],
        }
    }

    #[inline]
    fn may(&self, now: u64, lease: &Lease) -> bool {
        let current = self.fence == lease.fence().as_raw() && self.owner == lease.owner().as_raw();
        self.active && current && now < self.deadline
    }

    #[inline]
    fn remembers(&self, op_id: OpId) -> bool {
        let mut candidates = 0_u32;
        for (index, tag) in self.tags.iter().enumerate() {
            candidates |= u32::from(*tag == op_id.as_raw() as u8) << index;
        }
        while candidates != 0 {
            if self.entries[candidates.trailing_zeros() as usize][0] == op_id.as_raw() {
                return true;
            }
            candidates &= candidates - 1;
        }
        false
    }

    #[inline]
    fn remember(&mut self, op_id: OpId, payload_hash: u64, now: u64) {
        let place = usize::from(self.next_entry) % OP_LOG_CAP;
        self.tags[place] = op_id.as_raw() as u8;
        self.entries[place] = [op_id.as_raw(), payload_hash, now];
        self.next_entry = self.next_entry.wrapping_add(1);
    }
}

/// The bytes that a checkpoint hashes, in one block, under a key that is at hand.
#[inline]
pub fn payload_hash(cursor: &[u8; CURSOR_LEN]) -> u64 {
    let mut payload = [0; BLOCK];
    payload[..10].copy_from_slice(b"checkpoint");
    payload[10] = 1;
    payload[11..15].copy_from_slice(&(CURSOR_LEN as u32).to_le_bytes());
    payload[15..15 + CURSOR_LEN].copy_from_slice(cursor);
    let hash = blake3::keyed_hash(&HASH_KEY, &payload);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[inline]
fn hash(key: ShardKey) -> u64 {
    FixedState::with_seed(0).hash_one((key.run().as_raw(), key.shard().as_raw()))
}
