//! Claim statistics: a handle's estimates of the density of a run's claim index, so that scans read
//! little of it.
//!
//! On some engines a range costs as much as it holds, whatever the limit. A scan therefore reads
//! narrow ranges: an interval of the free shards, the front of the expired leases, the front of the
//! live ones. Their width depends on the density, which is estimated from earlier scans. A wide
//! range over few entries costs little, so sparse ranges need no estimate.
//!
//! A handle has no estimate for a run that it has not scanned. Its first claim begins with a
//! [`Probe`]: one read of the narrowest of several intervals that holds any entry. Any other first
//! scan, for a hint or a listing of candidates, reads everything, once. The hint of a first claim
//! does so with the *live* leases, of which there are as many as shards in progress.
//!
//! # Invariants
//! - An estimate never changes a result, only its cost. The result of a narrow scan is used only if
//!   it settles the query: enough shards were found, or a deadline was. Otherwise the next scan is
//!   wider, and the last one reads everything.
//! - Statistics are neither sent nor stored: every handle has its own.

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

/// Maximum scans per query. The last but one reads whole ranges where narrow ones did not settle
/// the query; the last reads only whole ranges.
pub(super) const SCANS_MAX: usize = 4;

/// Maximum reads per scan.
const SCAN_READS_MAX: usize = 4;

/// Maximum number of runs with statistics. A handle that works on more pays for some wide scans.
const RUNS_MAX: usize = 256;

/// Claimable shards that settle a capacity hint: the shard being granted may be one of them.
pub(super) const DUE_ENOUGH: usize = CAPACITY_COUNT_MAX + 1;

/// Target number of free shards per interval. The width is a power of two, so the interval holds up
/// to twice as many, and by chance a few less: far more than any query needs.
const FREE_TARGET: u128 = 192;

/// Page limit for free shards, larger than an interval holds, so that it is read whole.
const FREE_PAGE: usize = 512;

/// Minimum width of an interval, sufficient for far more shards than any run has.
const BITS_MAX: u32 = 40;

/// Widths of a probe's intervals: each is one of 2^n intervals. The probe reads the narrowest that
/// holds a free shard. Each is sixteen times wider than the previous one, so that at most a few
/// dozen are found; the first suits runs of a million shards, the last is the whole index.
const PROBE_BITS: [u32; 5] = [16, 12, 8, 4, 0];

/// Safety margin, in bits, of a probe's estimate. A probe finds few shards, which may by chance be
/// clustered: one in sixteen times sixteen times closer than the average. With two probes and this
/// margin, one in a thousand first claims needs another scan for its hint.
const PROBE_MARGIN: u32 = 3;

/// Page limit for expired leases.
const EXPIRED_PAGE: usize = DUE_ENOUGH;
/// Target number of expired leases in a narrow range.
const EXPIRED_TARGET: u128 = 2 * EXPIRED_PAGE as u128;

/// Page limit for live leases. The query needs only the first; the others show the density.
const LIVE_PAGE: usize = 16;
/// Target number of live leases in a narrow range, so that one remains after some were renewed.
const LIVE_TARGET: u128 = 64;

/// Factor by which a range grows after too little was found.
const WIDENING: u128 = 16;

const _: () = assert!(FREE_TARGET as usize > DUE_ENOUGH && DUE_ENOUGH > CLAIM_CANDIDATES_MAX);
const _: () = assert!(FREE_PAGE as u128 > 2 * FREE_TARGET);
const _: () = assert!(LIVE_PAGE > 1 && EXPIRED_PAGE > 1);
const _: () = assert!(PROBE_BITS[PROBE_BITS.len() - 1] == 0);
const _: () = assert!(PROBE_BITS[0] <= BITS_MAX && FREE_PAGE >= EXPIRED_PAGE);

/// The statistics of all runs of a handle.
#[derive(Debug, Default)]
pub(super) struct ClaimStats {
    runs: BTreeMap<(TenantId, RunId), RunClaimStats>,
    /// Number of scans so far.
    count: u64,
}

impl ClaimStats {
    pub(super) fn of(&self, tenant: TenantId, run: RunId) -> RunClaimStats {
        self.runs.get(&(tenant, run)).copied().unwrap_or_default()
    }

