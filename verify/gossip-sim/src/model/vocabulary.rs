//! The operations of the model, their parameters, and the commands that carry both.
//!
//! Everything is a small number. Key `n` of a range is the byte `b'a' + n`, tick `t` is the time
//! `t`, worker `w` the worker `w + 1`. A [`Command`] is one message: the input of the kernel, and
//! the position at which its sender began to work, which only the oracle uses.

use std::fmt;

use gossip_coordination::ParkReason;

/// A key of the tiny key space.
pub(super) type KeyNo = u8;

/// Progress: zero is none, `n` is up to and including key `n - 1`.
pub(super) type Mark = u8;

/// A time.
pub(super) type Tick = u8;

/// A shard, numbered in the order of discovery.
pub(super) type ShardNo = u8;

/// An operation of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "a new operation of the kernel must be modelled")]
#[expect(missing_docs, reason = "the names are those of the kernel's operations")]
pub enum Op {
    Acquire,
    Renew,
    Checkpoint,
    Complete,
    Park,
    SplitReplace,
    SplitResidual,
    Release,
    Offer,
    Accept,
    Withdraw,
    Unpark,
    RequestAction,
    RevokeLease,
    CreateRun,
    RegisterShards,
    CompleteRun,
    FailRun,
    CancelRun,
    PauseRun,
    ResumeRun,
    DeleteRun,
    CollectRun,
}

impl Op {
    /// Every operation.
    pub const ALL: [Self; 23] = [
        Self::Acquire,
        Self::Renew,
        Self::Checkpoint,
        Self::Complete,
        Self::Park,
        Self::SplitReplace,
        Self::SplitResidual,
        Self::Release,
        Self::Offer,
        Self::Accept,
        Self::Withdraw,
        Self::Unpark,
        Self::RequestAction,
        Self::RevokeLease,
        Self::CreateRun,
        Self::RegisterShards,
        Self::CompleteRun,
        Self::FailRun,
        Self::CancelRun,
        Self::PauseRun,
        Self::ResumeRun,
        Self::DeleteRun,
        Self::CollectRun,
    ];
}

/// A cursor in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cursor {
    /// Without a key.
    Absent,
    /// Everything up to and including this key.
    At(KeyNo),
    /// A key beyond the size limit, to be rejected.
    LongKey,
    /// A token beyond the size limit, to be rejected.
    LongToken(KeyNo),
}

impl Cursor {
    /// Returns the progress that the sender reports.
    pub(super) const fn mark(self) -> Mark {
        match self {
            Self::At(key) | Self::LongToken(key) => key + 1,
            Self::Absent | Self::LongKey => 0,
        }
    }
}

/// An operation of a lease holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// Renews the lease.
    Renew,
    /// Checkpoints the cursor.
    Checkpoint(Cursor),
    /// Completes the shard at this position.
    Complete(Cursor),
    /// Parks the shard.
    Park(ParkReason),
    /// Splits into two children, the left one with `carried`; with `hole` the right one begins a
    /// key late.
    Replace { start: KeyNo, cut: KeyNo, end: KeyNo, carried: Cursor, hole: bool },
    /// Keeps the part before `cut`.
    Residual { start: KeyNo, cut: KeyNo, end: KeyNo },
    /// Releases the shard; a clean release does not count as an attempt.
    Release { clean: bool },
    /// Offers the shard to worker `to` until `until`.
    Offer { handoff: u8, to: u8, until: Tick, cursor: Cursor },
    /// Withdraws the offer.
    Withdraw { handoff: u8 },
}

impl Act {
    /// Returns the operation.
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Renew => Op::Renew,
            Self::Checkpoint(_) => Op::Checkpoint,
            Self::Complete(_) => Op::Complete,
            Self::Park(_) => Op::Park,
            Self::Replace { .. } => Op::SplitReplace,
            Self::Residual { .. } => Op::SplitResidual,
            Self::Release { .. } => Op::Release,
            Self::Offer { .. } => Op::Offer,
            Self::Withdraw { .. } => Op::Withdraw,
        }
    }
}

/// An operation of an administrator on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AdminAct {
    /// Unparks the shard.
    Unpark,
    /// Requests an action of the lease holder.
    Request { what: RequestedAction, expires: Tick },
    /// Revokes the lease: the one with this fence, or any.
    Revoke { fence: Option<u8> },
}

/// An action that an administrator can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RequestedAction {
    /// Split anywhere.
    Split,
    /// Release the shard.
    Release,
    /// Hand the shard off to any worker.
    HandOff,
    /// Withdraw the offer.
    Withdraw,
}

/// An operation on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RunAct {
    /// Creates it.
    Create,
    /// Registers the shards of this manifest of the configuration.
    Register(u8),
    /// Completes it.
    Complete,
    /// Fails it.
    Fail,
    /// Cancels it.
    Cancel,
    /// Pauses it: no shard is granted.
    Pause,
    /// Resumes it.
    Resume,
    /// Deletes it.
    Delete,
    /// Collects it if it made no progress for this many ticks.
    Collect(u8),
}

