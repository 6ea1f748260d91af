//! Where the renewer and a thread meet: one seat for each thread.
//!
//! The thread sits down with a lease and gets up when its shard is over. Meanwhile the renewer
//! leaves it notes. A note is for the lease it was written about: one that comes too late, for a
//! lease that has left the seat, is dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::{LogicalTime, ShardId};
use gossip_coordination::{Lease, RenewError, RenewResult, ShardAction};

use crate::task::ShardTask;

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
}

impl Seat {
    /// Sits down with a lease.
    pub(super) fn take(&self, lease: Lease) {
        let sitting =
            Sitting { lease, lost: false, release: false, request: None, progressed: false };
        *self.lock() = Some(sitting);
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
                    sitting.request = Some(request.action().clone());
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

    fn lock(&self) -> MutexGuard<'_, Option<Sitting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
