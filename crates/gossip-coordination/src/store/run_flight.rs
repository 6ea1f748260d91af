//! An operation on one run: load, decide, evolve, commit.
//!
//! Conflicts and lost replies are handled as for shards (`shard_flight`). Two operations may need
//! several commits. A registration writes its shards in chunks that fit the store's transactions;
//! each compares the run's head. Its shards are not found before the last chunk activates the run,
//! and a repeated registration resumes after the stored chunks (DESIGN Q16). A deletion first
//! replaces the head by a tombstone, and then `purge` deletes the shards.

use std::sync::Arc;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId};

use super::codec::{
    RootProgress, RunHeadPart, decode_roots, decode_run_head, decode_tombstone, encode_roots,
    encode_run_head, encode_tombstone,
};
use super::core::{Core, Full, NEW_SHARD_WRITES, encoded};
use super::engine::{Page, Read};
use super::event_ring::Announcement;
use super::flight::{Answers, Io};
use super::key::{KEY_LEN_MAX, Key};
use super::quota::Quota;
use super::range::KeyRange;
use super::shard_scan::refuse_damaged;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;
use crate::outcome::IdempotentOutcome;
use crate::protocol::{
    COLLECTION_DELETES, Decision, Roots, RunChange, RunInputs, RunTransitionRules, Tombstone,
    evolve_run,
};
use crate::record::NewShard;
use crate::run::{Registration, RunConfig, RunRecord, RunStatus};
use crate::stored_events::Lifecycle;

/// Writes of a registration chunk besides those of its shards: the head, the names of the roots,
/// the tenant's count, and the event of the last chunk.
const CHUNK_WRITES: usize = 4;

/// Maximum loads of a run with more than one page of roots, when it changes concurrently.
const LOAD_TRIES_MAX: usize = 8;

/// Maximum bytes of a new shard's values besides its range and cursor: three keys, three frames and
/// the fields of fixed size.
const SHARD_OVERHEAD: usize = 3 * KEY_LEN_MAX + 256;

/// Maximum bytes of a chunk besides its shards: a head with a full log, names, the count, keys.
const CHUNK_OVERHEAD: usize = 4 << 10;

/// Runs `operation`. `counts` also loads the numbers of active and parked shards, and refuses a run
/// with a damaged shard before it commits.
pub(super) async fn fly<T>(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: &T,
    counts: bool,
) -> Result<IdempotentOutcome<T::Output>, T::Error>
where
    T: RunTransitionRules + Sync,
    T::Output: Send,
    T::Error: From<InfraError> + Send,
{
    let (tenant, run) = operation.subject();
    core.assert_collector_serves(tenant);
    let mut tries = core.tries("run.commit");
    let mut unresolved: Option<Prepared<T>> = None;
    let (mut registering, mut registered) = (false, 0);
    loop {
        let loaded = Loaded::load(core, io, (tenant, run), (registering, counts)).await;
        let loaded = loaded.map_err(|error| tries.ended(error))?;
        // The retry budget is per chunk, whichever handle stored the previous one.
        assert!(loaded.roots.registered <= loaded.roots.total, "no root is stored unreserved");
        if loaded.roots.registered > registered {
            (registered, tries) = (loaded.roots.registered, core.tries("run.commit"));
        }
        // Before the decision, which would refuse a repeated creation because the run exists.
        if let Some(applied) = unresolved.take_if(|unresolved| unresolved.is_applied(&loaded)) {
            core.announce(tenant, run, now, applied.announcement);
            return applied.answer.map(IdempotentOutcome::Executed);
        }
        let plan =
            plan_commit(core, now, operation, &loaded).map_err(|error| tries.ended(error))?;
        let (txn, prepared) = match plan {
            Plan::Refused(error) => return Err(error),
            Plan::Replayed(output) => {
                // May be this operation's own lost commit, unless another tombstone excludes it.
                let ours = unresolved.filter(|unresolved| !unresolved.is_excluded(&loaded));
                let Some(unresolved) = ours else { return Ok(IdempotentOutcome::Replayed(output)) };
                core.announce(tenant, run, now, unresolved.announcement);
                return Ok(IdempotentOutcome::Executed(output));
            }
            Plan::Commits(commit) => *commit,
        };
        let sent = send(core, io, (tenant, run), txn, counts).await;
        let outcome = sent.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => match prepared {
                Some(prepared) => {
                    core.announce(tenant, run, now, prepared.announcement);
                    return prepared.answer.map(IdempotentOutcome::Executed);
                }
                None => {
                    // A chunk was stored, so the run has no root names yet: skip reading them.
                    registering = true;
                    0
                }
            },
            CommitOutcome::Conflict(conflict) => {
                let lost = conflict.key();
                tries.failed(Some(lost), Quota::has(&lost))?
            }
            CommitOutcome::Unknown => {
                // A lost chunk needs no resolution: the next load shows how many roots are stored.
                unresolved = prepared.map(Prepared::unresolved).or(unresolved);
                tries.failed(None, false)?
            }
        };
        io.pause(ticks).await;
    }
}

