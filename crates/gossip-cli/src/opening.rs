//! Builds a scan from arguments, and messages from its errors.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;

use gossip::connector::ConnectorError;
use gossip::identity::{RunId, TenantId};
use gossip::runtime::exec::find_program;
use gossip::runtime::{
    Event, JobKey, LEASE_SHORTEST, Observer, OpenRunError, OpenedRun, OpenedState, Setting,
    StartError,
};
use gossip::sources::{Source, SourceError, SourceOptions};
use gossip::store::Backend;
use gossip::{Prepared, Scan, ScanError, Session};

use crate::args::JobArgs;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::sources;
use crate::{events, output, progress, runs, spool};

/// Checks source and command: everything that can be checked before a store is opened.
///
/// `source` is that of [`source_of`](crate::spool::source_of).
///
/// `job_key` signs the command.
pub(crate) fn prepare(
    args: &JobArgs,
    source: &OsStr,
    jobs: usize,
    job_key: Option<JobKey>,
) -> Result<Prepared, Failure> {
    let options = SourceOptions {
        ignore: args.ignore,
        follow_links: args.follow_links,
        no_header: args.no_header,
    };
    let scan = Scan::of(source)
        .sources(sources::registry())
        .source_options(options)
        .lease(args.lease)
        .retries(args.retries)
        .restart(args.restart)
        .allow_parallel(args.allow_parallel)
        .stream(args.stream.0)
        .threads(jobs);
    let scan = match args.shards {
        Some(shards) => scan.shards(shards),
        None => scan,
    };
    let scan = match args.name {
        Some(name) => scan.run_name(name),
        None => scan,
    };
    let scan = match job_key {
        Some(key) => scan.job_key(key),
        None => scan,
    };
    // The source as it was typed is known here only.
    scan.prepare_command(&args.command).map_err(|error| match error {
        ScanError::Source(error) => bad_source(source, &error),
        error => failure(&error),
    })
}

/// Checks that the program exists, so that a mistyped name does not leave a run behind.
pub(crate) fn check_program(args: &JobArgs) -> Result<(), Failure> {
    // clap requires a command, so there is always a first word.
    let Some(program) = args.command.first() else { return Ok(()) };
    find_program(program).map_err(|broken| {
        Failure::new(Code::Usage, "the command cannot be started")
            .why(broken)
            .next("fix the command and run it again; no run was created")
    })
}

/// Which unfinished runs of the source are cancelled before a run is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelled {
    /// Those with other settings.
    pub(crate) others: bool,
    /// That of the same command, if the source has changed so that it cannot be resumed.
    pub(crate) changed: bool,
}

impl Cancelled {
    pub(crate) const fn by(job: &JobArgs) -> Self {
        Self { others: job.replace, changed: job.restart }
    }

    /// Returns the run to cancel, and the option that asks for it.
    fn of(self, error: &ScanError) -> Option<(RunId, &'static str)> {
        let ScanError::Start(error) = error else { return None };
        match error {
            StartError::OtherSettings { run, .. } if self.others => Some((*run, "--replace")),
            StartError::SourceChanged { opened } if self.changed => match opened.state {
                OpenedState::Resumed => Some((opened.run, "--restart, its source has changed")),
                OpenedState::New | OpenedState::Over(_) => None,
            },
            _ => None,
        }
    }
}

/// Runs of one source that are cancelled at most: each `--allow-parallel` leaves one.
const CANCELLED_MAX: usize = 16;

/// Opens the run; the unfinished runs that are in its way are cancelled first.
pub(crate) fn open<'s>(
    (prepared, backend, tenant): (&'s Prepared, &'s Backend, TenantId),
    cancelled: Cancelled,
    notices: &Notices<'_>,
    console: &Console,
) -> Result<Session<'s>, Failure> {
    // Bounded, because another process may create runs of the source as fast as this one cancels
    // them.
    for _ in 0..CANCELLED_MAX {
        let error = match prepared.open(backend, tenant, notices) {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let Some((run, why)) = cancelled.of(&error) else { return Err(failure(&error)) };
        runs::cancel(&mut backend.coordinator(), tenant, run)?;
        console.note(&format!("run {:016x}: cancelled ({why})", run.as_raw()));
    }
    prepared.open(backend, tenant, notices).map_err(|error| failure(&error))
}

/// Prints the events of opening a run.
pub(crate) struct Notices<'a> {
    console: &'a Console,
    /// Printed if the run exists and is not finished; `None` if the caller prints more.
    resumed: Option<&'static str>,
    /// The value of `--shards`.
    shards: Option<NonZeroUsize>,
}

impl<'a> Notices<'a> {
    /// For a process that starts to work on the run.
    pub(crate) const fn for_worker(console: &'a Console) -> Self {
        Self { console, resumed: None, shards: None }
    }

    /// For a process that only creates the run.
    pub(crate) const fn for_create(console: &'a Console) -> Self {
        Self { console, resumed: Some("already exists"), shards: None }
    }

    /// Also prints whether the run got the number of shards that was asked for.
    pub(crate) const fn asked_for(self, shards: Option<NonZeroUsize>) -> Self {
        Self { shards, ..self }
    }
}

impl Observer for Notices<'_> {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Kernel(event) => events::print(self.console, event),
            Event::RunOpened { opened } => self.run_opened(&opened),
            Event::ShardsRegistered { shards, requested }
                // Only if a number was typed: the default is as many as fit.
                if self.shards.is_some() && shards < requested =>
            {
                self.console.note(&format!(
                    "{} instead of {requested}: the source has too few items for more",
                    output::count(shards as u64, "shard")
                ));
            }
            Event::RunsCollected { runs } => {
                let runs = output::count(runs as u64, "deleted run");
                self.console.note(&format!("removed the remaining data of {runs}"));
            }
            Event::CollectionFailed { error } => self
                .console
                .note(&format!("could not remove the remaining data of a deleted run: {error}")),
            _ => {}
        }
    }
}

