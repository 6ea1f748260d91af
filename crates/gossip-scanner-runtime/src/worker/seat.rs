//! Where the renewer and a thread meet: one seat for each thread.
//!
//! The thread sits down with a lease and gets up when its shard is over. Meanwhile the renewer
//! leaves it notes. A note is for the lease it was written about: one that comes too late, for a
//! lease that has left the seat, is dropped.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey, WorkerId};
use gossip_coordination::{Lease, RenewError, RenewResult, ShardAction};
use gossip_handoff::lease_handoff::DrainEnd;

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::task::{Ending, ShardTask};

/// One thread's place.
#[derive(Debug, Default)]
pub(super) struct Seat(Mutex<Option<Sitting>>);

/// A lease, and what its thread has not been told yet.
#[derive(Debug)]
struct Sitting {
    lease: Lease,
    lost: bool,
    release: bool,
    request: Option<ShardAction>,
    /// Whether the shard has come forward under this lease.
    progressed: bool,
    transit: Transit,
}

/// How a shard is about to leave its seat for another worker.
#[derive(Debug, Default)]
struct Transit {
    /// Somebody asks for a move: to this worker, or to anyone.
    asked: Option<Option<WorkerId>>,
    /// Somebody asks for it to be taken back.
    withdrawn: bool,
    /// How many moves of this lease were begun.
    moves: u32,
    /// Whether the shard shall stand still.
    stand: bool,
    /// Where it does.
    still: Option<Cursor>,
    /// What became of it.
    end: Option<DrainEnd>,
}

