//! Typed keys and their bytes: one logical keyspace for every engine.
//!
//! A key is an ASCII path: the name of its kind, then each number in lower-case hexadecimal digits
//! of fixed width. So the order of bytes is the order of numbers, a dump of a store can be read,
//! and a scan is a range of bytes ([`KeyRange`](super::KeyRange)). An engine may put a namespace in
//! front; it is not part of the key and no checksum covers it.
//!
//! | kind | key | value | lives |
//! |---|---|---|---|
//! | run head | `run/<tenant>/<run>` | settings, status, log, progress of registration | from `create_run` until deletion |
//! | run roots | `roots/<tenant>/<run>/<chunk>` | ids of root shards, in the order of registration | written once with its chunk, until deletion |
//! | shard, hot | `hot/<tenant>/<run>/<shard>` | status, lease, fence, cursor, log | from birth of the shard until deletion of its run |
//! | shard, cold | `cold/<tenant>/<run>/<shard>` | range, metadata, lineage, spawned ids | as the hot part; rewritten by splits only |
//! | owner | `owner/<tenant>/<run>/<shard>` | worker, fence, grant | while a lease is held; the engine may drop it with its worker |
//! | claim index | `claim/<tenant>/<run>/<time>/<place>` | nothing | while the shard is active; the time may be too early, never too late |
//! | parked index | `parked/<tenant>/<run>/<shard>` | nothing | while the shard is parked |
//! | tenant's count | `tenant-count/<tenant>` | shards of the tenant | from its first run, for ever |
//! | total count | `total-count` | shards of all tenants | from the first run, for ever |
//! | worker | `worker/<tenant>/<worker>` | state, expiry | from registration until it expires |
//! | handoff | `handoff/<tenant>/<handoff>` | record of `gossip-handoff` | from Lock until it is forgotten, once it is over |
//! | tombstone | `tombstone/<tenant>/<run>` | the deletion | from deletion of the run, for ever |
//! | handoff index | `mover/<tenant>/<party>/<handoff>` | nothing | from Lock until the move is over, one for each side |
//!
//! In the claim index stands not the shard's id but its place (`place`), from which the id is read
//! back.
//!
//! # Invariants
//! - Keys of one kind have one length, and no key is a prefix of another.
//! - [`Key::parse`] is total, and accepts exactly what [`Key::to_bytes`] writes.

use std::fmt;

use gossip_contracts::coordination::MAX_INITIAL_SHARDS;
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use thiserror::Error;

use super::place::{place_of, shard_at};
use crate::handoff::HandoffId;

/// Length of the longest key, that of the claim index.
pub const KEY_LEN_MAX: usize = KeyKind::ClaimIndex.key_len();

/// Room for a key and the byte behind it that makes an inclusive bound exclusive. With its length
/// it takes 128 bytes, the most that a compiler copies by itself; anything larger is a call for
/// every copy, of which an operation makes dozens.
const KEY_ROOM: usize = 127;

/// Digits of a tenant id of 32 bytes.
const TENANT_DIGITS: usize = 64;
/// Digits of a 64-bit number.
const U64_DIGITS: usize = 16;
/// Digits of a chunk number.
const U16_DIGITS: usize = 4;

const _: () = assert!(KEY_LEN_MAX < KEY_ROOM && KEY_ROOM <= u8::MAX as usize);
const _: () = assert!(size_of::<KeyBytes>() == 128);
// A chunk holds at least one root, so there are never more chunks than roots.
const _: () = assert!(MAX_INITIAL_SHARDS <= u16::MAX as usize);

/// What stands between the parts of a key.
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
    /// Evidence that a shard's owner lives.
    Owner = 5,
    /// An active shard, by the time from which it may be claimed.
    ClaimIndex = 6,
    /// A parked shard.
    ParkedIndex = 7,
    /// How many shards a tenant has.
    TenantCounter = 8,
    /// How many shards there are.
    TotalCounter = 9,
    /// A registered worker.
    Worker = 10,
    /// A planned move of a shard.
    Handoff = 11,
    /// What is left of a deleted run.
    Tombstone = 12,
    /// A planned move that is not over, by whom it concerns.
    HandoffIndex = 13,
}

