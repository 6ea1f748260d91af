//! One operation of a simulated process: what was asked, and what is known to have come of it.
//!
//! An [`Op`] lives as long as anybody may still speak for it: the process that waits for the
//! answer, and every message of it on the wire, which may arrive long after the process is dead.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Write as _};

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey};
use gossip_coordination::{InfraError, ParkReason, PendingRequest, ShardAction, WorkerState};

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
}

impl LeaseRef {
    /// A shard without a lease.
    pub(super) const fn to(shard: u32, key: ShardKey) -> Self {
        Self { shard, key, grant: 0, fence: 0, token: 0 }
    }
}

/// A planned move as its source describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) handoff: u64,
    pub(super) destination: u64,
    pub(super) until: u64,
}

/// What an operation says beside whom it is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The position that a checkpoint, the end or an offer claims; keys before it are done.
    pub(super) to: Option<u32>,
    /// Where a split cuts.
    pub(super) cuts: Vec<u32>,
    pub(super) terms: Option<Terms>,
    /// What an administrator asks of an owner, and until when that stands.
    pub(super) asked: Option<(ShardAction, u64)>,
    pub(super) clean: bool,
    /// Why a shard is parked.
    pub(super) reason: Option<ParkReason>,
    /// What a worker says that it is doing.
    pub(super) state: Option<WorkerState>,
    /// Whether tokens and metadata are a guest's own, and unknown.
    pub(super) foreign: bool,
    /// Whether a lease is presented to another tenant.
    pub(super) stranger: bool,
    /// What is wrong with it, on purpose.
    pub(super) flaw: Option<Flaw>,
}

/// Something that nobody may present. Whoever does is refused, and the refusal says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A position without a key.
    NoKey,
    /// A position whose key is a byte too long.
    LongKey,
    /// A position whose token is a byte too long.
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
    /// Those of a position.
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

    /// The refusal that says so.
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

    /// Whether a refusal of that name is about what was presented, and nothing that is stored.
    pub(super) fn is_told_by(name: &str) -> bool {
        let mut all = Self::OF_CURSORS.iter().chain(&Self::OF_MANIFESTS);
        all.any(|flaw| flaw.refusal() == name)
    }
}

/// One of the leases that are renewed together.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) lease: LeaseRef,
    /// Until when it was good when the operation began; zero if it was not.
    pub(super) good_until: u64,
    /// Whether a commit renewed it.
    pub(super) applied: bool,
    /// Whether its holder was told that it is not renewed.
    pub(super) refused: bool,
    /// Until when it was renewed.
    pub(super) until: Option<u64>,
    /// The request that stood when it was.
    pub(super) shown: Option<PendingRequest>,
}

/// What a grant must tell its worker.
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
    /// The store failed; `doubtful` if the operation may have happened all the same.
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
    pub(super) tenant: u32,
    /// The run, by the oracle's number.
    pub(super) run: Option<u32>,
    pub(super) worker: u64,
    pub(super) lease: Option<LeaseRef>,
    /// Which shard an operation without a lease is about; its grant means nothing.
    pub(super) target: Option<LeaseRef>,
    pub(super) op_id: OpId,
    /// A fingerprint of what is asked.
    pub(super) payload: u64,
    pub(super) said: Said,
    /// How many commits there were when it began.
    pub(super) begun_at: u64,
    /// Until when its lease was good when it began; zero if it was not.
    pub(super) good_until: u64,
    /// Commits of it that were applied.
    pub(super) applied: Cell<u32>,
    /// Whether anything of it was committed, were it one step of many.
    pub(super) begun: Cell<bool>,
    /// Whether it was told that nobody knows what became of a commit of it.
    pub(super) unsure: Cell<bool>,
    pub(super) ended: Cell<Option<Ending>>,
    /// Whether it was shown what was there before: what it is told may be out of date.
    pub(super) misled: Cell<bool>,
    /// Whether it reached the store under an old fence and was counted.
    pub(super) stale: Cell<bool>,
    /// Whether it was shown damaged bytes.
    pub(super) damaged: Cell<bool>,
    /// What it was granted.
    pub(super) granted: Cell<Option<Granted>>,
    /// Until when it renewed a lease.
    pub(super) renewed: Cell<Option<u64>>,
    /// The request that stood when a renewal or a checkpoint took effect.
    pub(super) shown: RefCell<Option<PendingRequest>>,
    /// Shards that it made, in the order of their ranges.
    pub(super) born: RefCell<Vec<ShardId>>,
    /// Of a batch of renewals, in the caller's order.
    pub(super) batch: RefCell<Vec<Member>>,
}

/// The name of an outcome: the first word of what `Debug` writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Zeros behind the name.
    bytes: [u8; Self::ROOM],
}

impl Label {
    const ROOM: usize = 24;

    /// The first word of `value`. What comes behind it is not even written.
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

/// Takes the first piece of text and refuses the rest.
struct FirstWord<'l>(&'l mut [u8; Label::ROOM]);

impl fmt::Write for FirstWord<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let word = text.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default();
        let length = word.len().min(Label::ROOM);
        self.0[..length].copy_from_slice(&word.as_bytes()[..length]);
        Err(fmt::Error)
    }
}

/// An error that may be the store's.
pub(super) trait MayBeInfra: Debug {
    /// The failure of the store, if it is one.
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
);

/// How an error ends an operation.
pub(super) fn ending(error: &impl MayBeInfra) -> Ending {
    match error.infra() {
        None => Ending::Refused,
        Some(InfraError::Transient { message, .. } | InfraError::Refused { message, .. }) => {
            Ending::Failed { doubtful: is_doubtful(message), corrupt: false }
        }
        Some(InfraError::Corruption { message, .. }) => {
            Ending::Failed { doubtful: is_doubtful(message), corrupt: true }
        }
        Some(other) => unreachable!("no store of a world answers {other:?}"),
    }
}

fn is_doubtful(message: &str) -> bool {
    message.ends_with("it may have happened")
}
