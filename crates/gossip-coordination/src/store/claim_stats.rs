//! What a handle remembers of how a run's claim index is filled, so that it reads little of it.
//!
//! On some engines a range costs as much as it holds, whatever the limit. So a look reads narrow
//! ranges: an interval of the free shards, the front of the expired leases, the front of the live
//! ones. How narrow they may be depends on how many there are, and that is remembered from look to
//! look. A wide range over few entries costs little, so nothing need be known of those.
//!
//! A handle that has never looked at a run cannot know how much there is. Its first claim begins
//! with a [`Probe`]: one question for the narrowest of several intervals that holds anything. Any
//! other first look, for a hint or a listing of candidates, reads everything, once. The hint of a
//! first claim does so with the *live* leases, which are as many as shards are worked on.
//!
//! # Invariants
//! - A memory never changes an answer, only its cost. What a narrow read finds is used only if it
//!   settles the question: enough shards were found, or a deadline was. Otherwise the next read is
//!   wider, and the last one reads everything.
//! - Nothing here is sent or stored: every handle has its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId, WorkerId};

use super::engine::{Page, Read};
use super::flight::Answers;
use super::key::Key;
use super::range::ClaimsPath;
use super::scatter::{ClaimSpot, mixed, scatter};
use crate::outcome::CAPACITY_COUNT_MAX;
use crate::protocol::CLAIM_CANDIDATES_MAX;

/// Batches of reads that one question takes at most. The last but one reads whole ranges where
/// narrow ones did not settle it, the last reads nothing but whole ranges.
pub(super) const LOOKS_MAX: usize = 4;

/// Questions of one look, at most.
const LOOK_READS_MAX: usize = 4;

/// Runs that a handle remembers. Whoever works on more pays a wide look for some.
const SIGHTS_MAX: usize = 256;

/// Due shards that settle a capacity hint: the shard that is being granted may be one of them.
pub(super) const DUE_ENOUGH: usize = CAPACITY_COUNT_MAX + 1;

/// Free shards that an interval should hold. It holds up to twice as many, since its width is a
/// power of two, and by chance a few less: far more than what settles any look.
const FREE_TARGET: u128 = 192;

/// Free shards that are read by their names, so that an interval is read whole.
const FREE_PAGE: usize = 512;

/// Intervals never get narrower than for far more shards than any run has.
const BITS_MAX: u32 = 40;

/// A probe reads the narrowest of these intervals that holds a free shard: one of two to the power
/// of so many. Each is sixteen times the last, so that what is found is a few dozen at most; the
/// first is narrow enough for runs of a million, the last is all.
const GLANCE_BITS: [u32; 5] = [16, 12, 8, 4, 0];

/// By how many bits the next look is wider than a probe suggests. A probe sees few shards, which
/// by chance stand too close: one in sixteen times sixteen times closer than others. Two glances
/// and this leave one in a thousand first claims whose hint takes a look more.
const GLANCE_DOUBT: u32 = 3;

/// Expired leases that are read.
const EXPIRED_PAGE: usize = DUE_ENOUGH;
/// Expired leases that a narrow range should hold.
const EXPIRED_TARGET: u128 = 2 * EXPIRED_PAGE as u128;

/// Live leases that are read, to learn how densely they stand; only the first is asked for.
const LIVE_PAGE: usize = 16;
/// Live leases that a narrow range should hold, so that one is left when some were renewed.
const LIVE_TARGET: u128 = 64;

/// How much wider a range gets in which too little was found.
const WIDENING: u128 = 16;

const _: () = assert!(FREE_TARGET as usize > DUE_ENOUGH && DUE_ENOUGH > CLAIM_CANDIDATES_MAX);
const _: () = assert!(FREE_PAGE as u128 > 2 * FREE_TARGET);
const _: () = assert!(LIVE_PAGE > 1 && EXPIRED_PAGE > 1);
const _: () = assert!(GLANCE_BITS[GLANCE_BITS.len() - 1] == 0);
const _: () = assert!(GLANCE_BITS[0] <= BITS_MAX && FREE_PAGE >= EXPIRED_PAGE);

/// What is remembered of each run.
#[derive(Debug, Default)]
pub(super) struct ClaimStats {
    runs: BTreeMap<(TenantId, RunId), RunClaimStats>,
    /// Looks so far.
    count: u64,
}

