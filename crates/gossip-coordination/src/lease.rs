//! Leases and the operation log: the right to write, and the operations already written.
//!
//! A [`Lease`] is the capability of a worker; a [`LeaseHolder`] is the record's copy of it. The two
//! are compared in [`validate_lease`](crate::validate_lease), where the fence decides.
//! An [`OpLogEntry`] is the log entry of one idempotent operation.
//!
//! Nothing here reads a clock or decides a rule: these are values with their invariants.

use std::fmt;
use std::num::NonZeroU64;

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, Redacted, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
/// Number of operations in a shard's log.
///
/// A worker has one operation in flight per shard, so sixteen exceeds any legitimate retry.
pub const OP_LOG_CAP: usize = 16;

/// The position of an operation among those of its lease (DESIGN Q33).
///
/// The operation log is bounded, so a delayed duplicate may arrive after its entry was dropped. The
/// record keeps the highest sequence that was executed under the lease, and refuses an operation at
/// or below it that the log does not hold. Each grant restarts the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpSequence(u64);

impl OpSequence {
    /// No sequence: only the operation log recognizes a duplicate.
    pub const NONE: Self = Self(0);
    /// The highest sequence. It has six bytes, which are free in the first cache line of a log: at
    /// a million operations per second a lease reaches it after eight years.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// Returns the sequence `raw`, or `None` above [`Self::MAX`].
    #[must_use]
    pub const fn try_from_raw(raw: u64) -> Option<Self> {
        if raw <= Self::MAX.0 { Some(Self(raw)) } else { None }
    }

    /// Returns the number; zero for [`Self::NONE`].
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// Returns the sequence of the next operation. [`Self::MAX`] repeats, and a repeated sequence
    /// is refused.
    #[must_use]
    pub const fn next(self) -> Self {
        if self.0 < Self::MAX.0 { Self(self.0 + 1) } else { Self::MAX }
    }
}

impl fmt::Display for OpSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fresh number written with every grant of a lease.
///
/// When the reply to an acquire is lost, the token shows whether the lease in the record is the
/// requested one. A worker id cannot: two processes may share it by mistake.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrantToken(u64);

impl GrantToken {
    /// Wraps a number drawn from a backend handle's own sequence.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number itself.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for GrantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantToken(<redacted>)")
    }
}

/// The capability to change one shard, returned by acquire and accept.
///
/// Only a coordinator makes leases; workers read them and hand them back.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    tenant: TenantId,
    key: ShardKey,
    owner: WorkerId,
    /// At least [`FenceEpoch::INITIAL`]; never changes during the life of a lease.
    fence: FenceEpoch,
    /// Never zero; only grows.
    deadline: LogicalTime,
    token: GrantToken,
    /// The operation that presents the lease.
    sequence: OpSequence,
    /// The record's location. Only a hint: its user checks the key.
    pub(crate) place: PlaceHint,
}

/// Location hint of a shard and its run in an in-memory coordinator.
///
/// It saves a lookup and affects no result: leases are equal whatever their hints, and a wrong,
/// stale or foreign hint leads to the same result by a lookup.
#[derive(Clone, Copy)]
pub(crate) struct PlaceHint {
    pub(crate) shard: u32,
    pub(crate) run: u32,
}

impl PlaceHint {
    /// No place: beyond any table.
    const NONE: Self = Self { shard: u32::MAX, run: u32::MAX };
}

impl PartialEq for PlaceHint {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for PlaceHint {}

impl Lease {
    /// Makes the lease that a grant hands out.
    ///
    /// # Panics
    ///
    /// If `fence` is below [`FenceEpoch::INITIAL`] or `deadline` is zero: both would be a broken
    /// coordinator, never bad input.
    #[must_use]
    #[inline(always)]
    pub fn new(
        tenant: TenantId,
        key: ShardKey,
        owner: WorkerId,
        fence: FenceEpoch,
        deadline: LogicalTime,
        token: GrantToken,
    ) -> Self {
        assert!(fence >= FenceEpoch::INITIAL, "a lease has at least the initial fence");
        assert!(deadline > LogicalTime::ZERO, "a lease has a deadline");
        let (sequence, place) = (OpSequence::NONE, PlaceHint::NONE);
        Self { tenant, key, owner, fence, deadline, token, sequence, place }
    }

