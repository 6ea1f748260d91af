//! Typed keys and their bytes: one logical keyspace for every engine.
//!
//! A key is an ASCII path. It begins with `t/<tenant>/` if it belongs to a tenant, or with `op/` if
//! the operator writes it; then follow the name of its kind and its numbers in lower-case
//! hexadecimal digits of fixed width. So the order of bytes is the order of numbers, a dump of a
//! store can be read, and a scan is a range of bytes ([`KeyRange`](super::KeyRange)). An engine may
//! put a namespace in front; it is not part of the key and no checksum covers it.
//!
//! Everything that a tenant's workers write lies below the tenant's prefix, and they read nothing
//! else but operator keys. So an access rule on two prefixes separates tenants (ADR 0002).
//!
//! Below `t/<tenant>/`:
//!
//! | kind | key | value | lives |
//! |---|---|---|---|
//! | run head | `run/<run>` | settings, status, log, progress of registration | from `create_run` until deletion |
//! | run roots | `roots/<run>/<chunk>` | ids of root shards, in the order of registration | written once with its chunk, until deletion |
//! | shard, hot | `hot/<run>/<shard>` | status, lease, fence, cursor, log | from creation of the shard until deletion of its run |
//! | shard, cold | `cold/<run>/<shard>` | range, metadata, lineage, spawned ids | as the hot part; rewritten by splits only |
//! | owner | `owner/<run>/<shard>` | worker, fence, grant | while a lease is held; the engine may drop it with its worker |
//! | claim index | `claim/<run>/<time>/<place>` | nothing | while the shard is active; the time may be too early, never too late |
//! | parked index | `parked/<run>/<shard>` | nothing | while the shard is parked |
//! | shard count | `count` | shards of the tenant | from its first run, for ever |
//! | worker | `worker/<worker>` | state, expiry | from registration until it expires |
//! | handoff | `handoff/<handoff>` | record of `gossip-handoff` | from Lock until it is forgotten, once it is over |
//! | tombstone | `tombstone/<run>` | the deletion | from deletion of the run, for ever |
//! | handoff index | `mover/<party>/<handoff>` | nothing | from Lock until the move is over, one for each side |
//! | fence floor | `floor/<run>` | reserved and not used | |
//! | failure | `failure/<run>/<shard>/<number>` | a failed or unread item | from the commit that parks its shard or passes it, until deletion of the run |
//! | event | `event/<run>/<writer>/<slot>` | a lifecycle event, in the ring of its writing process | from its commit until it is overwritten, or the run is deleted |
//! | key ledger | `ledger/<run>/<shard>/<block>` | reserved: block of keys and versions | |
//! | result | `result/<run>/<shard>/<block>` | block of results | from the commit of the cursor that passes the items, until deletion of the run |
//! | budget | `budget/<run>/<number>` | reserved: rate shared by a run's workers | |
//!
//! Below `op/`, written by the operator only:
//!
//! | kind | key | value | lives |
//! |---|---|---|---|
//! | allotment | `allotment/<tenant>` | shards that the tenant may have | until the operator removes it |
//! | tenant list | `tenant/<tenant>` | reserved: a known tenant | |
//! | schema version | `schema` | format of the whole store | from the first upgrade, for ever |
//!
//! Reserved kinds have a number, a spelling and a place. Nothing writes them yet, and no decoder
//! accepts a value of them.
//!
//! The claim index holds not the shard's id but its place (`scatter`), from which the id is read
//! back.
//!
//! # Invariants
//! - Keys of one kind have one length, and no key is a prefix of another.
//! - [`Key::parse`] is total, and accepts exactly what [`Key::to_bytes`] writes.
//! - A key begins with the prefix of its tenant exactly if [`KeyKind::is_of_operator`] is false.

use std::fmt;

use gossip_contracts::coordination::MAX_INITIAL_SHARDS;
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use thiserror::Error;

use super::scatter::{scatter, unscatter};
use crate::handoff::HandoffId;

