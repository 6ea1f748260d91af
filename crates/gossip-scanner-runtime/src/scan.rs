//! A closure over every key of a source: the runtime in one call.
//!
//! [`scan`] finds or makes the run, works on it, and ends it. Called again with the same source and
//! name, here or in another process with the same store, it goes on where it stopped, or joins.

use std::fmt;
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::ConnectorError;
use gossip_contracts::coordination::{CursorSemantics, ShardSpec};
use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::{
    CoordinationFacade, GetRunError, InfraError, RunConfig, RunConfigError, ShardFilter,
};
use gossip_handoff::Repository;
use thiserror::Error;

use crate::clock::{Clock as _, SystemClock};
use crate::connectors::Source;
use crate::initial::{INITIAL_SHARDS_MAX, initial_shards};
use crate::job::{Job, JobError};
use crate::observer::Observer;
use crate::processor::{Inline, Verdict, Work};
use crate::run_plan::{OpenRunError, OpenedState, RunPlan, open_run};
use crate::task::TaskConfig;
use crate::throttle::Limits;
use crate::worker::{Drain, Finish, Parts, WorkerConfig, WorkerError, work, worker_of};

/// Initial shards for each thread.
const SHARDS_PER_THREAD: usize = 4;

/// The tenant of whoever names none: that of the command line, which can so show runs of programs.
pub const DEFAULT_TENANT: TenantId = {
    let (mut id, name) = ([0; 32], b"default");
    let mut at = 0;
    while at < name.len() {
        id[at] = name[at];
        at += 1;
    }
    TenantId::from_bytes(id)
};

/// How a scan is done. What does not say otherwise may differ from one call to the next.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// What makes it another scan of the same source: change it when the closure means something
    /// else. Part of the run's identity.
    pub name: String,
    /// Whose run it is; part of its identity.
    pub tenant: TenantId,
    /// How long a lease lasts; part of the run's identity.
    pub lease: Duration,
    /// How many grants without progress a shard survives; part of the run's identity.
    pub retries: u32,
    /// A number that no other process has, of which the lower half names the worker; also what
    /// jitter is drawn from.
    pub worker: u64,
    /// Shards at once.
    pub threads: usize,
    /// Whether a scan that is over is begun anew.
    pub again: bool,
    /// How each shard is worked on.
    pub task: TaskConfig,
    /// How fast items may be started.
    pub limits: Limits,
}

impl ScanOptions {
    /// The usual settings for a scan of this name, by a worker with a number of its own.
    #[must_use]
    pub fn new(name: &str, worker: u64) -> Self {
        Self {
            name: name.to_owned(),
            tenant: DEFAULT_TENANT,
            lease: Duration::from_secs(15),
            retries: 3,
            worker,
            threads: thread::available_parallelism().map_or(1, usize::from),
            again: false,
            task: TaskConfig::default(),
            limits: Limits::default(),
        }
    }
}

/// What a scan works with, besides its source and its settings.
#[derive(Clone, Copy)]
pub struct ScanParts<'a, B> {
    /// Makes a coordinator handle for one thread.
    pub coordinator: &'a (dyn Fn() -> B + Sync),
    /// Opens the records of planned moves, of the tenant of the scan and in the same store. Without
    /// it a process that drains gives its shards back, and somebody claims them later; with it they
    /// go straight to processes of the same scan that have nothing to do.
    pub records: Option<&'a (dyn Fn() -> Box<dyn Repository> + Sync)>,
    /// Tells it to stop.
    pub drain: &'a Drain,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
}

impl<'a, B> ScanParts<'a, B> {
    /// Without records of moves, and with nobody who is told.
    #[must_use]
    pub const fn new(coordinator: &'a (dyn Fn() -> B + Sync), drain: &'a Drain) -> Self {
        Self { coordinator, records: None, drain, observer: &() }
    }
}

impl<B> fmt::Debug for ScanParts<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanParts").field("drain", self.drain).finish_non_exhaustive()
    }
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The run, for looking at it and for its certificate.
    pub run: RunId,
    /// How it ended.
    pub finish: Finish,
}

