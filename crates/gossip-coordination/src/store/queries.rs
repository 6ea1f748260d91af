//! Reads of a run: its record, progress, listings, claim candidates.
//!
//! Nothing is written here. One batch of reads is a snapshot, so a listing or a sum over at most
//! one page of shards is one as well. Longer ones are a snapshot per page, and a shard that is
//! split meanwhile may be missing or listed in addition to its children.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::claim_stats::{Probe, SCANS_MAX, ScanPlan, ScanResult};
use super::codec::{
    ColdPart, HotPart, decode_cold, decode_hot, decode_parked_entry, decode_run_head,
};
use super::core::Core;
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::Key;
use super::loaded::half_a_shard;
use super::range::KeyRange;
use super::run_flight::load_run;
use super::txn::Versioned;
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

/// Returns whether the shards of the run with this head can be found.
fn has_shards(tenant: TenantId, run: RunId, head: Option<Versioned>) -> Result<bool, GetRunError> {
    let head = head.ok_or(GetRunError::RunNotFound)?;
    Ok(decode_run_head(tenant, run, &head.bytes)?.has_roots())
}

/// Returns the progress of a run.
pub(super) async fn progress(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<RunProgress, GetRunError> {
    let mut progress = RunProgress::default();
    let (mut rest, limit) = (KeyRange::hot_shards_of(tenant, run), core.limits.page);
    let mut lowest: Option<Vec<u8>> = None;
    loop {
        // The head is read with every page: after a deletion began, the shards no longer count.
        let head = Read::Get(Key::RunHead { tenant, run });
        let mut answers = io.read(vec![head, Read::Scan { range: rest, limit }]).await?;
        // An incomplete registration has stored shards that must not be counted yet.
        if !has_shards(tenant, run, answers.value())? {
            return Ok(RunProgress::default());
        }
        let hot = answers.page();
        for (shard, value) in shards(&hot) {
            let part = decode_hot(tenant, shard, &value.bytes)?;
            count(&mut progress, now, &part);
            // Only active shards count: a terminal shard's cursor says nothing about remaining
            // work.
            let reached = part.cursor.last_key().filter(|_| part.status == ShardStatus::Active);
            if let Some(key) = reached
                && lowest.as_deref().is_none_or(|lowest| key < lowest)
            {
                lowest = Some(key.to_vec());
            }
        }
        let Some((last, _)) = hot.last().filter(|_| hot.len() >= limit) else { break };
        rest = rest.after(last);
    }
    progress.watermark = lowest.as_deref().map(Watermark::new);
    Ok(progress)
}

fn count(progress: &mut RunProgress, now: LogicalTime, part: &HotPart<'_>) {
    progress.total += 1;
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

/// Appends the shards that `filter` admits, in range order.
pub(super) async fn list(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    filter: ShardFilter,
    out: &mut Vec<ShardSummary>,
) -> Result<(), GetRunError> {
    let limit = core.limits.page;
    let (mut hot_rest, mut cold_rest) = match filter.only {
        Some(shard) => {
            (KeyRange::hot_shard(tenant, run, shard), KeyRange::cold_shard(tenant, run, shard))
        }
        None => (KeyRange::hot_shards_of(tenant, run), KeyRange::cold_shards_of(tenant, run)),
    };
    let mut rows = Vec::new();
    loop {
        let reads = vec![
            Read::Get(Key::RunHead { tenant, run }),
            Read::Scan { range: hot_rest, limit },
            Read::Scan { range: cold_rest, limit },
        ];
        let mut answers = io.read(reads).await?;
        // The head is read with every page: a run that is deleted meanwhile is not found, whatever
        // was listed before.
        if !has_shards(tenant, run, answers.value())? {
            return Ok(());
        }
        let (hot, cold) = (answers.page(), answers.page());
        // Both scans cover the same ids in one snapshot, so a difference is a missing part.
        if hot.len() != cold.len() {
            return Err(half_a_shard().into());
        }
        for ((hot_key, hot), (cold_key, cold)) in hot.iter().zip(&cold) {
            let shard = pair(hot_key, cold_key)?;
            let hot = decode_hot(tenant, shard, &hot.bytes)?;
            let cold = decode_cold(tenant, shard, &cold.bytes)?;
            if filter.admits(hot.status, is_leased(&hot, now), shard.shard()) {
                rows.push(summary(now, shard.shard(), &hot, &cold));
            }
            // Both scans advance together, so the next page pairs the same shards.
            (hot_rest, cold_rest) = (hot_rest.after(hot_key), cold_rest.after(cold_key));
        }
        if hot.len() < limit {
            break;
        }
    }
    if filter.has_contexts() {
        add_contexts(core, io, (tenant, run), &mut rows).await?;
    }
    // Pages come in id order; a listing is in range order, with ids to break ties.
    rows.sort_unstable_by(|one, other| (&one.start, one.shard).cmp(&(&other.start, other.shard)));
    out.extend(rows);
    Ok(())
}

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
            let context = decode_parked_entry(tenant, shard, &value.bytes)?;
            let text = Some(context.as_str()).filter(|text| !text.is_empty());
            row.park_context = text.map(Into::into);
        }
    }
    Ok(())
}