/// Length of the longest keys, those of failures.
pub const KEY_LEN_MAX: usize = KeyKind::Failure.key_len();

/// Room for a key and the byte behind it that makes an inclusive bound exclusive. With its length
/// it takes 128 bytes, the most that a compiler copies inline; anything larger is a call for
/// every copy, of which an operation makes dozens.
const KEY_ROOM: usize = 127;

/// Digits of a tenant id of 32 bytes.
const TENANT_DIGITS: usize = 64;
/// Digits of a 64-bit number.
const U64_DIGITS: usize = 16;
/// Digits of a chunk number, and of other small numbers.
const U16_DIGITS: usize = 4;

const _: () = assert!(KEY_LEN_MAX < KEY_ROOM && KEY_ROOM <= u8::MAX as usize);
const _: () = assert!(size_of::<KeyBytes>() == 128);
// A chunk holds at least one root, so there are never more chunks than roots.
const _: () = assert!(MAX_INITIAL_SHARDS <= u16::MAX as usize);

/// First part of the keys of tenants.
const TENANT_PREFIX: &str = "t";
/// First part of the keys that only the operator writes.
const OPERATOR_PREFIX: &str = "op";

/// Separates the parts of a key.
pub(super) const SEPARATOR: u8 = b'/';
/// Sorts directly behind [`SEPARATOR`], so it ends the range of everything below a prefix.
pub(super) const BEHIND_SEPARATOR: u8 = b'0';

const _: () = assert!(SEPARATOR + 1 == BEHIND_SEPARATOR);

/// The kinds of keys, and of the values under them. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum KeyKind {
    /// A run, its roots apart.
    RunHead = 1,
    /// A chunk of a run's roots.
    RunRoots = 2,
    /// The part of a shard that every operation rewrites.
    ShardHot = 3,
    /// The part of a shard that only splits rewrite.
    ShardCold = 4,
    /// Evidence that a shard's lease holder is alive.
    Owner = 5,
    /// An active shard, by the time from which it may be claimed.
    ClaimIndex = 6,
    /// A parked shard.
    ParkedIndex = 7,
    /// Number of a tenant's shards.
    TenantCounter = 8,
    /// The operator's limit on a tenant's shards.
    Allotment = 9,
    /// A registered worker.
    Worker = 10,
    /// A handoff of a shard.
    Handoff = 11,
    /// The tombstone of a deleted run.
    Tombstone = 12,
    /// An unfinished handoff, by party.
    HandoffIndex = 13,
    /// Reserved and not used: the fence floor of a run is in its head (ADR 41).
    FenceFloor = 14,
    /// A failed or unread item (DESIGN Q36).
    Failure = 15,
    /// A lifecycle event (DESIGN Q37): one slot of a writer's ring.
    Event = 16,
    /// Reserved (DESIGN Q39): a block of a run's keys and their versions.
    KeyLedger = 17,
    /// A block of results of a shard (DESIGN Q36).
    ResultBlock = 18,
    /// Reserved: a rate that the workers of a run share.
    Budget = 19,
    /// Reserved (DESIGN Q31): a tenant that the operator added.
    TenantEntry = 20,
    /// The format of the whole store (DESIGN Q40).
    SchemaVersion = 21,
}

impl KeyKind {
    /// Every kind, in the order of its number.
    pub(crate) const ALL: [Self; 21] = [
        Self::RunHead,
        Self::RunRoots,
        Self::ShardHot,
        Self::ShardCold,
        Self::Owner,
        Self::ClaimIndex,
        Self::ParkedIndex,
        Self::TenantCounter,
        Self::Allotment,
        Self::Worker,
        Self::Handoff,
        Self::Tombstone,
        Self::HandoffIndex,
        Self::FenceFloor,
        Self::Failure,
        Self::Event,
        Self::KeyLedger,
        Self::ResultBlock,
        Self::Budget,
        Self::TenantEntry,
        Self::SchemaVersion,
    ];