impl Notices<'_> {
    fn run_opened(&self, opened: &OpenedRun) {
        let id = format!("{:016x}", opened.run.as_raw());
        match opened.state {
            OpenedState::New => self.console.note(&format!("run {id}: new")),
            OpenedState::Resumed => {
                if let Some(resumed) = self.resumed {
                    self.console.note(&format!("run {id}: {resumed}"));
                }
            }
            // The caller reports it, with the counts of the run.
            OpenedState::Over(_) => {}
        }
    }
}

/// Describes an error of a scan.
pub(crate) fn failure(error: &ScanError) -> Failure {
    match error {
        ScanError::Command(error) => Failure::new(Code::Usage, "invalid command").why(error),
        ScanError::Connect(ConnectorError::SourceChanged) => {
            changed().next("repeat the command that created the run with --restart")
        }
        ScanError::Connect(error) => source_failure(error),
        ScanError::Start(error) => start_failure(error),
        error => Failure::new(Code::Internal, "the run cannot be created").why(error),
    }
}

fn start_failure(error: &StartError) -> Failure {
    match error {
        StartError::LeaseTooShort => {
            let shortest = LEASE_SHORTEST.as_millis();
            Failure::new(Code::Usage, "--lease is too short")
                .why(format!("it would expire before its renewal; the minimum is {shortest}ms"))
        }
        StartError::Shards { max, .. } => Failure::new(Code::Usage, "invalid --shards")
            .why(format!("a run starts with 1 to {max} shards"))
            .next("choose a smaller number; idle workers split busy shards later"),
        StartError::Config(error) => Failure::new(Code::Usage, "--lease is too short").why(error),
        StartError::Job(error) => {
            Failure::new(Code::Usage, "the command is too long for the store").why(error)
        }
        StartError::NameInUse { run } => {
            let id = format!("{:016x}", run.as_raw());
            Failure::new(Code::Usage, "the name is in use")
                .why(format!("run {id} has it and is not finished"))
                .next(format!("choose another name, or cancel that run: gossip run cancel {id}"))
        }
        StartError::OtherName { run, name } => {
            let id = format!("{:016x}", run.as_raw());
            let why = name.map_or_else(
                || format!("run {id} exists and has no name"),
                |name| format!("run {id} exists and has the name {name}"),
            );
            Failure::new(Code::Usage, "a run cannot be renamed").why(why).next(match name {
                Some(name) => format!("repeat the command with --name {name}"),
                None => "repeat the command without --name".to_owned(),
            })
        }
        StartError::OtherSettings { run, differing } => other_settings(run.as_raw(), differing),
        StartError::Store(error) | StartError::Open(OpenRunError::Store(error)) => {
            Failure::store(error)
        }
        StartError::Open(OpenRunError::Source(error)) => {
            Failure::new(Code::Usage, "the source cannot be read").why(error)
        }
        StartError::Stored { run, error } => runs::job_failure(*run, error),
        StartError::Source(error) => source_failure(error),
        StartError::SourceChanged { opened } => source_changed(opened),
        error => Failure::new(Code::Internal, "the run cannot be created").why(error),
    }
}

/// Other settings make another run, which may be a mistake.
fn other_settings(run: u64, differing: &[Setting]) -> Failure {
    let names = differing.iter().filter_map(|setting| match setting {
        Setting::Command => Some("the command"),
        Setting::Stream => Some("--stream"),
        Setting::Lease => Some("--lease"),
        Setting::Retries => Some("--retries"),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    let differing = match names.is_empty() {
        true => "its settings differ".to_owned(),
        false => format!("its settings differ: {}", names.join(", ")),
    };
    Failure::new(Code::Usage, format!("run {run:016x} of this source is not finished"))
        .why(differing)
        .next(format!(
            "resume it with its own command (gossip run show {run:016x}), \
             cancel it (--replace, or gossip run cancel {run:016x}), or add --allow-parallel"
        ))
}

fn source_changed(opened: &OpenedRun) -> Failure {
    changed().next(match opened.state {
        OpenedState::Over(_) => "add --restart to process the file as it is now".to_owned(),
        OpenedState::New | OpenedState::Resumed => format!(
            "add --restart to cancel run {:016x} and process the file as it is now",
            opened.run.as_raw()
        ),
    })
}

fn changed() -> Failure {
    Failure::new(Code::Usage, "the source has changed since the run was created")
        .why("its keys, positions or columns, may now be those of other items")
}

/// Parses a source argument.
pub(crate) fn parse_source(typed: &OsStr, options: SourceOptions) -> Result<Source, Failure> {
    sources::parse(typed, options).map_err(|error| bad_source(typed, &error))
}

pub(crate) fn bad_source(typed: &OsStr, error: &SourceError) -> Failure {
    let source = progress::escaped(typed.as_bytes());
    let failure = Failure::new(Code::Usage, format!("invalid source `{source}`"));
    // The file has a hash as its name, so the usual message would help no user.
    if spool::is_list(typed) {
        return spool::of_another_host();
    }
    // A remote source of an unknown kind is no misspelt path.
    match source.split_once("://") {
        Some((scheme, _)) if !matches!(error, SourceError::Refused(_)) => failure
            .why(format!("{scheme}:// is not supported"))
            .next("list its items into a file and use lines:FILE"),
        Some(_) | None => failure.why(error),
    }
}

fn source_failure(error: &ConnectorError) -> Failure {
    Failure::new(Code::Usage, "the source cannot be opened").why(error)
}
