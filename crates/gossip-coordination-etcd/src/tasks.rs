//! Where tasks run: on tokio and, in tests, on an executor that explores unusual orders
//! (`explorer.rs`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Spawns tasks. Clones spawn on the same runtime.
#[derive(Clone, Debug)]
pub(crate) enum Tasks {
    Tokio(Handle),
    #[cfg(test)]
    Explored(crate::explorer::Explorer),
}

impl Tasks {
    /// Returns the runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(crate) fn current() -> Self {
        Self::Tokio(Handle::current())
    }

    /// Spawns a task, which runs whether or not its handle is polled.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        match self {
            Self::Tokio(runtime) => Task::Tokio(runtime.spawn(work)),
            #[cfg(test)]
            Self::Explored(explorer) => Task::Explored(explorer.spawn(work)),
        }
    }
}

/// The handle of a task; resolves to `None` if the task panicked, was aborted, or its runtime has
/// shut down. Dropping it does not abort the task.
#[derive(Debug)]
pub(crate) enum Task<T> {
    Tokio(JoinHandle<T>),
    #[cfg(test)]
    Explored(crate::explorer::Task<T>),
}

impl<T> Task<T> {
    /// Aborts the task. Does nothing if it has ended.
    pub(crate) fn abort(&self) {
        match self {
            Self::Tokio(task) => task.abort(),
            #[cfg(test)]
            Self::Explored(task) => task.abort(),
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            // A task that panicked or was aborted has no value; callers treat both as an early end.
            Self::Tokio(task) => Pin::new(task).poll(context).map(Result::ok),
            #[cfg(test)]
            Self::Explored(task) => Pin::new(task).poll(context),
        }
    }
}
