//! A scan whose source is open and whose run is described; no store is involved yet.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use gossip_contracts::connector::Connector;
use gossip_contracts::identity::TenantId;
use gossip_coordination::RunName;
use gossip_scanner_runtime::connectors::Source;
use gossip_scanner_runtime::exec::Handler;
use gossip_scanner_runtime::{
    DEFAULT_SHARDS_MAX, Job, JobKey, Observed, Observer, OpenRunError, RunRequest,
    SHARDS_PER_THREAD, StartError, SystemClock, initial_shards,
};

use super::{Scan, ScanError, Session};
use crate::store::Backend;

/// A scan whose source is open.
pub struct Prepared {
    source: Source,
    connector: Box<dyn Connector>,
    /// Of a command.
    handler: Option<Handler>,
    job: Job,
    job_key: Option<JobKey>,
    settings: Vec<u8>,
    lease: Duration,
    retries: u32,
    shards: usize,
    name: Option<RunName>,
    restart: bool,
    allow_parallel: bool,
}

impl Prepared {
    /// `settings` distinguish runs without a command that are no scans with a name.
    pub(super) fn new(
        scan: &Scan<'_>,
        command: Option<&[OsString]>,
        settings: Option<Vec<u8>>,
    ) -> Result<Self, ScanError> {
        if let Some(ScanError::Register(error)) = scan.refused {
            return Err(error.into());
        }
        // All errors of what the caller typed come first: opening may take long, as a list of a
        // bucket does.
        let source = scan.registry.parse(&scan.source, scan.options)?;
        let handler =
            command.map(|command| Handler::parse(command, scan.stream, &source)).transpose()?;
        let connector = source.open().map_err(ScanError::Connect)?;
        let job = Job {
            source: source.text(),
            options: scan.options,
            stamp: source.stamp().map_err(ScanError::Connect)?,
            command: command.map(resolved).unwrap_or_default(),
            stream: scan.stream.filter(|_| command.is_some()),
        };
        let is_named = handler.is_none() && settings.is_none();
        let settings = match (&handler, settings) {
            (Some(_), _) => job.settings(),
            (None, Some(settings)) => settings,
            (None, None) => scan.name.as_bytes().to_vec(),
        };
        // More shards than threads, so that a thread whose shard is done early finds another one.
        let usual = scan.work.threads.saturating_mul(SHARDS_PER_THREAD).min(DEFAULT_SHARDS_MAX);
        Ok(Self {
            source,
            connector,
            settings,
            // A run without a command has nothing that a worker could run unasked.
            job_key: scan.job_key.clone().filter(|_| !job.command.is_empty()),
            job,
            lease: scan.lease,
            retries: scan.retries,
            shards: scan.shards.map_or(usual, NonZeroUsize::get),
            name: scan.run_name,
            restart: scan.restart,
            // Names of handlers differ on purpose; a changed command is a likely mistake.
            allow_parallel: scan.allow_parallel || is_named,
            handler,
        })
    }

    /// Returns the source.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the open source.
    #[must_use]
    pub fn connector(&self) -> &dyn Connector {
        &*self.connector
    }

    /// Returns the handler of a command.
    #[must_use]
    pub const fn handler(&self) -> Option<&Handler> {
        self.handler.as_ref()
    }

    /// Returns the command; empty for a handler.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.job.command
    }

    /// Returns the number of shards that [`Self::open`] would register. Nothing is stored.
    ///
    /// # Errors
    ///
    /// The source cannot be listed or sampled.
    pub fn planned_shards(&self) -> Result<usize, ScanError> {
        // The same computation as that of `open`, so a dry run shows what would be registered.
        let root = self.source.root();
        let shards = initial_shards(&*self.connector, root.as_spec_ref(), self.shards);
        Ok(shards.map_err(|error| StartError::Open(OpenRunError::Source(error)))?.len())
    }

    /// Finds the run in a store, or creates it and registers its shards.
    ///
    /// # Errors
    ///
    /// [`ScanError::Start`].
    pub fn open<'s>(
        &'s self,
        backend: &'s Backend,
        tenant: TenantId,
        observer: &dyn Observer,
    ) -> Result<Session<'s>, ScanError> {
        let request = RunRequest {
            tenant,
            source: &self.source,
            connector: &*self.connector,
            job: &self.job,
            job_key: self.job_key.as_ref(),
            settings: &self.settings,
            lease: self.lease,
            retries: self.retries,
            shards: self.shards,
            name: self.name,
            restart: self.restart,
            allow_parallel: self.allow_parallel,
        };
        let mut coordinator = Observed::new(backend.coordinator(), observer);
        let opened = request.open(&mut coordinator, &SystemClock::new(), observer)?;
        Ok(Session::new(backend, tenant, opened, &self.source, &*self.connector))
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("source", &self.source)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

/// Returns a command whose program does not depend on the working directory: the same words in
/// another directory would be another program.
fn resolved(command: &[OsString]) -> Vec<OsString> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut()
        && program.as_bytes().contains(&b'/')
        && let Ok(whole) = std::path::absolute(&program)
    {
        *program = whole.into_os_string();
    }
    command
}
