//! Where the renewer and a thread meet: one slot for each thread.
//!
//! The thread sits down with a lease and gets up when its shard is over. Meanwhile the renewer
//! leaves it notes. A note is for the lease it was written about: one that comes too late, for a
//! lease that has left the slot, is dropped.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey, WorkerId};
use gossip_coordination::{Lease, RenewError, RenewResult, ShardAction};
use gossip_handoff::lease_handoff::DrainEnd;

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::task::{ShardTask, TaskOutcome};

/// One thread's place.
#[derive(Debug, Default)]
pub(super) struct LeaseSlot(Mutex<Option<HeldLease>>);

/// A lease, and what its thread has not been told yet.
#[derive(Debug)]
struct HeldLease {
    lease: Lease,
    lost: bool,
    release: bool,
    request: Option<ShardAction>,
    /// Whether the shard has come forward under this lease.
    progressed: bool,
    transit: Transit,
}

/// How a shard is about to leave its slot for another worker.
#[derive(Debug, Default)]
struct Transit {
    /// Somebody asks for a move: to this worker, or to anyone.
    asked: Option<Option<WorkerId>>,
    /// Somebody asks for it to be taken back.
    withdrawn: bool,
    /// How many moves of this lease were begun.
    moves: u32,
    /// Whether the shard shall stand still.
    freeze: bool,
    /// Where it does.
    frozen: Option<Cursor>,
    /// What became of it.
    end: Option<DrainEnd>,
}

impl LeaseSlot {
    /// Sits down with a lease.
    pub(super) fn take(&self, lease: Lease) {
        *self.lock() = Some(HeldLease {
            lease,
            lost: false,
            release: false,
            request: None,
            progressed: false,
            transit: Transit::default(),
        });
    }

    /// Gets up.
    pub(super) fn leave(&self) {
        *self.lock() = None;
    }

