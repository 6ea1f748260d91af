//! Group commit: transactions that wait at the same time travel together.
//!
//! Every handle of a process puts its transactions in one queue. Two carriers take turns: each
//! takes what waits, as much as one request holds, sends it, and hands out the outcomes. So at most
//! two requests are in flight, and while they are, the next batches gather. A carrier that is free
//! lets whoever is ready to run go first, because all that were just told the outcomes of a batch
//! are, and about to send again. It waits for nobody else, and takes what there is, be it one. When
//! nothing at all is in flight a transaction is sent past the queue, and a lone worker pays nothing
//! for the rest.
//!
//! A transaction that meets another of the batch (see [`batch`](crate::batch)), or does not fit, is
//! the first of the next one, so none waits for more than the batches before it.
//!
//! # Never
//! - holds more than [`QUEUE_MAX`] transactions: then handles wait, which is the back-pressure;
//! - loses one: if a carrier ends early its transactions are [`CommitOutcome::Unknown`];
//! - waits for a caller: one that does not look at its future keeps nobody else waiting;
//! - begins to send what nobody waits for any more.

use std::collections::VecDeque;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::CommitOutcome;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use crate::batch::{Batch, Parcel};
use crate::budget::Budget;
use crate::driven::Driven;
use crate::kv::EtcdKv;
use crate::post::{Outcome, Post};
use crate::tasks::Tasks;

/// Requests in flight. One would leave the server idle while outcomes are handed out; with three
/// the batches are smaller and the server does more work for the same.
const CARRIERS: usize = 2;

/// Transactions that wait in the queue: eight full batches of a default server.
const QUEUE_MAX: usize = 1024;

/// Transactions of the queue that a carrier looks at beyond those that it takes. More that meet
/// each other than this wait their turn in the queue.
const SET_ASIDE_MAX: usize = 256;

const _: () = assert!(SET_ASIDE_MAX < QUEUE_MAX);

/// Times that a carrier lets others go first before it gathers, and only as long as that brings
/// more. Without, the first of many who are about to send would travel almost alone. Tokio comes
/// back to one who steps aside after at most 61 others, as it is usually set: twice is enough for a
/// full batch of a default server, and it may come back sooner.
const STEPS_ASIDE_MAX: usize = 4;

/// The way to the carriers. Clones share them; the carriers end with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Coalescer {
    queue: mpsc::Sender<Waiting>,
    /// One permit for each request that may be in flight.
    flights: Arc<Semaphore>,
    /// Where the carriers run.
    tasks: Tasks,
}

/// A transaction and who waits for its outcome.
type Waiting = (Parcel, oneshot::Sender<Outcome>);

impl Coalescer {
    /// Starts the carriers as `tasks`.
    pub(crate) fn start<K: EtcdKv>(post: &Arc<Post<K>>, tasks: Tasks) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        let flights = Arc::new(Semaphore::new(CARRIERS));
        let inbox = Arc::new(Mutex::new(Inbox { queue: inbox, set_aside: VecDeque::new() }));
        for _ in 0..CARRIERS {
            let (post, inbox) = (Arc::clone(post), Arc::clone(&inbox));
            drop(tasks.spawn(carry(post, inbox, Arc::clone(&flights))));
        }
        Self { queue, flights, tasks }
    }

    /// Sends one transaction, with others if there are any.
    pub(crate) async fn commit<K: EtcdKv>(&self, post: &Arc<Post<K>>, parcel: Parcel) -> Outcome {
        let is_idle = self.flights.available_permits() == CARRIERS
            && self.queue.capacity() == self.queue.max_capacity();
        if is_idle && let Ok(flight) = Arc::clone(&self.flights).try_acquire_owned() {
            let post = Arc::clone(post);
            let alone = async move {
                let outcome = post.deliver_single(&parcel).await;
                drop(flight);
                outcome
            };
            let outcome = Driven::start(&self.tasks, alone).await;
            return outcome.unwrap_or(Ok(CommitOutcome::Unknown));
        }
        let (tell, told) = oneshot::channel();
        if self.queue.send((parcel, tell)).await.is_err() {
            return Err(closed());
        }
        told.await.unwrap_or(Ok(CommitOutcome::Unknown))
    }

    /// Sends several transactions, together as far as they fit, and answers in their order.
    pub(crate) async fn commit_all(&self, parcels: Vec<Parcel>) -> Vec<Outcome> {
        let mut waiting = Vec::with_capacity(parcels.len());
        let mut letters = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let (tell, told) = oneshot::channel();
            letters.push((parcel, tell));
            waiting.push(told);
        }
        let sent = self.post_all(letters).await;
        let mut outcomes = Vec::with_capacity(waiting.len());
        for (index, told) in waiting.into_iter().enumerate() {
            outcomes.push(match index < sent {
                true => told.await.unwrap_or(Ok(CommitOutcome::Unknown)),
                false => Err(closed()),
            });
        }
        outcomes
    }

    /// How many requests more may be in flight.
    #[cfg(test)]
    pub(crate) fn free_flights(&self) -> usize {
        self.flights.available_permits()
    }

    /// Puts transactions into the queue, and answers how many of them before it was closed.
    async fn post_all(&self, letters: Vec<Waiting>) -> usize {
        let count = letters.len();
        // Places are taken together, so that a carrier finds all of them at once.
        if let Ok(places) = self.queue.try_reserve_many(count) {
            places.zip(letters).for_each(|(place, letter)| place.send(letter));
            return count;
        }
        // One who waits for many places would hold those that it has while nobody looks at it.
        for (index, letter) in letters.into_iter().enumerate() {
            if self.queue.send(letter).await.is_err() {
                return index;
            }
        }
        count
    }
}

