//! Planted bugs: what careless callers of the kernel, and careless kernels, get wrong.
//!
//! Each one is a switch of the model's adapter, never of the kernel. It changes what the kernel is
//! shown, or what becomes of its change, so that the two together behave like an implementation
//! with that bug. A search that does not find it proves nothing about the kernel, so the tests ask
//! for every one.

use gossip_contracts::coordination::{CursorUpdate, PooledCursor};
use gossip_contracts::identity::FenceEpoch;

use super::kernel::{Facts, worker_id};
use super::vocabulary::{Command, Op, Tick};
use crate::handoff::Offer;
use crate::lease::{OpKind, OpLog};
use crate::pool::RecordPool;
use crate::record::{Birth, ShardRecord};
use crate::run::{RunHead, RunStatus};

/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the list is what the tests go through")]
pub enum Bug {
    /// The fence is not checked: whoever asks is taken for the current holder.
    FenceIgnored,
    /// A lease still counts at its deadline.
    ExpiryInclusive,
    /// A renewal brings an expired lease back to life.
    RenewRevives,
    /// A renewal is acknowledged and not stored.
    RenewalLost,
    /// A clock that runs ahead takes a live lease over.
    EarlyTakeover,
    /// The last child of a replacing split is not stored.
    ChildLost,
    /// The shard that takes the right part is not stored.
    ResidualLost,
    /// Children start at the first fence instead of their parent's.
    ChildFenceRestarts,
    /// The child that contains the cursor starts from nothing.
    ChildForgetsProgress,
    /// An unparked shard keeps its fence.
    FenceReusedAfterUnpark,
    /// A revoked shard keeps its fence.
    FenceReusedAfterRevoke,
    /// A retry is answered only if the lease is still good.
    ReplayAfterLease,
    /// A retry is executed again.
    ReplayForgotten,
    /// The log evicts the entry by which a shard ended.
    TerminalEntryEvicted,
    /// A new owner starts from nothing.
    CursorReset,
    /// A checkpoint may move the cursor back.
    CursorFalls,
    /// A checkpoint is acknowledged and not stored.
    CheckpointLost,
    /// Anybody may accept an offer.
    AcceptedByAnybody,
    /// An offer can be accepted after its deadline.
    AcceptedLate,
    /// An accepted move is rolled back, and the old owner goes on.
    RollbackAfterAccept,
    /// An offer does not freeze its source.
    SourceNotFrozen,
    /// A withdrawal is not remembered, so a late offer stands.
    WithdrawalForgotten,
    /// A late offer stands although it was withdrawn.
    LateOfferStands,
    /// The limit on shards is not looked at.
    LimitIgnored,
    /// Shards of a run that is over are handed out.
    DeadRunGrows,
    /// Shards of a paused run are handed out.
    PauseIgnored,
    /// A run completes whatever its shards do.
    RunEndsUnsettled,
    /// A deleted run's id can be used again.
    RunIdReused,
    /// Another tenant's shard is found under the same key.
    WrongTenant,
}

impl Bug {
    /// Every planted bug.
    pub const ALL: [Self; 29] = [
        Self::FenceIgnored,
        Self::ExpiryInclusive,
        Self::RenewRevives,
        Self::RenewalLost,
        Self::EarlyTakeover,
        Self::ChildLost,
        Self::ResidualLost,
        Self::ChildFenceRestarts,
        Self::ChildForgetsProgress,
        Self::FenceReusedAfterUnpark,
        Self::FenceReusedAfterRevoke,
        Self::ReplayAfterLease,
        Self::ReplayForgotten,
        Self::TerminalEntryEvicted,
        Self::CursorReset,
        Self::CursorFalls,
        Self::CheckpointLost,
        Self::AcceptedByAnybody,
        Self::AcceptedLate,
        Self::RollbackAfterAccept,
        Self::SourceNotFrozen,
        Self::WithdrawalForgotten,
        Self::LateOfferStands,
        Self::LimitIgnored,
        Self::DeadRunGrows,
        Self::PauseIgnored,
        Self::RunEndsUnsettled,
        Self::RunIdReused,
        Self::WrongTenant,
    ];

