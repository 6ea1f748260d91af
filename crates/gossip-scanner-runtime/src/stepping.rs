//! The worker as state machines, for a scheduler of your own or a simulator.
//!
//! [`work`](crate::work) runs a worker on threads. Everything that those threads do is in the types
//! of this module. None of them starts a thread, sleeps, reads a clock or draws a random number:
//! time is an argument of every step, and the seed of all jitter is
//! [`WorkerConfig::seed`](crate::WorkerConfig). The simulators of this repository
//! (`verify/gossip-sim-worker`) run them in virtual time.
//!
//! There are two levels.
//!
//! # One shard
//!
//! A [`ShardTask`] processes one shard under one lease. The caller acquires the shard, calls
//! [`ShardTask::step`] until the task is over, and renews the lease. After a renewal it calls
//! [`ShardTask::renewed`], or [`ShardTask::lost`] if the lease is gone.
//!
//! ```
//! use gossip_contracts::connector::MemoryConnector;
//! use gossip_contracts::coordination::{
//!     CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
//! };
//! use gossip_contracts::identity::{
//!     LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
//! };
//! use gossip_coordination::{
//!     AcquireScratch, CoordinationBackend, InMemoryCoordinator, RunConfig, RunManagement,
//!     SessionState,
//! };
//! use gossip_scanner_runtime::stepping::{
//!     ShardTask, StoreAccess, TaskContext, TaskStep, Throttle,
//! };
//! use gossip_scanner_runtime::{Inline, ItemResult, TaskConfig, TaskOutcome};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut coordinator = InMemoryCoordinator::default();
//! let (tenant, run) = (TenantId::from_bytes([7; 32]), RunId::from_raw(1));
//! let (mut now, key) = (LogicalTime::from_raw(1), ShardKey::new(run, ShardId::from_raw(0)));
//! # let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, None)?;
//! # let root = InitialShardInput {
//! #     shard_id: key.shard(),
//! #     spec: ShardSpecRef::new(b"a", b"z", b""),
//! #     cursor: CursorUpdate::initial(),
//! # };
//! # coordinator.create_run_with_shards(now, tenant, run, config, &[root], OpId::from_raw(1))?;
//! let mut scratch = AcquireScratch::new();
//! let worker = WorkerId::from_raw(1);
//! let acquired =
//!     coordinator.acquire_and_restore_into(now, tenant, key, worker, &mut scratch)?;
//! let session = SessionState::new(acquired);
//! let mut task = ShardTask::restore(TaskConfig::default(), session, now, 42);
//!
//! let connector = MemoryConnector::try_new([(b"b", b""), (b"c", b"")].map(|(k, v)| {
//!     (k.to_vec(), v.to_vec())
//! }))?;
//! let mut keys = Vec::new();
//! let mut processor = Inline::new(|work, _body| {
//!     keys.push(work.key().to_vec());
//!     ItemResult::Done
//! });
//! let throttle = Throttle::default();
//! let outcome = loop {
//!     let mut context = TaskContext {
//!         coordinator: &mut coordinator,
//!         connector: &connector,
//!         processor: &mut processor,
//!         throttle: &throttle,
//!         observer: &(),
//!         store: StoreAccess::Usable,
//!     };
//!     match task.step(now, &mut context) {
//!         TaskStep::Continue => {}
//!         // Virtual time: jump to the deadline instead of sleeping.
//!         TaskStep::Wait(until) => now = until,
//!         TaskStep::Over(outcome) => break outcome,
//!     }
//! };
//! assert_eq!(outcome, TaskOutcome::Completed);
//! assert_eq!(keys, [b"b", b"c"]);
//! # Ok(())
//! # }
//! ```
//!
//! # A whole worker
//!
//! A worker is one [`WorkerShared`] and the parts that refer to it: a [`ShardRunner`] per thread,
//! one [`Renewer`], and one [`HandoffThread`] if it takes part in handoffs. Each part says when it
//! must be stepped again. A scheduler
//!
//! - steps [`ShardRunner`] and [`HandoffThread`] as their [`Rest`] says, but at the latest after
//!   [`RUNNER_WAIT_MAX`] and [`HANDOFF_WAIT_MAX`] ticks;
//! - calls [`Renewer::round`] when the number of ticks that it returned has passed;
//! - steps the parts that wait when [`WorkerShared::notifications`] has risen;
//! - drops the renewer and calls [`WorkerShared::shut_down`] when every runner is over. The worker
//!   has ended when its handoff part is over too; [`WorkerShared::ended`] returns the result.
//!
//! A process that dies is simulated by dropping its parts between two steps.
//!
//! [`work`](crate::work) wraps every coordinator handle in an [`Observed`](crate::Observed); a
//! scheduler that wants the kernel's events does the same.

pub use crate::task::{COLLECT_PATIENCE, ShardTask, StoreAccess, TaskContext, TaskStep};
pub use crate::throttle::Throttle;
pub use crate::worker::{
    HANDOFF_WAIT_MAX, HandoffThread, RUNNER_WAIT_MAX, Renewer, Rest, ShardRunner, WorkerShared,
};
