//! Where tasks run: on tokio and, in tests, on an executor that tries orders that no runtime would
//! come to by itself (`explorer.rs`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Begins tasks. Clones begin them in the same place.
#[derive(Clone, Debug)]
pub(crate) enum Tasks {
    Tokio(Handle),
    #[cfg(test)]
    Explored(crate::explorer::Explorer),
}

impl Tasks {
    /// The runtime of whoever calls.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(crate) fn current() -> Self {
        Self::Tokio(Handle::current())
    }

    /// Begins at once, and goes on whether or not somebody looks at it.
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

/// The answer of a task; `None` if it ended without one: it panicked, was aborted, or its runtime
/// has ended. To drop it does nothing to the task.
#[derive(Debug)]
pub(crate) enum Task<T> {
    Tokio(JoinHandle<T>),
    #[cfg(test)]
    Explored(crate::explorer::Task<T>),
}

impl<T> Task<T> {
    /// Ends the task, wherever it is. Does nothing to one that has ended.
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
            Self::Tokio(task) => Pin::new(task).poll(context).map(Result::ok),
            #[cfg(test)]
            Self::Explored(task) => Pin::new(task).poll(context),
        }
    }
}
