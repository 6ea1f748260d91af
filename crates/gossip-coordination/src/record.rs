//! The shard record and its invariants.
//!
//! The record is data with invariants. It decides nothing: rules are in
//! [`protocol`](crate::protocol), and only [`protocol::evolve`](crate::protocol::evolve) changes a
//! record. Its fields of variable size live in a [`RecordPool`], so a record says what it holds
//! together with the pool it was made in ([`ShardView`]).
//!
//! The layout is small on purpose: what an idle shard does not use (offer, request, lineage) is
//! boxed apart, and the operation log is taken from the pool on first use.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, PooledCursor,
    PooledShardSpec, PooledSpawned, ShardSpecRef,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_stdx::{SlabFull, SlotSpacing};

use crate::handoff::{HandoffId, Offer};
use crate::lease::{LeaseHolder, OP_LOG_CAP, OpLog, OpSequence};
use crate::pool::{OpLogSlot, RecordPool};
use crate::request::PendingRequest;

/// Where a shard is in its life. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums, reason = "D2.6: exactly four states; a fifth breaks every rule")]
pub enum ShardStatus {
    /// Work remains.
    Active = 0,
    /// Finished.
    Done = 1,
    /// Replaced by its children.
    Split = 2,
    /// Parked because of an error; an administrator can unpark it.
    Parked = 3,
}

impl ShardStatus {
    /// Every status, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Active, Self::Done, Self::Split, Self::Parked];

    /// The status stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether no operation under a lease may change the shard any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Active => false,
            Self::Done | Self::Split | Self::Parked => true,
        }
    }
}

/// Why a shard was parked. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum ParkReason {
    /// The connector lacks access.
    PermissionDenied = 0,
    /// The source item does not exist.
    NotFound = 1,
    /// The content is inconsistent; an operator must inspect it.
    Poisoned = 2,
    /// Too many attempts made no progress.
    TooManyErrors = 3,
    /// Anything else.
    Other = 4,
}

impl ParkReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 5] =
        [Self::PermissionDenied, Self::NotFound, Self::Poisoned, Self::TooManyErrors, Self::Other];

    /// The reason stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

// `from_u8` finds a number by its place.
const _: () = {
    let mut number = 0;
    while number < ShardStatus::ALL.len() {
        assert!(ShardStatus::ALL[number] as usize == number);
        number += 1;
    }
    number = 0;
    while number < ParkReason::ALL.len() {
        assert!(ParkReason::ALL[number] as usize == number);
        number += 1;
    }
};

const _: () = {
    assert!(ShardStatus::Active as u8 == 0);
    assert!(ShardStatus::Done as u8 == 1);
    assert!(ShardStatus::Split as u8 == 2);
    assert!(ShardStatus::Parked as u8 == 3);
    assert!(ParkReason::PermissionDenied as u8 == 0);
    assert!(ParkReason::NotFound as u8 == 1);
    assert!(ParkReason::Poisoned as u8 == 2);
    assert!(ParkReason::TooManyErrors as u8 == 3);
    assert!(ParkReason::Other as u8 == 4);
};

/// Where a derived shard comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lineage {
    /// The shard it was cut from.
    pub parent: ShardId,
    /// Payload hash of the split that made it. A replayed residual split is recognised by it, also
    /// after the child itself has been split.
    pub split_hash: u64,
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lineage").field("parent", &self.parent).finish_non_exhaustive()
    }
}

/// What a shard starts its life with.
#[derive(Clone, Copy, Debug)]
pub struct NewShard<'a> {
    /// Its id; derived exactly when `lineage` is present.
    pub(crate) shard: ShardId,
    /// Its range and metadata.
    pub spec: ShardSpecRef<'a>,
    /// Where work begins.
    pub cursor: CursorUpdate<'a>,
    /// Its first fence: a child starts at its parent's, so that a sink can order the two.
    pub(crate) fence: FenceEpoch,
    /// Inherited attempts, so that bisection of a poisoned range continues.
    pub(crate) attempts: u32,
    /// What an advance of the cursor promises in this run.
    pub(crate) cursor_semantics: CursorSemantics,
    /// Absent for roots.
    pub(crate) lineage: Option<Lineage>,
}

