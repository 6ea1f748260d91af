//! The watched leases of a process: leases whose deadline lies too far ahead to be waited for.
//!
//! The kernel decides when such a deadline is void
//! ([`LeaseWatch`](crate::protocol::LeaseWatch)); it needs to know for how long the record was at
//! one revision. This module remembers when the process first saw it there. Claims look for such
//! leases in the claim index beyond every deadline that a correct clock can have stored, which
//! normally holds nothing.
//!
//! # Invariants
//! - Without a monotonic clock nothing is watched, and no deadline is void.
//! - Revisions of a key increase with every write: a record that is seen twice at one revision was
//!   not written in between, whatever the time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId};

use super::engine::Read;
use super::range::ClaimsPath;
use super::scatter::ClaimSpot;
use crate::protocol::CLAIM_CANDIDATES_MAX;

/// Maximum number of watched leases. They belong to lease holders with wrong clocks, so there are
/// as many as such machines have threads; beyond that the least recently seen one is dropped, and
/// its takeover is delayed.
const WATCHED_MAX: usize = 1_024;

/// Maximum number of runs that are searched. A process rarely works on more than one.
const RUNS_MAX: usize = 256;

/// Searches per lease and skew: each delays a takeover by at most a quarter.
const LOOKS_PER_WINDOW: u64 = 4;

/// Repetitions of a search that found a lease that may be void: for the second scan of the claim
/// that found it, for the exclusive claim that follows, and for a claim in between.
const REPEATS_MAX: u8 = 3;

/// Leases per search; the next search continues behind them. A claim tries no more.
const LOOK_PAGE: usize = CLAIM_CANDIDATES_MAX;

/// The watched leases of a process. Clones share them.
#[derive(Clone, Default)]
pub(super) struct LeaseWatches {
    /// Returns ticks of the monotonic clock; `None` if the process watches nothing.
    clock: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    leases: BTreeMap<(TenantId, RunId, ShardId), Watched>,
    runs: BTreeMap<(TenantId, RunId), Searched>,
}

/// A watched lease.
struct Watched {
    revision: u64,
    /// When the record was first seen at `revision`.
    since: u64,
    last_seen: u64,
}

/// The searches of a run.
struct Searched {
    lease_duration: u64,
    /// When the next search is due.
    due: u64,
    /// Where the next search begins, if the last one did not reach the end.
    from: Option<ClaimSpot>,
    /// How often the last search was repeated.
    repeats: u8,
}

impl LeaseWatches {
    pub(super) fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { clock: Some(Arc::new(clock)), table: Arc::default() }
    }

    /// Notes that the record of a shard is at `revision`. Returns for how many ticks it has been.
    pub(super) fn observe(&self, tenant: TenantId, shard: ShardKey, revision: u64) -> u64 {
        // Zero says that the record was just seen, so no deadline is ever void without a clock.
        let Some(now) = self.now() else { return 0 };
        self.with(|table| table.observe((tenant, shard.run(), shard.shard()), revision, now))
    }

    /// Returns the search that is due in a run at the wall time `now`, if one is.
    pub(super) fn look(
        &self,
        (tenant, run): (TenantId, RunId),
        now: LogicalTime,
        max_clock_skew: u64,
        page: usize,
    ) -> Option<FarLook> {
        let ticks = self.now()?;
        self.with(|table| {
            let searched = table.runs.get(&(tenant, run)).filter(|it| it.due <= ticks)?;
            // Beyond this time lies no deadline of a correct clock, so the search normally finds
            // nothing.
            let window = searched.lease_duration.saturating_add(max_clock_skew);
            let first = ClaimSpot::first_at(now.checked_add(window)?.checked_add(1)?);
            let from = searched.from.map_or(first, |from| from.max(first));
            Some(FarLook { tenant, run, from, limit: LOOK_PAGE.min(page) })
        })
    }

    /// Notes the lease duration of a run, by which its next search is found, and the result of a
    /// search.
    ///
    /// A search that found a lease that may be void is repeated by the next scans: a shard on its
    /// last attempt is refused to the claim that finds it, and granted to the exclusive claim that
    /// follows at once.
    pub(super) fn looked(
        &self,
        of: (TenantId, RunId),
        lease_duration: u64,
        look: Option<(FarLook, FarFound)>,
        max_clock_skew: u64,
    ) {
        let Some(ticks) = self.now() else { return };
        let period = (lease_duration.saturating_add(max_clock_skew) / LOOKS_PER_WINDOW).max(1);
        self.with(|table| {
            // Dropping all is rare and only delays takeovers.
            if table.runs.len() >= RUNS_MAX && !table.runs.contains_key(&of) {
                table.runs.clear();
            }
            let known =
                table.runs.entry(of).or_insert_with(|| Searched::new(lease_duration, ticks));
            if let Some((look, found)) = look {
                let repeats = found.may_be_void && known.repeats < REPEATS_MAX;
                known.repeats = if repeats { known.repeats + 1 } else { 0 };
                known.due = if repeats { ticks } else { ticks.saturating_add(period) };
                known.from = match repeats {
                    true => Some(look.from),
                    false => found.last.map(|last| last.plus(1)),
                };
            }
        });
    }

    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock())
    }

    /// Runs `access` under the lock. `access` neither blocks nor panics.
    fn with<R>(&self, access: impl FnOnce(&mut Table) -> R) -> R {
        access(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn observe(&mut self, of: (TenantId, RunId, ShardId), revision: u64, now: u64) -> u64 {
        if let Some(known) = self.leases.get_mut(&of) {
            known.last_seen = now;
            // Written since: a renewal, or another lease.
            if known.revision != revision {
                (known.revision, known.since) = (revision, now);
            }
            return now.saturating_sub(known.since);
        }
        if self.leases.len() >= WATCHED_MAX {
            // Most likely it was renewed or its shard has ended: each search sees the others
            // again.
            let oldest = self.leases.iter().min_by_key(|(_, it)| it.last_seen).map(|(of, _)| *of);
            oldest.map(|of| self.leases.remove(&of));
        }
        self.leases.insert(of, Watched { revision, since: now, last_seen: now });
        assert!(self.leases.len() <= WATCHED_MAX, "watched leases are bounded");
        0
    }
}

/// Shows counts only: tenants and shards are not for logs.
impl fmt::Debug for LeaseWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = self.with(|table| table.leases.len());
        f.debug_struct("LeaseWatches").field("leases", &leases).finish_non_exhaustive()
    }
}

impl Searched {
    const fn new(lease_duration: u64, due: u64) -> Self {
        Self { lease_duration, due, from: None, repeats: 0 }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarFound {
    /// The last lease found, if there may be more.
    pub(super) last: Option<ClaimSpot>,
    /// Whether the deadline of one may be void.
    pub(super) may_be_void: bool,
}

/// A search for leases that are to be watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarLook {
    tenant: TenantId,
    run: RunId,
    from: ClaimSpot,
    limit: usize,
}

impl FarLook {
    /// Returns the read, whose page is the result.
    pub(super) fn read(&self) -> Read {
        let range = ClaimsPath::new(self.tenant, self.run).within(self.from..=ClaimSpot::LAST);
        Read::Scan { range, limit: self.limit }
    }

    /// Returns whether a page of this many entries may not be the last.
    pub(super) const fn is_full(&self, count: usize) -> bool {
        count >= self.limit
    }
}
