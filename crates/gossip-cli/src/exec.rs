//! `exec` and `worker`: processing the items of a source.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossip::coordination::{ParkReason, RunStatus, ShardFilter, ShardSummary};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::exec::{ExecConfig, Handler, Rendering, prepare_programs};
use gossip::runtime::{Broken, Drain, Finish, Limits, OpenedState, RunWorkerError, TaskConfig};
use gossip::sources::SourceRegistry;
use gossip::store::Backend;
use gossip::{Joined, ScanError, Session, Totals, WorkOptions};

use crate::args::{ExecArgs, FailOn, Format, Global, JobArgs, WorkArgs, WorkerArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::opening::{self, Notices};
use crate::output::{self, Record, count};
use crate::progress::{Painter, Progress};
use crate::shards::damaged_text;
use crate::upgrade::FormatWatch;
use crate::{duration, runs, signals, store};

/// Runs a command for every item of a source: creates the run or resumes it, and works on it until
/// it ends or this process is drained.
///
/// Returns the exit code of the outcome. A run that is already over is reported and not repeated.
/// Fails before a run is created if the source or the program does not exist.
pub(crate) fn exec(
    global: &Global,
    args: ExecArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let prepared = opening::prepare(&args.job, jobs(&args.work))?;
    opening::check_program(&args.job)?;
    // Before the store is opened, which may start threads and allocates: this forks, and the signal
    // settings that the programs inherit must be those that the process was started with.
    prepare_programs().map_err(|broken| not_started(&broken))?;
    let (backend, tenant) = (store::open(global)?, store::tenant(global)?);
    let session =
        prepared.open(&backend, tenant, &Notices::for_worker(console).asked_for(args.job.shards));
    let session = session.map_err(|error| opening::failure(&error))?;
    if let OpenedState::Over(status) = session.state() {
        return already_over(global, &backend, (session.run(), status), &args.work, console);
    }
    let handler = prepared.handler().expect("the scan was prepared with a command");
    let worker = Worker { global, backend: &backend, tenant, console, work: &args.work };
    worker.run(&session, handler)
}

/// Creates the run of a command, or finds it, and prints its id and state. It does not work on the
/// run, and does not require that the program exists here.
pub(crate) fn create(
    global: &Global,
    backend: &Backend,
    args: &JobArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let (prepared, tenant) = (opening::prepare(args, processors())?, store::tenant(global)?);
    let session =
        prepared.open(backend, tenant, &Notices::for_create(console).asked_for(args.shards));
    let session = session.map_err(|error| opening::failure(&error))?;
    let id = format!("{:016x}", session.run().as_raw());
    let state = match session.state() {
        OpenedState::New => "new",
        OpenedState::Resumed => "existing",
        OpenedState::Over(status) => {
            let totals = runs::totals(&mut backend.coordinator(), tenant, session.run())?;
            runs::outcome_word(status, &totals)
        }
    };
    if let OpenedState::Over(_) = session.state() {
        console.note(&format!("run {id}: already {state}. Add --restart to start a new run"));
    }
    // The bare id, so that a shell can store it in a variable.
    let shown = Record::new().with("run", id).with("state", state);
    output::field(global.output, "run", &shown)?;
    Ok(Code::Complete)
}

/// Works on an existing run until it ends or this process is drained, with the command of the run
/// or the one in `args`.
///
/// Returns the exit code of the outcome. Fails if the run does not exist, has no command, or its
/// source is not available here. It never creates a run.
pub(crate) fn worker(
    global: &Global,
    args: WorkerArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    // First, for the reason given in `exec`.
    prepare_programs().map_err(|broken| not_started(&broken))?;
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let run = RunId::from_raw(args.run);
    let joined = Joined::new(&backend, tenant, run, &SourceRegistry::new(), &args.command);
    let joined = joined.map_err(|error| not_joined(run, &error))?;
    // Unlike `exec`, without a check whether the run is over: the first claim fails then, and the
    // worker reports how the run ended.
    let session = joined.open(&backend, tenant);
    let worker = Worker { global, backend: &backend, tenant, console, work: &args.work };
    worker.run(&session, joined.handler())
}

fn not_started(broken: &Broken) -> Failure {
    Failure::new(Code::Internal, "commands cannot be started").why(broken)
}

fn not_joined(run: RunId, error: &ScanError) -> Failure {
    match error {
        ScanError::Job(error) => runs::job_failure(run, error),
        ScanError::NoCommand => Failure::new(Code::Usage, "the run has no command")
            .why("the program that created it processes the items itself")
            .next(format!(
                "start that program again, or give a command: gossip worker {:016x} -- COMMAND",
                run.as_raw()
            )),
        ScanError::Source(error) => {
            Failure::new(Code::Usage, "the source of the run is not available here")
                .why(error)
                .next("join from a machine that has the same files at the same path")
        }
        error => opening::failure(error),
    }
}

/// This process as a worker of a run.
struct Worker<'a> {
    global: &'a Global,
    backend: &'a Backend,
    tenant: TenantId,
    console: &'a Arc<Console>,
    work: &'a WorkArgs,
}

