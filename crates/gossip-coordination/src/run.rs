//! Runs: one scan of one source, and the shards that together cover it.
//!
//! A run is made in two steps, `create_run` and `register_shards`, and ends once:
//!
//! ```text
//!  Initializing ──register_shards──► Active ──complete_run──► Done
//!       │                              ├──────fail_run──────► Failed
//!       └──────────cancel_run──────────┴─────cancel_run─────► Cancelled
//! ```
//!
//! The record names its root shards and never their children; counting shards is the store's work
//! ([`RunProgress`]). A pause is a flag beside the status, because it changes who may start and
//! nothing else.

use std::fmt;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId,
};
use gossip_stdx::RingBuffer;
use thiserror::Error;

use crate::handoff::HandoffId;
use crate::protocol::FENCE_FLOOR_MAX;
use crate::record::{ParkReason, ShardStatus, assert_holds, holds};
use crate::run_name::RunName;

/// How many operations a run remembers for replay.
///
/// Administrators act by hand, so eight is far beyond any honest retry. Registration is remembered
/// apart and never forgotten.
pub const RUN_OP_LOG_CAP: usize = 8;

/// Where a run is in its life. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums, reason = "D2.19: exactly five states; pausing is a flag")]
pub enum RunStatus {
    /// Created; the registration of its shards is incomplete.
    Initializing = 0,
    /// Shards can be claimed.
    Active = 1,
    /// Every shard is done.
    Done = 2,
    /// Failed.
    Failed = 3,
    /// Stopped by an administrator.
    Cancelled = 4,
}

impl RunStatus {
    /// Every status, in the order of its number.
    pub(crate) const ALL: [Self; 5] =
        [Self::Initializing, Self::Active, Self::Done, Self::Failed, Self::Cancelled];

    /// The status stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the run is over.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Initializing | Self::Active => false,
            Self::Done | Self::Failed | Self::Cancelled => true,
        }
    }

    /// Whether a run may go from this status to `next` (the picture above).
    #[must_use]
    pub(crate) const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Initializing => matches!(next, Self::Active | Self::Cancelled),
            Self::Active => matches!(next, Self::Done | Self::Failed | Self::Cancelled),
            Self::Done | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// The operations that a run remembers. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum RunOpKind {
    /// Its shards were registered.
    RegisterShards = 0,
    /// Active → Done.
    CompleteRun = 1,
    /// Active → Failed.
    FailRun = 2,
    /// Initializing or Active → Cancelled.
    CancelRun = 3,
    /// No shard may be granted.
    PauseRun = 4,
    /// Shards may be started again.
    ResumeRun = 5,
}

impl RunOpKind {
    /// Every kind, in the order of its number.
    pub(crate) const ALL: [Self; 6] = [
        Self::RegisterShards,
        Self::CompleteRun,
        Self::FailRun,
        Self::CancelRun,
        Self::PauseRun,
        Self::ResumeRun,
    ];

    /// The kind stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

const _: () = {
    assert!(RunStatus::Initializing as u8 == 0 && RunStatus::Active as u8 == 1);
    assert!(RunStatus::Done as u8 == 2 && RunStatus::Failed as u8 == 3);
    assert!(RunStatus::Cancelled as u8 == 4);
    assert!(RunOpKind::RegisterShards as u8 == 0 && RunOpKind::CompleteRun as u8 == 1);
    assert!(RunOpKind::FailRun as u8 == 2 && RunOpKind::CancelRun as u8 == 3);
    assert!(RunOpKind::PauseRun as u8 == 4 && RunOpKind::ResumeRun as u8 == 5);
};

/// What an operation on a run answers.
///
/// It is derived from the record when asked for again, so the log stores none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOpResult {
    /// The root shards, in the order in which they were registered.
    RegisteredShards {
        /// Their ids.
        ids: Box<[ShardId]>,
    },
    /// It happened.
    Ack,
}

/// Settings of a run, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunConfig {
    cursor_semantics: CursorSemantics,
    /// Never zero.
    lease_duration: u64,
    max_shard_retries: Option<u32>,
    name: Option<RunName>,
}

/// Settings that make no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunConfigError {
    /// A lease of no length is over before it begins.
    #[error("the lease duration is zero")]
    ZeroLeaseDuration,
}

