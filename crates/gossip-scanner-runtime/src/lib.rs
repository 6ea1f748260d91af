//! Workers that process every key of a source, and the certificate that proves it.
//!
//! Most programs use the `gossip` crate, which selects a store by URL and calls this one. Use the
//! runtime directly to embed a worker over a coordinator of your own:
//!
//! ```
//! use std::ffi::OsStr;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use gossip_contracts::identity::TenantId;
//! use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator, fresh_nonce};
//! use gossip_scanner_runtime::connectors::{Source, SourceOptions};
//! use gossip_scanner_runtime::{
//!     Drain, Finish, Inline, ItemResult, Job, Limits, Parts, RunRequest, SystemClock, TaskConfig,
//!     WorkerConfig, work, worker_of,
//! };
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Each thread opens its own coordinator handle. Any store works; this one is in memory.
//!     let store = MapStore::new();
//!     let handle = || {
//!         StoreCoordinator::new(store.another_handle(), StoreConfig::new(fresh_nonce()))
//!     };
//!
//!     // Find the run of the source, or create it with four shards.
//!     let (options, clock, lease) =
//!         (SourceOptions::default(), SystemClock::new(), Duration::from_secs(15));
//!     let source = Source::parse(OsStr::new("range:0..100"), options)?;
//!     let connector = source.open()?;
//!     let job = Job {
//!         source: source.text(),
//!         options,
//!         stamp: source.stamp()?,
//!         command: Vec::new(),
//!         stream: None,
//!     };
//!     let tenant = TenantId::from_bytes([7; 32]);
//!     let request = RunRequest {
//!         tenant,
//!         source: &source,
//!         connector: &*connector,
//!         job: &job,
//!         job_key: None,
//!         settings: b"sum",
//!         lease,
//!         retries: 5,
//!         shards: 4,
//!         name: None,
//!         restart: false,
//!         allow_parallel: false,
//!     };
//!     let opened = request.open(&mut handle(), &clock, &())?;
//!
//!     // Process every key on two threads.
//!     let keys = AtomicU64::new(0);
//!     let config = WorkerConfig {
//!         tenant,
//!         run: opened.run,
//!         worker: worker_of(opened.run, fresh_nonce()),
//!         lease_ticks: lease.as_millis() as u64,
//!         threads: 2,
//!         task: TaskConfig { shard_retries: Some(request.retries), ..TaskConfig::default() },
//!         limits: Limits::default(),
//!         max_parked: 0,
//!         auto_split: true,
//!         store_patience: 600_000,
//!         seed: fresh_nonce(),
//!     };
//!     let parts = Parts {
//!         coordinator: &handle,
//!         connector: &*connector,
//!         processor: &|_thread| {
//!             Box::new(Inline::new(|_item, _body| {
//!                 keys.fetch_add(1, Ordering::Relaxed);
//!                 // The result is durable from here on: the cursor may move past the key.
//!                 ItemResult::Done
//!             }))
//!         },
//!         records: None,
//!         clock: &clock,
//!         host: &(),
//!         drain: &Drain::new(),
//!         observer: &(),
//!     };
//!     assert_eq!(work(&config, parts)?, Finish::Complete);
//!     assert_eq!(keys.into_inner(), 100);
//!     Ok(())
//! }
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`connectors`] | sources: directories, line files, CSV and JSON lines, integers, your own |
//! | [`RunRequest`] | finds or creates the run of a source |
//! | [`work`] | runs a worker: threads, leases, handoffs, draining |
//! | [`stepping`] | the worker as state machines, for your own scheduler or a simulator |
//! | [`Processor`] | processes keys; [`Inline`] makes one of a closure, [`exec`] of a command |
//! | [`Observer`] | receives the [events](Event) of a worker |
//! | [`ProgressMeter`] | the progress of a run, and its estimated end |
//! | [`certificate`] | writes and verifies coverage certificates |
//! | [`ItemWatermark`] | the finished prefix of items that finish out of order |
//! | [`RuntimeToken`] | the statistics that the runtime stores with each cursor |
//!
//! # Guarantees
//!
//! - Each key is processed at least once. The cursor moves past a key only after its result was
//!   reported as durable.
//! - A crash, a lost lease or a split repeats keys and never skips one. Results carry the
//!   [fence](Work::fence) under which they were made, so a sink can refuse stale ones.
//! - A key that fails for good, or that crashes its workers, is parked alone; the others complete.
//!
//! # Never
//!
//! The runtime is generic over the coordinator and never selects a store. It reads no environment,
//! no arguments and no terminal. Only [`work`] and [`exec`] start threads or processes, and only
//! [`SystemClock`] reads a clock.
#![forbid(unsafe_code)]

