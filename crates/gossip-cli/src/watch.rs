//! How far a run has come, for somebody who only looks in: a few looks, and the speed between them.
//!
//! Nobody else has to be asked: what the workers record is enough. The time left is that of work,
//! so a run that is paused or that nobody works on has none, and is looked at once.

use std::thread;
use std::time::{Duration, Instant};

use gossip::connector::Connector;
use gossip::coordination::RunStatus;
use gossip::identity::{RunId, TenantId};
use gossip::model::ShardSpec;
use gossip::runtime::{Clock as _, Density, Job, Progress, ProgressMeter, RunLook, SystemClock};
use gossip::sources::Source;
use gossip::store::Coordinator;

use crate::args::Format;
use crate::failure::Failure;
use crate::output::Record;
use crate::{progress, runs};

/// The time between two looks; looks that are closer together are taken for one.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A run that is looked at.
pub(crate) struct Watched<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    /// How long it is looked at.
    pub(crate) patience: Duration,
}

impl Watched<'_> {
    /// Looks once, and if somebody works on the run, until the patience ends.
    pub(crate) fn progress(&mut self, job: Option<&Job>) -> Result<Progress, Failure> {
        let mut meter = ProgressMeter::new(job.map(density_of_job).unwrap_or_default());
        let begun = Instant::now();
        loop {
            let now = SystemClock::new().now();
            let look = RunLook::take(self.coordinator, now, self.tenant, self.run)
                .map_err(|error| runs::not_found(self.run, &error))?;
            let seen = meter.observe(&look);
            let is_worked_on =
                look.status == RunStatus::Active && !look.paused && seen.shards_leased > 0;
            if !is_worked_on || begun.elapsed() + LOOK_EVERY > self.patience {
                return Ok(seen);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Adds what was seen: in words for people, in numbers for programs.
pub(crate) fn tell(format: Format, record: Record, seen: &Progress) -> Record {
    match format {
        Format::Table => {
            record.with("progress", progress::keys_of(seen)).with("left", progress::left(seen))
        }
        Format::Json | Format::Jsonl => record
            .with("total", seen.total)
            .with("total_kind", seen.kind.to_string())
            .with("fraction", seen.fraction)
            .with("left_ms", seen.eta.map(|eta| eta.left))
            .with("left_error_ms", seen.eta.map(|eta| eta.error)),
    }
}

/// A measure of the source, as far as it can be seen from here.
pub(crate) fn density(source: &Source, connector: &dyn Connector) -> Density {
    // A source that does not tell its keys leaves the total unknown; the worker says why.
    let root = ShardSpec::try_new(source.root().start(), source.root().end(), &[]).ok();
    let look = root.and_then(|root| Density::look(connector, root.as_spec_ref()).ok());
    look.unwrap_or_default()
}

/// The source may be on another machine, or not be what it was: then its total is not known.
fn density_of_job(job: &Job) -> Density {
    let source = Source::parse(&job.source, job.options).ok();
    let source = source.filter(|source| source.check_stamp(job.stamp).is_ok());
    let opened = source.and_then(|source| Some((source.open().ok()?, source)));
    opened.map_or_else(Density::default, |(connector, source)| density(&source, &*connector))
}
