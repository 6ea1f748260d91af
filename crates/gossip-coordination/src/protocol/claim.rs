//! Claiming: which shard a worker that has none should try first.
//!
//! A claim is an acquire of the first candidate that nobody else takes meanwhile. What is a rule
//! is here: how long a worker waits between claims, where it starts looking, which refusals mean
//! "try the next one", and when to give up. Finding candidates quickly is the store's work, and
//! talking to the store is the driver's: [`Claim`] only says what to do next.

use gossip_contracts::identity::{LogicalTime, ShardId, WorkerId};
use gossip_stdx::InlineVec;

use crate::error::AcquireError;
use crate::facade::ClaimError;
use crate::run_management::ClaimOutlook;

/// The most candidates that one claim looks at. Losing this many races in a row means that enough
/// workers are busy, and backing off is better than going on.
pub const CLAIM_CANDIDATES_MAX: usize = 32;

/// Shards that a worker may try, best first.
pub type ClaimCandidates = InlineVec<ShardId, CLAIM_CANDIDATES_MAX>;

/// One claim on its way.
#[derive(Debug)]
pub struct Claim {
    candidates: ClaimCandidates,
    /// How many of `candidates` were looked at.
    passed: usize,
    /// What was tried, in all looks; each shard once.
    tried: ClaimCandidates,
    /// Whether one of `candidates` was.
    found_new: bool,
    /// Until when the first of the owners is honoured whose lease ran out and whose process lives.
    honoured_until: Option<LogicalTime>,
    per_look: usize,
    /// When the claim was made.
    now: LogicalTime,
    /// What the last look said, set by the driver.
    pub outlook: Option<ClaimOutlook>,
}

/// What a claim needs next.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every step")]
pub enum ClaimStep<'c> {
    /// Look for up to `limit` candidates, put them into `found`, and set the claim's outlook.
    Look {
        /// How many to look for.
        limit: usize,
        /// Whether a glance will do: some of the candidates, and no deadline unless there are none.
        /// Only the first look may be one, so nobody gives up before everything was looked at.
        glance: bool,
        /// Where to put them.
        found: &'c mut ClaimCandidates,
    },
    /// Acquire this shard; if that is refused, tell [`Claim::refused`].
    Try(ShardId),
    /// There is nothing for this worker now.
    GiveUp(ClaimError),
}

impl Claim {
    /// A claim that looks for `per_look` candidates at a time.
    #[must_use]
    pub fn new(per_look: usize, now: LogicalTime) -> Self {
        assert!(per_look > 0, "a claim looks for something");
        Self {
            candidates: ClaimCandidates::new(),
            passed: 0,
            tried: ClaimCandidates::new(),
            found_new: false,
            honoured_until: None,
            per_look,
            now,
            outlook: None,
        }
    }

