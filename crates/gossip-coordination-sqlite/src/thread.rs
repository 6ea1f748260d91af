//! A thread that is joined on drop.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Joins its thread when dropped. The owner has requested the thread to end by then.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let handle = Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self { handle: Some(handle) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        // The panic hook has reported a panic of the thread already.
        let _ = handle.join();
    }
}