impl RunConfig {
    /// Makes settings; `max_shard_retries` of `None` never parks a shard automatically.
    ///
    /// # Errors
    ///
    /// [`RunConfigError::ZeroLeaseDuration`].
    pub const fn try_new(
        cursor_semantics: CursorSemantics,
        lease_duration: u64,
        max_shard_retries: Option<u32>,
    ) -> Result<Self, RunConfigError> {
        if lease_duration == 0 {
            return Err(RunConfigError::ZeroLeaseDuration);
        }
        Ok(Self { cursor_semantics, lease_duration, max_shard_retries, name: None })
    }

    /// Returns the same settings with this name; `None` for a run without one.
    #[must_use]
    pub const fn with_name(self, name: Option<RunName>) -> Self {
        Self { name, ..self }
    }

    /// What an advance of the cursor promises.
    #[must_use]
    pub const fn cursor_semantics(&self) -> CursorSemantics {
        self.cursor_semantics
    }

    /// How long a grant or a renewal lasts, in ticks.
    #[must_use]
    pub const fn lease_duration(&self) -> u64 {
        self.lease_duration
    }

    /// How many grants without progress a shard survives.
    #[must_use]
    pub const fn max_shard_retries(&self) -> Option<u32> {
        self.max_shard_retries
    }

    /// The name that a user gave to the run. The coordinator does not interpret it.
    #[must_use]
    pub const fn name(&self) -> Option<RunName> {
        self.name
    }
}

/// One remembered operation on a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RunOpLogEntry {
    op_id: OpId,
    kind: RunOpKind,
    /// Never zero.
    payload_hash: u64,
    /// Never zero, and never before the entry in front of it.
    executed_at: LogicalTime,
}

impl RunOpLogEntry {
    /// Remembers an executed operation.
    ///
    /// # Panics
    ///
    /// If `payload_hash` or `executed_at` is zero.
    #[must_use]
    pub(crate) fn new(
        op_id: OpId,
        kind: RunOpKind,
        payload_hash: u64,
        executed_at: LogicalTime,
    ) -> Self {
        assert!(payload_hash != 0, "a payload hash is never zero");
        assert!(executed_at > LogicalTime::ZERO, "an operation has a time");
        Self { op_id, kind, payload_hash, executed_at }
    }

    /// The caller's idempotency key.
    #[must_use]
    pub const fn op_id(&self) -> OpId {
        self.op_id
    }

    /// Which operation it was.
    #[must_use]
    pub(crate) const fn kind(&self) -> RunOpKind {
        self.kind
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

impl fmt::Debug for RunOpLogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOpLogEntry")
            .field("op_id", &self.op_id)
            .field("kind", &self.kind)
            .field("executed_at", &self.executed_at)
            .finish_non_exhaustive()
    }
}

/// Who registered the shards and with what; never forgotten (DESIGN Q16).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The caller's idempotency key.
    pub(crate) op_id: OpId,
    /// Fingerprint of the manifest.
    pub(crate) payload_hash: u64,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("op_id", &self.op_id).finish_non_exhaustive()
    }
}

/// The record of one run, without its shards.
#[derive(Clone, Debug)]
pub struct RunRecord {
    tenant: TenantId,
    run: RunId,
    config: RunConfig,
    pub(crate) status: RunStatus,
    /// Whether starting shards is suspended.
    pub(crate) paused: bool,
    /// Never zero.
    created_at: LogicalTime,
    /// Present exactly when the run is over, and not before `created_at`.
    pub(crate) completed_at: Option<LogicalTime>,
    /// Present once registration began.
    pub(crate) registration: Option<Registration>,
    /// Unique; empty while initializing, not empty once active.
    pub(crate) root_shards: Vec<ShardId>,
    /// The lowest fence that a grant may use and a lease may have; zero for none. Never falls.
    pub(crate) fence_floor: FenceEpoch,
    /// Ids are unique; times never fall.
    pub(crate) op_log: RingBuffer<RunOpLogEntry, RUN_OP_LOG_CAP>,
}

impl RunRecord {
    /// A new run without shards.
    ///
    /// # Panics
    ///
    /// If `now` is zero, which no clock reports.
    #[must_use]
    pub(crate) fn new(tenant: TenantId, run: RunId, config: RunConfig, now: LogicalTime) -> Self {
        assert!(now > LogicalTime::ZERO, "time zero means a broken clock");
        Self {
            tenant,
            run,
            config,
            status: RunStatus::Initializing,
            paused: false,
            created_at: now,
            completed_at: None,
            registration: None,
            root_shards: Vec::new(),
            fence_floor: FenceEpoch::ZERO,
            op_log: RingBuffer::new(),
        }
    }