    /// Returns whether the run has statistics.
    pub(super) fn has(&self, tenant: TenantId, run: RunId) -> bool {
        self.runs.contains_key(&(tenant, run))
    }

    pub(super) fn remember(&mut self, tenant: TenantId, run: RunId, stats: RunClaimStats) {
        // Dropping all entries is rare and only costs wide scans; an LRU list would cost every
        // scan.
        if self.runs.len() >= RUNS_MAX && !self.runs.contains_key(&(tenant, run)) {
            self.runs.clear();
        }
        self.runs.insert((tenant, run), stats);
    }

    /// Returns the point at which the next scan begins among the free shards. It differs per scan,
    /// handle and worker, so that workers do not contend and free shards stay evenly spread.
    pub(super) const fn point(&mut self, nonce: u64, worker: WorkerId) -> u64 {
        self.count = self.count.wrapping_add(1);
        mixed(mixed(mixed(worker.as_raw()) ^ nonce) ^ self.count)
    }
}

/// Density estimates of one run's claim index, from the last scan.
///
/// The default reads everything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunClaimStats {
    /// Free shards are read in one of 2^`free_bits` intervals.
    free_bits: u32,
    /// `Some` while many leases have expired.
    expired: Option<Spacing>,
    /// `Some` while many leases are live.
    live: Option<LiveFront>,
}

/// Position and spacing of consecutive entries.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// The first entry.
    front: ClaimSpot,
    /// Average distance between entries; not zero.
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

/// The front of the live leases. While lease holders renew, it moves with the clock.
#[derive(Clone, Copy, Debug)]
struct LiveFront {
    spacing: Spacing,
    seen_at: LogicalTime,
    moves: bool,
}

impl LiveFront {
    /// Returns the end of the range that should hold the front and some more entries at `now`.
    fn end(&self, now: LogicalTime) -> ClaimSpot {
        let passed = ClaimSpot::first_at(now).behind(ClaimSpot::first_at(self.seen_at));
        let front = self.spacing.front.plus(if self.moves { passed } else { 0 });
        // The front cannot lie before `now`: those leases have expired.
        front.max(ClaimSpot::first_at(now)).plus(self.spacing.reach(LIVE_TARGET))
    }
}

/// One scan of a claim index: its ranges and how they are read.
#[derive(Clone, Debug)]
pub(super) struct ScanPlan {
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
    free: RangeInclusive<ClaimSpot>,
    /// The places before `free`, if all free shards are read by name.
    around: Option<RangeInclusive<ClaimSpot>>,
    /// Whether `free` and `around` cover all free shards.
    all_free: bool,
    /// `None` while there are enough free shards.
    expired: Option<RangeInclusive<ClaimSpot>>,
    /// `None` at the maximum time, which no deadline exceeds.
    live: Option<RangeInclusive<ClaimSpot>>,
    /// Whether free shards are listed, not counted.
    by_name: bool,
    /// Page limit of the store.
    page: usize,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    /// Free shards in the interval, if they were listed, in the order of their places.
    pub(super) free: Vec<ShardId>,
    /// Number of free shards in the interval.
    free_count: usize,
    /// Number of places that were covered.
    free_span: u128,
    /// Shards with an expired lease, earliest deadline first.
    pub(super) expired: Vec<ShardId>,
    expired_spots: Vec<ClaimSpot>,
    /// Number of expired leases; may exceed the list if the store's pages are small.
    expired_count: usize,
    /// The live leases with the earliest deadlines.
    live: Vec<(ClaimSpot, ShardId)>,
}

impl ScanResult {
    /// Returns the number of claimable shards that were found.
    pub(super) const fn due_count(&self) -> usize {
        self.free_count + self.expired_count
    }

    /// Returns the earliest deadline of a live lease other than that of `own`.
    pub(super) fn first_deadline(&self, own: Option<ShardId>) -> Option<LogicalTime> {
        self.live.iter().find(|(_, shard)| Some(*shard) != own).map(|(spot, _)| spot.at())
    }
}