/// Commits `txn`; if it `completes` the run, only after all shards were found to be intact.
async fn send(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    txn: Txn,
    completes: bool,
) -> Result<CommitOutcome, InfraError> {
    core.check_fits(&txn)?;
    assert!(!txn.writes().is_empty(), "a commit changes the run");
    assert!(!txn.compares().is_empty(), "a run is changed only as it was loaded");
    if completes {
        // After the decision, so that a refusal or a replay costs no scan. A record that is damaged
        // later was intact when its work was done.
        refuse_damaged(core, io, tenant, run).await?;
    }
    io.commit(txn).await
}

/// The result of a decision.
enum Plan<T: RunTransitionRules> {
    Refused(T::Error),
    Replayed(T::Output),
    /// Without a result if more commits follow.
    Commits(Box<(Txn, Option<Prepared<T>>)>),
}

/// The result to return once a transaction is applied, and the means to recognize that.
struct Prepared<T: RunTransitionRules> {
    mark: Mark,
    answer: Result<T::Output, T::Error>,
    announcement: Announcement,
}

/// The stored value that shows whether a transaction was applied.
enum Mark {
    /// A run with this configuration and creation time. Later operations may change the head at
    /// once.
    Created(RunConfig, LogicalTime),
    Head(Vec<u8>),
    /// Replaces the head for ever.
    Tombstone(Vec<u8>),
}

impl<T: RunTransitionRules> Prepared<T> {
    /// Returns the same for a transaction whose reply was lost.
    fn unresolved(mut self) -> Self {
        self.announcement.note_lost_reply();
        self
    }

    fn is_applied(&self, loaded: &Loaded) -> bool {
        let (stored, written) = match &self.mark {
            Mark::Created(config, at) => {
                let made = |run: &RunRecord| (run.config(), run.created_at()) == (*config, *at);
                return loaded.record.as_ref().is_some_and(made);
            }
            Mark::Head(written) => (&loaded.head, written),
            Mark::Tombstone(written) => (&loaded.tombstone_value, written),
        };
        stored.as_ref().is_some_and(|stored| stored.bytes == *written)
    }

    /// Returns whether another operation's tombstone proves that this one was not applied.
    fn is_excluded(&self, loaded: &Loaded) -> bool {
        matches!(self.mark, Mark::Tombstone(_)) && !self.is_applied(loaded)
    }
}

/// The loaded inputs of an operation on a run.
struct Loaded {
    head: Option<Versioned>,
    record: Option<RunRecord>,
    roots: RootProgress,
    tombstone_value: Option<Versioned>,
    tombstone: Option<Tombstone>,
    quota: Quota,
    active: u64,
    parked: u64,
}

impl Loaded {
    async fn load(
        core: &Core,
        io: &Io,
        (tenant, run): (TenantId, RunId),
        (registering, counts): (bool, bool),
    ) -> Result<Self, InfraError> {
        let [count, allotment] = Quota::keys(tenant);
        let key = Key::Tombstone { tenant, run };
        let mut also = [key, count, allotment].map(Read::Get).to_vec();
        if counts {
            let ranges = [KeyRange::claims_of(tenant, run), KeyRange::parked_of(tenant, run)];
            also.extend(ranges.map(Read::Count));
        }
        let (loaded, mut answers) = load_run(core, io, (tenant, run), registering, also).await?;
        let tombstone_value = answers.value();
        let tombstone = match &tombstone_value {
            Some(value) => Some(decode_tombstone(tenant, run, &value.bytes)?),
            None => None,
        };
        let quota = Quota::take([answers.value(), answers.value()]);
        let (head, record, roots) = match loaded {
            Some(LoadedRun { head, record, roots }) => (Some(head), Some(record), roots),
            None => (None, None, RootProgress::NONE),
        };
        // Shards of an incomplete registration are not visible, so they do not count.
        let (active, parked) = match counts && roots.is_complete() {
            true => (answers.count(), answers.count()),
            false => (0, 0),
        };
        assert!(head.is_some() == record.is_some(), "a run is its head");
        assert!(tombstone.is_some() == tombstone_value.is_some(), "a tombstone is decoded");
        assert!(record.as_ref().is_none_or(|it| it.run() == run), "a record is that of its key");
        Ok(Self { head, record, roots, tombstone_value, tombstone, quota, active, parked })
    }
}

