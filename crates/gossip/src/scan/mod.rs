//! A scan: a source, a store and a handler, in one call.
//!
//! ```text
//!  Scan ──prepare──► Prepared ──open──► Session ──work──► Finish ──► Outcome
//!  settings          source, job        run found         worker     totals
//!                                       or created
//! ```
//!
//! [`Scan::each`] and its siblings perform all steps. The command line performs them one by one and
//! draws progress during the last.

mod error;
mod item;
mod outcome;
mod prepared;
mod session;

#[cfg(test)]
mod scan_tests;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use gossip_coordination::{RunName, block_on};
use gossip_scanner_runtime::connectors::{SourceFamily, SourceOptions, SourceRegistry};
use gossip_scanner_runtime::exec::{CommandOutput, ExecConfig, Rendering, find_program};
use gossip_scanner_runtime::{
    CommandFinding, Drain, Event, Finish, Inline, JobKey, Limits, Observer, OpenedState, Processor,
    STORE_PATIENCE, StreamFormat, TaskConfig, Work,
};

pub use self::error::ScanError;
pub use self::item::{Item, ItemError};
pub use self::outcome::{FAILED_LISTED_MAX, FailedRange, Outcome, Status, Totals};
pub use self::prepared::Prepared;
pub use self::session::{Joined, RunCommand, Session, WorkOptions};
use crate::secrets::{FindingReport, Found, SecretScan};
use crate::sources::{SourceEnvironment, registry};
use crate::store::Backend;
use crate::tenant::{DEFAULT_TENANT, tenant_id};

/// Maximum number of items that a handler processes before a worker looks at its lease and at
/// requests; it looks after a millisecond in any case. A page is a multiple of it.
const HANDLER_BATCH: usize = 256;

/// A scan of every key of a source.
///
/// ```
/// use gossip::prelude::*;
///
/// # fn main() -> Result<(), ScanError> {
/// let outcome = Scan::of("range:0..10").store("memory:").threads(2).each(|_item| Ok(()))?;
/// assert_eq!(outcome.totals.keys, 10);
/// # Ok(())
/// # }
/// ```
///
/// # Same scan, same run
///
/// Source, [tenant](Self::tenant), [name](Self::name), [lease](Self::lease) and
/// [retries](Self::retries) identify the run (of [`Self::run_command`]: the command instead of the
/// name). A program that calls the scan again resumes the run, or joins it if another process works
/// on it. A finished run is not repeated unless [`Self::restart`] is set. The other settings may
/// differ from call to call.
pub struct Scan<'a> {
    source: OsString,
    options: SourceOptions,
    registry: SourceRegistry,
    /// The first registration that failed; reported when the scan starts.
    refused: Option<ScanError>,
    store: Option<StoreChoice<'a>>,
    tenant: String,
    name: String,
    run_name: Option<RunName>,
    lease: Duration,
    retries: u32,
    shards: Option<NonZeroUsize>,
    restart: bool,
    allow_parallel: bool,
    work: WorkOptions,
    exec: ExecConfig,
    stream: Option<StreamFormat>,
    job_key: Option<JobKey>,
    observer: Option<Box<Observe<'a>>>,
}

type Observe<'a> = dyn Fn(Event<'_>) + Sync + 'a;

enum StoreChoice<'a> {
    Url(String),
    Open(&'a Backend),
}

/// Initial settings; those of the command line.
impl Scan<'_> {
    const NAME: &'static str = "scan";
    const LEASE: Duration = Duration::from_secs(15);
    const RETRIES: u32 = 3;
    const TIMEOUT: Duration = Duration::from_mins(10);
}

