//! One operation of a simulated process: its parameters, and its known results.
//!
//! An [`Op`] exists as long as anything refers to it: the process that waits for the result, and
//! every message of it on the wire, which may arrive long after the process is dead.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Write as _};

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey};
use gossip_coordination::store::{Key, Txn};
use gossip_coordination::{
    InfraError, ParkReason, PendingRequest, ShardAction, ShardDamage, WorkerState,
};

/// Defines [`Verb`] from rows of a name and a [`Subject`].
macro_rules! verbs {
    ($($verb:ident: $subject:ident,)*) => {
        /// An operation of the public interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(clippy::exhaustive_enums, reason = "a new operation must be simulated")]
        #[expect(missing_docs, reason = "the names are those of the operations")]
        pub enum Verb {
            $($verb,)*
        }

        impl Verb {
            /// Every operation.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$verb,)*];

            /// The number of operations.
            pub const COUNT: usize = [$(stringify!($verb),)*].len();

            const fn subject(self) -> Subject {
                match self {
                    $(Self::$verb => Subject::$subject,)*
                }
            }
        }
    };
}

verbs! {
    Claim: Other,
    Acquire: Other,
    Renew: Lease,
    RenewMany: Lease,
    Checkpoint: Lease,
    Complete: Lease,
    Park: Lease,
    SplitReplace: Lease,
    SplitResidual: Lease,
    Release: Lease,
    Offer: Lease,
    Accept: Other,
    Withdraw: Lease,
    Unpark: Other,
    RequestAction: Other,
    RevokeLease: Other,
    CreateRun: Run,
    RegisterShards: Run,
    CompleteRun: Run,
    FailRun: Run,
    CancelRun: Run,
    PauseRun: Run,
    ResumeRun: Run,
    DeleteRun: Run,
    CollectRuns: Run,
    GetRun: Other,
    Progress: Other,
    ListShards: Other,
    ActiveRuns: Other,
    RegisterWorker: Other,
    Heartbeat: Other,
    ListWorkers: Other,
    ListRuns: Other,
    SetAllotment: Other,
    RepairShard: Other,
}

/// The record that an operation is about.
#[derive(Clone, Copy)]
enum Subject {
    /// A shard, under a lease of it.
    Lease,
    /// A run and not one of its shards.
    Run,
    /// A shard without a lease, a worker, or a query.
    Other,
}

impl Verb {
    /// Whether the operation is made under a lease.
    pub(super) const fn is_leased(self) -> bool {
        matches!(self.subject(), Subject::Lease)
    }

    /// Whether the operation is about a run and not about one of its shards.
    pub(super) const fn is_about_run(self) -> bool {
        matches!(self.subject(), Subject::Run)
    }
}

/// A lease as its holder presents it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRef {
    /// The shard, by the oracle's number.
    pub(super) shard: u32,
    pub(super) key: ShardKey,
    /// The grant that gave it, by the oracle's number.
    pub(super) grant: u32,
    pub(super) fence: u64,
    pub(super) token: u64,
    /// The sequence of the operation that presents it; zero for none.
    pub(super) sequence: u64,
}

impl LeaseRef {
    /// A shard without a lease.
    pub(super) const fn to(shard: u32, key: ShardKey) -> Self {
        Self { shard, key, grant: 0, fence: 0, token: 0, sequence: 0 }
    }
}

/// A planned handoff as its source describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) handoff: u64,
    pub(super) destination: u64,
    pub(super) until: u64,
}

/// The parameters of an operation beside its subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The cursor of a checkpoint, a completion or an offer; keys before it are done.
    pub(super) to: Option<u32>,
    /// Where a split cuts.
    pub(super) cuts: Vec<u32>,
    pub(super) terms: Option<Terms>,
    /// The request of an administrator to a lease holder, and when it expires.
    pub(super) asked: Option<(ShardAction, u64)>,
    pub(super) clean: bool,
    /// The fence of the lease that a revocation means; any if absent.
    pub(super) fence: Option<u64>,
    /// Why a shard is parked.
    pub(super) reason: Option<ParkReason>,
    /// The quota that an operator sets.
    pub(super) allotment: Option<u32>,
    /// The state that a worker reports.
    pub(super) state: Option<WorkerState>,
    /// Whether tokens and metadata come from a user's worker, and are unknown.
    pub(super) foreign: bool,
    /// Whether a lease is presented to another tenant.
    pub(super) stranger: bool,
    /// The deliberate error in it.
    pub(super) flaw: Option<Flaw>,
}

