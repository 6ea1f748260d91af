//! `gossip`: touch every key of something huge, never lose your place, prove that nothing was
//! missed.
//!
//! This crate reads arguments, the environment and the terminal, picks a store by its URL, and
//! turns outcomes into exit codes. It knows no rule of the protocol and keeps nothing of its own.
//!
//! Data goes to standard output and everything else to standard error.
#![forbid(unsafe_code)]

mod args;
mod certificate;
mod console;
mod duration;
mod exec;
mod failure;
mod handoffs;
mod opening;
mod output;
mod progress;
mod runs;
mod shards;
mod signals;
mod store;
mod watch;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;

use self::args::{Cli, Command};
use self::console::Console;
use self::failure::{Code, Failure};

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let console = Arc::new(Console::new(cli.global.quiet, cli.global.verbose));
    match run(cli, &console) {
        Ok(code) => code.into(),
        Err(failure) => {
            console.failure(&failure);
            failure.code.into()
        }
    }
}

fn run(cli: Cli, console: &Arc<Console>) -> Result<Code, Failure> {
    let global = cli.global;
    match cli.command {
        Command::Exec(args) => exec::exec(&global, *args, console),
        Command::Worker(args) => exec::worker(&global, *args, console),
        Command::Verify(args) => certificate::verify_file(&global, &args, console),
        Command::Run(command) => runs::run(&global, command, console),
        Command::Shard(command) => shards::run(&global, command, console),
        Command::Handoff(command) => handoffs::run(&global, command, console),
    }
}

/// Help and version are no failures; clap knows where they go.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody listens: there is nobody to tell.
    let _ = error.print();
    let forgotten = [ErrorKind::UnknownArgument, ErrorKind::MissingRequiredArgument];
    if forgotten.contains(&error.kind()) && has_no_command() {
        let _ = writeln!(io::stderr(), "\nThe command stands behind --: {EXAMPLE}");
    }
    if error.use_stderr() { Code::Usage.into() } else { Code::Complete.into() }
}

/// Shown to whoever forgets where the command begins.
const EXAMPLE: &str = "gossip exec SOURCE -- COMMAND {}";

/// Whether a command for keys was typed without the mark in front of it.
fn has_no_command() -> bool {
    let typed: Vec<_> = std::env::args_os().skip(1).collect();
    typed.iter().any(|word| word == "exec" || word == "create")
        && !typed.iter().any(|word| word == "--")
}