/// The record of one shard.
///
/// Not `Clone`: its blocks belong to one pool and are freed once, by [`ShardRecord::free`].
///
/// Fields are in the order of use: who the shard belongs to and who holds it come first, because
/// looking for work and moving deadlines read no more than that. In memory that is one cache line.
#[repr(C)]
pub struct ShardRecord {
    tenant: Arc<TenantId>,
    key: ShardKey,
    /// At least [`FenceEpoch::INITIAL`] (INV-4); never falls.
    pub(crate) fence_epoch: FenceEpoch,
    /// Absent in every terminal state (INV-3); owner and deadline come together (INV-2).
    pub(crate) lease: Option<LeaseHolder>,
    /// Whatever most shards never have.
    pub(crate) rare: Option<Box<Rare>>,
    pub(crate) spec: PooledShardSpec,
    pub(crate) cursor: PooledCursor,
    pub(crate) op_log: OpLogSlot,
    /// Grants since the last progress; see DESIGN Q13.
    pub(crate) attempts: u32,
    /// Grants in all.
    pub(crate) acquire_count: u32,
    pub(crate) status: ShardStatus,
    /// Present exactly when parked (INV-1).
    pub(crate) park_reason: Option<ParkReason>,
    cursor_semantics: CursorSemantics,
}

// There may be millions of records.
const _: () = assert!(size_of::<ShardRecord>() <= 120);
// Up to the lease it is read by everything that looks for work or moves a deadline.
const _: () = assert!(offset_of!(ShardRecord, lease) + size_of::<Option<LeaseHolder>>() <= 64);
// A shard that was never split can be split into as many children as one plan has.
const _: () = assert!(MAX_SPLIT_CHILDREN <= MAX_SPAWNED_PER_SHARD);
// Every executed operation leaves an entry (INV-14).
const _: () = assert!(OP_LOG_CAP > 0);

/// The parts that most shards never have.
pub(crate) struct Rare {
    /// Present exactly when the id is derived (INV-7).
    pub(crate) lineage: Option<Lineage>,
    /// Only derived ids (INV-8), at most [`MAX_SPAWNED_PER_SHARD`] (INV-10).
    pub(crate) spawned: PooledSpawned,
    /// Only while a lease is held (INV-11).
    pub(crate) offer: Option<Offer>,
    /// Only while a lease is held (INV-12).
    pub(crate) request: Option<PendingRequest>,
    /// The handoff behind the last bump of the fence, if it was one.
    pub(crate) last_handoff: Option<HandoffId>,
    /// Only while parked. A record that a store loaded has none: it is stored apart and never read
    /// by a decision.
    pub(crate) park_context: Option<Box<str>>,
}

impl Default for Rare {
    fn default() -> Self {
        Self {
            lineage: None,
            spawned: PooledSpawned::empty(),
            offer: None,
            request: None,
            last_handoff: None,
            park_context: None,
        }
    }
}

impl ShardRecord {
    /// Makes the record of a new shard, active and without a lease.
    ///
    /// # Errors
    ///
    /// [`SlabFull`] if its bytes do not fit; nothing stays allocated then.
    ///
    /// # Panics
    ///
    /// Panics if the new record violates an invariant.
    pub fn new(
        tenant: Arc<TenantId>,
        run: RunId,
        new: &NewShard<'_>,
        pool: &mut RecordPool,
    ) -> Result<Self, SlabFull> {
        let spec = PooledShardSpec::from_ref(new.spec, &mut pool.bytes)?;
        let cursor = match PooledCursor::from_update(new.cursor, &mut pool.bytes) {
            Ok(cursor) => cursor,
            Err(full) => {
                // The record does not exist yet, so nothing else would give these bytes back.
                spec.free(&mut pool.bytes);
                return Err(full);
            }
        };
        let rare =
            new.lineage.map(|lineage| Box::new(Rare { lineage: Some(lineage), ..Rare::default() }));
        let record = Self {
            tenant,
            key: ShardKey::new(run, new.shard),
            fence_epoch: new.fence,
            lease: None,
            spec,
            cursor,
            rare,
            op_log: OpLogSlot::NONE,
            attempts: new.attempts,
            acquire_count: 0,
            status: ShardStatus::Active,
            park_reason: None,
            cursor_semantics: new.cursor_semantics,
        };
        record.assert_invariants(pool);
        Ok(record)
    }