/// A deliberate error in a request. The request is refused, and the error names the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A cursor without a key.
    NoKey,
    /// A cursor whose key is a byte too long.
    LongKey,
    /// A cursor whose token is a byte too long.
    LongToken,
    /// A manifest without roots.
    NoRoots,
    /// One with two roots of one id.
    SameRoot,
    /// One with two roots that share keys.
    SharedKeys,
    /// One with a root that has no keys.
    NoKeys,
    /// One with a root that has the id of a child.
    ChildsId,
    /// One with metadata that are a byte too long.
    LongMetadata,
}

impl Flaw {
    /// Those of a cursor.
    pub(super) const OF_CURSORS: [Self; 3] = [Self::NoKey, Self::LongKey, Self::LongToken];

    /// Those of a manifest.
    pub(super) const OF_MANIFESTS: [Self; 6] = [
        Self::NoRoots,
        Self::SameRoot,
        Self::SharedKeys,
        Self::NoKeys,
        Self::ChildsId,
        Self::LongMetadata,
    ];

    /// Returns the name of the error that reports it.
    pub(super) const fn refusal(self) -> &'static str {
        match self {
            Self::NoKey => "CheckpointMissingKey",
            Self::LongKey => "CursorKeyTooLarge",
            Self::LongToken => "CursorTokenTooLarge",
            Self::NoRoots
            | Self::SameRoot
            | Self::SharedKeys
            | Self::NoKeys
            | Self::ChildsId
            | Self::LongMetadata => "ManifestInvalid",
        }
    }

    /// Returns whether an error of that name is about the request alone, and not about a record.
    pub(super) fn is_named_by(name: &str) -> bool {
        let mut all = Self::OF_CURSORS.iter().chain(&Self::OF_MANIFESTS);
        all.any(|flaw| flaw.refusal() == name)
    }
}

/// One of the leases that are renewed together.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) lease: LeaseRef,
    /// Its deadline when the operation began; zero if it was not live.
    pub(super) good_until: u64,
    /// Whether a commit renewed it.
    pub(super) applied: bool,
    /// Whether its holder got an error.
    pub(super) refused: bool,
    /// Its deadline after the renewal.
    pub(super) until: Option<u64>,
    /// The pending request at that time.
    pub(super) shown: Option<PendingRequest>,
}

/// The expected contents of a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) shard: u32,
    pub(super) key: ShardKey,
    pub(super) grant: u32,
    pub(super) fence: u64,
    pub(super) deadline: u64,
    pub(super) range: (u32, u32),
    pub(super) done: u32,
    pub(super) attempts: u32,
    /// A number of the cursor's token, of what it means and of the metadata; zero if they are not
    /// known.
    pub(super) carried: u64,
}

/// How an operation ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Executed,
    Replayed,
    Refused,
    /// The store failed; `doubtful` if the operation may have happened nevertheless.
    Failed {
        doubtful: bool,
        corrupt: bool,
    },
}

/// One operation.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) number: u64,
    pub(super) process: u32,
    pub(super) verb: Verb,
    /// The caller's clock.
    pub(super) now: LogicalTime,
    /// The true time at which it began.
    pub(super) begun_true: u64,
    /// By how much the caller's clock was ahead of the true time.
    pub(super) clock_error: i64,
    pub(super) tenant: u32,
    /// The run, by the oracle's number.
    pub(super) run: Option<u32>,
    pub(super) worker: u64,
    pub(super) lease: Option<LeaseRef>,
    /// The shard of an operation without a lease; its grant has no meaning.
    pub(super) target: Option<LeaseRef>,
    pub(super) op_id: OpId,
    /// A fingerprint of the parameters.
    pub(super) payload: u64,
    pub(super) said: Said,
    /// How many commits there were when it began.
    pub(super) begun_at: u64,
    /// The deadline of its lease when it began; zero if the lease was not live.
    pub(super) good_until: u64,
    /// The number of its commits that were applied.
    pub(super) applied: Cell<u32>,
    /// Whether any of its commits was applied, even one step of many.
    pub(super) begun: Cell<bool>,
    /// Whether the outcome of one of its commits was reported as unknown.
    pub(super) unsure: Cell<bool>,
    pub(super) ended: Cell<Option<Ending>>,
    /// Whether a read returned an old value: its result may be stale.
    pub(super) misled: Cell<bool>,
    /// Whether the store had the owner key of the previous holder when it was granted.
    pub(super) owner_key: Cell<bool>,
    /// Whether it reached the store under an old fence and was counted.
    pub(super) stale: Cell<bool>,
    /// Whether a read returned damaged bytes.
    pub(super) damaged: Cell<bool>,
    /// The keys of shards and run heads whose last read returned damaged bytes, and whether the
    /// operation must have decoded them.
    pub(super) suspects: RefCell<Vec<(Key, bool)>>,
    /// Whether it replaced damaged bytes that it must have decoded.
    pub(super) overwrote: Cell<bool>,
    /// The part of its shard that was damaged in the store when it was repaired.
    pub(super) found: Cell<Option<ShardDamage>>,
    /// Its grant.
    pub(super) granted: Cell<Option<Granted>>,
    /// The deadline after its renewal.
    pub(super) renewed: Cell<Option<u64>>,
    /// The pending request when a renewal or a checkpoint took effect.
    pub(super) shown: RefCell<Option<PendingRequest>>,
    /// Shards that it created, in the order of their ranges.
    pub(super) born: RefCell<Vec<ShardId>>,
    /// Of a batch of renewals, in the caller's order.
    pub(super) batch: RefCell<Vec<Member>>,
}