impl ClaimStats {
    pub(super) fn of(&self, tenant: TenantId, run: RunId) -> RunClaimStats {
        self.runs.get(&(tenant, run)).copied().unwrap_or_default()
    }

    /// Whether the run was looked at.
    pub(super) fn knows(&self, tenant: TenantId, run: RunId) -> bool {
        self.runs.contains_key(&(tenant, run))
    }

    pub(super) fn remember(&mut self, tenant: TenantId, run: RunId, sight: RunClaimStats) {
        if self.runs.len() >= SIGHTS_MAX && !self.runs.contains_key(&(tenant, run)) {
            self.runs.clear();
        }
        self.runs.insert((tenant, run), sight);
    }

    /// Where the next look begins among the free shards: elsewhere for every look, handle and
    /// worker, so that machines do not meet and the free stay spread evenly.
    pub(super) const fn point(&mut self, nonce: u64, worker: WorkerId) -> u64 {
        self.count = self.count.wrapping_add(1);
        mixed(mixed(mixed(worker.as_raw()) ^ nonce) ^ self.count)
    }
}

/// How the claim index of one run was filled when it was last looked at.
///
/// By default everything is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunClaimStats {
    /// Free shards are read in one of two to the power of this many intervals.
    free_bits: u32,
    /// Present while many leases have expired.
    expired: Option<Spacing>,
    /// Present while many leases are live.
    live: Option<LiveCrowd>,
}

/// Entries that stand close together.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// The first one.
    front: ClaimSpot,
    /// From one to the next, on average; not zero.
    gap: u128,
}

impl Spacing {
    fn of(spots: &[ClaimSpot]) -> Option<Self> {
        let (front, last) = (*spots.first()?, *spots.last()?);
        let gap = last.behind(front) / (spots.len() as u128 - 1).max(1);
        Some(Self { front, gap: gap.max(1) })
    }

    const fn reach(&self, count: u128) -> u128 {
        self.gap.saturating_mul(count)
    }
}

/// The front of the live leases. While their owners renew them, it moves with the clock.
#[derive(Clone, Copy, Debug)]
struct LiveCrowd {
    crowd: Spacing,
    seen_at: LogicalTime,
    moves: bool,
}

impl LiveCrowd {
    /// Where the front and some more should be found at `now`.
    fn end(&self, now: LogicalTime) -> ClaimSpot {
        let passed = ClaimSpot::first_at(now).behind(ClaimSpot::first_at(self.seen_at));
        let front = self.crowd.front.plus(if self.moves { passed } else { 0 });
        front.max(ClaimSpot::first_at(now)).plus(self.crowd.reach(LIVE_TARGET))
    }
}

/// One batch of reads of a claim index: which ranges, and how they are read.
#[derive(Clone, Debug)]
pub(super) struct ScanPlan {
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
    free: RangeInclusive<ClaimSpot>,
    /// What lies before `free`, if all of the free are read by name.
    around: Option<RangeInclusive<ClaimSpot>>,
    /// Whether `free` and `around` are all of the free.
    all_free: bool,
    /// `None` while there are free shards enough.
    expired: Option<RangeInclusive<ClaimSpot>>,
    /// `None` at the end of time, which no lease outlives.
    live: Option<RangeInclusive<ClaimSpot>>,
    /// Whether free shards are read by name, not counted.
    by_name: bool,
    /// Keys in a page of the store.
    page: usize,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Free shards in the interval, if they were read by name, in the order of their places.
    pub(super) free: Vec<ShardId>,
    /// How many those are.
    free_count: usize,
    /// How many places they were found among.
    free_span: u128,
    /// Leases that ran out, soonest first.
    pub(super) expired: Vec<ShardId>,
    expired_spots: Vec<ClaimSpot>,
    /// How many those are, or more if the store's pages are small.
    expired_count: usize,
    /// Live leases, those that end first.
    live: Vec<(ClaimSpot, ShardId)>,
}

impl Seen {
    /// Shards that can be claimed, as far as they were read.
    pub(super) const fn due_count(&self) -> usize {
        self.free_count + self.expired_count
    }

    /// When the first live lease ends, that of `own` apart.
    pub(super) fn first_deadline(&self, own: Option<ShardId>) -> Option<LogicalTime> {
        self.live.iter().find(|(_, shard)| Some(*shard) != own).map(|(spot, _)| spot.at())
    }
}

