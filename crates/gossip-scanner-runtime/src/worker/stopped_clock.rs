//! Time and threads under the scheduler of `shuttle`, for tests.
//!
//! Time does not advance while any thread is runnable, and then jumps to the earliest deadline of a
//! wait. So every duration is exact, whatever the schedule. A lost wake-up shows as elapsed time,
//! and a wait without end as time beyond all limits.
//!
//! # Never
//! - advances time while a thread is runnable, unless a test says so ([`pass`]);
//! - lets a world run longer than [`LONGEST`].

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossip_contracts::identity::LogicalTime;
use shuttle::sync::MutexGuard;

use crate::clock::Clock;

/// When a world starts: not at zero, which no clock returns.
const BEGIN: u64 = 1_000;

/// When a world should have ended, in ticks after its start: a hundred times the duration of the
/// longest one.
const LONGEST: u64 = 1_000_000;

thread_local! {
    /// All threads of a schedule run on one thread of the machine, so they share this.
    static TIME: RefCell<Time> = const { RefCell::new(Time::new()) };
}

/// The time of one schedule.
struct Time {
    now: u64,
    /// Runnable threads: those that wait for time or for another thread are not.
    awake: usize,
    sleepers: Vec<Sleeper>,
    /// How many condition variables exist.
    condvars: u64,
}

/// A thread that waits for a time or for a notification of a condition variable.
struct Sleeper {
    until: u64,
    condvar: Option<u64>,
    thread: shuttle::thread::Thread,
}

impl Time {
    const fn new() -> Self {
        Self { now: BEGIN, awake: 1, sleepers: Vec::new(), condvars: 0 }
    }

    /// If no thread is runnable, advances time to the earliest deadline of a wait.
    fn leap(&mut self) -> Vec<shuttle::thread::Thread> {
        match self.sleepers.iter().map(|sleeper| sleeper.until).min() {
            // Time moves only when nothing else can happen, so that durations do not depend on the
            // schedule.
            Some(first) if self.awake == 0 => {
                assert!(first < BEGIN + LONGEST, "a thread waits for ever");
                self.now = self.now.max(first);
                let now = self.now;
                self.wake(|sleeper| sleeper.until <= now)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns the threads to unpark.
    fn wake(&mut self, whom: impl Fn(&Sleeper) -> bool) -> Vec<shuttle::thread::Thread> {
        let woken: Vec<_> = self.sleepers.extract_if(.., |sleeper| whom(sleeper)).collect();
        self.awake += woken.len();
        woken.into_iter().map(|sleeper| sleeper.thread).collect()
    }

    fn is_asleep(&self, thread: &shuttle::thread::Thread) -> bool {
        self.sleepers.iter().any(|sleeper| sleeper.thread.id() == thread.id())
    }
}

/// Starts a schedule, in its first thread.
pub(super) fn begin() {
    TIME.set(Time::new());
}

/// Returns the current time, in ticks.
pub(super) fn now() -> u64 {
    TIME.with_borrow(|time| time.now)
}

/// Waits for this many ticks.
pub(super) fn sleep(ticks: u64) {
    fall_asleep(ticks, None, || ());
}

/// Advances time although threads are runnable: the machine has paused all of them.
pub(super) fn pass(ticks: u64) {
    let woken = TIME.with_borrow_mut(|time| {
        time.now += ticks;
        let now = time.now;
        time.wake(|sleeper| sleeper.until <= now)
    });
    unpark(&woken);
}

/// Sleeps after `unlock`, which may let other threads run: a wake-up from then on is not lost.
fn fall_asleep(ticks: u64, condvar: Option<u64>, unlock: impl FnOnce()) {
    let thread = shuttle::thread::current();
    let woken = TIME.with_borrow_mut(|time| {
        let until = time.now.saturating_add(ticks);
        // Registered before the lock is released, or a notification in between would be lost.
        time.sleepers.push(Sleeper { until, condvar, thread: thread.clone() });
        time.awake -= 1;
        time.leap()
    });
    unlock();
    unpark(&woken);
    // A thread may be unparked for another reason.
    while TIME.with_borrow(|time| time.is_asleep(&thread)) {
        shuttle::thread::park();
    }
}

/// Marks a thread as not runnable, until another thread takes its place.
fn leave_runnable() {
    let woken = TIME.with_borrow_mut(|time| {
        time.awake -= 1;
        time.leap()
    });
    unpark(&woken);
}

fn unpark(woken: &[shuttle::thread::Thread]) {
    woken.iter().for_each(shuttle::thread::Thread::unpark);
}

/// The clock of a worker.
pub(super) struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(now())
    }
}

/// Like the one of the standard library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant(u64);

impl Instant {
    pub(super) fn now() -> Self {
        Self(now())
    }

    pub(super) fn elapsed(self) -> Duration {
        Duration::from_millis(now() - self.0)
    }
}

/// Like the one of the standard library, for callers that ignore its result.
#[derive(Debug)]
pub(super) struct Condvar(u64);

impl Default for Condvar {
    fn default() -> Self {
        Self(TIME.with_borrow_mut(|time| {
            time.condvars += 1;
            time.condvars
        }))
    }
}

impl Condvar {
    pub(super) fn notify_all(&self) {
        let here = Some(self.0);
        unpark(&TIME.with_borrow_mut(|time| time.wake(|sleeper| sleeper.condvar == here)));
    }

    /// Waits once: the caller checks its condition again. Returns the guard if there was no wait.
    pub(super) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        patience: Duration,
        mut is_to_wait: impl FnMut(&mut T) -> bool,
    ) -> Option<MutexGuard<'a, T>> {
        if !is_to_wait(&mut guard) || patience.is_zero() {
            return Some(guard);
        }
        let ticks = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        fall_asleep(ticks, Some(self.0), || drop(guard));
        None
    }
}

/// Like [`std::thread::scope`].
pub(super) fn scope<'env, T>(threads: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    let result = shuttle::thread::scope(|scope| {
        let result = threads(Scope(scope));
        // Waits for the threads that were not joined.
        leave_runnable();
        result
    });
    TIME.with_borrow_mut(|time| time.awake += 1);
    result
}

/// A scope in which threads are started.
#[derive(Clone, Copy)]
pub(super) struct Scope<'scope, 'env: 'scope>(&'scope shuttle::thread::Scope<'scope, 'env>);

impl<'scope> Scope<'scope, '_> {
    pub(super) fn spawn<T: Send + 'scope>(
        self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Handle<'scope, T> {
        TIME.with_borrow_mut(|time| time.awake += 1);
        let state = Arc::new(Life::default());
        let life = Arc::clone(&state);
        let thread = self.0.spawn(move || {
            let result = work();
            life.ended.store(true, Ordering::SeqCst);
            // A thread that joins this one becomes runnable in its place.
            if !life.awaited.load(Ordering::SeqCst) {
                leave_runnable();
            }
            result
        });
        Handle { thread, life: state }
    }
}

/// A thread that can be joined.
pub(super) struct Handle<'scope, T> {
    thread: shuttle::thread::ScopedJoinHandle<'scope, T>,
    life: Arc<Life>,
}

#[derive(Default)]
struct Life {
    ended: AtomicBool,
    /// Whether another thread joins it.
    awaited: AtomicBool,
}

impl<T> Handle<'_, T> {
    pub(super) fn join(self) -> std::thread::Result<T> {
        if !self.life.ended.load(Ordering::SeqCst) {
            self.life.awaited.store(true, Ordering::SeqCst);
            leave_runnable();
        }
        self.thread.join()
    }
}
