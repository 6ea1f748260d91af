//! Deletion of runs: readable ones by the ordinary rules, damaged ones by an explicit request.
//!
//! An ordinary deletion refuses a damaged run. Conversely, a readable run is always deleted by the
//! ordinary rules, and a run of a newer format is left to a newer program. For a damaged run
//! nothing is known but its existence, so it is deleted whatever its status: the tombstone replaces
//! the head, and `purge` deletes the rest, as for any run. The keys of the root names mark an
//! interrupted purge, whatever their values.
//!
//! Damage is a property of a record, never an error of the engine, and several reads must return
//! the same damage.
//!
//! The commit compares the damaged head. Root names are written and deleted with the head, so names
//! read while it existed belong to it.
//!
//! # Quota
//! Created shards are subtracted from the count when they are deleted. The number of reserved
//! shards that were never created is known only from the head; if that is unreadable, it is the
//! part of the tenant's count that nothing else accounts for. If a second head of the tenant is
//! damaged, the remainder is subtracted with that one.

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::codec::{decode_run_head, refuse_newer};
use super::core::Core;
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::{Key, KeyKind};
use super::purge;
use super::quota::Quota;
use super::range::KeyRange;
use super::run_flight::{self, load_run, put_purge_mark, put_tombstone};
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::{InfraError, StoreRefusal};
use crate::outcome::IdempotentOutcome;
use crate::protocol::{DeleteRun, RunChange, Tombstone};
use crate::run_errors::DeleteRunError;

/// Maximum recounts of a tenant's shards because of concurrent registrations.
const COUNT_TRIES_MAX: usize = 8;

/// Number of reads that must return the same damage. A network or server fault does not repeat with
/// the same bytes, and an intact run must not be deleted because of one.
pub(super) const READS: usize = 3;

/// Wait between two reads, in ticks.
pub(super) const READ_INTERVAL_TICKS: u64 = 16;

const _: () = assert!(READS > 1 && READ_INTERVAL_TICKS > 0, "damage is confirmed by a later read");
const _: () = assert!(COUNT_TRIES_MAX > 1, "one concurrent registration does not fail a deletion");

/// Deletes a run and its shards by the ordinary rules.
pub(super) async fn delete(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: DeleteRun,
) -> Result<IdempotentOutcome<()>, DeleteRunError> {
    let DeleteRun { tenant, run, .. } = operation;
    // Before the head is deleted: a purge that stops at a newer record would leave a partial run.
    purge::refuse_newer_shards(core, io, tenant, run).await?;
    let deleted = run_flight::fly(core, io, now, &operation, false).await?;
    purge::purge(core, io, tenant, run).await?;
    Ok(deleted)
}

/// Deletes a run with a damaged record, and its shards; a readable run by the ordinary rules.
pub(super) async fn delete_damaged(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: DeleteRun,
) -> Result<IdempotentOutcome<()>, DeleteRunError> {
    let DeleteRun { tenant, run, .. } = operation;
    core.assert_collector_serves(tenant);
    let tombstone = operation.decide_damaged(now);
    let mut tries = core.tries("delete_damaged.commit");
    // Kept after a lost reply: the same bytes in the store prove that our tombstone was stored, not
    // another deletion's.
    let mut unresolved: Option<Vec<u8>> = None;
    loop {
        let found = Found::confirm(core, io, tenant, run).await;
        let found = found.map_err(|error| tries.ended(error))?;
        // Our tombstone is stored, so the lost commit was applied: continue with the purge.
        if unresolved.take_if(|ours| found.is_deleted_by(ours)).is_some() {
            assert!(found.tombstone.is_some(), "a deleted run has a tombstone");
            break;
        }
        let Some(head) = &found.damaged else {
            // A deletion whose reply was lost may still be applied.
            return match unresolved {
                Some(_) => Err(tries.ended(reads_differ()).into()),
                None => delete(core, io, now, operation).await,
            };
        };
        let prepared = found.delete_txn(core, io, head, (tenant, run), &tombstone).await;
        let (txn, tombstone_bytes) = prepared.map_err(|error| tries.ended(error))?;
        assert!(!tombstone_bytes.is_empty(), "a tombstone replaces the head");
        assert!(txn.writes().len() > 1, "the head is deleted with its tombstone");
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => break,
            CommitOutcome::Conflict(conflict) => {
                let lost = conflict.key();
                tries.failed(Some(lost), Quota::has(&lost))?
            }
            CommitOutcome::Unknown => {
                unresolved = Some(tombstone_bytes);
                tries.failed(None, false)?
            }
        };
        io.pause(ticks).await;
    }
    // Before the purge: the run is deleted with its head, even if the purge fails.
    core.emit(tenant, run, now, RunChange::Delete(tombstone).event());
    purge::purge(core, io, tenant, run).await?;
    Ok(IdempotentOutcome::Executed(()))
}

