//! Group commit: concurrent transactions of a process share requests.
//!
//! Every handle of a process puts its transactions in one queue. Two sender tasks drain it: each
//! fills one batch up to the request limit, sends it and completes the waiting callers. At most two
//! requests are in flight, and the next batches form meanwhile. Before it fills a batch a sender
//! task yields to other ready tasks, because the callers of the previous batch have just been woken
//! and are about to submit again. It never waits for a batch to fill. While nothing is in flight, a
//! transaction bypasses the queue, so a single caller pays nothing for batching.
//!
//! A transaction that conflicts with the batch (see [`batch`](crate::batch)) or does not fit comes
//! first in the next one, so none waits for more than the batches before it.
//!
//! # Never
//! - queues more than [`QUEUE_MAX`] transactions: callers wait for space, which is the
//!   back-pressure;
//! - loses a transaction: if a sender task ends early its transactions are
//!   [`CommitOutcome::Unknown`];
//! - depends on a caller that stops polling its future;
//! - starts to send a transaction whose caller is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::CommitOutcome;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use crate::abort_on_drop::AbortOnDrop;
use crate::batch::{Batch, PreparedTxn};
use crate::budget::Budget;
use crate::kv::EtcdKv;
use crate::sender::{Outcome, Sender};
use crate::tasks::Tasks;

/// Requests in flight. One would leave the server idle while outcomes are handed out; with three
/// the batches are smaller and the server does more work for the same.
const SENDER_TASKS: usize = 2;

/// Transactions that wait in the queue: eight full batches of a default server.
const QUEUE_MAX: usize = 1024;

/// Transactions of the queue that a carrier looks at beyond those that it takes. More that meet
/// each other than this wait their turn in the queue.
const DEFERRED_MAX: usize = 256;

const _: () = assert!(DEFERRED_MAX < QUEUE_MAX);

/// Times that a carrier lets others go first before it gathers, and only as long as that brings
/// more. Without, the first of many who are about to send would travel almost alone. Tokio comes
/// back to one who steps aside after at most 61 others, as it is usually set: twice is enough for a
/// full batch of a default server, and it may come back sooner.
const YIELDS_MAX: usize = 4;

/// The way to the carriers. Clones share them; the carriers end with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Coalescer {
    queue: mpsc::Sender<Waiting>,
    /// One permit for each request that may be in flight.
    permits: Arc<Semaphore>,
    /// Where the carriers run.
    tasks: Tasks,
}

/// A transaction and who waits for its outcome.
type Waiting = (PreparedTxn, oneshot::Sender<Outcome>);

impl Coalescer {
    /// Starts the carriers as `tasks`.
    pub(crate) fn start<K: EtcdKv>(sender: &Arc<Sender<K>>, tasks: Tasks) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        let permits = Arc::new(Semaphore::new(SENDER_TASKS));
        let inbox = Arc::new(Mutex::new(Inbox { queue: inbox, deferred: VecDeque::new() }));
        for _ in 0..SENDER_TASKS {
            let (sender, inbox) = (Arc::clone(sender), Arc::clone(&inbox));
            drop(tasks.spawn(run_sender_task(sender, inbox, Arc::clone(&permits))));
        }
        Self { queue, permits, tasks }
    }

    /// Sends one transaction, with others if there are any.
    pub(crate) async fn commit<K: EtcdKv>(
        &self,
        sender: &Arc<Sender<K>>,
        txn: PreparedTxn,
    ) -> Outcome {
        let is_idle = self.permits.available_permits() == SENDER_TASKS
            && self.queue.capacity() == self.queue.max_capacity();
        if is_idle && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let sender = Arc::clone(sender);
            let alone = async move {
                let outcome = sender.send_single(&txn).await;
                drop(permit);
                outcome
            };
            let outcome = AbortOnDrop::start(&self.tasks, alone).await;
            return outcome.unwrap_or(Ok(CommitOutcome::Unknown));
        }
        let (reply, received) = oneshot::channel();
        if self.queue.send((txn, reply)).await.is_err() {
            return Err(closed());
        }
        received.await.unwrap_or(Ok(CommitOutcome::Unknown))
    }

    /// Sends several transactions, together as far as they fit, and answers in their order.
    pub(crate) async fn commit_all(&self, prepared: Vec<PreparedTxn>) -> Vec<Outcome> {
        let mut waiting = Vec::with_capacity(prepared.len());
        let mut queued = Vec::with_capacity(prepared.len());
        for txn in prepared {
            let (reply, received) = oneshot::channel();
            queued.push((txn, reply));
            waiting.push(received);
        }
        let sent = self.enqueue_all(queued).await;
        let mut outcomes = Vec::with_capacity(waiting.len());
        for (index, received) in waiting.into_iter().enumerate() {
            outcomes.push(match index < sent {
                true => received.await.unwrap_or(Ok(CommitOutcome::Unknown)),
                false => Err(closed()),
            });
        }
        outcomes
    }

    /// How many requests more may be in flight.
    #[cfg(test)]
    pub(crate) fn free_permits(&self) -> usize {
        self.permits.available_permits()
    }

    /// Puts transactions into the queue, and answers how many of them before it was closed.
    async fn enqueue_all(&self, queued: Vec<Waiting>) -> usize {
        let count = queued.len();
        // Places are taken together, so that a carrier finds all of them at once.
        if let Ok(places) = self.queue.try_reserve_many(count) {
            places.zip(queued).for_each(|(place, txn)| place.send(txn));
            return count;
        }
        // One who waits for many places would hold those that it has while nobody looks at it.
        for (index, txn) in queued.into_iter().enumerate() {
            if self.queue.send(txn).await.is_err() {
                return index;
            }
        }
        count
    }
}