    /// The lease of whoever sits here.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.lock().as_ref().map(|held| held.lease.clone())
    }

    /// Tells the task what was left for it, and notes whether it has progressed.
    pub(super) fn tell(&self, task: &mut ShardTask) {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else { return };
        task.renewed(held.lease.deadline());
        held.progressed = task.has_progressed();
        if held.lost {
            task.lost();
        }
        if held.release {
            task.release();
        }
        if let Some(action) = held.request.take() {
            task.request(&action);
        }
        held.transit.tell(task);
    }

    /// Notes where the task stands still, if it was asked to; whether that is news.
    pub(super) fn note(&self, task: &ShardTask) -> bool {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else { return false };
        if !held.transit.freeze || held.transit.frozen.is_some() {
            return false;
        }
        held.transit.frozen = task.frozen_at();
        held.transit.frozen.is_some()
    }

    /// Leaves word of a renewal of `lease`.
    pub(super) fn renewed(
        &self,
        lease: &Lease,
        now: LogicalTime,
        result: &Result<RenewResult, RenewError>,
    ) {
        let mut slot = self.lock();
        let same = |held: &&mut HeldLease| held.lease.token() == lease.token();
        let Some(held) = slot.as_mut().filter(same) else { return };
        match result {
            Ok(renewed) => {
                let deadline = held.lease.deadline().max(renewed.new_deadline);
                held.lease.set_deadline(deadline);
                held.release |= renewed.run_paused;
                let request = renewed.request.as_ref().filter(|asked| asked.is_pending_at(now));
                if let Some(request) = request {
                    held.asked(request.action());
                }
            }
            // The lease lasts until its deadline; another renewal may come before it.
            Err(RenewError::BackendError(_)) => {}
            Err(_) => held.lost = true,
        }
    }

    /// Whether `shard` sits here, and has come forward.
    pub(super) fn progress_of(&self, shard: ShardId) -> Option<bool> {
        let slot = self.lock();
        let held = slot.as_ref().filter(|held| held.lease.key().shard() == shard)?;
        Some(held.progressed)
    }

    /// Asks for a split of `shard`, if it sits here, has come forward, and nothing else is asked.
    pub(super) fn ask_split(&self, shard: ShardId) -> bool {
        let mut slot = self.lock();
        let is_it = |held: &&mut HeldLease| held.lease.key().shard() == shard;
        let ripe = |held: &&mut HeldLease| held.progressed && held.request.is_none();
        let Some(held) = slot.as_mut().filter(is_it).filter(ripe) else { return false };
        held.request = Some(ShardAction::Split(None));
        // Not again before it has come forward once more.
        held.progressed = false;
        true
    }

    /// Begins a move of whatever sits here: its lease, and how many moves of it there were.
    pub(super) fn begin_move(&self) -> Option<(Lease, u32)> {
        let mut slot = self.lock();
        let held = slot.as_mut().filter(|held| !held.lost)?;
        held.transit.asked = None;
        held.transit.withdrawn = false;
        held.transit.moves += 1;
        Some((held.lease.clone(), held.transit.moves - 1))
    }

    /// The lease of the shard that somebody wants to have moved, if somebody does, and to whom.
    pub(super) fn take_request(&self) -> Option<(Lease, Option<WorkerId>)> {
        let mut slot = self.lock();
        let held = slot.as_mut().filter(|held| !held.lost)?;
        let to = held.transit.asked.take()?;
        Some((held.lease.clone(), to))
    }

    /// Begins the move of `lease` if it sits here and stands still; tells where, too.
    pub(super) fn begin_move_of(&self, lease: &Lease) -> Option<(Lease, u32, Cursor)> {
        let cursor = self.frozen_at(lease)?;
        let (lease, moves) = self.begin_move()?;
        Some((lease, moves, cursor))
    }

    /// The shard is not moved after all, if it sits here under `lease`: it goes on.
    pub(super) fn unfreeze(&self, lease: &Lease) {
        self.with(lease, |held| held.transit.end = Some(DrainEnd::Finished));
    }

    /// The shard here, if somebody wants its move taken back.
    pub(super) fn take_withdrawal(&self) -> Option<ShardKey> {
        let mut slot = self.lock();
        let held = slot.as_mut()?;
        std::mem::take(&mut held.transit.withdrawn).then(|| held.lease.key())
    }

    /// Asks the shard to stand still, if it sits here under `lease`.
    ///
    /// It may not have heard yet that it can go on after an earlier move. It hears nothing of that
    /// any more: it would take it for the end of the next one, and whoever waits for it to stand
    /// still would wait for ever.
    pub(super) fn freeze(&self, lease: &Lease) {
        self.with(lease, |held| {
            held.transit.freeze = true;
            held.transit.end.take_if(|end| *end == DrainEnd::Finished);
        });
    }

    /// Where the shard stands still, if it sits here under `lease` and does.
    pub(super) fn frozen_at(&self, lease: &Lease) -> Option<Cursor> {
        self.with(lease, |held| held.transit.frozen.clone()).flatten()
    }

    /// Whether `lease` sits here.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.with(lease, |_| ()).is_some()
    }

    /// Whether `lease` sits here and stays: it is not known to be lost, nor to be given back.
    pub(super) fn keeps(&self, lease: &Lease) -> bool {
        self.with(lease, |held| !held.lost && !held.release) == Some(true)
    }

    /// Leaves word of how the move of `lease` ended.
    pub(super) fn end_move(&self, lease: &Lease, end: DrainEnd) {
        self.with(lease, |held| held.transit.end = Some(end));
    }

    /// A lease, and not its shard: the shard may have been given back and claimed again, and nobody
    /// would tell the new lease how a move of the old one ended.
    fn with<T>(&self, lease: &Lease, tell: impl FnOnce(&mut HeldLease) -> T) -> Option<T> {
        let mut slot = self.lock();
        slot.as_mut().filter(|held| held.lease.token() == lease.token()).map(tell)
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeldLease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLease {
    /// Notes what an administrator, or an idle worker, asks.
    fn asked(&mut self, action: &ShardAction) {
        match action {
            ShardAction::HandOff(to) => self.transit.asked = Some(*to),
            ShardAction::Withdraw => {
                self.transit.asked = None;
                self.transit.withdrawn = true;
            }
            // What is not about moves, or not known here, is the task's business.
            _ => self.request = Some(action.clone()),
        }
    }
}

impl Transit {
    /// Tells the task to stand still, or what became of it.
    fn tell(&mut self, task: &mut ShardTask) {
        if self.freeze && self.frozen.is_none() {
            task.freeze();
        }
        match self.end.take() {
            None => {}
            Some(DrainEnd::Moved) => task.end(TaskOutcome::Moved),
            Some(DrainEnd::Released) => task.end(TaskOutcome::Released),
            Some(DrainEnd::Lost) => task.lost(),
            // It is over by itself, or it was not moved: if it stands still, it goes on.
            Some(DrainEnd::Finished) => {
                (self.freeze, self.frozen) = (false, None);
                task.unfreeze();
            }
        }
    }
}