impl<'a> Scan<'a> {
    /// Starts the description of a scan of `source`: a directory, `lines:FILE`, `jsonl:FILE`,
    /// `csv:FILE`, `range:A..B`, `sqlite:FILE?table=T`, `postgres://USER@HOST/DATABASE?table=T`, or
    /// `SCHEME:NAME` of a [registered](Self::connector) connector.
    #[must_use]
    pub fn of(source: impl AsRef<OsStr>) -> Self {
        Self {
            source: source.as_ref().to_owned(),
            options: SourceOptions::NONE,
            registry: registry(&SourceEnvironment::default()),
            refused: None,
            store: None,
            tenant: DEFAULT_TENANT.to_owned(),
            name: Self::NAME.to_owned(),
            run_name: None,
            lease: Self::LEASE,
            retries: Self::RETRIES,
            shards: None,
            restart: false,
            allow_parallel: false,
            work: WorkOptions::default(),
            exec: ExecConfig {
                batch: 1,
                timeout: Some(Self::TIMEOUT),
                ok_statuses: Vec::new(),
                found_status: None,
                found_text_max: CommandFinding::TEXT_MAX,
                output: CommandOutput::Inherited,
                keeps_stdout: false,
                drain: Drain::new(),
            },
            stream: None,
            job_key: None,
            observer: None,
        }
    }

