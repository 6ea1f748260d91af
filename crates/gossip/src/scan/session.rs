//! One process at work on one run.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gossip_contracts::connector::Connector;
use gossip_contracts::identity::{RunId, TenantId, WorkerId};
use gossip_coordination::store::fresh_nonce;
use gossip_coordination::{GetRunError, InfraError, RunConfig, RunManagement as _, ShardFilter};
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::connectors::{ItemNames, Source, SourceRegistry};
use gossip_scanner_runtime::exec::Handler;
use gossip_scanner_runtime::{
    Clock as _, Drain, EventLog, FailedItem, Finish, JobKey, Limits, LogEntry, Named, Observer,
    OpenedRun, OpenedState, Parts, Processor, RunWorkerError, SystemClock, SystemHost, TaskConfig,
    WorkerConfig, list_failures, stored_job_of, work, worker_of,
};

use super::{Outcome, ScanError};
use crate::store::Backend;

/// How a process works; no part of the run's identity.
#[derive(Clone, Copy, Debug)]
pub struct WorkOptions {
    /// Worker threads; each processes one shard at a time.
    pub threads: usize,
    /// How each shard is processed. The retries of the run take precedence over those here.
    pub task: TaskConfig,
    /// How fast items may be started.
    pub limits: Limits,
    /// Shards that this process may park before it stops.
    pub max_parked: usize,
    /// Whether an idle process asks busy ones to split their shards.
    pub auto_split: bool,
    /// How long the process waits for a store that is unreachable or without space.
    pub store_patience: Duration,
}

/// One process at work on one run.
pub struct Session<'s> {
    backend: &'s Backend,
    tenant: TenantId,
    run: RunId,
    state: OpenedState,
    /// The settings of the run, if they are known.
    config: Option<RunConfig>,
    worker: WorkerId,
    source: &'s Source,
    connector: &'s dyn Connector,
    names: Arc<ItemNames>,
}

impl<'s> Session<'s> {
    pub(super) fn new(
        backend: &'s Backend,
        tenant: TenantId,
        opened: OpenedRun,
        source: &'s Source,
        connector: &'s dyn Connector,
    ) -> Self {
        let OpenedRun { run, state, config, generation: _ } = opened;
        // A new id for each session: under the id of a dead process its leases would look like our
        // own.
        let worker = worker_of(run, fresh_nonce());
        let names = Arc::new(ItemNames::of(source));
        Self { backend, tenant, run, state, config, worker, source, connector, names }
    }

    /// Names items in another way, such as by the path that the user typed.
    #[must_use]
    pub fn with_names(self, names: ItemNames) -> Self {
        Self { names: Arc::new(names), ..self }
    }

    /// Returns how items are named in failure records.
    #[must_use]
    pub const fn names(&self) -> &Arc<ItemNames> {
        &self.names
    }

    /// Returns the run.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Returns the items of the run that failed for good or could not be read, of all processes.
    ///
    /// # Errors
    ///
    /// The run is gone, or the store fails.
    pub fn failures(&self) -> Result<Vec<FailedItem>, GetRunError> {
        let (mut coordinator, now) = (self.backend.coordinator(), SystemClock::new().now());
        list_failures(&mut coordinator, now, self.tenant, self.run)
    }

    /// Returns the lifecycle events of the run that are stored, of all processes, and the gaps
    /// among them, in the order of their times.
    ///
    /// The store is read in pages, and at most
    /// [`EVENTS_PER_WRITER`](gossip_coordination::EVENTS_PER_WRITER) events of each process are
    /// stored. An [`EventLog`] returns new events at each of its reads.
    ///
    /// # Errors
    ///
    /// The store fails, or a record is damaged.
    pub fn events(&self) -> Result<impl Iterator<Item = LogEntry> + use<>, InfraError> {
        let mut log = EventLog::new(self.tenant, self.run);
        Ok(log.read(&mut self.backend.coordinator())?.into_iter())
    }

    /// Returns the state in which the run was found.
    #[must_use]
    pub const fn state(&self) -> OpenedState {
        self.state
    }

