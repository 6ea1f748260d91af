//! Group commit: concurrent transactions of a process share calls.
//!
//! Every handle of a process puts its transactions in one queue. Two sender tasks drain it: each
//! fills one batch with what waits, sends it on a session of its own and completes the callers. At
//! most two calls are in flight, and the next batches form meanwhile. A task never waits for a
//! batch to fill, but yields to callers that have just been woken and are about to submit again.
//!
//! A transaction that is not independent of the batch, does not fit, or was decided in another
//! incarnation comes first in the next one.
//!
//! # Never
//! - queues more than [`QUEUE_MAX`] transactions: callers wait for space, which is the
//!   back-pressure;
//! - loses a transaction: if a sender task ends early its transactions are
//!   [`CommitOutcome::Unknown`];
//! - stops a call whose caller is gone, or starts to send a transaction whose caller is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::{CommitOutcome, Txn};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::batch::{Batch, Outcome};
use crate::server::Server;

/// Sender tasks, and so calls in flight. With one the server would be idle while callers are
/// completed; with many the batches are small, and each costs a flush of the log.
const SENDER_TASKS: usize = 2;

/// Capacity of the queue: four full batches.
const QUEUE_MAX: usize = 1024;

/// Transactions that are taken from the queue and deferred to a later batch. Further ones stay in
/// the queue.
const DEFERRED_MAX: usize = 256;

const _: () = assert!(DEFERRED_MAX < QUEUE_MAX);

/// How often a sender task yields before it fills a batch, and only while the queue grows.
const YIELDS_MAX: usize = 4;

/// Handle to the sender tasks. Clones share them; they end with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct GroupCommit {
    queue: mpsc::Sender<Waiting>,
}

/// A transaction with its caller.
struct Waiting {
    txn: Txn,
    /// The incarnation in which the caller has read.
    incarnation: i64,
    reply: oneshot::Sender<Outcome>,
}

impl Waiting {
    /// Returns whether the caller still waits. During an outage callers time out and retry
    /// repeatedly; their abandoned transactions must not delay live ones afterwards.
    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }
}

impl GroupCommit {
    /// Starts the sender tasks on the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(crate) fn start(server: &Arc<Server>) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        let inbox = Arc::new(Mutex::new(Inbox { queue: inbox, deferred: VecDeque::new() }));
        for _ in 0..SENDER_TASKS {
            drop(tokio::spawn(run_sender_task(Arc::clone(server), Arc::clone(&inbox))));
        }
        Self { queue }
    }

    /// Commits transactions, batched as far as they fit, and returns their outcomes in order. They
    /// are not atomic together.
    pub(crate) async fn commit(&self, incarnation: i64, txns: Vec<Txn>) -> Vec<Outcome> {
        let mut replies = Vec::with_capacity(txns.len());
        for txn in txns {
            let (reply, received) = oneshot::channel();
            let is_queued = self.queue.send(Waiting { txn, incarnation, reply }).await.is_ok();
            replies.push((is_queued, received));
        }
        let mut outcomes = Vec::with_capacity(replies.len());
        for (is_queued, received) in replies {
            outcomes.push(match is_queued {
                // The sender task ended after it took the transaction, which may be applied.
                true => received.await.unwrap_or(Ok(CommitOutcome::Unknown)),
                false => Err(closed()),
            });
        }
        outcomes
    }
}

/// Sends batches until every handle is dropped.
async fn run_sender_task(server: Arc<Server>, inbox: Arc<Mutex<Inbox>>) {
    loop {
        // The inbox is locked while a batch is filled and free while it is sent, so the other
        // sender task fills the next one.
        let (incarnation, batch) = {
            let mut inbox = inbox.lock().await;
            let Some(first) = inbox.first().await else { return };
            inbox.yield_for_more().await;
            inbox.gather(first)
        };
        for (reply, outcome) in server.commit(incarnation, batch).await {
            // Fails if the caller has dropped its future, which is no error.
            let _gone = reply.send(outcome);
        }
    }
}

/// The receiving end of the queue, used by one sender task at a time.
struct Inbox {
    queue: mpsc::Receiver<Waiting>,
    /// Did not fit into an earlier batch; at most [`DEFERRED_MAX`].
    deferred: VecDeque<Waiting>,
}

impl Inbox {
    /// Returns the transaction that has waited longest; `None` when the queue is closed.
    async fn first(&mut self) -> Option<Waiting> {
        loop {
            let first = match self.deferred.pop_front() {
                Some(first) => first,
                None => self.queue.recv().await?,
            };
            if first.is_awaited() {
                return Some(first);
            }
        }
    }

    /// Yields to callers that are about to submit, until no more arrive.
    async fn yield_for_more(&self) {
        for _ in 0..YIELDS_MAX {
            let before = self.queue.len();
            tokio::task::yield_now().await;
            if self.queue.len() == before {
                return;
            }
        }
    }

    /// Returns a batch of the given transaction and all waiting ones that fit, and its incarnation.
    /// Those that do not fit are deferred; those whose caller is gone are dropped unsent.
    fn gather(&mut self, first: Waiting) -> (i64, Batch<oneshot::Sender<Outcome>>) {
        let incarnation = first.incarnation;
        let mut batch = Batch::of(first.txn, first.reply);
        // Deferred transactions first: they are older than the queue.
        for waiting in std::mem::take(&mut self.deferred) {
            self.deferred.extend(add(&mut batch, incarnation, waiting));
        }
        while self.deferred.len() < DEFERRED_MAX && batch.has_room() {
            let Ok(waiting) = self.queue.try_recv() else { break };
            self.deferred.extend(add(&mut batch, incarnation, waiting));
        }
        (incarnation, batch)
    }
}

/// Adds a transaction to a batch of an incarnation, or returns it.
fn add(
    batch: &mut Batch<oneshot::Sender<Outcome>>,
    incarnation: i64,
    waiting: Waiting,
) -> Option<Waiting> {
    if !waiting.is_awaited() {
        return None;
    }
    if waiting.incarnation != incarnation {
        return Some(waiting);
    }
    let (txn, reply) = batch.add(waiting.txn, waiting.reply)?;
    Some(Waiting { txn, incarnation, reply })
}

fn closed() -> InfraError {
    let message = "the runtime of the store has ended".to_owned();
    InfraError::Transient { operation: "postgres.commit", message }
}