    /// Sets the sequence of the operation that will present the lease.
    pub const fn set_sequence(&mut self, sequence: OpSequence) {
        self.sequence = sequence;
    }

    /// Moves the deadline forward after a renewal.
    ///
    /// # Panics
    ///
    /// If `deadline` lies before the current one. A session takes the maximum first, so replies
    /// that arrive out of order are harmless.
    pub fn set_deadline(&mut self, deadline: LogicalTime) {
        // A holder plans by its deadline, so one that falls would be noticed too late.
        assert!(deadline >= self.deadline, "a renewal never shortens a lease");
        self.deadline = deadline;
    }

    /// The tenant the shard belongs to.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The run the shard belongs to.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.key.run()
    }

    /// The leased shard.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        self.key.shard()
    }

    /// Run and shard together.
    #[must_use]
    pub const fn key(&self) -> ShardKey {
        self.key
    }

    /// The worker that holds the lease.
    #[must_use]
    pub const fn owner(&self) -> WorkerId {
        self.owner
    }

    /// The fencing token: every write made under this lease carries it.
    #[must_use]
    pub const fn fence(&self) -> FenceEpoch {
        self.fence
    }

    /// The first instant at which the lease is no longer live.
    #[must_use]
    pub const fn deadline(&self) -> LogicalTime {
        self.deadline
    }

    /// The number of this grant; operation ids are derived from it.
    #[must_use]
    pub const fn token(&self) -> GrantToken {
        self.token
    }

    /// The sequence of the operation that presents the lease. A grant has none: a session counts.
    #[must_use]
    pub const fn sequence(&self) -> OpSequence {
        self.sequence
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key)
            .field("owner", &Redacted::new(self.owner))
            .field("fence", &self.fence)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// What a record remembers of its lease: owner, deadline and grant, present together or not at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LeaseHolder {
    owner: WorkerId,
    /// Never zero, which lets a record without a lease be as small as one with.
    deadline: NonZeroU64,
    token: GrantToken,
}

const _: () = assert!(size_of::<Option<LeaseHolder>>() == 24);

impl LeaseHolder {
    /// Binds a worker to a deadline.
    ///
    /// # Panics
    ///
    /// If `deadline` is zero, which no grant produces.
    #[must_use]
    #[inline]
    pub fn new(owner: WorkerId, deadline: LogicalTime, token: GrantToken) -> Self {
        let deadline = NonZeroU64::new(deadline.as_raw()).expect("a lease has a deadline");
        Self { owner, deadline, token }
    }

    /// The worker the record is bound to.
    #[must_use]
    pub const fn owner(&self) -> WorkerId {
        self.owner
    }

    /// The first instant at which the lease is no longer live.
    #[must_use]
    pub const fn deadline(&self) -> LogicalTime {
        LogicalTime::from_raw(self.deadline.get())
    }

    /// The grant that made this lease.
    #[must_use]
    pub const fn token(&self) -> GrantToken {
        self.token
    }
}

impl fmt::Debug for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHolder").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}

/// The operations that a shard remembers. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpKind {
    /// The cursor moved.
    Checkpoint = 0,
    /// Active → Done.
    Complete = 1,
    /// Active → Parked.
    Park = 2,
    /// Active → Split.
    SplitReplace = 3,
    /// The range shrank and a residual was created.
    SplitResidual = 4,
    /// Parked → Active, by an administrator.
    Unpark = 5,
    /// The lease holder released the shard.
    Release = 6,
    /// The lease holder offered the shard to another worker.
    Offer = 7,
    /// The lease holder withdrew its offer.
    Withdraw = 8,
    /// An administrator revoked the lease.
    RevokeLease = 9,
}

impl OpKind {
    /// Every kind, in the order of its number.
    pub(crate) const ALL: [Self; 10] = [
        Self::Checkpoint,
        Self::Complete,
        Self::Park,
        Self::SplitReplace,
        Self::SplitResidual,
        Self::Unpark,
        Self::Release,
        Self::Offer,
        Self::Withdraw,
        Self::RevokeLease,
    ];