    /// Gives everything the record holds in `pool` back.
    pub fn free(self, pool: &mut RecordPool) {
        self.spec.free(&mut pool.bytes);
        self.cursor.free(&mut pool.bytes);
        if let Some(rare) = self.rare {
            rare.spawned.free(&mut pool.bytes);
        }
        pool.logs.free(self.op_log);
    }

    /// Asks the processor for what a decision about progress reads beside the record: range,
    /// cursor and operation log.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &RecordPool) {
        self.spec.prefetch(&pool.bytes);
        self.cursor.prefetch(&pool.bytes);
        pool.logs.prefetch(self.op_log);
    }

    /// Asks the processor for where range and cursor start.
    #[inline]
    pub(crate) fn prefetch_starts(&self, pool: &RecordPool) {
        self.spec.prefetch_start(&pool.bytes);
        self.cursor.prefetch_start(&pool.bytes);
    }

    /// How far behind the bytes of this record those of `next` lie, which was made after it.
    pub(crate) const fn spacing_to(&self, next: &Self) -> SlotSpacing {
        self.spec.spacing_to(&next.spec)
    }

    /// The tenant the shard belongs to.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        *self.tenant
    }

    /// Run and shard id.
    #[must_use]
    pub const fn key(&self) -> ShardKey {
        self.key
    }

    /// Where the shard is in its life.
    #[must_use]
    pub const fn status(&self) -> ShardStatus {
        self.status
    }

    /// Why it is parked, if it is.
    #[must_use]
    pub(crate) const fn park_reason(&self) -> Option<ParkReason> {
        self.park_reason
    }

    /// The current fence.
    #[must_use]
    pub const fn fence_epoch(&self) -> FenceEpoch {
        self.fence_epoch
    }

    /// What an advance of the cursor promises.
    #[must_use]
    pub(crate) const fn cursor_semantics(&self) -> CursorSemantics {
        self.cursor_semantics
    }

    /// The lease, live or run out.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseHolder> {
        self.lease
    }

    /// The worker the record is bound to.
    #[must_use]
    pub fn lease_owner(&self) -> Option<WorkerId> {
        self.lease.map(|holder| holder.owner())
    }

    /// When the lease ends or ended.
    #[must_use]
    pub fn lease_deadline(&self) -> Option<LogicalTime> {
        self.lease.map(|holder| holder.deadline())
    }

    /// Whether a lease is live at `now`: the deadline itself is already too late.
    #[must_use]
    pub fn is_leased_at(&self, now: LogicalTime) -> bool {
        self.lease_deadline().is_some_and(|deadline| now < deadline)
    }

    /// Grants since the last progress.
    #[must_use]
    pub(crate) const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Grants in all.
    #[must_use]
    pub(crate) const fn acquire_count(&self) -> u32 {
        self.acquire_count
    }

    /// The shard this one was cut from, if any.
    #[must_use]
    pub(crate) fn parent(&self) -> Option<ShardId> {
        self.lineage().map(|lineage| lineage.parent)
    }

    /// Parent and split of a derived shard.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        self.rare.as_ref()?.lineage
    }

    /// Returns the pending offer, expired or not.
    #[must_use]
    pub fn offer(&self) -> Option<&Offer> {
        self.rare.as_ref()?.offer.as_ref()
    }

    /// The pending request of an administrator, expired or not.
    #[must_use]
    pub fn request(&self) -> Option<&PendingRequest> {
        self.rare.as_ref()?.request.as_ref()
    }

    /// Returns the text with which the shard was parked, if it is known.
    #[must_use]
    pub(crate) fn park_context(&self) -> Option<&str> {
        self.rare.as_ref()?.park_context.as_deref()
    }

    /// The handoff behind the last bump of the fence, if it was one.
    #[must_use]
    pub(crate) fn last_handoff(&self) -> Option<HandoffId> {
        self.rare.as_ref()?.last_handoff
    }

    /// How many shards were cut from this one.
    #[must_use]
    pub(crate) fn spawned_count(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.spawned.len())
    }

    /// Panics unless a shard may go from its status to `next`.
    ///
    /// # Panics
    ///
    /// If the current status is terminal and `next` is another one. Unpark is the one way out of
    /// Parked, and it does not come through here.
    pub fn assert_transition_legal(&self, next: ShardStatus) {
        assert!(
            !self.status.is_terminal() || self.status == next,
            "a shard that is {:?} never becomes {next:?}",
            self.status,
        );
    }

    /// Panics if the record breaks one of its invariants.
    ///
    /// A violated invariant stops the operation before anything is stored.
    ///
    /// # Panics
    ///
    /// If an invariant is broken.
    #[inline]
    pub fn assert_invariants(&self, pool: &RecordPool) {
        assert_holds(self.check_invariants());
        assert_holds(check_log_invariants(pool.logs.get(self.op_log)));
        // In every build, what a change adds is checked when it is added: a log entry by
        // `OpLog::push`, spawned ids by `assert_spawned`. Walking the log and the list at each
        // checkpoint would cost a tenth of it.
        if cfg!(debug_assertions) {
            assert_holds(check_log_entries(pool.logs.get(self.op_log)));
            self.assert_spawned(pool);
        }
    }

    /// Panics if a spawned id is not a derived one (INV-8).
    pub(crate) fn assert_spawned(&self, pool: &RecordPool) {
        if let Some(rare) = &self.rare {
            let listed = rare.spawned.iter(&pool.bytes).count();
            assert_eq!(listed, rare.spawned.len(), "the list has as many ids as it counts");
            let all_derived = rare.spawned.iter(&pool.bytes).all(ShardId::is_derived);
            assert_holds(holds(all_derived, "INV-8: spawned shards are derived"));
        }
    }

    /// The first broken invariant of those that need no walk.
    #[inline]
    fn check_invariants(&self) -> Result<(), &'static str> {
        let common = ShardFacts {
            status: self.status,
            park_reason: self.park_reason,
            fence: self.fence_epoch,
            leased: self.lease.is_some(),
            // These belong to the rare parts, which most records do not have.
            offered: false,
            requested: false,
            derived: self.key.shard().is_derived(),
            has_parent: false,
            spawned_count: 0,
        };
        match &self.rare {
            None => common.check(),
            Some(rare) => common.check_with(rare),
        }
    }
}

