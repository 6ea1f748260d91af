//! `gossip-mutants ROOT DESTINATION`: writes the copy of the workspace at ROOT, for
//! `cargo xtask mutants`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a program: its errors are for the terminal")]

use std::path::Path;
use std::process::ExitCode;

use gossip_mutants::{catalog, copy};

#[expect(clippy::disallowed_methods, reason = "a program that takes arguments")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [root, destination] = &words[..] else {
        eprintln!("usage: gossip-mutants ROOT DESTINATION");
        return ExitCode::from(2);
    };
    let catalog = catalog::load().map_err(|error| error.to_string());
    let made =
        catalog.and_then(|catalog| copy::make(Path::new(root), Path::new(destination), &catalog));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
