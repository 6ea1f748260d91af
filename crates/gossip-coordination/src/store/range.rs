//! Half-open ranges of keys, for scans.
//!
//! Every range lies within one kind of one tenant unless documented otherwise. A range is two byte
//! strings, independent of the engine; an engine prepends its namespace to both.

use std::ops::RangeInclusive;

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};

use super::key::{BEHIND_SEPARATOR, Key, KeyBytes, KeyKind, SEPARATOR};
use super::scatter::ClaimSpot;
use crate::stored_events::EventWriter;

/// Keys from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    start: KeyBytes,
    end: KeyBytes,
}

impl KeyRange {
    /// Returns the range of every key of every tenant, for backup and checks of a whole store.
    #[must_use]
    pub fn all_tenants() -> Self {
        Self::below(&KeyBytes::prefix_of_tenants())
    }

    /// Returns every key of the tenants after `tenant`.
    #[must_use]
    pub(crate) fn tenants_after(tenant: TenantId) -> Self {
        // The end of a tenant's range is the start of the next, so the keys of the tenant itself
        // are passed at once.
        Self { start: Self::tenant(tenant).end, ..Self::all_tenants() }
    }

    /// Returns every key of a tenant. An access rule on this range isolates the tenant.
    #[must_use]
    pub fn tenant(tenant: TenantId) -> Self {
        Self::below(&KeyBytes::prefix_of(tenant))
    }

    /// Returns every key that only the operator writes.
    #[must_use]
    pub fn operator() -> Self {
        Self::below(&KeyBytes::prefix_of_operator())
    }

    /// The heads of a tenant's runs.
    #[must_use]
    pub fn runs_of(tenant: TenantId) -> Self {
        Self::below(&of_tenant(KeyKind::RunHead, tenant))
    }

    /// The head of one run, as a range of one key.
    #[must_use]
    pub(crate) fn run_head(tenant: TenantId, run: RunId) -> Self {
        Self::only(&Key::RunHead { tenant, run })
    }

    /// The tombstone of one run, as a range of one key.
    #[must_use]
    pub(crate) fn tombstone(tenant: TenantId, run: RunId) -> Self {
        Self::only(&Key::Tombstone { tenant, run })
    }

    /// A tenant's registered workers.
    #[must_use]
    pub fn workers_of(tenant: TenantId) -> Self {
        Self::below(&of_tenant(KeyKind::Worker, tenant))
    }

    /// A tenant's handoff records.
    #[must_use]
    pub(crate) fn handoffs_of(tenant: TenantId) -> Self {
        Self::below(&of_tenant(KeyKind::Handoff, tenant))
    }

    /// The unfinished handoffs of a tenant that concern a party.
    #[must_use]
    pub(crate) fn moves_of(tenant: TenantId, party: u64) -> Self {
        Self::below(&KeyBytes::of_tenant(tenant, KeyKind::HandoffIndex, |path| {
            path.number(party);
        }))
    }

    /// The chunks of the roots of all runs of a tenant, run by run.
    #[must_use]
    pub(crate) fn all_roots_of(tenant: TenantId) -> Self {
        Self::below(&of_tenant(KeyKind::RunRoots, tenant))
    }

