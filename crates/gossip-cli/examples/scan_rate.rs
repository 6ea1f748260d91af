//! How many trivial keys a worker goes through in a second, with coordination and durability on.
//!
//! `cargo run --release -p gossip-cli --example scan_rate -- KEYS THREADS sqlite:PATH`. The bare
//! loop does the same with the keys and nothing else.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::Instant;

use gossip_coordination_sqlite::fresh_nonce;
use gossip_scanner_runtime::connectors::{Source, SourceOptions, number_key};
use gossip_scanner_runtime::{Drain, ScanOptions, Verdict, Work, scan};
use gossip_stores::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [keys, threads, url] = args.as_slice() else {
        return Err("type: scan_rate KEYS THREADS STORE".into());
    };
    let (keys, threads): (u64, usize) = (keys.parse()?, threads.parse()?);
    let begun = Instant::now();
    for number in 0..keys {
        black_box(number_key(black_box(number)));
    }
    let bare = begun.elapsed();

    let backend = Backend::open(&url.parse()?)?;
    let source = Source::parse(format!("range:0..{keys}").as_ref(), SourceOptions::NONE)?;
    let name = format!("rate {}", fresh_nonce());
    let options = ScanOptions { threads, ..ScanOptions::new(&name, fresh_nonce()) };
    let process = |work: Work<'_>, _: &mut Vec<u8>| {
        black_box(work.key());
        Verdict::Done
    };
    let begun = Instant::now();
    scan(&source, &options, &|| backend.coordinator(), &Drain::new(), &(), &process)?;
    let scanned = begun.elapsed();
    let rate = keys as f64 / scanned.as_secs_f64();
    let (bare, scanned) = (bare.as_secs_f64(), scanned.as_secs_f64());
    writeln!(
        io::stdout(),
        "{keys} keys, {threads} threads: bare {bare:.3} s, scan {scanned:.3} s, {rate:.0} keys/s"
    )?;
    Ok(())
}