    /// The tenant the run belongs to.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The run's id.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Its settings.
    #[must_use]
    pub const fn config(&self) -> RunConfig {
        self.config
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn status(&self) -> RunStatus {
        self.status
    }

    /// Whether starting shards is suspended.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// When it was made.
    #[must_use]
    pub const fn created_at(&self) -> LogicalTime {
        self.created_at
    }

    /// When it ended, if it did.
    #[must_use]
    pub const fn completed_at(&self) -> Option<LogicalTime> {
        self.completed_at
    }

    /// Its root shards, in the order in which they were registered.
    #[must_use]
    pub fn root_shards(&self) -> &[ShardId] {
        &self.root_shards
    }

    /// Who registered its shards.
    #[must_use]
    pub(crate) const fn registration(&self) -> Option<Registration> {
        self.registration
    }

    /// The remembered operations, oldest first.
    pub fn op_log(&self) -> impl DoubleEndedIterator<Item = &RunOpLogEntry> + ExactSizeIterator {
        self.op_log.iter()
    }

    /// The part of the run that operations on its shards look at.
    #[must_use]
    pub const fn head(&self) -> RunHead {
        let Self { status, paused, config, fence_floor, .. } = *self;
        RunHead { status, paused, config, fence_floor }
    }

    /// The lowest fence that a grant may use and a lease may have; zero for none.
    #[must_use]
    pub(crate) const fn fence_floor(&self) -> FenceEpoch {
        self.fence_floor
    }

    /// The time at which something done at `now` is remembered: stored times never fall.
    #[must_use]
    pub(crate) fn stored_time(&self, now: LogicalTime) -> LogicalTime {
        // The clock of another administrator may be ahead of this one.
        let last = self.op_log.back().map_or(self.created_at, RunOpLogEntry::executed_at);
        now.max(last)
    }

    /// Panics if the record breaks one of its invariants.
    ///
    /// # Panics
    ///
    /// If an invariant is broken; the operation is then not stored.
    pub fn assert_invariants(&self) {
        assert_holds(self.check_invariants());
        // Registration writes the roots once and nothing changes them, so the sort is paid there.
        if cfg!(debug_assertions) {
            assert_holds(self.check_roots_unique());
        }
    }

    /// The first broken invariant, uniqueness of the roots apart.
    pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
        self.check_head()?;
        let initializing = self.status == RunStatus::Initializing;
        holds(!initializing || self.root_shards.is_empty(), "no shards while initializing")?;
        holds(
            self.status != RunStatus::Active || !self.root_shards.is_empty(),
            "an active run has shards",
        )
    }

    /// The first broken invariant of those that are not about roots.
    pub(crate) fn check_head(&self) -> Result<(), &'static str> {
        holds(self.created_at > LogicalTime::ZERO, "a run is made at a real time")?;
        holds(self.config.lease_duration > 0, "a lease lasts")?;
        holds(
            self.completed_at.is_some() == self.status.is_terminal(),
            "an end exactly when the run is over",
        )?;
        holds(
            self.completed_at.is_none_or(|at| at >= self.created_at),
            "a run ends after it began",
        )?;
        // Numbers of JSON are exact up to this one.
        holds(self.fence_floor <= FENCE_FLOOR_MAX, "a fence floor is bounded")?;
        self.check_log_invariants()
    }

    /// Whether no root is named twice, at the price of a sort.
    pub(crate) fn check_roots_unique(&self) -> Result<(), &'static str> {
        let mut ids = self.root_shards.clone();
        ids.sort_unstable();
        holds(ids.windows(2).all(|pair| pair[0] != pair[1]), "root ids are unique")
    }

    fn check_log_invariants(&self) -> Result<(), &'static str> {
        for (index, entry) in self.op_log.iter().enumerate() {
            let mut earlier = self.op_log.iter().take(index);
            holds(
                earlier.all(|other| {
                    other.op_id != entry.op_id && other.executed_at <= entry.executed_at
                }),
                "operation ids are unique and times never fall",
            )?;
        }
        Ok(())
    }
}

