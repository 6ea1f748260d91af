//! The process side of the simulated network: a slot for one request and one reply.
//!
//! A simulated process waits for one thing at a time: the store, the sink, or a timer. It puts its
//! request here and is pending until the simulator has put the reply here. [`SimStore`] is the
//! store as the production coordinator sees it; there is no thread, clock or executor behind it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use gossip_contracts::identity::RunId;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Read, StoreLimits, Txn};
use gossip_coordination::{InfraError, Lease};

use super::messages::Message;

/// A request of a process.
#[derive(Debug)]
pub(super) enum Ask {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
    Wait(u64),
    Write(SinkWrite),
    /// The result of a user worker.
    Result {
        lease: Lease,
        key: Vec<u8>,
    },
}

/// The reply to a request.
#[derive(Debug)]
pub(super) enum Reply {
    Read(Result<Vec<Answer>, InfraError>),
    Committed(Vec<Result<CommitOutcome, InfraError>>),
    Waited,
    /// Whether the sink accepted the keys; `None` if the reply was lost.
    Written(Option<bool>),
}

impl Reply {
    /// Returns whether the reply leaves the outcome of a commit unknown.
    pub(super) fn is_unsure(&self) -> bool {
        let Self::Committed(outcomes) = self else { return false };
        outcomes.iter().any(|outcome| matches!(outcome, Ok(CommitOutcome::Unknown)))
    }

    /// Returns the text of the reply in a trace line.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Read(Ok(answers)) => format!("{} answers", answers.len()),
            Self::Read(Err(error)) => format!("a failed read: {error}"),
            Self::Committed(outcomes) => {
                let name = |outcome: &Result<CommitOutcome, InfraError>| match outcome {
                    Ok(CommitOutcome::Applied { .. }) => "applied",
                    Ok(CommitOutcome::Conflict(_)) => "conflict",
                    Ok(CommitOutcome::Unknown) => "unknown",
                    Err(_) => "refused",
                };
                outcomes.iter().map(name).collect::<Vec<_>>().join(", ")
            }
            Self::Waited => "the end of a wait".to_owned(),
            Self::Written(taken) => format!("the sink's reply: {taken:?}"),
        }
    }
}

/// Results of keys on their way to the sink, under the fence of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct SinkWrite {
    pub(super) run: u32,
    pub(super) keys: (u32, u32),
    pub(super) shard: u32,
    pub(super) grant: u32,
    pub(super) fence: u64,
}

/// The store of a simulated process.
#[derive(Clone, Debug)]
pub struct SimStore(Arc<Mutex<Port>>);

#[derive(Debug)]
struct Port {
    asked: Option<Ask>,
    result: Option<Reply>,
    binding: Option<u64>,
    limits: StoreLimits,
    /// Messages of a user worker that were not read yet.
    messages: Vec<Message>,
    /// The clock of a user worker.
    clock: u64,
    /// The runs that a user worker can see.
    runs: Vec<RunId>,
}

impl SimStore {
    pub(super) fn new(binding: Option<u64>, limits: StoreLimits) -> Self {
        let (asked, result, messages, runs) = (None, None, Vec::new(), Vec::new());
        let port = Port { asked, result, binding, limits, messages, clock: 0, runs };
        Self(Arc::new(Mutex::new(port)))
    }

    /// Queues a message.
    pub(super) fn post(&self, message: Message) {
        self.port().messages.push(message);
    }

    /// Takes the queued messages.
    pub(super) fn messages(&self) -> Vec<Message> {
        std::mem::take(&mut self.port().messages)
    }

    /// Sets the clock and the runs that a user worker sees.
    pub(super) fn brief(&self, clock: u64, runs: impl Iterator<Item = RunId>) {
        let mut port = self.port();
        port.clock = clock;
        port.runs.clear();
        port.runs.extend(runs);
    }

    pub(super) fn clock(&self) -> u64 {
        self.port().clock
    }

    pub(super) fn runs(&self) -> Vec<RunId> {
        self.port().runs.clone()
    }

    /// Takes the pending request.
    pub(super) fn asked(&self) -> Option<Ask> {
        self.port().asked.take()
    }

    /// Sets the reply to the request that was taken.
    pub(super) fn reply(&self, reply: Reply) {
        self.port().result = Some(reply);
    }

    /// Changes the binding: bound keys may have expired.
    pub(super) fn bind_anew(&self) {
        let mut port = self.port();
        port.binding = port.binding.map(|binding| binding + 1);
    }

    /// Sends a request and waits for the reply.
    pub(super) fn ask(&self, ask: Ask) -> Exchange<'_> {
        Exchange { store: self, ask: Some(ask) }
    }

    fn port(&self) -> MutexGuard<'_, Port> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request until it is answered.
pub(super) struct Exchange<'p> {
    store: &'p SimStore,
    ask: Option<Ask>,
}

impl Future for Exchange<'_> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        let ask = self.ask.take();
        let mut port = self.store.port();
        if ask.is_some() {
            port.asked = ask;
            return Poll::Pending;
        }
        port.result.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Message for a reply of the wrong type.
const CROSSED: &str = "the reply has the type of the request";

impl AsyncStore for SimStore {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let Reply::Read(answers) = self.ask(Ask::Read(reads)).await else {
            unreachable!("{CROSSED}")
        };
        answers
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let Reply::Committed(outcomes) = self.ask(Ask::Commit(txns)).await else {
            unreachable!("{CROSSED}")
        };
        outcomes
    }

    async fn wait(&mut self, ticks: u64) {
        self.ask(Ask::Wait(ticks)).await;
    }

    fn limits(&self) -> StoreLimits {
        self.port().limits
    }

    fn binding(&self) -> Option<u64> {
        self.port().binding
    }
}
