//! An asynchronous handler.
//!
//! `cargo run -p gossip-engine --example async_handler -- SOURCE STORE`. Each worker thread waits
//! for the future of its item, so the number of threads is the number of items in flight. The scan
//! starts no runtime. `sleep` below takes the place of a service's client and has its own thread; a
//! client that needs tokio enters its runtime first: `let _entered = handle.enter();`.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::future::{self, Future};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use gossip::prelude::*;

fn main() -> Result<(), ScanError> {
    let mut args = std::env::args().skip(1);
    let source = args.next().unwrap_or_else(|| "range:0..100".to_owned());
    let store = args.next().unwrap_or_else(|| "memory:".to_owned());
    let outcome = Scan::of(source).store(store).threads(16).each_async(handle)?;
    println!("{:?}, {} items", outcome.status, outcome.totals.keys);
    Ok(())
}

/// Looks an item up, and tries again later if that fails.
async fn handle(item: &mut Item<'_>) -> Result<(), ItemError> {
    let text = item.text()?;
    let length = look_up(&text).await.ok_or_else(|| ItemError::failed("no answer"))?;
    println!("{text} has {length} bytes");
    Ok(())
}

async fn look_up(text: &str) -> Option<usize> {
    sleep(Duration::from_millis(10)).await;
    Some(text.len())
}

/// A timer on a thread of its own.
#[derive(Default)]
struct Timer {
    expired: bool,
    waker: Option<Waker>,
}

fn sleep(time: Duration) -> impl Future<Output = ()> {
    let timer = Arc::new(Mutex::new(Timer::default()));
    let expiring = Arc::clone(&timer);
    thread::spawn(move || {
        thread::sleep(time);
        let mut timer = expiring.lock().unwrap_or_else(PoisonError::into_inner);
        timer.expired = true;
        timer.waker.take().map(Waker::wake)
    });
    future::poll_fn(move |context| {
        let mut timer = timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.expired {
            return Poll::Ready(());
        }
        // The waker of the latest poll counts; an earlier one may do nothing.
        timer.waker = Some(context.waker().clone());
        Poll::Pending
    })
}
