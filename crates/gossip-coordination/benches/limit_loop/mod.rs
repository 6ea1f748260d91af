//! What no coordinator in memory can avoid, and nothing else.
//!
//! Each function does the work that an accepted operation needs by its rules, on one contiguous
//! record per shard: find it by tenant, run and id; check status, fence, expiry and owner; hash the
//! payload (one keyed block of BLAKE3); look for the operation among the sixteen remembered by
//! one-byte tags; compare keys; write. There is no replay, no event, no index of claims or
//! deadlines, no limit, no error with its reasons, no second tenant, and no way to free anything.
//!
//! An acquire comes in two forms. The first has no index either, like everything here. But a claim
//! must find work without looking at the shards (DESIGN Q23), so an acquire cannot leave the shard
//! among the free; the second form also moves it from the free list of its run to the end of the
//! chain of the leased, with the fewest writes we know: one in the list, two in the chain.
//!
//! It is a yardstick, not an alternative: benchmarks state how many times its time the real one
//! takes, and how many times the time of one bare keyed block it takes itself, so that it cannot
//! be padded without being seen.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use gossip_contracts::identity::{OpId, ShardKey, TenantId};
use gossip_coordination::{Lease, OP_LOG_CAP};
use hashbrown::{HashMap, HashTable};

use gossip_contracts::coordination::MAX_INITIAL_SHARDS;

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
    /// Zero when the shard has no lease.
    deadline: u64,
    active: bool,
    next_entry: u8,
    cursor_len: u16,
    tags: [u8; OP_LOG_CAP],
    /// The position in the free list, or else the leased shard before this one.
    before: u32,
    /// The leased shard behind this one.
    behind: u32,
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

/// Marks an end of the chain.
const NONE: u32 = u32::MAX;

/// Where a claim would find work in one run.
struct ClaimIndex {
    /// Free shards, and gaps that name the gap made before.
    free: Vec<u32>,
    last_gap: u32,
    first: u32,
    last: u32,
}

/// Records found by tenant, then by run and shard.
pub struct LimitLoop {
    tenants: HashMap<TenantId, HashTable<u32>, FixedState>,
    records: Vec<Record>,
    /// By run; those of the benchmark are numbered from one.
    claims: Vec<ClaimIndex>,
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
        let slots: Vec<u32> = (0..shards as u32).collect();
        let index = |free: &[u32]| ClaimIndex {
            free: free.to_vec(),
            last_gap: NONE,
            first: NONE,
            last: NONE,
        };
        let claims = slots.chunks(MAX_INITIAL_SHARDS).map(index).collect();
        Self { tenants, records, claims }
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

    /// The work of an acquire without an index; the new fence, or zero if it was refused.
    #[inline(never)]
    pub fn acquire(
        &mut self,
        now: u64,
        tenant: TenantId,
        key: ShardKey,
        duration: u64,
        snapshot: &mut Snapshot,
    ) -> u64 {
        match self.find(tenant, key) {
            Some(record) => record.grant(now, duration, snapshot),
            None => 0,
        }
    }

    /// The same, and the shard moves from the free to the leased.
    #[inline(never)]
    pub fn acquire_indexed(
        &mut self,
        now: u64,
        tenant: TenantId,
        key: ShardKey,
        duration: u64,
        snapshot: &mut Snapshot,
    ) -> u64 {
        let Some(slot) = self.find_slot(tenant, key) else { return 0 };
        let record = &mut self.records[slot as usize];
        let fence = record.grant(now, duration, snapshot);
        if fence == 0 {
            return 0;
        }
        let claims = &mut self.claims[key.run().as_raw() as usize - 1];
        // A gap names the one before it, so a release fills it without a search.
        claims.free[record.before as usize] = claims.last_gap;
        claims.last_gap = record.before;
        (record.before, record.behind) = (claims.last, NONE);
        match claims.last {
            NONE => claims.first = slot,
            last => self.records[last as usize].behind = slot,
        }
        claims.last = slot;
        fence
    }

    /// Makes a shard free again; not measured.
    pub fn release(&mut self, tenant: TenantId, key: ShardKey, indexed: bool) {
        let Some(slot) = self.find_slot(tenant, key) else { return };
        let record = &mut self.records[slot as usize];
        record.deadline = 0;
        if !indexed {
            return;
        }
        let claims = &mut self.claims[key.run().as_raw() as usize - 1];
        let (before, behind) = (record.before, record.behind);
        record.before = claims.last_gap;
        claims.last_gap = std::mem::replace(&mut claims.free[claims.last_gap as usize], slot);
        match before {
            NONE => claims.first = behind,
            before => self.records[before as usize].behind = behind,
        }
        match behind {
            NONE => claims.last = before,
            behind => self.records[behind as usize].before = before,
        }
    }

    #[inline]
    fn find(&mut self, tenant: TenantId, key: ShardKey) -> Option<&mut Record> {
        let slot = self.find_slot(tenant, key)?;
        Some(&mut self.records[slot as usize])
    }

    #[inline]
    fn find_slot(&self, tenant: TenantId, key: ShardKey) -> Option<u32> {
        let table = self.tenants.get(&tenant)?;
        table.find(hash(key), |slot| self.records[*slot as usize].key == key).copied()
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
            // Half of the range, so that a renewal cannot overflow it.
            deadline: if held { u64::MAX / 2 } else { 0 },
            active: true,
            next_entry: 0,
            cursor_len: CURSOR_LEN as u16,
            tags: [0; OP_LOG_CAP],
            before: (index % MAX_INITIAL_SHARDS) as u32,
            behind: NONE,
            cursor,
            start: bound(index),
            end: bound(index + 1),
            metadata: *METADATA,
            entries: [[0; 3]; OP_LOG_CAP],
        }
    }

    /// Writes a new lease and copies the snapshot; the new fence, or zero if it was refused.
    #[inline]
    fn grant(&mut self, now: u64, duration: u64, snapshot: &mut Snapshot) -> u64 {
        if !self.active || now < self.deadline {
            return 0;
        }
        self.fence += 1;
        self.owner = WORKER.as_raw();
        self.deadline = now + duration;
        let (cursor, rest) = snapshot.bytes.split_at_mut(BLOCK);
        cursor.copy_from_slice(&self.cursor);
        rest[..BOUND_LEN].copy_from_slice(&self.start);
        rest[BOUND_LEN..2 * BOUND_LEN].copy_from_slice(&self.end);
        rest[2 * BOUND_LEN..][..METADATA.len()].copy_from_slice(&self.metadata);
        self.fence
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
            // All tags before any entry, so that they are compared at once.
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
    // The same fields as the real payload hash has, which fill one block.
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
