//! A task that runs whether or not its caller polls it, and is aborted when the caller drops it.
//!
//! A future makes no progress while it is not polled, but keeps its resources: a lock, a permit for
//! a request in flight. A caller may stop polling it and wait for something that needs the same
//! resource, for example in another branch of a `select`, which is a deadlock. So work that holds a
//! shared resource runs in its own task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::tasks::{Task, Tasks};

/// A running task; dropping it aborts the task. Resolves to `None` if the task panicked or its
/// runtime has shut down.
pub(crate) struct AbortOnDrop<T>(Task<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    /// Spawns `work`, which starts at once.
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
        // The caller is gone, so nothing would read the result, and the task may hold a permit.
        self.0.abort();
    }
}