impl ScanPlan {
    /// Creates a scan of the index of `run` around `point`, as wide as the statistics require.
    pub(super) fn new(
        (tenant, run): (TenantId, RunId),
        now: LogicalTime,
        stats: &RunClaimStats,
        point: u64,
        by_name: bool,
        page: usize,
    ) -> Self {
        // Expired leases matter only if the free shards of the whole index may not be enough.
        let all_free = stats.free_bits == 0;
        let (free, around) = match all_free && by_name {
            true => around(point),
            false => (stats.interval(point), None),
        };
        let expired = all_free.then(|| stats.expired_range(now));
        let live = stats.live_range(now);
        Self { now, tenant, run, free, around, all_free, expired, live, by_name, page }
    }

    /// Returns the tenant and the run.
    pub(super) const fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    /// Returns the reads, after the caller's own `first` read.
    pub(super) fn reads(&self, first: Option<Read>) -> Vec<Read> {
        let path = ClaimsPath::new(self.tenant, self.run);
        let within = |spots: &RangeInclusive<ClaimSpot>| path.within(spots.clone());
        let scan = |range, limit: usize| Read::Scan { range, limit: limit.min(self.page) };
        // A hint needs only the number of free shards, and a count transfers no keys.
        let mut reads = Vec::with_capacity(SCAN_READS_MAX + 1);
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
    pub(super) fn take(&self, answers: &mut Answers) -> ScanResult {
        let mut found = ScanResult::default();
        if self.by_name {
            for spots in [Some(&self.free), self.around.as_ref()].into_iter().flatten() {
                let page: Vec<ShardId> = entries(&answers.page()).map(|(_, shard)| shard).collect();
                found.free_span += self.span(spots, &page);
                found.free.extend(page);
            }
            found.free_count = found.free.len();
        } else {
            found.free_span = self.span(&self.free, &[]);
            found.free_count = size(answers.count());
        }
        if self.expired.is_some() && self.counts_expired() {
            found.expired_count = size(answers.count());
        } else if self.expired.is_some() {
            (found.expired_spots, found.expired) = entries(&answers.page()).unzip();
            found.expired_count = found.expired.len();
        }
        if self.live.is_some() {
            found.live = entries(&answers.page()).collect();
        }
        found
    }

    /// Returns whether expired leases are counted, because a page is too small to settle a hint.
    const fn counts_expired(&self) -> bool {
        !self.by_name && self.page < EXPIRED_PAGE
    }

    /// Returns how many places of `spots` the shards of `page` cover: a full page ends early.
    fn span(&self, spots: &RangeInclusive<ClaimSpot>, page: &[ShardId]) -> u128 {
        // A full page covers only the places up to its last entry, which would otherwise look
        // sparse.
        let last = page.last().filter(|_| page.len() >= FREE_PAGE.min(self.page));
        let last = last.map_or_else(|| spots.end().place(), |shard| scatter(*shard));
        u128::from(last.saturating_sub(spots.start().place())) + 1
    }

    /// Returns whether every expired lease was read.
    fn saw_all_expired(&self) -> bool {
        self.expired.as_ref() == Some(&whole_expired(self.now))
    }

    /// Returns whether the range covered every live lease.
    fn saw_all_live(&self) -> bool {
        self.live.as_ref().is_none_or(|live| *live.end() == ClaimSpot::LAST)
    }

    /// Returns whether `found` settles which shards are claimable, if `need` of them are enough.
    fn settles_due(&self, found: &ScanResult, need: usize) -> bool {
        // A store with small pages can never list more than one page per interval.
        let need = if self.by_name { need.min(self.page) } else { need };
        found.free_count >= need
            || self.all_free && (found.due_count() >= need || self.saw_all_expired())
    }

    /// Returns whether `found` settles the earliest live deadline besides `own`, whose deadline is
    /// given.
    fn settles_live(&self, found: &ScanResult, own: Option<(ShardId, LogicalTime)>) -> bool {
        let others = found.first_deadline(own.map(|(shard, _)| shard)).is_some();
        let in_range = |(_, ends): (ShardId, LogicalTime)| {
            self.live.as_ref().is_some_and(|live| ClaimSpot::first_at(ends) <= *live.end())
        };
        others || self.saw_all_live() || own.is_some_and(in_range)
    }
}

/// The first scan of a handle in a run of unknown size: finds some claimable shards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    pub(super) now: LogicalTime,
    pub(super) point: u64,
}

impl Probe {
    /// Returns the reads: free shards around the point, or expired leases if there are none; and
    /// the same around a second point, because one sample may be unrepresentative.
    pub(super) fn reads(&self, page: usize) -> [Read; 2] {
        [self.read(page), self.elsewhere().read(page)]
    }

