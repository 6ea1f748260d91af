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
    /// How many of `candidates` were tried.
    tried: usize,
    /// How many may still be tried in all.
    left: usize,
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
        let candidates = ClaimCandidates::new();
        let left = CLAIM_CANDIDATES_MAX;
        Self { candidates, tried: 0, left, per_look, now, outlook: None }
    }

    /// What to do next.
    pub fn step(&mut self) -> ClaimStep<'_> {
        if let Some(shard) = self.candidates.get(self.tried).copied() {
            self.tried += 1;
            self.left = self.left.saturating_sub(1);
            return self.verdict().map_or(ClaimStep::Try(shard), ClaimStep::GiveUp);
        }
        if self.outlook.is_some() && (self.candidates.is_empty() || self.left == 0) {
            let nothing = ClaimError::NoneAvailable { earliest_deadline: self.come_back_at() };
            return ClaimStep::GiveUp(self.verdict().unwrap_or(nothing));
        }
        self.tried = 0;
        self.candidates.clear();
        let limit = self.per_look.min(self.left);
        ClaimStep::Look { limit, found: &mut self.candidates }
    }

    /// What a refused acquire means for the claim: another candidate, or the end.
    ///
    /// # Errors
    ///
    /// [`ClaimError`] if no other candidate can help.
    pub fn refused(&mut self, refusal: AcquireError) -> Result<(), ClaimError> {
        match refusal {
            AcquireError::AlreadyLeased { .. }
            | AcquireError::ShardTerminal { .. }
            | AcquireError::ShardNotFound { .. } => Ok(()),
            AcquireError::TenantMismatch { expected } => {
                Err(ClaimError::TenantMismatch { expected })
            }
            AcquireError::RunTerminal { status } => Err(ClaimError::RunTerminal { status }),
            AcquireError::RunPaused => Err(ClaimError::RunPaused),
            AcquireError::BackendError(error) => Err(ClaimError::BackendError(error)),
        }
    }

    /// When looking again makes sense: at once if candidates were left untried, so that a worker
    /// that lost many races, or met many shards that had used up their attempts, does not stop.
    fn come_back_at(&self) -> Option<LogicalTime> {
        if !self.candidates.is_empty() {
            return Some(self.now);
        }
        self.outlook?.earliest_deadline
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
    let count_wide = u128::try_from(count).expect("usize fits in u128");
    usize::try_from((spread * count_wide) >> 64).expect("less than count")
}