    /// The kind stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        // A search, because the number comes from a stored value and may be one that no kind has.
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether only the operator writes keys of this kind. All others lie below their tenant.
    #[must_use]
    pub(crate) const fn is_of_operator(self) -> bool {
        matches!(self, Self::Allotment | Self::TenantEntry | Self::SchemaVersion)
    }

    /// The part of a key that names its kind.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RunHead => "run",
            Self::RunRoots => "roots",
            Self::ShardHot => "hot",
            Self::ShardCold => "cold",
            Self::Owner => "owner",
            Self::ClaimIndex => "claim",
            Self::ParkedIndex => "parked",
            Self::TenantCounter => "count",
            Self::Allotment => "allotment",
            Self::Worker => "worker",
            Self::Handoff => "handoff",
            Self::Tombstone => "tombstone",
            Self::HandoffIndex => "mover",
            Self::FenceFloor => "floor",
            Self::Failure => "failure",
            Self::Event => "event",
            Self::KeyLedger => "ledger",
            Self::ResultBlock => "result",
            Self::Budget => "budget",
            Self::TenantEntry => "tenant",
            Self::SchemaVersion => "schema",
        }
    }

    /// Bytes of every key of this kind.
    #[must_use]
    pub const fn key_len(self) -> usize {
        const NUMBER: usize = "/".len() + U64_DIGITS;
        const SMALL: usize = "/".len() + U16_DIGITS;
        const TENANT: usize = "/".len() + TENANT_DIGITS;
        // Every part is written in full width, so the length of a key follows from its kind.
        let parts = match self {
            // Their names end the key: there is one of each per tenant or store.
            Self::TenantCounter | Self::SchemaVersion => 0,
            Self::Allotment | Self::TenantEntry => TENANT,
            Self::RunHead | Self::Worker | Self::Handoff | Self::Tombstone | Self::FenceFloor => {
                NUMBER
            }
            Self::RunRoots | Self::Budget => NUMBER + SMALL,
            Self::ShardHot
            | Self::ShardCold
            | Self::Owner
            | Self::ParkedIndex
            | Self::HandoffIndex => 2 * NUMBER,
            Self::Event => 2 * NUMBER + SMALL,
            Self::Failure | Self::ClaimIndex | Self::KeyLedger | Self::ResultBlock => 3 * NUMBER,
        };
        let prefix = match self.is_of_operator() {
            true => OPERATOR_PREFIX.len(),
            false => TENANT_PREFIX.len() + TENANT,
        };
        prefix + "/".len() + self.name().len() + parts
    }

    /// The step named in the errors of a decoder.
    pub(super) const fn decoding(self) -> &'static str {
        match self {
            Self::RunHead => "run head.decode",
            Self::RunRoots => "run roots.decode",
            Self::ShardHot => "hot shard.decode",
            Self::ShardCold => "cold shard.decode",
            Self::Owner => "owner.decode",
            Self::ClaimIndex => "claim index.decode",
            Self::ParkedIndex => "parked index.decode",
            Self::TenantCounter => "tenant count.decode",
            Self::Allotment => "allotment.decode",
            Self::Worker => "worker.decode",
            Self::Handoff => "handoff.decode",
            Self::Tombstone => "tombstone.decode",
            Self::HandoffIndex => "handoff index.decode",
            Self::FenceFloor => "fence floor.decode",
            Self::Failure => "failure.decode",
            Self::Event => "event.decode",
            Self::KeyLedger => "key ledger.decode",
            Self::ResultBlock => "result.decode",
            Self::Budget => "budget.decode",
            Self::TenantEntry => "tenant.decode",
            Self::SchemaVersion => "schema.decode",
        }
    }
}

/// Whether the operation of an error is the reading of a record.
pub(crate) fn is_about_record(operation: &str) -> bool {
    let mut kinds = KeyKind::ALL.into_iter();
    operation == SHARD_LOAD || kinds.any(|kind| kind.decoding() == operation)
}