impl Worker<'_> {
    /// Works on the run of `session`, draws progress meanwhile, and prints the outcome.
    ///
    /// Returns when the run has ended, a signal drained the process, or the worker failed.
    fn run(&self, session: &Session<'_>, handler: &Handler) -> Result<Code, Failure> {
        let key_format = session.source().key_format();
        let progress = Arc::new(Progress::new(Arc::clone(self.console), key_format));
        let drain = Drain::new();
        signals::drain_on_signals(&drain, self.console)?;
        self.console.drain_when_closed(&drain);
        let (rendering, exec) = (Rendering::of(session.source()), self.exec_config(&drain));
        let is_over = AtomicBool::new(false);
        let painter = Painter {
            progress: &progress,
            backend: self.backend,
            tenant: self.tenant,
            run: session.run(),
            source: session.source(),
            connector: session.connector(),
            is_over: &is_over,
        };
        // The owner that `shard list` and `handoff workers` show.
        self.console.detail(&format!("worker {:016x}", session.worker().as_raw()));
        let format = FormatWatch::new();
        let finish = thread::scope(|scope| {
            let watching = scope.spawn(|| format.run(self.backend, &drain, self.console));
            let painting = scope.spawn(|| painter.paint());
            let processor = |_| handler.processor(&rendering, exec.clone());
            let finish = session.work(&self.work_options(), &processor, &drain, &*progress);
            // Both threads end only when they see this, and are woken to see it at once.
            is_over.store(true, Ordering::SeqCst);
            format.end();
            painting.thread().unpark();
            watching.thread().unpark();
            // A panic there was printed and cost the progress line. Without this the scope would
            // panic, and the outcome of the work would be lost.
            drop(painting.join());
            finish
        });
        // A worker that could not leave in time met a newer record instead, which says less.
        if matches!(finish, Ok(Finish::Drained) | Err(_))
            && let Some(newer) = format.failure(self.backend)
        {
            return Err(newer);
        }
        self.conclude(session.run(), finish, &progress)
    }

    fn work_options(&self) -> WorkOptions {
        let args = self.work;
        WorkOptions {
            threads: jobs(args),
            task: TaskConfig {
                checkpoint_items: args.checkpoint_keys.get(),
                checkpoint_ticks: ticks(args.checkpoint_every),
                item_tries: args.tries.get(),
                parked_retries: args.retry_parked,
                parked_retry_delay: ticks(args.retry_parked_after),
                ..TaskConfig::default()
            },
            limits: Limits {
                items: args.rate.map(NonZeroU64::get),
                bytes: args.byte_rate.map(NonZeroU64::get),
            },
            max_parked: args.max_parked,
            auto_split: !args.no_split,
            store_patience: args.store_patience,
        }
    }

    fn exec_config(&self, drain: &Drain) -> ExecConfig {
        let timeout = self.work.timeout;
        ExecConfig {
            batch: self.work.batch.get(),
            timeout: if timeout.is_zero() { None } else { Some(timeout) },
            found_status: self.work.found_status,
            // JSON output must be one value, so the commands' output must not be mixed into it.
            keeps_stdout: !matches!(self.global.output, Format::Table),
            drain: drain.clone(),
        }
    }

    /// Prints how the work ended, with the counts of the whole run, and returns the exit code.
    ///
    /// Fails if the worker failed or the counts cannot be read.
    fn conclude(
        &self,
        run: RunId,
        finish: Result<Finish, ScanError>,
        progress: &Progress,
    ) -> Result<Code, Failure> {
        let id = format!("{:016x}", run.as_raw());
        let finish = finish.map_err(|error| work_failure(&error, run))?;
        let mut coordinator = self.backend.coordinator();
        let totals = match finish {
            Finish::DrainedUnsaved => return self.conclude_without_store(run, progress),
            _ => runs::totals(&mut coordinator, self.tenant, run)?,
        };
        let (code, text) = match finish {
            Finish::Complete if totals.unread > 0 => {
                (Code::Incomplete, format!("incomplete: {}. {FIX_UNREAD}", unread(&totals)))
            }
            Finish::Complete => {
                (complete(self.work, &totals), format!("complete: {}", all_done(&totals)))
            }
            Finish::Incomplete { .. } => {
                let filter = ShardFilter::parked();
                let rows = runs::rows(&mut coordinator, self.tenant, run, filter)?;
                (Code::Incomplete, format!("incomplete: {}", incomplete(run, &rows, &totals)))
            }
            Finish::RunOver(status) => {
                (Code::RunOver, format!("stopped: the run is {}", runs::status_word(status)))
            }
            Finish::Drained | Finish::DrainedUnsaved => (
                Code::Interrupted,
                format!(
                    "stopped: {} done. Run the same command again to resume",
                    count(totals.keys, "key")
                ),
            ),
        };
        print_outcome(self.console, code, &format!("run {id}: {text}"));
        self.console.detail(&progress.done_here());
        summary(self.global.output, run, code, &totals, progress.keys_done())?;
        Ok(code)
    }

    /// Prints that the worker was drained while the store was unusable. The counts of the run are
    /// in the store.
    fn conclude_without_store(&self, run: RunId, progress: &Progress) -> Result<Code, Failure> {
        let (id, code) = (format!("{:016x}", run.as_raw()), Code::Interrupted);
        self.console.note(&format!(
            "run {id}: stopped while the store is unusable; items since the last checkpoint will \
             be processed again. Run the same command again to resume"
        ));
        self.console.detail(&progress.done_here());
        if self.global.output == Format::Table {
            return Ok(code);
        }
        let here = progress.keys_done();
        let record = Record::new().with("run", id).with("exit_code", code as u8);
        output::one(self.global.output, &record.with("keys_here", here))?;
        Ok(code)
    }
}