/// Carries batches until nobody can send any more.
async fn carry<K: EtcdKv>(post: Arc<Post<K>>, inbox: Arc<Mutex<Inbox>>, flights: Arc<Semaphore>) {
    loop {
        let (batch, flight) = {
            let mut inbox = inbox.lock().await;
            let Some(first) = inbox.first().await else { return };
            // While a handle sends for itself, more gather here.
            let Ok(flight) = flights.acquire().await else { return };
            inbox.step_aside(&post.budget).await;
            // That may have taken long, and its caller may have given up meanwhile.
            if !is_awaited(&first) {
                continue;
            }
            (inbox.gather(&post, first), flight)
        };
        for (tell, outcome) in post.deliver(batch).await {
            // Whoever gave up waiting does not want to know.
            let _gone = tell.send(outcome);
        }
        drop(flight);
    }
}

/// What the carriers take from.
struct Inbox {
    queue: mpsc::Receiver<Waiting>,
    /// Did not fit into a batch before; at most [`SET_ASIDE_MAX`].
    set_aside: VecDeque<Waiting>,
}

impl Inbox {
    /// The transaction that has waited longest; `None` when there will be no more.
    async fn first(&mut self) -> Option<Waiting> {
        loop {
            let first = match self.set_aside.pop_front() {
                Some(first) => first,
                None => self.queue.recv().await?,
            };
            if is_awaited(&first) {
                return Some(first);
            }
        }
    }

    /// Lets those go first who are about to send, until no more come or a batch would be full.
    async fn step_aside(&self, budget: &Budget) {
        for _ in 0..STEPS_ASIDE_MAX {
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
        self.set_aside.len() + self.queue.len()
    }

    /// Everything that waits and may travel with `first`.
    fn gather<K>(
        &mut self,
        post: &Post<K>,
        (parcel, tell): Waiting,
    ) -> Batch<oneshot::Sender<Outcome>> {
        let mut batch = Batch::of(parcel, tell);
        let set_aside = std::mem::take(&mut self.set_aside);
        for (parcel, tell) in set_aside.into_iter().filter(is_awaited) {
            self.set_aside.extend(batch.add(&post.budget, parcel, tell));
        }
        while self.set_aside.len() < SET_ASIDE_MAX && batch.has_room(&post.budget) {
            let Ok(waiting) = self.queue.try_recv() else { break };
            if is_awaited(&waiting) {
                let (parcel, tell) = waiting;
                self.set_aside.extend(batch.add(&post.budget, parcel, tell));
            }
        }
        batch
    }
}

/// Whether somebody still waits for the outcome. During an outage callers give up and come back,
/// again and again; what they left behind must not stand in the way when it is over.
fn is_awaited((_, tell): &Waiting) -> bool {
    !tell.is_closed()
}

fn closed() -> InfraError {
    let message = "the runtime of the store has ended".to_owned();
    InfraError::Transient { operation: "etcd.commit", message }
}
