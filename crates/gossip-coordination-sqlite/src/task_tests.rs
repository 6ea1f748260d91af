//! What carries the work of tasks: one value at a time, in batches, after a time, and to the end.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gossip_coordination::store::{AsyncStore, CommitOutcome, Store, StoreLimits, Txn};
use gossip_coordination::{InfraError, block_on};

use crate::alarm::Alarm;
use crate::core::LIMITS;
use crate::courier::Courier;
use crate::one_shot::one_shot;
use crate::test_support::{Scratch, key, put, stored, stranger};
use crate::{SqliteDatabase, SqliteOptions};

/// How long a test waits for what must come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_value_arrives_whether_it_is_waited_for_or_not() {
    let (sender, receiver) = one_shot();
    sender.send(7);
    assert_eq!(block_on(receiver), Some(7));
    let (sender, receiver) = one_shot();
    let thread = std::thread::spawn(move || sender.send(8));
    assert_eq!(block_on(receiver), Some(8));
    thread.join().unwrap();
}

#[test]
fn a_sender_that_goes_says_so() {
    let (sender, receiver) = one_shot::<u8>();
    let mut receiver = pin!(receiver);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(receiver.as_mut().poll(&mut context), Poll::Pending);
    drop(sender);
    assert_eq!(receiver.as_mut().poll(&mut context), Poll::Ready(None));
}

#[test]
fn a_courier_takes_what_gathered_and_survives_a_panic() {
    let (sizes, seen) = channel();
    let (go, wait) = channel::<()>();
    let courier = Courier::start("test", move |jobs: Vec<u32>| {
        sizes.send(jobs.len()).unwrap();
        wait.recv().unwrap();
        assert!(!jobs.contains(&13), "told to");
    })
    .unwrap();
    assert!(courier.post(13));
    assert_eq!(seen.recv().unwrap(), 1);
    assert!((0..5).all(|job| courier.post(job)));
    go.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), 5);
    // What was posted before the end is delivered.
    assert!(courier.post(6));
    go.send(()).unwrap();
    go.send(()).unwrap();
    drop(courier);
    assert_eq!(seen.recv().unwrap(), 1);
}

#[test]
fn an_alarm_never_rings_early_and_ends_without_waiting() {
    let alarm = Alarm::start().unwrap();
    let begun = Instant::now();
    let (late, early) = (Duration::from_millis(20), Duration::from_millis(5));
    let (second, first) = (alarm.after(late), alarm.after(early));
    assert_eq!(block_on(first), Some(()));
    assert!(begun.elapsed() >= early);
    assert_eq!(block_on(second), Some(()));
    assert!(begun.elapsed() >= late);
    let never = alarm.after(Duration::MAX);
    drop(alarm);
    assert_eq!(block_on(never), None);
}

#[test]
fn an_alarm_survives_a_waker_that_panics() {
    struct Broken;
    impl std::task::Wake for Broken {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("told to");
        }
    }
    let alarm = Alarm::start().unwrap();
    let mut first = pin!(alarm.after(Duration::from_millis(20)));
    let waker = Waker::from(std::sync::Arc::new(Broken));
    let _ = first.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(block_on(alarm.after(Duration::from_millis(30))), Some(()));
}

#[test]
fn a_task_that_gives_up_waiting_harms_nobody() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut task = database.async_store().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for number in 0..20 {
        // Polled once, and then forgotten.
        let _ = pin!(task.commit(vec![put(number, b"given up")])).poll(&mut context);
    }
    let outcomes = block_on(task.commit(vec![put(99, b"waited for")]));
    assert!(matches!(outcomes[..], [Ok(CommitOutcome::Applied { .. })]));
    // What was posted before is committed before.
    assert!((0..20).all(|number| stored(&mut database.store(), number).is_some()));
}

/// A transaction that fills a quarter of a group.
fn large(number: u64) -> Txn {
    const OPS: u64 = LIMITS.txn_ops as u64;
    let mut txn = Txn::new();
    (number * OPS..(number + 1) * OPS).for_each(|number| txn.put(key(number), Vec::new()));
    txn
}

