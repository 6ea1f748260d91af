//! `exec` and `worker`: going through a source.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::{CursorSemantics, ShardSpec};
use gossip_contracts::identity::{RunId, TenantId, WorkerId};
use gossip_coordination::{RunConfig, RunManagement as _, RunStatus};
use gossip_coordination_sqlite::fresh_nonce;
use gossip_scanner_runtime::connectors::{Source, SourceOptions};
use gossip_scanner_runtime::exec::{
    BatchProcessor, ExecConfig, Rendering, StreamProcessor, Template,
};
use gossip_scanner_runtime::{
    Drain, Finish, INITIAL_SHARDS_MAX, InitialShardsError, Job, Limits, OpenRunError, OpenedState,
    Parts, Processor, RunPlan, SystemClock, TaskConfig, WorkerConfig, WorkerError, initial_shards,
    open_run, work,
};
use gossip_stores::{Backend, Coordinator};

use crate::args::{ExecArgs, Format, Global, WorkArgs, WorkerArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::progress::{Painter, Progress};
use crate::{runs, signals, store};

/// Initial shards for each job: enough that the slowest of them is not the whole of the end.
const SHARDS_PER_JOB: usize = 4;

/// Unfinished runs of one source that are looked at to find one with other settings.
const NEIGHBOURS: usize = 8;

/// Runs a command for every key of a source.
pub(crate) fn exec(
    global: &Global,
    args: ExecArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let options = SourceOptions {
        ignore: args.ignore,
        follow_links: args.follow_links,
        no_header: args.no_header,
    };
    let handler = Handler::parse(&args.command, args.stream)?;
    let source = Source::parse(&args.source, options)
        .map_err(|error| Failure::new(Code::Usage, "the source is not understood").why(error))?;
    let connector = open_source(&source)?;
    let job = Job {
        source: source.text(),
        options,
        stamp: source.stamp().map_err(|error| source_failure(&error))?,
        command: args.command.clone(),
        stream: args.stream,
    };
    let backend = store::open(global)?;
    let tenant = store::tenant(global)?;
    let opened = Opening { tenant, args: &args, source: &source, job: &job }.open(
        &mut backend.coordinator(),
        &*connector,
        console,
    )?;
    if let OpenedState::Over(status) = opened.state {
        return already_over(global, &backend, opened.run, status, console);
    }
    let session =
        Session { global, backend: &backend, tenant, run: opened.run, console, work: &args.work };
    session.go(&source, &*connector, &handler)
}

/// Joins a run.
pub(crate) fn worker(
    global: &Global,
    args: WorkerArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open(global)?, store::tenant(global)?);
    let run = RunId::from_raw(args.run);
    let job = runs::job_of(&mut backend.coordinator(), tenant, run)?;
    let command = if args.command.is_empty() { &job.command } else { &args.command };
    let handler = Handler::parse(command, job.stream)?;
    let source = Source::parse(&job.source, job.options).map_err(|error| {
        Failure::new(Code::Usage, "the source of the run is not here")
            .why(error)
            .next("join from a machine that sees the same files under the same path")
    })?;
    check_stamp(&source, &job)?;
    let connector = open_source(&source)?;
    let session = Session { global, backend: &backend, tenant, run, console, work: &args.work };
    session.go(&source, &*connector, &handler)
}

/// What is done with each key.
enum Handler {
    Batch(Template),
    Stream(Vec<OsString>),
}

impl Handler {
    fn parse(command: &[OsString], stream: bool) -> Result<Self, Failure> {
        if stream {
            return Ok(Self::Stream(command.to_vec()));
        }
        let template = Template::parse(command).map_err(|error| {
            Failure::new(Code::Usage, "the command cannot be run for keys").why(error)
        })?;
        Ok(Self::Batch(template))
    }

