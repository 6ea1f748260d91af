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

/// Sender tasks, and so requests in flight. With one the server would be idle while callers are
/// completed; with three the batches are smaller and cost the server more.
const SENDER_TASKS: usize = 2;

/// Capacity of the queue: eight full batches of a server with default limits.
const QUEUE_MAX: usize = 1024;

/// Transactions that a sender task takes from the queue and defers to a later batch, because they
/// conflict with the present one. Further conflicting transactions stay in the queue.
const DEFERRED_MAX: usize = 256;

const _: () = assert!(DEFERRED_MAX < QUEUE_MAX);

/// How often a sender task yields before it fills a batch, and only while the queue grows. Without
/// it, the first of many woken callers would be sent almost alone. By default tokio resumes a
/// yielded task after at most 61 others: two yields suffice for a full batch of a default server,
/// and it may resume sooner.
const YIELDS_MAX: usize = 4;

/// Handle to the sender tasks. Clones share them; they end with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Coalescer {
    queue: mpsc::Sender<Waiting>,
    /// One permit per request that may be in flight.
    permits: Arc<Semaphore>,
    /// Where the sender tasks run.
    tasks: Tasks,
}

/// A transaction and the channel to its caller.
type Waiting = (PreparedTxn, oneshot::Sender<Outcome>);

impl Coalescer {
    /// Starts the sender tasks on `tasks`.
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

    /// Sends one transaction, batched with concurrent ones or alone if none is in flight, and
    /// returns its outcome. `Unknown` if the task that sends it ends early; an error means that it
    /// was certainly not applied.
    pub(crate) async fn commit<K: EtcdKv>(
        &self,
        sender: &Arc<Sender<K>>,
        txn: PreparedTxn,
    ) -> Outcome {
        // Only if nothing is queued: bypassing a queue would starve it.
        let is_idle = self.permits.available_permits() == SENDER_TASKS
            && self.queue.capacity() == self.queue.max_capacity();
        if is_idle && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let sender = Arc::clone(sender);
            // In its own task: the permit must be released even if the caller stops polling.
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
        // The sender task ended after it took the transaction, which may be applied.
        received.await.unwrap_or(Ok(CommitOutcome::Unknown))
    }

    /// Sends several transactions, batched as far as they fit, and returns their outcomes in order.
    /// Each has its own outcome, as with [`commit`](Self::commit); they are not atomic together.
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

    /// Returns how many more requests may be in flight.
    #[cfg(test)]
    pub(crate) fn free_permits(&self) -> usize {
        self.permits.available_permits()
    }

    /// Queues transactions and returns how many were queued before the queue was closed.
    async fn enqueue_all(&self, queued: Vec<Waiting>) -> usize {
        let count = queued.len();
        // Reserved together, so that a sender task finds all of them in one batch.
        if let Ok(slots) = self.queue.try_reserve_many(count) {
            slots.zip(queued).for_each(|(slot, txn)| slot.send(txn));
            return count;
        }
        // One by one: a caller that awaited many slots together would keep those it has from other
        // callers while it is not polled.
        for (index, txn) in queued.into_iter().enumerate() {
            if self.queue.send(txn).await.is_err() {
                return index;
            }
        }
        count
    }
}

/// Sends batches until every handle is dropped.
async fn run_sender_task<K: EtcdKv>(
    sender: Arc<Sender<K>>,
    inbox: Arc<Mutex<Inbox>>,
    permits: Arc<Semaphore>,
) {
    loop {
        // The inbox is locked while a batch is filled and free while it is sent, so the other
        // sender task fills the next one.
        let (batch, permit) = {
            let mut inbox = inbox.lock().await;
            let Some(first) = inbox.first().await else { return };
            // Before the batch is filled: while a bypassing caller holds the permit more callers
            // arrive, and they join this batch.
            let Ok(permit) = permits.acquire().await else { return };
            inbox.yield_for_more(&sender.budget).await;
            // Waiting for the permit may have taken long, and the caller may be gone by now.
            if !is_awaited(&first) {
                continue;
            }
            (inbox.gather(&sender, first), permit)
        };
        for (reply, outcome) in sender.send_batch(batch).await {
            // Fails if the caller has dropped its future, which is no error.
            let _gone = reply.send(outcome);
        }
        drop(permit);
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
            if is_awaited(&first) {
                return Some(first);
            }
        }
    }

    /// Yields to callers that are about to submit, until no more arrive or a batch would be full.
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

    /// Returns how many transactions wait behind the first.
    fn waiting_count(&self) -> usize {
        self.deferred.len() + self.queue.len()
    }

    /// Returns a batch of the given transaction and all waiting ones that fit. Those that do not
    /// are deferred; those whose caller is gone are dropped unsent.
    fn gather<K>(
        &mut self,
        sender: &Sender<K>,
        (txn, reply): Waiting,
    ) -> Batch<oneshot::Sender<Outcome>> {
        let mut batch = Batch::of(txn, reply);
        // Deferred transactions first: they are older than the queue.
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

/// Returns whether the caller still waits. During an outage callers time out and retry repeatedly;
/// their abandoned transactions must not delay live ones afterwards.
fn is_awaited((_, reply): &Waiting) -> bool {
    !reply.is_closed()
}

fn closed() -> InfraError {
    let message = "the runtime of the store has ended".to_owned();
    InfraError::Transient { operation: "etcd.commit", message }
}
