//! Wakes tasks after a time, without a runtime.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::one_shot::{Receiver, Sender, one_shot};
use crate::thread::Thread;

/// The longest time; what waits longer has been forgotten.
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A thread that sleeps until the next task is due.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Arc<Clock>,
    /// Declared last: the clock is stopped before the thread is waited for.
    _thread: Thread,
}

#[derive(Debug)]
struct Clock {
    hands: Mutex<Hands>,
    moved: Condvar,
}

#[derive(Debug)]
struct Hands {
    /// By the time they are due, and by a number that makes them different.
    due: BTreeMap<(Instant, u64), Sender<()>>,
    next_number: u64,
    is_stopped: bool,
}

impl Alarm {
    pub(crate) fn start() -> io::Result<Self> {
        let hands = Hands { due: BTreeMap::new(), next_number: 0, is_stopped: false };
        let clock = Arc::new(Clock { hands: Mutex::new(hands), moved: Condvar::new() });
        let theirs = Arc::clone(&clock);
        let thread = Thread::start("gossip-sqlite-alarm", move || theirs.run())?;
        Ok(Self { clock, _thread: thread })
    }

    /// Ready after `time`, [`TIME_MAX`] at most, or when there is no alarm any more.
    pub(crate) fn after(&self, time: Duration) -> Receiver<()> {
        let (sender, receiver) = one_shot();
        let mut hands = self.clock.hands();
        let number = hands.next_number;
        hands.next_number += 1;
        hands.due.insert((Instant::now() + time.min(TIME_MAX), number), sender);
        drop(hands);
        self.clock.moved.notify_one();
        receiver
    }
}

impl Clock {
    fn run(&self) {
        while let Some(due) = self.wait() {
            // A waker is foreign code. The panic was reported when it happened, and whoever waits
            // next is innocent.
            let _ = catch_unwind(AssertUnwindSafe(|| due.send(())));
        }
    }

    /// The next task that is due; `None` when stopped.
    fn wait(&self) -> Option<Sender<()>> {
        let mut hands = self.hands();
        loop {
            if hands.is_stopped {
                return None;
            }
            let Some(first) = hands.due.first_entry() else {
                hands = self.moved.wait(hands).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = first.key().0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(first.remove());
            }
            let waited = self.moved.wait_timeout(hands, left);
            hands = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clock.hands().is_stopped = true;
        self.clock.moved.notify_one();
    }
}
