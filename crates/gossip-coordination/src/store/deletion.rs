//! Deleting runs: those that can be read by the ordinary rules, and those whose head or list of
//! roots is damaged by name.
//!
//! A damaged run never goes by an ordinary deletion. To one that can be read the ordinary rules
//! apply however it is asked for, and one of a newer format is left to a newer program. In between
//! nothing is known of the run but that it is there, so it goes whatever it was: the tombstone
//! takes the place of the head, and then `purge` takes the rest away, as for any other. The names
//! of the roots mark a sweep that broke off by their keys, whatever they say.
//!
//! Damage is what a record says, and never an error of the engine; and it must be shown several
//! times, the same each time.
//!
//! The commit compares the head that was found damaged. Names of roots are written and deleted with
//! the head, so what was read of them while it stood is of that head, too.
//!
//! # What is given back
//! Shards that were made are given back when they are taken away. How many were reserved and never
//! made only the head says; if it does not, they are what the tenant's count has and nothing else
//! accounts for. If a second head of the tenant is damaged, the rest is given back with that one.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId};

use super::codec::{decode_run_head, encode_roots, refuse_newer};
use super::core::{Core, encoded};
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::{Key, KeyKind};
use super::purge;
use super::quota::Quota;
use super::range::KeyRange;
use super::run_flight::{self, bury, load_run};
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::{InfraError, StoreRefusal};
use crate::outcome::IdempotentOutcome;
use crate::protocol::{DeleteRun, RunChange, Tombstone};
use crate::run_errors::DeleteRunError;

/// How often the runs of a tenant are counted again, because shards were made meanwhile.
const COUNT_TRIES_MAX: usize = 8;

/// Looks that must show the same damage before it is believed. What a wire or a server spoilt once
/// is not shown the same again, and a run that is whole must not go by it.
const LOOKS: usize = 3;

/// Between two looks, in ticks.
const LOOK_TICKS: u64 = 16;

/// Deletes a run by the ordinary rules, with its shards.
pub(super) async fn delete(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: DeleteRun,
) -> Result<IdempotentOutcome<()>, DeleteRunError> {
    let DeleteRun { tenant, run, .. } = operation;
    purge::refuse_newer_shards(core, io, tenant, run).await?;
    let deleted = run_flight::fly(core, io, now, &operation, false).await?;
    purge::purge(core, io, tenant, run).await?;
    Ok(deleted)
}

/// Deletes a run whose record is damaged, with its shards; one that is not by the ordinary rules.
pub(super) async fn delete_damaged(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: DeleteRun,
) -> Result<IdempotentOutcome<()>, DeleteRunError> {
    let DeleteRun { tenant, run, .. } = operation;
    let tombstone = operation.decide_damaged(now);
    let mut tries = core.tries("delete_damaged.commit");
    let mut unresolved: Option<Vec<u8>> = None;
    loop {
        let found = Found::look(core, io, tenant, run).await;
        let found = found.map_err(|error| tries.ended(error))?;
        if unresolved.take_if(|ours| found.is_buried_by(ours)).is_some() {
            break;
        }
        let Some(head) = &found.damaged else {
            // A burial whose reply was lost may still come.
            return match unresolved {
                Some(_) => Err(tries.ended(shown_otherwise()).into()),
                None => delete(core, io, now, operation).await,
            };
        };
        let burial = found.bury(core, io, head, (tenant, run), &tombstone).await;
        let (txn, grave) = burial.map_err(|error| tries.ended(error))?;
        let outcome = io.commit(txn).await.map_err(|error| tries.ended(error))?;
        let ticks = match outcome {
            CommitOutcome::Applied { .. } => break,
            CommitOutcome::Conflict(conflict) => {
                let lost = conflict.key();
                tries.failed(Some(lost), Quota::has(&lost))?
            }
            CommitOutcome::Unknown => {
                unresolved = Some(grave);
                tries.failed(None, false)?
            }
        };
        io.pause(ticks).await;
    }
    core.emit(tenant, run, now, RunChange::Delete(tombstone).event());
    purge::purge(core, io, tenant, run).await?;
    Ok(IdempotentOutcome::Executed(()))
}

/// What there is of a run.
struct Found {
    /// The head, if it or the roots cannot be read.
    damaged: Option<Versioned>,
    tombstone: Option<Versioned>,
    quota: Quota,
    /// Whether the names of roots, or some of them, are there.
    has_names: bool,
}

impl Found {
    /// Looks until damage was shown often enough, or is not there.
    async fn look(core: &Core, io: &Io, tenant: TenantId, run: RunId) -> Result<Self, InfraError> {
        let mut found = Self::probe(core, io, tenant, run).await?;
        for _ in 1..LOOKS {
            let Some(head) = found.damaged else { break };
            io.pause(LOOK_TICKS).await;
            found = Self::probe(core, io, tenant, run).await?;
            if found.damaged.as_ref().is_some_and(|again| *again != head) {
                return Err(shown_otherwise());
            }
        }
        if let Some(head) = &found.damaged {
            refuse_newer(&Key::RunHead { tenant, run }, &head.bytes)?;
            for range in [KeyRange::roots_of(tenant, run), KeyRange::hot_shards_of(tenant, run)] {
                purge::refuse_newer_within(core, io, range).await?;
            }
        }
        Ok(found)
    }