    /// The kind stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The result of a logged operation. The numbers are persisted.
///
/// Only executed operations are logged, so the specification's `Error` and `Superseded` are absent
/// (ADR 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpResult {
    /// It was executed.
    Completed = 0,
}

impl OpResult {
    /// The result stored under `number`, if there is one.
    #[must_use]
    pub(crate) const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Completed),
            _ => None,
        }
    }
}

// A log's tags are the bytes of one number.
const _: () = assert!(OP_LOG_CAP == size_of::<u128>());

/// The lowest and the highest bit of every byte.
const LOW_BITS: u128 = u128::from_le_bytes([1; OP_LOG_CAP]);
const HIGH_BITS: u128 = u128::from_le_bytes([0x80; OP_LOG_CAP]);

const _: () = {
    assert!(OpKind::Checkpoint as u8 == 0 && OpKind::Complete as u8 == 1);
    assert!(OpKind::Park as u8 == 2 && OpKind::SplitReplace as u8 == 3);
    assert!(OpKind::SplitResidual as u8 == 4 && OpKind::Unpark as u8 == 5);
    assert!(OpKind::Release as u8 == 6 && OpKind::Offer as u8 == 7);
    assert!(OpKind::Withdraw as u8 == 8 && OpKind::RevokeLease as u8 == 9);
    assert!(OpResult::Completed as u8 == 0);
};

/// One remembered operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OpLogEntry {
    op_id: OpId,
    /// Never zero: a zero hash indicates a bug in hashing.
    payload_hash: u64,
    /// Never zero, and never before the entry in front of it.
    executed_at: LogicalTime,
    kind: OpKind,
    result: OpResult,
}

impl OpLogEntry {
    /// Fills places of a log that hold no entry; never read as one.
    const NOTHING: Self = Self {
        op_id: OpId::from_raw(0),
        payload_hash: 0,
        executed_at: LogicalTime::ZERO,
        kind: OpKind::Checkpoint,
        result: OpResult::Completed,
    };

    /// Creates the entry of an executed operation.
    ///
    /// # Panics
    ///
    /// If `payload_hash` or `executed_at` is zero.
    #[must_use]
    pub(crate) fn new(
        op_id: OpId,
        kind: OpKind,
        payload_hash: u64,
        executed_at: LogicalTime,
    ) -> Self {
        assert!(payload_hash != 0, "a payload hash is never zero");
        assert!(executed_at > LogicalTime::ZERO, "an operation has a time");
        Self { op_id, payload_hash, executed_at, kind, result: OpResult::Completed }
    }

    /// Creates a stored entry; `None` if a field is zero. Decoders use it: a log is decoded for
    /// every operation, and damage is no panic.
    #[must_use]
    pub(crate) fn stored(
        op_id: OpId,
        kind: OpKind,
        payload_hash: u64,
        executed_at: LogicalTime,
    ) -> Option<Self> {
        // The same rules as in `new`, without a panic: stored bytes are input.
        let is_sound = payload_hash != 0 && executed_at > LogicalTime::ZERO;
        is_sound.then_some(Self {
            op_id,
            payload_hash,
            executed_at,
            kind,
            result: OpResult::Completed,
        })
    }

    /// The caller's idempotency key.
    #[must_use]
    pub const fn op_id(&self) -> OpId {
        self.op_id
    }

    /// Which operation it was.
    #[must_use]
    pub(crate) const fn kind(&self) -> OpKind {
        self.kind
    }

    /// What became of it.
    #[must_use]
    pub(crate) const fn result(&self) -> OpResult {
        self.result
    }

    /// Fingerprint of its parameters.
    #[must_use]
    pub(crate) const fn payload_hash(&self) -> u64 {
        self.payload_hash
    }

    /// When it was first executed.
    #[must_use]
    pub(crate) const fn executed_at(&self) -> LogicalTime {
        self.executed_at
    }
}

