//! `cargo xtask bench runtime`: overhead of coordination and durability, and memory use.
//!
//! `runtime-figures DIRECTORY` prints a table. Each job runs twice in this process, one key after
//! another on one thread: as a bare loop over the pages of the source, and as a scan on a SQLite
//! file in the directory, with every checkpoint synced. Heavy keys sleep, so that a busy machine
//! does not stretch them; trivial keys do nothing. Memory is the peak of a separate process for
//! each number of keys.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, thread};

use gossip::Scan;
use gossip::coordination::store::fresh_nonce;
use gossip_contracts::connector::{CheckedEnumeration, Page};
use gossip_contracts::coordination::CursorUpdate;
use gossip_scanner_runtime::connectors::{Source, SourceOptions};

use crate::Outcome;
use crate::process::{output_of, own_program};

/// Heavy keys: processing time and number.
const HEAVY: (u64, Duration) = (1_000, Duration::from_millis(20));
/// Number of trivial keys.
const TRIVIAL: u64 = 1_000_000;
/// Keys of the jobs whose memory is measured.
const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// The program `runtime-figures`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    match *words {
        [directory] => figures(directory.as_ref()),
        [directory, keys] => child(directory.as_ref(), keys.parse()?),
        _ => Err("usage: runtime-figures DIRECTORY".into()),
    }
}

fn figures(directory: &Path) -> Outcome<String> {
    fs::create_dir_all(directory)?;
    let (keys, takes) = HEAVY;
    let heavy =
        compared(directory, &format!("{keys} keys of {} ms", takes.as_millis()), keys, takes)?;
    let name = format!("{TRIVIAL} trivial keys");
    let trivial = compared(directory, &name, TRIVIAL, Duration::ZERO)?;
    let mut table = format!(
        "| job | bare loop | scan, durable | scan ÷ bare | processor time of the scan |\n\
         |---|---:|---:|---:|---:|\n{heavy}\n{trivial}\n\n\
         | keys | most memory | keys a second of processor time |\n|---:|---:|---:|"
    );
    for keys in SIZES {
        table.push('\n');
        table.push_str(&output_of(own_program()?.arg(directory).arg(keys.to_string()))?);
    }
    Ok(table)
}

/// Returns one row: the same keys, bare and scanned.
fn compared(directory: &Path, name: &str, keys: u64, takes: Duration) -> Outcome<String> {
    let bare = bare(keys, takes)?;
    let processor = processor_seconds()?;
    let scanned = scanned(directory, keys, takes)?;
    let processor = processor_seconds()? - processor;
    let ratio = scanned / bare;
    Ok(format!("| {name} | {bare:.3} s | {scanned:.3} s | **{ratio:.3}** | {processor:.2} s |"))
}

/// Lists so many trivial keys in a bare loop; returns seconds.
pub(crate) fn bare_trivial(keys: u64) -> Outcome<f64> {
    bare(keys, Duration::ZERO)
}

/// Scans so many trivial keys on a new file in the directory; returns seconds.
pub(crate) fn scanned_trivial(directory: &Path, keys: u64) -> Outcome<f64> {
    scanned(directory, keys, Duration::ZERO)
}

fn process(key: &[u8], takes: Duration) {
    black_box(key);
    if !takes.is_zero() {
        thread::sleep(takes);
    }
}

/// Lists and processes the keys without coordination; returns seconds.
fn bare(keys: u64, takes: Duration) -> Outcome<f64> {
    let source = source(keys)?;
    let (connector, root, begun) = (source.open()?, source.root(), Instant::now());
    let start = CursorUpdate::initial();
    let mut listing = CheckedEnumeration::open(&*connector, root.as_spec_ref(), start)?;
    let mut page = Page::default();
    while !page.is_exhausted() {
        listing.next_page(&mut page)?;
        page.items().for_each(|item| process(item.key(), takes));
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Scans the keys on a new file; returns seconds.
fn scanned(directory: &Path, keys: u64, takes: Duration) -> Outcome<f64> {
    let path = directory.join(format!("figures-{}.db", fresh_nonce()));
    let scan = Scan::of(format!("range:0..{keys}")).name("figures").threads(1);
    let scan = scan.store(format!("sqlite:{}", path.display()));
    let begun = Instant::now();
    let outcome = scan.each(|item| {
        process(item.key(), takes);
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    if !outcome.is_complete() {
        return Err("the scan is incomplete".into());
    }
    for suffix in ["", "-wal", "-shm"] {
        // A missing file need not be removed.
        let _removed = fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(seconds)
}

/// Returns the row of a separate process, which measures its memory.
fn child(directory: &Path, keys: u64) -> Outcome<String> {
    scanned(directory, keys, Duration::ZERO)?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let rate = keys as f64 / processor_seconds()?.max(0.01);
    let peak = peak.unwrap_or("unknown").trim();
    Ok(format!("| {keys} | {peak} | {rate:.0} |"))
}

fn source(keys: u64) -> Outcome<Source> {
    Ok(Source::parse(format!("range:0..{keys}").as_ref(), SourceOptions::NONE)?)
}

/// Returns the CPU time of this process, in hundredths of a second.
fn processor_seconds() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain anything; the eleventh field after it is the first of
    // two.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}
