//! The worker registry of a store. The registry is advisory, so concurrent registrations may exceed
//! its bound.

use gossip_contracts::identity::{LogicalTime, TenantId, WorkerId};

use super::codec::{decode_worker, encode_worker};
use super::core::{Core, encoded};
use super::engine::Read;
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::workers::{
    MAX_WORKERS_PER_TENANT, WorkerEntry, WorkerError, WorkerProcess, WorkerState,
};

/// Registers `worker`, and removes expired entries if the registry is full.
pub(super) async fn register(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    (worker, process): (WorkerId, Option<WorkerProcess>),
) -> Result<(), WorkerError> {
    let (mut stored, mut has_space) = load_with_count(io, tenant, worker).await?;
    // Expired entries are removed only when the bound is reached, so a heartbeat stays cheap.
    if !has_space {
        remove_expired(core, io, now, tenant).await?;
        (stored, has_space) = load_with_count(io, tenant, worker).await?;
        if !has_space {
            assert!(stored.is_none(), "a registered worker is not refused for the bound");
            return Err(WorkerError::TooManyWorkers { max: MAX_WORKERS_PER_TENANT });
        }
    }
    // An expired entry is a new registration: its old state no longer applies.
    let entry_of = Subject { now, tenant, worker };
    update(core, io, entry_of, stored, |known| {
        let state = known.map_or(WorkerState::Idle, |entry| entry.state);
        let entry = WorkerEntry::heard_of_again(known, worker, state, now);
        Ok(WorkerEntry { process, ..entry })
    })
    .await
}

/// Returns the stored entry of `worker`, and whether it is registered or another worker fits.
async fn load_with_count(
    io: &Io,
    tenant: TenantId,
    worker: WorkerId,
) -> Result<(Option<Versioned>, bool), InfraError> {
    let known = Read::Get(Key::Worker { tenant, worker });
    let mut answers = io.read(vec![known, Read::Count(KeyRange::workers_of(tenant))]).await?;
    let (stored, count) = (answers.value(), answers.count());
    answers.assert_used();
    assert!(stored.is_none() || count > 0, "a registered worker is counted");
    // The count is not compared, so concurrent registrations may exceed the limit by their number.
    let has_space = stored.is_some() || count < MAX_WORKERS_PER_TENANT as u64;
    Ok((stored, has_space))
}

/// Records the state of a registered worker.
pub(super) async fn heartbeat(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    worker: WorkerId,
    state: WorkerState,
) -> Result<(), WorkerError> {
    let stored = io.load(vec![Key::Worker { tenant, worker }]).await?.pop().flatten();
    update(core, io, Subject { now, tenant, worker }, stored, |known| {
        // An expired entry may be deleted at any moment, so it does not count as a registration.
        let known = known.ok_or(WorkerError::NotRegistered)?;
        Ok(WorkerEntry::heard_of_again(Some(known), worker, state, now))
    })
    .await
}

/// The entry to update, and when.
#[derive(Clone, Copy)]
struct Subject {
    now: LogicalTime,
    tenant: TenantId,
    worker: WorkerId,
}

/// Replaces the entry of a worker, `stored`, by what `next` makes of it; `next` receives `None` if
/// the entry is missing or expired.
///
/// The commit compares the entry that was loaded: a heartbeat that is delayed on its way must not
/// overwrite a later one.
async fn update(
    core: &Core,
    io: &Io,
    Subject { now, tenant, worker }: Subject,
    mut stored: Option<Versioned>,
    next: impl Fn(Option<WorkerEntry>) -> Result<WorkerEntry, WorkerError>,
) -> Result<(), WorkerError> {
    let key = Key::Worker { tenant, worker };
    let mut tries = core.tries("worker.commit");
    loop {
        let decode = |value: &Versioned| decode_worker(tenant, worker, &value.bytes);
        // An error describes the last try only: an earlier one may still be applied.
        let known = stored.as_ref().map(decode).transpose().map_err(|error| tries.ended(error))?;
        assert!(known.is_none_or(|entry| entry.worker == worker), "an entry is that of its key");
        let entry = next(known.filter(|entry| entry.is_live_at(now)))?;
        assert!(entry.worker == worker, "an entry is written under its own key");
        assert!(entry.expires_at >= now, "a heartbeat does not expire when it is written");
        // Nothing new, or the commit whose reply was lost.
        if known == Some(entry) {
            return Ok(());
        }
        let mut txn = Txn::new();
        txn.expect(key, stored.as_ref());
        txn.put(key, encoded(|out| encode_worker(tenant, &entry, out)));
        assert!(txn.compares().len() == 1, "a late heartbeat does not overwrite a newer one");
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => return Ok(()),
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), false)?,
            CommitOutcome::Unknown => tries.failed(None, false)?,
        };
        io.pause(ticks).await;
        stored = io.load(vec![key]).await.map_err(|error| tries.ended(error))?.pop().flatten();
    }
}

/// Appends the workers whose entries have not expired, by id.
pub(super) async fn list(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
    out: &mut Vec<WorkerEntry>,
) -> Result<(), WorkerError> {
    let entries = entries(core, io, tenant).await?;
    assert!(entries.is_sorted_by_key(|entry| entry.worker), "a store scans in order of keys");
    out.extend(entries.into_iter().filter(|entry| entry.is_live_at(now)));
    Ok(())
}

async fn entries(core: &Core, io: &Io, tenant: TenantId) -> Result<Vec<WorkerEntry>, InfraError> {
    let page = io.scan_all(KeyRange::workers_of(tenant), core.limits.page).await?;
    let entry = |(key, value): &(Key, Versioned)| {
        let Key::Worker { worker, .. } = key else { return None };
        Some(decode_worker(tenant, *worker, &value.bytes))
    };
    page.iter().filter_map(entry).collect()
}

async fn remove_expired(
    core: &Core,
    io: &Io,
    now: LogicalTime,
    tenant: TenantId,
) -> Result<(), InfraError> {
    let expired: Vec<WorkerEntry> = entries(core, io, tenant)
        .await?
        .into_iter()
        .filter(|entry| !entry.is_live_at(now))
        .collect();
    // Unconditional deletes: a worker that just sent a heartbeat registers again.
    for chunk in expired.chunks(core.limits.txn_ops.clamp(1, MAX_WORKERS_PER_TENANT)) {
        let mut txn = Txn::new();
        chunk.iter().for_each(|entry| txn.delete(Key::Worker { tenant, worker: entry.worker }));
        assert!(txn.op_count() <= MAX_WORKERS_PER_TENANT, "a chunk is bounded by the registry");
        commit_idempotent(core, io, &txn).await?;
    }
    Ok(())
}

/// Commits an idempotent transaction, and retries after conflicts and lost replies.
async fn commit_idempotent(core: &Core, io: &Io, txn: &Txn) -> Result<(), InfraError> {
    // Repeating a commit that compares nothing leads to the same state, whichever try is applied.
    assert!(txn.compares().is_empty(), "an idempotent commit has no condition");
    assert!(!txn.writes().is_empty(), "a commit changes the registry");
    let mut tries = core.tries("worker.commit");
    loop {
        // An error describes the last try only: an earlier one may still be applied.
        let outcome = io.commit(txn.clone()).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => return Ok(()),
            CommitOutcome::Conflict(conflict) => tries.failed(Some(conflict.key()), false)?,
            CommitOutcome::Unknown => tries.failed(None, false)?,
        };
        io.pause(ticks).await;
    }
}
