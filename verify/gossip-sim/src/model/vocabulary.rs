//! What can be said in the model: operations, their parameters, and commands that carry both.
//!
//! Everything is a small number. Key `n` of a range is the byte `b'a' + n`, tick `t` is the time
//! `t`, worker `w` the worker `w + 1`. A [`Command`] is one message: it says everything the kernel
//! is told, and beside it where its sender began to work, which only the oracle looks at.

use std::fmt;

use gossip_coordination::ParkReason;

/// A key of the tiny key space.
pub(super) type KeyNo = u8;

/// How far work has come: zero is nowhere, `n` is up to and including key `n - 1`.
pub(super) type Mark = u8;

/// A time.
pub(super) type Tick = u8;

/// A shard by the order in which the search met its key.
pub(super) type ShardNo = u8;

/// One of the operations of the kernel.
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

/// A cursor as a message presents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cursor {
    /// Without a key.
    Absent,
    /// Everything up to and including this key.
    At(KeyNo),
    /// A key beyond the limit, to be refused.
    LongKey,
    /// A token beyond the limit, to be refused.
    LongToken(KeyNo),
}

impl Cursor {
    /// How far the sender has come by its own account.
    pub(super) const fn mark(self) -> Mark {
        match self {
            Self::At(key) | Self::LongToken(key) => key + 1,
            Self::Absent | Self::LongKey => 0,
        }
    }
}

/// What the holder of a lease asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// Keep the shard longer.
    Renew,
    /// So far.
    Checkpoint(Cursor),
    /// Done, with this as the last position.
    Complete(Cursor),
    /// Set the shard aside.
    Park(ParkReason),
    /// Two children, the left one with `carried`; with `hole` the right one begins a key late.
    Replace { start: KeyNo, cut: KeyNo, end: KeyNo, carried: Cursor, hole: bool },
    /// Keep what is left of `cut`.
    Residual { start: KeyNo, cut: KeyNo, end: KeyNo },
    /// Give back; a clean one does not count as an attempt.
    Release { clean: bool },
    /// Offer to worker `to` until `until`.
    Offer { handoff: u8, to: u8, until: Tick, cursor: Cursor },
    /// Take the offer back.
    Withdraw { handoff: u8 },
}

impl Act {
    /// Which operation this is.
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

/// What an administrator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AdminAct {
    /// Bring a parked shard back.
    Unpark,
    /// Ask something of the owner.
    Request { what: RequestedAction, expires: Tick },
    /// Take the lease away.
    Revoke,
}

/// What an administrator may ask of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RequestedAction {
    /// Split anywhere.
    Split,
    /// Give the shard back.
    Release,
    /// Hand the shard off to anybody.
    HandOff,
    /// Take the offer back.
    Withdraw,
}

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RunAct {
    /// Make it.
    Create,
    /// Give it the shards of this manifest of the configuration.
    Register(u8),
    /// Everything is done.
    Complete,
    /// Give up.
    Fail,
    /// Stop.
    Cancel,
    /// Let nobody start.
    Pause,
    /// Let shards be started again.
    Resume,
    /// Take it away.
    Delete,
    /// Give it up if nothing has happened for so many ticks.
    Collect(u8),
}

impl RunAct {
    /// Which operation this is.
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
    /// What it was told to be done already. The kernel is not told.
    pub(super) from: Mark,
}

/// How a shard is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// By acquire; `alive` if the store sees the last owner's liveness key.
    Acquire {
        /// Whether it does.
        alive: bool,
    },
    /// By accepting this planned move.
    Accept(u8),
}

/// One message to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Command {
    /// A holder's. `tenant` is who it says it is, which a forger makes up.
    Held { tenant: u8, lease: LeaseRef, act: Act, op_id: u16 },
    /// A worker's that wants a shard.
    Claim { tenant: u8, shard: ShardNo, worker: u8, way: Way },
    /// An administrator's about a shard.
    Admin { tenant: u8, shard: ShardNo, act: AdminAct, op_id: u16 },
    /// An administrator's about a run.
    Run { tenant: u8, act: RunAct, op_id: u16 },
}

impl Command {
    /// Which operation this is.
    pub(super) const fn op(self) -> Op {
        match self {
            Self::Held { act, .. } => act.op(),
            Self::Claim { way: Way::Acquire { .. }, .. } => Op::Acquire,
            Self::Claim { way: Way::Accept(_), .. } => Op::Accept,
            Self::Admin { act: AdminAct::Unpark, .. } => Op::Unpark,
            Self::Admin { act: AdminAct::Request { .. }, .. } => Op::RequestAction,
            Self::Admin { act: AdminAct::Revoke, .. } => Op::RevokeLease,
            Self::Run { act, .. } => act.op(),
        }
    }

    /// The tenant that asks.
    pub(super) const fn tenant(self) -> u8 {
        match self {
            Self::Held { tenant, .. }
            | Self::Claim { tenant, .. }
            | Self::Admin { tenant, .. }
            | Self::Run { tenant, .. } => tenant,
        }
    }

    /// The shard it is about, unless it is about a run.
    pub(super) const fn shard(self) -> Option<ShardNo> {
        match self {
            Self::Held { lease, .. } => Some(lease.shard),
            Self::Claim { shard, .. } | Self::Admin { shard, .. } => Some(shard),
            Self::Run { .. } => None,
        }
    }

    /// The operation id, of commands that have one.
    pub(super) const fn op_id(self) -> Option<u16> {
        match self {
            Self::Held { act: Act::Renew, .. } | Self::Claim { .. } => None,
            Self::Held { op_id, .. } | Self::Admin { op_id, .. } | Self::Run { op_id, .. } => {
                Some(op_id)
            }
        }
    }

    /// The parameters without sender and lease: what makes a retry the same operation.
    pub(super) const fn payload(self) -> Self {
        match self {
            Self::Held { tenant, lease, act, op_id } => {
                let lease = LeaseRef { tenant: 0, worker: 0, fence: 0, from: 0, ..lease };
                Self::Held { tenant, lease, act, op_id }
            }
            Self::Claim { .. } | Self::Admin { .. } | Self::Run { .. } => self,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { tenant, lease, act, op_id } => {
                let LeaseRef { shard, worker, fence, .. } = lease;
                let forged = if *tenant == lease.tenant { "" } else { " (forged tenant)" };
                write!(f, "worker {worker}, shard {shard}, fence {fence}{forged}: ")?;
                write!(f, "{act:?} as op {op_id}")
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
