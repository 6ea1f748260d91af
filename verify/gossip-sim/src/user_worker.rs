//! Your own worker and sink in our worlds.
//!
//! A worker is an `async` function on the traits of the coordinator
//! ([`AsyncCoordinationFacade`](gossip_coordination::AsyncCoordinationFacade)), so what runs here
//! is what runs in production. It is given a [`SimWorker`]: a coordinator that tells the oracle
//! what is asked and answered, and the [`SimWorld`] around it, from which it has its time, its keys
//! and its sink. Everything else is as for our own workers: several of them for each tenant, an
//! administrator who makes, pauses and ends runs, faults, twins, restarts, and every rule of the
//! [oracle](super::oracle). A worker that returns is started again after a while.
//!
//! ```text
//!  your worker ──► SimCoordinator ──► production coordinator ──► simulated store
//!       │                └── letters ──► oracle
//!       └──► SimWorld::write ──► the wire ──► your sink, or one that fences
//! ```
//!
//! `examples/your_worker.rs` is a worker with a bug and the same without it.
//!
//! # Limits
//! - A worker waits for its [`SimWorker`] and for nothing else; another future breaks the rule
//!   `Panicked`, and a loop that waits for nothing never ends.
//! - It does one thing at a time: a second operation of the same coordinator needs the first one's
//!   answer.
//! - Runs are made and ended by the world: those operations of [`SimCoordinator`] are refused.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId, WorkerId};
use gossip_coordination::Lease;

use super::guest_coordinator::SimCoordinator;
use super::keyspace::Keyspace;
use super::messages::Message;
use super::port::{Ask, Reply, SimStore};
use super::random::Stream;

/// A worker's life, from its start until it dies or returns.
type Life = Pin<Box<dyn Future<Output = ()>>>;

/// How a worker is started.
type Program = dyn Fn(SimWorker) -> Life;

/// How a sink is made, empty, for a new world.
type MakeSink = dyn Fn() -> Box<dyn ResultSink>;

/// Where results go. It decides about each of them alone, by what it keeps.
///
/// The oracle holds it to the order of the fences: of the writes that are accepted for one key, the
/// fences never fall, and no two grants share one.
pub trait ResultSink {
    /// The result of `key` of `run` arrives under `fence`. Whether it is accepted.
    fn write(&mut self, run: RunId, key: &[u8], fence: FenceEpoch) -> bool;
}

/// A worker, and a sink if it has one of its own, to be tried in worlds.
#[derive(Clone)]
pub struct Trial {
    program: Rc<Program>,
    make_sink: Option<Rc<MakeSink>>,
}

impl Trial {
    /// Tries `worker`, which is started once for every life of every worker of a world. Its results
    /// go to a sink that keeps the fence of each key and refuses a lower one.
    pub fn of<F>(worker: impl Fn(SimWorker) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self { program: Rc::new(move |user_worker| Box::pin(worker(user_worker))), make_sink: None }
    }

    /// The same with a sink of its own, one for each world.
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

/// What a worker is given when it is started.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a worker takes it apart")]
pub struct SimWorker {
    /// Its handle of the store.
    pub coordinator: SimCoordinator,
    /// Everything else.
    pub world: SimWorld,
}

/// What became of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a worker must know what to do about each")]
pub enum Written {
    /// The sink has it.
    Accepted,
    /// The sink refused it: somebody newer is at work.
    Refused,
    /// Nobody said. It may arrive, or have arrived.
    Unknown,
}

/// The world as one worker sees it.
#[derive(Debug)]
pub struct SimWorld {
    pub(super) store: SimStore,
    pub(super) keys: Rc<Keyspace>,
    pub(super) tenant: TenantId,
    pub(super) worker: WorkerId,
    pub(super) choices: Stream,
}

impl SimWorld {
    /// The tenant that it works for.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Its name. Another may go by it.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The time by its own clock, which may be wrong, drift and step.
    #[must_use]
    pub fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(self.store.clock())
    }

    /// The runs that there may be work in.
    #[must_use]
    pub fn runs(&self) -> Vec<RunId> {
        self.store.runs()
    }

    /// A number below `bound`, the same whenever the world is played again; zero if `bound` is.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.choices.below(bound) }
    }

    /// Lets time pass.
    pub async fn sleep(&self, ticks: u64) {
        self.store.ask(Ask::Wait(ticks)).await;
    }

    /// The keys of a shard that a worker has to do: those of its range behind its cursor.
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
            unreachable!("the world answers the question that was asked")
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
