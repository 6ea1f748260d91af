//! The group_commit under schedules that no machine would come to by itself.
//!
//! The same source is compiled once more, over threads and locks that `shuttle` schedules at
//! random: it decides at every lock and every wake-up who goes on, and a schedule in which nobody
//! can go on is a test that fails. A lost wake-up is that: everybody sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, check_random, thread};

use self::group_commit::GroupCommit;

/// The locks and threads of the group commit under `shuttle`. Threads that `shuttle` parks may wake
/// spuriously at any time, which hides most lost wake-ups; so these wait for a token, and wake
/// spuriously only when they are about to sleep.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};

    /// Two, so that a few callers are several relays.
    pub(crate) const RELAY: usize = 2;

    /// Somebody who sleeps until it has its token.
    #[derive(Clone, Debug)]
    pub(crate) struct Thread(Arc<Token>);

    #[derive(Debug, Default)]
    struct Token {
        is_there: Mutex<bool>,
        came: shuttle::sync::Condvar,
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            // Also by a leader that breaks down, which poisons the lock and leaves it whole.
            *self.0.is_there.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.0.came.notify_one();
        }
    }

    pub(crate) mod thread {
        use shuttle::rand::{Rng, thread_rng};

        use super::{Arc, PoisonError, Thread, Token};

        shuttle::thread_local! {
            static OWN: Thread = Thread(Arc::new(Token::default()));
        }

        pub(crate) fn current() -> Thread {
            OWN.with(Thread::clone)
        }

        pub(crate) fn park() {
            if thread_rng().gen_ratio(1, 8) {
                return;
            }
            let Thread(token) = current();
            let mut is_there = token.is_there.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::replace(&mut *is_there, false) {
                is_there = token.came.wait(is_there).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[path = "group_commit.rs"]
#[expect(clippy::duplicate_mod, reason = "the same code over other locks is the point")]
#[expect(dead_code, reason = "not every test needs everything")]
mod group_commit;

/// Schedules of each test and each way to draw them: some seconds without optimisation.
const SCHEDULES: usize = 1_000;
/// Places where a schedule departs from one that runs every thread as long as it can.
const DEPARTURES: usize = 3;

const CALLERS: u64 = 4;
const SUBMISSIONS: u64 = 3;

/// Runs `world` under schedules drawn evenly, and under those that depart a few times.
fn explore(world: fn()) {
    check_random(world, SCHEDULES);
    check_pct(world, SCHEDULES, DEPARTURES);
}

/// Callers that ride again and again, in convoys of at most `load_max`, each of whom leads for
/// `lead_time_max`.
fn all_submit(load_max: usize, lead_time_max: Duration) {
    let group_commit = Arc::new(GroupCommit::new(load_max, lead_time_max));
    let committed = Arc::new(AtomicUsize::new(0));
    let submit = |caller: u64| {
        let (group_commit, committed) = (Arc::clone(&group_commit), Arc::clone(&committed));
        thread::spawn(move || {
            for nth in 0..SUBMISSIONS {
                let job = 10 * caller + nth;
                let answer = group_commit.submit(job, 1, |jobs| {
                    assert!(jobs.len() <= load_max, "{} of {load_max} jobs", jobs.len());
                    committed.fetch_add(jobs.len(), Ordering::Relaxed);
                    // Others board while this one is under way.
                    thread::yield_now();
                    jobs.iter_mut().for_each(|job| *job *= 2);
                });
                assert_eq!(answer, Some(2 * job));
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(submit).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(
        committed.load(Ordering::Relaxed),
        (CALLERS * SUBMISSIONS) as usize,
        "each job once"
    );
    assert_eq!(group_commit.waiting_count(), 0);
}

#[test]
fn under_every_schedule_everybody_is_answered_once() {
    explore(|| all_submit(2, Duration::MAX));
}

/// Who is answered wakes others, whatever those do at that moment.
#[test]
fn under_every_schedule_the_callers_of_a_large_convoy_wake_each_other() {
    explore(|| all_submit(CALLERS as usize, Duration::MAX));
}

/// Whoever was told to drive has a convoy of its own, with others in it.
#[test]
fn under_every_schedule_the_lead_is_passed_on() {
    explore(|| all_submit(CALLERS as usize, Duration::ZERO));
}

/// A leader panics: its batch is lost and no caller keeps waiting. Each caller submits until its
/// job is done, as the layer above does.
fn leader_panics() {
    let (group_commit, panics) =
        (Arc::new(GroupCommit::new(3, Duration::MAX)), Arc::new(AtomicUsize::new(0)));
    let submit = |caller: u64| {
        let (group_commit, panics) = (Arc::clone(&group_commit), Arc::clone(&panics));
        thread::spawn(move || {
            let commit_batch = |jobs: &mut [u64]| {
                thread::yield_now();
                if jobs.contains(&0) && panics.fetch_add(1, Ordering::Relaxed) == 0 {
                    // As a panic, and without its report.
                    std::panic::resume_unwind(Box::new("told to"));
                }
            };
            let submit =
                || catch_unwind(AssertUnwindSafe(|| group_commit.submit(caller, 1, commit_batch)));
            while !matches!(submit(), Ok(Some(job)) if job == caller) {}
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(submit).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(group_commit.waiting_count(), 0);
    assert_eq!(group_commit.submit(7, 1, |_| ()), Some(7), "the queue is open again");
}

#[test]
fn under_every_schedule_nobody_waits_for_a_driver_that_broke_down() {
    explore(leader_panics);
}

/// The group_commit once more, over threads that now and then do not hear that they are woken.
#[path = "."]
mod lost_wakeups {
    use std::time::Duration;

    use shuttle::sync::Arc;

    mod sync {
        use shuttle::rand::Rng;

        use super::super::sync;
        pub(crate) use super::super::sync::{Arc, Mutex, MutexGuard, PoisonError, RELAY};

        #[derive(Debug)]
        pub(crate) struct Thread(sync::Thread);

        impl Thread {
            pub(crate) fn unpark(&self) {
                if !shuttle::rand::thread_rng().gen_ratio(1, 64) {
                    self.0.unpark();
                }
            }
        }

        pub(crate) mod thread {
            pub(crate) use super::sync::thread::park;

            pub(crate) fn current() -> super::Thread {
                super::Thread(super::sync::thread::current())
            }
        }
    }

    #[path = "group_commit.rs"]
    #[expect(clippy::duplicate_mod, reason = "the same code over other locks is the point")]
    #[expect(dead_code, reason = "not every test needs everything")]
    mod group_commit;

    /// Callers that ride once.
    pub(super) fn world() {
        let group_commit = Arc::new(group_commit::GroupCommit::new(10, Duration::MAX));
        let submit = |caller: u64| {
            let group_commit = Arc::clone(&group_commit);
            shuttle::thread::spawn(move || {
                group_commit.submit(caller, 1, |_| shuttle::thread::yield_now())
            })
        };
        let callers: Vec<_> = (0..super::CALLERS).map(submit).collect();
        callers.into_iter().for_each(|caller| assert!(caller.join().unwrap().is_some()));
    }
}

#[test]
fn a_wake_up_that_is_lost_is_found() {
    let hunt = || check_random(lost_wakeups::world, SCHEDULES);
    assert!(catch_unwind(AssertUnwindSafe(hunt)).is_err(), "somebody sleeps for ever");
}