mod accumulator;
mod backoff;
pub mod certificate;
mod clock;
mod command_finding;
pub mod connectors;
mod delegation;
mod density;
mod environment;
mod event_log;
pub mod exec;
mod failures;
mod host;
mod initial;
mod job;
mod job_key;
mod monitored;
mod named;
mod observed;
mod observer;
mod op_ids;
mod processor;
mod progress;
mod results;
mod run_plan;
mod split_policy;
mod split_specs;
mod start;
pub mod stepping;
mod task;
mod throttle;
mod token;
mod wall_time;
mod watermark;
mod worker;

#[cfg(test)]
mod accumulator_tests;
#[cfg(test)]
mod backoff_tests;
#[cfg(test)]
mod initial_tests;
#[cfg(test)]
mod observed_tests;
#[cfg(test)]
mod processor_tests;
#[cfg(test)]
mod results_tests;
#[cfg(test)]
mod run_plan_tests;
#[cfg(test)]
mod split_policy_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod watermark_tests;

pub use self::accumulator::{Accumulator, AccumulatorError};
pub use self::clock::{Clock, ClockOffset, SystemClock, monotonic_ticks};
pub use self::command_finding::{CommandFinding, UnreadableCommandFinding};
pub use self::density::Density;
pub use self::event_log::{EventLog, LogEntry};
pub use self::failures::{FailedItem, list_failures};
pub use self::host::{Host, Presence, SystemHost};
pub use self::initial::{
    DEFAULT_SHARDS_MAX, INITIAL_SHARDS_MAX, InitialShardsError, initial_shards,
};
pub use self::job::{Job, JobError, MAX_JOB_SIZE, StoredJob, StreamFormat};
pub use self::job_key::JobKey;
pub use self::named::Named;
pub use self::observed::Observed;
pub use self::observer::{Event, Observer};
pub use self::op_ids::fresh_op_id;
pub use self::processor::{
    Broken, CommandStatus, Inline, ItemFailure, ItemResult, Processor, Report, Silence, Work,
};
pub use self::progress::{
    CELL_ROUNDING, Eta, Progress, ProgressKind, ProgressMeter, RunLook, Slice, SliceState,
    cells_touched, spread,
};
pub use self::results::{ITEM_RESULTS_MAX, ResultsError, StoredResults, for_each_result};
pub use self::run_plan::{OpenRunError, OpenedRun, OpenedState, RunPlan, open_run};
pub use self::split_specs::PartError;
pub use self::start::{
    LEASE_SHORTEST, ReadJobError, RunRequest, SHARDS_PER_THREAD, Setting, StartError,
    collect_abandoned, job_of, stored_job_of,
};
pub use self::task::{Cut, TaskConfig, TaskOutcome};
pub use self::throttle::Limits;
pub use self::token::{RuntimeToken, TokenError};
pub use self::watermark::ItemWatermark;
pub use self::worker::{
    Drain, Finish, MAX_THREADS, Parts, RunWorkerError, STORE_PATIENCE, WorkerConfig, revoke_orphan,
    work, worker_of,
};