impl Op {
    /// Returns whether it has decided on damaged bytes. An operation reads damaged bytes again, and
    /// a repair or a lease holder that writes from its cache may have replaced them meanwhile.
    pub(super) fn relies_on_damage(&self) -> bool {
        let is_last = self.suspects.borrow().iter().any(|(_, must)| *must);
        self.damaged.get() && (is_last || self.overwrote.get())
    }

    /// Notes a commit of it that replaces damaged bytes: they decided the written value, and it
    /// reads its own bytes from now on.
    pub(super) fn note_overwritten(&self, txn: &Txn) {
        let writes = |key: &Key| txn.writes().iter().any(|write| write.key() == key);
        let overwrites = self.suspects.borrow().iter().any(|(key, must)| *must && writes(key));
        self.overwrote.set(self.overwrote.get() || overwrites);
    }

    /// Returns the shards of its run whose record its last reads returned damaged.
    pub(super) fn damaged_shards(&self) -> BTreeSet<ShardId> {
        let suspects = self.suspects.borrow();
        suspects.iter().filter_map(|(key, _)| Some(shard_of(key)?.shard())).collect()
    }
}

/// Returns the shard whose record has this key.
pub(super) const fn shard_of(key: &Key) -> Option<ShardKey> {
    match key {
        Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. } => Some(*shard),
        _ => None,
    }
}

/// The name of an outcome: the first word of what `Debug` writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Padded with zeros.
    bytes: [u8; Self::ROOM],
}

impl Label {
    const ROOM: usize = 24;

    /// Returns the first word of `value`. The rest is not formatted.
    pub(super) fn of(value: &impl Debug) -> Self {
        let mut label = Self { bytes: [0; Self::ROOM] };
        let _stopped_early = write!(FirstWord(&mut label.bytes), "{value:?}");
        label
    }

    /// A name that is known.
    pub(super) fn named(name: &str) -> Self {
        let mut label = Self { bytes: [0; Self::ROOM] };
        let length = name.len().min(Self::ROOM);
        label.bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        label
    }

    /// A number for the trace hash.
    pub(super) fn code(self) -> u64 {
        self.bytes.iter().fold(0, |code, byte| code.rotate_left(5) ^ u64::from(*byte))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(Self::ROOM);
        std::str::from_utf8(&self.bytes[..length]).unwrap_or("?")
    }
}

impl Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Accepts the first piece of text and returns an error for the rest.
struct FirstWord<'l>(&'l mut [u8; Label::ROOM]);

impl fmt::Write for FirstWord<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let word = text.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default();
        let length = word.len().min(Label::ROOM);
        self.0[..length].copy_from_slice(&word.as_bytes()[..length]);
        Err(fmt::Error)
    }
}

/// An error that may be a store error.
pub(super) trait MayBeInfra: Debug {
    /// Returns the store error, if it is one.
    fn infra(&self) -> Option<&InfraError>;
}

impl MayBeInfra for InfraError {
    fn infra(&self) -> Option<&InfraError> {
        Some(self)
    }
}

macro_rules! may_be_infra {
    ($($error:ident),+ $(,)?) => {
        $(impl MayBeInfra for gossip_coordination::$error {
            fn infra(&self) -> Option<&InfraError> {
                if let Self::BackendError(error) = self { Some(error) } else { None }
            }
        })+
    };
}

may_be_infra!(
    AcquireError,
    RenewError,
    CheckpointError,
    CompleteError,
    ParkError,
    SplitError,
    ClaimError,
    ReleaseError,
    OfferError,
    AcceptError,
    WithdrawError,
    CreateRunError,
    RegisterShardsError,
    GetRunError,
    RunTransitionError,
    UnparkError,
    RequestActionError,
    RevokeLeaseError,
    DeleteRunError,
    WorkerError,
    RepairShardError,
);

/// How an error ends an operation.
pub(super) fn ending(error: &impl MayBeInfra) -> Ending {
    match error.infra() {
        None => Ending::Refused,
        Some(error) => {
            let corrupt = matches!(error.cause(), InfraError::Corruption { .. });
            Ending::Failed { doubtful: error.is_unresolved(), corrupt }
        }
    }
}
