//! Looking after a tenant's runs: which of them are not over, and those that were given up.
//!
//! A collection cancels the run, takes away what was registered of it, and deletes it, in this
//! order: as long as there is anything left, the run is there too, and whoever collects next goes
//! on with it.

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::codec::{RunHeadPart, decode_run_head};
use super::core::Core;
use super::engine::Read;
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::{run_flight, sweep};
use crate::error::InfraError;
use crate::protocol::{COLLECTION_DELETES, CollectRun, DeleteRun, NotCollected};
use crate::run_errors::DeleteRunError;

/// Which runs a listing wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsListed {
    NotOver,
    All,
}

/// Appends up to `limit` runs behind `after`, in the order of their ids.
pub(super) async fn list_runs(
    core: &Core,
    io: &Io,
    which: RunsListed,
    (tenant, after): (TenantId, Option<RunId>),
    limit: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let mut pages = Pages::new(core, tenant, after);
    let wanted = out.len().saturating_add(limit);
    while let Some(heads) = pages.next(io).await? {
        let listed = heads.iter().filter(|(_, head)| match which {
            RunsListed::NotOver => !head.head().status.is_terminal(),
            RunsListed::All => true,
        });
        out.extend(listed.map(|(run, _)| *run).take(wanted - out.len()));
        if out.len() >= wanted {
            break;
        }
    }
    Ok(())
}

/// Collects up to `limit` runs that were given up, and appends those to `out`.
pub(super) async fn collect(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, stale_after): (TenantId, u64),
    limit: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let mut pages = Pages::new(core, tenant, None);
    let wanted = out.len().saturating_add(limit);
    while let Some(heads) = pages.next(io).await? {
        for (run, head) in heads {
            if out.len() >= wanted {
                return Ok(());
            }
            let operation = CollectRun { tenant, run, stale_after };
            let applies = operation.applies(now, head.rootless(), head.roots().last_chunk_at);
            if applies && collect_one(core, io, now, operation).await? {
                out.push(run);
            }
        }
    }
    Ok(())
}

/// Answers whether this was the collection that took the run away.
async fn collect_one(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: CollectRun,
) -> Result<bool, InfraError> {
    match run_flight::fly(core, io, now, &operation, false).await {
        Ok(_) => {}
        Err(NotCollected::NotStale) => return Ok(false),
        Err(NotCollected::Stored(error)) => return Err(error),
    }
    let CollectRun { tenant, run, .. } = operation;
    sweep::sweep(core, io, tenant, run).await?;
    let delete = DeleteRun { tenant, run, op_id: COLLECTION_DELETES };
    match run_flight::fly(core, io, now, &delete, false).await {
        Ok(deleted) => Ok(deleted.is_executed()),
        Err(DeleteRunError::BackendError(error)) => Err(error),
        // Somebody else was faster.
        Err(
            DeleteRunError::RunNotFound
            | DeleteRunError::TenantMismatch { .. }
            | DeleteRunError::NotTerminal { .. }
            | DeleteRunError::OpIdConflict(_),
        ) => Ok(false),
    }
}

/// The heads of a tenant's runs, page by page.
struct Pages {
    tenant: TenantId,
    /// What is still to be read.
    rest: Option<KeyRange>,
    limit: usize,
}

impl Pages {
    fn new(core: &Core, tenant: TenantId, after: Option<RunId>) -> Self {
        let all = KeyRange::runs_of(tenant);
        let rest = after.map_or(all, |run| all.after(&Key::RunHead { tenant, run }));
        Self { tenant, rest: Some(rest), limit: core.limits.page }
    }

    async fn next(&mut self, io: &Io) -> Result<Option<Vec<(RunId, RunHeadPart)>>, InfraError> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let page = io.read(vec![Read::Scan { range, limit: self.limit }]).await?.page();
        let full = page.last().filter(|_| page.len() >= self.limit);
        self.rest = full.map(|(key, _)| range.after(key));
        let mut heads = Vec::with_capacity(page.len());
        for (key, value) in &page {
            let Key::RunHead { run, .. } = *key else { continue };
            heads.push((run, decode_run_head(self.tenant, run, &value.bytes)?));
        }
        Ok(Some(heads))
    }
}