/// Prints how a run ended. A run that is not complete is a failure, which is printed also if quiet.
fn print_outcome(console: &Console, code: Code, text: &str) {
    match code {
        Code::Incomplete | Code::RunOver => console.problem(text),
        Code::Complete
        | Code::Internal
        | Code::Usage
        | Code::Store
        | Code::Upgrade
        | Code::Findings
        | Code::Interrupted => console.note(text),
    }
}

/// Returns the exit code of a complete run. An incomplete run exits with 3, findings or not.
const fn complete(work: &WorkArgs, totals: &Totals) -> Code {
    match work.fail_on {
        Some(FailOn::Findings) if totals.findings > 0 => Code::Findings,
        Some(FailOn::Findings) | None => Code::Complete,
    }
}

/// Next step after items that could not be read.
const FIX_UNREAD: &str = "Fix the source, then add --restart to process all items again";

/// Describes a run with parked or damaged shards, which are the `rows`, and the next steps.
fn incomplete(run: RunId, rows: &[ShardSummary], totals: &Totals) -> String {
    let id = format!("{:016x}", run.as_raw());
    let (damaged, parked): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.damage.is_some());
    let mut text = not_done(&parked, totals);
    if !parked.is_empty() {
        text += &format!(
            ". List: `gossip shard list {id} --parked`. \
             Retry: `gossip shard unpark {id} --all`, then repeat the command"
        );
    }
    match damaged_text(run, &damaged) {
        Some(damaged) => format!("{text}. {damaged}, then repeat the command"),
        None => text,
    }
}

/// Counts failed and unread items, parked shards and finished items: `1 item failed, 2 done`.
fn not_done(parked: &[&ShardSummary], totals: &Totals) -> String {
    // An item that fails for good is parked alone. Other reasons concern a whole range.
    let is_item = |row: &&&ShardSummary| row.park_reason == Some(ParkReason::Poisoned);
    let items = parked.iter().filter(is_item).count() as u64;
    let shards = parked.len() as u64 - items;
    let mut parts = Vec::new();
    if items > 0 {
        parts.push(format!("{} failed", count(items, "item")));
    }
    if shards > 0 {
        parts.push(format!("{} parked", count(shards, "shard")));
    }
    if totals.unread > 0 {
        parts.push(format!("{} unread", totals.unread));
    }
    parts.push(format!("{} done", totals.keys));
    parts.join(", ")
}