    /// The configuration whose short form finds it.
    #[must_use]
    pub const fn home(self) -> &'static str {
        match self {
            Self::FenceIgnored
            | Self::ExpiryInclusive
            | Self::RenewRevives
            | Self::RenewalLost
            | Self::EarlyTakeover
            | Self::ReplayAfterLease
            | Self::ReplayForgotten
            | Self::TerminalEntryEvicted
            | Self::CursorReset
            | Self::CursorFalls
            | Self::CheckpointLost => "lease",
            Self::ChildLost
            | Self::ResidualLost
            | Self::ChildFenceRestarts
            | Self::ChildForgetsProgress
            | Self::LimitIgnored => "splits",
            Self::FenceReusedAfterUnpark | Self::FenceReusedAfterRevoke => "attempts",
            Self::AcceptedByAnybody
            | Self::AcceptedLate
            | Self::RollbackAfterAccept
            | Self::SourceNotFrozen
            | Self::WithdrawalForgotten
            | Self::LateOfferStands => "handoff",
            Self::DeadRunGrows
            | Self::PauseIgnored
            | Self::RunEndsUnsettled
            | Self::RunIdReused => "runs",
            Self::WrongTenant => "tenants",
        }
    }
}

/// What a planted bug does to one step.
pub(super) struct Sabotage {
    bug: Option<Bug>,
    command: Command,
    /// The time that the kernel is told.
    pub(super) now: Tick,
    /// An offer that the kernel is not shown.
    hidden_offer: Option<Offer>,
    /// Operations that the kernel is not shown.
    hidden_log: Option<OpLog>,
}

impl Sabotage {
    /// Changes the lease that a holder presents.
    pub(super) fn forge(bug: Option<Bug>, facts: &Facts, owner: &mut u8, fence: &mut u8) {
        if bug == Some(Bug::FenceIgnored) {
            *fence = facts.fence;
            *owner = facts.lease.map_or(*owner, |(owner, _)| owner);
        }
    }

    /// Changes what the kernel is shown.
    pub(super) fn before(
        bug: Option<Bug>,
        command: Command,
        now: Tick,
        record: Option<&mut ShardRecord>,
        pool: &mut RecordPool,
    ) -> Self {
        let mut this = Self { bug, command, now, hidden_offer: None, hidden_log: None };
        if let Some(record) = record {
            this.turn_the_clock(record);
            this.change_offer(record);
            this.hide(record, pool);
        }
        this
    }

    fn is(&self, bug: Bug, op: Op) -> bool {
        self.bug == Some(bug) && self.command.op() == op
    }

    fn turn_the_clock(&mut self, record: &ShardRecord) {
        let now = u64::from(self.now);
        let Some(deadline) = record.lease_deadline().map(|deadline| deadline.as_raw()) else {
            return;
        };
        let held = matches!(self.command, Command::Held { .. });
        if self.bug == Some(Bug::ExpiryInclusive) && held && deadline == now {
            self.now -= 1;
        }
        if self.is(Bug::RenewRevives, Op::Renew) && deadline <= now {
            self.now = Tick::try_from(deadline - 1).expect("not after now");
        }
        if self.is(Bug::EarlyTakeover, Op::Acquire) && deadline == now + 1 {
            self.now += 1;
        }
    }

    fn change_offer(&mut self, record: &mut ShardRecord) {
        let Some(rare) = record.rare.as_mut() else { return };
        let Some(offer) = rare.offer.as_mut() else { return };
        if let Command::Claim { worker, .. } = self.command
            && self.is(Bug::AcceptedByAnybody, Op::Accept)
        {
            offer.destination = worker_id(worker);
        }
        if self.is(Bug::AcceptedLate, Op::Accept) {
            offer.deadline = offer.deadline.saturating_add(Tick::MAX.into());
        }
        if self.is(Bug::SourceNotFrozen, Op::Checkpoint) {
            self.hidden_offer = rare.offer.take();
        }
    }

    fn hide(&mut self, record: &mut ShardRecord, pool: &mut RecordPool) {
        if self.is(Bug::CursorFalls, Op::Checkpoint) {
            reset_cursor(record, pool);
        }
        if self.is(Bug::ReplayForgotten, Op::Checkpoint) {
            forget(record, pool, OpKind::Checkpoint);
        }
        if self.is(Bug::LateOfferStands, Op::Offer) {
            self.hidden_log = Some(pool.logs.get(record.op_log).clone());
            forget(record, pool, OpKind::Withdraw);
        }
    }