/// Why a scan could not be done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// The source cannot be opened.
    #[error("the source cannot be opened: {0}")]
    Source(ConnectorError),
    /// The file has changed since the scan was begun, so its keys mean other rows now. Cancel the
    /// run, or begin anew if it is over.
    #[error("the file has changed since the scan was begun")]
    SourceChanged {
        /// The run over the file as it was.
        run: RunId,
    },
    /// The store does not say what the run is about.
    #[error("the store failed: {0}")]
    Store(InfraError),
    /// The settings make no run.
    #[error(transparent)]
    Config(#[from] RunConfigError),
    /// Source and name do not fit beside a range.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The run can neither be found nor made.
    #[error(transparent)]
    Open(#[from] OpenRunError),
    /// The worker could not go on.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Calls `process` with every key of `source` at least once, and with none that is recorded as
/// done, until all are; a drain ends it before.
///
/// # Errors
///
/// [`ScanError`]. What was finished is recorded.
pub fn scan<B: CoordinationFacade>(
    source: &Source,
    options: &ScanOptions,
    parts: ScanParts<'_, B>,
    process: &(dyn Fn(Work<'_>, &mut Vec<u8>) -> Verdict + Sync),
) -> Result<Scanned, ScanError> {
    let (connector, clock) = (source.open().map_err(ScanError::Source)?, SystemClock::new());
    let ticks = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
    let config = RunConfig::try_new(CursorSemantics::Completed, ticks, Some(options.retries))?;
    let metadata = job(source).map_err(ScanError::Source)?.encode()?;
    let canonical = source.canonical();
    let plan = RunPlan {
        tenant: options.tenant,
        source: &canonical,
        settings: options.name.as_bytes(),
        config,
        again: options.again,
    };
    let cut = || {
        let root = source.root();
        let root = ShardSpec::try_new(root.start(), root.end(), &metadata)
            .expect("the root of a source is a range, and the job was measured");
        let target = options.threads.saturating_mul(SHARDS_PER_THREAD);
        initial_shards(&*connector, root.as_spec_ref(), target.clamp(1, INITIAL_SHARDS_MAX))
    };
    let mut handle = (parts.coordinator)();
    let opened = open_run(&mut handle, &clock, &thread::sleep, &plan, &cut)?;
    if opened.state != OpenedState::New {
        check_unchanged(&mut handle, clock.now(), source, options.tenant, opened.run)?;
    }
    if let OpenedState::Over(status) = opened.state {
        return Ok(Scanned { run: opened.run, finish: Finish::of_run(status) });
    }
    // What it opens lives for as long as it likes; the worker asks for less.
    let records = parts.records.map(|open| move || -> Box<dyn Repository + '_> { open() });
    let parts = Parts {
        coordinator: parts.coordinator,
        connector: &*connector,
        processor: &|_| Box::new(Inline::new(process)),
        records: match &records {
            Some(open) => Some(open),
            None => None,
        },
        clock: &clock,
        drain: parts.drain,
        observer: parts.observer,
    };
    let finish = work(&worker_config(options, opened.run, config), parts)?;
    Ok(Scanned { run: opened.run, finish })
}

/// Without a command: what is done with a key is known to the program alone.
fn job(source: &Source) -> Result<Job, ConnectorError> {
    Ok(Job {
        source: source.text(),
        options: source.options(),
        stamp: source.stamp()?,
        command: Vec::new(),
        stream: false,
    })
}

/// Refuses a run over another state of the file: its cursors are positions in that.
fn check_unchanged<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    source: &Source,
    tenant: TenantId,
    run: RunId,
) -> Result<(), ScanError> {
    let (mut roots, filter) = (Vec::new(), ShardFilter::all().roots());
    match coordinator.list_shards_into(now, tenant, run, filter, &mut roots) {
        Ok(()) => {}
        Err(GetRunError::BackendError(error)) => return Err(ScanError::Store(error)),
        // Deleted meanwhile; the worker says so.
        Err(_) => return Ok(()),
    }
    let Some(root) = roots.first() else { return Ok(()) };
    match source.check_stamp(Job::decode(&root.metadata)?.stamp) {
        Err(ConnectorError::SourceChanged) => Err(ScanError::SourceChanged { run }),
        checked => checked.map_err(ScanError::Source),
    }
}

fn worker_config(options: &ScanOptions, run: RunId, config: RunConfig) -> WorkerConfig {
    WorkerConfig {
        tenant: options.tenant,
        run,
        worker: worker_of(run, options.worker),
        lease_ticks: config.lease_duration(),
        threads: options.threads,
        task: TaskConfig { shard_retries: config.max_shard_retries(), ..options.task },
        limits: options.limits,
        max_parked: usize::MAX,
        auto_split: true,
        seed: options.worker,
    }
}
