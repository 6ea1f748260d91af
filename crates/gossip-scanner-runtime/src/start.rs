//! From a source and a job to a run: the one start-up sequence.
//!
//! ```text
//!  check settings ─► refuse other settings ─► find or create the run ─► check the source's stamp
//!                                             │ register shards
//!                                             └ on a full quota: collect garbage, once more
//! ```
//!
//! Generic over the coordinator; the caller selects the store, works on the run with
//! [`work`](crate::work) and decides what to say.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::{CheckedEnumeration, Connector, ConnectorError, Page, PageError};
use gossip_contracts::connector::{MIN_PAGE_BYTES, PageLimits};
use gossip_contracts::coordination::{CursorSemantics, CursorUpdate, ShardSpec, ShardSpecRef};
use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::{
    CoordinationFacade, GetRunError, InfraError, RegisterShardsError, RunConfig, RunConfigError,
    RunName, ShardDamage, ShardFilter,
};
use gossip_frontier::{ShardMetadataDecodeError, decode_hint};
use thiserror::Error;

use crate::clock::Clock;
use crate::connectors::Source;
use crate::initial::{INITIAL_SHARDS_MAX, InitialShardsError, initial_shards};
use crate::job::{Job, JobError, Signer, StoredJob};
use crate::job_key::JobKey;
use crate::observer::{Event, Observer};
use crate::run_plan::{OpenRunError, OpenedRun, OpenedState, RunPlan, open_run};

/// Initial shards per thread: enough that the slowest one does not determine the end of the run.
pub const SHARDS_PER_THREAD: usize = 4;

/// Shortest lease: it is renewed three times within its duration, and a commit takes milliseconds.
pub const LEASE_SHORTEST: Duration = Duration::from_millis(100);

/// Unfinished runs of one source that are examined to find one with other settings.
const NEIGHBOURS: usize = 8;

/// Unfinished runs that are listed at a time to find one with a certain name.
const ACTIVE_PAGE: usize = 256;

/// Milliseconds after which a run that was created and not fully registered counts as abandoned. A
/// registration takes seconds; a day is more than the clocks of two machines differ.
const ABANDONED_AFTER: u64 = 24 * 60 * 60 * 1_000;

/// Maximum number of runs that one call collects, because it delays its caller.
const COLLECTED_MAX: usize = 64;

/// A request for a run.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// The tenant of the run.
    pub tenant: TenantId,
    /// The source that is listed.
    pub source: &'a Source,
    /// The open source.
    pub connector: &'a dyn Connector,
    /// The description stored with each shard, for workers that join.
    pub job: &'a Job,
    /// Signs the job, so that a worker with the same key runs its command unasked. Not part of the
    /// run's identity.
    pub job_key: Option<&'a JobKey>,
    /// Settings that distinguish it from other runs of the same source.
    pub settings: &'a [u8],
    /// Lease duration; part of the run's identity.
    pub lease: Duration,
    /// Grants without progress that a shard survives; part of the run's identity.
    pub retries: u32,
    /// Initial shards, at most [`INITIAL_SHARDS_MAX`]. A source with few keys gets fewer.
    pub shards: usize,
    /// The name of the run, if it is to have one. Not part of its identity.
    pub name: Option<RunName>,
    /// Whether a finished run is skipped and the next generation created.
    pub restart: bool,
    /// Whether an unfinished run of the same source with other settings is accepted. If not, it is
    /// an error: most likely a setting was changed by mistake.
    pub allow_parallel: bool,
}

