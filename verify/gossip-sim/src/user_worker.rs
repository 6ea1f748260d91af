//! Simulation of your own worker and sink.
//!
//! A worker is an `async` function on the coordinator traits
//! ([`AsyncCoordinationFacade`](gossip_coordination::AsyncCoordinationFacade)), so the simulation
//! runs the production code. It receives a [`SimWorker`]: a coordinator that reports calls and
//! results to the oracle, and the [`SimWorld`], which provides the clock, keys and sink. Everything
//! else is as for the simulator's own workers: several workers per tenant, an administrator that
//! creates, pauses and finishes runs, faults, twins, restarts, and every rule of the
//! [oracle](super::oracle). A worker that returns is restarted after a while.
//!
//! ```text
//!  your worker ──► SimCoordinator ──► production coordinator ──► simulated store
//!       │                └── messages ──► oracle
//!       └──► SimWorld::write ──► network ──► your sink, or a fencing one
//! ```
//!
//! `examples/your_worker.rs` is a worker with a bug, and the same worker without it.
//!
//! # Limits
//! - A worker may only await futures of its [`SimWorker`]; any other future breaks the rule
//!   `Panicked`. A loop that never awaits does not terminate.
//! - It runs one operation at a time: a second operation on the same coordinator needs the result
//!   of the first.
//! - The simulator creates and finishes runs; [`SimCoordinator`] rejects those operations.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId, WorkerId};
use gossip_coordination::Lease;

use super::keyspace::Keyspace;
use super::messages::Message;
use super::port::{Ask, Reply, SimStore};
use super::random::Stream;
use super::user_coordinator::SimCoordinator;

/// The future of a worker process, from its start until it is killed or returns.
type Life = Pin<Box<dyn Future<Output = ()>>>;

/// Starts a worker.
type Program = dyn Fn(SimWorker) -> Life;

/// Creates an empty sink for a new simulation.
type MakeSink = dyn Fn() -> Box<dyn ResultSink>;

/// A destination of results. It accepts or rejects each write by its own state.
///
/// The oracle checks the order of fences: accepted writes of one key have non-decreasing fences,
/// and no two grants share one.
pub trait ResultSink {
    /// Writes the result of `key` of `run` under `fence`. Returns whether it is accepted.
    fn write(&mut self, run: RunId, key: &[u8], fence: FenceEpoch) -> bool;
}

/// A worker to simulate, and optionally its sink.
#[derive(Clone)]
pub struct Trial {
    program: Rc<Program>,
    make_sink: Option<Rc<MakeSink>>,
}

impl Trial {
    /// Simulates `worker`, which is called for each start of each worker process. Results go to a
    /// sink that keeps the fence of each key and rejects a lower one.
    pub fn of<F>(worker: impl Fn(SimWorker) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self { program: Rc::new(move |user_worker| Box::pin(worker(user_worker))), make_sink: None }
    }

    /// Replaces the sink; `make` is called once for each simulation.
    #[must_use]
    pub fn with_sink<S: ResultSink + 'static>(self, make: impl Fn() -> S + 'static) -> Self {
        Self { make_sink: Some(Rc::new(move || Box::new(make()))), ..self }
    }

    pub(super) fn start(&self, worker: SimWorker) -> Life {
        (self.program)(worker)
    }

    pub(super) fn sink(&self) -> Option<Box<dyn ResultSink>> {
        self.make_sink.as_ref().map(|make| make())
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("own_sink", &self.make_sink.is_some()).finish_non_exhaustive()
    }
}

/// The arguments of a simulated worker.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a worker destructures it")]
pub struct SimWorker {
    /// The handle to the store.
    pub coordinator: SimCoordinator,
    /// Clock, keys, sink and runs.
    pub world: SimWorld,
}

/// The outcome of a sink write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a worker must handle each")]
pub enum Written {
    /// The sink accepted the result.
    Accepted,
    /// The sink rejected the result: a newer lease holder wrote the key.
    Refused,
    /// The reply was lost. The result may arrive later, or have arrived.
    Unknown,
}

/// The simulation as seen by one worker.
#[derive(Debug)]
pub struct SimWorld {
    pub(super) store: SimStore,
    pub(super) keys: Rc<Keyspace>,
    pub(super) tenant: TenantId,
    pub(super) worker: WorkerId,
    pub(super) choices: Stream,
}

impl SimWorld {
    /// Returns the tenant of the worker.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Returns the worker's id. Another process may use the same one.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Returns the time of the worker's own clock, which may be skewed, drift and step.
    #[must_use]
    pub fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(self.store.clock())
    }

    /// Returns the runs that may have work.
    #[must_use]
    pub fn runs(&self) -> Vec<RunId> {
        self.store.runs()
    }

    /// Returns a number below `bound`, the same in every run of the plan; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.choices.below(bound) }
    }

    /// Waits for `ticks`.
    pub async fn sleep(&self, ticks: u64) {
        self.store.ask(Ask::Wait(ticks)).await;
    }

    /// Returns the keys that are left in a shard: those of its range after its cursor.
    #[must_use]
    pub fn keys(&self, start: &[u8], end: &[u8], last_key: Option<&[u8]>) -> Vec<Vec<u8>> {
        let done = last_key.and_then(|key| self.keys.number(key)).map(|number| number + 1);
        let (from, to) = (done.or_else(|| self.keys.number(start)), self.keys.number(end));
        let (Some(from), Some(to)) = (from, to) else { return Vec::new() };
        (from..to).map(|number| self.keys.key(number).to_vec()).collect()
    }

    /// Sends the result of `key` to the sink under the fence of `lease`.
    pub async fn write(&self, lease: &Lease, key: &[u8]) -> Written {
        let ask = Ask::Result { lease: lease.clone(), key: key.to_vec() };
        let Reply::Written(taken) = self.store.ask(ask).await else {
            unreachable!("the reply has the type of the request")
        };
        match taken {
            Some(true) => {
                self.store.post(Message::Worked { lease: lease.clone(), key: key.to_vec() });
                Written::Accepted
            }
            Some(false) => Written::Refused,
            None => Written::Unknown,
        }
    }
}
