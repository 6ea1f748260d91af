//! The library in ten lines: the bytes of every file below a directory, on any store.
//!
//! `cargo run -p gossip-cli --example count_bytes -- DIRECTORY sqlite:PATH`; stop it and start it
//! again, or start several. (The sum is of this process; a real program stores results durably
//! before it says `Done`, with `work.fence` beside them.)

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::connector::OpenError;
use gossip_coordination_sqlite::fresh_nonce;
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::connectors::{Source, SourceOptions};
use gossip_scanner_runtime::{DEFAULT_TENANT, Drain, ScanOptions, ScanParts, Verdict, Work, scan};
use gossip_stores::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let url =
        args.next().map_or_else(|| "memory:".into(), |url| url.to_string_lossy().into_owned());

    let backend = Backend::open(&url.parse()?)?;
    let source = Source::parse(&directory, SourceOptions::NONE)?;
    let (bytes, keys) = (AtomicU64::new(0), AtomicU64::new(0));
    let process = |work: Work<'_>, body: &mut Vec<u8>| match work.open(body) {
        Ok(mut body) => match io::copy(&mut body, &mut io::sink()) {
            Ok(read) => {
                bytes.fetch_add(read, Ordering::Relaxed);
                keys.fetch_add(1, Ordering::Relaxed);
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
    let (keys, bytes) = (keys.into_inner(), bytes.into_inner());
    let line = format!("{:?}: {keys} files, {bytes} bytes\n", scanned.finish);
    io::Write::write_all(&mut io::stdout(), line.as_bytes())?;
    Ok(())
}

/// The records of planned moves, beside the shards.
fn records(backend: &Backend) -> Box<dyn Repository> {
    Box::new(StoreRepository::new(backend.store(), DEFAULT_TENANT, fresh_nonce()))
}