    fn processor(&self, rendering: &Rendering, config: ExecConfig) -> Box<dyn Processor> {
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
    args: &'a ExecArgs,
    source: &'a Source,
    job: &'a Job,
}

impl Opening<'_> {
    fn open(
        &self,
        coordinator: &mut Coordinator,
        connector: &dyn Connector,
        console: &Console,
    ) -> Result<gossip_scanner_runtime::OpenedRun, Failure> {
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
        let opened = open_run(coordinator, &SystemClock::new(), &thread::sleep, &plan, &cut)
            .map_err(|error| open_failure(&error))?;
        tell_opened(console, &opened);
        if opened.state == OpenedState::Resumed {
            let stored = runs::job_of(coordinator, self.tenant, opened.run)?;
            check_stamp(self.source, &stored)?;
        }
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
        let mine: Vec<_> = (0..NEIGHBOURS as u32).map(|at| plan.run_id(at)).collect();
        let other = runs.into_iter().find(|run| is_ours(*run) && !mine.contains(run));
        let Some(other) = other else { return Ok(()) };
        let id = format!("{:016x}", other.as_raw());
        Err(Failure::new(Code::Usage, format!("run {id} of this source is not finished"))
            .why("it was started with another command or other settings")
            .next(format!(
                "type its command again (gossip run show {id}) to go on with it, \
                 gossip run cancel {id} to give it up, or add --beside to have both"
            )))
    }

    fn cut(
        &self,
        connector: &dyn Connector,
        metadata: &[u8],
    ) -> Result<Vec<ShardSpec>, InitialShardsError> {
        let root = self.source.root();
        let root = ShardSpec::try_new(root.start(), root.end(), metadata)
            .expect("the root of a source is a range, and the job was measured");
        let usual = jobs(&self.args.work).saturating_mul(SHARDS_PER_JOB);
        let target = self.args.shards.unwrap_or(usual).clamp(1, INITIAL_SHARDS_MAX);
        match initial_shards(connector, root.as_spec_ref(), target) {
            // Whatever cannot be looked at is found by the worker, which parks it with its cause.
            Err(InitialShardsError::Connector(error)) if !error.is_retryable() => Ok(vec![root]),
            cut => cut,
        }
    }
}

fn tell_opened(console: &Console, opened: &gossip_scanner_runtime::OpenedRun) {
    let id = format!("{:016x}", opened.run.as_raw());
    match opened.state {
        OpenedState::New => console.note(&format!("run {id}: new")),
        OpenedState::Resumed => console.note(&format!("run {id}: going on where it stopped")),
        OpenedState::Over(_) => {}
    }
}

/// One process at work on one run.
struct Session<'a> {
    global: &'a Global,
    backend: &'a Backend,
    tenant: TenantId,
    run: RunId,
    console: &'a Arc<Console>,
    work: &'a WorkArgs,
}

impl Session<'_> {
    fn go(
        &self,
        source: &Source,
        connector: &dyn Connector,
        handler: &Handler,
    ) -> Result<Code, Failure> {
        let record = self.backend.coordinator().get_run(self.tenant, self.run);
        let record = record.map_err(|error| runs::not_found(self.run, &error))?;
        let progress = Arc::new(Progress::new(Arc::clone(self.console)));
        let (drain, clock) = (Drain::new(), SystemClock::new());
        signals::drain_on_signals(&drain, self.console)?;
        let (rendering, exec) = (Rendering::of(source), self.exec_config());
        let parts = Parts {
            coordinator: &|| self.backend.coordinator(),
            connector,
            processor: &|_| handler.processor(&rendering, exec),
            clock: &clock,
            drain: &drain,
            observer: &*progress,
        };
        let painter = Painter::start(&progress);
        let finish = work(&self.worker_config(record.config()), parts);
        drop(painter);
        self.conclude(finish, &progress)
    }

    fn worker_config(&self, run: RunConfig) -> WorkerConfig {
        let args = self.work;
        WorkerConfig {
            tenant: self.tenant,
            run: self.run,
            worker: WorkerId::from_raw(fresh_nonce()),
            lease_ticks: run.lease_duration(),
            threads: jobs(args),
            task: TaskConfig {
                checkpoint_items: args.checkpoint_keys.max(1),
                checkpoint_ticks: ticks(args.checkpoint_every),
                item_tries: args.tries.max(1),
                shard_retries: run.max_shard_retries(),
                ..TaskConfig::default()
            },
            limits: Limits { items: args.rate, bytes: args.byte_rate },
            max_parked: args.max_parked,
            auto_split: !args.no_split,
            seed: fresh_nonce(),
        }
    }

    const fn exec_config(&self) -> ExecConfig {
        let timeout = self.work.timeout;
        ExecConfig {
            batch: self.work.batch,
            timeout: if timeout.is_zero() { None } else { Some(timeout) },
        }
    }

    fn conclude(
        &self,
        finish: Result<Finish, WorkerError>,
        progress: &Progress,
    ) -> Result<Code, Failure> {
        let id = format!("{:016x}", self.run.as_raw());
        let finish = finish.map_err(|error| worker_failure(&error, &id))?;
        let mut coordinator = self.backend.coordinator();
        let tally = runs::tally(&mut coordinator, self.tenant, self.run)?;
        let (code, said) = match finish {
            Finish::Complete if tally.unread > 0 => {
                (Code::Incomplete, format!("incomplete: {} keys could not be read", tally.unread))
            }
            Finish::Complete => (Code::Complete, format!("complete: {} keys", tally.keys)),
            Finish::Incomplete { parked } => (
                Code::Incomplete,
                format!(
                    "incomplete: {parked} set aside, {} keys done; \
                     gossip shard list {id} --parked shows them, \
                     gossip shard unpark {id} --all brings them back",
                    tally.keys
                ),
            ),
            Finish::RunOver(status) => {
                (Code::RunOver, format!("the run was ended: {}", runs::status_word(status)))
            }
            Finish::Drained => (
                Code::Interrupted,
                format!("interrupted: {} keys are done; the same command goes on", tally.keys),
            ),
        };
        self.console.note(&format!("run {id}: {said}"));
        self.console.detail(&progress.line());
        let here = progress.keys.load(Ordering::Relaxed);
        summary(self.global.output, self.run, code, &tally, here)?;
        Ok(code)
    }
}

