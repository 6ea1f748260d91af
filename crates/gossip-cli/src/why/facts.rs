//! What `why` knows: records of the store, the source, and the disk.

use std::os::unix::ffi::OsStrExt as _;

use gossip::connector::ConnectorError;
use gossip::coordination::store::{TenantUsage, fly, fresh_nonce, load_tenant_usage};
use gossip::coordination::{RunManagement as _, RunRecord, ShardFilter, ShardSummary, WorkerEntry};
use gossip::handoff::lease_handoff::{MoveOutcome, MoveTerms};
use gossip::handoff::{IN_PROGRESS_PAGE, Repository as _, StoreRepository};
use gossip::identity::{LogicalTime, RunId, ShardId, TenantId, WorkerId};
use gossip::runtime::{Clock as _, Host as _, Job, Presence, SystemClock, SystemHost, worker_of};
use gossip::store::{Backend, StoreUrl};

use crate::doctor::Space;
use crate::failed::{self, ShownItem};
use crate::failure::Failure;
use crate::items::RunItems;
use crate::sources;
use crate::{listing, progress, runs};

/// Pages of handoffs that are read to find one of this run; more are not in progress at a time.
const HANDOFF_PAGES: usize = 16;

/// Everything that an answer may need.
pub(super) struct Facts {
    pub(super) run: RunId,
    pub(super) record: RunRecord,
    pub(super) rows: Vec<ShardSummary>,
    pub(super) job: Option<Job>,
    /// Items that failed or were not read.
    pub(super) failures: Vec<ShownItem>,
    pub(super) items: RunItems,
    /// The registry, expired entries included.
    pub(super) entries: Vec<WorkerEntry>,
    pub(super) handoffs: Vec<MoveTerms>,
    pub(super) usage: Option<TenantUsage>,
    pub(super) source: SourceState,
    /// Of the file system of a store that is a file.
    pub(super) space: Option<Space>,
    pub(super) now: LogicalTime,
}

/// The source of the run, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceState {
    Here,
    /// With the reason.
    Missing(String),
    Changed,
    /// The run was not created by `exec`.
    Unknown,
}