/// Returns whether the operation of an error is the reading of the record of one shard.
pub(crate) fn is_about_shard(operation: &str) -> bool {
    let parts = [KeyKind::ShardHot, KeyKind::ShardCold];
    operation == SHARD_LOAD || parts.iter().any(|kind| kind.decoding() == operation)
}

/// What puts the two parts of a shard together.
pub(super) const SHARD_LOAD: &str = "shard.load";

const _: () = {
    // Numbers are stored in every value: they run from 1 in the order of `ALL` and never change.
    let mut index = 0;
    while index < KeyKind::ALL.len() {
        assert!(KeyKind::ALL[index] as usize == index + 1);
        index += 1;
    }
};

/// A key, by what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an engine that locks by kind must place a new one")]
#[expect(missing_docs, reason = "the fields are the parts of the path, by their types' names")]
pub enum Key {
    /// Settings, status, log and progress of registration; until the run is deleted.
    RunHead { tenant: TenantId, run: RunId },
    /// Ids of root shards; written once with its chunk, until the run is deleted.
    RunRoots { tenant: TenantId, run: RunId, chunk: u16 },
    /// Status, lease, fence, cursor and log; until the run is deleted.
    ShardHot { tenant: TenantId, shard: ShardKey },
    /// Range, metadata, lineage and spawned ids; until the run is deleted.
    ShardCold { tenant: TenantId, shard: ShardKey },
    /// Worker, fence and grant; while a lease is held.
    Owner { tenant: TenantId, shard: ShardKey },
    /// Nothing but its key; while the shard is active.
    ClaimIndex { tenant: TenantId, shard: ShardKey, at: LogicalTime },
    /// Nothing but its key; while the shard is parked.
    ParkedIndex { tenant: TenantId, shard: ShardKey },
    /// Shards of the tenant; for ever.
    TenantCounter { tenant: TenantId },
    /// Shards that the tenant may have; until the operator removes it.
    Allotment { tenant: TenantId },
    /// State and expiry; until it expires.
    Worker { tenant: TenantId, worker: WorkerId },
    /// A record of `gossip-handoff`; until it is over and forgotten.
    Handoff { tenant: TenantId, handoff: HandoffId },
    /// The deletion of the run; for ever.
    Tombstone { tenant: TenantId, run: RunId },
    /// Nothing but its key; until the move is over. A party is a number of its name.
    HandoffIndex { tenant: TenantId, party: u64, handoff: HandoffId },
    /// Reserved: the lowest fence of the next grant.
    FenceFloor { tenant: TenantId, run: RunId },
    /// A failed or unread item of a shard; until the run is deleted. The number is a hash of the
    /// item's key.
    Failure { tenant: TenantId, shard: ShardKey, number: u64 },
    /// A lifecycle event in the ring of its writing process; until overwritten, or the run is
    /// deleted.
    Event { tenant: TenantId, run: RunId, writer: u64, slot: u16 },
    /// Reserved: a block of keys and their versions.
    KeyLedger { tenant: TenantId, shard: ShardKey, block: u64 },
    /// A block of results; until the run is deleted.
    ResultBlock { tenant: TenantId, shard: ShardKey, block: u64 },
    /// Reserved: a rate that the workers of a run share.
    Budget { tenant: TenantId, run: RunId, number: u16 },
    /// Reserved: a tenant that the operator added.
    TenantEntry { tenant: TenantId },
    /// The format of the whole store; from its first upgrade, for ever.
    SchemaVersion,
}