/// Carries batches until nobody can send any more.
async fn run_sender_task<K: EtcdKv>(
    sender: Arc<Sender<K>>,
    inbox: Arc<Mutex<Inbox>>,
    permits: Arc<Semaphore>,
) {
    loop {
        let (batch, permit) = {
            let mut inbox = inbox.lock().await;
            let Some(first) = inbox.first().await else { return };
            // While a handle sends for itself, more gather here.
            let Ok(permit) = permits.acquire().await else { return };
            inbox.yield_for_more(&sender.budget).await;
            // That may have taken long, and its caller may have given up meanwhile.
            if !is_awaited(&first) {
                continue;
            }
            (inbox.gather(&sender, first), permit)
        };
        for (reply, outcome) in sender.send_batch(batch).await {
            // Whoever gave up waiting does not want to know.
            let _gone = reply.send(outcome);
        }
        drop(permit);
    }
}

/// What the carriers take from.
struct Inbox {
    queue: mpsc::Receiver<Waiting>,
    /// Did not fit into a batch before; at most [`DEFERRED_MAX`].
    deferred: VecDeque<Waiting>,
}

impl Inbox {
    /// The transaction that has waited longest; `None` when there will be no more.
    async fn first(&mut self) -> Option<Waiting> {
        loop {
            let first = match self.deferred.pop_front() {
                Some(first) => first,
                None => self.queue.recv().await?,
            };
            if is_awaited(&first) {
                return Some(first);
            }
        }
    }

    /// Lets those go first who are about to send, until no more come or a batch would be full.
    async fn yield_for_more(&self, budget: &Budget) {
        for _ in 0..YIELDS_MAX {
            let before = self.waiting_count();
            if before >= budget.ops {
                return;
            }
            tokio::task::yield_now().await;
            if self.waiting_count() == before {
                return;
            }
        }
    }

    /// Transactions that wait behind the first.
    fn waiting_count(&self) -> usize {
        self.deferred.len() + self.queue.len()
    }

    /// Everything that waits and may travel with `first`.
    fn gather<K>(
        &mut self,
        sender: &Sender<K>,
        (txn, reply): Waiting,
    ) -> Batch<oneshot::Sender<Outcome>> {
        let mut batch = Batch::of(txn, reply);
        let deferred = std::mem::take(&mut self.deferred);
        for (txn, reply) in deferred.into_iter().filter(is_awaited) {
            self.deferred.extend(batch.add(&sender.budget, txn, reply));
        }
        while self.deferred.len() < DEFERRED_MAX && batch.has_room(&sender.budget) {
            let Ok(waiting) = self.queue.try_recv() else { break };
            if is_awaited(&waiting) {
                let (txn, reply) = waiting;
                self.deferred.extend(batch.add(&sender.budget, txn, reply));
            }
        }
        batch
    }
}

/// Whether somebody still waits for the outcome. During an outage callers give up and come back,
/// again and again; what they left behind must not stand in the way when it is over.
fn is_awaited((_, reply): &Waiting) -> bool {
    !reply.is_closed()
}

fn closed() -> InfraError {
    let message = "the runtime of the store has ended".to_owned();
    InfraError::Transient { operation: "etcd.commit", message }
}