/// Returns the shard of these two keys. The parts are written together and read in one snapshot.
fn pair(hot: &Key, cold: &Key) -> Result<ShardKey, InfraError> {
    if let (Key::ShardHot { shard, .. }, Key::ShardCold { shard: other, .. }) = (hot, cold)
        && shard == other
    {
        return Ok(*shard);
    }
    Err(half_a_shard())
}

fn summary(
    now: LogicalTime,
    shard: ShardId,
    hot: &HotPart<'_>,
    cold: &ColdPart<'_>,
) -> ShardSummary {
    let leased = is_leased(hot, now);
    ShardSummary {
        shard,
        status: hot.status,
        park_reason: hot.park_reason,
        park_context: None,
        leased,
        lease_deadline: hot.lease.map(|holder| holder.deadline()).filter(|_| leased),
        owner: hot.lease.map(|holder| holder.owner()).filter(|_| leased),
        fence_epoch: hot.fence,
        last_handoff: hot.last_handoff,
        acquire_count: hot.acquire_count,
        attempts: hot.attempts,
        last_key: hot.cursor.last_key().map(Into::into),
        token: hot.cursor.token().map(Into::into),
        start: cold.spec.start.into(),
        end: cold.spec.end.into(),
        metadata: cold.spec.metadata.into(),
        parent: cold.lineage.map(|lineage| lineage.parent),
        spawned_count: u32::try_from(hot.spawned_count).expect("spawned is bounded"),
    }
}

/// Returns the shards of a page of hot or cold parts.
fn shards(page: &Page) -> impl Iterator<Item = (ShardKey, &Versioned)> {
    page.iter().filter_map(|(key, value)| {
        let (Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. }) = key else { return None };
        Some((*shard, value))
    })
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

/// Returns some free shards and, if those are few, shards with an expired lease.
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
        let mut answers = io.read(plan.reads(Some(head))).await?;
        let head = answers.value().ok_or(GetRunError::RunNotFound)?;
        let head = decode_run_head(tenant, run, &head.bytes)?;
        let outlook = |earliest_deadline| ClaimOutlook { run: head.head(), earliest_deadline };
        if !head.has_roots() {
            return Ok(outlook(None));
        }
        let found = plan.take(&mut answers);
        if stats.learn(&plan, &found, (limit, None), scans) {
            core.claim_stats.remember(tenant, run, stats);
            let earliest_deadline = found.first_deadline(None);
            choose(found, point, limit, out);
            return Ok(outlook(earliest_deadline));
        }
    }
    unreachable!("the last scan reads everything")
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