    /// Keeps coordination state in the store of this URL: `sqlite:PATH`, `etcd://HOST:PORT/PREFIX`,
    /// `postgres://USER@HOST:PORT/DATABASE`, or `memory:` for experiments. The [module](crate::store) lists the forms.
    #[must_use]
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = Some(StoreChoice::Url(url.into()));
        self
    }

    /// Keeps coordination state in a store that is already open.
    #[must_use]
    pub fn backend(mut self, backend: &'a Backend) -> Self {
        self.store = Some(StoreChoice::Open(backend));
        self
    }

    /// Names the scan. Scans of one source with different names are different runs: change the name
    /// when the handler does something else. It is `scan` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Names the run, so that commands can refer to it by that name. Unlike [`Self::name`] it does
    /// not distinguish runs; only one unfinished run of a tenant may have it.
    #[must_use]
    pub const fn run_name(mut self, name: RunName) -> Self {
        self.run_name = Some(name);
        self
    }

    /// Sets the tenant, a name of 1 to 32 bytes. It is `default` by default, as on the command
    /// line.
    #[must_use]
    pub fn tenant(mut self, name: impl Into<String>) -> Self {
        self.tenant = name.into();
        self
    }

    /// Registers a connector under a scheme, so that `SCHEME:NAME` is a source.
    ///
    /// Pass a function from the name to the connector, or a [`SourceFamily`] for control over key
    /// range and versions. Each process of the run registers the same.
    #[must_use]
    pub fn connector(mut self, scheme: &str, family: impl SourceFamily + 'static) -> Self {
        if let Err(error) = self.registry.register(scheme, family) {
            // Kept until the scan starts, so that calls can be chained. The first error is the
            // cause of later ones.
            self.refused.get_or_insert(ScanError::Register(error));
        }
        self
    }

    /// Replaces the table of sources, for example by one with credentials from the environment:
    /// [`sources::registry`](registry). Connectors that were registered before are not kept.
    #[must_use]
    pub fn sources(mut self, registry: SourceRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the options of the source: ignore rules, symbolic links, CSV headers.
    #[must_use]
    pub const fn source_options(mut self, options: SourceOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the lease duration, 15 s by default; a dead worker's shards are reassigned after this
    /// time. At least 100 ms. Part of the run's identity.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how many grants in a row without progress a shard survives, 3 by default, before it is
    /// parked. Part of the run's identity.
    #[must_use]
    pub const fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the number of initial shards, four per thread by default. Busy shards are split later.
    #[must_use]
    pub const fn shards(mut self, shards: NonZeroUsize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets whether a finished run is left alone and a new one created.
    #[must_use]
    pub const fn restart(mut self, restart: bool) -> Self {
        self.restart = restart;
        self
    }

    /// Sets whether [`Self::run_command`] accepts that an unfinished run of the same source has
    /// other settings. By default that is an error, because most likely a setting was changed by
    /// mistake. Scans with a handler always accept it: their names tell them apart.
    #[must_use]
    pub const fn allow_parallel(mut self, allow: bool) -> Self {
        self.allow_parallel = allow;
        self
    }

    /// Sets the number of worker threads, one per processor by default. Each processes one shard at
    /// a time.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.work.threads = threads;
        self
    }

    /// Limits the number of items started per second in this process.
    #[must_use]
    pub const fn items_per_second(mut self, items: u64) -> Self {
        self.work.limits.items = Some(items);
        self
    }

    /// Limits the number of bytes started per second in this process, where the source knows sizes.
    #[must_use]
    pub const fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.work.limits.bytes = Some(bytes);
        self
    }

    /// Sets how often an item is tried before it is parked, 3 times by default and at least once.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        // None would be no try at all.
        self.work.task.item_tries = if tries == 0 { 1 } else { tries };
        self
    }

    /// Sets after how many items and after which time progress is checkpointed, 100,000 and 1 s by
    /// default: a crash repeats at most so much per thread, and a batch of items. Items of 10 ms
    /// and more are checkpointed sooner, as often as costs 2 % of the time; on a server at most
    /// twice a second.
    #[must_use]
    pub fn checkpoint(mut self, items: u64, every: Duration) -> Self {
        self.work.task.checkpoint_items = items.max(1);
        self.work.task.checkpoint_ticks = ticks(every);
        self
    }

    /// Sets how many shards this process may park, 100 by default, before it stops: something
    /// besides single items is wrong then.
    #[must_use]
    pub const fn max_parked(mut self, max: usize) -> Self {
        self.work.max_parked = max;
        self
    }

    /// Sets how often a shard that is parked because errors accumulated (`TooManyErrors`) is
    /// retried when nothing else is left to do, and the wait before that; never by default. Failed
    /// items are not retried.
    #[must_use]
    pub fn retry_parked(mut self, retries: u32, after: Duration) -> Self {
        self.work.task.parked_retries = retries;
        self.work.task.parked_retry_delay = ticks(after);
        self
    }

    /// Sets whether an idle process asks busy ones to split their shards, as it does by default.
    #[must_use]
    pub const fn auto_split(mut self, auto_split: bool) -> Self {
        self.work.auto_split = auto_split;
        self
    }

    /// Sets how long this process waits for a store that is unreachable or without space, 10 min by
    /// default. It starts no item meanwhile and reports [`Event::StoreUnusable`]; after that time
    /// the scan fails. A store that cannot be opened at the start is an error at once.
    #[must_use]
    pub const fn store_patience(mut self, patience: Duration) -> Self {
        self.work.store_patience = patience;
        self
    }

    /// Signs the command of [`Self::run_command`] in the store, so that a worker with the same key
    /// joins the run without being asked for it. Not part of the run's identity.
    #[must_use]
    pub fn job_key(mut self, key: JobKey) -> Self {
        self.job_key = Some(key);
        self
    }

    /// Sets how many keys one process of [`Self::run_command`] receives, 1 by default.
    #[must_use]
    pub const fn batch(mut self, keys: NonZeroUsize) -> Self {
        self.exec.batch = keys.get();
        self
    }

    /// Sets how long a process of [`Self::run_command`] may take for its keys, 10 min by default;
    /// `None` for no limit.
    #[must_use]
    pub const fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.exec.timeout = timeout;
        self
    }

    /// Sets the exit status by which a command reports that its keys are done and that it found
    /// something.
    #[must_use]
    pub const fn found_status(mut self, status: u8) -> Self {
        self.exec.found_status = Some(status);
        self
    }

    /// Sets where the output of the commands of [`Self::run_command`] goes. By default they inherit
    /// standard output and standard error of this process.
    #[must_use]
    pub fn output(mut self, output: CommandOutput) -> Self {
        self.exec.output = output;
        self
    }

    /// Sets the exit statuses by which a command reports that its keys are done; 0 alone by
    /// default. [`Self::found_status`] is one of them in any case.
    #[must_use]
    pub fn ok_statuses(mut self, statuses: impl Into<Vec<u8>>) -> Self {
        self.exec.ok_statuses = statuses.into();
        self
    }

    /// Sets that the command of [`Self::run_command`] is kept running and receives items as lines
    /// of this format; `None`, the default, for one process per batch of keys.
    #[must_use]
    pub const fn stream(mut self, format: Option<StreamFormat>) -> Self {
        self.stream = format;
        self
    }

    /// Stops the scan when `drain` is asked to: in-flight items finish, progress is checkpointed,
    /// and shards go to other processes of the run.
    #[must_use]
    pub fn drain(mut self, drain: &Drain) -> Self {
        self.exec.drain = drain.clone();
        self
    }

    /// Calls `observe` with each event, on the worker's threads.
    ///
    /// [`Event::Kernel`] has the changes of the run and its shards; the other variants are about
    /// items, the source and the store. Without an observer no event of the kernel is created. To
    /// log with the `tracing` or `log` crate, call its macros here.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use gossip::coordination::EventKind;
    /// use gossip::prelude::*;
    /// use gossip::runtime::Event;
    ///
    /// # fn main() -> Result<(), ScanError> {
    /// let done = AtomicU64::new(0);
    /// let scan = Scan::of("range:0..10").store("memory:").on_event(|event| {
    ///     if let Event::Kernel(event) = event
    ///         && let EventKind::ShardCompleted { .. } = event.kind
    ///     {
    ///         done.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// let outcome = scan.each(|_item| Ok(()))?;
    /// assert_eq!(done.into_inner(), outcome.totals.shards);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_event(mut self, observe: impl Fn(Event<'_>) + Sync + 'a) -> Self {
        self.observer = Some(Box::new(observe));
        self
    }

    /// Calls `handler` with every item until all are done.
    ///
    /// # Errors
    ///
    /// [`ScanError`]. Finished items are recorded, and the same call resumes. An item that fails is
    /// no error of the scan: see [`Outcome`].
    pub fn each<F>(self, handler: F) -> Result<Outcome, ScanError>
    where
        F: Fn(&mut Item<'_>) -> Result<(), ItemError> + Sync,
    {
        // Before the store, which a wrong source must neither create nor change.
        let prepared = self.prepare()?;
        let rendering = Rendering::of(prepared.source());
        let process = |work: Work<'_>, buffer: &mut Vec<u8>| {
            let mut item = Item::new(work, &rendering, buffer);
            let ended = handler(&mut item);
            item.result(ended)
        };
        let opened = self.open_store()?;
        let backend = self.backend_of(opened.as_ref())?;
        self.run(&prepared, backend, &|_| Box::new(Inline::new(process).with_batch(HANDLER_BATCH)))
    }

    /// Calls `handler` with every item and waits for its future, until all are done.
    ///
    /// A future is polled on its worker's thread, one at a time per thread: set
    /// [`Self::threads`] to the number of items that are to be in flight. No runtime is started. A
    /// future that needs one enters it, as tokio's `Handle::enter` does.
    ///
    /// # Errors
    ///
    /// As [`Self::each`].
    pub fn each_async<F>(self, handler: F) -> Result<Outcome, ScanError>
    where
        F: AsyncFn(&mut Item<'_>) -> Result<(), ItemError> + Sync,
    {
        self.each(|item| block_on(handler(item)))
    }

    /// Searches every item for leaked secrets until all are done, then passes each finding of the
    /// run to `found`, in the order of places: those of other processes, and of earlier calls, too.
    ///
    /// # Errors
    ///
    /// As [`Self::each`]; [`ScanError::NoResults`] if the store cannot keep findings.
    pub fn find_secrets(
        self,
        secrets: &SecretScan,
        mut found: impl FnMut(Found<'_>),
    ) -> Result<Outcome, ScanError> {
        let prepared = self.prepare_secrets(secrets)?;
        let tenant = tenant_id(&self.tenant)?;
        let opened = self.open_store()?;
        let backend = self.backend_of(opened.as_ref())?;
        // Before the run is created, because findings could fill the memory of such a store for
        // every tenant.
        if !backend.keeps_results() {
            return Err(ScanError::NoResults);
        }
        let processor = |_| -> Box<dyn Processor + '_> {
            Box::new(secrets.processor(tenant, prepared.source()))
        };
        let mut outcome = self.run(&prepared, backend, &processor)?;
        // From the store and not from this process: other workers, and this one before a crash,
        // found some of them.
        let report = FindingReport::read(&mut backend.coordinator(), tenant, outcome.run)?;
        report.findings().for_each(&mut found);
        let has_gaps = report.items().any(|item| !item.gaps.is_empty());
        // Each part that was not searched may hide a secret, so the scan must not be called
        // complete.
        if has_gaps && outcome.status == Status::Complete {
            outcome.status = Status::Incomplete;
        }
        Ok(outcome)
    }

    /// Runs a command for every item until all are done. `{}` among its arguments is replaced by
    /// the file's path, the line or row, or the number; without `{}` that is appended.
    ///
    /// On Linux the first command also starts a copy of this process, which makes system calls only
    /// and kills the commands if this process dies.
    ///
    /// # Errors
    ///
    /// As [`Self::each`].
    pub fn run_command<W>(self, command: impl IntoIterator<Item = W>) -> Result<Outcome, ScanError>
    where
        W: Into<OsString>,
    {
        let command: Vec<OsString> = command.into_iter().map(Into::into).collect();
        let prepared = self.prepare_command(&command)?;
        if let Some(program) = command.first() {
            // Before the run is created: a misspelled program would fail for every item.
            find_program(program).map_err(ScanError::Program)?;
        }
        // Parsed with the source, because the placeholders of a command depend on it.
        let handler = prepared.handler().expect("it was prepared with a command");
        let rendering = Rendering::of(prepared.source());
        let opened = self.open_store()?;
        let backend = self.backend_of(opened.as_ref())?;
        self.run(&prepared, backend, &|_| handler.processor(&rendering, self.exec.clone()))
    }

    /// Reads the source and describes the run, without a store.
    ///
    /// # Errors
    ///
    /// The source cannot be parsed or opened.
    pub fn prepare(&self) -> Result<Prepared, ScanError> {
        Prepared::new(self, None, None)
    }

    /// As [`Self::prepare`], for a run that performs a command.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`], and the command cannot be run for keys.
    pub fn prepare_command(&self, command: &[OsString]) -> Result<Prepared, ScanError> {
        Prepared::new(self, Some(command), None)
    }

    /// As [`Self::prepare`], for a run that searches for secrets.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`].
    pub fn prepare_secrets(&self, secrets: &SecretScan) -> Result<Prepared, ScanError> {
        Prepared::new(self, None, Some(secrets.settings()))
    }

    /// Opens the store of the scan, if that is a URL.
    fn open_store(&self) -> Result<Option<Backend>, ScanError> {
        match &self.store {
            Some(StoreChoice::Url(url)) => Ok(Some(Backend::open(&url.parse()?)?)),
            Some(StoreChoice::Open(_)) | None => Ok(None),
        }
    }

    /// Returns the store of the scan; `opened` is what [`Self::open_store`] returned.
    fn backend_of<'b>(&'b self, opened: Option<&'b Backend>) -> Result<&'b Backend, ScanError> {
        match (&self.store, opened) {
            (Some(StoreChoice::Open(backend)), _) => Ok(backend),
            (_, Some(opened)) => Ok(opened),
            (_, None) => Err(ScanError::NoStore),
        }
    }

    /// Performs the steps after the preparation.
    fn run<'p>(
        &self,
        prepared: &Prepared,
        backend: &Backend,
        processor: &(dyn Fn(usize) -> Box<dyn Processor + 'p> + Sync),
    ) -> Result<Outcome, ScanError> {
        let observer = OnEvent(self.observer.as_deref());
        let session = prepared.open(backend, tenant_id(&self.tenant)?, &observer)?;
        let finish = match session.state() {
            // A finished run is not repeated. Its counts are read from the store, as after work.
            OpenedState::Over(status) => Finish::of_run(status),
            OpenedState::New | OpenedState::Resumed => {
                session.work(&self.work, processor, &self.exec.drain, &observer)?
            }
        };
        session.outcome(finish)
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("retries", &self.retries)
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

/// The observer of a scan, if it has one.
struct OnEvent<'a>(Option<&'a Observe<'a>>);

impl Observer for OnEvent<'_> {
    fn observe(&self, event: Event<'_>) {
        if let Some(observe) = self.0 {
            observe(event);
        }
    }

    fn wants_kernel_events(&self) -> bool {
        // A scan without an observer pays nothing for events: the kernel creates none then.
        self.0.is_some()
    }
}

/// The shortest interval between checkpoints, in ticks: two items of 10 ms.
const CHECKPOINT_TICKS_MIN: u64 = 20;

impl Default for WorkOptions {
    fn default() -> Self {
        Self {
            // It respects the CPU limit of a container, which the number of processors does not.
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            task: TaskConfig {
                checkpoint_ticks_min: CHECKPOINT_TICKS_MIN,
                ..TaskConfig::default()
            },
            limits: Limits::default(),
            max_parked: 100,
            auto_split: true,
            store_patience: STORE_PATIENCE,
        }
    }
}

/// Returns a duration in ticks, which are milliseconds.
fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
