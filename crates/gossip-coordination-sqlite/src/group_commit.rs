//! Leader-based group commit without a dedicated thread: the first caller commits for every queued
//! caller.
//!
//! A caller submits a job. If no leader is active it becomes the leader: it takes every queued job,
//! commits them as one batch and returns each job to its caller with the result inside. A job is
//! therefore created and dropped by the same thread.
//!
//! Callers that arrive meanwhile are queued for the next batch. A single caller pays no thread
//! switch, and no batch waits to fill: the next batch is whatever queued up during the last one.
//!
//! A leader commits further batches while callers are queued, up to [`ROUNDS_MAX`], and then passes
//! the lead to the first of them.
//!
//! Waking a thread takes longer than committing its job, and nothing commits while the leader wakes
//! threads. So the leader wakes one of every [`RELAY`] callers, which wakes the others before it
//! returns.
//!
//! # Invariants
//! - While jobs are queued, a leader is active or has been signalled.
//! - A leader is the first of the queued callers, so its own job is in its first batch.
//! - If a leader panics, no caller keeps waiting: the others learn that their result is lost.
//! - A panic in a batch that a caller commits for others does not reach that caller: its own job
//!   was completed before.
//! - A caller that must wake others returns right after it has done so. A leader would wake them
//!   only after its lead, so it is never asked to.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError, RELAY, Thread, thread};

/// Batches that one caller commits before it passes the lead on. On a busy machine waking the next
/// leader takes about as long as a commit, so the lead is passed rarely: with 8 instead, 64 callers
/// were a twentieth slower. A caller whose own job is done waits for at most this many batches.
pub(crate) const ROUNDS_MAX: usize = 32;

/// Commits jobs `J` in batches and returns each to its caller.
#[derive(Debug)]
pub(crate) struct GroupCommit<J> {
    queue: Mutex<Queue<J>>,
    /// The largest load of one batch; a job that exceeds it alone is a batch of its own.
    load_max: usize,
    /// How long one caller leads before it passes the lead on, however few batches that were.
    lead_time_max: Duration,
}

#[derive(Debug)]
struct Queue<J> {
    waiting: VecDeque<Waiter<J>>,
    /// Whether a leader is active or has been signalled.
    has_leader: bool,
}

#[derive(Debug)]
struct Waiter<J> {
    job: J,
    load: usize,
    ticket: Arc<Ticket<J>>,
}

/// Where one caller waits for its signal.
#[derive(Debug)]
struct Ticket<J> {
    signal: Mutex<Signal<J>>,
    /// The waiting thread. Unparking a thread that does not sleep needs no system call, and a
    /// leader never sleeps for its own result.
    caller: Thread,
}

#[derive(Debug)]
enum Signal<J> {
    /// Nothing yet.
    Wait,
    /// This caller is the leader now.
    Lead,
    /// The job is done. The caller must wake these, whose jobs are done, too.
    Done(J, Vec<Arc<Ticket<J>>>),
    /// The leader panicked, and the result is unknown.
    Lost,
}

impl<J> GroupCommit<J> {
    /// Returns an empty queue whose batches hold up to `load_max`, and whose leaders lead for up to
    /// `lead_time_max`.
    pub(crate) const fn new(load_max: usize, lead_time_max: Duration) -> Self {
        let queue = Queue { waiting: VecDeque::new(), has_leader: false };
        Self { queue: Mutex::new(queue), load_max, lead_time_max }
    }

    /// Commits `job` in a batch, by `commit_batch` or by that of another caller, and returns it
    /// with its result inside. Blocks until then. `None` if another caller led and panicked: the
    /// job may or may not have been committed. A panic of this caller's own batch is not caught.
    pub(crate) fn submit(
        &self,
        job: J,
        load: usize,
        mut commit_batch: impl FnMut(&mut [J]),
    ) -> Option<J> {
        let ticket =
            Arc::new(Ticket { signal: Mutex::new(Signal::Wait), caller: thread::current() });
        if !self.enqueue(Waiter { job, load, ticket: Arc::clone(&ticket) }) {
            match ticket.wait() {
                Signal::Done(job, others) => {
                    // Before returning: these callers sleep until this thread wakes them.
                    others.iter().for_each(|other| other.caller.unpark());
                    return Some(job);
                }
                Signal::Lost => return None,
                Signal::Lead | Signal::Wait => {}
            }
        }
        self.lead(&mut commit_batch);
        match ticket.wait() {
            Signal::Done(job, others) => {
                assert!(others.is_empty(), "a leader wakes no other caller after its lead");
                Some(job)
            }
            Signal::Lost | Signal::Lead | Signal::Wait => None,
        }
    }

