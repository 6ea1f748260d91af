//! How fast certificates are written and verified, and in how much memory.
//!
//! ```text
//! cargo run --release -p gossip-scanner-runtime --example certificate_rate [LEAVES]
//! ```
//!
//! Writes a certificate of so many leaves (10⁶ by default) with sixteen keys each into a
//! temporary file, verifies it without and with a key, and compares it with its source, which is
//! a range of integers. Prints one line for each, by the clock and in processor time, which a busy
//! machine does not stretch, and the most memory that the process ever had.
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
use gossip_scanner_runtime::connectors::{Source, SourceOptions, row_key};

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
    let begun = Begun::now()?;
    write(path, request, leaves, key)?;
    begun.tell("written, keys hashed", leaves)?;
    let size = std::fs::metadata(path)?.len();
    let connector = source.open()?;
    let checks = [
        ("verified by itself", Against::ITSELF),
        ("verified with a key", Against::ITSELF.with_key(key)),
        ("compared with its source", Against::ITSELF.with_source(request, &*connector)),
    ];
    for (what, against) in checks {
        let begun = Begun::now()?;
        let verified = verify(BufReader::new(File::open(path)?), against)?;
        assert_eq!((verified.done, verified.keys), (leaves, leaves * KEYS));
        begun.tell(what, leaves)?;
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
        (first..=last).for_each(|number| accumulator.add(&row_key(number)));
        let is_last = leaf + 1 == leaves;
        let end = if is_last { request.end.clone() } else { row_key(last + 1).to_vec() };
        let record = LeafRecord::new(&row_key(first), &end, LeafStatus::Done, FenceEpoch::INITIAL);
        writer.leaf(&record.with_progress(&row_key(last), accumulator, 0))?;
    }
    writer.finish(Some(key)).map(drop)
}

/// When something began, by the clock and in processor time.
struct Begun {
    clock: Instant,
    processor: f64,
}

impl Begun {
    fn now() -> std::io::Result<Self> {
        Ok(Self { clock: Instant::now(), processor: processor_seconds()? })
    }

    fn tell(&self, what: &str, leaves: u64) -> std::io::Result<()> {
        let clock = self.clock.elapsed().as_secs_f64();
        let processor = processor_seconds()? - self.processor;
        let rate = leaves as f64 / processor.max(0.01);
        println!(
            "{leaves} leaves {what}: {clock:.2} s, {processor:.2} s of processor time, \
             {rate:.0} a second of that"
        );
        Ok(())
    }
}

/// Time that this process has run, as the system counts it: in hundredths of a second.
fn processor_seconds() -> std::io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in brackets may hold anything; the eleventh field behind it is the first of two.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}

/// As the system counts it.
fn peak_memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(peak.unwrap_or("unknown").trim().to_owned())
}
