//! From arguments to a scan, and from its errors to messages.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use gossip::connector::ConnectorError;
use gossip::runtime::exec::find_program;
use gossip::runtime::{
    Event, LEASE_SHORTEST, Observer, OpenRunError, OpenedRun, OpenedState, Setting, StartError,
};
use gossip::sources::{Source, SourceError, SourceOptions};
use gossip::{Prepared, Scan, ScanError};

use crate::args::JobArgs;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::{output, progress, runs};

/// Reads source and command: everything that can be wrong before a store is opened.
pub(crate) fn prepare(args: &JobArgs, jobs: usize) -> Result<Prepared, Failure> {
    let options = SourceOptions {
        ignore: args.ignore,
        follow_links: args.follow_links,
        no_header: args.no_header,
    };
    let scan = Scan::of(&args.source)
        .source_options(options)
        .lease(args.lease)
        .retries(args.retries)
        .restart(args.restart)
        .allow_parallel(args.allow_parallel)
        .stream(args.stream)
        .threads(jobs);
    let scan = match args.shards {
        Some(shards) => scan.shards(shards),
        None => scan,
    };
    scan.prepare_command(&args.command).map_err(|error| match error {
        ScanError::Source(error) => source_not_understood(&args.source, &error),
        error => failure(&error),
    })
}

/// Looks for the program before a run is created that a mistyped name would leave behind.
pub(crate) fn check_program(args: &JobArgs) -> Result<(), Failure> {
    // There is always one: clap requires it.
    let Some(program) = args.command.first() else { return Ok(()) };
    find_program(program).map_err(|broken| {
        Failure::new(Code::Internal, "the command does not work")
            .why(broken)
            .next("mend it and type it again; nothing was begun")
    })
}

/// Reports what happens while a run is opened.
pub(crate) struct Notices<'a>(pub(crate) &'a Console);

impl Observer for Notices<'_> {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::RunOpened { opened } => tell_opened(self.0, &opened),
            Event::RunsCollected { runs } => {
                let runs = output::count(runs as u64, "run");
                self.0.note(&format!("cleared away what was left of {runs}"));
            }
            Event::CollectionFailed { error } => self
                .0
                .note(&format!("what is left of a deleted run cannot be cleared away: {error}")),
            _ => {}
        }
    }
}

fn tell_opened(console: &Console, opened: &OpenedRun) {
    let id = format!("{:016x}", opened.run.as_raw());
    match opened.state {
        OpenedState::New => console.note(&format!("run {id}: new")),
        OpenedState::Resumed => console.note(&format!("run {id}: going on where it stopped")),
        OpenedState::Over(_) => {}
    }
}

/// What an error of a scan is to the user.
pub(crate) fn failure(error: &ScanError) -> Failure {
    match error {
        ScanError::Command(error) => {
            Failure::new(Code::Usage, "the command cannot be run for keys").why(error)
        }
        ScanError::Connect(ConnectorError::SourceChanged) => {
            changed().next("cancel the run and type its command again")
        }
        ScanError::Connect(error) => source_failure(error),
        ScanError::Start(error) => start_failure(error),
        error => Failure::new(Code::Internal, "the run cannot be made").why(error),
    }
}

fn start_failure(error: &StartError) -> Failure {
    match error {
        StartError::LeaseTooShort => {
            let shortest = LEASE_SHORTEST.as_millis();
            Failure::new(Code::Usage, "--lease is too short")
                .why(format!("it would end before it is renewed; {shortest}ms is the least"))
        }
        StartError::Config(error) => Failure::new(Code::Usage, "--lease is too short").why(error),
        StartError::Job(error) => {
            Failure::new(Code::Usage, "the command does not fit into the store").why(error)
        }
        StartError::OtherSettings { run, differing } => other_settings(run.as_raw(), differing),
        StartError::Store(error) | StartError::Open(OpenRunError::Store(error)) => {
            Failure::store(error)
        }
        StartError::Open(OpenRunError::Source(error)) => {
            Failure::new(Code::Usage, "the source cannot be looked at").why(error)
        }
        StartError::Stored { run, error } => runs::job_failure(*run, error),
        StartError::Source(error) => source_failure(error),
        StartError::SourceChanged { opened } => source_changed(opened),
        error => Failure::new(Code::Internal, "the run cannot be made").why(error),
    }
}

/// Changed settings make another run; that may be a mistake.
fn other_settings(run: u64, differing: &[Setting]) -> Failure {
    let names = differing.iter().filter_map(|setting| match setting {
        Setting::Command => Some("the command"),
        Setting::Stream => Some("--stream"),
        Setting::Lease => Some("--lease"),
        Setting::Retries => Some("--retries"),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    let differing = if names.is_empty() {
        String::new()
    } else {
        format!("; not the same: {}", names.join(", "))
    };
    Failure::new(Code::Usage, format!("run {run:016x} of this source is not finished"))
        .why(format!("it was started with other settings{differing}"))
        .next(format!(
            "type its command again (gossip run show {run:016x}) to go on with it, \
             gossip run cancel {run:016x} to give it up, or add --allow-parallel to have both"
        ))
}

fn source_changed(opened: &OpenedRun) -> Failure {
    let id = format!("{:016x}", opened.run.as_raw());
    changed().next(match opened.state {
        OpenedState::Over(_) => "add --restart to go through the file as it is now".to_owned(),
        OpenedState::New | OpenedState::Resumed => {
            format!("gossip run cancel {id} gives it up; then type the command again")
        }
    })
}

fn changed() -> Failure {
    Failure::new(Code::Usage, "the file has changed since the run was started")
        .why("its rows are counted, so the same numbers may mean other rows now")
}

/// A source as it was typed.
pub(crate) fn parse_source(typed: &OsStr, options: SourceOptions) -> Result<Source, Failure> {
    Source::parse(typed, options).map_err(|error| source_not_understood(typed, &error))
}

fn source_not_understood(typed: &OsStr, error: &SourceError) -> Failure {
    let shown = progress::shown(typed.as_bytes());
    Failure::new(Code::Usage, format!("the source `{shown}` is not understood")).why(error)
}

fn source_failure(error: &ConnectorError) -> Failure {
    Failure::new(Code::Usage, "the source cannot be opened").why(error)
}