/// The outcome for programs, if it was asked for; `here` is what this process has done.
fn summary(
    format: Format,
    run: RunId,
    code: Code,
    tally: &runs::Tally,
    here: u64,
) -> Result<(), Failure> {
    if format == Format::Table {
        return Ok(());
    }
    let record = Record::new()
        .with("run", format!("{:016x}", run.as_raw()))
        .with("exit_code", code as u8)
        .with("keys", tally.keys)
        .with("keys_here", here)
        .with("unread", tally.unread)
        .with("shards", tally.shards)
        .with("parked", tally.parked);
    output::one(format, &record)
}

/// The same command was finished before.
fn already_over(
    global: &Global,
    backend: &Backend,
    run: RunId,
    status: RunStatus,
    console: &Console,
) -> Result<Code, Failure> {
    let id = format!("{:016x}", run.as_raw());
    let tally = runs::tally(&mut backend.coordinator(), store::tenant(global)?, run)?;
    let code = match status {
        RunStatus::Done if tally.unread == 0 => Code::Complete,
        RunStatus::Done => Code::Incomplete,
        RunStatus::Initializing | RunStatus::Active | RunStatus::Failed | RunStatus::Cancelled => {
            Code::RunOver
        }
    };
    console.note(&format!(
        "run {id}: already {} ({} keys); add --again to begin anew",
        runs::status_word(status),
        tally.keys
    ));
    summary(global.output, run, code, &tally, 0)?;
    Ok(code)
}

fn open_source(source: &Source) -> Result<Box<dyn Connector>, Failure> {
    source.open().map_err(|error| source_failure(&error))
}

fn source_failure(error: &ConnectorError) -> Failure {
    Failure::new(Code::Usage, "the source cannot be opened").why(error)
}

/// The rows of a file that has changed are other rows under the same keys.
fn check_stamp(source: &Source, job: &Job) -> Result<(), Failure> {
    let now = source.stamp().map_err(|error| source_failure(&error))?;
    if now == job.stamp {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, "the file has changed since the run was started")
        .why("its rows are counted, so the same numbers may mean other rows now")
        .next("cancel the run (gossip run list shows it) and type the command again"))
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

fn worker_failure(error: &WorkerError, id: &str) -> Failure {
    match error {
        WorkerError::Store(error) => Failure::store(error),
        WorkerError::RunNotFound => Failure::new(Code::Usage, format!("there is no run {id}"))
            .next("gossip run list shows the runs that are not over"),
        WorkerError::Broken(broken) => Failure::new(Code::Internal, "the command does not work")
            .why(broken)
            .next("mend it and type the same again; what was finished is recorded"),
        WorkerError::TooManyParked { .. } => {
            Failure::new(Code::Incomplete, "stopped because too much fails").why(error).next(
                format!(
                    "mend the command, then gossip shard unpark {id} --all, and type the same \
                     again; --max-parked allows more"
                ),
            )
        }
        error => Failure::new(Code::Internal, "the worker cannot go on").why(error),
    }
}

fn jobs(args: &WorkArgs) -> usize {
    args.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1)
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