impl ScanPlan {
    /// A look at the index of `run` around `point`, as wide as `claim_stats` asks for.
    pub(super) fn new(
        (tenant, run): (TenantId, RunId),
        now: LogicalTime,
        sight: &RunClaimStats,
        point: u64,
        by_name: bool,
        page: usize,
    ) -> Self {
        let all_free = sight.free_bits == 0;
        let (free, around) = match all_free && by_name {
            true => around(point),
            false => (sight.interval(point), None),
        };
        let expired = all_free.then(|| sight.expired_range(now));
        let live = sight.live_range(now);
        Self { now, tenant, run, free, around, all_free, expired, live, by_name, page }
    }

    /// Whose index it looks at.
    pub(super) const fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    /// The questions, behind the one that somebody else has.
    pub(super) fn reads(&self, first: Option<Read>) -> Vec<Read> {
        let path = ClaimsPath::new(self.tenant, self.run);
        let within = |spots: &RangeInclusive<ClaimSpot>| path.within(spots.clone());
        let scan = |range, limit: usize| Read::Scan { range, limit: limit.min(self.page) };
        let mut reads = Vec::with_capacity(LOOK_READS_MAX + 1);
        reads.extend(first);
        reads.push(match self.by_name {
            true => scan(within(&self.free), FREE_PAGE),
            false => Read::Count(within(&self.free)),
        });
        reads.extend(self.around.as_ref().map(|spots| scan(within(spots), FREE_PAGE)));
        reads.extend(self.expired.as_ref().map(|spots| match self.counts_expired() {
            true => Read::Count(within(spots)),
            false => scan(within(spots), EXPIRED_PAGE),
        }));
        reads.extend(self.live.as_ref().map(|spots| scan(within(spots), LIVE_PAGE)));
        reads
    }

    /// Takes the answers to [`ScanPlan::reads`].
    pub(super) fn take(&self, answers: &mut Answers) -> Seen {
        let mut seen = Seen::default();
        if self.by_name {
            for spots in [Some(&self.free), self.around.as_ref()].into_iter().flatten() {
                let page: Vec<ShardId> = entries(&answers.page()).map(|(_, shard)| shard).collect();
                seen.free_span += self.span(spots, &page);
                seen.free.extend(page);
            }
            seen.free_count = seen.free.len();
        } else {
            seen.free_span = self.span(&self.free, &[]);
            seen.free_count = size(answers.count());
        }
        if self.expired.is_some() && self.counts_expired() {
            seen.expired_count = size(answers.count());
        } else if self.expired.is_some() {
            (seen.expired_spots, seen.expired) = entries(&answers.page()).unzip();
            seen.expired_count = seen.expired.len();
        }
        if self.live.is_some() {
            seen.live = entries(&answers.page()).collect();
        }
        seen
    }

    /// Where pages are too small to hold what settles a hint, expired leases are counted.
    const fn counts_expired(&self) -> bool {
        !self.by_name && self.page < EXPIRED_PAGE
    }

    /// Among how many places of `spots` the shards of `page` were found: a full page stops early.
    fn span(&self, spots: &RangeInclusive<ClaimSpot>, page: &[ShardId]) -> u128 {
        let last = page.last().filter(|_| page.len() >= FREE_PAGE.min(self.page));
        let last = last.map_or_else(|| spots.end().place(), |shard| scatter(*shard));
        u128::from(last.saturating_sub(spots.start().place())) + 1
    }

    /// Whether every expired lease was read.
    fn saw_all_expired(&self) -> bool {
        self.expired.as_ref() == Some(&whole_expired(self.now))
    }

    /// Whether every live lease was in the range.
    fn saw_all_live(&self) -> bool {
        self.live.as_ref().is_none_or(|live| *live.end() == ClaimSpot::LAST)
    }

    /// Whether `seen` settles which shards are due, if `need` of them are enough.
    fn settles_due(&self, seen: &Seen, need: usize) -> bool {
        let need = if self.by_name { need.min(self.page) } else { need };
        seen.free_count >= need
            || self.all_free && (seen.due_count() >= need || self.saw_all_expired())
    }

