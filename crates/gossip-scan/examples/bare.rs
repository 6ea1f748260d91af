//! Opens, reads and searches every file below directories, without coordination: the ceiling for
//! `gossip scan`, and a way to use the detection alone.
//!
//! `cargo run --release -p gossip-scan --example bare -- THREADS DIR…` prints files, bytes and
//! findings.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example is a program")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gossip_scan::{RuleSet, ScanOptions, Scanner};

fn main() {
    let mut args = std::env::args_os().skip(1);
    let threads: usize = args.next().unwrap().to_str().unwrap().parse().unwrap();
    let mut files = Vec::new();
    let mut directories: Vec<PathBuf> = args.map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let scanner = Scanner::new(&RuleSet::built_in(), ScanOptions::default()).unwrap();
    let (next, bytes, found) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut scratch = scanner.scratch();
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Ok(report) = scanner.scan_file(&mut scratch, path, drop) {
                        bytes.fetch_add(report.bytes, Ordering::Relaxed);
                        found.fetch_add(report.findings, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    println!(
        "{} files, {} bytes, {} findings",
        files.len(),
        bytes.into_inner(),
        found.into_inner()
    );
}