    /// What to do next.
    pub fn step(&mut self) -> ClaimStep<'_> {
        if let Some(shard) = self.next_candidate() {
            return self.verdict().map_or(ClaimStep::Try(shard), ClaimStep::GiveUp);
        }
        assert!(self.passed == self.candidates.len() || self.tried_all(), "none was passed over");
        let left = CLAIM_CANDIDATES_MAX - self.tried.len();
        if self.outlook.is_some() && (!self.found_new || left == 0) {
            let nothing = ClaimError::NoneAvailable { earliest_deadline: self.come_back_at() };
            return ClaimStep::GiveUp(self.verdict().unwrap_or(nothing));
        }
        (self.passed, self.found_new) = (0, false);
        self.candidates.clear();
        let (limit, glance) = (self.per_look.min(left), self.outlook.is_none());
        ClaimStep::Look { limit, glance, found: &mut self.candidates }
    }

    /// What a refused acquire means for the claim: another candidate, or the end.
    ///
    /// # Errors
    ///
    /// [`ClaimError`] if no other candidate can help.
    pub fn refused(&mut self, refusal: AcquireError) -> Result<(), ClaimError> {
        match refusal {
            AcquireError::AlreadyLeased { lease_deadline, .. } => {
                self.note_lease(lease_deadline);
                Ok(())
            }
            // Ended or split since the index was read: the index is a hint, the record decides.
            AcquireError::ShardTerminal { .. } | AcquireError::ShardNotFound { .. } => Ok(()),
            AcquireError::TenantMismatch { expected } => {
                Err(ClaimError::TenantMismatch { expected })
            }
            AcquireError::RunTerminal { status } => Err(ClaimError::RunTerminal { status }),
            AcquireError::RunPaused => Err(ClaimError::RunPaused),
            AcquireError::BackendError(error) => Err(ClaimError::BackendError(error)),
        }
    }

    /// The next candidate that was not tried yet.
    fn next_candidate(&mut self) -> Option<ShardId> {
        assert!(self.passed <= self.candidates.len(), "what was passed was found");
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

    /// Whether the claim has looked at as many shards as it may.
    fn tried_all(&self) -> bool {
        debug_assert!(self.tried.len() <= CLAIM_CANDIDATES_MAX, "each try is counted");
        self.tried.len() == CLAIM_CANDIDATES_MAX
    }

    /// Whoever won a race has a whole lease ahead. A candidate whose lease ends sooner had run out,
    /// and is honoured for a while.
    fn note_lease(&mut self, until: LogicalTime) {
        let duration = self.outlook.map_or(0, |outlook| outlook.run.config.lease_duration());
        if until < self.now.saturating_add(duration) {
            self.honoured_until = Some(self.honoured_until.map_or(until, |first| first.min(until)));
        }
    }

    /// When looking again makes sense: at once if candidates were left untried or came free again,
    /// so that a worker that lost many races, or met many shards that had used up their attempts,
    /// does not stop.
    fn come_back_at(&self) -> Option<LogicalTime> {
        let earliest = self.outlook?.earliest_deadline;
        if self.candidates.is_empty() {
            return earliest;
        }
        let until = self.honoured_until.filter(|_| !self.found_new).unwrap_or(self.now);
        Some(earliest.map_or(until, |earliest| earliest.min(until)))
    }

    /// Why nothing of the run may be claimed: it is over, or paused.
    fn verdict(&self) -> Option<ClaimError> {
        let run = self.outlook?.run;
        if run.status.is_terminal() {
            return Some(ClaimError::RunTerminal { status: run.status });
        }
        run.paused.then_some(ClaimError::RunPaused)
    }
}

/// How long a worker waits after a successful claim before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimCooldown {
    interval: u64,
}

impl ClaimCooldown {
    /// Waits `interval` ticks; zero never waits.
    #[must_use]
    pub const fn new(interval: u64) -> Self {
        Self { interval }
    }

    /// When a worker that claimed at `last` may claim again, if that is still ahead.
    #[must_use]
    pub fn retry_after(self, last: LogicalTime, now: LogicalTime) -> Option<LogicalTime> {
        let again = last.saturating_add(self.interval);
        (now < again).then_some(again)
    }

    /// Whether workers never wait.
    #[must_use]
    pub const fn is_disabled(self) -> bool {
        self.interval == 0
    }
}

/// Where `worker` starts among `count` candidates, so that workers spread out.
///
/// Worker ids are often small consecutive numbers; multiplying by an odd constant spreads those as
/// well as random ones.
#[must_use]
pub fn claim_offset(worker: WorkerId, count: usize) -> usize {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let spread = u128::from(worker.as_raw().wrapping_mul(GOLDEN));
    // The high half of the product: without the bias and the division of a remainder.
    let count_wide = u128::try_from(count).expect("usize fits in u128");
    let offset = usize::try_from((spread * count_wide) >> 64).expect("less than count");
    assert!(offset < count || count == 0, "an offset is one of the candidates");
    offset
}
