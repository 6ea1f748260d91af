//! Recovery of moves that earlier processes of this worker began and did not finish.
//!
//! The fence determines the outcome of each ([`MoveOutcome`](super::MoveOutcome)). While the shard
//! still has the fence of the move, its record must stay, so a worker searches periodically.
//!
//! Ended records are kept for `ENDED_KEPT_TICKS` for inspection; [`collect_ended`] deletes them
//! after that.

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{CoordinationBackend, RunManagement};

use super::driver::{Driver, SourceNext};
use super::source::HandoffSource;
use super::terms::{HandoffConfig, worker_name};
use crate::record::RecordId;
use crate::repository::{Repository, RepositoryError};

/// Milliseconds for which an ended record is kept: a day, so that an incident of the night can be
/// investigated in the morning.
pub(crate) const ENDED_KEPT_TICKS: u64 = 24 * 3_600 * 1_000;

/// The most records that one [`collect_ended`] reads, so that it delays a start-up by seconds at
/// most. [`Collected::next`] is where a further call continues.
pub(crate) const COLLECT_MAX: usize = 4_096;

/// Records read at a time.
const PAGE: usize = 64;

/// Finishes the moves of earlier processes of one worker.
#[derive(Debug)]
pub struct Recovery {
    name: String,
    config: HandoffConfig,
    in_flight: Vec<HandoffSource>,
    find_at: LogicalTime,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum RecoveryNext {
    /// Step again at once.
    Again,
    /// Step again at this time.
    Wait(LogicalTime),
}

impl Recovery {
    /// Returns the recovery of moves whose source is `me`.
    #[must_use]
    pub fn new(me: WorkerId, config: HandoffConfig) -> Self {
        let (name, in_flight) = (worker_name(me), Vec::new());
        Self { name, config, in_flight, find_at: LogicalTime::ZERO }
    }

    /// Executes one operation for one of them, or searches for more. Moves for which `is_live`
    /// returns true are driven by this process and are left alone.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`] if the records could not be read.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        is_live: impl Fn(&RecordId) -> bool,
        now: LogicalTime,
    ) -> Result<RecoveryNext, RepositoryError> {
        if let Some(mut source) = self.in_flight.pop() {
            // A source that must wait is dropped: the next search finds its record again.
            if driver.step_source(&mut source, None, now) == SourceNext::Again {
                self.in_flight.push(source);
            }
            return Ok(RecoveryNext::Again);
        }
        if now < self.find_at {
            return Ok(RecoveryNext::Wait(self.find_at));
        }
        // Before the search: if it fails, the next one waits as well.
        self.find_at = now.saturating_add(self.config.finish_ticks);
        for stored in driver.records.in_progress(&self.name)? {
            // The listing also has the moves to this worker, which `Inbound` handles.
            let is_ours = stored.record.from == self.name && !is_live(&stored.record.id);
            if is_ours && let Ok(source) = HandoffSource::recover(stored, false, self.config, now) {
                self.in_flight.push(source);
            }
        }
        Ok(RecoveryNext::Again)
    }
}

/// Deletes records that ended `ENDED_KEPT_TICKS` ago. Reads at most `COLLECT_MAX` records after
/// `after`. Returns the number of deleted records and where the next call must continue.
///
/// # Errors
///
/// [`RepositoryError`] of the store. A record that another process deletes or changes concurrently
/// is skipped.
pub fn collect_ended<R: Repository>(
    records: &mut R,
    after: Option<RecordId>,
    now: LogicalTime,
) -> Result<Collected, RepositoryError> {
    let mut collected = Collected { forgotten: 0, next: after };
    for _ in 0..COLLECT_MAX / PAGE {
        let page = records.page(collected.next.as_ref(), PAGE)?;
        for stored in page.found {
            // Both conditions: an old record that has not ended may still decide who owns a shard.
            let old = stored.record.last_transition.saturating_add(ENDED_KEPT_TICKS) <= now;
            if !old || !stored.record.state.is_terminal() {
                continue;
            }
            match records.forget(&stored) {
                Ok(()) => collected.forgotten += 1,
                Err(RepositoryError::VersionConflict) => {}
                Err(error) => return Err(error),
            }
        }
        collected.next = page.next;
        if collected.next.is_none() {
            break;
        }
    }
    Ok(collected)
}

/// The result of [`collect_ended`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The number of deleted records.
    pub(crate) forgotten: u64,
    /// The record after which to continue, if records are left.
    pub(crate) next: Option<RecordId>,
}