    /// Whether `seen` settles which live lease ends first beside that of `own`, which ends when it
    /// says.
    fn settles_live(&self, seen: &Seen, own: Option<(ShardId, LogicalTime)>) -> bool {
        let others = seen.first_deadline(own.map(|(shard, _)| shard)).is_some();
        let in_range = |(_, ends): (ShardId, LogicalTime)| {
            self.live.as_ref().is_some_and(|live| ClaimSpot::first_at(ends) <= *live.end())
        };
        others || self.saw_all_live() || own.is_some_and(in_range)
    }
}

/// The first look of a handle at a run whose size it does not know: some shards that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    pub(super) now: LogicalTime,
    pub(super) point: u64,
}

impl Probe {
    /// The questions: free shards around the point, and expired leases if there are none; the same
    /// around another point, because what one sees may be chance.
    pub(super) fn reads(&self, page: usize) -> [Read; 2] {
        [self.read(page), self.elsewhere().read(page)]
    }

    /// Takes the answers: what was found, and what it says of the run.
    pub(super) fn take(&self, answers: &mut Answers) -> (Seen, RunClaimStats) {
        let (seen, mut sight) = self.plan_commit(&answers.page());
        let (_, other) = self.elsewhere().plan_commit(&answers.page());
        sight.free_bits = sight.free_bits.min(other.free_bits);
        (seen, sight)
    }

    fn read(&self, page: usize) -> Read {
        let free = GLANCE_BITS.map(|free_bits| self.interval(free_bits));
        let spots = free.into_iter().chain([whole_expired(self.now)]);
        let path = ClaimsPath::new(self.tenant, self.run);
        let ranges = spots.map(|spots| path.within(spots)).collect();
        Read::ScanFirst { ranges, limit: FREE_PAGE.min(page) }
    }

    fn plan_commit(&self, page: &Page) -> (Seen, RunClaimStats) {
        let (mut seen, mut sight) = (Seen::default(), RunClaimStats::default());
        let found: Vec<(ClaimSpot, ShardId)> = entries(page).collect();
        // The first interval that holds it is the one that was read: narrower ones were empty.
        let held = |first: &(ClaimSpot, ShardId)| {
            GLANCE_BITS.into_iter().find(|bits| self.interval(*bits).contains(&first.0))
        };
        if let Some(bits) = found.first().and_then(held) {
            seen.free = found.into_iter().map(|(_, shard)| shard).collect();
            seen.free_count = seen.free.len();
            let likely = (seen.free_count as u128) << bits;
            sight.free_bits = bits_for(likely).saturating_sub(GLANCE_DOUBT);
        } else {
            (seen.expired_spots, seen.expired) = found.into_iter().unzip();
            seen.expired_count = seen.expired.len();
            let many = seen.expired_count >= EXPIRED_PAGE;
            sight.expired = Spacing::of(&seen.expired_spots).filter(|_| many);
        }
        (seen, sight)
    }

    fn interval(&self, free_bits: u32) -> RangeInclusive<ClaimSpot> {
        RunClaimStats { free_bits, ..RunClaimStats::default() }.interval(self.point)
    }

    /// The same probe as far away as can be.
    const fn elsewhere(self) -> Self {
        Self { point: self.point ^ (1 << (u64::BITS - 1)), ..self }
    }
}

impl RunClaimStats {
    /// Learns from what `look` found, and answers whether it settles what was asked for: `need` due
    /// shards, and the next deadline beside the lease that `own` says. If not, the next look is
    /// wider; `looks` were taken.
    pub(super) fn learn(
        &mut self,
        look: &ScanPlan,
        seen: &Seen,
        (need, own): (usize, Option<(ShardId, LogicalTime)>),
        looks: usize,
    ) -> bool {
        let due = look.settles_due(seen, need);
        let live = look.settles_live(seen, own);
        self.learn_free(seen, due);
        if look.expired.is_some() && !look.counts_expired() {
            self.learn_expired(look, seen, due);
        }
        self.learn_live(look, seen, live);
        let settled = due && live;
        // What was settled may be unsettled by others until the next look, so the last one takes
        // no chances.
        let (wide, widest) = (looks + 2 >= LOOKS_MAX, looks + 1 >= LOOKS_MAX);
        if !settled && (widest || wide && !due) {
            (self.free_bits, self.expired) = (0, None);
        }
        if !settled && (widest || wide && !live) {
            self.live = None;
        }
        settled
    }

