//! From what was typed to a run: its source, its command, and the run of both, found or made.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::thread;
use std::time::Duration;

use gossip::store::Coordinator;
use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::{CursorSemantics, ShardSpec};
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{RegisterShardsError, RunConfig, RunManagement as _};
use gossip_scanner_runtime::connectors::{Source, SourceOptions};
use gossip_scanner_runtime::exec::{
    BatchProcessor, ExecConfig, Rendering, StreamProcessor, Template, find_program,
};
use gossip_scanner_runtime::{
    INITIAL_SHARDS_MAX, InitialShardsError, Job, OpenRunError, OpenedRun, OpenedState, Processor,
    RunPlan, SystemClock, initial_shards, open_run,
};

use crate::args::JobArgs;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::{progress, runs, upkeep};

/// Initial shards for each job: enough that the slowest of them is not the whole of the end.
const SHARDS_PER_JOB: usize = 4;

/// The shortest lease: it is renewed three times in its life, and a commit takes milliseconds.
const LEASE_SHORTEST: Duration = Duration::from_millis(100);

/// Unfinished runs of one source that are looked at to find one with other settings.
const NEIGHBOURS: usize = 8;

/// What was typed, understood.
pub(crate) struct Prepared<'a> {
    args: &'a JobArgs,
    pub(crate) source: Source,
    pub(crate) connector: Box<dyn Connector>,
    pub(crate) handler: Handler,
    job: Job,
}

impl<'a> Prepared<'a> {
    /// Looks at everything that can be wrong before a store is opened.
    pub(crate) fn new(args: &'a JobArgs) -> Result<Self, Failure> {
        let options = SourceOptions {
            ignore: args.ignore,
            follow_links: args.follow_links,
            no_header: args.no_header,
        };
        let handler = Handler::parse(&args.command, args.stream)?;
        let source = parse_source(&args.source, options)?;
        let connector = open_source(&source)?;
        let job = Job {
            source: source.text(),
            options,
            stamp: source.stamp().map_err(|error| source_failure(&error))?,
            command: resolved(&args.command),
            stream: args.stream,
        };
        Ok(Self { args, source, connector, handler, job })
    }

    /// Looks for the program before there is a run that a slip of the finger would leave behind.
    pub(crate) fn find_program(&self) -> Result<(), Failure> {
        // There is always one: what is typed was read as a command.
        let Some(program) = self.args.command.first() else { return Ok(()) };
        find_program(program).map_err(|broken| {
            Failure::new(Code::Internal, "the command does not work")
                .why(broken)
                .next("mend it and type it again; nothing was begun")
        })
    }

    /// Finds the run, or makes it for so many jobs.
    pub(crate) fn open(
        &self,
        coordinator: &mut Coordinator,
        tenant: TenantId,
        jobs: usize,
        console: &Console,
    ) -> Result<OpenedRun, Failure> {
        let usual_shards = jobs.saturating_mul(SHARDS_PER_JOB);
        let Self { args, source, connector, job, .. } = self;
        let opening = Opening { tenant, args, source, job, usual_shards };
        opening.open(coordinator, &**connector, console)
    }
}

/// A command whose program does not depend on the directory it is typed in: the same words in
/// another one would be another program.
fn resolved(command: &[OsString]) -> Vec<OsString> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut()
        && program.as_bytes().contains(&b'/')
        && let Ok(whole) = std::path::absolute(&program)
    {
        *program = whole.into_os_string();
    }
    command
}

/// What is done with each key.
pub(crate) enum Handler {
    Batch(Template),
    Stream(Vec<OsString>),
}

impl Handler {
    pub(crate) fn parse(command: &[OsString], stream: bool) -> Result<Self, Failure> {
        if stream {
            return Ok(Self::Stream(command.to_vec()));
        }
        let template = Template::parse(command).map_err(|error| {
            Failure::new(Code::Usage, "the command cannot be run for keys").why(error)
        })?;
        Ok(Self::Batch(template))
    }

    pub(crate) fn processor(
        &self,
        rendering: &Rendering,
        config: ExecConfig,
    ) -> Box<dyn Processor> {
        match self {
            Self::Batch(template) => {
                Box::new(BatchProcessor::new(template.clone(), rendering.clone(), config))
            }
            Self::Stream(command) => {
                Box::new(StreamProcessor::new(command.clone(), rendering.clone(), config))
            }
        }
    }
}

/// Finds or makes the run of a command.
struct Opening<'a> {
    tenant: TenantId,
    args: &'a JobArgs,
    source: &'a Source,
    job: &'a Job,
    /// How many shards there are to be, unless the user says so.
    usual_shards: usize,
}

