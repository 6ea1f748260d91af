//! An executor for tests that polls tasks in an order drawn from a seed.
//!
//! It polls a random one of the runnable tasks, so that every order a runtime could choose is
//! possible; an aborted task is dropped at any later point. Time does not advance while a task is
//! runnable, and then jumps to the earliest wake-up time of the sleeping tasks. All tasks run on
//! the thread of [`Explorer::run`], and the same seed gives the same order.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use gossip_testkit::Rng;

/// Polls after which a world should long be over: a hundred times what the longest takes.
const POLLS_MAX: usize = 200_000;

/// Milliseconds after which a world should long be over: many lives of a lease.
const MILLIS_MAX: u64 = 10_000_000;

/// The executor. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Explorer(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    now: u64,
    polls: usize,
    tasks: Vec<Arc<Slot>>,
    sleepers: Vec<(u64, Waker)>,
}

/// One task, until it has ended.
struct Slot {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    is_runnable: AtomicBool,
    is_aborted: AtomicBool,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.is_runnable.store(true, Ordering::SeqCst);
    }
}

impl Explorer {
    pub(crate) fn new(seed: u64) -> Self {
        let (tasks, sleepers) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(State {
            rng: Rng::seeded(seed),
            now: 0,
            polls: 0,
            tasks,
            sleepers,
        })))
    }

    /// Returns a random number below `bound`.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        self.state().rng.below(bound)
    }

    /// Spawns a task.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let answer = Arc::new(Mutex::new(Answer { value: None, is_over: false, waiting: None }));
        let end = End(Arc::clone(&answer));
        let future = Box::pin(async move {
            let value = work.await;
            // Stored before `end` drops and wakes the waiter, which must find the value.
            end.0.lock().unwrap().value = Some(value);
            drop(end);
        });
        let slot = Arc::new(Slot {
            future: Mutex::new(Some(future)),
            is_runnable: AtomicBool::new(true),
            is_aborted: AtomicBool::new(false),
        });
        self.state().tasks.push(Arc::clone(&slot));
        Task { slot, answer }
    }

    /// Runs until `is_over`, and then until no task can run without advancing time.
    ///
    /// # Panics
    ///
    /// If no task can run before that, or if it does not end.
    pub(crate) fn run(&self, is_over: impl Fn() -> bool) {
        loop {
            if let Some(slot) = self.any_runnable() {
                poll(&slot);
            } else if is_over() {
                return;
            } else {
                self.leap();
            }
        }
    }

    /// Returns the number of tasks.
    pub(crate) fn task_count(&self) -> usize {
        self.state().tasks.len()
    }

    pub(crate) fn now(&self) -> u64 {
        self.state().now
    }

    /// Waits for so many milliseconds.
    pub(crate) async fn sleep(&self, millis: u64) {
        let until = self.now() + millis;
        poll_fn(|context| {
            let mut state = self.state();
            if state.now >= until {
                return Poll::Ready(());
            }
            state.sleepers.push((until, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Returns a random one of the runnable tasks; `None` if all tasks wait.
    fn any_runnable(&self) -> Option<Arc<Slot>> {
        let mut state = self.state();
        // An ended task has no future. It may still be woken, and must not be chosen then.
        state.tasks.retain(|slot| slot.future.lock().unwrap().is_some());
        let ready = |slot: &&Arc<Slot>| {
            // An aborted task is runnable: it is dropped at a point that the seed chooses.
            slot.is_runnable.load(Ordering::SeqCst) || slot.is_aborted.load(Ordering::SeqCst)
        };
        let count = state.tasks.iter().filter(ready).count() as u64;
        if count == 0 {
            return None;
        }
        state.polls += 1;
        assert!(state.polls < POLLS_MAX, "it does not end");
        let chosen = state.rng.below(count) as usize;
        state.tasks.iter().filter(ready).nth(chosen).cloned()
    }

    /// Advances time to the first wake-up.
    fn leap(&self) {
        let mut state = self.state();
        let first = state.sleepers.iter().map(|(until, _)| *until).min();
        let first = first.expect("deadlock: no task can run and none sleeps");
        assert!(first < MILLIS_MAX, "a task waits for ever");
        state.now = first;
        let due: Vec<_> = state.sleepers.extract_if(.., |(until, _)| *until <= first).collect();
        // `Slot::wake` locks nothing, but a combinator may have passed a waker of its own.
        drop(state);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Polls a task, or drops it if it was aborted. Nothing is locked meanwhile.
fn poll(slot: &Arc<Slot>) {
    // Taken out of its slot, so that the task can be woken or aborted while it is polled.
    let Some(mut future) = slot.future.lock().unwrap().take() else { return };
    if slot.is_aborted.load(Ordering::SeqCst) {
        return;
    }
    slot.is_runnable.store(false, Ordering::SeqCst);
    let waker = Waker::from(Arc::clone(slot));
    if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        *slot.future.lock().unwrap() = Some(future);
    }
}

impl fmt::Debug for Explorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explorer").finish_non_exhaustive()
    }
}

/// Yields to other tasks once.
pub(crate) async fn pause() {
    let mut is_over = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The answer of a task.
pub(crate) struct Task<T> {
    slot: Arc<Slot>,
    answer: Arc<Mutex<Answer<T>>>,
}

struct Answer<T> {
    value: Option<T>,
    is_over: bool,
    waiting: Option<Waker>,
}

/// Part of a task: wakes its waiter however the task ends.
struct End<T>(Arc<Mutex<Answer<T>>>);

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut answer = self.0.lock().unwrap();
            answer.is_over = true;
            answer.waiting.take()
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Task<T> {
    pub(crate) fn abort(&self) {
        self.slot.is_aborted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.answer.lock().unwrap().is_over
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut answer = self.answer.lock().unwrap();
        if answer.is_over {
            return Poll::Ready(answer.value.take());
        }
        answer.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}
