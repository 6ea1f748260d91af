//! Time and threads under the scheduler of `shuttle`, for tests.
//!
//! Time stands still while any thread can go on, and then leaps to the first moment that somebody
//! waits for. So what takes time takes exactly that, whatever the schedule; a wake-up that is lost
//! shows as time that has passed; and a wait that nobody ends, as time without end.
//!
//! # Never
//! - lets time pass while a thread is on its way, unless a test says so ([`pass`]);
//! - lets a world live longer than [`LONGEST`].

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossip_contracts::identity::LogicalTime;
use shuttle::sync::MutexGuard;

use crate::clock::Clock;

/// When a world begins: not at zero, which no clock says.
const BEGIN: u64 = 1_000;

/// When a world should long be over, in ticks after it began: a hundred times what the longest of
/// them takes.
const LONGEST: u64 = 1_000_000;

thread_local! {
    /// All threads of a schedule are one thread of the machine, so this is theirs together.
    static TIME: RefCell<Time> = const { RefCell::new(Time::new()) };
}

/// The time of one schedule.
struct Time {
    now: u64,
    /// Threads that can go on: those that wait for time or for another thread cannot.
    awake: usize,
    sleepers: Vec<Sleeper>,
    /// How many condition variables there are.
    condvars: u64,
}

/// A thread that waits until a time, or until a condition variable is told.
struct Sleeper {
    until: u64,
    condvar: Option<u64>,
    thread: shuttle::thread::Thread,
}

impl Time {
    const fn new() -> Self {
        Self { now: BEGIN, awake: 1, sleepers: Vec::new(), condvars: 0 }
    }

    /// If nobody can go on, time does, to the first moment that somebody waits for.
    fn leap(&mut self) -> Vec<shuttle::thread::Thread> {
        match self.sleepers.iter().map(|sleeper| sleeper.until).min() {
            Some(first) if self.awake == 0 => {
                assert!(first < BEGIN + LONGEST, "somebody waits for ever");
                self.now = self.now.max(first);
                let now = self.now;
                self.wake(|sleeper| sleeper.until <= now)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Whom to unpark.
    fn wake(&mut self, whom: impl Fn(&Sleeper) -> bool) -> Vec<shuttle::thread::Thread> {
        let woken: Vec<_> = self.sleepers.extract_if(.., |sleeper| whom(sleeper)).collect();
        self.awake += woken.len();
        woken.into_iter().map(|sleeper| sleeper.thread).collect()
    }

    fn is_asleep(&self, thread: &shuttle::thread::Thread) -> bool {
        self.sleepers.iter().any(|sleeper| sleeper.thread.id() == thread.id())
    }
}

/// Begins a schedule, in its first thread.
pub(super) fn begin() {
    TIME.set(Time::new());
}

/// The present time, in ticks.
pub(super) fn now() -> u64 {
    TIME.with_borrow(|time| time.now)
}

/// Waits for so many ticks.
pub(super) fn sleep(ticks: u64) {
    fall_asleep(ticks, None, || ());
}

/// Lets time pass although threads are on their way: the machine has looked away from all of them.
pub(super) fn pass(ticks: u64) {
    let woken = TIME.with_borrow_mut(|time| {
        time.now += ticks;
        let now = time.now;
        time.wake(|sleeper| sleeper.until <= now)
    });
    unpark(&woken);
}

/// Sleeps, after `release_all`, which may let others come between: a wake-up from then on is not
/// lost.
fn fall_asleep(ticks: u64, condvar: Option<u64>, release_all: impl FnOnce()) {
    let thread = shuttle::thread::current();
    let woken = TIME.with_borrow_mut(|time| {
        let until = time.now.saturating_add(ticks);
        time.sleepers.push(Sleeper { until, condvar, thread: thread.clone() });
        time.awake -= 1;
        time.leap()
    });
    release_all();
    unpark(&woken);
    while TIME.with_borrow(|time| time.is_asleep(&thread)) {
        shuttle::thread::park();
    }
}

/// A thread can no longer go on, until another gives its turn back.
fn stand_by() {
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

/// As the one of the standard library.
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

/// As the one of the standard library, for those who do not look at what it gives back.
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

    /// Waits once: whoever is woken looks at the world again. The guard, if there was no wait.
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

/// As [`std::thread::scope`].
pub(super) fn scope<'env, T>(threads: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    let told = shuttle::thread::scope(|scope| {
        let told = threads(Scope(scope));
        // The threads that nobody has waited for so far are waited for now.
        stand_by();
        told
    });
    TIME.with_borrow_mut(|time| time.awake += 1);
    told
}

/// Where threads are begun.
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
            let told = work();
            life.ended.store(true, Ordering::SeqCst);
            // Whoever waits for this thread goes on in its place.
            if !life.awaited.load(Ordering::SeqCst) {
                stand_by();
            }
            told
        });
        Handle { thread, life: state }
    }
}

/// A thread that can be waited for.
pub(super) struct Handle<'scope, T> {
    thread: shuttle::thread::ScopedJoinHandle<'scope, T>,
    life: Arc<Life>,
}

#[derive(Default)]
struct Life {
    ended: AtomicBool,
    /// Whether somebody waits for its end.
    awaited: AtomicBool,
}

impl<T> Handle<'_, T> {
    pub(super) fn join(self) -> std::thread::Result<T> {
        if !self.life.ended.load(Ordering::SeqCst) {
            self.life.awaited.store(true, Ordering::SeqCst);
            stand_by();
        }
        self.thread.join()
    }
}