/// What the invariants of a shard are about, its log and the ids of its children apart.
///
/// A record is asked for it, and so is the stored hot part of one, which must not become a record
/// before it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardFacts {
    pub(crate) status: ShardStatus,
    pub(crate) park_reason: Option<ParkReason>,
    pub(crate) fence: FenceEpoch,
    pub(crate) leased: bool,
    pub(crate) offered: bool,
    pub(crate) requested: bool,
    pub(crate) derived: bool,
    pub(crate) has_parent: bool,
    pub(crate) spawned_count: usize,
}

impl ShardFacts {
    /// The first broken invariant.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let parked = self.status == ShardStatus::Parked;
        holds(self.park_reason.is_some() == parked, "INV-1: a reason exactly when parked")?;
        holds(
            !self.status.is_terminal() || !self.leased,
            "INV-3: a terminal shard holds no lease",
        )?;
        holds(self.fence >= FenceEpoch::INITIAL, "INV-4: a real fence")?;
        holds(
            self.status != ShardStatus::Split || self.spawned_count > 0,
            "INV-6: a split shard has children",
        )?;
        holds(self.has_parent == self.derived, "INV-7: a parent exactly when derived")?;
        holds(self.spawned_count <= MAX_SPAWNED_PER_SHARD, "INV-10: spawned is bounded")?;
        holds(!self.offered || self.leased, "INV-11: an offer needs a lease")?;
        holds(!self.requested || self.leased, "INV-12: a request needs a lease")
    }

    /// The same of a record that has rare parts. Out of line, because most have none.
    #[inline(never)]
    fn check_with(self, rare: &Rare) -> Result<(), &'static str> {
        let explained = rare.park_context.is_some();
        holds(!explained || self.status == ShardStatus::Parked, "only a parked shard has a text")?;
        let offered = rare.offer.is_some();
        let requested = rare.request.is_some();
        let has_parent = rare.lineage.is_some();
        let spawned_count = rare.spawned.len();
        Self { offered, requested, has_parent, spawned_count, ..self }.check()
    }
}