/// What operations on a shard look at in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Where the run is in its life.
    pub status: RunStatus,
    /// Whether starting shards is suspended.
    pub paused: bool,
    /// Its settings.
    pub config: RunConfig,
    /// The lowest fence that a grant may use and a lease may have; zero for none.
    pub(crate) fence_floor: FenceEpoch,
}

/// How far a run has come, in shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// All shards, children included.
    pub total: u64,
    /// Shards with work left.
    pub active: u64,
    /// Finished shards.
    pub done: u64,
    /// Shards replaced by their children.
    pub split: u64,
    /// Parked shards.
    pub parked: u64,
    /// Added: shards whose record is damaged; they count as nothing else but `total`.
    pub damaged: u64,
    /// Active shards whose lease is live.
    pub leased: u64,
    /// The smallest key that an active shard has reached, if any has reached one.
    pub watermark: Option<Watermark>,
}

impl RunProgress {
    /// Whether no shard is active any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.active == 0
    }

    /// Whether everything was done.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.is_settled() && !self.has_failures()
    }

    /// Returns whether any shard is parked or damaged.
    #[must_use]
    pub const fn has_failures(&self) -> bool {
        self.parked > 0 || self.damaged > 0
    }
}

/// A key reached by a run; shown only by its length.
#[derive(Clone, PartialEq, Eq)]
pub struct Watermark(Box<[u8]>);

impl Watermark {
    /// Copies `key`.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(key.into())
    }

    /// The key itself.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// Whether a run can end, judged by its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the three cases of evaluate_run_terminal")]
pub enum RunTerminalEvaluation {
    /// Some shard still has work.
    StillActive,
    /// All shards are settled, but some are parked or damaged.
    HasFailures,
    /// Everything was done.
    AllDone,
}

/// Judges whether a run can end.
#[must_use]
pub const fn evaluate_run_terminal(progress: &RunProgress) -> RunTerminalEvaluation {
    // First: a parked shard may be unparked while others still have work.
    if progress.active > 0 {
        return RunTerminalEvaluation::StillActive;
    }
    if progress.has_failures() {
        return RunTerminalEvaluation::HasFailures;
    }
    RunTerminalEvaluation::AllDone
}

/// Which shards a listing shows; every given condition must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardFilter {
    /// Only shards in this status.
    pub status: Option<ShardStatus>,
    /// Only shards whose lease is live (`true`) or not (`false`).
    pub is_leased: Option<bool>,
    /// Only roots.
    pub root_only: bool,
    /// Only this shard; the cost does not depend on the size of the run.
    pub only: Option<ShardId>,
    /// Added: only shards whose record is damaged. Without it they are shown besides those that
    /// match: their status and lease are not known, so they may match as well.
    pub damaged_only: bool,
    /// Added: only a page of the shards that match, in the order of their ids and not of their
    /// ranges. The memory of a listing page by page does not depend on the size of the run.
    pub page: Option<ShardPage>,
}

/// A page of a listing of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a page begins somewhere and has a length")]
pub struct ShardPage {
    /// The last shard of the page before; `None` for the first page.
    pub after: Option<ShardId>,
    /// Maximum rows. A page with none is the last one; so is one with fewer.
    pub limit: usize,
}