/// Counts unread and finished items: `1 item unread, 2 done`.
fn unread(totals: &Totals) -> String {
    format!("{} unread, {} done", count(totals.unread, "item"), totals.keys)
}

/// Counts the keys and findings of a complete run.
fn all_done(totals: &Totals) -> String {
    let keys = count(totals.keys, "key");
    match totals.findings {
        0 => keys,
        findings => format!("{keys}, {}", count(findings, "finding")),
    }
}

/// Prints the JSON summary, if JSON was requested; `here` counts the keys of this process.
fn summary(
    format: Format,
    run: RunId,
    code: Code,
    totals: &Totals,
    here: u64,
) -> Result<(), Failure> {
    if format == Format::Table {
        return Ok(());
    }
    let record = Record::new()
        .with("run", format!("{:016x}", run.as_raw()))
        .with("exit_code", code as u8)
        .with("keys", totals.keys)
        .with("keys_here", here)
        .with("unread", totals.unread)
        .with("findings", totals.findings)
        .with("shards", totals.shards)
        .with("parked", totals.parked)
        .with("damaged", totals.damaged);
    output::one(format, &record)
}

/// Prints that the same command has finished before, and returns the exit code that it had then: a
/// script that repeats a command gets the same result.
fn already_over(
    global: &Global,
    backend: &Backend,
    (run, status): (RunId, RunStatus),
    work: &WorkArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let id = format!("{:016x}", run.as_raw());
    let totals = runs::totals(&mut backend.coordinator(), store::tenant(global)?, run)?;
    let code = match status {
        RunStatus::Done if totals.unread == 0 && totals.damaged == 0 => complete(work, &totals),
        RunStatus::Done => Code::Incomplete,
        RunStatus::Initializing | RunStatus::Active | RunStatus::Failed | RunStatus::Cancelled => {
            Code::RunOver
        }
    };
    let text = match runs::outcome_word(status, &totals) {
        "incomplete" if totals.damaged > 0 => {
            let shards = count(totals.damaged, "shard");
            format!(
                "run {id}: already finished, but {shards} damaged since. List: \
                 `gossip shard list {id} --damaged`. Add --restart to start a new run"
            )
        }
        "incomplete" => {
            format!("run {id}: already finished, incomplete: {}. {FIX_UNREAD}", unread(&totals))
        }
        word => {
            let totals = all_done(&totals);
            format!("run {id}: already {word} ({totals}). Add --restart to start a new run")
        }
    };
    print_outcome(console, code, &text);
    summary(global.output, run, code, &totals, 0)?;
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
        RunWorkerError::StoreUnusable { error, waited } => {
            let waited = duration::rough(ticks(*waited));
            Failure::new(Code::Store, format!("the store was unusable for {waited}"))
                .why(error)
                .next(
                    "repair the store, then repeat the command to resume; saved progress is not \
                     lost. --store-patience sets how long to wait",
                )
        }
        RunWorkerError::RunNotFound => Failure::new(Code::Usage, format!("no such run: {id}"))
            .next("list the runs: gossip run list"),
        RunWorkerError::Broken(broken) => {
            let code = match broken {
                Broken::NotExecutable(_) => Code::Usage,
                Broken::OutputClosed | Broken::NoReply => Code::Interrupted,
                Broken::Failed(_) => Code::Internal,
            };
            Failure::new(code, "stopped; progress is saved")
                .why(broken)
                .next("fix the cause, then repeat the command to resume")
        }
        RunWorkerError::TooManyParked { .. } => {
            Failure::new(Code::Incomplete, "stopped because of too many failures").why(error).next(
                format!(
                    "fix the command, run gossip shard unpark {id} --all, then repeat the command; \
                     or raise --max-parked"
                ),
            )
        }
        RunWorkerError::Panicked { .. } => {
            Failure::new(Code::Internal, "stopped because of a bug; progress is saved")
                .why(error)
                .next("report the bug with the messages above; repeat the command to resume")
        }
        error => Failure::new(Code::Internal, "the worker stopped").why(error),
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