    /// Returns the id under which this process holds shards.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Returns the source.
    #[must_use]
    pub const fn source(&self) -> &'s Source {
        self.source
    }

    /// Returns the open source.
    #[must_use]
    pub const fn connector(&self) -> &'s dyn Connector {
        self.connector
    }

    /// Works on the run until it is settled or `drain` is asked.
    ///
    /// `processor` makes the processor of one thread, by its number.
    ///
    /// # Errors
    ///
    /// [`ScanError::Run`] if the run cannot be read, [`ScanError::Worker`] if the worker stopped.
    pub fn work<'p>(
        &self,
        options: &WorkOptions,
        processor: &(dyn Fn(usize) -> Box<dyn Processor + 'p> + Sync),
        drain: &Drain,
        observer: &dyn Observer,
    ) -> Result<Finish, ScanError> {
        let run = match self.config {
            Some(config) => config,
            // Created by a process with other settings.
            None => self.backend.coordinator().get_run(self.tenant, self.run)?.config(),
        };
        let config = WorkerConfig {
            tenant: self.tenant,
            run: self.run,
            worker: self.worker,
            lease_ticks: run.lease_duration(),
            threads: options.threads,
            task: TaskConfig {
                // All workers of a run count attempts against one limit, so it is that of the run.
                shard_retries: run.max_shard_retries(),
                checkpoint_ticks_min: options
                    .task
                    .checkpoint_ticks_min
                    .max(self.backend.checkpoint_ticks_min()),
                ..options.task
            },
            limits: options.limits,
            max_parked: options.max_parked,
            auto_split: options.auto_split,
            store_patience: u64::try_from(options.store_patience.as_millis()).unwrap_or(u64::MAX),
            seed: fresh_nonce(),
        };
        let clock = SystemClock::new();
        let named = |number| -> Box<dyn Processor + 'p> {
            Box::new(Named::new(processor(number), Arc::clone(&self.names)))
        };
        let finish = work(
            &config,
            Parts {
                coordinator: &|| self.backend.coordinator(),
                connector: self.connector,
                // A closure, because the worker asks for a shorter life than `'p`.
                processor: &|number| named(number),
                records: Some(&|| self.records()),
                clock: &clock,
                host: &SystemHost,
                drain,
                observer,
            },
        );
        // After the last commit of the worker: a handle that is used afterwards writes new owner
        // keys.
        if may_retire(&finish) {
            self.backend.retire();
        }
        Ok(finish?)
    }

    /// Returns the counts of the run and its parked shards.
    ///
    /// # Errors
    ///
    /// [`ScanError::Run`].
    pub fn outcome(&self, finish: Finish) -> Result<Outcome, ScanError> {
        let (mut rows, now) = (Vec::new(), SystemClock::new().now());
        let (coordinator, all) = (&mut self.backend.coordinator(), ShardFilter::all());
        coordinator.list_shards_into(now, self.tenant, self.run, all, &mut rows)?;
        Ok(Outcome::new(self.run, finish, &rows, self.source, self.connector))
    }

    /// Returns the handoff records, in the same store as the shards.
    fn records(&self) -> Box<dyn Repository> {
        Box::new(StoreRepository::new(self.backend.store(), self.tenant, fresh_nonce()))
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("run", &self.run)
            .field("state", &self.state)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// The command that a worker runs for a run of another process, and by whose authority. A command
/// in a store is data: everyone who can write the store can put one there.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is no other authority")]
pub enum RunCommand<'a> {
    /// This one instead of that of the run.
    Given(&'a [OsString]),
    /// That of the run, without a check.
    AnyStored,
    /// That of the run if it is signed by this key; refused without a key.
    Signed(Option<&'a JobKey>),
}

/// A run that another process created and that performs a command.
pub struct Joined {
    run: RunId,
    source: Source,
    connector: Box<dyn Connector>,
    handler: Handler,
}

impl Joined {
    /// Reads what the run is about from the store, and opens its source here.
    ///
    /// # Errors
    ///
    /// [`ScanError::Job`] if the run cannot be read, [`ScanError::NoCommand`],
    /// [`ScanError::UnsignedCommand`], [`ScanError::Command`], [`ScanError::Source`] if the source
    /// does not exist here, and [`ScanError::Connect`] if it cannot be opened or has changed.
    pub fn new(
        backend: &Backend,
        tenant: TenantId,
        run: RunId,
        registry: &SourceRegistry,
        command: RunCommand<'_>,
    ) -> Result<Self, ScanError> {
        let now = SystemClock::new().now();
        let stored = stored_job_of(&mut backend.coordinator(), now, tenant, run)?;
        let job = stored.job();
        let words = match command {
            RunCommand::Given(words) => words,
            RunCommand::AnyStored | RunCommand::Signed(_) => &job.command,
        };
        if words.is_empty() {
            return Err(ScanError::NoCommand);
        }
        // Before anything of the job is used: its source may be forged like its command.
        if let RunCommand::Signed(key) = command
            && !key.is_some_and(|key| stored.is_signed(key, tenant, run))
        {
            return Err(ScanError::UnsignedCommand);
        }
        // The source of the run and never of this caller: keys mean the same to all workers.
        let source = registry.parse(&job.source, job.options)?;
        let handler = Handler::parse(words, job.stream, &source)?;
        // Keys of rows are positions, so another state of the file would give them other rows.
        source.check_stamp(job.stamp).map_err(ScanError::Connect)?;
        let connector = source.open().map_err(ScanError::Connect)?;
        Ok(Self { run, source, connector, handler })
    }

    /// Returns the handler of the command.
    #[must_use]
    pub const fn handler(&self) -> &Handler {
        &self.handler
    }

    /// Returns a session on the run.
    #[must_use]
    pub fn open<'s>(&'s self, backend: &'s Backend, tenant: TenantId) -> Session<'s> {
        // The worker finds out itself whether the run is over. Its generation matters only to a
        // process that creates runs.
        let (run, state) = (self.run, OpenedState::Resumed);
        let opened = OpenedRun { run, generation: 0, state, config: None };
        Session::new(backend, tenant, opened, &self.source, &*self.connector)
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined")
            .field("run", &self.run)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// After every end but a failed store: other workers need not wait for the owner keys to expire.
const fn may_retire(finish: &Result<Finish, RunWorkerError>) -> bool {
    !matches!(
        finish,
        Ok(Finish::DrainedUnsaved)
            | Err(RunWorkerError::Store(_) | RunWorkerError::StoreUnusable { .. })
    )
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