/// A run with the names of its roots, from one snapshot.
pub(super) struct LoadedRun {
    head: Versioned,
    pub(super) record: RunRecord,
    roots: RootProgress,
}

/// Loads a run, and the answers to `also` from the same snapshot. Root names are read as well
/// unless the run is known to be `registering`; its record then names no roots.
///
/// The roots of nearly every run fit in one page. More are read page by page, and again if the head
/// changed meanwhile: they are written and deleted with it.
pub(super) async fn load_run(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    mut registering: bool,
    also: Vec<Read>,
) -> Result<(Option<LoadedRun>, Answers), InfraError> {
    let (limit, all) = (core.limits.page, KeyRange::roots_of(tenant, run));
    assert!(limit > 0, "a page holds at least one key");
    for _ in 0..LOAD_TRIES_MAX {
        let (mut first, mut chunks, mut rest) = (None, Page::new(), Some(all));
        while let Some(range) = rest {
            let scan = (!registering).then_some(Read::Scan { range, limit });
            let reads = [Read::Get(Key::RunHead { tenant, run })].into_iter().chain(scan);
            let mut answers = io.read(reads.chain(also.iter().cloned()).collect()).await?;
            let head = answers.value();
            let page = if registering { Page::new() } else { answers.page() };
            // Roots without a head belong to a deletion that is not finished, so there is no run.
            let Some(head) = head else { return Ok((None, answers)) };
            assert!(page.len() <= limit, "a store respects the page limit");
            let begins = page.first().map(|(key, _)| key);
            assert!(
                begins.is_none() || begins != chunks.last().map(|(key, _)| key),
                "no page is returned twice"
            );
            // The head changed between two pages, so together they are no snapshot: read again.
            if *first.get_or_insert(head.revision) != head.revision {
                break;
            }
            rest = page.last().filter(|_| page.len() >= limit).map(|(key, _)| range.after(key));
            chunks.extend(page);
            let part = decode_run_head(tenant, run, &head.bytes)?;
            // Another handle stored the last chunk, so the record now names roots: read them.
            if registering && part.has_roots() {
                registering = false;
            } else if rest.is_none() {
                return Ok((Some(assemble(head, part, &chunks)?), answers));
            }
        }
    }
    let message = "the run changed whenever it was read".to_owned();
    Err(InfraError::Transient { operation: "run.load", message })
}

/// Builds the run from its `head`, with the roots in `chunks` if registration is complete.
fn assemble(head: Versioned, part: RunHeadPart, chunks: &Page) -> Result<LoadedRun, InfraError> {
    let (roots, mut ids) = (part.roots(), Vec::new());
    for (key, value) in chunks.iter().filter(|_| part.has_roots()) {
        // Chunk numbers are part of the key and of its checksum, so chunks cannot be swapped.
        let Key::RunRoots { tenant, run, chunk } = *key else { continue };
        // A missing chunk leaves too few roots, which `into_record` reports.
        decode_roots(tenant, run, chunk, &value.bytes, &mut ids)?;
    }
    Ok(LoadedRun { head, record: part.into_record(ids)?, roots })
}

/// Decides the operation on the loaded inputs and builds its transaction.
fn plan_commit<T: RunTransitionRules>(
    core: &mut Core,
    now: LogicalTime,
    operation: &T,
    loaded: &Loaded,
) -> Result<Plan<T>, InfraError> {
    let (tenant, _) = operation.subject();
    // The first chunk added all roots to the count, so they must not be counted twice.
    let reserved = loaded.roots.total as usize;
    let seen = RunInputs {
        run: loaded.record.as_ref(),
        tombstone: loaded.tombstone,
        active: loaded.active,
        parked: loaded.parked,
        registered_at: loaded.roots.last_chunk_at,
        quota: loaded.quota.quota(tenant, reserved)?,
    };
    let (change, answer) = match operation.decide(now, &seen) {
        Err(error) => return Ok(Plan::Refused(error)),
        Ok(Decision::Replay(output)) => return Ok(Plan::Replayed(output)),
        Ok(Decision::Commit { change, answer }) => (change, answer),
    };
    let Written { mut txn, mark, last } =
        match write(core, now, operation.subject(), loaded, &change) {
            Ok(written) => written,
            Err(Full::Pool(full)) => return Ok(Plan::Refused(T::exhausted(full))),
            Err(Full::Stored(error)) => return Err(error),
        };
    assert!(last || answer.is_ok(), "only the last commit decides the result");
    let collected = core.events.as_ref().and_then(|_| change.event());
    let event = Lifecycle::of_run(&change).filter(|_| last);
    let stored_by = event.map(|it| core.put_event(&mut txn, operation.subject(), now, it));
    let announcement = Announcement::new(collected, stored_by);
    // A chunk that is not the last has no result: the operation continues with the next one.
    let prepared = last.then_some(Prepared { mark, answer, announcement });
    Ok(Plan::Commits(Box::new((txn, prepared))))
}

