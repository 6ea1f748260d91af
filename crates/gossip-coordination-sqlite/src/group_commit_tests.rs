//! Every caller gets the result of its own job, and batches form without waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use crate::group_commit::{GroupCommit, ROUNDS_MAX};
use crate::sync::RELAY;

/// A group commit whose lead is passed on by rounds only, not by time.
fn group_commit(load_max: usize) -> GroupCommit<u64> {
    GroupCommit::new(load_max, Duration::MAX)
}

fn doubled(jobs: &mut [u64]) {
    jobs.iter_mut().for_each(|job| *job *= 2);
}

#[test]
fn single_caller_commits_its_own_job() {
    let group_commit = group_commit(10);
    let thread = std::thread::current().id();
    let answer = group_commit.submit(21, 1, |jobs| {
        assert_eq!(std::thread::current().id(), thread);
        doubled(jobs);
    });
    assert_eq!(answer, Some(42));
}

#[test]
fn each_caller_gets_the_result_of_its_own_job() {
    let (group_commit, committed) = (group_commit(8), AtomicUsize::new(0));
    scope(|scope| {
        for caller in 0..16_u64 {
            let (group_commit, committed) = (&group_commit, &committed);
            scope.spawn(move || {
                for nth in 0..500 {
                    let job = caller * 1_000 + nth;
                    let answer = group_commit.submit(job, 1, |jobs| {
                        assert!(jobs.len() <= 8, "{} jobs in a batch of 8", jobs.len());
                        committed.fetch_add(jobs.len(), Ordering::Relaxed);
                        doubled(jobs);
                    });
                    assert_eq!(answer, Some(2 * job));
                }
            });
        }
    });
    assert_eq!(committed.into_inner(), 16 * 500);
}

/// Queues jobs one after the other behind a blocked leader, and returns the sizes of the batches
/// after the leader's own.
fn batches_behind(loads: &[usize], load_max: usize) -> Vec<usize> {
    let group_commit = group_commit(load_max);
    let (sizes, seen) = channel();
    scope(|scope| {
        let (go, wait) = channel::<()>();
        let group_commit = &group_commit;
        let behind = sizes.clone();
        scope.spawn(move || {
            let mut is_own = true;
            group_commit.submit(0, 1, |jobs| match std::mem::replace(&mut is_own, false) {
                true => wait.recv().unwrap(),
                false => behind.send(jobs.len()).unwrap(),
            })
        });
        while !group_commit.has_leader() {
            std::thread::yield_now();
        }
        for (nth, load) in loads.iter().enumerate() {
            let sizes = sizes.clone();
            scope.spawn(move || {
                group_commit.submit(1, *load, |jobs| {
                    sizes.send(jobs.len()).unwrap();
                })
            });
            while group_commit.waiting_count() < nth + 1 {
                std::thread::yield_now();
            }
        }
        go.send(()).unwrap();
    });
    drop(sizes);
    seen.iter().collect()
}

#[test]
fn queued_jobs_form_batches_up_to_the_load() {
    assert_eq!(batches_behind(&[1, 1, 1, 1], 100), [4]);
    assert_eq!(batches_behind(&[3, 3, 3, 3], 6), [2, 2]);
    assert_eq!(batches_behind(&[9, 1, 1], 6), [1, 2]);
    assert_eq!(batches_behind(&[1, 9, 1], 6), [1, 1, 1]);
}

#[test]
fn every_caller_of_a_large_batch_is_woken() {
    // No caller to wake, one, a whole relay, and several.
    for count in [1, 2, RELAY, RELAY + 1, 3 * RELAY - 1] {
        assert_eq!(batches_behind(&vec![1; count], 100), [count]);
    }
}

#[test]
fn lead_is_passed_on_after_some_batches() {
    // Each job exceeds the load of a batch, so each is a batch.
    let committed = batches_behind(&[9; 2 * ROUNDS_MAX], 6);
    assert_eq!(committed, [1; 2 * ROUNDS_MAX]);
    let group_commit = group_commit(100);
    let mut rounds = 0;
    let answer = group_commit.submit(0, 1, |_| {
        rounds += 1;
        // A caller is always queued.
        group_commit.enqueue_unattended(1);
    });
    assert_eq!((answer, rounds), (Some(0), ROUNDS_MAX));
}

#[test]
fn lead_is_passed_on_after_the_lead_time() {
    // As if another process held the file: every batch takes too long.
    let group_commit = GroupCommit::new(100, Duration::ZERO);
    let mut rounds = 0;
    let answer = group_commit.submit(0, 1, |_| {
        rounds += 1;
        group_commit.enqueue_unattended(rounds);
    });
    assert_eq!((answer, rounds), (Some(0), 1));
}

#[test]
fn panic_in_a_later_batch_does_not_reach_the_leader() {
    let group_commit = group_commit(100);
    let (go, wait) = channel::<()>();
    scope(|scope| {
        let group_commit = &group_commit;
        let leader = scope.spawn(move || {
            let mut is_own = true;
            group_commit.submit(1, 1, |jobs| {
                assert!(std::mem::replace(&mut is_own, false), "injected");
                wait.recv().unwrap();
                doubled(jobs);
            })
        });
        while !group_commit.has_leader() {
            std::thread::yield_now();
        }
        let waiter = scope.spawn(move || group_commit.submit(2, 1, doubled));
        while group_commit.waiting_count() < 1 {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert_eq!(leader.join().unwrap(), Some(2), "its own job was done");
        assert_eq!(waiter.join().unwrap(), None);
    });
    assert_eq!(group_commit.submit(4, 1, doubled), Some(8), "the queue accepts jobs again");
}

#[test]
fn leader_that_panics_leaves_no_caller_waiting() {
    let group_commit = group_commit(100);
    let (go, wait) = channel::<()>();
    scope(|scope| {
        let group_commit = &group_commit;
        let leader = scope.spawn(move || {
            catch_unwind(AssertUnwindSafe(|| {
                group_commit.submit(0_u64, 1, |_| {
                    wait.recv().unwrap();
                    panic!("injected")
                })
            }))
        });
        while !group_commit.has_leader() {
            std::thread::yield_now();
        }
        // The first of these leads next and panics as well; the others are in its batch.
        let waiters: Vec<_> = (1..4)
            .map(|job| {
                scope.spawn(move || {
                    catch_unwind(AssertUnwindSafe(|| {
                        group_commit.submit(job, 1, |_| panic!("injected"))
                    }))
                })
            })
            .collect();
        while group_commit.waiting_count() < 3 {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert!(leader.join().unwrap().is_err());
        let ends: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
        assert_eq!(ends.iter().filter(|end| matches!(end, Ok(None))).count(), 2);
    });
    assert_eq!(group_commit.submit(4, 1, doubled), Some(8), "the queue accepts jobs again");
}
