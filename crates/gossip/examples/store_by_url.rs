//! A store by URL: the same program on a laptop, on one server and on a cluster.
//!
//! `GOSSIP_STORE=sqlite:state.db cargo run -p gossip-engine --example store_by_url`, or the URL as
//! the first argument. A kind of store that this build does not have, as `postgres://` today, is
//! refused with the kinds that it has; the program does not change when one is added.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "an example is a program"
)]

use std::process::ExitCode;

use gossip::prelude::*;
use gossip::store::{Backend, StoreUrl};

fn main() -> ExitCode {
    let url = std::env::args().nth(1).or_else(|| std::env::var("GOSSIP_STORE").ok());
    match count(url.as_deref().unwrap_or("memory:")) {
        Ok(outcome) => {
            println!("{:?}, {} items", outcome.status, outcome.totals.keys);
            ExitCode::SUCCESS
        }
        // Neither error shows the URL: it may contain a password.
        Err(error @ ScanError::StoreUrl(_)) => {
            eprintln!("the URL of the store: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn count(url: &str) -> Result<Outcome, ScanError> {
    let url: StoreUrl = url.parse()?;
    if !url.is_shared() {
        println!("this store is lost with the process");
    }
    // One open store serves any number of scans.
    let backend = Backend::open(&url)?;
    Scan::of("range:0..1000").name("count").backend(&backend).each(|_item| Ok(()))
}