    /// Takes the answers, and returns the shards found and the estimate for the run.
    pub(super) fn take(&self, answers: &mut Answers) -> (ScanResult, RunClaimStats) {
        let (found, mut stats) = self.estimate(&answers.page());
        // The lower density wins: a wide interval costs more, but still settles the next query.
        let (_, other) = self.elsewhere().estimate(&answers.page());
        stats.free_bits = stats.free_bits.min(other.free_bits);
        (found, stats)
    }

    fn read(&self, page: usize) -> Read {
        let free = PROBE_BITS.map(|free_bits| self.interval(free_bits));
        let spots = free.into_iter().chain([whole_expired(self.now)]);
        let path = ClaimsPath::new(self.tenant, self.run);
        let ranges = spots.map(|spots| path.within(spots)).collect();
        Read::ScanFirst { ranges, limit: FREE_PAGE.min(page) }
    }

    fn estimate(&self, page: &Page) -> (ScanResult, RunClaimStats) {
        let (mut found, mut stats) = (ScanResult::default(), RunClaimStats::default());
        let listed: Vec<(ClaimSpot, ShardId)> = entries(page).collect();
        // The first interval that contains the entry is the one that was read: narrower ones were
        // empty.
        let held = |first: &(ClaimSpot, ShardId)| {
            PROBE_BITS.into_iter().find(|bits| self.interval(*bits).contains(&first.0))
        };
        if let Some(bits) = listed.first().and_then(held) {
            found.free = listed.into_iter().map(|(_, shard)| shard).collect();
            found.free_count = found.free.len();
            let likely = (found.free_count as u128) << bits;
            stats.free_bits = bits_for(likely).saturating_sub(PROBE_MARGIN);
        } else {
            (found.expired_spots, found.expired) = listed.into_iter().unzip();
            found.expired_count = found.expired.len();
            // Few expired leases are read as a whole, so a front would save nothing.
            let many = found.expired_count >= EXPIRED_PAGE;
            stats.expired = Spacing::of(&found.expired_spots).filter(|_| many);
        }
        (found, stats)
    }

    fn interval(&self, free_bits: u32) -> RangeInclusive<ClaimSpot> {
        RunClaimStats { free_bits, ..RunClaimStats::default() }.interval(self.point)
    }

    /// Returns the probe at the opposite point of the index.
    const fn elsewhere(self) -> Self {
        Self { point: self.point ^ (1 << (u64::BITS - 1)), ..self }
    }
}

impl RunClaimStats {
    /// Updates the statistics from a scan, and returns whether it settles the query: `need`
    /// claimable shards, and the next deadline besides `own`. If not, the next scan is wider;
    /// `scans` scans were made.
    pub(super) fn learn(
        &mut self,
        plan: &ScanPlan,
        found: &ScanResult,
        (need, own): (usize, Option<(ShardId, LogicalTime)>),
        scans: usize,
    ) -> bool {
        let due = plan.settles_due(found, need);
        let live = plan.settles_live(found, own);
        // Learn even from a scan that settled the query: densities drift with every claim.
        self.learn_free(found, due);
        if plan.expired.is_some() && !plan.counts_expired() {
            self.learn_expired(plan, found, due);
        }
        self.learn_live(plan, found, live);
        let settled = due && live;
        // A concurrent change may unsettle what this scan settled, so the last scan reads
        // everything.
        let (wide, widest) = (scans + 2 >= SCANS_MAX, scans + 1 >= SCANS_MAX);
        if !settled && (widest || wide && !due) {
            (self.free_bits, self.expired) = (0, None);
        }
        if !settled && (widest || wide && !live) {
            self.live = None;
        }
        settled
    }

    fn interval(&self, point: u64) -> RangeInclusive<ClaimSpot> {
        // The low bits of the place vary within the interval, the high bits select it.
        let rest = u64::MAX.checked_shr(self.free_bits).unwrap_or(0);
        let spot = |place| ClaimSpot::new(LogicalTime::ZERO, place);
        spot(point & !rest)..=spot(point | rest)
    }

