//! Work that goes on whether or not its caller looks at it.
//!
//! A future stands still while nobody polls it, and keeps what it holds: a lock, a place among the
//! requests in flight. A caller may well do so and wait for something else meanwhile, which needs
//! the very thing that its own future holds, as in a branch of a `select` beside it. Then nobody
//! goes on, for ever. So whatever holds what others wait for runs in a task of its own.
//!
//! # Never
//! - outlives its caller: who drops the future ends the work, wherever it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::tasks::{Task, Tasks};

/// Work in a task of its own. `None` if it ended without an answer: it panicked, or its runtime
/// has ended.
pub(crate) struct AbortOnDrop<T>(Task<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    /// Begins at once.
    pub(crate) fn start(tasks: &Tasks, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tasks.spawn(work))
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