impl KeyKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 13] = [
        Self::RunHead,
        Self::RunRoots,
        Self::ShardHot,
        Self::ShardCold,
        Self::Owner,
        Self::ClaimIndex,
        Self::ParkedIndex,
        Self::TenantCounter,
        Self::TotalCounter,
        Self::Worker,
        Self::Handoff,
        Self::Tombstone,
        Self::HandoffIndex,
    ];

    /// The kind stored under `number`, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The first part of a key of this kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunHead => "run",
            Self::RunRoots => "roots",
            Self::ShardHot => "hot",
            Self::ShardCold => "cold",
            Self::Owner => "owner",
            Self::ClaimIndex => "claim",
            Self::ParkedIndex => "parked",
            Self::TenantCounter => "tenant-count",
            Self::TotalCounter => "total-count",
            Self::Worker => "worker",
            Self::Handoff => "handoff",
            Self::Tombstone => "tombstone",
            Self::HandoffIndex => "mover",
        }
    }

    /// Bytes of every key of this kind.
    #[must_use]
    pub const fn key_len(self) -> usize {
        const PART: usize = "/".len() + U64_DIGITS;
        const OF_TENANT: usize = "/".len() + TENANT_DIGITS;
        let parts = match self {
            Self::TotalCounter => 0,
            Self::TenantCounter => OF_TENANT,
            Self::RunHead | Self::Worker | Self::Handoff | Self::Tombstone => OF_TENANT + PART,
            Self::RunRoots => OF_TENANT + PART + "/".len() + U16_DIGITS,
            Self::ShardHot
            | Self::ShardCold
            | Self::Owner
            | Self::ParkedIndex
            | Self::HandoffIndex => OF_TENANT + 2 * PART,
            Self::ClaimIndex => OF_TENANT + 3 * PART,
        };
        self.name().len() + parts
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
            Self::TotalCounter => "total count.decode",
            Self::Worker => "worker.decode",
            Self::Handoff => "handoff.decode",
            Self::Tombstone => "tombstone.decode",
            Self::HandoffIndex => "handoff index.decode",
        }
    }
}

/// Whether the operation of an error is the reading of a record.
pub(crate) fn is_about_record(operation: &str) -> bool {
    let mut kinds = KeyKind::ALL.into_iter();
    operation == SHARD_LOAD || kinds.any(|kind| kind.decoding() == operation)
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
#[non_exhaustive]
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
    /// Shards of all tenants; for ever.
    TotalCounter,
    /// State and expiry; until it expires.
    Worker { tenant: TenantId, worker: WorkerId },
    /// A record of `gossip-handoff`; until it is over and forgotten.
    Handoff { tenant: TenantId, handoff: HandoffId },
    /// The deletion of the run; for ever.
    Tombstone { tenant: TenantId, run: RunId },
    /// Nothing but its key; until the move is over. A party is a number of its name.
    HandoffIndex { tenant: TenantId, party: u64, handoff: HandoffId },
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
            Self::TotalCounter => KeyKind::TotalCounter,
            Self::Worker { .. } => KeyKind::Worker,
            Self::Handoff { .. } => KeyKind::Handoff,
            Self::Tombstone { .. } => KeyKind::Tombstone,
            Self::HandoffIndex { .. } => KeyKind::HandoffIndex,
        }
    }

    /// The bytes under which an engine stores it, behind its own namespace.
    #[must_use]
    pub fn to_bytes(&self) -> KeyBytes {
        KeyBytes::new(self.kind(), |path| match self {
            Self::RunHead { tenant, run } | Self::Tombstone { tenant, run } => {
                path.tenant(*tenant).number(run.as_raw());
            }
            Self::RunRoots { tenant, run, chunk } => {
                path.tenant(*tenant).number(run.as_raw()).chunk(*chunk);
            }
            Self::ShardHot { tenant, shard }
            | Self::ShardCold { tenant, shard }
            | Self::Owner { tenant, shard }
            | Self::ParkedIndex { tenant, shard } => {
                path.tenant(*tenant).number(shard.run().as_raw()).number(shard.shard().as_raw());
            }
            Self::ClaimIndex { tenant, shard, at } => {
                let place = place_of(shard.shard());
                path.tenant(*tenant).number(shard.run().as_raw());
                path.number(at.as_raw()).number(place);
            }
            Self::TenantCounter { tenant } => _ = path.tenant(*tenant),
            Self::TotalCounter => {}
            Self::Worker { tenant, worker } => _ = path.tenant(*tenant).number(worker.as_raw()),
            Self::Handoff { tenant, handoff } => _ = path.tenant(*tenant).number(handoff.as_raw()),
            Self::HandoffIndex { tenant, party, handoff } => {
                path.tenant(*tenant).number(*party).number(handoff.as_raw());
            }
        })
    }
}

