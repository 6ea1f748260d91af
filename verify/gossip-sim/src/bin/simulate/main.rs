//! Runs simulations and prints a report as Markdown.
//!
//! `cargo xtask sim` builds and runs it. The exit code is 1 if a rule was broken; then the
//! simulation is shrunk, and the last line is the command that reproduces it. `--campaign` runs
//! many and can be resumed (`campaign.rs`). `--pairs` runs simulations with and without a second
//! tenant (`pairs.rs`).
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a program: its output is its use")]

mod campaign;
mod pairs;
mod time;

use std::io::{self, Write as _};
use std::process::ExitCode;

use gossip_sim::command::{self, Options, USAGE, Verdict};

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program reads its own arguments")]
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == "--campaign" => campaign::Wanted::parse(rest)
            .map(|wanted| campaign::run(&wanted, &mut io::stdout().lock())),
        Some((first, rest)) if first == "--pairs" => {
            pairs::Wanted::parse(rest).map(|wanted| pairs::run(&wanted, &mut io::stdout().lock()))
        }
        Some(_) | None => Options::parse(&arguments).map(|options| {
            let mut out = io::stdout().lock();
            command::run(&options, &time::processor, &mut out).and_then(|verdict| {
                out.flush()?;
                Ok(verdict)
            })
        }),
    };
    match result {
        Some(Ok(Verdict::Held)) => ExitCode::SUCCESS,
        Some(Ok(Verdict::Broken)) => ExitCode::FAILURE,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: simulate {USAGE}\n       simulate --campaign {}", campaign::USAGE);
            eprintln!("       simulate --pairs {}", pairs::USAGE);
            ExitCode::from(2)
        }
    }
}
