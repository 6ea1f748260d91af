//! `exec` and `worker`: going through a source.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossip::store::Backend;
use gossip_contracts::connector::Connector;
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{RunConfig, RunManagement as _, RunStatus};
use gossip_coordination_sqlite::fresh_nonce;
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::connectors::Source;
use gossip_scanner_runtime::exec::{ExecConfig, Rendering};
use gossip_scanner_runtime::{
    Drain, Finish, Limits, OpenedState, Parts, SystemClock, TaskConfig, WorkerConfig, WorkerError,
    work, worker_of,
};

use crate::args::{ExecArgs, FailOn, Format, Global, JobArgs, WorkArgs, WorkerArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::opening::{Handler, Prepared, check_stamp, open_source};
use crate::output::{self, Record, count};
use crate::progress::{Painter, Progress};
use crate::{runs, signals, store};

/// Runs a command for every key of a source.
pub(crate) fn exec(
    global: &Global,
    args: ExecArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    let prepared = Prepared::new(&args.job)?;
    prepared.find_program()?;
    let (backend, tenant) = (store::open(global)?, store::tenant(global)?);
    let coordinator = &mut backend.coordinator();
    let opened = prepared.open(coordinator, tenant, jobs(&args.work), console)?;
    if let OpenedState::Over(status) = opened.state {
        return already_over(global, &backend, (opened.run, status), &args.work, console);
    }
    let session =
        Session { global, backend: &backend, tenant, run: opened.run, console, work: &args.work };
    session.go(&prepared.source, &*prepared.connector, &prepared.handler)
}

/// Makes the run of a command, or finds it, and leaves the work to others.
pub(crate) fn create(
    global: &Global,
    backend: &Backend,
    args: &JobArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let prepared = Prepared::new(args)?;
    let coordinator = &mut backend.coordinator();
    let opened = prepared.open(coordinator, store::tenant(global)?, processors(), console)?;
    let id = format!("{:016x}", opened.run.as_raw());
    let state = match opened.state {
        OpenedState::New => "new",
        OpenedState::Resumed => "there already",
        OpenedState::Over(status) => {
            let tally = runs::tally(coordinator, store::tenant(global)?, opened.run)?;
            runs::outcome_word(status, &tally)
        }
    };
    if let OpenedState::Over(_) = opened.state {
        console.note(&format!("run {id}: already {state}; add --again to begin anew"));
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
    let job = runs::job_of(&mut backend.coordinator(), tenant, run)?;
    let command = if args.command.is_empty() { &job.command } else { &args.command };
    if command.is_empty() {
        return Err(Failure::new(Code::Usage, "the run has no command")
            .why("a program made it and knows itself what to do with each key")
            .next("start that program once more, or name a command behind --"));
    }
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
            records: Some(&|| self.records()),
            clock: &clock,
            drain: &drain,
            observer: &*progress,
        };
        let over = AtomicBool::new(false);
        let painter = Painter {
            progress: &progress,
            backend: self.backend,
            tenant: self.tenant,
            run: self.run,
            source,
            connector,
            over: &over,
        };
        let config = self.worker_config(record.config());
        // By this name others see who holds a shard.
        self.console.detail(&format!("worker {:016x}", config.worker.as_raw()));
        let finish = thread::scope(|scope| {
            scope.spawn(|| painter.paint());
            let finish = work(&config, parts);
            over.store(true, Ordering::SeqCst);
            finish
        });
        if may_retire(&finish) {
            self.backend.retire();
        }
        self.conclude(finish, &progress)
    }

    /// The records of planned moves, beside the shards.
    fn records(&self) -> Box<dyn Repository> {
        Box::new(StoreRepository::new(self.backend.store(), self.tenant, fresh_nonce()))
    }

    fn worker_config(&self, run: RunConfig) -> WorkerConfig {
        let args = self.work;
        WorkerConfig {
            tenant: self.tenant,
            run: self.run,
            worker: worker_of(self.run, fresh_nonce()),
            lease_ticks: run.lease_duration(),
            threads: jobs(args),
            task: TaskConfig {
                checkpoint_items: args.checkpoint_keys,
                checkpoint_ticks: ticks(args.checkpoint_every),
                item_tries: args.tries,
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
            batch: self.work.batch.get(),
            timeout: if timeout.is_zero() { None } else { Some(timeout) },
            found_status: self.work.found_status,
            // Data for programs is a JSON value: nothing else may stand beside it.
            keeps_stdout: !matches!(self.global.output, Format::Table),
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
        summary(self.global.output, self.run, code, &tally, here)?;
        Ok(code)
    }
}

/// How to end when every key is done and read. Whatever is missing beats what was found.
const fn complete(work: &WorkArgs, tally: &runs::Tally) -> Code {
    match work.fail_on {
        Some(FailOn::Findings) if tally.findings > 0 => Code::Findings,
        Some(FailOn::Findings) | None => Code::Complete,
    }
}

/// What helps against keys that could not be read.
const MEND_UNREAD: &str = "mend that, then add --again to go through all of them anew";

/// How many keys are done while something is missing, and how many of those passed were not read.
fn done(tally: &runs::Tally) -> String {
    let done = format!("{} done", count(tally.keys.saturating_sub(tally.unread), "key"));
    match tally.unread {
        0 => done,
        unread => format!("{} could not be read, {done}", count(unread, "key")),
    }
}

/// How many keys there are when all are done, and what was found in them, if anything was.
fn all_done(tally: &runs::Tally) -> String {
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
            format!("run {id}: already {word} ({}); add --again to begin anew", all_done(&tally))
        }
    });
    summary(global.output, run, code, &tally, 0)?;
    Ok(code)
}

/// A store that failed is not asked for a courtesy. After every other end it is: nobody shall wait
/// for the owner keys of a worker that gave up.
const fn may_retire(finish: &Result<Finish, WorkerError>) -> bool {
    !matches!(finish, Err(WorkerError::Store(_)))
}

fn worker_failure(error: &WorkerError, id: &str) -> Failure {
    match error {
        WorkerError::Store(error) => Failure::store(error),
        WorkerError::RunNotFound => Failure::new(Code::Usage, format!("there is no run {id}"))
            .next("gossip run list shows the runs"),
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
    args.jobs.map_or_else(processors, NonZeroUsize::get)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
