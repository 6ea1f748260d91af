//! Waiting for a future without an executor.
//!
//! The calling thread parks until the future's waker is called. No thread is started and no clock
//! is read.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Runs `future` to its end on the calling thread.
///
/// A future that is ready at its first poll costs no allocation. Any other is polled again with a
/// waker that unparks this thread; a future must use the waker of its latest poll, so the second
/// poll is harmless.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => park_until_ready(future),
    }
}

fn park_until_ready<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let alarm = Arc::new(Alarm { thread: thread::current(), rung: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&alarm));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        alarm.wait();
    }
}

/// Wakes one waiting thread.
///
/// The flag decides, and parking only saves time: a thread has one parking token, which a future
/// may consume while it is polled.
struct Alarm {
    thread: Thread,
    rung: AtomicBool,
}

impl Alarm {
    fn wait(&self) {
        while !self.rung.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