impl Seat {
    /// Sits down with a lease.
    pub(super) fn take(&self, lease: Lease) {
        *self.lock() = Some(Sitting {
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
        self.lock().as_ref().map(|sitting| sitting.lease.clone())
    }

    /// Tells the task what was left for it, and notes whether it has progressed.
    pub(super) fn tell(&self, task: &mut ShardTask) {
        let mut seat = self.lock();
        let Some(sitting) = seat.as_mut() else { return };
        task.renewed(sitting.lease.deadline());
        sitting.progressed = task.has_progressed();
        if sitting.lost {
            task.lost();
        }
        if sitting.release {
            task.release();
        }
        if let Some(action) = sitting.request.take() {
            task.order(&action);
        }
        sitting.transit.tell(task);
    }

    /// Notes where the task stands still, if it was asked to; whether that is news.
    pub(super) fn note(&self, task: &ShardTask) -> bool {
        let mut seat = self.lock();
        let Some(sitting) = seat.as_mut() else { return false };
        if !sitting.transit.stand || sitting.transit.still.is_some() {
            return false;
        }
        sitting.transit.still = task.still_at();
        sitting.transit.still.is_some()
    }

    /// Leaves word of a renewal of `lease`.
    pub(super) fn renewed(
        &self,
        lease: &Lease,
        now: LogicalTime,
        result: &Result<RenewResult, RenewError>,
    ) {
        let mut seat = self.lock();
        let same = |sitting: &&mut Sitting| sitting.lease.token() == lease.token();
        let Some(sitting) = seat.as_mut().filter(same) else { return };
        match result {
            Ok(renewed) => {
                let deadline = sitting.lease.deadline().max(renewed.new_deadline);
                sitting.lease.set_deadline(deadline);
                sitting.release |= renewed.run_paused;
                let request = renewed.request.as_ref().filter(|asked| asked.is_pending_at(now));
                if let Some(request) = request {
                    sitting.asked(request.action());
                }
            }
            // The lease lasts until its deadline; another renewal may come before it.
            Err(RenewError::BackendError(_)) => {}
            Err(_) => sitting.lost = true,
        }
    }

    /// Whether `shard` sits here, and has come forward.
    pub(super) fn progress_of(&self, shard: ShardId) -> Option<bool> {
        let seat = self.lock();
        let sitting = seat.as_ref().filter(|sitting| sitting.lease.key().shard() == shard)?;
        Some(sitting.progressed)
    }

    /// Asks for a split of `shard`, if it sits here, has come forward, and nothing else is asked.
    pub(super) fn ask_split(&self, shard: ShardId) -> bool {
        let mut seat = self.lock();
        let is_it = |sitting: &&mut Sitting| sitting.lease.key().shard() == shard;
        let ripe = |sitting: &&mut Sitting| sitting.progressed && sitting.request.is_none();
        let Some(sitting) = seat.as_mut().filter(is_it).filter(ripe) else { return false };
        sitting.request = Some(ShardAction::Split(None));
        // Not again before it has come forward once more.
        sitting.progressed = false;
        true
    }

    /// Begins a move of whatever sits here: its lease, and how many moves of it there were.
    pub(super) fn begin_move(&self) -> Option<(Lease, u32)> {
        let mut seat = self.lock();
        let sitting = seat.as_mut().filter(|sitting| !sitting.lost)?;
        sitting.transit.asked = None;
        sitting.transit.withdrawn = false;
        sitting.transit.moves += 1;
        Some((sitting.lease.clone(), sitting.transit.moves - 1))
    }

    /// The lease of the shard that somebody wants to have moved, if somebody does, and to whom.
    pub(super) fn take_request(&self) -> Option<(Lease, Option<WorkerId>)> {
        let mut seat = self.lock();
        let sitting = seat.as_mut().filter(|sitting| !sitting.lost)?;
        let to = sitting.transit.asked.take()?;
        Some((sitting.lease.clone(), to))
    }

    /// Begins the move of `lease` if it sits here and stands still; tells where, too.
    pub(super) fn begin_move_of(&self, lease: &Lease) -> Option<(Lease, u32, Cursor)> {
        let cursor = self.still_at(lease)?;
        let (lease, moves) = self.begin_move()?;
        Some((lease, moves, cursor))
    }

    /// The shard is not moved after all, if it sits here under `lease`: it goes on.
    pub(super) fn go_on(&self, lease: &Lease) {
        self.with(lease, |sitting| sitting.transit.end = Some(DrainEnd::Finished));
    }

    /// The shard here, if somebody wants its move taken back.
    pub(super) fn take_withdrawal(&self) -> Option<ShardKey> {
        let mut seat = self.lock();
        let sitting = seat.as_mut()?;
        std::mem::take(&mut sitting.transit.withdrawn).then(|| sitting.lease.key())
    }

    /// Asks the shard to stand still, if it sits here under `lease`.
    ///
    /// It may not have heard yet that it can go on after an earlier move. It hears nothing of that
    /// any more: it would take it for the end of the next one, and whoever waits for it to stand
    /// still would wait for ever.
    pub(super) fn stand(&self, lease: &Lease) {
        self.with(lease, |sitting| {
            sitting.transit.stand = true;
            sitting.transit.end.take_if(|end| *end == DrainEnd::Finished);
        });
    }

    /// Where the shard stands still, if it sits here under `lease` and does.
    pub(super) fn still_at(&self, lease: &Lease) -> Option<Cursor> {
        self.with(lease, |sitting| sitting.transit.still.clone()).flatten()
    }

    /// Whether `lease` sits here.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.with(lease, |_| ()).is_some()
    }

    /// Whether `lease` sits here and stays: it is not known to be lost, nor to be given back.
    pub(super) fn keeps(&self, lease: &Lease) -> bool {
        self.with(lease, |sitting| !sitting.lost && !sitting.release) == Some(true)
    }

    /// Leaves word of how the move of `lease` ended.
    pub(super) fn end_move(&self, lease: &Lease, end: DrainEnd) {
        self.with(lease, |sitting| sitting.transit.end = Some(end));
    }

    /// A lease, and not its shard: the shard may have been given back and claimed again, and nobody
    /// would tell the new lease how a move of the old one ended.
    fn with<T>(&self, lease: &Lease, tell: impl FnOnce(&mut Sitting) -> T) -> Option<T> {
        let mut seat = self.lock();
        seat.as_mut().filter(|sitting| sitting.lease.token() == lease.token()).map(tell)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sitting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sitting {
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
        if self.stand && self.still.is_none() {
            task.stand();
        }
        match self.end.take() {
            None => {}
            Some(DrainEnd::Moved) => task.end(Ending::Moved),
            Some(DrainEnd::Released) => task.end(Ending::Released),
            Some(DrainEnd::Lost) => task.lost(),
            // It is over by itself, or it was not moved: if it stands still, it goes on.
            Some(DrainEnd::Finished) => {
                (self.stand, self.still) = (false, None);
                task.go_on();
            }
        }
    }
}
