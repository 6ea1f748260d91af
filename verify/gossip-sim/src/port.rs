//! The end of the wire inside a process: a mailbox with room for one question and one answer.
//!
//! A simulated process waits for one thing at a time: the store, the sink, or the time. It puts the
//! question here and is pending until the world has put the answer here. [`SimStore`] is the store
//! as the production coordinator sees it; nothing behind it is a thread, a clock or an executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use gossip_contracts::identity::RunId;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Read, StoreLimits, Txn};
use gossip_coordination::{InfraError, Lease};

use super::messages::Message;

/// What a process waits for.
#[derive(Debug)]
pub(super) enum Ask {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
    Wait(u64),
    Write(SinkWrite),
    /// A guest's result.
    Result {
        lease: Lease,
        key: Vec<u8>,
    },
}

/// What it is told.
#[derive(Debug)]
pub(super) enum Reply {
    Read(Result<Vec<Answer>, InfraError>),
    Committed(Vec<Result<CommitOutcome, InfraError>>),
    Waited,
    /// Whether the sink took the keys; `None` if it did not say.
    Written(Option<bool>),
}

impl Reply {
    /// Whether it leaves open what became of a commit.
    pub(super) fn is_unsure(&self) -> bool {
        let Self::Committed(outcomes) = self else { return false };
        outcomes.iter().any(|outcome| matches!(outcome, Ok(CommitOutcome::Unknown)))
    }

    /// What a line of a trace says of it.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Read(Ok(answers)) => format!("{} answers", answers.len()),
            Self::Read(Err(error)) => format!("that a read failed: {error}"),
            Self::Committed(outcomes) => {
                let name = |outcome: &Result<CommitOutcome, InfraError>| match outcome {
                    Ok(CommitOutcome::Applied { .. }) => "applied",
                    Ok(CommitOutcome::Conflict(_)) => "conflict",
                    Ok(CommitOutcome::Unknown) => "unknown",
                    Err(_) => "refused",
                };
                outcomes.iter().map(name).collect::<Vec<_>>().join(", ")
            }
            Self::Waited => "to go on".to_owned(),
            Self::Written(taken) => format!("by the sink: {taken:?}"),
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
    /// What a guest wrote and the world has not read.
    messages: Vec<Message>,
    /// A guest's own clock.
    clock: u64,
    /// The runs that a guest knows of.
    runs: Vec<RunId>,
}

impl SimStore {
    pub(super) fn new(binding: Option<u64>, limits: StoreLimits) -> Self {
        let (asked, result, messages, runs) = (None, None, Vec::new(), Vec::new());
        let port = Port { asked, result, binding, limits, messages, clock: 0, runs };
        Self(Arc::new(Mutex::new(port)))
    }

    /// Writes a letter.
    pub(super) fn post(&self, message: Message) {
        self.port().messages.push(message);
    }

    /// Takes the letters that were written.
    pub(super) fn messages(&self) -> Vec<Message> {
        std::mem::take(&mut self.port().messages)
    }

    /// Says what a guest sees when it goes on.
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

    /// Takes the question that waits.
    pub(super) fn asked(&self) -> Option<Ask> {
        self.port().asked.take()
    }

    /// Answers the question that was taken.
    pub(super) fn tell(&self, reply: Reply) {
        self.port().result = Some(reply);
    }

    /// Says that what was bound may have vanished.
    pub(super) fn bind_anew(&self) {
        let mut port = self.port();
        port.binding = port.binding.map(|binding| binding + 1);
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&self, ask: Ask) -> Exchange<'_> {
        Exchange { store: self, ask: Some(ask) }
    }

    fn port(&self) -> MutexGuard<'_, Port> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question until it is answered.
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

/// What a world that answers a different question shows.
const CROSSED: &str = "the world answers the question that was asked";

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