impl Key {
    /// Reads a key back.
    ///
    /// # Errors
    ///
    /// [`MalformedKey`] for everything that [`Key::to_bytes`] does not write.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedKey> {
        parse(bytes).ok_or(MalformedKey { len: bytes.len() })
    }

    /// What kind of key it is.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        match self {
            Self::RunHead { .. } => KeyKind::RunHead,
            Self::RunRoots { .. } => KeyKind::RunRoots,
            Self::ShardHot { .. } => KeyKind::ShardHot,
            Self::ShardCold { .. } => KeyKind::ShardCold,
            Self::Owner { .. } => KeyKind::Owner,
            Self::ClaimIndex { .. } => KeyKind::ClaimIndex,
            Self::ParkedIndex { .. } => KeyKind::ParkedIndex,
            Self::TenantCounter { .. } => KeyKind::TenantCounter,
            Self::Allotment { .. } => KeyKind::Allotment,
            Self::Worker { .. } => KeyKind::Worker,
            Self::Handoff { .. } => KeyKind::Handoff,
            Self::Tombstone { .. } => KeyKind::Tombstone,
            Self::HandoffIndex { .. } => KeyKind::HandoffIndex,
            Self::FenceFloor { .. } => KeyKind::FenceFloor,
            Self::Failure { .. } => KeyKind::Failure,
            Self::Event { .. } => KeyKind::Event,
            Self::KeyLedger { .. } => KeyKind::KeyLedger,
            Self::ResultBlock { .. } => KeyKind::ResultBlock,
            Self::Budget { .. } => KeyKind::Budget,
            Self::TenantEntry { .. } => KeyKind::TenantEntry,
            Self::SchemaVersion => KeyKind::SchemaVersion,
        }
    }

    /// The tenant that the key belongs to or, for an operator key, is about.
    #[must_use]
    pub const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::RunHead { tenant, .. }
            | Self::RunRoots { tenant, .. }
            | Self::ShardHot { tenant, .. }
            | Self::ShardCold { tenant, .. }
            | Self::Owner { tenant, .. }
            | Self::ClaimIndex { tenant, .. }
            | Self::ParkedIndex { tenant, .. }
            | Self::TenantCounter { tenant }
            | Self::Allotment { tenant }
            | Self::Worker { tenant, .. }
            | Self::Handoff { tenant, .. }
            | Self::Tombstone { tenant, .. }
            | Self::HandoffIndex { tenant, .. }
            | Self::FenceFloor { tenant, .. }
            | Self::Failure { tenant, .. }
            | Self::Event { tenant, .. }
            | Self::KeyLedger { tenant, .. }
            | Self::ResultBlock { tenant, .. }
            | Self::Budget { tenant, .. }
            | Self::TenantEntry { tenant } => Some(*tenant),
            Self::SchemaVersion => None,
        }
    }

    /// The bytes under which an engine stores it, behind its own namespace.
    #[must_use]
    pub fn to_bytes(&self) -> KeyBytes {
        let kind = self.kind();
        match self {
            Self::Allotment { tenant } | Self::TenantEntry { tenant } => {
                KeyBytes::of_operator(kind, |path| _ = path.tenant(*tenant))
            }
            Self::SchemaVersion => KeyBytes::of_operator(kind, |_| ()),
            Self::TenantCounter { tenant } => KeyBytes::of_tenant(*tenant, kind, |_| ()),
            Self::RunHead { tenant, run }
            | Self::Tombstone { tenant, run }
            | Self::FenceFloor { tenant, run } => {
                KeyBytes::of_tenant(*tenant, kind, |path| _ = path.number(run.as_raw()))
            }
            Self::RunRoots { tenant, run, chunk: small }
            | Self::Budget { tenant, run, number: small } => {
                KeyBytes::of_tenant(*tenant, kind, |path| {
                    path.number(run.as_raw()).small(*small);
                })
            }
            Self::ShardHot { tenant, shard }
            | Self::ShardCold { tenant, shard }
            | Self::Owner { tenant, shard }
            | Self::ParkedIndex { tenant, shard } => {
                KeyBytes::of_tenant(*tenant, kind, |path| _ = path.shard(*shard))
            }
            Self::ClaimIndex { tenant, shard, at } => KeyBytes::of_tenant(*tenant, kind, |path| {
                // The time precedes the place, so the claimable shards of a run are the first of
                // its entries.
                path.number(shard.run().as_raw()).number(at.as_raw());
                path.number(scatter(shard.shard()));
            }),
            Self::Worker { tenant, worker } => {
                KeyBytes::of_tenant(*tenant, kind, |path| _ = path.number(worker.as_raw()))
            }
            Self::Handoff { tenant, handoff } => {
                KeyBytes::of_tenant(*tenant, kind, |path| _ = path.number(handoff.as_raw()))
            }
            Self::HandoffIndex { tenant, party, handoff } => {
                KeyBytes::of_tenant(*tenant, kind, |path| {
                    // The party comes first, so that a worker lists its own handoffs without
                    // reading those of others.
                    path.number(*party).number(handoff.as_raw());
                })
            }
            Self::Event { tenant, run, writer, slot } => {
                KeyBytes::of_tenant(*tenant, kind, |path| {
                    // The slot comes last, so a ring is contiguous and one scan reads it from one
                    // snapshot.
                    path.number(run.as_raw()).number(*writer).small(*slot);
                })
            }
            Self::Failure { tenant, shard, number: block }
            | Self::KeyLedger { tenant, shard, block }
            | Self::ResultBlock { tenant, shard, block } => {
                KeyBytes::of_tenant(*tenant, kind, |path| _ = path.shard(*shard).number(*block))
            }
        }
    }
}