    fn expired_range(&self, now: LogicalTime) -> RangeInclusive<ClaimSpot> {
        let whole = whole_expired(now);
        // The front is stale if it is no longer within the expired leases: read the whole range.
        let Some(spacing) = self.expired.filter(|spacing| whole.contains(&spacing.front)) else {
            return whole;
        };
        let end = spacing.front.plus(spacing.reach(EXPIRED_TARGET));
        spacing.front..=end.min(*whole.end())
    }

    fn live_range(&self, now: LogicalTime) -> Option<RangeInclusive<ClaimSpot>> {
        let start = ClaimSpot::first_at(LogicalTime::from_raw(now.as_raw().checked_add(1)?));
        let end = self.live.map_or(ClaimSpot::LAST, |live| live.end(now));
        Some(start..=end.max(start))
    }

    fn learn_free(&mut self, found: &ScanResult, settled: bool) {
        // Extrapolates the density of the covered places to the whole index.
        let count = found.free_count.max(1) as u128;
        let bits = bits_for(count.saturating_mul((1 << u64::BITS) / found.free_span));
        // Unsettled: at least double the interval, even if the estimate says otherwise.
        self.free_bits = if settled { bits } else { bits.min(self.free_bits.saturating_sub(1)) };
    }

    fn learn_expired(&mut self, plan: &ScanPlan, found: &ScanResult, settled: bool) {
        let spots = &found.expired_spots;
        if spots.len() >= EXPIRED_PAGE {
            self.expired = Spacing::of(spots);
        } else if plan.saw_all_expired() {
            self.expired = None;
        } else if let Some(spacing) = &mut self.expired {
            spacing.front = spots.first().copied().unwrap_or(spacing.front);
            spacing.gap = spacing.gap.saturating_mul(if settled { 1 } else { WIDENING });
        }
    }

    fn learn_live(&mut self, plan: &ScanPlan, found: &ScanResult, settled: bool) {
        let before = self.live;
        if found.live.len() >= LIVE_PAGE {
            let spots: Vec<ClaimSpot> = found.live.iter().map(|(spot, _)| *spot).collect();
            // A front that did not move since the last scan belongs to leases that are not renewed.
            let moves = before.is_some_and(|live| live.moves && live.spacing.front != spots[0]);
            let spacing = Spacing::of(&spots);
            self.live = spacing.map(|spacing| LiveFront { spacing, seen_at: plan.now, moves });
        } else if plan.saw_all_live() {
            self.live = None;
        } else if let Some(live) = &mut self.live {
            match found.live.first() {
                Some((front, _)) => {
                    live.moves &= live.spacing.front != *front;
                    (live.spacing.front, live.seen_at) = (*front, plan.now);
                }
                None if live.moves => live.spacing.gap = live.spacing.gap.saturating_mul(WIDENING),
                // The range of a fixed front is empty, so its leases were renewed or ended.
                None => live.moves = true,
            }
            if !settled && !found.live.is_empty() {
                live.spacing.gap = live.spacing.gap.saturating_mul(WIDENING);
            }
        }
    }
}

/// Returns the number of bits of the interval width for `count` free shards.
fn bits_for(count: u128) -> u32 {
    (count / FREE_TARGET).max(1).ilog2().min(BITS_MAX)
}

/// Returns all places of free shards: from `point` on, and those before it. Handles without
/// statistics start at different points, so that they do not try the same shards.
fn around(point: u64) -> (RangeInclusive<ClaimSpot>, Option<RangeInclusive<ClaimSpot>>) {
    let spots =
        |from, to| ClaimSpot::new(LogicalTime::ZERO, from)..=ClaimSpot::new(LogicalTime::ZERO, to);
    (spots(point, u64::MAX), point.checked_sub(1).map(|last| spots(0, last)))
}

const fn whole_expired(now: LogicalTime) -> RangeInclusive<ClaimSpot> {
    // From time one, because free shards are indexed at zero.
    ClaimSpot::first_at(LogicalTime::from_raw(1))..=ClaimSpot::last_at(now)
}

/// Returns the entries of a page of the claim index.
pub(super) fn entries(page: &Page) -> impl Iterator<Item = (ClaimSpot, ShardId)> + '_ {
    page.iter().filter_map(|(key, _)| {
        let Key::ClaimIndex { shard, at, .. } = key else { return None };
        Some((ClaimSpot::new(*at, scatter(shard.shard())), shard.shard()))
    })
}

fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
