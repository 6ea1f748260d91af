//! Moves that earlier processes of this worker began and did not end.
//!
//! The fence tells what became of each ([`MoveOutcome`](super::MoveOutcome)). A record whose shard
//! is still at the fence of the move stays until the shard is taken by anybody, so a
//! worker looks again now and then.
//!
//! Records that are over are kept for a while, for whoever looks into them ([`ENDED_KEPT_TICKS`]),
//! and then forgotten by [`collect_ended`].

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{CoordinationBackend, RunManagement};

use super::driver::{Driver, SourceNext};
use super::source::HandoffSource;
use super::terms::{HandoffConfig, worker_name};
use crate::record::RecordId;
use crate::repository::{Repository, RepositoryError};

/// Milliseconds for which a record that is over is kept: a day, so that a night's trouble can be
/// looked into in the morning.
pub const ENDED_KEPT_TICKS: u64 = 24 * 3_600 * 1_000;

/// Records that one [`collect_ended`] looks at: seconds of a start-up, at worst. A store that holds
/// more is cleaned by the next ones, which begin where their seed says.
pub const COLLECT_MAX: usize = 4_096;

/// Records of one page.
const PAGE: usize = 64;

/// What earlier processes of one worker left behind.
#[derive(Debug)]
pub struct Recovery {
    name: String,
    config: HandoffConfig,
    in_flight: Vec<HandoffSource>,
    find_at: LogicalTime,
}

/// What came of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum RecoveryNext {
    /// There is more to do at once.
    Again,
    /// There is nothing to do before this instant.
    Wait(LogicalTime),
}

impl Recovery {
    /// What was left behind by processes that were called `me`.
    #[must_use]
    pub fn new(me: WorkerId, config: HandoffConfig) -> Self {
        let (name, in_flight) = (worker_name(me), Vec::new());
        Self { name, config, in_flight, find_at: LogicalTime::ZERO }
    }

    /// Does one thing for one of them. `is_live` tells which moves this process drives itself:
    /// those are left alone.
    ///
    /// # Errors
    ///
    /// [`RepositoryError`] if the records could not be searched.
    pub fn step<B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        is_live: impl Fn(&RecordId) -> bool,
        now: LogicalTime,
    ) -> Result<RecoveryNext, RepositoryError> {
        if let Some(mut source) = self.in_flight.pop() {
            // One that waits is looked at again by the next search.
            if driver.step_source(&mut source, None, now) == SourceNext::Again {
                self.in_flight.push(source);
            }
            return Ok(RecoveryNext::Again);
        }
        if now < self.find_at {
            return Ok(RecoveryNext::Wait(self.find_at));
        }
        self.find_at = now.saturating_add(self.config.finish_ticks);
        for stored in driver.records.in_progress(&self.name)? {
            let is_ours = stored.record.from == self.name && !is_live(&stored.record.id);
            if is_ours && let Ok(source) = HandoffSource::recover(stored, false, self.config, now) {
                self.in_flight.push(source);
            }
        }
        Ok(RecoveryNext::Again)
    }
}

/// Forgets records that have been over for [`ENDED_KEPT_TICKS`], and answers how many. It looks at
/// most at [`COLLECT_MAX`] records behind `after`, and answers where the next call goes on.
///
/// # Errors
///
/// [`RepositoryError`] of the store. Somebody else who forgets the same is no error.
pub fn collect_ended<R: Repository>(
    records: &mut R,
    after: Option<RecordId>,
    now: LogicalTime,
) -> Result<Collected, RepositoryError> {
    let mut collected = Collected { forgotten: 0, next: after };
    for _ in 0..COLLECT_MAX / PAGE {
        let page = records.page(collected.next.as_ref(), PAGE)?;
        for stored in page.found {
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

/// What [`collect_ended`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Records that are gone.
    pub forgotten: u64,
    /// Behind which record to go on, if not everything was looked at.
    pub next: Option<RecordId>,
}