impl Opening<'_> {
    fn open(
        &self,
        coordinator: &mut Coordinator,
        connector: &dyn Connector,
        console: &Console,
    ) -> Result<OpenedRun, Failure> {
        if self.args.lease < LEASE_SHORTEST {
            let shortest = LEASE_SHORTEST.as_millis();
            return Err(Failure::new(Code::Usage, "--lease is too short")
                .why(format!("it would end before it is renewed; {shortest}ms is the least")));
        }
        let lease = u64::try_from(self.args.lease.as_millis()).unwrap_or(u64::MAX);
        let config = RunConfig::try_new(CursorSemantics::Completed, lease, Some(self.args.retries))
            .map_err(|error| Failure::new(Code::Usage, "--lease is too short").why(error))?;
        let (canonical, settings) = (self.source.canonical(), self.job.settings());
        let plan = RunPlan {
            tenant: self.tenant,
            source: &canonical,
            settings: &settings,
            config,
            again: self.args.again,
        };
        let metadata = self.job.encode().map_err(|error| {
            Failure::new(Code::Usage, "the command does not fit into the store").why(error)
        })?;
        if !self.args.beside {
            self.refuse_neighbours(coordinator, &plan)?;
        }
        let cut = || self.cut(connector, &metadata);
        let open = |coordinator: &mut Coordinator| {
            open_run(coordinator, &SystemClock::new(), &thread::sleep, &plan, &cut)
        };
        let opened = match open(coordinator) {
            // A deletion that broke off may take the room.
            Err(error) if is_full(&error) && upkeep::clear(coordinator, self.tenant, console) => {
                open(coordinator)
            }
            opened => opened,
        };
        let opened = opened.map_err(|error| open_failure(&error))?;
        tell_opened(console, &opened);
        if opened.state == OpenedState::New {
            upkeep::clear(coordinator, self.tenant, console);
        }
        let id = format!("{:016x}", opened.run.as_raw());
        let next = match opened.state {
            OpenedState::New => return Ok(opened),
            OpenedState::Resumed => {
                format!("gossip run cancel {id} gives it up; then type the command again")
            }
            OpenedState::Over(_) => "add --again to go through the file as it is now".to_owned(),
        };
        let stored = runs::job_of(coordinator, self.tenant, opened.run)?;
        check_stamp(self.source, &stored).map_err(|failure| failure.next(next))?;
        Ok(opened)
    }

    /// Changed settings make another run; whoever changed them by mistake is told so.
    fn refuse_neighbours(
        &self,
        coordinator: &mut Coordinator,
        plan: &RunPlan<'_>,
    ) -> Result<(), Failure> {
        let (before, is_ours) = plan.ids_of_source();
        let mut runs = Vec::new();
        coordinator
            .list_active_runs_into(self.tenant, before, NEIGHBOURS, &mut runs)
            .map_err(|error| Failure::store(&error))?;
        let other = runs.into_iter().find(|run| is_ours(*run) && !plan.is_generation(*run));
        let Some(other) = other else { return Ok(()) };
        let id = format!("{:016x}", other.as_raw());
        Err(Failure::new(Code::Usage, format!("run {id} of this source is not finished"))
            .why(format!(
                "it was started with other settings{}",
                self.differing(coordinator, other)
            ))
            .next(format!(
                "type its command again (gossip run show {id}) to go on with it, \
                 gossip run cancel {id} to give it up, or add --beside to have both"
            )))
    }

    /// Which settings of another run are not ours, as far as it tells.
    fn differing(&self, coordinator: &mut Coordinator, other: RunId) -> String {
        let job = runs::job_of(coordinator, self.tenant, other).ok();
        let config = coordinator.get_run(self.tenant, other).ok().map(|run| run.config());
        let lease = u64::try_from(self.args.lease.as_millis()).unwrap_or(u64::MAX);
        let settings = [
            ("the command", job.as_ref().map(|job| job.command != self.job.command)),
            ("--stream", job.as_ref().map(|job| job.stream != self.job.stream)),
            ("--lease", config.map(|config| config.lease_duration() != lease)),
            (
                "--retries",
                config.map(|config| config.max_shard_retries() != Some(self.args.retries)),
            ),
        ];
        let differing = settings.iter().filter(|(_, differs)| *differs == Some(true));
        let names: Vec<_> = differing.map(|(name, _)| *name).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("; not the same: {}", names.join(", "))
        }
    }

    fn cut(
        &self,
        connector: &dyn Connector,
        metadata: &[u8],
    ) -> Result<Vec<ShardSpec>, InitialShardsError> {
        let root = self.source.root();
        let root = ShardSpec::try_new(root.start(), root.end(), metadata)
            .expect("the root of a source is a range, and the job was measured");
        let target = self.args.shards.map_or(self.usual_shards, NonZeroUsize::get);
        let target = target.clamp(1, INITIAL_SHARDS_MAX);
        match initial_shards(connector, root.as_spec_ref(), target) {
            // Whatever cannot be looked at is found by the worker, which parks it with its cause.
            Err(InitialShardsError::Connector(error)) if !error.is_retryable() => Ok(vec![root]),
            cut => cut,
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

/// A source as it was typed.
pub(crate) fn parse_source(typed: &OsStr, options: SourceOptions) -> Result<Source, Failure> {
    Source::parse(typed, options).map_err(|error| {
        let shown = progress::shown(typed.as_bytes());
        Failure::new(Code::Usage, format!("the source `{shown}` is not understood")).why(error)
    })
}

pub(crate) fn open_source(source: &Source) -> Result<Box<dyn Connector>, Failure> {
    source.open().map_err(|error| source_failure(&error))
}

fn source_failure(error: &ConnectorError) -> Failure {
    Failure::new(Code::Usage, "the source cannot be opened").why(error)
}

/// Refuses a run over a file that has changed since.
pub(crate) fn check_stamp(source: &Source, job: &Job) -> Result<(), Failure> {
    source.check_stamp(job.stamp).map_err(|error| match error {
        ConnectorError::SourceChanged => {
            Failure::new(Code::Usage, "the file has changed since the run was started")
                .why("its rows are counted, so the same numbers may mean other rows now")
                .next("cancel the run and type its command again")
        }
        error => source_failure(&error),
    })
}

/// Whether there is no room for the shards of the run.
fn is_full(error: &OpenRunError) -> bool {
    matches!(error, OpenRunError::Register(RegisterShardsError::ShardLimitExceeded { .. }))
}

fn open_failure(error: &OpenRunError) -> Failure {
    match error {
        OpenRunError::Store(error) => Failure::store(error),
        OpenRunError::Source(error) => {
            Failure::new(Code::Usage, "the source cannot be looked at").why(error)
        }
        error => Failure::new(Code::Internal, "the run cannot be made").why(error),
    }
}
