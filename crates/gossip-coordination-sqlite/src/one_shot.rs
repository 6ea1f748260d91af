//! One value from a thread to a task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Gives the value. Dropped without one, it says so.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

/// Waits for the value; `None` if the sender went without giving one.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

#[derive(Debug)]
enum Slot<T> {
    /// Nothing yet; whom to wake.
    Empty(Option<Waker>),
    Full(T),
    /// Nothing will come.
    Closed,
}

/// Both ends.
pub(crate) fn one_shot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot::Empty(None)));
    (Sender { slot: Arc::clone(&slot) }, Receiver { slot })
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) {
        self.settle(Slot::Full(value));
    }

    /// Only the first word counts.
    fn settle(&self, word: Slot<T>) {
        let mut slot = lock(&self.slot);
        let Slot::Empty(waker) = &mut *slot else { return };
        let waker = waker.take();
        *slot = word;
        // Woken outside of the lock: a task may run at once, on this very thread.
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.settle(Slot::Closed);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Full(value) => Poll::Ready(Some(value)),
            Slot::Closed => Poll::Ready(None),
            Slot::Empty(_) => {
                *slot = Slot::Empty(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
