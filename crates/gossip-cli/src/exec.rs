//! `exec` and `worker`: going through a source.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossip::coordination::RunStatus;
use gossip::identity::{RunId, TenantId};
use gossip::runtime::exec::{ExecConfig, Handler, Rendering};
use gossip::runtime::{Drain, Finish, Limits, OpenedState, RunWorkerError, TaskConfig};
use gossip::sources::SourceRegistry;
use gossip::store::Backend;
use gossip::{Joined, ScanError, Session, Totals, WorkOptions};

use crate::args::{ExecArgs, FailOn, Format, Global, JobArgs, WorkArgs, WorkerArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::opening::{self, Notices};
use crate::output::{self, Record, count};
use crate::progress::{Painter, Progress};
use crate::{runs, signals, store};

/// Runs a command for every key of a source.
pub(crate) fn exec(
    global: &Global,
    args: ExecArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let prepared = opening::prepare(&args.job, jobs(&args.work))?;
    opening::check_program(&args.job)?;
    let (backend, tenant) = (store::open(global)?, store::tenant(global)?);
    let session = prepared.open(&backend, tenant, &Notices(console));
    let session = session.map_err(|error| opening::failure(&error))?;
    if let OpenedState::Over(status) = session.state() {
        return already_over(global, &backend, (session.run(), status), &args.work, console);
    }
    let handler = prepared.handler().expect("it was prepared with a command");
    At { global, backend: &backend, tenant, console, work: &args.work }.go(&session, handler)
}

/// Creates the run of a command, or finds it, and leaves the work to others.
pub(crate) fn create(
    global: &Global,
    backend: &Backend,
    args: &JobArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let (prepared, tenant) = (opening::prepare(args, processors())?, store::tenant(global)?);
    let session = prepared.open(backend, tenant, &Notices(console));
    let session = session.map_err(|error| opening::failure(&error))?;
    let id = format!("{:016x}", session.run().as_raw());
    let state = match session.state() {
        OpenedState::New => "new",
        OpenedState::Resumed => "there already",
        OpenedState::Over(status) => {
            let tally = runs::tally(&mut backend.coordinator(), tenant, session.run())?;
            runs::outcome_word(status, &tally)
        }
    };
    if let OpenedState::Over(_) = session.state() {
        console.note(&format!("run {id}: already {state}; add --restart to begin anew"));
    }
    // The bare id, so that a shell can keep it in a variable.
    let shown = Record::new().with("run", id).with("state", state);
    output::named(global.output, "run", &shown)?;
    Ok(Code::Complete)
}

/// Joins a run.
pub(crate) fn worker(
    global: &Global,
    args: WorkerArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let run = RunId::from_raw(args.run);
    let joined = Joined::new(&backend, tenant, run, &SourceRegistry::new(), &args.command);
    let joined = joined.map_err(|error| not_joined(run, &error))?;
    let session = joined.open(&backend, tenant);
    let at = At { global, backend: &backend, tenant, console, work: &args.work };
    at.go(&session, joined.handler())
}

fn not_joined(run: RunId, error: &ScanError) -> Failure {
    match error {
        ScanError::Job(error) => runs::job_failure(run, error),
        ScanError::NoCommand => Failure::new(Code::Usage, "the run has no command")
            .why("a program made it and knows itself what to do with each key")
            .next("start that program once more, or name a command behind --"),
        ScanError::Source(error) => Failure::new(Code::Usage, "the source of the run is not here")
            .why(error)
            .next("join from a machine that sees the same files under the same path"),
        error => opening::failure(error),
    }
}

/// Where a session takes place.
struct At<'a> {
    global: &'a Global,
    backend: &'a Backend,
    tenant: TenantId,
    console: &'a Arc<Console>,
    work: &'a WorkArgs,
}