/// The stored records of a run.
struct Found {
    /// The head, if it or the roots are damaged.
    damaged: Option<Versioned>,
    tombstone: Option<Versioned>,
    quota: Quota,
    /// Whether any chunk of root names exists.
    has_names: bool,
}

impl Found {
    /// Reads until damage is confirmed or absent.
    async fn confirm(
        core: &Core,
        io: &Io,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, InfraError> {
        let mut found = Self::read_once(core, io, tenant, run).await?;
        // The head is compared as a whole: damage by the network differs from read to read.
        for _ in 1..READS {
            let Some(head) = found.damaged else { break };
            io.pause(READ_INTERVAL_TICKS).await;
            found = Self::read_once(core, io, tenant, run).await?;
            if found.damaged.as_ref().is_some_and(|again| *again != head) {
                return Err(reads_differ());
            }
        }
        if let Some(head) = &found.damaged {
            // An intact record of a newer format cannot be decoded either, but it is not damaged.
            refuse_newer(&Key::RunHead { tenant, run }, &head.bytes)?;
            for range in [KeyRange::roots_of(tenant, run), KeyRange::hot_shards_of(tenant, run)] {
                purge::refuse_newer_within(core, io, range).await?;
            }
        }
        Ok(found)
    }

    /// Reads the records once.
    async fn read_once(
        core: &Core,
        io: &Io,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, InfraError> {
        let (key, tombstone_key) = (Key::RunHead { tenant, run }, Key::Tombstone { tenant, run });
        let mut reads = [key, tombstone_key, Key::TenantCounter { tenant }].map(Read::Get).to_vec();
        reads.push(Read::Count(KeyRange::roots_of(tenant, run)));
        let mut answers = io.read(reads).await?;
        let (head, tombstone) = (answers.value(), answers.value());
        let quota = Quota { count: answers.value(), allotment: None };
        let has_names = answers.count() > 0;
        answers.assert_used();
        let damaged = match head {
            Some(head) => is_damaged(core, io, (tenant, run), &head).await?.then_some(head),
            None => None,
        };
        Ok(Self { damaged, tombstone, quota, has_names })
    }

    /// Returns the transaction that deletes the run with the damaged `head` or roots.
    async fn delete_txn(
        &self,
        core: &Core,
        io: &Io,
        head: &Versioned,
        (tenant, run): (TenantId, RunId),
        tombstone: &Tombstone,
    ) -> Result<(Txn, Vec<u8>), InfraError> {
        assert!(self.damaged.as_ref() == Some(head), "only a damaged run is deleted without rules");
        // Without a readable head the reservation is the part of the count that nothing explains.
        let counted;
        let (quota, never_created) = match decode_run_head(tenant, run, &head.bytes) {
            Ok(part) => (&self.quota, part.roots().never_created()),
            Err(_) => {
                counted = unaccounted(core, io, tenant, run).await?;
                (&counted.0, counted.1)
            }
        };
        let mut txn = Txn::new();
        // A repaired or replaced head must not be deleted as damaged.
        txn.expect_same(Key::RunHead { tenant, run }, Some(head));
        let stored = self.tombstone.as_ref();
        let bytes =
            put_tombstone(&mut txn, (tenant, run), tombstone, stored, (quota, never_created))?;
        if !self.has_names {
            // `gc` finds an interrupted purge by the root names; their content does not matter.
            put_purge_mark(&mut txn, (tenant, run));
        }
        Ok((txn, bytes))
    }

    fn is_deleted_by(&self, tombstone: &[u8]) -> bool {
        self.tombstone.as_ref().is_some_and(|stored| stored.bytes == tombstone)
    }
}

/// Returns whether the records of the run with this `head` cannot be decoded.
async fn is_damaged(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    head: &Versioned,
) -> Result<bool, InfraError> {
    let Err(error) = load_run(core, io, (tenant, run), false, Vec::new()).await else {
        return Ok(false);
    };
    assert!(!error.is_unresolved(), "a load commits nothing");
    // A value that claims a newer format but has a wrong checksum is damaged, too.
    let is_newer = matches!(&error, InfraError::Refused { why: StoreRefusal::NewerFormat, .. });
    if !error.is_of_record() && !is_newer {
        return Err(error);
    }
    let is_of_head = is_about(&error, KeyKind::RunHead);
    // The head decodes in one read and not in the other: a transient fault, not damage.
    if is_of_head && decode_run_head(tenant, run, &head.bytes).is_ok() {
        return Err(reads_differ());
    }
    Ok(true)
}

fn is_about(error: &InfraError, kind: KeyKind) -> bool {
    match error {
        InfraError::Corruption { operation, .. }
        | InfraError::Refused { operation, .. }
        | InfraError::Transient { operation, .. } => *operation == kind.decoding(),
        InfraError::Unresolved { cause } => is_about(cause, kind),
    }
}

/// The error for a record that two reads returned differently.
fn reads_differ() -> InfraError {
    let message = "two reads of a damaged record differ".to_owned();
    InfraError::Transient { operation: "delete_damaged.load", message }
}

/// Returns the tenant's count, and how many of its shards were neither created nor reserved by
/// another run than `lost`; zero if another head is unreadable.
///
/// Heads that do not fit in one page are not read in one snapshot. But a reservation, or its
/// release, changes the counter, and the creation of reserved shards changes their number: while
/// both stay the same, so do the reservations.
async fn unaccounted(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    lost: RunId,
) -> Result<(Quota, u64), InfraError> {
    let limit = core.limits.page;
    assert!(limit > 0, "a page holds at least one key");
    for _ in 0..COUNT_TRIES_MAX {
        let (mut first, mut reserved) = (None, 0);
        let mut rest = Some(KeyRange::runs_of(tenant));
        while let Some(range) = rest {
            let created = Read::Count(KeyRange::all_hot_shards_of(tenant));
            let count = Read::Get(Key::TenantCounter { tenant });
            let mut answers = io.read(vec![Read::Scan { range, limit }, created, count]).await?;
            let (page, created) = (answers.page(), answers.count());
            let quota = Quota { count: answers.value(), allotment: None };
            answers.assert_used();
            assert!(page.len() <= limit, "a store respects the page limit");
            let snapshot = (created, quota.count.as_ref().map(|count| count.revision));
            // A registration or purge ran between two pages, so the sums do not match: count again.
            if *first.get_or_insert(snapshot) != snapshot {
                break;
            }
            let Some(more) = reserved_by_others(tenant, lost, &page) else {
                return Ok((quota, 0));
            };
            reserved += more;
            rest = page.last().filter(|_| page.len() >= limit).map(|(key, _)| range.after(key));
            if rest.is_none() {
                let counted = quota.used(tenant)?;
                return Ok((quota, counted.saturating_sub(created + reserved)));
            }
        }
    }
    let message = "shards were created during every count".to_owned();
    Err(InfraError::Transient { operation: "delete_damaged.count", message })
}

/// Returns the shards that runs in `page` other than `lost` have reserved and not created; `None`
/// if a head is unreadable.
fn reserved_by_others(tenant: TenantId, lost: RunId, page: &Page) -> Option<u64> {
    let mut reserved = 0;
    for (key, value) in page {
        let Key::RunHead { run, .. } = *key else { continue };
        if run != lost {
            reserved += decode_run_head(tenant, run, &value.bytes).ok()?.roots().never_created();
        }
    }
    Some(reserved)
}