    /// Commits queued jobs in batches until the queue is empty or a limit is reached, and passes
    /// the lead on then. The first batch contains the leader's own job.
    fn lead(&self, commit_batch: &mut impl FnMut(&mut [J])) {
        let begun = Instant::now();
        for round in 1.. {
            let (mut jobs, tickets) = self.take();
            // Made before the commit: a panic drops it, which signals every caller in the batch.
            let mut batch = Batch { group_commit: self, tickets, leads: true };
            let is_own = round == 1;
            let is_done = match is_own {
                true => {
                    commit_batch(&mut jobs);
                    true
                }
                // The leader's own job is done, so a panic here must not unwind into its caller.
                // The panic hook has reported it; the callers of this batch get `Lost`.
                false => catch_unwind(AssertUnwindSafe(|| commit_batch(&mut jobs))).is_ok(),
            };
            if is_done {
                batch.complete(jobs, is_own);
            }
            if round == ROUNDS_MAX || begun.elapsed() >= self.lead_time_max || !batch.keep_lead() {
                break;
            }
        }
    }

    /// Queues a caller and returns whether it becomes the leader.
    fn enqueue(&self, waiter: Waiter<J>) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back(waiter);
        // Under the same lock as the push: a leader that finds the queue empty gives up the lead
        // under it, so no job is queued without a leader.
        !std::mem::replace(&mut queue.has_leader, true)
    }

    /// Removes the jobs of the next batch and the tickets of their callers, the leader's first.
    fn take(&self) -> (Vec<J>, Vec<Arc<Ticket<J>>>) {
        let mut queue = self.queue();
        let mut load = 0_usize;
        let mut fits = |waiter: &Waiter<J>| {
            load = load.saturating_add(waiter.load);
            load <= self.load_max
        };
        // At least one, or a job over the limit would block the queue for ever.
        let count = queue.waiting.iter().take_while(|it| fits(it)).count().max(1);
        queue.waiting.drain(..count).map(|waiter| (waiter.job, waiter.ticket)).unzip()
    }

    /// Signals the first queued caller to lead, or records that there is no leader.
    fn pass_lead(&self) {
        let mut queue = self.queue();
        match queue.waiting.front() {
            Some(next) => next.ticket.send(Signal::Lead),
            None => queue.has_leader = false,
        }
    }

    #[cfg(test)]
    pub(crate) fn has_leader(&self) -> bool {
        let queue = self.queue();
        // The leader has taken its own job by then.
        queue.has_leader && queue.waiting.is_empty()
    }

    /// Queues a job whose caller does not wait.
    #[cfg(test)]
    pub(crate) fn enqueue_unattended(&self, job: J) {
        let ticket =
            Arc::new(Ticket { signal: Mutex::new(Signal::Wait), caller: thread::current() });
        self.queue().waiting.push_back(Waiter { job, load: 1, ticket });
    }

    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.queue().waiting.len()
    }

    fn queue(&self) -> MutexGuard<'_, Queue<J>> {
        // Nothing that can panic runs under this lock, so a poisoned queue is consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Ticket<J> {
    fn send(&self, signal: Signal<J>) {
        // Stored before the wake-up: a woken caller must find it.
        *self.signal() = signal;
        self.caller.unpark();
    }

    /// Waits for a signal and takes it. Only the ticket's caller waits.
    fn wait(&self) -> Signal<J> {
        loop {
            // The lock is released before the caller sleeps, or no signal could be stored.
            let signal = std::mem::replace(&mut *self.signal(), Signal::Wait);
            match signal {
                // `park` may return spuriously, and returns at once if `unpark` came first.
                Signal::Wait => thread::park(),
                signal @ (Signal::Lead | Signal::Done(..) | Signal::Lost) => return signal,
            }
        }
    }

    fn signal(&self) -> MutexGuard<'_, Signal<J>> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch being committed. Dropping it, also by a panic, passes the lead on and signals every
/// caller that has no result.
struct Batch<'c, J> {
    group_commit: &'c GroupCommit<J>,
    /// Tickets of the callers without a result.
    tickets: Vec<Arc<Ticket<J>>>,
    /// Whether the lead is still to be passed on.
    leads: bool,
}

impl<J> Batch<'_, J> {
    /// Returns the finished jobs to their callers; the first is the leader's own if `is_own`.
    fn complete(&mut self, jobs: Vec<J>, is_own: bool) {
        let (mut tickets, mut jobs) = (self.tickets.drain(..), jobs.into_iter());
        if is_own && let (Some(own), Some(job)) = (tickets.next(), jobs.next()) {
            *own.signal() = Signal::Done(job, Vec::new());
        }
        while let (Some(first), Some(job)) = (tickets.next(), jobs.next()) {
            let others: Vec<_> = tickets.by_ref().take(RELAY - 1).collect();
            // Their signals are stored before `first` can wake them.
            for (other, job) in others.iter().zip(&mut jobs) {
                *other.signal() = Signal::Done(job, Vec::new());
            }
            first.send(Signal::Done(job, others));
        }
    }

    /// Keeps the lead if callers are queued, and returns whether it did.
    fn keep_lead(&mut self) -> bool {
        self.leads = self.group_commit.queue().waiting.is_empty();
        !self.leads
    }

    fn pass_lead(&mut self) {
        if std::mem::replace(&mut self.leads, false) {
            self.group_commit.pass_lead();
        }
    }
}

impl<J> Drop for Batch<'_, J> {
    fn drop(&mut self) {
        self.pass_lead();
        self.tickets.drain(..).for_each(|ticket| ticket.send(Signal::Lost));
    }
}