/// Bytes that are no key of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key of {len} bytes is none of this store's keys")]
pub struct MalformedKey {
    /// How many bytes there were.
    pub(crate) len: usize,
}

/// The bytes of a key or of a bound of a range, without a heap.
#[derive(Clone, Copy)]
pub struct KeyBytes {
    /// Only the first `len` bytes mean anything.
    bytes: [u8; KEY_ROOM],
    len: u8,
}

impl KeyBytes {
    const EMPTY: Self = Self { bytes: [0; KEY_ROOM], len: 0 };

    /// The prefix of a tenant, without the separator behind it.
    pub(super) fn prefix_of(tenant: TenantId) -> Self {
        let mut path = Self::EMPTY;
        path.push(TENANT_PREFIX.as_bytes()).tenant(tenant);
        path
    }

    /// The prefix of all tenants, without the separator behind it.
    pub(super) fn prefix_of_tenants() -> Self {
        let mut path = Self::EMPTY;
        path.push(TENANT_PREFIX.as_bytes());
        path
    }

    /// The prefix of the operator's keys, without the separator behind it.
    pub(super) fn prefix_of_operator() -> Self {
        let mut path = Self::EMPTY;
        path.push(OPERATOR_PREFIX.as_bytes());
        path
    }

    /// The path of a kind below `tenant`, and the parts that `add` adds. They are added in place:
    /// passing the whole buffer by value would copy it each time, which costs more than the digits.
    #[inline]
    pub(super) fn of_tenant(tenant: TenantId, kind: KeyKind, add: impl FnOnce(&mut Self)) -> Self {
        debug_assert!(!kind.is_of_operator());
        let mut path = Self::EMPTY;
        path.push(TENANT_PREFIX.as_bytes()).tenant(tenant).name(kind);
        add(&mut path);
        path
    }

    /// The path of a kind of the operator's, and the parts that `add` adds.
    #[inline]
    pub(super) fn of_operator(kind: KeyKind, add: impl FnOnce(&mut Self)) -> Self {
        debug_assert!(kind.is_of_operator());
        let mut path = Self::EMPTY;
        path.push(OPERATOR_PREFIX.as_bytes()).name(kind);
        add(&mut path);
        path
    }

