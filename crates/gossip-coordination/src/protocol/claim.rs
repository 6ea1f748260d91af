//! Claims: which shard an idle worker should acquire next.
//!
//! A claim acquires the first candidate that no concurrent worker takes. This module holds the
//! rules: the scan offset, which refusals lead to the next candidate, and when a claim ends without
//! a shard; `claim_cooldown` holds the minimum time between claims. The store finds candidates and
//! the driver performs the I/O: [`Claim`] is a state machine that returns the next step.

use gossip_contracts::identity::{LogicalTime, ShardId, WorkerId};
use gossip_stdx::InlineVec;

use crate::error::AcquireError;
use crate::facade::ClaimError;
use crate::run_management::ClaimOutlook;

/// Maximum number of candidates per claim. A claim that loses this many races should back off,
/// because enough workers are active.
pub const CLAIM_CANDIDATES_MAX: usize = 32;

/// Claim candidates, best first.
pub type ClaimCandidates = InlineVec<ShardId, CLAIM_CANDIDATES_MAX>;

/// An in-flight claim.
#[derive(Debug)]
pub(crate) struct Claim {
    candidates: ClaimCandidates,
    /// Number of `candidates` that were taken or skipped.
    passed: usize,
    /// Shards tried in all scans, each once.
    tried: ClaimCandidates,
    /// Whether the current scan found a shard that was not tried before.
    found_new: bool,
    /// Whether a shard was refused because its grant would be its last attempt.
    spared_last: bool,
    /// Shards among `tried` whose record is damaged.
    pub(super) damaged: ClaimCandidates,
    /// Earliest time until which an expired lease is honoured because its holder is alive.
    honoured_until: Option<LogicalTime>,
    per_scan: usize,
    /// Start time of the claim.
    now: LogicalTime,
    /// Result of the last scan, set by the driver.
    pub(crate) outlook: Option<ClaimOutlook>,
}

/// The shards that a claim may acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every scope")]
pub enum ClaimScope {
    /// Every claimable shard.
    Any,
    /// Shards that have another attempt after this one. A worker with several threads claims the
    /// others only while it processes nothing else.
    SpareLastAttempts,
}

/// The next step of a claim.
#[derive(Debug)]
pub(crate) enum ClaimStep<'c> {
    /// Find up to `limit` candidates, put them into `found`, and set the claim's outlook.
    Scan {
        /// Maximum number of candidates.
        limit: usize,
        /// Whether a partial scan suffices: some candidates, and no deadline unless there are none.
        /// Only the first scan may be partial, so a claim ends only after a full scan.
        partial: bool,
        /// The list to fill.
        found: &'c mut ClaimCandidates,
    },
    /// Acquire this shard; pass a refusal to [`Claim::refused`].
    Try(ShardId),
    /// End the claim: no shard is available to this worker.
    End(ClaimError),
}

impl Claim {
    /// Creates a claim that requests `per_scan` candidates per scan.
    #[must_use]
    pub(crate) fn new(per_scan: usize, now: LogicalTime) -> Self {
        assert!(per_scan > 0, "a claim requests at least one candidate");
        Self {
            candidates: ClaimCandidates::new(),
            passed: 0,
            tried: ClaimCandidates::new(),
            found_new: false,
            spared_last: false,
            damaged: ClaimCandidates::new(),
            honoured_until: None,
            per_scan,
            now,
            outlook: None,
        }
    }