impl fmt::Debug for OpLogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpLogEntry")
            .field("op_id", &self.op_id)
            .field("kind", &self.kind)
            .field("result", &self.result)
            .field("executed_at", &self.executed_at)
            .finish_non_exhaustive()
    }
}

/// The last [`OP_LOG_CAP`] operations of a shard, oldest first.
///
/// One-byte tags stand apart from the entries, so that looking for an operation id that is not
/// there touches the first cache line only, and remembering one touches one more. Only that many
/// are waited for when a checkpoint meets a log that is not in any cache.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct OpLog {
    /// Low byte of each entry's id, in step with `entries`.
    tags: [u8; OP_LOG_CAP],
    /// The time of the newest entry, or zero. Times never fall.
    last_time: LogicalTime,
    /// How many of `tags` and `entries` count; those behind mean nothing.
    len: u8,
    /// Where the next entry goes: `len` until the log is full, then the oldest one's place.
    next: u8,
    /// The highest [`OpSequence`] executed since the last grant, in little-endian order.
    sequence: [u8; SEQUENCE_LEN],
    /// Ids are unique. Once full, the oldest entry is at `next`.
    entries: [OpLogEntry; OP_LOG_CAP],
}

/// Bytes of a sequence in a log.
const SEQUENCE_LEN: usize = 6;

const _: () = assert!(OpSequence::MAX.0 == u64::MAX >> (u64::BITS as usize - 8 * SEQUENCE_LEN));

/// The part of an [`OpLog`] that an operation overwrites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpLogMark {
    tag: u8,
    entry: OpLogEntry,
    last_time: LogicalTime,
    len: u8,
    next: u8,
    sequence: [u8; SEQUENCE_LEN],
}

// No entry lies across two lines, and logs fill theirs.
const _: () = assert!(size_of::<OpLogEntry>() == 32 && std::mem::offset_of!(OpLog, entries) == 32);
const _: () = assert!(size_of::<OpLog>() == 576);

