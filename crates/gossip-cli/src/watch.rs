//! Progress of a run, sampled from the store by a process that does not work on it.
//!
//! The time left is estimated from the rate between samples. A run that is paused or has no worker
//! has no rate, and is sampled once.

use std::thread;
use std::time::{Duration, Instant};

use gossip::connector::Connector;
use gossip::coordination::RunStatus;
use gossip::identity::{RunId, TenantId};
use gossip::model::ShardSpec;
use gossip::runtime::{Clock as _, Density, Job, Progress, ProgressMeter, RunLook, SystemClock};
use gossip::sources::Source;
use gossip::store::Coordinator;

use crate::failure::Failure;
use crate::output::Record;
use crate::runs;
use crate::sources;

/// Interval between samples; the meter ignores samples that are closer together.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Samples the progress of a run.
pub(crate) struct Sampler<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    /// How long to sample.
    pub(crate) duration: Duration,
}

impl Sampler<'_> {
    /// Samples once, and repeatedly if a worker holds a shard of the run.
    pub(crate) fn progress(&mut self, job: Option<&Job>) -> Result<Progress, Failure> {
        let mut meter = ProgressMeter::new(job.map(density_of_job).unwrap_or_default());
        let started = Instant::now();
        loop {
            let now = SystemClock::new().now();
            let sample = RunLook::take(self.coordinator, now, self.tenant, self.run)
                .map_err(|error| runs::not_found(self.run, &error))?;
            let progress = meter.observe(&sample);
            let is_worked_on =
                sample.status == RunStatus::Active && !sample.paused && progress.shards_leased > 0;
            if !is_worked_on || started.elapsed() + SAMPLE_EVERY > self.duration {
                return Ok(progress);
            }
            thread::sleep(SAMPLE_EVERY);
        }
    }
}

/// Adds the progress to a record as numbers.
pub(crate) fn with_numbers(record: Record, progress: &Progress) -> Record {
    record
        .with("total", progress.total)
        .with("total_kind", progress.kind.to_string())
        .with("fraction", progress.fraction)
        .with("left_ms", progress.eta.map(|eta| eta.left))
        .with("left_error_ms", progress.eta.map(|eta| eta.error))
}

/// Measures the key density of a source.
pub(crate) fn density(source: &Source, connector: &dyn Connector) -> Density {
    // If the source cannot be listed, the total is unknown; the worker reports the error.
    let root = ShardSpec::try_new(source.root().start(), source.root().end(), &[]).ok();
    let measured = root.and_then(|root| Density::look(connector, root.as_spec_ref()).ok());
    measured.unwrap_or_default()
}

/// Measures the source of a run. The total is unknown if the source is on another machine or has
/// changed.
pub(crate) fn density_of_job(job: &Job) -> Density {
    let source = sources::parse(&job.source, job.options).ok();
    let source = source.filter(|source| source.check_stamp(job.stamp).is_ok());
    let opened = source.and_then(|source| Some((source.open().ok()?, source)));
    opened.map_or_else(Density::default, |(connector, source)| density(&source, &*connector))
}