/// Bytes that are no key of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key of {len} bytes is none of this store's keys")]
pub struct MalformedKey {
    /// How many bytes there were.
    pub len: usize,
}

/// The bytes of a key or of a bound of a range, without a heap.
#[derive(Clone, Copy)]
pub struct KeyBytes {
    /// Only the first `len` bytes mean anything.
    bytes: [u8; KEY_ROOM],
    len: u8,
}

impl KeyBytes {
    /// The name of a kind, and the parts that `add` adds. They are added in place: what takes and
    /// gives back the whole room copies it every time, which costs more than the digits.
    #[inline]
    pub(super) fn new(kind: KeyKind, add: impl FnOnce(&mut Self)) -> Self {
        let mut path = Self { bytes: [0; KEY_ROOM], len: 0 };
        path.push(kind.name().as_bytes());
        add(&mut path);
        path
    }

    /// Any bytes that are not too many.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut path = Self { bytes: [0; KEY_ROOM], len: 0 };
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
        self.part(&number.to_be_bytes())
    }

    #[inline]
    pub(super) fn chunk(&mut self, number: u16) -> &mut Self {
        self.part(&number.to_be_bytes())
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

/// A key begins with its tenant, which is not shown.
impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBytes(<{} bytes>)", self.len)
    }
}

fn parse(bytes: &[u8]) -> Option<Key> {
    let name_len = bytes.iter().position(|byte| *byte == SEPARATOR).unwrap_or(bytes.len());
    let (name, rest) = bytes.split_at(name_len);
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)?;
    let mut parts = Parts { rest };
    let key = parts.key(kind)?;
    parts.rest.is_empty().then_some(key)
}

/// What is left of a key while its parts are read.
struct Parts<'a> {
    rest: &'a [u8],
}

impl Parts<'_> {
    fn key(&mut self, kind: KeyKind) -> Option<Key> {
        if kind == KeyKind::TotalCounter {
            return Some(Key::TotalCounter);
        }
        let tenant = TenantId::from_bytes(self.hex::<32, TENANT_DIGITS>()?);
        Some(match kind {
            KeyKind::RunHead => Key::RunHead { tenant, run: self.run()? },
            KeyKind::RunRoots => {
                let run = self.run()?;
                let chunk = u16::from_be_bytes(self.hex::<2, U16_DIGITS>()?);
                Key::RunRoots { tenant, run, chunk }
            }
            KeyKind::ShardHot => Key::ShardHot { tenant, shard: self.shard()? },
            KeyKind::ShardCold => Key::ShardCold { tenant, shard: self.shard()? },
            KeyKind::Owner => Key::Owner { tenant, shard: self.shard()? },
            KeyKind::ClaimIndex => {
                let (run, at) = (self.run()?, LogicalTime::from_raw(self.number()?));
                let shard = ShardKey::new(run, shard_at(self.number()?));
                Key::ClaimIndex { tenant, shard, at }
            }
            KeyKind::ParkedIndex => Key::ParkedIndex { tenant, shard: self.shard()? },
            KeyKind::TenantCounter => Key::TenantCounter { tenant },
            KeyKind::TotalCounter => Key::TotalCounter,
            KeyKind::Worker => Key::Worker { tenant, worker: WorkerId::from_raw(self.number()?) },
            KeyKind::Handoff => {
                Key::Handoff { tenant, handoff: HandoffId::from_raw(self.number()?) }
            }
            KeyKind::Tombstone => Key::Tombstone { tenant, run: self.run()? },
            KeyKind::HandoffIndex => {
                let (party, handoff) = (self.number()?, HandoffId::from_raw(self.number()?));
                Key::HandoffIndex { tenant, party, handoff }
            }
        })
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
        let digits = self.rest.strip_prefix(&[SEPARATOR])?;
        let (digits, rest) = digits.split_at_checked(DIGITS)?;
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