/// A transaction on a run.
struct Written {
    txn: Txn,
    mark: Mark,
    /// Whether this transaction completes the operation.
    last: bool,
}

fn write(
    core: &mut Core,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    loaded: &Loaded,
    change: &RunChange<'_>,
) -> Result<Written, Full> {
    let mut txn = Txn::new();
    let head_key = Key::RunHead { tenant, run };
    // By value: after a restore revisions repeat, and the write would take back a raised floor.
    txn.expect_same(head_key, loaded.head.as_ref());
    let (record, roots, last) = match change {
        RunChange::Create(record) => {
            let key = Key::Tombstone { tenant, run };
            assert!(loaded.record.is_none(), "a run that exists is not created");
            // A concurrent deletion leaves a tombstone: without the compare its id would be used
            // again.
            txn.expect(key, loaded.tombstone_value.as_ref());
            (RunRecord::clone(record), RootProgress::NONE, true)
        }
        RunChange::Delete(tombstone) => {
            let (stored, given_back) =
                (loaded.tombstone_value.as_ref(), loaded.roots.never_created());
            let counts = (&loaded.quota, given_back);
            let mark =
                Mark::Tombstone(put_tombstone(&mut txn, (tenant, run), tombstone, stored, counts)?);
            // A run without roots may have events, and `gc` finds an interrupted purge by the root
            // names. A collection has purged the run before.
            if loaded.roots.chunks == 0 && tombstone.op_id != COLLECTION_DELETES {
                put_purge_mark(&mut txn, (tenant, run));
            }
            return Ok(Written { txn, mark, last: true });
        }
        RunChange::Activate { registration, roots } => {
            let (part, progress) = register(core, &mut txn, now, loaded, *registration, *roots)?;
            (part, progress, progress.is_complete())
        }
        RunChange::End { status, .. } => {
            assert!(status.is_terminal(), "a run ends in a terminal status");
            if *status == RunStatus::Done {
                assert!(loaded.roots.is_complete(), "a run without its shards is not done");
                assert!((loaded.active, loaded.parked) == (0, 0), "no shard of a done run is left");
                // An unpark or a split may be committed after the count was loaded.
                txn.expect_empty(KeyRange::claims_of(tenant, run));
                txn.expect_empty(KeyRange::parked_of(tenant, run));
            }
            (evolved(loaded, change), loaded.roots, true)
        }
        RunChange::Pause { .. } | RunChange::RaiseFloor { .. } => {
            (evolved(loaded, change), loaded.roots, true)
        }
    };
    assert!((record.tenant(), record.run()) == (tenant, run), "the record is that of the key");
    assert!(roots.registered >= loaded.roots.registered, "stored roots are never lost");
    assert!(
        last || matches!(change, RunChange::Activate { .. }),
        "only a registration takes several commits"
    );
    let head = encoded(|out| encode_run_head(&record, roots, out));
    txn.put(head_key, head.clone());
    let mark = match change {
        RunChange::Create(record) => Mark::Created(record.config(), record.created_at()),
        RunChange::Activate { .. }
        | RunChange::End { .. }
        | RunChange::Pause { .. }
        | RunChange::RaiseFloor { .. }
        | RunChange::Delete(_) => Mark::Head(head),
    };
    Ok(Written { txn, mark, last })
}

fn evolved(loaded: &Loaded, change: &RunChange<'_>) -> RunRecord {
    let mut record = loaded.record.clone().expect("an operation on a missing run is refused");
    let (status, floor) = (record.status(), record.fence_floor());
    evolve_run(&mut record, change);
    assert!(record.fence_floor() >= floor, "the fence floor of a run never falls");
    assert!(
        record.status() == status || status.may_become(record.status()),
        "a run changes its status in the documented order"
    );
    record
}

