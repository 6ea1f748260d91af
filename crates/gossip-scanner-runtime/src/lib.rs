//! The runtime: workers that touch every key of a source, and the proof that they did.
//!
//! | piece | what it is |
//! |---|---|
//! | [`RunRequest`] | finds or creates the run of a source: the start-up sequence |
//! | [`work`] | a worker: threads, leases, draining |
//! | [`stepping`] | the worker as state machines, for your own scheduler or a simulator |
//! | [`Processor`] | what is done with every key |
//! | [`ProgressMeter`] | how far a run has come, and when it will be over |
//! | [`ItemWatermark`] | how far a shard has come when its items finish out of order |
//! | [`RuntimeToken`] | what the runtime keeps beside a cursor |
//!
//! It is generic over the coordinator and never picks a store; it reads no environment, no
//! arguments and no terminal. Only its worker starts threads, and only [`SystemClock`] reads a
//! clock.
#![forbid(unsafe_code)]

mod accumulator;
mod backoff;
pub mod certificate;
mod clock;
pub mod connectors;
mod density;
pub mod exec;
mod initial;
mod job;
mod observer;
mod op_ids;
mod processor;
mod progress;
mod run_plan;
mod split_policy;
mod start;
pub mod stepping;
mod task;
mod throttle;
mod token;
mod watermark;
mod worker;

#[cfg(test)]
mod accumulator_tests;
#[cfg(test)]
mod backoff_tests;
#[cfg(test)]
mod initial_tests;
#[cfg(test)]
mod run_plan_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod watermark_tests;

pub use self::accumulator::{ACCUMULATOR_LEN, Accumulator, AccumulatorError};
pub use self::backoff::Backoff;
pub use self::clock::{Clock, SystemClock, TICKS_PER_SECOND};
pub use self::density::Density;
pub use self::initial::{INITIAL_KEYS_MIN, INITIAL_SHARDS_MAX, InitialShardsError, initial_shards};
pub use self::job::{Job, JobError};
pub use self::observer::{Event, Observer};
pub use self::op_ids::fresh_op_id;
pub use self::processor::{Broken, Inline, ItemResult, Processor, Report, Work};
pub use self::progress::{Eta, Progress, ProgressKind, ProgressMeter, RunLook, Tally};
pub use self::run_plan::{
    MAX_GENERATIONS, OpenRunError, OpenedRun, OpenedState, REGISTRATION_PATIENCE, RunPlan, open_run,
};
pub use self::split_policy::SPLITS_PER_LEASE;
pub use self::start::{
    LEASE_SHORTEST, ReadJobError, RunRequest, SHARDS_PER_THREAD, Setting, StartError,
    collect_abandoned, job_of,
};
pub use self::task::{Cut, ShardTask, TaskConfig, TaskContext, TaskOutcome, TaskStep};
pub use self::throttle::{Limits, Throttle};
pub use self::token::{RUNTIME_TOKEN_LEN, RuntimeToken, TokenError};
pub use self::watermark::{ItemWatermark, Settled};
pub use self::worker::{
    Drain, Finish, MAX_THREADS, Parts, RunWorkerError, WorkerConfig, work, worker_of,
};