    fn interval(&self, point: u64) -> RangeInclusive<ClaimSpot> {
        let rest = u64::MAX.checked_shr(self.free_bits).unwrap_or(0);
        let spot = |place| ClaimSpot::new(LogicalTime::ZERO, place);
        spot(point & !rest)..=spot(point | rest)
    }

    fn expired_range(&self, now: LogicalTime) -> RangeInclusive<ClaimSpot> {
        let whole = whole_expired(now);
        let Some(crowd) = self.expired.filter(|crowd| whole.contains(&crowd.front)) else {
            return whole;
        };
        let end = crowd.front.plus(crowd.reach(EXPIRED_TARGET));
        crowd.front..=end.min(*whole.end())
    }

    fn live_range(&self, now: LogicalTime) -> Option<RangeInclusive<ClaimSpot>> {
        let start = ClaimSpot::first_at(LogicalTime::from_raw(now.as_raw().checked_add(1)?));
        let end = self.live.map_or(ClaimSpot::LAST, |live| live.end(now));
        Some(start..=end.max(start))
    }

    fn learn_free(&mut self, seen: &Seen, settled: bool) {
        let count = seen.free_count.max(1) as u128;
        let bits = bits_for(count.saturating_mul((1 << u64::BITS) / seen.free_span));
        self.free_bits = if settled { bits } else { bits.min(self.free_bits.saturating_sub(1)) };
    }

    fn learn_expired(&mut self, look: &ScanPlan, seen: &Seen, settled: bool) {
        let spots = &seen.expired_spots;
        if spots.len() >= EXPIRED_PAGE {
            self.expired = Spacing::of(spots);
        } else if look.saw_all_expired() {
            self.expired = None;
        } else if let Some(crowd) = &mut self.expired {
            crowd.front = spots.first().copied().unwrap_or(crowd.front);
            crowd.gap = crowd.gap.saturating_mul(if settled { 1 } else { WIDENING });
        }
    }

    fn learn_live(&mut self, look: &ScanPlan, seen: &Seen, settled: bool) {
        let before = self.live;
        if seen.live.len() >= LIVE_PAGE {
            let spots: Vec<ClaimSpot> = seen.live.iter().map(|(spot, _)| *spot).collect();
            let moves = before.is_some_and(|live| live.moves && live.crowd.front != spots[0]);
            let crowd = Spacing::of(&spots);
            self.live = crowd.map(|crowd| LiveCrowd { crowd, seen_at: look.now, moves });
        } else if look.saw_all_live() {
            self.live = None;
        } else if let Some(live) = &mut self.live {
            match seen.live.first() {
                Some((front, _)) => {
                    live.moves &= live.crowd.front != *front;
                    (live.crowd.front, live.seen_at) = (*front, look.now);
                }
                None if live.moves => live.crowd.gap = live.crowd.gap.saturating_mul(WIDENING),
                None => live.moves = true,
            }
            if !settled && !seen.live.is_empty() {
                live.crowd.gap = live.crowd.gap.saturating_mul(WIDENING);
            }
        }
    }
}

/// In two to the power of how many intervals `count` free shards are read.
fn bits_for(count: u128) -> u32 {
    (count / FREE_TARGET).max(1).ilog2().min(BITS_MAX)
}

/// All places of the free: from `point` on, and those before it. Handles that know nothing begin
/// in different places, so that they do not try the same shards.
fn around(point: u64) -> (RangeInclusive<ClaimSpot>, Option<RangeInclusive<ClaimSpot>>) {
    let spots =
        |from, to| ClaimSpot::new(LogicalTime::ZERO, from)..=ClaimSpot::new(LogicalTime::ZERO, to);
    (spots(point, u64::MAX), point.checked_sub(1).map(|last| spots(0, last)))
}

const fn whole_expired(now: LogicalTime) -> RangeInclusive<ClaimSpot> {
    ClaimSpot::first_at(LogicalTime::from_raw(1))..=ClaimSpot::last_at(now)
}

/// The entries of a page of the claim index.
fn entries(page: &Page) -> impl Iterator<Item = (ClaimSpot, ShardId)> + '_ {
    page.iter().filter_map(|(key, _)| {
        let Key::ClaimIndex { shard, at, .. } = key else { return None };
        Some((ClaimSpot::new(*at, scatter(shard.shard())), shard.shard()))
    })
}

fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