    /// Returns the next step.
    pub(crate) fn step(&mut self) -> ClaimStep<'_> {
        // Candidates of the last scan first: another scan costs a round trip.
        if let Some(shard) = self.next_candidate() {
            return self.run_refusal().map_or(ClaimStep::Try(shard), ClaimStep::End);
        }
        assert!(
            self.passed == self.candidates.len() || self.tried_all(),
            "every candidate was handled"
        );
        let left = CLAIM_CANDIDATES_MAX - self.tried.len();
        // A scan without new candidates cannot make progress: end the claim instead of looping.
        if self.outlook.is_some() && (!self.found_new || left == 0) {
            let nothing = match self.spared_last {
                true => ClaimError::OnlyLastAttempts,
                false => ClaimError::NoneAvailable { earliest_deadline: self.come_back_at() },
            };
            return ClaimStep::End(self.run_refusal().unwrap_or(nothing));
        }
        (self.passed, self.found_new) = (0, false);
        self.candidates.clear();
        let (limit, partial) = (self.per_scan.min(left), self.outlook.is_none());
        ClaimStep::Scan { limit, partial, found: &mut self.candidates }
    }

    /// Handles a refused acquire: the claim tries another candidate or ends.
    ///
    /// # Errors
    ///
    /// Returns [`ClaimError`] if no other candidate can succeed.
    pub(crate) fn refused(&mut self, refusal: AcquireError) -> Result<(), ClaimError> {
        match refusal {
            // One damaged shard must not keep its run from the others. After a lost reply the
            // worker may hold the shard, which "none available" would deny.
            AcquireError::BackendError(error) if error.is_of_shard() && !error.is_unresolved() => {
                self.skip_damaged();
                Ok(())
            }
            AcquireError::AlreadyLeased { lease_deadline, .. } => {
                self.note_lease(lease_deadline);
                Ok(())
            }
            AcquireError::LastAttempt => {
                self.spared_last = true;
                Ok(())
            }
            // The shard ended or was split after the index was read: the index is only a hint.
            AcquireError::ShardTerminal { .. } | AcquireError::ShardNotFound { .. } => Ok(()),
            // The others concern the whole run or the store, so no other candidate can succeed.
            AcquireError::TenantMismatch { expected } => {
                Err(ClaimError::TenantMismatch { expected })
            }
            AcquireError::RunTerminal { status } => Err(ClaimError::RunTerminal { status }),
            AcquireError::RunPaused => Err(ClaimError::RunPaused),
            AcquireError::BackendError(error) => Err(ClaimError::BackendError(error)),
        }
    }

    /// Skips the candidate of the last [`ClaimStep::Try`], because its record is damaged.
    fn skip_damaged(&mut self) {
        if let Some(shard) = self.tried.last().filter(|shard| !self.damaged.contains(shard)) {
            self.damaged.push(*shard);
        }
        assert!(self.damaged.len() <= self.tried.len(), "a damaged shard was tried");
    }

    /// Returns the next candidate that was not tried before.
    fn next_candidate(&mut self) -> Option<ShardId> {
        assert!(self.passed <= self.candidates.len(), "`passed` counts candidates");
        let full = self.tried_all();
        while let Some(shard) = self.candidates.get(self.passed).copied().filter(|_| !full) {
            self.passed += 1;
            if !self.tried.contains(&shard) {
                self.tried.push(shard);
                self.found_new = true;
                return Some(shard);
            }
        }
        None
    }

    /// Returns whether the claim has tried the maximum number of shards.
    fn tried_all(&self) -> bool {
        assert!(self.tried.len() <= CLAIM_CANDIDATES_MAX, "tries are bounded");
        self.tried.len() == CLAIM_CANDIDATES_MAX
    }

    /// Records when an honoured lease ends. The winner of a race holds a full lease; a deadline
    /// earlier than that belongs to an expired lease whose holder is still alive.
    fn note_lease(&mut self, until: LogicalTime) {
        let duration = self.outlook.map_or(0, |outlook| outlook.run.config.lease_duration());
        // A full lease belongs to the winner of a race: returning at its end would be far too late,
        // because other shards become free before.
        if until < self.now.saturating_add(duration) {
            self.honoured_until = Some(self.honoured_until.map_or(until, |first| first.min(until)));
        }
    }

    /// Returns when to claim again: immediately if candidates were left untried or became free, so
    /// that a worker that lost many races, or parked many exhausted shards, does not stop.
    fn come_back_at(&self) -> Option<LogicalTime> {
        let earliest = self.outlook?.earliest_deadline;
        // The full scan found nothing to try: only the next deadline can make a shard claimable. A
        // damaged shard stays in the index, and returning at once for it would never end.
        if self.candidates.iter().all(|shard| self.damaged.contains(shard)) {
            return earliest;
        }
        let until = self.honoured_until.filter(|_| !self.found_new).unwrap_or(self.now);
        Some(earliest.map_or(until, |earliest| earliest.min(until)))
    }

    /// Returns the reason if the run itself prevents claims: it is terminal or paused.
    fn run_refusal(&self) -> Option<ClaimError> {
        let run = self.outlook?.run;
        if run.status.is_terminal() {
            return Some(ClaimError::RunTerminal { status: run.status });
        }
        run.paused.then_some(ClaimError::RunPaused)
    }
}

/// Returns the offset at which `worker` starts among `count` candidates, to spread workers out.
///
/// Worker ids are often small consecutive numbers; multiplication by an odd constant spreads those
/// as well as random ones.
#[must_use]
pub(crate) fn claim_offset(worker: WorkerId, count: usize) -> usize {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let spread = u128::from(worker.as_raw().wrapping_mul(GOLDEN));
    // The high half of the product maps to 0..count without modulo bias and without a division.
    let count_wide = u128::try_from(count).expect("usize fits in u128");
    let offset = usize::try_from((spread * count_wide) >> 64).expect("less than count");
    assert!(offset < count || count == 0, "an offset is less than count");
    offset
}
