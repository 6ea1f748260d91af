//! How fast certificates are written and verified, and in how much memory.
//!
//! ```text
//! cargo run --release -p gossip-scanner-runtime --example certificate_rate [LEAVES]
//! ```
//!
//! Writes a certificate of so many leaves (10⁶ unless told otherwise) with sixteen keys each into a
//! temporary file, verifies it by itself and with a key, and compares it with its source, which is
//! a range of integers. Prints one line for each, and the most memory that the process ever had.
#![allow(clippy::print_stdout, reason = "an example that prints figures")]
#![allow(clippy::disallowed_methods, reason = "an example that measures time and reads arguments")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Instant;

use gossip_contracts::identity::{FenceEpoch, RunId};
use gossip_scanner_runtime::Accumulator;
use gossip_scanner_runtime::certificate::{
    Against, CertificateWriter, LeafRecord, LeafStatus, Request, SigningKey, verify,
};
use gossip_scanner_runtime::connectors::{Source, SourceOptions, number_key};

/// Keys in each leaf.
const KEYS: u64 = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leaves: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let typed = format!("range:0..{}", leaves * KEYS);
    let source = Source::parse(OsStr::new(&typed), SourceOptions::NONE)?;
    let request = Request::new(RunId::from_raw(1), &source);
    let key = SigningKey::try_new(&[7; 32])?;
    let path = std::env::temp_dir().join(format!("gossip-certificate-{}", std::process::id()));
    let measured = measure(&path, &request, &source, leaves, &key);
    std::fs::remove_file(&path)?;
    measured
}

fn measure(
    path: &Path,
    request: &Request,
    source: &Source,
    leaves: u64,
    key: &SigningKey,
) -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    write(path, request, leaves, key)?;
    tell("written, keys hashed", leaves, begun);
    let size = std::fs::metadata(path)?.len();
    let connector = source.open()?;
    let checks = [
        ("verified by itself", Against::ITSELF),
        ("verified with a key", Against::ITSELF.with_key(key)),
        ("compared with its source", Against::ITSELF.with_source(request, &*connector)),
    ];
    for (what, against) in checks {
        let begun = Instant::now();
        let verified = verify(BufReader::new(File::open(path)?), against)?;
        assert_eq!((verified.done, verified.keys), (leaves, leaves * KEYS));
        tell(what, leaves, begun);
    }
    println!("{size} bytes; {} of memory at most", peak_memory()?);
    Ok(())
}

fn write(path: &Path, request: &Request, leaves: u64, key: &SigningKey) -> std::io::Result<()> {
    let out = BufWriter::new(File::create(path)?);
    let mut writer = CertificateWriter::new(out, request)?;
    for leaf in 0..leaves {
        let (first, last) = (leaf * KEYS, leaf * KEYS + KEYS - 1);
        let mut accumulator = Accumulator::EMPTY;
        (first..=last).for_each(|number| accumulator.add(&number_key(number)));
        let is_last = leaf + 1 == leaves;
        let end = if is_last { request.end.clone() } else { number_key(last + 1).to_vec() };
        let record =
            LeafRecord::new(&number_key(first), &end, LeafStatus::Done, FenceEpoch::INITIAL);
        writer.leaf(&record.with_progress(&number_key(last), accumulator, 0))?;
    }
    writer.finish(Some(key)).map(drop)
}

fn tell(what: &str, leaves: u64, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    println!("{leaves} leaves {what}: {seconds:.3} s, {:.0} a second", leaves as f64 / seconds);
}

/// As the system counts it.
fn peak_memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(peak.unwrap_or("unknown").trim().to_owned())
}
