//! `gossip`: process every item of a large source, resume after any crash, and prove that none was
//! missed.
//!
//! This crate reads arguments and the environment, writes to the terminal, selects a store by its
//! URL, and maps outcomes to exit codes. It contains no protocol rule and stores nothing itself.
//!
//! Data goes to standard output and everything else to standard error.
#![forbid(unsafe_code)]

mod args;
mod backup;
mod certificate;
mod changes;
mod command_output;
mod console;
mod demo;
mod doctor;
mod duration;
mod events;
mod exec;
mod failed;
mod failure;
mod gone;
mod halt;
mod handoffs;
mod help;
mod history;
mod html;
mod items;
mod job_key;
mod key_file;
mod keyspace;
mod listing;
mod live;
mod opening;
mod output;
mod overview;
mod painter;
mod progress;
mod reference;
mod restored;
mod rules;
mod runs;
mod scan;
mod scan_args;
mod screen;
#[cfg(feature = "serve")]
mod serve;
mod shards;
mod signals;
mod sources;
mod spool;
mod store;
mod store_args;
mod store_state;
mod tenants;
mod upgrade;
mod watch;
mod why;
mod workers;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use gossip::runtime::exec::finish_programs;

use self::args::{Cli, Command, Format};
use self::console::Console;
use self::failure::{Code, Failure};
use self::screen::Screen;
use self::store_args::StoreCommand;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let screen = Arc::new(Screen::new(cli.global.color));
    // A message of a panic would otherwise be drawn over by the next frame.
    screen::hook_panics(&screen);
    let console = Arc::new(Console::new(cli.global.quiet, cli.global.verbose, screen));
    let code = match run(cli, &console) {
        Ok(code) => code,
        Err(failure) => {
            console.failure(&failure);
            failure.code
        }
    };
    // Also after a failure, because commands may still be running.
    finish_programs();
    code.into()
}

fn run(cli: Cli, console: &Arc<Console>) -> Result<Code, Failure> {
    let global = cli.global;
    // Checked here and not by clap, which has one list of formats for all commands.
    if global.output == Format::Sarif
        && !matches!(cli.command, Command::Scan(_) | Command::Findings(_))
    {
        return Err(Failure::new(Code::Usage, "-o sarif is for `scan` and `findings`"));
    }
    match cli.command {
        Command::Scan(args) => scan::scan(&global, *args, console),
        Command::Findings(args) => scan::findings(&global, &args, console),
        Command::Rules(command) => rules::run(&global, command, console),
        Command::Exec(args) => exec::exec(&global, *args, console),
        Command::Worker(args) => exec::worker(&global, *args, console),
        Command::Watch(args) => live::run(&global, &args, console),
        Command::Map(args) => keyspace::run(&global, &args, console),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(global, &args, console),
        Command::Demo(args) => demo::run(&args, console),
        Command::Why(args) => why::why(&global, &args),
        Command::Doctor => doctor::doctor(&global, console),
        Command::Completions { shell } => help::completions(shell),
        Command::Man { words, to } => help::man(&words, to.as_deref()),
        Command::Verify(args) => certificate::verify_file(&global, &args, console),
        Command::Run(command) => runs::run(&global, command, console),
        Command::Shard(command) => shards::run(&global, command, console),
        Command::Events(args) => history::run(&global, &args, console),
        Command::Failed(run) => failed::list(&global, &run, console),
        Command::Retry(args) => failed::retry(&global, &args, console),
        Command::Handoff(command) => handoffs::run(&global, command, console),
        Command::Store(StoreCommand::Init(args)) => store_state::init(&global, &args, console),
        Command::Store(StoreCommand::Stats) => store_state::stats(&global),
        Command::Store(StoreCommand::Backup { file }) => backup::back_up(&global, &file, console),
        Command::Store(StoreCommand::Upgrade(args)) => upgrade::upgrade(&global, &args, console),
        Command::Store(StoreCommand::Restored(args)) => restored::restored(&global, &args, console),
        Command::Tenant(command) => tenants::run(&global, command, console),
    }
}

/// Prints a message of clap. Help and version are not errors.
fn usage(error: &clap::Error) -> ExitCode {
    // A closed output cannot be reported anywhere.
    let _ = error.print();
    let forgotten = [ErrorKind::UnknownArgument, ErrorKind::MissingRequiredArgument];
    // Without `--`, clap takes the options of the command for ours, and its message does not say
    // so.
    if forgotten.contains(&error.kind()) && has_no_command() {
        let _ = writeln!(io::stderr(), "\nPut the command after --: {EXAMPLE}");
    }
    if error.use_stderr() { Code::Usage.into() } else { Code::Complete.into() }
}

/// Shown if `--` is missing.
const EXAMPLE: &str = "gossip exec SOURCE -- COMMAND {}";

/// Returns whether the arguments of `exec` or `run create` lack the `--`.
fn has_no_command() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    words.iter().any(|word| word == "exec" || word == "create")
        && !words.iter().any(|word| word == "--")
}
