//! The mailbox between a runner and the other threads of its worker.
//!
//! A slot holds the current lease of one runner and the pending messages of the renewer and the
//! handoff thread for it. A message names the lease it is about. One that arrives after the runner
//! has moved on to another lease is dropped.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey, WorkerId};
use gossip_coordination::{Lease, RenewError, RenewResult, ShardAction};
use gossip_handoff::lease_handoff::DrainEnd;

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::split_policy::NearShard;
use crate::task::{ShardTask, TaskOutcome};

/// Holds a runner's current lease and the pending messages for it.
#[derive(Debug, Default)]
pub(super) struct LeaseSlot(Mutex<Option<HeldLease>>);

/// A lease, and the messages that its runner has not received yet.
#[derive(Debug)]
struct HeldLease {
    lease: Lease,
    /// When the runner got it.
    since: LogicalTime,
    /// Items finished since then.
    finished: u64,
    /// The renewer found that the lease is gone.
    lost: bool,
    /// The run is paused, so the shard must be released.
    release: bool,
    /// A request of an administrator or an idle worker.
    request: Option<ShardAction>,
    /// Whether the shard has progressed under this lease.
    progressed: bool,
    /// Whether its progress is to be stored soon.
    save_soon: bool,
    transit: Transit,
}

/// The state of a handoff of this lease to another worker.
#[derive(Debug, Default)]
struct Transit {
    /// A requested handoff, to this worker or to any.
    asked: Option<Option<WorkerId>>,
    /// Whether the withdrawal of the handoff was requested.
    withdrawn: bool,
    /// How many handoffs of this lease were started.
    moves: u32,
    /// Whether the shard is to freeze.
    freeze: bool,
    /// The cursor at which the shard is frozen.
    frozen: Option<Cursor>,
    /// How the handoff ended.
    end: Option<DrainEnd>,
}

impl LeaseSlot {
    /// Puts a lease into the slot.
    pub(super) fn take(&self, lease: Lease, now: LogicalTime) {
        *self.lock() = Some(HeldLease {
            lease,
            since: now,
            finished: 0,
            lost: false,
            release: false,
            request: None,
            progressed: false,
            save_soon: false,
            transit: Transit::default(),
        });
    }

    /// Empties the slot.
    pub(super) fn leave(&self) {
        *self.lock() = None;
    }