impl RunAct {
    /// Returns the operation.
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Create => Op::CreateRun,
            Self::Register(_) => Op::RegisterShards,
            Self::Complete => Op::CompleteRun,
            Self::Fail => Op::FailRun,
            Self::Cancel => Op::CancelRun,
            Self::Pause => Op::PauseRun,
            Self::Resume => Op::ResumeRun,
            Self::Delete => Op::DeleteRun,
            Self::Collect(_) => Op::CollectRun,
        }
    }
}

/// A lease as its holder remembers it, and where its work began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseRef {
    /// The tenant that the lease was granted to.
    pub(super) tenant: u8,
    /// The shard.
    pub(super) shard: ShardNo,
    /// The holder.
    pub(super) worker: u8,
    /// Its fence.
    pub(super) fence: u8,
    /// The completed position when the lease was granted. Not an input of the kernel.
    pub(super) from: Mark,
}

/// How a shard is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClaimBy {
    /// By acquire; `alive` if the store has the last owner's liveness key.
    Acquire {
        /// Whether the key exists.
        alive: bool,
    },
    /// By accepting this handoff.
    Accept(u8),
}

/// One message to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Command {
    /// An operation of a lease holder. `tenant` is the tenant that it presents, which may be
    /// forged. A `sequence` of zero is none.
    Held { tenant: u8, lease: LeaseRef, act: Act, op_id: u16, sequence: u8 },
    /// A claim of a worker.
    Claim { tenant: u8, shard: ShardNo, worker: u8, way: ClaimBy },
    /// An operation of an administrator on a shard.
    Admin { tenant: u8, shard: ShardNo, act: AdminAct, op_id: u16 },
    /// An operation of an administrator on a run.
    Run { tenant: u8, act: RunAct, op_id: u16 },
}

impl Command {
    /// Returns the operation.
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Held { act, .. } => act.op(),
            Self::Claim { way: ClaimBy::Acquire { .. }, .. } => Op::Acquire,
            Self::Claim { way: ClaimBy::Accept(_), .. } => Op::Accept,
            Self::Admin { act: AdminAct::Unpark, .. } => Op::Unpark,
            Self::Admin { act: AdminAct::Request { .. }, .. } => Op::RequestAction,
            Self::Admin { act: AdminAct::Revoke { .. }, .. } => Op::RevokeLease,
            Self::Run { act, .. } => act.op(),
        }
    }

    /// Returns the tenant that is presented.
    pub(super) const fn tenant(self) -> u8 {
        match self {
            Self::Held { tenant, .. }
            | Self::Claim { tenant, .. }
            | Self::Admin { tenant, .. }
            | Self::Run { tenant, .. } => tenant,
        }
    }

    /// Returns the shard, unless the command is about a run.
    pub(super) const fn shard(self) -> Option<ShardNo> {
        match self {
            Self::Held { lease, .. } => Some(lease.shard),
            Self::Claim { shard, .. } | Self::Admin { shard, .. } => Some(shard),
            Self::Run { .. } => None,
        }
    }

    /// Returns the operation id, if the command has one.
    pub(super) const fn op_id(self) -> Option<u16> {
        match self {
            Self::Held { act: Act::Renew, .. } | Self::Claim { .. } => None,
            Self::Held { op_id, .. } | Self::Admin { op_id, .. } | Self::Run { op_id, .. } => {
                Some(op_id)
            }
        }
    }

    /// Returns the parameters without sender and lease, which identify a retry.
    pub(super) const fn payload(self) -> Self {
        match self {
            Self::Held { tenant, lease, act, op_id, .. } => {
                let lease = LeaseRef { tenant: 0, worker: 0, fence: 0, from: 0, ..lease };
                Self::Held { tenant, lease, act, op_id, sequence: 0 }
            }
            Self::Claim { .. } | Self::Admin { .. } | Self::Run { .. } => self,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { tenant, lease, act, op_id, sequence } => {
                let LeaseRef { shard, worker, fence, .. } = lease;
                let forged = if *tenant == lease.tenant { "" } else { " (forged tenant)" };
                write!(f, "worker {worker}, shard {shard}, fence {fence}{forged}: ")?;
                write!(f, "{act:?} as op {op_id}, sequence {sequence}")
            }
            Self::Claim { tenant, shard, worker, way } => {
                write!(f, "worker {worker}, tenant {tenant}, shard {shard}: {way:?}")
            }
            Self::Admin { tenant, shard, act, op_id } => {
                write!(f, "admin, tenant {tenant}, shard {shard}: {act:?} as op {op_id}")
            }
            Self::Run { tenant, act, op_id } => {
                write!(f, "admin, tenant {tenant}, run: {act:?} as op {op_id}")
            }
        }
    }
}