    /// Any bytes that are not too many.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut path = Self::EMPTY;
        // The bytes are the caller's, so too many are refused without a panic.
        if bytes.len() > KEY_ROOM {
            return None;
        }
        path.push(bytes);
        Some(path)
    }

    #[inline]
    pub(super) fn tenant(&mut self, tenant: TenantId) -> &mut Self {
        self.part(tenant.as_bytes())
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        // Big-endian, so that keys sort as their numbers do: scans return ids in ascending order.
        self.part(&number.to_be_bytes())
    }

    #[inline]
    fn shard(&mut self, shard: ShardKey) -> &mut Self {
        self.number(shard.run().as_raw()).number(shard.shard().as_raw())
    }

    #[inline]
    fn small(&mut self, number: u16) -> &mut Self {
        self.part(&number.to_be_bytes())
    }

    #[inline]
    fn name(&mut self, kind: KeyKind) -> &mut Self {
        self.push(&[SEPARATOR]).push(kind.name().as_bytes())
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) -> &mut Self {
        self.grow(bytes.len()).copy_from_slice(bytes);
        self
    }

    /// The same with `bytes` behind it.
    pub(super) fn with(&self, bytes: &[u8]) -> Self {
        let mut longer = *self;
        longer.push(bytes);
        longer
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// A separator and the digits of `bytes`.
    #[inline]
    fn part<const N: usize>(&mut self, bytes: &[u8; N]) -> &mut Self {
        // Hexadecimal digits keep the order of the bytes and never contain the separator.
        let room = self.grow(1 + 2 * N);
        room[0] = SEPARATOR;
        for (pair, byte) in room[1..].chunks_exact_mut(2).zip(bytes) {
            pair[0] = digit(byte >> 4);
            pair[1] = digit(byte & 0xF);
        }
        self
    }

    /// The next `count` bytes.
    #[inline]
    fn grow(&mut self, count: usize) -> &mut [u8] {
        let start = usize::from(self.len);
        let room = &mut self.bytes[start..start + count];
        self.len = u8::try_from(start + count).expect("the room has fewer bytes than that");
        room
    }
}

impl AsRef<[u8]> for KeyBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for KeyBytes {}

impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Most keys hold their tenant, which is not shown.
impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBytes(<{} bytes>)", self.len)
    }
}

fn parse(bytes: &[u8]) -> Option<Key> {
    let mut parts = Parts { rest: bytes };
    let key = if parts.strip(OPERATOR_PREFIX.as_bytes()).is_some() {
        // A kind of the other scope is refused below: it would be one key under two prefixes.
        let kind = parts.kind()?;
        parts.operator_key(kind)
    } else {
        parts.strip(TENANT_PREFIX.as_bytes())?;
        let tenant = parts.tenant()?;
        let kind = parts.kind()?;
        parts.tenant_key(tenant, kind)
    }?;
    // Trailing bytes would give one key several spellings.
    parts.rest.is_empty().then_some(key)
}

/// The parts of a key that are not read yet.
struct Parts<'a> {
    rest: &'a [u8],
}

