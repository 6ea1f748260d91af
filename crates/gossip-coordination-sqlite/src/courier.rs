//! A thread that does what tasks must not wait for: it takes everything that was posted and
//! delivers it in one go, and while it is away the next batch gathers.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::thread::Thread;

/// Jobs that may wait. Each handle has one at a time, so only callers that give up and come again
/// without end could reach it.
const JOBS_MAX: usize = 1 << 16;

/// A thread and the jobs that wait for it.
#[derive(Debug)]
pub(crate) struct Courier<J> {
    desk: Arc<Desk<J>>,
    /// Declared last: the desk is closed before the thread is waited for.
    _thread: Thread,
}

#[derive(Debug)]
struct Desk<J> {
    post: Mutex<Post<J>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Post<J> {
    jobs: VecDeque<J>,
    is_closed: bool,
}

impl<J: Send + 'static> Courier<J> {
    /// Starts a thread called `name` that calls `deliver` with everything that waits.
    pub(crate) fn start(
        name: &str,
        mut deliver: impl FnMut(Vec<J>) + Send + 'static,
    ) -> io::Result<Self> {
        let post = Post { jobs: VecDeque::new(), is_closed: false };
        let desk = Arc::new(Desk { post: Mutex::new(post), arrived: Condvar::new() });
        let theirs = Arc::clone(&desk);
        let thread = Thread::start(name, move || {
            while let Some(jobs) = theirs.take() {
                // The jobs that were lost tell their callers so when they are dropped, and the
                // panic was reported when it happened. The next ones are innocent.
                let _ = catch_unwind(AssertUnwindSafe(|| deliver(jobs)));
            }
        })?;
        Ok(Self { desk, _thread: thread })
    }

    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.desk.post().jobs.len()
    }

    /// Has `job` delivered; answers whether there was room for it.
    pub(crate) fn post(&self, job: J) -> bool {
        let mut post = self.desk.post();
        if post.jobs.len() >= JOBS_MAX {
            return false;
        }
        post.jobs.push_back(job);
        drop(post);
        self.desk.arrived.notify_one();
        true
    }
}

impl<J> Desk<J> {
    /// Waits for jobs; `None` when the desk is closed. What was posted before is still delivered.
    fn take(&self) -> Option<Vec<J>> {
        let mut post = self.post();
        loop {
            if !post.jobs.is_empty() {
                return Some(post.jobs.drain(..).collect());
            }
            if post.is_closed {
                return None;
            }
            post = self.arrived.wait(post).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn post(&self) -> MutexGuard<'_, Post<J>> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Drop for Courier<J> {
    fn drop(&mut self) {
        self.desk.post().is_closed = true;
        self.desk.arrived.notify_one();
    }
}