/// Replaces the head by the tombstone, and returns the tombstone's bytes. Reserved shards that were
/// `never_created` are subtracted from the count here; created ones when they are deleted.
pub(super) fn put_tombstone(
    txn: &mut Txn,
    (tenant, run): (TenantId, RunId),
    tombstone: &Tombstone,
    stored: Option<&Versioned>,
    (quota, never_created): (&Quota, u64),
) -> Result<Vec<u8>, InfraError> {
    let key = Key::Tombstone { tenant, run };
    txn.expect(key, stored);
    txn.delete(Key::RunHead { tenant, run });
    let bytes = encoded(|out| encode_tombstone(tenant, run, tombstone, out));
    txn.put(key, bytes.clone());
    if never_created > 0 {
        quota.change(txn, tenant, 0, never_created)?;
    }
    Ok(bytes)
}

/// Adds root names to the deletion of a run that has none: they mark an unfinished purge. Their
/// content does not matter.
pub(super) fn put_purge_mark(txn: &mut Txn, (tenant, run): (TenantId, RunId)) {
    let any = [ShardId::from_raw(0)];
    let names = encoded(|out| encode_roots(tenant, run, 0, &any, out));
    txn.put(Key::RunRoots { tenant, run, chunk: 0 }, names);
}

/// Adds the next chunk of a registration, and returns the changed run and its progress.
fn register(
    core: &mut Core,
    txn: &mut Txn,
    now: LogicalTime,
    loaded: &Loaded,
    registration: Registration,
    roots: Roots<'_>,
) -> Result<(RunRecord, RootProgress), Full> {
    let mut record = loaded.record.clone().expect("an operation on a missing run is refused");
    let (tenant, run) = (record.tenant(), record.run());
    let before = loaded.roots;
    assert!(record.status() == RunStatus::Initializing, "an active run has all its roots");
    assert!(!before.is_complete(), "a complete registration has no next chunk");
    assert!(before.total == 0 || before.total as usize == roots.count(), "the manifest is fixed");
    // The first chunk reserves the quota for all chunks, so a later one cannot be refused for it.
    if before.total == 0 {
        loaded.quota.change(txn, tenant, roots.count() as u64, 0)?;
    }
    let owner = Arc::new(tenant);
    let mut ids: Vec<ShardId> = Vec::new();
    for new in roots.new_shards().skip(before.registered as usize) {
        // At least one shard per chunk, or a shard that exceeds the limit would loop for ever.
        if !ids.is_empty() && !fits(core, txn, &ids, &new) {
            break;
        }
        core.add_shard(txn, &owner, run, &new)?;
        ids.push(new.shard);
    }
    assert!(!ids.is_empty(), "each chunk makes progress");
    let chunk = before.chunks;
    txn.put(
        Key::RunRoots { tenant, run, chunk },
        encoded(|out| encode_roots(tenant, run, chunk, &ids, out)),
    );
    let small = |count: usize| u32::try_from(count).expect("a manifest bounds the number of roots");
    let progress = RootProgress {
        total: small(roots.count()),
        registered: before.registered + small(ids.len()),
        chunks: chunk + 1,
        // Never decreases, even if another machine's clock is ahead of this one.
        last_chunk_at: now.max(record.created_at()).max(before.last_chunk_at),
    };
    assert!(progress.registered <= progress.total, "a chunk stores no more than was reserved");
    assert!(progress.last_chunk_at >= before.last_chunk_at, "the time of a chunk never falls");
    if progress.is_complete() {
        evolve_run(&mut record, &RunChange::Activate { registration, roots });
        assert!(record.status() == RunStatus::Active, "the last chunk activates the run");
    } else {
        // Fixes the operation, so that only a registration of the same shards can continue.
        record.registration = Some(record.registration.unwrap_or(registration));
        assert!(record.status() == RunStatus::Initializing, "shards are not found before the end");
    }
    Ok((record, progress))
}

/// Returns whether another new shard fits into the chunk, including the writes that follow.
fn fits(core: &Core, txn: &Txn, ids: &[ShardId], new: &NewShard<'_>) -> bool {
    let (spec, cursor) = (new.spec, new.cursor);
    let variable = spec.start.len()
        + spec.end.len()
        + spec.metadata.len()
        + cursor.last_key().map_or(0, <[u8]>::len)
        + cursor.token().map_or(0, <[u8]>::len);
    let names = (ids.len() + 1) * size_of::<u64>();
    let bytes = txn.byte_count() + SHARD_OVERHEAD + variable + CHUNK_OVERHEAD + names;
    let ops = txn.op_count() + NEW_SHARD_WRITES + CHUNK_WRITES;
    ops <= core.limits.txn_ops && bytes <= core.limits.txn_bytes
}
