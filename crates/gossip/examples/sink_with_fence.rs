//! A sink that keeps the fence with each result: the bytes of every file below a directory.
//!
//! `cargo run -p gossip-engine --example sink_with_fence -- DIRECTORY STORE`. The results are kept
//! in memory here; a real sink makes them durable before the handler returns `Ok`, and compares the
//! fence in the same transaction that writes the result.
#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use gossip::identity::FenceEpoch;
use gossip::prelude::*;

fn main() -> Result<(), ScanError> {
    let mut args = std::env::args_os().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let store = args.next().and_then(|url| url.into_string().ok());
    let sink = Sink::default();
    let scan = Scan::of(directory).name("count bytes");
    let scan = scan.store(store.unwrap_or_else(|| "memory:".to_owned()));
    let outcome = scan.each(|item| {
        let (key, fence) = (item.key(), item.fence());
        let bytes = io::copy(&mut item.open()?, &mut io::sink())?;
        sink.put(key, fence, bytes);
        Ok(())
    })?;
    let (files, bytes) = sink.totals();
    println!("{:?}: {files} files, {bytes} bytes", outcome.status);
    Ok(())
}

/// A result for each key, with the fence of the process that produced it.
#[derive(Default)]
struct Sink(Mutex<BTreeMap<Vec<u8>, (FenceEpoch, u64)>>);

impl Sink {
    /// Keeps a result unless a later lease holder has written one for this key: a process that was
    /// paused does not know yet that it has lost its lease. Its checkpoint will be refused as well.
    ///
    /// The comparison is per key. After a split one shard keeps its fence and the other has another
    /// one, so fences of different keys say nothing about each other.
    fn put(&self, key: &[u8], fence: FenceEpoch, bytes: u64) {
        let mut results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = results.entry(key.to_vec()).or_insert((fence, bytes));
        if kept.0 <= fence {
            *kept = (fence, bytes);
        }
    }

    fn totals(&self) -> (usize, u64) {
        let results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (results.len(), results.values().map(|(_, bytes)| bytes).sum())
    }
}
