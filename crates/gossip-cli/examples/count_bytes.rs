//! The library: the bytes of every file below a directory, on any store.
//!
//! `cargo run -p gossip-cli --example count_bytes -- DIRECTORY sqlite:PATH`; stop it and start it
//! again, or start several. The results are kept in this process; a real program makes them durable
//! before it says `Done`, with the fence beside each, as `keep` does.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::{Mutex, PoisonError};

use gossip::store::Backend;
use gossip_contracts::connector::OpenError;
use gossip_contracts::identity::FenceEpoch;
use gossip_coordination_sqlite::fresh_nonce;
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::connectors::{Source, SourceOptions};
use gossip_scanner_runtime::{DEFAULT_TENANT, Drain, ScanOptions, ScanParts, Verdict, Work, scan};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let url =
        args.next().map_or_else(|| "memory:".into(), |url| url.to_string_lossy().into_owned());

    let backend = Backend::open(&url.parse()?)?;
    let source = Source::parse(&directory, SourceOptions::NONE)?;
    let results = Mutex::new(Results::new());
    let process = |work: Work<'_>, body: &mut Vec<u8>| match work.open(body) {
        Ok(mut body) => match io::copy(&mut body, &mut io::sink()) {
            Ok(read) => {
                keep(&results, work, read);
                Verdict::Done
            }
            Err(error) => Verdict::Unopened(OpenError::from_io(&error)),
        },
        Err(error) => Verdict::Unopened(error),
    };
    let options = ScanOptions::new("count bytes", fresh_nonce());
    // A real program asks this to stop when a signal comes; its shards then go to the others.
    let drain = Drain::new();
    let (handles, records) = (|| backend.coordinator(), || records(&backend));
    let parts = ScanParts { records: Some(&records), ..ScanParts::new(&handles, &drain) };
    let scanned = scan(&source, &options, parts, &process)?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (keys, bytes) = (results.len(), results.values().map(|(_, bytes)| bytes).sum::<u64>());
    let line = format!("{:?}: {keys} files, {bytes} bytes\n", scanned.finish);
    io::Write::write_all(&mut io::stdout(), line.as_bytes())?;
    Ok(())
}

/// The bytes of each key, and the fence of whoever counted them.
type Results = BTreeMap<Vec<u8>, (FenceEpoch, u64)>;

/// Keeps a result, unless a later owner of the shard has given one: who has lost a lease may not
/// know it yet, and the fence is what tells.
fn keep(results: &Mutex<Results>, work: Work<'_>, bytes: u64) {
    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = results.entry(work.key().to_vec()).or_insert((work.fence, bytes));
    if kept.0 <= work.fence {
        *kept = (work.fence, bytes);
    }
}

/// The records of planned moves, beside the shards.
fn records(backend: &Backend) -> Box<dyn Repository> {
    Box::new(StoreRepository::new(backend.store(), DEFAULT_TENANT, fresh_nonce()))
}
