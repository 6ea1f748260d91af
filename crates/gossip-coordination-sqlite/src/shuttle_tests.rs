//! The convoy under schedules that no machine would come to by itself.
//!
//! The same source is compiled once more, over threads and locks that `shuttle` schedules at
//! random: it decides at every lock and every wake-up who goes on, and a schedule in which nobody
//! can go on is a test that fails. A lost wake-up is that: everybody sleeps.

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

/// Schedules of each test: some seconds without optimisation.
const SCHEDULES: usize = 3_000;
/// Places where a schedule departs from one that runs every thread as long as it can.
const DEPARTURES: usize = 3;

const CALLERS: u64 = 4;
const RIDES: u64 = 3;

/// Runs `world` under schedules drawn evenly, and under those that depart a few times.
fn explore(world: fn()) {
    check_random(world, SCHEDULES);
    check_pct(world, SCHEDULES, DEPARTURES);
}

/// Callers that ride again and again, in convoys of at most two.
fn everybody_rides() {
    let (convoy, driven) = (Arc::new(Convoy::new(2)), Arc::new(AtomicUsize::new(0)));
    let ride = |caller: u64| {
        let (convoy, driven) = (Arc::clone(&convoy), Arc::clone(&driven));
        thread::spawn(move || {
            for nth in 0..RIDES {
                let job = 10 * caller + nth;
                let answer = convoy.ride(job, 1, |jobs| {
                    assert!(jobs.len() <= 2, "{} jobs in a convoy of two", jobs.len());
                    driven.fetch_add(jobs.len(), Ordering::Relaxed);
                    // Others board while this one is under way.
                    thread::yield_now();
                    jobs.into_iter().map(|job| 2 * job).collect()
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
    explore(everybody_rides);
}

/// Drivers that give no answers, as one that broke down does: nobody may wait for them.
fn somebody_breaks_down() {
    let convoy = Arc::new(Convoy::new(3));
    let ride = |caller: u64| {
        let convoy = Arc::clone(&convoy);
        thread::spawn(move || {
            let answers = |jobs: Vec<u64>| if jobs.contains(&0) { Vec::new() } else { jobs };
            let answer = convoy.ride(caller, 1, |jobs| {
                thread::yield_now();
                answers(jobs)
            });
            assert!(answer.is_none() || answer == Some(caller) && caller > 0, "{answer:?}");
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(ride).collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(convoy.ride(7, 1, |jobs| jobs), Some(7), "the road is open again");
}

#[test]
fn under_every_schedule_nobody_waits_for_a_driver_that_broke_down() {
    explore(somebody_breaks_down);
}
