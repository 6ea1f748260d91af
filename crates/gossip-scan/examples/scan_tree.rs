//! Scans every file below a directory and prints findings and totals.
//!
//! `cargo run --release -p gossip-scan --example scan_tree -- DIRECTORY`

#![expect(clippy::disallowed_methods, reason = "an example is a program and reads arguments")]
#![expect(clippy::print_stdout, reason = "its findings are its output")]

use std::error::Error;
use std::path::PathBuf;

use gossip_scan::{Report, RuleSet, ScanOptions, Scanner};

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("usage: scan_tree DIRECTORY")?;
    let scanner = Scanner::new(&RuleSet::built_in(), ScanOptions::default())?;
    let mut scratch = scanner.scratch();
    let mut total = Report::default();
    let mut directories = vec![PathBuf::from(root)];
    while let Some(directory) = directories.pop() {
        let mut entries = std::fs::read_dir(&directory)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                let report = scanner.scan_file(&mut scratch, &path, |it| {
                    let (line, column) = (it.line, it.column);
                    let (rule, confidence) = (&it.rule, it.confidence);
                    let text = it.secret.redacted();
                    println!("{}:{line}:{column}: {rule} {confidence} {text}", path.display());
                })?;
                total.bytes += report.bytes;
                total.findings += report.findings;
                total.unread.extend(report.unread);
            }
        }
    }
    let (literals, bytes) = scanner.automaton_size();
    println!("{literals} literals in {bytes} bytes");
    println!("{} bytes, {} findings, {} unread", total.bytes, total.findings, total.unread.len());
    Ok(())
}