/// INV-14: the log of an executed operation has at least its entry.
pub(crate) const SEQUENCE_WITHOUT_LOG: &str = "INV-14: a sequence needs a logged operation";

fn check_log_invariants(log: &OpLog) -> Result<(), &'static str> {
    holds(log.sequence() == OpSequence::NONE || !log.is_empty(), SEQUENCE_WITHOUT_LOG)?;
    holds(log.len() <= OP_LOG_CAP, "INV-5: the log is bounded")?;
    Ok(())
}

fn check_log_entries(log: &OpLog) -> Result<(), &'static str> {
    for (index, entry) in log.iter().enumerate() {
        for earlier in log.iter().take(index) {
            holds(earlier.op_id() != entry.op_id(), "INV-9: operation ids are unique")?;
            holds(
                earlier.executed_at() <= entry.executed_at(),
                "INV-13: times in the log never fall",
            )?;
        }
    }
    Ok(())
}

/// Checks one invariant; `what` describes it.
#[inline]
pub(crate) const fn holds(condition: bool, what: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(what) }
}

/// Panics with the invariant that is broken. Bytes from a store are refused instead.
#[inline]
pub(crate) fn assert_holds(checked: Result<(), &'static str>) {
    if let Err(broken) = checked {
        panic!("{broken}");
    }
}

impl fmt::Debug for ShardRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardRecord")
            .field("key", &self.key)
            .field("status", &self.status)
            .field("fence_epoch", &self.fence_epoch)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A record together with the pool that holds its bytes: the input of a decision.
#[derive(Clone, Copy)]
pub struct ShardView<'a> {
    record: &'a ShardRecord,
    pool: &'a RecordPool,
}

impl<'a> ShardView<'a> {
    /// Looks at `record`, which was made in `pool`.
    #[must_use]
    pub const fn new(record: &'a ShardRecord, pool: &'a RecordPool) -> Self {
        Self { record, pool }
    }

    /// The record's fields of fixed size.
    #[must_use]
    pub const fn record(&self) -> &'a ShardRecord {
        self.record
    }

    /// Range and metadata.
    #[must_use]
    #[inline]
    pub fn spec(&self) -> ShardSpecRef<'a> {
        self.record.spec.view(&self.pool.bytes)
    }

    /// Progress.
    #[must_use]
    #[inline]
    pub fn cursor(&self) -> CursorUpdate<'a> {
        self.record.cursor.view(&self.pool.bytes)
    }

    /// Start, end and metadata, one behind the other, and the lengths of the first two.
    #[inline]
    pub(crate) fn packed_spec(&self) -> (&'a [u8], [usize; 2]) {
        let (bytes, [start, end]) = self.record.spec.packed(&self.pool.bytes);
        assert!(start + end <= bytes.len(), "start and end are part of the packed bytes");
        (bytes, [start, end])
    }

    /// Cursor key and token, one behind the other, and the length of the key.
    #[inline]
    pub(crate) fn packed_cursor(&self) -> (&'a [u8], usize) {
        let (bytes, key) = self.record.cursor.packed(&self.pool.bytes);
        assert!(key <= bytes.len(), "the key is part of the packed bytes");
        (bytes, key)
    }

    /// Remembered operations.
    #[must_use]
    pub fn op_log(&self) -> &'a OpLog {
        self.pool.logs.get(self.record.op_log)
    }

    /// Ids of the shards cut from this one, oldest first.
    pub fn spawned(&self) -> impl Iterator<Item = ShardId> + 'a {
        let pool = self.pool;
        self.record.rare.iter().flat_map(move |rare| rare.spawned.iter(&pool.bytes))
    }
}

/// The record alone: the pool belongs to others too.
impl fmt::Debug for ShardView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardView").field(self.record).finish()
    }
}