impl At<'_> {
    /// Works on a run, drawing progress, and reports how that ended.
    fn go(&self, session: &Session<'_>, handler: &Handler) -> Result<Code, Failure> {
        let progress = Arc::new(Progress::new(Arc::clone(self.console)));
        let drain = Drain::new();
        signals::drain_on_signals(&drain, self.console)?;
        let (rendering, exec) = (Rendering::of(session.source()), self.exec_config());
        let over = AtomicBool::new(false);
        let painter = Painter {
            progress: &progress,
            backend: self.backend,
            tenant: self.tenant,
            run: session.run(),
            source: session.source(),
            connector: session.connector(),
            over: &over,
        };
        // By this name others see who holds a shard.
        self.console.detail(&format!("worker {:016x}", session.worker().as_raw()));
        let finish = thread::scope(|scope| {
            scope.spawn(|| painter.paint());
            let processor = |_| handler.processor(&rendering, exec);
            let finish = session.work(&self.work_options(), &processor, &drain, &*progress);
            over.store(true, Ordering::SeqCst);
            finish
        });
        self.conclude(session.run(), finish, &progress)
    }

    fn work_options(&self) -> WorkOptions {
        let args = self.work;
        WorkOptions {
            threads: jobs(args),
            task: TaskConfig {
                checkpoint_items: args.checkpoint_keys,
                checkpoint_ticks: ticks(args.checkpoint_every),
                item_tries: args.tries,
                ..TaskConfig::default()
            },
            limits: Limits { items: args.rate, bytes: args.byte_rate },
            max_parked: args.max_parked,
            auto_split: !args.no_split,
        }
    }

    const fn exec_config(&self) -> ExecConfig {
        let timeout = self.work.timeout;
        ExecConfig {
            batch: self.work.batch.get(),
            timeout: if timeout.is_zero() { None } else { Some(timeout) },
            found_status: self.work.found_status,
            // Data for programs is a JSON value: nothing else may stand beside it.
            keeps_stdout: !matches!(self.global.output, Format::Table),
        }
    }

    fn conclude(
        &self,
        run: RunId,
        finish: Result<Finish, ScanError>,
        progress: &Progress,
    ) -> Result<Code, Failure> {
        let id = format!("{:016x}", run.as_raw());
        let finish = finish.map_err(|error| work_failure(&error, run))?;
        let mut coordinator = self.backend.coordinator();
        let tally = runs::tally(&mut coordinator, self.tenant, run)?;
        let (code, said) = match finish {
            Finish::Complete if tally.unread > 0 => {
                (Code::Incomplete, format!("incomplete: {}; {MEND_UNREAD}", done(&tally)))
            }
            Finish::Complete => {
                (complete(self.work, &tally), format!("complete: {}", all_done(&tally)))
            }
            Finish::Incomplete { parked } => (
                Code::Incomplete,
                format!(
                    "incomplete: {} set aside, {}; \
                     gossip shard list {id} --parked shows them, \
                     gossip shard unpark {id} --all brings them back",
                    count(parked, "shard"),
                    done(&tally)
                ),
            ),
            Finish::RunOver(status) => {
                (Code::RunOver, format!("the run was ended: {}", runs::status_word(status)))
            }
            Finish::Drained => (
                Code::Interrupted,
                format!("interrupted: {}; the same command goes on", done(&tally)),
            ),
        };
        self.console.note(&format!("run {id}: {said}"));
        self.console.detail(&progress.done_here());
        let here = progress.keys.load(Ordering::Relaxed);
        summary(self.global.output, run, code, &tally, here)?;
        Ok(code)
    }
}

/// How to end when every key is done and read. Whatever is missing beats what was found.
const fn complete(work: &WorkArgs, tally: &Totals) -> Code {
    match work.fail_on {
        Some(FailOn::Findings) if tally.findings > 0 => Code::Findings,
        Some(FailOn::Findings) | None => Code::Complete,
    }
}

/// What helps against keys that could not be read.
const MEND_UNREAD: &str = "mend that, then add --restart to go through all of them anew";

/// How many keys are done while something is missing, and how many of those passed were not read.
fn done(tally: &Totals) -> String {
    let done = format!("{} done", count(tally.keys.saturating_sub(tally.unread), "key"));
    match tally.unread {
        0 => done,
        unread => format!("{} could not be read, {done}", count(unread, "key")),
    }
}

/// How many keys there are when all are done, and what was found in them, if anything was.
fn all_done(tally: &Totals) -> String {
    let keys = count(tally.keys, "key");
    match tally.findings {
        0 => keys,
        findings => format!("{keys}, {}", count(findings, "finding")),
    }
}

/// The outcome for programs, if it was asked for; `here` is what this process has done.
fn summary(
    format: Format,
    run: RunId,
    code: Code,
    tally: &Totals,
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
        .with("findings", tally.findings)
        .with("shards", tally.shards)
        .with("parked", tally.parked);
    output::one(format, &record)
}

/// The same command was finished before.
fn already_over(
    global: &Global,
    backend: &Backend,
    (run, status): (RunId, RunStatus),
    work: &WorkArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let id = format!("{:016x}", run.as_raw());
    let tally = runs::tally(&mut backend.coordinator(), store::tenant(global)?, run)?;
    let code = match status {
        RunStatus::Done if tally.unread == 0 => complete(work, &tally),
        RunStatus::Done => Code::Incomplete,
        RunStatus::Initializing | RunStatus::Active | RunStatus::Failed | RunStatus::Cancelled => {
            Code::RunOver
        }
    };
    console.note(&match runs::outcome_word(status, &tally) {
        "incomplete" => {
            format!("run {id}: already over, incomplete: {}; {MEND_UNREAD}", done(&tally))
        }
        word => {
            format!("run {id}: already {word} ({}); add --restart to begin anew", all_done(&tally))
        }
    });
    summary(global.output, run, code, &tally, 0)?;
    Ok(code)
}

fn work_failure(error: &ScanError, run: RunId) -> Failure {
    match error {
        ScanError::Run(error) => runs::not_found(run, error),
        ScanError::Worker(error) => worker_failure(error, &format!("{:016x}", run.as_raw())),
        error => opening::failure(error),
    }
}

fn worker_failure(error: &RunWorkerError, id: &str) -> Failure {
    match error {
        RunWorkerError::Store(error) => Failure::store(error),
        RunWorkerError::RunNotFound => Failure::new(Code::Usage, format!("there is no run {id}"))
            .next("gossip run list shows the runs"),
        RunWorkerError::Broken(broken) => Failure::new(Code::Internal, "the command does not work")
            .why(broken)
            .next("mend it and type the same again; what was finished is recorded"),
        RunWorkerError::TooManyParked { .. } => {
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
    args.jobs.map_or_else(processors, NonZeroUsize::get)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