impl std::fmt::Debug for RunRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunRequest")
            .field("source", self.source)
            .field("job", self.job)
            .field("lease", &self.lease)
            .field("retries", &self.retries)
            .field("shards", &self.shards)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RunRequest<'_> {
    /// Finds the run, or creates it and registers its shards.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`]. The next call continues an interrupted registration.
    pub fn open<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        clock: &dyn Clock,
        observer: &dyn Observer,
    ) -> Result<OpenedRun, StartError> {
        let config = self.config()?;
        let canonical = self.source.canonical();
        let plan = RunPlan {
            tenant: self.tenant,
            source: &canonical,
            settings: self.settings,
            config,
            restart: self.restart,
        };
        // Before any operation, so that a mistake in the request leaves no run behind.
        if self.shards == 0 || self.shards > INITIAL_SHARDS_MAX {
            return Err(StartError::Shards { shards: self.shards, max: INITIAL_SHARDS_MAX });
        }
        // Every run has a signature of its own, and all are of the same size.
        self.root(RunId::from_raw(0))?;
        if !self.allow_parallel {
            // Before a run is created: the ids of the two would differ, and both would process
            // every item.
            self.refuse_other_settings(coordinator, clock.wall(), &plan)?;
        }
        self.refuse_used_name(coordinator, &plan)?;
        let opened = self.find_or_create(coordinator, clock, observer, &plan)?;
        if opened.state == OpenedState::New {
            // After the run exists, so that garbage collection delays only its creator.
            collect_abandoned(coordinator, clock.wall(), self.tenant, observer);
            return Ok(opened);
        }
        self.check_name(coordinator, opened.run)?;
        // Keys of an existing run may be positions in a file, which mean other rows if it has
        // changed. Of other sources the job need not be read.
        if !self.source.may_have_stamp() {
            return Ok(opened);
        }
        let stored = job_of(coordinator, clock.wall(), self.tenant, opened.run)
            .map_err(|error| StartError::Stored { run: opened.run, error })?;
        match self.source.check_stamp(stored.stamp) {
            Ok(()) => Ok(opened),
            Err(ConnectorError::SourceChanged) => Err(StartError::SourceChanged { opened }),
            Err(error) => Err(StartError::Source(error)),
        }
    }

    fn config(&self) -> Result<RunConfig, StartError> {
        if self.lease < LEASE_SHORTEST {
            return Err(StartError::LeaseTooShort);
        }
        let retries = Some(self.retries);
        let config = RunConfig::try_new(CursorSemantics::Completed, ticks(self.lease), retries)?;
        Ok(config.with_name(self.name))
    }

    /// Refuses the name of another unfinished run: it would not be clear which of them is meant.
    ///
    /// Names are compared before the run is created and not in its commit, so two processes that
    /// create runs at the same moment may both succeed. A name then refers to the newer run.
    fn refuse_used_name<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        plan: &RunPlan<'_>,
    ) -> Result<(), StartError> {
        let Some(name) = self.name else { return Ok(()) };
        let (mut runs, mut after) = (Vec::new(), None);
        loop {
            runs.clear();
            self.active_runs(coordinator, after, ACTIVE_PAGE, &mut runs)?;
            for run in &runs {
                let stored = match coordinator.get_run(self.tenant, *run) {
                    Ok(stored) => Some(stored),
                    // Deleted since, or damaged: it holds no name.
                    Err(GetRunError::RunNotFound | GetRunError::TenantMismatch { .. }) => None,
                    Err(GetRunError::BackendError(InfraError::Corruption { .. })) => None,
                    // It may have the name: the store did not say.
                    Err(GetRunError::BackendError(error)) => {
                        return Err(StartError::Store(error));
                    }
                    Err(error) => {
                        let error = ReadJobError::Run(error);
                        return Err(StartError::Stored { run: *run, error });
                    }
                };
                if stored.and_then(|stored| stored.config().name()) == Some(name)
                    && !plan.is_generation(*run)
                {
                    return Err(StartError::NameInUse { run: *run });
                }
            }
            if runs.len() < ACTIVE_PAGE {
                return Ok(());
            }
            after = runs.last().copied();
        }
    }

    /// Appends the unfinished runs whose record can be read. A damaged one holds no name and has no
    /// settings to compare, and must not prevent new runs.
    fn active_runs<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), StartError> {
        match coordinator.list_active_runs_into(self.tenant, after, limit, out) {
            Err(error) if !error.is_of_record() => Err(StartError::Store(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Refuses another name than that of the existing run, which cannot be changed.
    fn check_name<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        run: RunId,
    ) -> Result<(), StartError> {
        let Some(name) = self.name else { return Ok(()) };
        let stored = coordinator.get_run(self.tenant, run);
        let stored =
            stored.map_err(|error| StartError::Stored { run, error: ReadJobError::Run(error) })?;
        match stored.config().name() {
            Some(same) if same == name => Ok(()),
            stored => Err(StartError::OtherName { run, name: stored }),
        }
    }

    fn find_or_create<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        clock: &dyn Clock,
        observer: &dyn Observer,
        plan: &RunPlan<'_>,
    ) -> Result<OpenedRun, StartError> {
        // A cell, because `cut` may be called a second time after garbage collection.
        let registered = Cell::new(0);
        let cut = |run: RunId| {
            let root = self.root(run).expect("the same root was made for another run");
            self.cut(root.as_spec_ref()).inspect(|shards| registered.set(shards.len()))
        };
        let open = |coordinator: &mut B| open_run(coordinator, clock, &thread::sleep, plan, &cut);
        let opened = match open(coordinator) {
            // Shards of an interrupted deletion count against the quota until they are purged.
            Err(error)
                if is_full(&error)
                    && collect_abandoned(coordinator, clock.wall(), self.tenant, observer) =>
            {
                open(coordinator)
            }
            opened => opened,
        }?;
        observer.observe(Event::RunOpened { opened });
        if opened.state == OpenedState::New {
            let (shards, requested) = (registered.get(), self.shards);
            observer.observe(Event::ShardsRegistered { shards, requested });
        }
        Ok(opened)
    }

    /// Searches for an unfinished run of the same source that is no generation of this plan.
    fn refuse_other_settings<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        now: LogicalTime,
        plan: &RunPlan<'_>,
    ) -> Result<(), StartError> {
        let (before, is_of_source) = plan.ids_of_source();
        let mut runs = Vec::new();
        self.active_runs(coordinator, before, NEIGHBOURS, &mut runs)?;
        let other = runs.into_iter().find(|run| is_of_source(*run) && !plan.is_generation(*run));
        match other {
            None => Ok(()),
            Some(run) => {
                let differing = self.differing(coordinator, now, run);
                Err(StartError::OtherSettings { run, differing })
            }
        }
    }

    /// Compares with the settings of another run, as far as they can be read.
    fn differing<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        now: LogicalTime,
        other: RunId,
    ) -> Vec<Setting> {
        // Errors are dropped: the caller reports a conflict in any case, only with fewer details.
        let job = job_of(coordinator, now, self.tenant, other).ok();
        let config = coordinator.get_run(self.tenant, other).ok().map(|run| run.config());
        let of_job = |differs: fn(&Job, &Job) -> bool| {
            job.as_ref().is_some_and(|other| differs(other, self.job))
        };
        let of_config = |differs: &dyn Fn(RunConfig) -> bool| config.is_some_and(differs);
        let compared = [
            (Setting::Command, of_job(|a, b| a.command != b.command)),
            (Setting::Stream, of_job(|a, b| a.stream != b.stream)),
            (Setting::Lease, of_config(&|it| it.lease_duration() != ticks(self.lease))),
            (Setting::Retries, of_config(&|it| it.max_shard_retries() != Some(self.retries))),
        ];
        compared.into_iter().filter(|(_, differs)| *differs).map(|(setting, _)| setting).collect()
    }

    /// Returns the range of the source with its hint, and with the job as the connector's bytes.
    fn root(&self, run: RunId) -> Result<ShardSpec, StartError> {
        let root = self.source.root();
        let hint = decode_hint(root.as_spec_ref()).map_err(StartError::RootHint)?;
        let tenant = self.tenant;
        let metadata =
            self.job.metadata(hint, self.job_key.map(|key| Signer { key, tenant, run }))?;
        Ok(ShardSpec::try_new(root.start(), root.end(), &metadata)
            .expect("the root of a source is a range, and the metadata was measured"))
    }

    fn cut(&self, root: ShardSpecRef<'_>) -> Result<Vec<ShardSpec>, InitialShardsError> {
        if matches!(self.source, Source::Registered(_)) {
            // Built-in sources cannot have such keys, and their listing is not free.
            refuse_keys_outside(self.connector, root)?;
        }
        match initial_shards(self.connector, root, self.shards) {
            // The worker gets the same error and parks the shard with its cause.
            Err(InitialShardsError::Connector(error)) if !error.is_retryable() => {
                Ok(vec![ShardSpec::try_from(root).expect("it was checked when it was made")])
            }
            cut => cut,
        }
    }
}