    /// Returns the lease in this slot.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.lock().as_ref().map(|held| held.lease.clone())
    }

    /// Asks for the progress of the shard to be stored soon.
    pub(super) fn save_soon(&self) {
        if let Some(held) = self.lock().as_mut() {
            held.save_soon = true;
        }
    }

    /// Delivers the pending messages to the task, and records whether the task has progressed.
    pub(super) fn deliver(&self, task: &mut ShardTask) {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else { return };
        task.renewed(held.lease.deadline());
        held.progressed = task.has_progressed();
        held.finished = task.finished();
        if held.lost {
            task.lost();
        }
        if held.release {
            task.release();
        }
        if std::mem::take(&mut held.save_soon) {
            task.save_soon();
        }
        if let Some(action) = held.request.take() {
            task.request(&action);
        }
        held.transit.deliver(task);
    }

    /// Records the cursor at which the task froze, if it was asked to freeze. Returns whether the
    /// task froze since the last call.
    pub(super) fn record_frozen(&self, task: &ShardTask) -> bool {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else { return false };
        if !held.transit.freeze || held.transit.frozen.is_some() {
            return false;
        }
        held.transit.frozen = task.frozen_at();
        held.transit.frozen.is_some()
    }

    /// Applies the result of a renewal of `lease`: extends it, records a request that came with it,
    /// or marks it as lost. Ignored if the slot holds another lease by now.
    ///
    /// A store that did not answer does not change anything.
    pub(super) fn renewed(&self, lease: &Lease, result: &Result<RenewResult, RenewError>) {
        let mut slot = self.lock();
        // The runner may have finished this lease while the renewal was in flight, and hold another
        // one by now. Applying the result to that one would extend or drop the wrong lease.
        let same = |held: &&mut HeldLease| held.lease.token() == lease.token();
        let Some(held) = slot.as_mut().filter(same) else { return };
        match result {
            Ok(renewed) => {
                // Renewals and checkpoints may be answered out of order; a deadline never moves
                // back.
                let deadline = held.lease.deadline().max(renewed.new_deadline);
                held.lease.set_deadline(deadline);
                held.release |= renewed.run_paused;
                if let Some(request) = &renewed.request {
                    held.requested(request.action());
                }
            }
            // The lease is valid until its deadline, and a later renewal may succeed before that.
            Err(RenewError::BackendError(_)) => {}
            // The lease itself is valid. Finished items are stored and the shard is released, so
            // that a cancelled run has no lease holders.
            Err(RenewError::RunTerminal { .. }) => held.release = true,
            Err(_) => held.lost = true,
        }
    }

    /// Returns how far `shard` is, if this slot holds it.
    pub(super) fn progress_of(&self, shard: ShardId) -> Option<NearShard> {
        let slot = self.lock();
        let held = slot.as_ref().filter(|held| held.lease.key().shard() == shard)?;
        let (moved, since, keys) = (held.progressed, held.since, held.finished);
        Some(NearShard { moved, since, keys })
    }

    /// Requests a split of `shard`. Returns `false` if this slot does not hold it, it has not
    /// progressed, or another request is pending.
    pub(super) fn ask_split(&self, shard: ShardId) -> bool {
        let mut slot = self.lock();
        let is_same = |held: &&mut HeldLease| held.lease.key().shard() == shard;
        let is_splittable = |held: &&mut HeldLease| held.progressed && held.request.is_none();
        let Some(held) = slot.as_mut().filter(is_same).filter(is_splittable) else { return false };
        held.request = Some(ShardAction::Split(None));
        // At most one split per progress: a shard that is stuck gains nothing from more splits.
        held.progressed = false;
        true
    }

    /// Starts a handoff of the lease in this slot. Returns the lease and the number of its earlier
    /// handoffs; `None` if the slot is empty or its lease is lost.
    pub(super) fn begin_move(&self) -> Option<(Lease, u32)> {
        let mut slot = self.lock();
        let held = slot.as_mut().filter(|held| !held.lost)?;
        // Requests from before this handoff do not concern it: an old withdrawal would end it.
        held.transit.asked = None;
        held.transit.withdrawn = false;
        held.transit.moves += 1;
        Some((held.lease.clone(), held.transit.moves - 1))
    }

    /// Takes a requested handoff: the lease, and the worker that was named, if any.
    pub(super) fn take_request(&self) -> Option<(Lease, Option<WorkerId>)> {
        let mut slot = self.lock();
        let held = slot.as_mut().filter(|held| !held.lost)?;
        let to = held.transit.asked.take()?;
        Some((held.lease.clone(), to))
    }

    /// Starts a handoff of `lease` if this slot holds it and it is frozen. Returns the cursor, too.
    pub(super) fn begin_move_of(&self, lease: &Lease) -> Option<(Lease, u32, Cursor)> {
        let cursor = self.frozen_at(lease)?;
        let (lease, moves) = self.begin_move()?;
        Some((lease, moves, cursor))
    }

    /// Lets the shard continue because its handoff was abandoned.
    pub(super) fn unfreeze(&self, lease: &Lease) {
        self.with(lease, |held| held.transit.end = Some(DrainEnd::Finished));
    }

    /// Takes a requested withdrawal: the shard in this slot, if there is one.
    pub(super) fn take_withdrawal(&self) -> Option<ShardKey> {
        let mut slot = self.lock();
        let held = slot.as_mut()?;
        std::mem::take(&mut held.transit.withdrawn).then(|| held.lease.key())
    }

    /// Asks the shard to freeze, if this slot holds `lease`.
    ///
    /// The end of an earlier handoff may be undelivered. It is discarded: the task would take it
    /// for the end of the new handoff, unfreeze, and the new handoff would wait for ever.
    pub(super) fn freeze(&self, lease: &Lease) {
        self.with(lease, |held| {
            held.transit.freeze = true;
            held.transit.end.take_if(|end| *end == DrainEnd::Finished);
        });
    }

    /// Returns the cursor at which `lease` is frozen, if this slot holds it and it is.
    pub(super) fn frozen_at(&self, lease: &Lease) -> Option<Cursor> {
        self.with(lease, |held| held.transit.frozen.clone()).flatten()
    }

    /// Returns whether this slot holds `lease`.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.with(lease, |_| ()).is_some()
    }

    /// Returns whether this slot holds `lease` and will keep it: it is neither lost nor about to be
    /// released.
    pub(super) fn keeps(&self, lease: &Lease) -> bool {
        self.with(lease, |held| !held.lost && !held.release) == Some(true)
    }

    /// Delivers how the handoff of `lease` ended.
    pub(super) fn end_move(&self, lease: &Lease, end: DrainEnd) {
        self.with(lease, |held| held.transit.end = Some(end));
    }

    /// Runs `apply` if this slot holds `lease`.
    ///
    /// It compares the lease and not the shard: the shard may have been released and claimed again,
    /// and the result of a handoff of the old lease does not concern the new one.
    fn with<T>(&self, lease: &Lease, apply: impl FnOnce(&mut HeldLease) -> T) -> Option<T> {
        let mut slot = self.lock();
        slot.as_mut().filter(|held| held.lease.token() == lease.token()).map(apply)
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeldLease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLease {
    /// Records a request of an administrator or an idle worker.
    fn requested(&mut self, action: &ShardAction) {
        match action {
            ShardAction::HandOff(to) => self.transit.asked = Some(*to),
            ShardAction::Withdraw => {
                self.transit.asked = None;
                self.transit.withdrawn = true;
            }
            // The coordinator's enum may grow. The task ignores actions that it does not support.
            ShardAction::Split(_) | ShardAction::Release | _ => {
                self.request = Some(action.clone());
            }
        }
    }
}

impl Transit {
    /// Delivers a pending freeze, or the end of the handoff.
    fn deliver(&mut self, task: &mut ShardTask) {
        if self.freeze && self.frozen.is_none() {
            task.freeze();
        }
        match self.end.take() {
            None => {}
            Some(DrainEnd::Moved) => task.end(TaskOutcome::Moved),
            Some(DrainEnd::Released) => task.end(TaskOutcome::Released),
            Some(DrainEnd::Lost) => task.lost(),
            // The shard ended for another reason, or it was not handed off. If it is frozen, it
            // continues here.
            Some(DrainEnd::Finished) => {
                (self.freeze, self.frozen) = (false, None);
                task.unfreeze();
            }
        }
    }
}
