//! Reading a run: its record, progress, listings, candidates.
//!
//! Nothing is written here. The answers of one batch are of one instant, so a listing and a sum of
//! no more shards than a page are too; longer ones are of one instant per page, and shards that are
//! split meanwhile may be missing or there beside their children.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::claim_stats::{LOOKS_MAX, Probe, ScanPlan, Seen};
use super::codec::{ColdPart, HotPart, decode_cold, decode_hot, decode_run_head};
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

/// The run itself.
pub(super) async fn run(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<RunRecord, GetRunError> {
    let (loaded, _) = load_run(core, io, (tenant, run), false, Vec::new()).await?;
    Ok(loaded.ok_or(GetRunError::RunNotFound)?.record)
}

/// Whether the shards of the run whose head was read can be found.
fn has_shards(tenant: TenantId, run: RunId, head: Option<Versioned>) -> Result<bool, GetRunError> {
    let head = head.ok_or(GetRunError::RunNotFound)?;
    Ok(decode_run_head(tenant, run, &head.bytes)?.has_roots())
}

/// How far a run has come.
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
        let head = Read::Get(Key::RunHead { tenant, run });
        let mut answers = io.read(vec![head, Read::Scan { range: rest, limit }]).await?;
        if !has_shards(tenant, run, answers.value())? {
            return Ok(RunProgress::default());
        }
        let hot = answers.page();
        for (shard, value) in shards(&hot) {
            let part = decode_hot(tenant, shard, &value.bytes)?;
            count(&mut progress, now, &part);
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

/// The shards that `filter` admits, in the order of their ranges.
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
        if !has_shards(tenant, run, answers.value())? {
            return Ok(());
        }
        let (hot, cold) = (answers.page(), answers.page());
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
            (hot_rest, cold_rest) = (hot_rest.after(hot_key), cold_rest.after(cold_key));
        }
        if hot.len() < limit {
            break;
        }
    }
    rows.sort_unstable_by(|one, other| (&one.start, one.shard).cmp(&(&other.start, other.shard)));
    out.extend(rows);
    Ok(())
}

/// The shard whose parts stand under these keys. They are written together and of one instant.
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

/// The shards of a page of hot or cold parts.
fn shards(page: &Page) -> impl Iterator<Item = (ShardKey, &Versioned)> {
    page.iter().filter_map(|(key, value)| {
        let (Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. }) = key else { return None };
        Some((*shard, value))
    })
}

/// A few shards that can be claimed, for a handle that has never looked at the run; one that has
/// knows how to find more at no more cost.
pub(super) async fn probe(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    (worker, limit): (WorkerId, usize),
    out: &mut ClaimCandidates,
) -> Result<ClaimOutlook, GetRunError> {
    out.clear();
    if core.claim_stats.knows(tenant, run) || limit == 0 {
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
    if !head.has_roots() {
        return Ok(outlook);
    }
    let (seen, sight) = probe.take(&mut answers);
    if seen.due_count() == 0 {
        return candidates(core, io, now, (tenant, run), (worker, limit), out).await;
    }
    core.claim_stats.remember(tenant, run, sight);
    choose(seen, point, limit, out);
    Ok(outlook)
}

/// Some free shards, and if those are few, shards whose lease ran out.
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
    let mut sight = core.claim_stats.of(tenant, run);
    for looks in 1..=LOOKS_MAX {
        let look = ScanPlan::new((tenant, run), now, &sight, point, true, core.limits.page);
        let head = Read::Get(Key::RunHead { tenant, run });
        let mut answers = io.read(look.reads(Some(head))).await?;
        let head = answers.value().ok_or(GetRunError::RunNotFound)?;
        let head = decode_run_head(tenant, run, &head.bytes)?;
        let outlook = |earliest_deadline| ClaimOutlook { run: head.head(), earliest_deadline };
        if !head.has_roots() {
            return Ok(outlook(None));
        }
        let seen = look.take(&mut answers);
        if sight.learn(&look, &seen, (limit, None), looks) {
            core.claim_stats.remember(tenant, run, sight);
            let earliest_deadline = seen.first_deadline(None);
            choose(seen, point, limit, out);
            return Ok(outlook(earliest_deadline));
        }
    }
    unreachable!("the last look sees everything")
}

/// Free shards in an order of the look's own, then those whose lease ran out.
fn choose(seen: Seen, point: u64, limit: usize, out: &mut ClaimCandidates) {
    let turned = |mut shards: Vec<ShardId>| {
        let offset = claim_offset(WorkerId::from_raw(point), shards.len());
        shards.rotate_left(offset);
        shards
    };
    let due = turned(seen.free).into_iter().chain(turned(seen.expired));
    out.extend(due.take(limit));
}