/// Refuses a source with a key after its root: no shard would contain the key, so it would be
/// skipped. Before the default root there can be none, and a connector that sets its own root
/// guarantees it.
fn refuse_keys_outside(
    connector: &dyn Connector,
    root: ShardSpecRef<'_>,
) -> Result<(), InitialShardsError> {
    // One key behind the end is enough to refuse, so the smallest page is listed.
    let behind = ShardSpecRef::new(root.end, b"", root.metadata);
    let limits = PageLimits::try_new(1, MIN_PAGE_BYTES).expect("the smallest page");
    let mut page = Page::with_limits(limits);
    let mut listing = CheckedEnumeration::open(connector, behind, CursorUpdate::initial())?;
    match listing.next_page(&mut page) {
        Ok(()) if page.is_empty() => Ok(()),
        Err(PageError::Connector(error)) => Err(error.into()),
        Err(PageError::Violation(violation)) => Err(InitialShardsError::Sample(violation)),
        // An error or an incomplete page does not prove that there is no key.
        Ok(()) | Err(_) => Err(InitialShardsError::KeyOutsideRoot),
    }
}

/// Deletes the remains of interrupted commands of a tenant: incomplete deletions, and runs that
/// were never fully registered. Returns whether there were any.
///
/// A failure is reported to the observer only: the next call tries again.
pub fn collect_abandoned<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    tenant: TenantId,
    observer: &dyn Observer,
) -> bool {
    let mut collected = Vec::new();
    let ended = coordinator.gc_stale_initializing_runs_into(
        now,
        tenant,
        ABANDONED_AFTER,
        COLLECTED_MAX,
        &mut collected,
    );
    if !collected.is_empty() {
        observer.observe(Event::RunsCollected { runs: collected.len() });
    }
    if let Err(error) = ended {
        observer.observe(Event::CollectionFailed { error: &error });
    }
    !collected.is_empty()
}