impl Parts<'_> {
    fn operator_key(&mut self, kind: KeyKind) -> Option<Key> {
        match kind {
            KeyKind::Allotment => Some(Key::Allotment { tenant: self.tenant()? }),
            KeyKind::TenantEntry => Some(Key::TenantEntry { tenant: self.tenant()? }),
            KeyKind::SchemaVersion => Some(Key::SchemaVersion),
            KeyKind::RunHead
            | KeyKind::RunRoots
            | KeyKind::ShardHot
            | KeyKind::ShardCold
            | KeyKind::Owner
            | KeyKind::ClaimIndex
            | KeyKind::ParkedIndex
            | KeyKind::TenantCounter
            | KeyKind::Worker
            | KeyKind::Handoff
            | KeyKind::Tombstone
            | KeyKind::HandoffIndex
            | KeyKind::FenceFloor
            | KeyKind::Failure
            | KeyKind::Event
            | KeyKind::KeyLedger
            | KeyKind::ResultBlock
            | KeyKind::Budget => None,
        }
    }

    fn tenant_key(&mut self, tenant: TenantId, kind: KeyKind) -> Option<Key> {
        Some(match kind {
            KeyKind::RunHead => Key::RunHead { tenant, run: self.run()? },
            KeyKind::RunRoots => Key::RunRoots { tenant, run: self.run()?, chunk: self.small()? },
            KeyKind::ShardHot => Key::ShardHot { tenant, shard: self.shard()? },
            KeyKind::ShardCold => Key::ShardCold { tenant, shard: self.shard()? },
            KeyKind::Owner => Key::Owner { tenant, shard: self.shard()? },
            KeyKind::ClaimIndex => {
                let (run, at) = (self.run()?, LogicalTime::from_raw(self.number()?));
                let shard = ShardKey::new(run, unscatter(self.number()?));
                Key::ClaimIndex { tenant, shard, at }
            }
            KeyKind::ParkedIndex => Key::ParkedIndex { tenant, shard: self.shard()? },
            KeyKind::TenantCounter => Key::TenantCounter { tenant },
            KeyKind::Worker => Key::Worker { tenant, worker: WorkerId::from_raw(self.number()?) },
            KeyKind::Handoff => {
                Key::Handoff { tenant, handoff: HandoffId::from_raw(self.number()?) }
            }
            KeyKind::Tombstone => Key::Tombstone { tenant, run: self.run()? },
            KeyKind::HandoffIndex => {
                let (party, handoff) = (self.number()?, HandoffId::from_raw(self.number()?));
                Key::HandoffIndex { tenant, party, handoff }
            }
            KeyKind::FenceFloor => Key::FenceFloor { tenant, run: self.run()? },
            KeyKind::Failure => {
                Key::Failure { tenant, shard: self.shard()?, number: self.number()? }
            }
            KeyKind::Event => {
                let (run, writer) = (self.run()?, self.number()?);
                Key::Event { tenant, run, writer, slot: self.small()? }
            }
            KeyKind::KeyLedger => {
                Key::KeyLedger { tenant, shard: self.shard()?, block: self.number()? }
            }
            KeyKind::ResultBlock => {
                Key::ResultBlock { tenant, shard: self.shard()?, block: self.number()? }
            }
            KeyKind::Budget => Key::Budget { tenant, run: self.run()?, number: self.small()? },
            // Refused here, because a tenant may write every key below its own prefix.
            KeyKind::Allotment | KeyKind::TenantEntry | KeyKind::SchemaVersion => return None,
        })
    }

    /// The kind that the next part names.
    fn kind(&mut self) -> Option<KeyKind> {
        self.strip(&[SEPARATOR])?;
        // Some keys end with the name of their kind, so a separator may be missing.
        let end = self.rest.iter().position(|byte| *byte == SEPARATOR);
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        KeyKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    fn tenant(&mut self) -> Option<TenantId> {
        self.hex::<32, TENANT_DIGITS>().map(TenantId::from_bytes)
    }

    fn small(&mut self) -> Option<u16> {
        self.hex::<2, U16_DIGITS>().map(u16::from_be_bytes)
    }

    fn strip(&mut self, prefix: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(prefix)?;
        Some(())
    }

    fn run(&mut self) -> Option<RunId> {
        self.number().map(RunId::from_raw)
    }

    fn shard(&mut self) -> Option<ShardKey> {
        Some(ShardKey::new(self.run()?, ShardId::from_raw(self.number()?)))
    }

    fn number(&mut self) -> Option<u64> {
        self.hex::<8, U64_DIGITS>().map(u64::from_be_bytes)
    }

    /// `N` bytes from a separator and `DIGITS` digits.
    fn hex<const N: usize, const DIGITS: usize>(&mut self) -> Option<[u8; N]> {
        const { assert!(DIGITS == 2 * N) };
        self.strip(&[SEPARATOR])?;
        // Always the full width: fewer digits would be a second spelling of the same number.
        let (digits, rest) = self.rest.split_at_checked(DIGITS)?;
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        self.rest = rest;
        Some(bytes)
    }
}

/// The digit of a value below sixteen, computed: a table would keep the processor from doing many
/// at once.
const fn digit(value: u8) -> u8 {
    value + b'0' + (value > 9) as u8 * (b'a' - b'9' - 1)
}

/// The value of a lower-case digit; upper case would give one key two spellings.
const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
