//! The group commit under schedules that hardly occur on a real machine.
//!
//! The same source is compiled again over threads and locks that `shuttle` schedules at random: it
//! chooses the next thread at every lock and wake-up. A schedule in which no thread can run fails
//! the test; a lost wake-up is such a deadlock.

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

    /// Two, so that a few callers form several relays.
    pub(crate) const RELAY: usize = 2;

    /// A thread that sleeps until its token is set.
    #[derive(Clone, Debug)]
    pub(crate) struct Thread(Arc<Token>);

    #[derive(Debug, Default)]
    struct Token {
        is_there: Mutex<bool>,
        came: shuttle::sync::Condvar,
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            // A panicking leader poisons the lock and leaves the token consistent.
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

/// Schedules per test and sampler: some seconds in a debug build.
const SCHEDULES: usize = 1_000;
/// Preemptions in a schedule that otherwise runs each thread as long as possible.
const PREEMPTIONS: usize = 3;

const CALLERS: u64 = 4;
const SUBMISSIONS: u64 = 3;

/// Runs `world` under uniformly random schedules, and under those with a few preemptions.
fn explore(world: fn()) {
    check_random(world, SCHEDULES);
    check_pct(world, SCHEDULES, PREEMPTIONS);
}

/// Callers that submit repeatedly, in batches of at most `load_max`, with leads of up to
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
                    // Others are queued meanwhile.
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
fn every_job_is_done_once_under_any_schedule() {
    explore(|| all_submit(2, Duration::MAX));
}

/// A completed caller wakes others, whatever those do at that moment.
#[test]
fn callers_of_a_large_batch_wake_each_other_under_any_schedule() {
    explore(|| all_submit(CALLERS as usize, Duration::MAX));
}

/// A signalled leader commits a batch of its own, with other jobs in it.
#[test]
fn lead_is_passed_on_under_any_schedule() {
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
                    // Unwinds like a panic, without the report.
                    std::panic::resume_unwind(Box::new("injected"));
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
    assert_eq!(group_commit.submit(7, 1, |_| ()), Some(7), "the queue accepts jobs again");
}

#[test]
fn no_caller_waits_for_a_panicked_leader_under_any_schedule() {
    explore(leader_panics);
}

/// The group commit again, over threads whose wake-ups are sometimes lost.
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

    /// Callers that submit once.
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
fn lost_wake_up_is_detected() {
    let hunt = || check_random(lost_wakeups::world, SCHEDULES);
    assert!(catch_unwind(AssertUnwindSafe(hunt)).is_err(), "a caller sleeps for ever");
}