impl ShardFilter {
    /// Every shard.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            status: None,
            is_leased: None,
            root_only: false,
            only: None,
            damaged_only: false,
            page: None,
        }
    }

    /// Shards with work left.
    #[must_use]
    pub const fn active() -> Self {
        Self { status: Some(ShardStatus::Active), ..Self::all() }
    }

    /// Shards that can be claimed.
    #[must_use]
    pub const fn available() -> Self {
        Self { is_leased: Some(false), ..Self::active() }
    }

    /// Parked shards.
    #[must_use]
    pub const fn parked() -> Self {
        Self { status: Some(ShardStatus::Parked), ..Self::all() }
    }

    /// Shards whose record is damaged.
    #[must_use]
    pub const fn damaged() -> Self {
        Self { damaged_only: true, ..Self::all() }
    }

    /// Selects this shard, whatever its status.
    #[must_use]
    pub const fn one(shard: ShardId) -> Self {
        Self { only: Some(shard), ..Self::all() }
    }

    /// The same, roots only.
    #[must_use]
    pub const fn roots(self) -> Self {
        Self { root_only: true, ..self }
    }

    /// The same, one page of it.
    #[must_use]
    pub const fn page(self, after: Option<ShardId>, limit: usize) -> Self {
        Self { page: Some(ShardPage { after, limit }), ..self }
    }

    /// Returns whether the rows have the texts of parked shards.
    pub(crate) fn has_contexts(&self) -> bool {
        self.only.is_some() || self.status == Some(ShardStatus::Parked)
    }

    /// Whether a shard with these properties is shown.
    #[must_use]
    pub(crate) fn admits(&self, status: ShardStatus, leased: bool, shard: ShardId) -> bool {
        self.status.is_none_or(|wanted| wanted == status)
            && self.is_leased.is_none_or(|wanted| wanted == leased)
            // Only intact shards are asked about here.
            && !self.damaged_only
            && self.admits_id(shard)
    }

    /// Returns whether a shard with a damaged record is shown. A listing without it would hide a
    /// shard that may match.
    #[must_use]
    pub(crate) fn admits_id(&self, shard: ShardId) -> bool {
        let is_of_page = self.page.and_then(|page| page.after).is_none_or(|after| shard > after);
        let is_wanted = self.only.is_none_or(|only| only == shard) && is_of_page;
        is_wanted && !(self.root_only && shard.is_derived())
    }
}

/// The part of a shard's record that is damaged, missing, or does not fit the other part.
///
/// The fields of a [`ShardSummary`] that come from an unreadable part have placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a record has two parts")]
pub enum ShardDamage {
    /// The hot part: status, fence, lease and cursor are not known. The range is.
    Hot,
    /// The cold part: range, metadata, parent and spawned shards are not known.
    Cold,
    /// Both parts: only the id is known.
    Both,
}

impl ShardDamage {
    /// Returns whether the range is known.
    #[must_use]
    pub const fn has_range(self) -> bool {
        matches!(self, Self::Hot)
    }
}

/// One row of a listing.
///
/// Its bytes are as long as the keys are: ten thousand rows cost what their keys cost.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardSummary {
    /// The shard.
    pub shard: ShardId,
    /// Added: the unreadable part of its record; `None` for an intact shard.
    pub damage: Option<ShardDamage>,
    /// Where it is in its life; `Active` if that cannot be read, because its work is not known to
    /// be done.
    pub status: ShardStatus,
    /// Why it is parked, if it is.
    pub park_reason: Option<ParkReason>,
    /// Added: the text with which the shard was parked, for people of the tenant. Only a listing of
    /// one shard or of parked shards has it; others need not read it.
    pub park_context: Option<Box<str>>,
    /// Whether a lease was live at the time of the listing.
    pub leased: bool,
    /// When that lease ends; absent if none is live.
    pub lease_deadline: Option<LogicalTime>,
    /// The lease holder; absent if no lease is live. The first question of an operator.
    pub owner: Option<WorkerId>,
    /// The current fence. With `last_handoff` it shows how a handoff ended.
    pub fence_epoch: FenceEpoch,
    /// The handoff of the last grant, if it was one.
    pub last_handoff: Option<HandoffId>,
    /// Grants in all.
    pub acquire_count: u32,
    /// Grants since the last progress. The runtime checks it before it claims, because such
    /// a shard may crash its lease holders.
    pub attempts: u32,
    /// Progress.
    pub last_key: Option<Box<[u8]>>,
    /// The connector's resume token. The runtime stores certificate data there, and a
    /// completed shard cannot be acquired to read it.
    pub token: Option<Box<[u8]>>,
    /// First key of the range; empty for the beginning of all keys.
    pub start: Box<[u8]>,
    /// First key behind the range; empty for the end of all keys.
    pub end: Box<[u8]>,
    /// The metadata of the range; a new worker reads its job from it.
    pub metadata: Box<[u8]>,
    /// The shard it was cut from, if any.
    pub parent: Option<ShardId>,
    /// How many shards were cut from it.
    pub spawned_count: u32,
}

impl fmt::Debug for ShardSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardSummary")
            .field("shard", &self.shard)
            .field("damage", &self.damage)
            .field("status", &self.status)
            .field("park_reason", &self.park_reason)
            .field("leased", &self.leased)
            .field("last_key_len", &self.last_key.as_ref().map(|key| key.len()))
            .field("spawned_count", &self.spawned_count)
            .finish_non_exhaustive()
    }
}
