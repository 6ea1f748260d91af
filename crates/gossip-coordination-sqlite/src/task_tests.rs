//! What carries the work of tasks: one value at a time, in batches, after a time, and to the end.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gossip_coordination::block_on;
use gossip_coordination::store::{AsyncStore, CommitOutcome, Store, StoreLimits};

use crate::alarm::Alarm;
use crate::courier::Courier;
use crate::one_shot::one_shot;
use crate::test_support::{Scratch, put, stored};

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
    struct Inline(std::sync::Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>);
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
