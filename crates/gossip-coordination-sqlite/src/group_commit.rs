//! Group commit without a thread of its own: whoever comes first drives for all who wait.
//!
//! A caller boards with a job. If nobody drives, it drives: it takes every job that is waiting,
//! does them in one go, and gives each back to its caller with the answer inside. So whatever a job
//! holds is made and dropped by one thread.
//!
//! Whoever boards meanwhile waits for the next convoy. So a caller alone pays no thread switch, and
//! nobody ever waits for a convoy to fill: what queued up during the last one is what the next one
//! takes.
//!
//! A driver drives more convoys while others wait, up to [`ROUNDS_MAX`], and then passes the lead
//! to the first of them.
//!
//! To wake a thread takes longer than to do its job, and while the driver wakes, nothing commits.
//! So it wakes one of [`RELAY`] callers, who wakes the others before it goes its way.
//!
//! # Invariants
//! - While jobs wait, somebody drives or has been told to.
//! - A driver begins as the first of those who wait, so its own job is in the first convoy that it
//!   drives.
//! - A driver that panics leaves nobody waiting: the others learn that their answer is lost.
//! - A panic in a convoy that a caller drives for others is not that caller's: its own job was
//!   answered before.
//! - Who is to wake others goes its way by that alone, and does nothing before it. A driver would
//!   do it after its lead, so it is asked to wake nobody.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError, RELAY, Thread, thread};

/// Convoys that one caller drives before it passes the lead on. To wake the next driver takes about
/// as long as a commit when everybody is busy, so the lead is passed seldom: with 8 instead, 64
/// callers were slower by a twentieth. A caller whose own job is done waits for no more than this
/// many.
pub(crate) const ROUNDS_MAX: usize = 32;

/// Jobs `J` that are done together and given back one by one.
#[derive(Debug)]
pub(crate) struct GroupCommit<J> {
    queue: Mutex<Queue<J>>,
    /// The most load of one convoy; a job that is heavier alone drives alone.
    load_max: usize,
    /// How long one caller drives before it passes the lead on, however few convoys that were.
    lead_time_max: Duration,
}

#[derive(Debug)]
struct Queue<J> {
    waiting: VecDeque<Waiter<J>>,
    /// Whether somebody drives, or has been told to.
    has_leader: bool,
}

#[derive(Debug)]
struct Waiter<J> {
    job: J,
    load: usize,
    ticket: Arc<Ticket<J>>,
}

/// Where one caller waits.
#[derive(Debug)]
struct Ticket<J> {
    signal: Mutex<Signal<J>>,
    /// Who waits. Waking a thread that does not sleep costs no call of the system, and a driver
    /// never sleeps for its own answer.
    caller: Thread,
}

#[derive(Debug)]
enum Signal<J> {
    /// Nothing yet.
    Wait,
    /// You are the first now.
    Lead,
    /// Your job is done. Wake these: theirs are, too.
    Done(J, Vec<Arc<Ticket<J>>>),
    /// The driver is gone, and what it did is not known.
    Lost,
}

impl<J> GroupCommit<J> {
    /// A convoy that takes up to `load_max` at once, and whose lead is passed on after
    /// `lead_time_max`.
    pub(crate) const fn new(load_max: usize, lead_time_max: Duration) -> Self {
        let queue = Queue { waiting: VecDeque::new(), has_leader: false };
        Self { queue: Mutex::new(queue), load_max, lead_time_max }
    }

    /// Has `job` done, by `drive` together with others or by the `drive` of another caller, and
    /// gives it back; `None` if the driver panicked.
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
                assert!(others.is_empty(), "a driver is asked to wake nobody");
                Some(job)
            }
            Signal::Lost | Signal::Lead | Signal::Wait => None,
        }
    }

    /// Drives what waits, and passes the lead on in time.
    fn lead(&self, commit_batch: &mut impl FnMut(&mut [J])) {
        let begun = Instant::now();
        for round in 1.. {
            let (mut jobs, tickets) = self.take();
            let mut batch = Batch { group_commit: self, tickets, leads: true };
            let is_own = round == 1;
            let is_done = match is_own {
                true => {
                    commit_batch(&mut jobs);
                    true
                }
                // It was reported when it happened. Whoever waits learns that its answer is lost.
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

    /// Whether the waiter drives at once.
    fn enqueue(&self, waiter: Waiter<J>) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back(waiter);
        !std::mem::replace(&mut queue.has_leader, true)
    }

    /// The jobs of the next convoy and the tickets of their callers, the driver's first.
    fn take(&self) -> (Vec<J>, Vec<Arc<Ticket<J>>>) {
        let mut queue = self.queue();
        let mut load = 0_usize;
        let mut fits = |waiter: &Waiter<J>| {
            load = load.saturating_add(waiter.load);
            load <= self.load_max
        };
        let count = queue.waiting.iter().take_while(|it| fits(it)).count().max(1);
        queue.waiting.drain(..count).map(|waiter| (waiter.job, waiter.ticket)).unzip()
    }

    /// Tells the first who waits to drive.
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
        // The driver has taken its own job by then.
        queue.has_leader && queue.waiting.is_empty()
    }

    /// Puts a job on the queue whose caller does not wait.
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
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Ticket<J> {
    fn send(&self, signal: Signal<J>) {
        *self.signal() = signal;
        self.caller.unpark();
    }

    /// Waits for a signal, and takes it. Only its caller listens.
    fn wait(&self) -> Signal<J> {
        loop {
            // The lock is given back before the caller sleeps, or nobody could ever say a signal.
            let signal = std::mem::replace(&mut *self.signal(), Signal::Wait);
            match signal {
                // It may wake for no reason, and then looks again.
                Signal::Wait => thread::park(),
                said @ (Signal::Lead | Signal::Done(..) | Signal::Lost) => return said,
            }
        }
    }

    fn signal(&self) -> MutexGuard<'_, Signal<J>> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A convoy on its way. Dropping it, also by a panic, leaves nobody waiting.
struct Batch<'c, J> {
    group_commit: &'c GroupCommit<J>,
    /// Those who have no answer yet.
    tickets: Vec<Arc<Ticket<J>>>,
    /// Whether the lead was not passed on yet.
    leads: bool,
}

impl<J> Batch<'_, J> {
    /// Gives the jobs back, which are done; the first is the driver's own if `is_own`.
    fn complete(&mut self, jobs: Vec<J>, is_own: bool) {
        let (mut tickets, mut jobs) = (self.tickets.drain(..), jobs.into_iter());
        if is_own && let (Some(own), Some(job)) = (tickets.next(), jobs.next()) {
            *own.signal() = Signal::Done(job, Vec::new());
        }
        while let (Some(first), Some(job)) = (tickets.next(), jobs.next()) {
            let others: Vec<_> = tickets.by_ref().take(RELAY - 1).collect();
            for (other, job) in others.iter().zip(&mut jobs) {
                *other.signal() = Signal::Done(job, Vec::new());
            }
            first.send(Signal::Done(job, others));
        }
    }

    /// Drives on if somebody waits; answers whether somebody does.
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