impl Facts {
    /// Reads the facts. Only a run that cannot be read at all is an error.
    pub(super) fn gather(
        backend: &Backend,
        url: &StoreUrl,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, Failure> {
        let coordinator = &mut backend.coordinator();
        let record =
            coordinator.get_run(tenant, run).map_err(|error| runs::not_found(run, &error))?;
        let mut rows = runs::rows(coordinator, tenant, run, ShardFilter::all())?;
        // Only this listing has the texts with which shards were parked.
        for parked in runs::rows(coordinator, tenant, run, ShardFilter::parked())? {
            if let Some(row) = rows.iter_mut().find(|row| row.shard == parked.shard) {
                row.park_context = parked.park_context;
            }
        }
        let job = runs::stored_job(&rows);
        let (failures, items) = failed::failed_items(coordinator, tenant, run)?;
        let mut entries = Vec::new();
        // The registry is advisory; without it workers have no names.
        drop(coordinator.list_workers_into(LogicalTime::ZERO, tenant, &mut entries));
        // Optional: an answer from fewer facts is better than none.
        let usage = fly(&mut backend.store(), load_tenant_usage(tenant)).ok();
        let records = StoreRepository::new(backend.store(), tenant, fresh_nonce());
        let handoffs = handoffs(records, run, &rows);
        let source = job.as_ref().map_or(SourceState::Unknown, source_state);
        let space = match url {
            StoreUrl::Sqlite { path, .. } => Space::at(path),
            _ => None,
        };
        let now = SystemClock::new().now();
        Ok(Self {
            run,
            record,
            rows,
            job,
            failures,
            items,
            entries,
            handoffs,
            usage,
            source,
            space,
            now,
        })
    }

    pub(super) fn id(&self) -> String {
        format!("{:016x}", self.run.as_raw())
    }

    /// Returns the command that lets a failed item be tried again.
    pub(super) fn retry(&self, item: &ShownItem) -> String {
        let name = self.items.short(&item.name);
        // A name that begins with a hyphen would be taken for an option.
        let end = if name.starts_with('-') { "-- " } else { "" };
        format!("gossip retry {} {end}{}", self.id(), listing::typed(&[name.into()]))
    }

    pub(super) fn row(&self, shard: ShardId) -> Option<&ShardSummary> {
        self.rows.iter().find(|row| row.shard == shard)
    }

    pub(super) fn entry(&self, worker: WorkerId) -> Option<&WorkerEntry> {
        self.entries.iter().find(|entry| entry.worker == worker)
    }

    /// Returns the registered workers of this run that sent a heartbeat recently and are not known
    /// to be gone.
    pub(super) fn live_workers(&self) -> impl Iterator<Item = &WorkerEntry> {
        let is_of_run =
            |entry: &&WorkerEntry| entry.worker == worker_of(self.run, entry.worker.as_raw());
        self.entries.iter().filter(is_of_run).filter(|entry| self.is_live(entry))
    }

    pub(super) fn is_live(&self, entry: &WorkerEntry) -> bool {
        let gone = entry.process.is_some_and(|process| {
            // A killed worker stays registered until its entry expires; on its own host the kernel
            // knows better.
            matches!(SystemHost.presence(&process), Presence::Gone | Presence::Ending)
        });
        entry.is_live_at(self.now) && !gone
    }

    /// Names a worker as people know it: `host-1:4711`, or its id.
    pub(super) fn name_of(&self, worker: WorkerId) -> String {
        let process = self.entry(worker).and_then(|entry| entry.process);
        let named = process.and_then(|process| {
            let host = progress::escaped(process.label?.host.as_str().as_bytes());
            Some(format!("{host}:{}", process.process.pid))
        });
        named.unwrap_or_else(|| format!("worker {:016x}", worker.as_raw()))
    }

    /// Returns the command of the run as it is typed.
    pub(super) fn command(&self) -> Option<String> {
        let job = self.job.as_ref().filter(|job| !job.command.is_empty())?;
        let source = progress::escaped(job.source.as_bytes());
        Some(format!("gossip exec {source} -- {}", listing::typed(&job.command)))
    }

    /// Returns the command that lets a worker join.
    pub(super) fn join(&self) -> String {
        format!("gossip worker {}", self.id())
    }
}

/// Returns the handoffs of shards of this run that may still happen.
fn handoffs(
    mut records: StoreRepository<gossip::store::AnyStore>,
    run: RunId,
    rows: &[ShardSummary],
) -> Vec<MoveTerms> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..HANDOFF_PAGES {
        // The handoffs that were read are of use without the others.
        let Ok(page) = records.page(after.as_ref(), IN_PROGRESS_PAGE) else { break };
        let pending = page.found.iter().filter(|stored| !stored.record.state.is_terminal());
        let terms = pending.filter_map(|stored| MoveTerms::of(&stored.record).ok());
        found.extend(terms.filter(|terms| {
            let row = rows.iter().find(|row| row.shard == terms.key.shard());
            // The record of a move may stay open after the fence of the shard has decided it.
            terms.key.run() == run && terms.outcome(row) == MoveOutcome::Before
        }));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    found
}

fn source_state(job: &Job) -> SourceState {
    let source = match sources::parse(&job.source, job.options) {
        Ok(source) => source,
        Err(error) => return SourceState::Missing(error.to_string()),
    };
    // The stamp first: a file that has changed can be opened all the same.
    match source.check_stamp(job.stamp).and_then(|()| source.open().map(drop)) {
        Ok(()) => SourceState::Here,
        Err(ConnectorError::SourceChanged) => SourceState::Changed,
        Err(error) => SourceState::Missing(error.to_string()),
    }
}
