//! The convoy under schedules that no machine would come to by itself.
//!
//! The same source is compiled once more, over threads and locks that `shuttle` schedules at
//! random: it decides at every lock and every wake-up who goes on, and a schedule in which nobody
//! can go on is a test that fails. A lost wake-up is that: everybody sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, check_random, thread};

use self::convoy::Convoy;

/// What the convoy waits and locks with here.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, Thread};
}

#[path = "convoy.rs"]
#[expect(clippy::duplicate_mod, reason = "the same code over other locks is the point")]
#[expect(dead_code, reason = "not every test needs everything")]
mod convoy;

/// Schedules of each test and each way to draw them: some seconds without optimisation.
const SCHEDULES: usize = 1_000;
/// Places where a schedule departs from one that runs every thread as long as it can.
const DEPARTURES: usize = 3;

const CALLERS: u64 = 4;
const RIDES: u64 = 3;

/// Runs `world` under schedules drawn evenly, and under those that depart a few times.
fn explore(world: fn()) {
    check_random(world, SCHEDULES);
    check_pct(world, SCHEDULES, DEPARTURES);
}

/// Callers that ride again and again, in convoys of at most `load_max`.
fn everybody_rides(load_max: usize) {
    let convoy = Arc::new(Convoy::new(load_max, Duration::MAX));
    let driven = Arc::new(AtomicUsize::new(0));
    let ride = |caller: u64| {
        let (convoy, driven) = (Arc::clone(&convoy), Arc::clone(&driven));
        thread::spawn(move || {
            for nth in 0..RIDES {
                let job = 10 * caller + nth;
                let answer = convoy.ride(job, 1, |jobs| {
                    assert!(jobs.len() <= load_max, "{} of {load_max} jobs", jobs.len());
                    driven.fetch_add(jobs.len(), Ordering::Relaxed);
                    // Others board while this one is under way.
                    thread::yield_now();
                    jobs.iter_mut().for_each(|job| *job *= 2);
                });
                assert_eq!(answer, Some(2 * job));
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(ride).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(driven.load(Ordering::Relaxed), (CALLERS * RIDES) as usize, "each job once");
    assert_eq!(convoy.waiting_count(), 0);
}

#[test]
fn under_every_schedule_everybody_is_answered_once() {
    explore(|| everybody_rides(2));
}

/// Who is answered wakes others, whatever those do at that moment.
#[test]
fn under_every_schedule_the_callers_of_a_large_convoy_wake_each_other() {
    explore(|| everybody_rides(CALLERS as usize));
}

/// A driver that panics takes its convoy with it, and leaves nobody waiting. Each caller rides
/// until its job is done, as the layer above does.
fn somebody_breaks_down() {
    let (convoy, panics) = (Arc::new(Convoy::new(3, Duration::MAX)), Arc::new(AtomicUsize::new(0)));
    let ride = |caller: u64| {
        let (convoy, panics) = (Arc::clone(&convoy), Arc::clone(&panics));
        thread::spawn(move || {
            let drive = |jobs: &mut [u64]| {
                thread::yield_now();
                if jobs.contains(&0) && panics.fetch_add(1, Ordering::Relaxed) == 0 {
                    // As a panic, and without its report.
                    std::panic::resume_unwind(Box::new("told to"));
                }
            };
            let ride = || catch_unwind(AssertUnwindSafe(|| convoy.ride(caller, 1, drive)));
            while !matches!(ride(), Ok(Some(job)) if job == caller) {}
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(ride).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(convoy.waiting_count(), 0);
    assert_eq!(convoy.ride(7, 1, |_| ()), Some(7), "the road is open again");
}

#[test]
fn under_every_schedule_nobody_waits_for_a_driver_that_broke_down() {
    explore(somebody_breaks_down);
}
