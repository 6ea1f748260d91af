//! A scanner for leaked secrets in six lines: rules, a source, a store, and what to do with a
//! finding.
//!
//! `cargo run -p gossip-engine --example secrets -- SOURCE STORE`, for example
//! `secrets git:. sqlite:state.db`. Run it again to resume, or to print the findings again.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use gossip::prelude::*;
use gossip::secrets::{RuleSet, SecretScan, TenantSecretKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().unwrap_or_else(|| ".".to_owned());
    let store = args.next().unwrap_or_else(|| "memory:".to_owned());
    // Read it from a file that only you can read: the ids of findings depend on it.
    let key = TenantSecretKey::from_bytes([7; 32]);

    let secrets = SecretScan::new(&RuleSet::built_in(), key)?;
    let outcome = Scan::of(source).store(store).find_secrets(&secrets, |found| {
        let finding = found.finding;
        println!("{}:{} {} {}", found.place(), finding.line, finding.rule, finding.redacted);
    })?;
    println!("{:?}, {} findings", outcome.status, outcome.totals.findings);
    Ok(())
}