    /// What there is, as one look shows it.
    async fn probe(core: &Core, io: &Io, tenant: TenantId, run: RunId) -> Result<Self, InfraError> {
        let (key, grave) = (Key::RunHead { tenant, run }, Key::Tombstone { tenant, run });
        let mut reads = [key, grave, Key::TenantCounter { tenant }].map(Read::Get).to_vec();
        reads.push(Read::Count(KeyRange::roots_of(tenant, run)));
        let mut answers = io.read(reads).await?;
        let (head, tombstone) = (answers.value(), answers.value());
        let quota = Quota { count: answers.value(), allotment: None };
        let has_names = answers.count() > 0;
        let damaged = match head {
            Some(head) => is_damaged(core, io, (tenant, run), &head).await?.then_some(head),
            None => None,
        };
        Ok(Self { damaged, tombstone, quota, has_names })
    }

    /// The transaction that buries the run whose `head` is damaged, or whose roots are.
    async fn bury(
        &self,
        core: &Core,
        io: &Io,
        head: &Versioned,
        (tenant, run): (TenantId, RunId),
        tombstone: &Tombstone,
    ) -> Result<(Txn, Vec<u8>), InfraError> {
        let counted;
        let (quota, never_made) = match decode_run_head(tenant, run, &head.bytes) {
            Ok(part) => (&self.quota, part.roots().never_made()),
            Err(_) => {
                counted = unaccounted(core, io, tenant, run).await?;
                (&counted.0, counted.1)
            }
        };
        let mut txn = Txn::new();
        txn.expect(Key::RunHead { tenant, run }, Some(head));
        let grave = self.tombstone.as_ref();
        let bytes = bury(&mut txn, (tenant, run), tombstone, grave, (quota, never_made))?;
        if !self.has_names {
            // They are how a sweep that breaks off is found; what they name does not matter then.
            let any = [ShardId::from_raw(0)];
            let names = encoded(|out| encode_roots(tenant, run, 0, &any, out));
            txn.put(Key::RunRoots { tenant, run, chunk: 0 }, names);
        }
        Ok((txn, bytes))
    }

    fn is_buried_by(&self, tombstone: &[u8]) -> bool {
        self.tombstone.as_ref().is_some_and(|stored| stored.bytes == tombstone)
    }
}

/// Whether the run whose head is `head` cannot be read by what its records say.
async fn is_damaged(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    head: &Versioned,
) -> Result<bool, InfraError> {
    let Err(error) = load_run(core, io, (tenant, run), false, Vec::new()).await else {
        return Ok(false);
    };
    // What only says that it is newer is damaged, too.
    let is_newer = matches!(&error, InfraError::Refused { why: StoreRefusal::NewerFormat, .. });
    if !error.is_of_record() && !is_newer {
        return Err(error);
    }
    let is_of_head = is_about(&error, KeyKind::RunHead);
    if is_of_head && decode_run_head(tenant, run, &head.bytes).is_ok() {
        return Err(shown_otherwise());
    }
    Ok(true)
}

fn is_about(error: &InfraError, kind: KeyKind) -> bool {
    match error {
        InfraError::Corruption { operation, .. }
        | InfraError::Refused { operation, .. }
        | InfraError::Transient { operation, .. } => *operation == kind.decoding(),
    }
}

/// The store shows a record once so and once otherwise.
fn shown_otherwise() -> InfraError {
    let message = "a record was damaged in one look and otherwise in the next".to_owned();
    InfraError::Transient { operation: "delete_damaged.load", message }
}

/// Shards that count for the tenant, that were not made, and that no run but `lost` has reserved;
/// none if another run does not say how many it has. And the count of that instant.
///
/// Runs that do not fit in one page are not read at one instant. But who reserves shards, or gives
/// some back, changes the counter, and who makes reserved ones only adds shards: while both stay
/// the same, so do the reservations.
async fn unaccounted(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    lost: RunId,
) -> Result<(Quota, u64), InfraError> {
    let limit = core.limits.page;
    for _ in 0..COUNT_TRIES_MAX {
        let (mut first, mut reserved) = (None, 0);
        let mut rest = Some(KeyRange::runs_of(tenant));
        while let Some(range) = rest {
            let made = Read::Count(KeyRange::all_hot_shards_of(tenant));
            let count = Read::Get(Key::TenantCounter { tenant });
            let mut answers = io.read(vec![Read::Scan { range, limit }, made, count]).await?;
            let (page, made) = (answers.page(), answers.count());
            let quota = Quota { count: answers.value(), allotment: None };
            let seen = (made, quota.count.as_ref().map(|count| count.revision));
            if *first.get_or_insert(seen) != seen {
                break;
            }
            let Some(more) = reserved_by_others(tenant, lost, &page) else {
                return Ok((quota, 0));
            };
            reserved += more;
            rest = page.last().filter(|_| page.len() >= limit).map(|(key, _)| range.after(key));
            if rest.is_none() {
                let counted = quota.used(tenant)?;
                return Ok((quota, counted.saturating_sub(made + reserved)));
            }
        }
    }
    let message = "shards were made whenever they were counted".to_owned();
    Err(InfraError::Transient { operation: "delete_damaged.count", message })
}

/// Shards that runs in `page` have reserved and not made, `lost` apart; `None` if one cannot be
/// read.
fn reserved_by_others(tenant: TenantId, lost: RunId, page: &Page) -> Option<u64> {
    let mut reserved = 0;
    for (key, value) in page {
        let Key::RunHead { run, .. } = *key else { continue };
        if run != lost {
            reserved += decode_run_head(tenant, run, &value.bytes).ok()?.roots().never_made();
        }
    }
    Some(reserved)
}
