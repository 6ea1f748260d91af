//! The minimum: a closure for every item of a source.
//!
//! `cargo run -p gossip-engine --example closure -- SOURCE STORE`, for example
//! `closure lines:urls.txt sqlite:state.db`. Stop it and start it again, or start several.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use gossip::prelude::*;

fn main() -> Result<(), ScanError> {
    let mut args = std::env::args().skip(1);
    let source = args.next().unwrap_or_else(|| "range:0..10".to_owned());
    let store = args.next().unwrap_or_else(|| "memory:".to_owned());
    let outcome = Scan::of(source).store(store).each(|item| {
        println!("{}", item.text()?);
        Ok(())
    })?;
    println!("{:?}, {} items", outcome.status, outcome.totals.keys);
    Ok(())
}
