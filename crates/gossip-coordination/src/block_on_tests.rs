//! Waiting ends when the waker is called, from another thread or during the poll.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use crate::block_on;

#[test]
fn waiting_ends_when_another_thread_wakes_it() {
    let polls = AtomicUsize::new(0);
    let answer = thread::scope(|scope| {
        let waits_for_a_friend = poll_fn(|context| {
            // The third poll is ready; the second asks another thread to call again.
            match polls.fetch_add(1, Ordering::SeqCst) {
                0 => Poll::Pending,
                1 => {
                    let waker = context.waker().clone();
                    scope.spawn(move || waker.wake());
                    Poll::Pending
                }
                _ => Poll::Ready(7),
            }
        });
        block_on(waits_for_a_friend)
    });
    assert_eq!((answer, polls.into_inner()), (7, 3));
}

#[test]
fn a_wake_during_the_poll_is_not_lost_when_the_parking_token_is() {
    let mut polls = 0;
    let wakes_itself = poll_fn(|context| {
        polls += 1;
        if polls == 3 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        // Uses up the token that the wake left behind: only the flag remains.
        thread::park_timeout(std::time::Duration::ZERO);
        Poll::Pending
    });
    block_on(wakes_itself);
    assert_eq!(polls, 3);
}