impl OpLog {
    /// An empty log.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self {
            tags: [0; OP_LOG_CAP],
            last_time: LogicalTime::ZERO,
            len: 0,
            next: 0,
            sequence: [0; SEQUENCE_LEN],
            entries: [OpLogEntry::NOTHING; OP_LOG_CAP],
        }
    }

    /// Appends `entry`, and drops the oldest entry if the log is full.
    ///
    /// # Panics
    ///
    /// If the id is already there or the time falls: the caller looks before it pushes.
    pub(crate) fn push(&mut self, entry: OpLogEntry) {
        assert!(self.find(entry.op_id).is_none(), "an operation is logged once");
        assert!(entry.executed_at >= self.last_time, "times in the log never decrease");
        self.push_unchecked(entry);
    }

    /// Appends `entry` without checks; tests create invalid logs with it.
    pub(crate) fn push_unchecked(&mut self, entry: OpLogEntry) {
        // The remainder changes nothing, and spares the check of the index.
        let place = usize::from(self.next) % OP_LOG_CAP;
        self.tags[place] = tag(entry.op_id);
        self.entries[place] = entry;
        self.last_time = entry.executed_at;
        // Written so that the compiler can exclude an overflow: every decoded entry passes here.
        self.next = ((place + 1) % OP_LOG_CAP) as u8;
        if usize::from(self.len) < OP_LOG_CAP {
            self.len += 1;
        }
    }

    /// Returns what the next [`push`](Self::push) and the sequence that goes with it overwrite.
    pub(crate) const fn mark(&self) -> OpLogMark {
        // Destructured, so that a new field is not forgotten here.
        let Self { tags, last_time, len, next, sequence, entries } = self;
        let place = *next as usize % OP_LOG_CAP;
        OpLogMark {
            tag: tags[place],
            entry: entries[place],
            last_time: *last_time,
            len: *len,
            next: *next,
            sequence: *sequence,
        }
    }

    /// Undoes the [`push`](Self::push) and the change of the sequence since `mark`, if there were
    /// any.
    pub(crate) const fn restore(&mut self, mark: OpLogMark) {
        let OpLogMark { tag, entry, last_time, len, next, sequence } = mark;
        let place = next as usize % OP_LOG_CAP;
        (self.tags[place], self.entries[place]) = (tag, entry);
        (self.last_time, self.len, self.next) = (last_time, len, next);
        self.sequence = sequence;
    }

    /// Clears the log, for reuse of the storage.
    pub(crate) const fn clear(&mut self) {
        // Tags and entries stay: those from `len` on are never read.
        (self.len, self.next, self.last_time) = (0, 0, LogicalTime::ZERO);
        self.restart_sequence();
    }

    /// Returns the highest sequence executed since the last grant.
    #[must_use]
    pub const fn sequence(&self) -> OpSequence {
        let [a, b, c, d, e, f] = self.sequence;
        OpSequence(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Stores the sequence of an executed operation; [`OpSequence::NONE`] changes nothing.
    ///
    /// # Panics
    ///
    /// Panics if an operation at or above `sequence` was executed: it should have been refused.
    pub(crate) fn advance_sequence(&mut self, sequence: OpSequence) {
        // An operation without a sequence is recognized by the log alone.
        if sequence == OpSequence::NONE {
            return;
        }
        assert!(sequence > self.sequence(), "an executed sequence rises within a lease");
        self.set_sequence_unchecked(sequence);
    }

    /// Forgets the sequence, for the next lease.
    pub(crate) const fn restart_sequence(&mut self) {
        self.sequence = [0; SEQUENCE_LEN];
    }

    /// Sets the sequence without a check; decoders use it.
    pub(crate) const fn set_sequence_unchecked(&mut self, sequence: OpSequence) {
        let [a, b, c, d, e, f, _, _] = sequence.0.to_le_bytes();
        self.sequence = [a, b, c, d, e, f];
    }

    /// The entry of `op_id`.
    #[must_use]
    pub(crate) fn find(&self, op_id: OpId) -> Option<&OpLogEntry> {
        // All tags are compared at once: a byte of `differences` is zero where the tag is equal,
        // and the subtraction carries into the high bit of such a byte. It may also carry into the
        // byte above one; the comparison of ids rejects that place.
        let wanted = u128::from_le_bytes([tag(op_id); OP_LOG_CAP]);
        let differences = u128::from_le_bytes(self.tags) ^ wanted;
        let mut candidates = differences.wrapping_sub(LOW_BITS) & !differences & HIGH_BITS;
        while candidates != 0 {
            let place = candidates.trailing_zeros() as usize / u8::BITS as usize;
            // Places rise, and those from `len` on hold no entry.
            let entry = self.entries[..self.len()].get(place)?;
            if entry.op_id == op_id {
                return Some(entry);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// The newest entry.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<&OpLogEntry> {
        let place = (usize::from(self.next) + OP_LOG_CAP - 1) % OP_LOG_CAP;
        self.entries[..self.len()].get(place)
    }

    /// The time of the newest entry, or zero.
    #[must_use]
    pub(crate) const fn last_time(&self) -> LogicalTime {
        self.last_time
    }

    /// How many operations are remembered.
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &OpLogEntry> + ExactSizeIterator {
        // A full log is a ring: the place of the next entry holds the oldest.
        let oldest = if self.len() < OP_LOG_CAP { 0 } else { usize::from(self.next) };
        (0..self.len()).map(move |age| &self.entries[(oldest + age) % OP_LOG_CAP])
    }
}

impl Default for OpLog {
    fn default() -> Self {
        Self::new()
    }
}

/// Logs are equal if they contain the same entries, whatever their positions, and one sequence.
impl PartialEq for OpLog {
    fn eq(&self, other: &Self) -> bool {
        // By age and not by place: a decoded log begins at the first place, wherever it began
        // before.
        self.sequence == other.sequence && self.iter().eq(other.iter())
    }
}

impl Eq for OpLog {}

impl fmt::Debug for OpLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The byte of an id by which entries are sorted out before the whole id is compared.
///
/// Ids are hashes or random numbers, so any byte spreads them evenly.
const fn tag(op_id: OpId) -> u8 {
    op_id.as_raw().to_le_bytes()[0]
}