/// Reads the job of a run from its first root whose range can be read.
///
/// # Errors
///
/// The run does not exist, the store failed, or the run was not created by this runtime.
pub fn job_of<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<Job, ReadJobError> {
    stored_job_of(coordinator, now, tenant, run).map(StoredJob::into_job)
}

/// As [`job_of`], with the signature.
///
/// # Errors
///
/// As [`job_of`].
pub fn stored_job_of<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<StoredJob, ReadJobError> {
    let (mut roots, filter) = (Vec::new(), ShardFilter::all().roots());
    coordinator.list_shards_into(now, tenant, run, filter, &mut roots)?;
    // Every shard of a run has the same job. A run without shards has none, which the decoder
    // reports.
    let readable = roots.iter().find(|root| root.damage.is_none_or(ShardDamage::has_range));
    let metadata = readable.map_or(&[][..], |root| &root.metadata);
    Ok(StoredJob::of_shard(metadata)?)
}

/// Why the job of a run was not read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadJobError {
    /// The run.
    #[error(transparent)]
    Run(#[from] GetRunError),
    /// Its description.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// A setting that is part of a run's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// The command.
    Command,
    /// Whether the command is kept running.
    Stream,
    /// The lease duration.
    Lease,
    /// Grants without progress that a shard survives.
    Retries,
}

/// Why a run was neither found nor created.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The lease would expire before it is renewed.
    #[error("the lease is shorter than {} ms", LEASE_SHORTEST.as_millis())]
    LeaseTooShort,
    /// No initial shards, or too many.
    #[error("{shards} initial shards were asked for; 1 to {max} are possible")]
    Shards {
        /// The number asked for.
        shards: usize,
        /// [`INITIAL_SHARDS_MAX`].
        max: usize,
    },
    /// The root of a registered source family has metadata without a hint.
    #[error("the root of the source has no valid hint: {0}")]
    RootHint(ShardMetadataDecodeError),
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] RunConfigError),
    /// Source and command are too long to be stored.
    #[error(transparent)]
    Job(#[from] JobError),
    /// An unfinished run of this source has other settings.
    #[error("run {:016x} of this source is not finished and has other settings", run.as_raw())]
    OtherSettings {
        /// That run.
        run: RunId,
        /// The settings that differ, as far as they could be read.
        differing: Vec<Setting>,
    },
    /// Another unfinished run has the name.
    #[error("run {:016x} has this name and is not finished", run.as_raw())]
    NameInUse {
        /// That run.
        run: RunId,
    },
    /// The run exists under another name.
    #[error("run {:016x} exists under another name", run.as_raw())]
    OtherName {
        /// The run.
        run: RunId,
        /// Its name.
        name: Option<RunName>,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(InfraError),
    /// The run can be neither found nor created.
    #[error(transparent)]
    Open(#[from] OpenRunError),
    /// The job of the existing run cannot be read.
    #[error("the job of run {:016x} cannot be read: {error}", run.as_raw())]
    Stored {
        /// The run.
        run: RunId,
        /// Why.
        error: ReadJobError,
    },
    /// The source cannot be examined.
    #[error(transparent)]
    Source(ConnectorError),
    /// The source has changed since the run was created, so its keys mean other items now. Cancel
    /// the run, or restart it if it is finished.
    #[error("the source has changed since run {:016x} was created", opened.run.as_raw())]
    SourceChanged {
        /// The run over the earlier content.
        opened: OpenedRun,
    },
}

/// Returns whether the quota has no room for the shards of the run.
const fn is_full(error: &OpenRunError) -> bool {
    matches!(error, OpenRunError::Register(RegisterShardsError::ShardLimitExceeded { .. }))
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