/// Posts what tasks commit while somebody holds the file, so that it is delivered at once; after
/// the first group of it that somebody holds the file again. Answers the tasks and the second
/// holder.
fn delivered_at_once(
    database: &SqliteDatabase,
    jobs: Vec<Vec<Txn>>,
) -> (Vec<Posted>, Receiver<rusqlite::Connection>) {
    let (mut again, first) = (Some(stranger(database)), stranger(database));
    let (held, is_held) = channel();
    let mut commits = 0;
    database.core().after_commit(move || {
        commits += 1;
        if commits == 2 {
            let holder = again.take().unwrap();
            holder.execute_batch("BEGIN IMMEDIATE").unwrap();
            held.send(holder).unwrap();
        }
    });
    first.execute_batch("BEGIN IMMEDIATE").unwrap();
    let warm = posted(database, vec![put(u64::MAX, b"warm")]);
    // Its courier has left with it when the next ones are posted.
    let deadline = Instant::now() + PATIENCE;
    while database.couriers().waiting_commits() > 0 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let jobs = jobs.into_iter().map(|txns| posted(database, txns)).collect();
    drop(first);
    assert!(block_on(warm)[0].is_ok());
    (jobs, is_held)
}

/// A commit on its way.
type Posted = Pin<Box<dyn Future<Output = Vec<Result<CommitOutcome, InfraError>>>>>;

fn posted(database: &SqliteDatabase, txns: Vec<Txn>) -> Posted {
    let mut task = database.async_store().unwrap();
    let mut commit: Posted = Box::pin(async move { task.commit(txns).await });
    assert!(commit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    commit
}

#[test]
fn a_task_learns_what_became_of_its_group_before_the_next_is_through() {
    let scratch = Scratch::new();
    let options = SqliteOptions { busy_timeout: PATIENCE, ..SqliteOptions::default().relaxed() };
    let database = scratch.database_with(options);
    let jobs = (0..8).map(|number| vec![large(number)]).collect();
    let (mut jobs, is_held) = delivered_at_once(&database, jobs);
    let holder = is_held.recv().unwrap();
    // The next group waits for the file as long as we wait for this answer.
    assert!(matches!(block_on(jobs.remove(0))[0], Ok(CommitOutcome::Applied { .. })));
    drop(holder);
    for job in jobs {
        assert!(matches!(block_on(job)[0], Ok(CommitOutcome::Applied { .. })));
    }
}

#[test]
fn behind_a_group_that_waited_in_vain_no_group_waits_again() {
    const WAIT: Duration = Duration::from_millis(500);
    /// Groups that would wait one after the other.
    const GROUPS: u64 = 8;
    let scratch = Scratch::new();
    let options = SqliteOptions { busy_timeout: WAIT, ..SqliteOptions::default().relaxed() };
    let database = scratch.database_with(options);
    let jobs = (0..GROUPS * 4).map(|number| vec![large(number)]).collect();
    let (jobs, is_held) = delivered_at_once(&database, jobs);
    let holder = is_held.recv().unwrap();
    let mut outcomes = jobs.into_iter().map(|job| block_on(job).remove(0));
    assert!(outcomes.by_ref().take(4).all(|it| it.is_ok()), "the first group is through");
    let given_up = outcomes.next().unwrap();
    assert!(given_up.is_err_and(|error| error.is_retryable()));
    // Whoever would wait again is let through now.
    drop(holder);
    assert!(outcomes.all(|it| it.is_err()), "another group waited");
}

#[test]
fn tasks_read_wait_and_know_the_limits() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut task = database.async_store().unwrap();
    assert_eq!(block_on(task.commit(Vec::new())), Vec::new());
    assert_eq!(block_on(task.read(Vec::new())), Ok(Vec::new()));
    block_on(task.wait(1));
    let StoreLimits { txn_ops, .. } = AsyncStore::limits(&task);
    assert_eq!(txn_ops, Store::limits(&database.store()).txn_ops);
}

#[test]
fn the_last_handle_may_go_on_the_thread_that_wakes_it() {
    let scratch = Scratch::new();
    let task = scratch.database().async_store().unwrap();
    let (done, wait) = channel();
    let mut owned = task;
    let future = async move {
        owned.wait(1).await;
        drop(owned);
        done.send(()).unwrap();
    };
    // The waker runs the task at once, on whichever thread wakes it.
    struct Inline(std::sync::Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);
    impl std::task::Wake for Inline {
        fn wake(self: std::sync::Arc<Self>) {
            let waker = Waker::from(std::sync::Arc::clone(&self));
            let mut slot = self.0.lock().unwrap();
            if let Some(mut future) = slot.take()
                && future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            {
                *slot = Some(future);
            }
        }
    }
    let task = std::sync::Arc::new(Inline(std::sync::Mutex::new(Some(Box::pin(future)))));
    std::task::Wake::wake(task);
    wait.recv().unwrap();
}