    pub(super) fn run_head(&self, head: RunHead) -> RunHead {
        match self.bug {
            Some(Bug::DeadRunGrows) => RunHead { status: RunStatus::Active, ..head },
            Some(Bug::PauseIgnored) => RunHead { paused: false, ..head },
            Some(_) | None => head,
        }
    }

    /// The refusal that stands in the way of a replay.
    pub(super) fn refuses_replay(&self, record: &ShardRecord) -> Option<&'static str> {
        let Command::Held { lease, .. } = self.command else { return None };
        if self.bug != Some(Bug::ReplayAfterLease) {
            return None;
        }
        if record.status().is_terminal() {
            return Some("ShardTerminal");
        }
        let stale = record.fence_epoch().as_raw() != u64::from(lease.fence);
        stale.then_some("StaleFence")
    }

    /// Changes what is stored.
    pub(super) fn after(&mut self, record: &mut ShardRecord, pool: &mut RecordPool) {
        self.show_again(record, pool);
        let unparks = self.is(Bug::FenceReusedAfterUnpark, Op::Unpark);
        if unparks || self.is(Bug::FenceReusedAfterRevoke, Op::RevokeLease) {
            record.fence_epoch = FenceEpoch::from_raw(record.fence_epoch.as_raw() - 1);
        }
        if self.is(Bug::CursorReset, Op::Acquire) {
            reset_cursor(record, pool);
        }
        if self.is(Bug::TerminalEntryEvicted, Op::Complete) {
            forget(record, pool, OpKind::Complete);
        }
        if self.is(Bug::WithdrawalForgotten, Op::Withdraw) {
            forget(record, pool, OpKind::Withdraw);
        }
    }

    /// What was hidden from the decision was there all the time.
    fn show_again(&mut self, record: &mut ShardRecord, pool: &mut RecordPool) {
        if let Some(offer) = self.hidden_offer.take() {
            let rare = record.rare.as_mut().expect("it held the offer before");
            rare.offer = record.lease.map(|_| offer);
        }
        if let Some(mut whole) = self.hidden_log.take() {
            let log = pool.logs.get_mut(&mut record.op_log);
            let newest = *log.iter().next_back().expect("a commit was just remembered");
            whole.push(newest);
            *log = whole;
        }
    }

    /// Whether the shard's new record is thrown away although the change was acknowledged.
    pub(super) fn loses_write(&self) -> bool {
        self.is(Bug::RenewalLost, Op::Renew)
            || self.is(Bug::CheckpointLost, Op::Checkpoint)
            || self.is(Bug::RollbackAfterAccept, Op::Accept)
    }

    /// Whether newborn `index` of `count` is thrown away.
    pub(super) fn loses_birth(&self, index: usize, count: usize) -> bool {
        let last_child = self.is(Bug::ChildLost, Op::SplitReplace) && index + 1 == count;
        last_child || self.is(Bug::ResidualLost, Op::SplitResidual)
    }

    pub(super) fn birth<'b>(&self, birth: Birth<'b>) -> Birth<'b> {
        match self.bug {
            Some(Bug::ChildFenceRestarts) => Birth { fence: FenceEpoch::INITIAL, ..birth },
            Some(Bug::ChildForgetsProgress) => Birth { cursor: CursorUpdate::initial(), ..birth },
            Some(_) | None => birth,
        }
    }
}

fn reset_cursor(record: &mut ShardRecord, pool: &mut RecordPool) {
    let initial = PooledCursor::from_update(CursorUpdate::initial(), &mut pool.bytes);
    let initial = initial.expect("an initial cursor takes no room");
    std::mem::replace(&mut record.cursor, initial).free(&mut pool.bytes);
}

/// Takes the operations of one kind out of the log.
fn forget(record: &mut ShardRecord, pool: &mut RecordPool, kind: OpKind) {
    let log = pool.logs.get_mut(&mut record.op_log);
    let mut kept = OpLog::new();
    log.iter().filter(|entry| entry.kind() != kind).for_each(|entry| kept.push(*entry));
    *log = kept;
}