    /// The chunks of a run's roots.
    #[must_use]
    pub(crate) fn roots_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::RunRoots, tenant, run))
    }

    /// The hot parts of a run's shards, in the order of their ids.
    #[must_use]
    pub fn hot_shards_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::ShardHot, tenant, run))
    }

    /// The hot parts of all shards of a tenant.
    #[must_use]
    pub fn all_hot_shards_of(tenant: TenantId) -> Self {
        Self::below(&of_tenant(KeyKind::ShardHot, tenant))
    }

    /// The hot part of one shard of a run, as a range of one key.
    #[must_use]
    pub(crate) fn hot_shard(tenant: TenantId, run: RunId, shard: ShardId) -> Self {
        Self::only(&Key::ShardHot { tenant, shard: ShardKey::new(run, shard) })
    }

    /// The cold parts of a run's shards, in the order of their ids.
    #[must_use]
    pub(crate) fn cold_shards_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::ShardCold, tenant, run))
    }

    /// The cold part of one shard of a run, as a range of one key.
    #[must_use]
    pub(crate) fn cold_shard(tenant: TenantId, run: RunId, shard: ShardId) -> Self {
        Self::only(&Key::ShardCold { tenant, shard: ShardKey::new(run, shard) })
    }

    /// The owner keys of a run's shards.
    #[must_use]
    pub fn owners_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::Owner, tenant, run))
    }

    /// A run's parked shards. Empty exactly when none is parked.
    #[must_use]
    pub(crate) fn parked_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::ParkedIndex, tenant, run))
    }

    /// The failure records of a run, shard by shard.
    #[must_use]
    pub(crate) fn failures_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::Failure, tenant, run))
    }

    /// The stored events of a run, writer by writer.
    #[must_use]
    pub(crate) fn events_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::Event, tenant, run))
    }

    /// The stored events of one writer, slot by slot.
    #[must_use]
    pub(crate) fn events_by(tenant: TenantId, run: RunId, writer: EventWriter) -> Self {
        Self::below(&KeyBytes::of_tenant(tenant, KeyKind::Event, |path| {
            path.number(run.as_raw()).number(writer.as_raw());
        }))
    }

    /// The result blocks of a run, shard by shard.
    #[must_use]
    pub(crate) fn results_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::ResultBlock, tenant, run))
    }

    /// A run's claim index. Empty exactly when no shard is active.
    #[must_use]
    pub fn claims_of(tenant: TenantId, run: RunId) -> Self {
        Self::below(&of_run(KeyKind::ClaimIndex, tenant, run))
    }

    /// The entries of a run's claim index within `spots`. Callers choose narrow ranges, because on
    /// some engines a wide range with a limit costs as much as it holds. Empty if `spots` is empty.
    #[must_use]
    pub fn claims_within(tenant: TenantId, run: RunId, spots: RangeInclusive<ClaimSpot>) -> Self {
        ClaimsPath::new(tenant, run).within(spots)
    }

    fn claims_below(path: &KeyBytes, spots: &RangeInclusive<ClaimSpot>) -> Self {
        let mut within = Self { start: *path, end: *path };
        let add = |path: &mut KeyBytes, spot: &ClaimSpot| {
            path.number(spot.at().as_raw()).number(spot.place());
        };
        add(&mut within.start, spots.start());
        add(&mut within.end, spots.end());
        // `spots` is inclusive and a range is half-open: the zero byte includes the last position.
        within.end.push(&[0]);
        within
    }

    /// Returns the part of the range after `key`: the next page of a scan.
    #[must_use]
    pub fn after(self, key: &Key) -> Self {
        // No key lies between a key and the same key followed by a zero byte.
        Self { start: self.start.max(key.to_bytes().with(&[0])), end: self.end }
    }

    /// Returns the range with these bounds, or `None` if one of them is longer than every key.
    #[must_use]
    pub fn between(start: &[u8], end: &[u8]) -> Option<Self> {
        Some(Self { start: KeyBytes::of(start)?, end: KeyBytes::of(end)? })
    }

    /// Returns the inclusive lower bound.
    #[must_use]
    pub const fn start(&self) -> &KeyBytes {
        &self.start
    }

    /// Returns the exclusive upper bound.
    #[must_use]
    pub const fn end(&self) -> &KeyBytes {
        &self.end
    }

    /// Returns whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_bytes() <= key && key < self.end.as_bytes()
    }

    /// Returns all keys that extend `path` by another part.
    fn below(path: &KeyBytes) -> Self {
        // The separator excludes keys whose next part merely begins like the last part of `path`.
        Self { start: path.with(&[SEPARATOR]), end: path.with(&[BEHIND_SEPARATOR]) }
    }

    /// Returns the range that holds only `key`.
    fn only(key: &Key) -> Self {
        // No key lies between a key and the same key followed by a zero byte.
        let start = key.to_bytes();
        Self { start, end: start.with(&[0]) }
    }
}

/// The common prefix of a run's claim index entries, computed once for the many ranges of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimsPath(KeyBytes);

impl ClaimsPath {
    pub(super) fn new(tenant: TenantId, run: RunId) -> Self {
        Self(of_run(KeyKind::ClaimIndex, tenant, run))
    }

    /// Returns the entries within `spots`; see [`KeyRange::claims_within`].
    pub(super) fn within(&self, spots: RangeInclusive<ClaimSpot>) -> KeyRange {
        KeyRange::claims_below(&self.0, &spots)
    }
}

fn of_tenant(kind: KeyKind, tenant: TenantId) -> KeyBytes {
    KeyBytes::of_tenant(tenant, kind, |_| ())
}

fn of_run(kind: KeyKind, tenant: TenantId, run: RunId) -> KeyBytes {
    KeyBytes::of_tenant(tenant, kind, |path| _ = path.number(run.as_raw()))
}
