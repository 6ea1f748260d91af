//! Reads of a run: its record, progress, listings, claim candidates.
//!
//! Nothing is written here. One batch of reads is a snapshot, so a listing or a sum over at most
//! one page of shards is one as well. Longer ones are a snapshot per page, and a shard that is
//! split meanwhile may be missing or listed in addition to its children.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId,
};

use super::claim_stats::{Probe, SCANS_MAX, ScanPlan, ScanResult, entries};
use super::codec::{HotPart, decode_parked_entry, decode_run_head};
use super::core::Core;
use super::engine::Read;
use super::flight::Io;
use super::key::Key;
use super::lease_watches::{FarFound, FarLook};
use super::run_flight::load_run;
use super::scatter::ClaimSpot;
use super::shard_scan::{DecodedParts, ShardScan};
use crate::error::InfraError;
use crate::protocol::{ClaimCandidates, claim_offset};
use crate::record::ShardStatus;
use crate::run::{RunProgress, RunRecord, ShardFilter, ShardSummary, Watermark};
use crate::run_errors::GetRunError;
use crate::run_management::ClaimOutlook;

/// Returns the run.
pub(super) async fn run(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<RunRecord, GetRunError> {
    let (loaded, _) = load_run(core, io, (tenant, run), false, Vec::new()).await?;
    Ok(loaded.ok_or(GetRunError::RunNotFound)?.record)
}

/// Returns the progress of a run. Damaged shards are counted as such.
pub(super) async fn progress(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<RunProgress, GetRunError> {
    let mut progress = RunProgress::default();
    let mut lowest: Option<Vec<u8>> = None;
    let mut scan = ShardScan::new(core, tenant, run, None);
    while let Some(page) = scan.next(io).await? {
        for parts in &page {
            let parts = parts.decode(tenant, run)?;
            progress.total += 1;
            // A shard of which one part is damaged cannot be granted, whatever the other says.
            let (Some(hot), Some(_)) = (&parts.hot, &parts.cold) else {
                progress.damaged += 1;
                continue;
            };
            count(&mut progress, now, hot);
            // Only active shards count: a terminal shard's cursor says nothing about remaining
            // work.
            let reached = hot.cursor.last_key().filter(|_| hot.status == ShardStatus::Active);
            if let Some(key) = reached
                && lowest.as_deref().is_none_or(|lowest| key < lowest)
            {
                lowest = Some(key.to_vec());
            }
        }
    }
    progress.watermark = lowest.as_deref().map(Watermark::new);
    Ok(progress)
}

fn count(progress: &mut RunProgress, now: LogicalTime, part: &HotPart<'_>) {
    match part.status {
        ShardStatus::Active => progress.active += 1,
        ShardStatus::Done => progress.done += 1,
        ShardStatus::Split => progress.split += 1,
        ShardStatus::Parked => progress.parked += 1,
    }
    progress.leased += u64::from(is_leased(part, now));
}

fn is_leased(part: &HotPart<'_>, now: LogicalTime) -> bool {
    part.lease.is_some_and(|holder| now < holder.deadline())
}

/// Appends the shards that `filter` admits, in range order, or a page of them in id order. Damaged
/// shards are marked; those whose range is not known come first in range order.
pub(super) async fn list(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    filter: ShardFilter,
    out: &mut Vec<ShardSummary>,
) -> Result<(), GetRunError> {
    let mut rows = Vec::new();
    let mut scan = ShardScan::new(core, tenant, run, filter.only);
    let limit = filter.page.map_or(usize::MAX, |page| page.limit);
    if let Some(after) = filter.page.and_then(|page| page.after) {
        // By the key range and not by the filter, so that a page costs the same wherever it lies.
        scan = scan.after(after);
    }
    while rows.len() < limit
        && let Some(page) = scan.next(io).await?
    {
        for parts in &page {
            let (shard, parts) = (parts.shard, parts.decode(tenant, run)?);
            let admitted = match (&parts.hot, parts.damage()) {
                (Some(hot), None) => filter.admits(hot.status, is_leased(hot, now), shard),
                (_, Some(_)) | (None, None) => filter.admits_id(shard),
            };
            if admitted {
                rows.push(summary(now, shard, &parts));
            }
        }
    }
    // A page of the store may hold more rows than the caller asked for.
    rows.truncate(limit);
    if filter.has_contexts() {
        add_contexts(core, io, (tenant, run), &mut rows).await?;
    }
    // The scan is in id order; a listing is in range order, with ids to break ties.
    if filter.page.is_none() {
        rows.sort_unstable_by(|one, other| {
            (&one.start, one.shard).cmp(&(&other.start, other.shard))
        });
    }
    out.extend(rows);
    Ok(())
}

/// The text of a parked shard whose entry is damaged or of a newer format.
const UNREADABLE_CONTEXT: &str = "the record of the reason cannot be read";

/// Adds the texts of the parked shards to `rows`, which are in id order.
///
/// The entries are read after the rows: a shard that was unparked meanwhile has no text.
async fn add_contexts(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    rows: &mut [ShardSummary],
) -> Result<(), InfraError> {
    let parked = rows.iter_mut().filter(|row| row.status == ShardStatus::Parked);
    let mut parked: Vec<&mut ShardSummary> = parked.collect();
    // Point reads, because a listing of one shard must not read the entries of all.
    for batch in parked.chunks_mut(core.limits.page.min(core.limits.txn_ops)) {
        let shards = batch.iter().map(|row| ShardKey::new(run, row.shard));
        let keys = shards.map(|shard| Key::ParkedIndex { tenant, shard }).collect();
        for (row, value) in batch.iter_mut().zip(io.load(keys).await?) {
            let Some(value) = value else { continue };
            let shard = ShardKey::new(run, row.shard);
            let context = decode_parked_entry(tenant, shard, &value.bytes);
            // Only the text is lost: the row comes from the shard's own record, which is intact.
            let text = context.as_ref().map_or(UNREADABLE_CONTEXT, |context| context.as_str());
            row.park_context = Some(text).filter(|text| !text.is_empty()).map(Into::into);
        }
    }
    Ok(())
}

fn summary(now: LogicalTime, shard: ShardId, parts: &DecodedParts<'_>) -> ShardSummary {
    let (hot, cold) = (parts.hot.as_ref(), parts.cold.as_ref());
    let cursor = hot.map_or(CursorUpdate::initial(), |hot| hot.cursor);
    let spec = cold.map_or(ShardSpecRef::new(b"", b"", b""), |cold| cold.spec);
    let lease = hot.filter(|hot| is_leased(hot, now)).and_then(|hot| hot.lease);
    let spawned = cold.map_or(0, |cold| cold.spawned.len());
    ShardSummary {
        shard,
        damage: parts.damage(),
        status: hot.map_or(ShardStatus::Active, |hot| hot.status),
        park_reason: hot.and_then(|hot| hot.park_reason),
        park_context: None,
        leased: lease.is_some(),
        lease_deadline: lease.map(|holder| holder.deadline()),
        owner: lease.map(|holder| holder.owner()),
        fence_epoch: hot.map_or(FenceEpoch::ZERO, |hot| hot.fence),
        last_handoff: hot.and_then(|hot| hot.last_handoff),
        acquire_count: hot.map_or(0, |hot| hot.acquire_count),
        attempts: hot.map_or(0, |hot| hot.attempts),
        last_key: cursor.last_key().map(Into::into),
        token: cursor.token().map(Into::into),
        start: spec.start.into(),
        end: spec.end.into(),
        metadata: spec.metadata.into(),
        parent: cold.and_then(|cold| cold.lineage).map(|lineage| lineage.parent),
        spawned_count: u32::try_from(spawned).expect("spawned is bounded"),
    }
}

/// Returns a few claimable shards, for a handle without statistics of the run; a handle with
/// statistics finds more at the same cost.
pub(super) async fn probe(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    (worker, limit): (WorkerId, usize),
    out: &mut ClaimCandidates,
) -> Result<ClaimOutlook, GetRunError> {
    out.clear();
    if core.claim_stats.has(tenant, run) || limit == 0 {
        return candidates(core, io, now, (tenant, run), (worker, limit), out).await;
    }
    let point = core.claim_stats.point(core.config.nonce, worker);
    let probe = Probe { tenant, run, now, point };
    let mut reads = vec![Read::Get(Key::RunHead { tenant, run })];
    reads.extend(probe.reads(core.limits.page));
    let mut answers = io.read(reads).await?;
    let head = answers.value().ok_or(GetRunError::RunNotFound)?;
    let head = decode_run_head(tenant, run, &head.bytes)?;
    let outlook = ClaimOutlook { run: head.head(), earliest_deadline: None };
    // Before its registration is complete, a run has entries in the index and no shards to claim.
    if !head.has_roots() {
        return Ok(outlook);
    }
    let (found, stats) = probe.take(&mut answers);
    // Nothing is claimable now: a full scan also finds the next deadline.
    if found.due_count() == 0 {
        return candidates(core, io, now, (tenant, run), (worker, limit), out).await;
    }
    core.claim_stats.remember(tenant, run, stats);
    choose(found, point, limit, out);
    Ok(outlook)
}

/// Returns some free shards and, if those are few, shards with an expired lease and those with a
/// void deadline.
pub(super) async fn candidates(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    (worker, limit): (WorkerId, usize),
    out: &mut ClaimCandidates,
) -> Result<ClaimOutlook, GetRunError> {
    out.clear();
    let point = core.claim_stats.point(core.config.nonce, worker);
    let mut stats = core.claim_stats.of(tenant, run);
    for scans in 1..=SCANS_MAX {
        let plan = ScanPlan::new((tenant, run), now, &stats, point, true, core.limits.page);
        // The head in the same snapshot: a claim ends without a try if the run is over or paused.
        let head = Read::Get(Key::RunHead { tenant, run });
        let mut reads = plan.reads(Some(head));
        let skew = core.config.max_clock_skew;
        let look = core.watches.look((tenant, run), now, skew, core.limits.page);
        // With the scan, so that it costs no round trip.
        reads.extend(look.as_ref().map(FarLook::read));
        let mut answers = io.read(reads).await?;
        let head = answers.value().ok_or(GetRunError::RunNotFound)?;
        let head = decode_run_head(tenant, run, &head.bytes)?;
        let outlook = |earliest_deadline| ClaimOutlook { run: head.head(), earliest_deadline };
        if !head.has_roots() {
            return Ok(outlook(None));
        }
        let found = plan.take(&mut answers);
        let far = look.map(|look| (look, entries(&answers.page()).collect::<Vec<_>>()));
        let lease_duration = head.head().config.lease_duration();
        if stats.learn(&plan, &found, (limit, None), scans) {
            core.claim_stats.remember(tenant, run, stats);
            let earliest_deadline = found.first_deadline(None);
            choose(found, point, limit, out);
            add_void(core, io, (tenant, run), lease_duration, far, limit, out).await?;
            return Ok(outlook(earliest_deadline));
        }
    }
    unreachable!("the last scan reads everything")
}

/// Watches the leases that a search found, and appends those whose deadline may be void by now; the
/// acquire decides.
async fn add_void(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    lease_duration: u64,
    far: Option<(FarLook, Vec<(ClaimSpot, ShardId)>)>,
    limit: usize,
    out: &mut ClaimCandidates,
) -> Result<(), InfraError> {
    let skew = core.config.max_clock_skew;
    let Some((look, found)) = far.filter(|_| out.len() < limit) else {
        core.watches.looked((tenant, run), lease_duration, None, skew);
        return Ok(());
    };
    let last = found.last().map(|(spot, _)| *spot).filter(|_| look.is_full(found.len()));
    let noted = |may_be_void| {
        let result = FarFound { last, may_be_void };
        core.watches.looked((tenant, run), lease_duration, Some((look, result)), skew);
    };
    // Usually: only a wrong clock stores such a deadline.
    if found.is_empty() {
        noted(false);
        return Ok(());
    }
    let shards = || found.iter().map(|(_, shard)| ShardKey::new(run, *shard));
    // The hot parts, because a renewal that keeps the deadline leaves the index as it is.
    let keys = shards().map(|shard| Key::ShardHot { tenant, shard }).collect();
    let (loaded, mut may_be_void) = (io.load(keys).await?, false);
    for (shard, hot) in shards().zip(loaded) {
        let Some(hot) = hot else { continue };
        let unchanged_for = core.watches.observe(tenant, shard, hot.revision);
        may_be_void |= unchanged_for >= lease_duration.saturating_add(skew);
        if unchanged_for >= lease_duration.saturating_add(skew) && out.len() < limit {
            out.push(shard.shard());
        }
    }
    noted(may_be_void);
    Ok(())
}

/// Appends free shards in an order that differs per scan, then those with an expired lease.
fn choose(found: ScanResult, point: u64, limit: usize, out: &mut ClaimCandidates) {
    let rotated = |mut shards: Vec<ShardId>| {
        let offset = claim_offset(WorkerId::from_raw(point), shards.len());
        // Concurrent claims with similar scans should try different shards first.
        shards.rotate_left(offset);
        shards
    };
    let due = rotated(found.free).into_iter().chain(rotated(found.expired));
    out.extend(due.take(limit));
}
