//! A thread that is waited for when its owner goes.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Waits for its thread when dropped. Whoever owns it has told the thread to end by then.
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
        // A panic of the thread was reported when it happened.
        let _ = handle.join();
    }
}
