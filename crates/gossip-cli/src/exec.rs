//! `exec` and `worker`: processing the items of a source.

use std::collections::BTreeSet;
use std::fs::File;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossip::coordination::{ParkReason, RunStatus, ShardFilter, ShardSummary};
use gossip::identity::{RunId, TenantId, WorkerId};
use gossip::runtime::exec::{CommandOutput, ExecConfig, Handler, Rendering, prepare_programs};
use gossip::runtime::{
    Broken, Clock as _, Drain, Finish, Limits, OpenedState, Processor, ProgressMeter, RunLook,
    RunWorkerError, SystemClock, TaskConfig,
};
use gossip::store::Backend;
use gossip::{Joined, Prepared, RunCommand, ScanError, Session, Totals, WorkOptions};

use crate::args::{ExecArgs, FailOn, Format, Global, JobArgs, WorkArgs, WorkerArgs, WorkerCommand};
use crate::changes::{self, Looked};
use crate::command_output::CommandPrinter;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::halt::Halting;
use crate::opening::{self, Cancelled, Notices};
use crate::output::{self, Record, count};
use crate::painter::{Painter, ProgressMode, Shared};
use crate::progress::Progress;
use crate::screen::jobs::Jobs;
use crate::screen::style::{Line, Paint};
use crate::screen::text::number;
use crate::shards::damaged_text;
use crate::sources;
use crate::upgrade::FormatWatch;
use crate::{duration, gone, items, job_key, listing, runs, signals, spool, store, watch, workers};

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
    check_terminal(&args.work, args.job.stream.0.is_some())?;
    let progress = args.work.progress.on(console);
    // Zero is the only accepted status without `--ok-status`, so it cannot also mean a finding.
    if args.work.found_status == Some(0) && args.work.ok_status.is_empty() {
        return Err(Failure::new(Code::Usage, "--found-status 0 needs --ok-status")
            .why("otherwise no status would mean that nothing was found")
            .next("as in: --ok-status 0,1 --found-status 0"));
    }
    let source = spool::source_of(&args.job, console)?;
    // A plan writes nothing, also no key.
    let job_key = if args.plan { None } else { job_key::of_creator(console)? };
    let prepared = opening::prepare(&args.job, &source, jobs(&args.work), job_key)?;
    opening::check_program(&args.job)?;
    if args.plan {
        return plan(global, &prepared);
    }
    // Before the store is opened, which may start threads and allocates: this forks, and the signal
    // settings that the programs inherit must be those that the process was started with.
    prepare_programs().map_err(|broken| not_started(&broken))?;
    let (backend, tenant) = (store::open(global)?, store::tenant(global)?);
    let notices = Notices::for_worker(console).asked_for(args.job.shards);
    let cancelled = Cancelled::by(&args.job);
    let session = opening::open((&prepared, &backend, tenant), cancelled, &notices, console)?;
    if let OpenedState::Over(status) = session.state() {
        let over = AlreadyOver { global, backend: &backend, run: session.run(), status, console };
        return over.conclude(&args.work);
    }
    let handler = prepared.handler().expect("the scan was prepared with a command");
    if session.state() == OpenedState::Resumed {
        // Before the look, so that it shows their shards as free.
        let gone = gone::release(&mut backend.coordinator(), tenant, session.run());
        if !console.is_quiet() {
            console.note(&resumed(&session, &backend, tenant, &gone));
        }
    }
    let names = items::names(session.source(), Some(&source));
    let session = session.with_names(names);
    let rendering = Rendering::as_typed(session.source(), &source);
    let worker = Worker {
        global,
        backend: &backend,
        tenant,
        console,
        work: &args.work,
        mode: progress,
        prints_summary: true,
    };
    worker.run_command(&session, handler, &rendering)
}

/// Describes a run that exists: how far it is, or who works on it besides those that are gone.
fn resumed(
    session: &Session<'_>,
    backend: &Backend,
    tenant: TenantId,
    gone: &BTreeSet<WorkerId>,
) -> String {
    let (run, coordinator) = (session.run(), &mut backend.coordinator());
    let id = format!("{:016x}", run.as_raw());
    let now = SystemClock::new().now();
    // The first claim reports an error of the store.
    let Ok(look) = RunLook::take(coordinator, now, tenant, run) else {
        return format!("run {id}: resuming");
    };
    // A worker without a lease is known by its registration only.
    let registered = runs::registered(coordinator, tenant);
    let others = listing::workers_of(run, look.shards(), &registered);
    match others.difference(gone).count() as u64 {
        0 => {
            let density = watch::density(session.source(), session.connector());
            let percent = ProgressMeter::new(density).observe(&look).percent;
            let at = percent.map_or_else(String::new, |percent| format!(" at {percent} %"));
            format!("run {id}: resuming{at}")
        }
        others => format!("run {id}: joining, {}", count(others, "other worker")),
    }
}

/// Prints what the run would be, without a store.
fn plan(global: &Global, prepared: &Prepared) -> Result<Code, Failure> {
    let shards = prepared.planned_shards().map_err(|error| opening::failure(&error))?;
    let density = watch::density(prepared.source(), prepared.connector());
    let (total, kind) = match (density.total(), density.is_empty()) {
        (Some(total), _) => (Some(total), "exact"),
        (None, false) => (None, "estimated"),
        (None, true) => (None, "unknown"),
    };
    let record = Record::new()
        .with_bytes(["source", "source_hex"], prepared.source().text().as_bytes())
        .with("items", total)
        .with("items_kind", kind)
        .with("shards", shards)
        .with("command", listing::typed(prepared.command()));
    output::one(global.output, &record)?;
    Ok(Code::Complete)
}

/// Creates the run of a command, or finds it, and prints its id and state. It does not work on the
/// run, and does not require that the program exists here.
pub(crate) fn create(
    global: &Global,
    backend: &Backend,
    args: &JobArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let source = spool::source_of(args, console)?;
    // Without a signature each worker of the run would need --allow-command.
    let job_key = job_key::of_creator(console)?;
    let prepared = opening::prepare(args, &source, processors(), job_key)?;
    let tenant = store::tenant(global)?;
    let notices = Notices::for_create(console).asked_for(args.shards);
    let cancelled = Cancelled::by(args);
    let session = opening::open((&prepared, backend, tenant), cancelled, &notices, console)?;
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
    let run = match (args.other, args.run) {
        (Some(WorkerCommand::List(args)), _) => return workers::list(global, &args, console),
        (None, Some(run)) => run,
        (None, None) => unreachable!("clap requires a run without a subcommand"),
    };
    check_terminal(&args.work, false)?;
    let progress = args.work.progress.on(console);
    // Early, for the reason given in `exec`.
    prepare_programs().map_err(|broken| not_started(&broken))?;
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let run = run.find(&mut backend.coordinator(), tenant)?;
    let job_key = job_key::of_worker()?;
    let command = match (args.command.is_empty(), args.allow_command) {
        (false, _) => RunCommand::Given(&args.command),
        (true, true) => RunCommand::AnyStored,
        (true, false) => RunCommand::Signed(job_key.as_ref()),
    };
    let joined = Joined::new(&backend, tenant, run, &sources::registry(), command);
    // The job is read again for the message: a list of another host needs other words than a wrong
    // path.
    let joined = joined.map_err(|error| {
        let job = runs::job_of(&mut backend.coordinator(), tenant, run).ok();
        match job.filter(|job| spool::is_list(&job.source)) {
            Some(_) if matches!(error, ScanError::Source(_)) => spool::of_another_host(),
            _ => not_joined(run, &error),
        }
    })?;
    // Unlike `exec`, without a check whether the run is over: the first claim fails then, and the
    // worker reports how the run ended.
    gone::release(&mut backend.coordinator(), tenant, run);
    let session = joined.open(&backend, tenant);
    let names = items::names(session.source(), None);
    let session = session.with_names(names);
    let worker = Worker {
        global,
        backend: &backend,
        tenant,
        console,
        work: &args.work,
        mode: progress,
        prints_summary: true,
    };
    worker.run_command(&session, joined.handler(), &Rendering::of(session.source()))
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
        ScanError::UnsignedCommand => {
            let id = format!("{:016x}", run.as_raw());
            Failure::new(Code::Usage, format!("the command of run {id} is not trusted"))
                .why(error)
                .next(format!(
                    "copy the job key of the user who created the run to {}, or look at the \
                     command (gossip run show {id}) and add --allow-command",
                    job_key::shown_path()
                ))
        }
        ScanError::Source(error) => {
            Failure::new(Code::Usage, "the source of the run is not available here")
                .why(error)
                .next("join from a machine that has the same files at the same path")
        }
        error => opening::failure(error),
    }
}

/// This process as a worker of a run.
pub(crate) struct Worker<'a> {
    pub(crate) global: &'a Global,
    pub(crate) backend: &'a Backend,
    pub(crate) tenant: TenantId,
    pub(crate) console: &'a Arc<Console>,
    pub(crate) work: &'a WorkArgs,
    pub(crate) mode: ProgressMode,
    /// Whether the outcome is printed as JSON, if JSON is asked for.
    pub(crate) prints_summary: bool,
}

impl Worker<'_> {
    /// Runs a command for every item of the run, until the run has ended or a signal drained the
    /// process.
    fn run_command(
        &self,
        session: &Session<'_>,
        handler: &Handler,
        rendering: &Rendering,
    ) -> Result<Code, Failure> {
        let drain = Drain::new();
        // Before the first claim, so that no signal finds a lease that would not be released.
        signals::drain_on_signals(&drain, self.console)?;
        self.console.drain_when_closed(&drain);
        let exec = self.exec_config(&drain);
        let processor = |_| handler.processor(rendering, exec.clone());
        self.run(session, &drain, &processor)
    }

    /// Works on the run of `session`, draws progress meanwhile, and prints the outcome.
    ///
    /// Returns when the run has ended, the process is drained, or the worker failed.
    pub(crate) fn run<'p>(
        &self,
        session: &Session<'_>,
        drain: &Drain,
        processor: &(dyn Fn(usize) -> Box<dyn Processor + 'p> + Sync),
    ) -> Result<Code, Failure> {
        let (console, names) = (Arc::clone(self.console), Arc::clone(session.names()));
        let progress = Arc::new(Progress::new(console, names));
        let jobs = Jobs::new(jobs(self.work));
        let halting = Halting::new(self.work.halt, drain, self.console, &*progress);
        let painter = Painter {
            mode: self.progress_mode(),
            console: self.console,
            progress: &progress,
            jobs: &jobs,
            drain,
            backend: self.backend,
            tenant: self.tenant,
            session,
            shared: Shared::default(),
        };
        // The owner that `shard list` and `handoff workers` show.
        self.console.detail(&format!("worker {:016x}", session.worker().as_raw()));
        self.console.event_if_json(|| {
            Record::new()
                .with("type", "start")
                .with("run", format!("{:016x}", session.run().as_raw()))
                .with("worker", format!("{:016x}", session.worker().as_raw()))
                .with("jobs", jobs.count())
        });
        let format = FormatWatch::new();
        // The helpers borrow the session, so they have to end before this function does.
        let finish = thread::scope(|scope| {
            let watching = scope.spawn(|| format.run(self.backend, drain, self.console));
            let showing = painter.start(scope);
            // Wrapped, so that the frame shows which items are in progress.
            let processor = |job| jobs.noting(job, processor(job));
            let finish = session.work(&self.work_options(), &processor, drain, &halting);
            // Woken, because it ends only when it sees this.
            format.end();
            watching.thread().unpark();
            painter.end(showing);
            finish
        });
        // A worker that could not leave in time met a newer record instead, which says less.
        if matches!(finish, Ok(Finish::Drained) | Err(_))
            && let Some(newer) = format.failure(self.backend)
        {
            return Err(newer);
        }
        self.conclude(session.run(), finish, &progress, (&painter, halting.reached()))
    }

    /// Returns how progress is shown: no frame is drawn on a terminal that commands write to.
    fn progress_mode(&self) -> ProgressMode {
        match self.mode {
            // Lines that commands write between two frames would be overwritten by the next one.
            ProgressMode::Bar if self.work.ungroup => ProgressMode::Plain,
            // The terminal belongs to the command.
            ProgressMode::Bar | ProgressMode::Plain if self.work.tty => ProgressMode::None,
            mode => mode,
        }
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
                ..WorkOptions::default().task
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
            ok_statuses: self.work.ok_status.clone(),
            found_status: self.work.found_status,
            found_text_max: store::found_text_max(self.global),
            output: self.command_output(),
            keeps_stdout: self.keeps_stdout(),
            drain: drain.clone(),
        }
    }

    fn command_output(&self) -> CommandOutput {
        match (self.work.ungroup, self.work.tty) {
            (true, _) => CommandOutput::Inherited,
            (false, true) => CommandOutput::Terminal,
            (false, false) => {
                let (console, tag) = (Arc::clone(self.console), self.work.tag);
                CommandPrinter::new(console, tag, self.keeps_stdout()).capture()
            }
        }
    }

    /// Returns whether our standard output holds JSON, which must be one value, so that output of
    /// the commands must not be mixed into it.
    fn keeps_stdout(&self) -> bool {
        !self.global.output.is_table()
    }

    /// Prints how the work ended, with the counts of the whole run, and returns the exit code.
    ///
    /// Fails if the worker failed or the counts cannot be read.
    fn conclude(
        &self,
        run: RunId,
        finish: Result<Finish, ScanError>,
        progress: &Progress,
        (painter, halted): (&Painter<'_>, Option<u64>),
    ) -> Result<Code, Failure> {
        let id = format!("{:016x}", run.as_raw());
        let finish = finish.map_err(|error| work_failure(&error, run))?;
        let mut coordinator = self.backend.coordinator();
        // The counts are in the store, which cannot be read.
        if finish == Finish::DrainedUnsaved {
            return self.conclude_without_store(run, progress);
        }
        let totals = runs::totals(&mut coordinator, self.tenant, run)?;
        let (code, text) = match finish {
            // The run has covered its source, but not all that the source should have shown.
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
            // A drain by `--halt` is a result and no interruption, so it has another exit code.
            Finish::Drained if halted.is_some() => (
                Code::Incomplete,
                format!(
                    "stopped by --halt: {} failed, {} done. Fix the command and run it again to \
                     resume",
                    count(halted.unwrap_or_default(), "item"),
                    totals.keys
                ),
            ),
            Finish::Drained | Finish::DrainedUnsaved => (
                Code::Interrupted,
                format!(
                    "stopped: {} done. Run the same command again to resume",
                    part_done(&totals, painter.total())
                ),
            ),
        };
        print_outcome(self.console, code, (&format!("run {id}: "), &text));
        if !self.console.is_json() {
            self.console.note(&format!("  {}", progress.receipt(painter.workers_seen())));
        }
        // Only a complete run has a certificate that agrees with its source.
        if matches!(code, Code::Complete | Code::Findings) && !self.console.is_json() {
            self.console.note(&format!("  check it: gossip run verify {id} --source"));
        }
        self.console.detail(&progress.done_here());
        if self.prints_summary {
            let done = progress.keys_done();
            summary((self.global.output, self.console), run, code, &totals, done)?;
        }
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
        if self.global.output.is_table() || !self.prints_summary {
            return Ok(code);
        }
        let here = progress.keys_done();
        let record = Record::new().with("run", id).with("exit_code", code as u8);
        output::one(self.global.output, &record.with("keys_here", here))?;
        Ok(code)
    }
}

/// Prints how a run ended. A run that is not complete is a failure, which is printed also if quiet.
/// The first sentence of the text is the verdict.
fn print_outcome(console: &Console, code: Code, (run, text): (&str, &str)) {
    let (paint, is_problem) = match code {
        Code::Complete | Code::Findings => (Paint::Done, false),
        Code::Incomplete | Code::RunOver => (Paint::Failed, true),
        Code::Internal | Code::Usage | Code::Store | Code::Upgrade | Code::Interrupted => {
            (Paint::Warning, false)
        }
    };
    // Only the verdict is coloured: the next step should be readable and copied as it is.
    let (verdict, rest) = text.split_at(text.find(". ").unwrap_or(text.len()));
    let line = Line::new().with(Paint::Plain, run).with(paint, verdict).with(Paint::Plain, rest);
    let style = console.screen().style();
    let line = if console.is_json() { format!("{run}{text}") } else { line.render(style) };
    if is_problem { console.problem(&line) } else { console.note(&line) }
}

/// Counts the finished keys, and all of them if their number is known.
fn part_done(totals: &Totals, total: Option<u64>) -> String {
    // An estimate below the done keys would look like an error.
    match total.filter(|total| *total >= totals.keys) {
        Some(total) => format!("{} of {}", number(totals.keys), count(total, "key")),
        None => count(totals.keys, "key"),
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
            ". List: `gossip failed {id}`. \
             Retry: `gossip retry {id} --all`, then repeat the command"
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
        parts.push(format!("{} unread", number(totals.unread)));
    }
    parts.push(format!("{} done", number(totals.keys)));
    parts.join(", ")
}

/// Counts unread and finished items: `1 item unread, 2 done`.
fn unread(totals: &Totals) -> String {
    format!("{} unread, {} done", count(totals.unread, "item"), number(totals.keys))
}

/// Counts the keys and findings of a complete run.
fn all_done(totals: &Totals) -> String {
    let keys = count(totals.keys, "key");
    match totals.findings {
        0 => keys,
        findings => format!("{keys}, {}", count(findings, "finding")),
    }
}

/// Prints the summary as JSON where that was requested: on standard output, as the last event of
/// `--progress json`, or both. `here` counts the keys of this process.
fn summary(
    (format, console): (Format, &Console),
    run: RunId,
    code: Code,
    totals: &Totals,
    here: u64,
) -> Result<(), Failure> {
    let counted = |record: Record| {
        record
            .with("run", format!("{:016x}", run.as_raw()))
            .with("exit_code", code as u8)
            .with("keys", totals.keys)
            .with("keys_here", here)
            .with("unread", totals.unread)
            .with("findings", totals.findings)
            .with("shards", totals.shards)
            .with("parked", totals.parked)
            .with("damaged", totals.damaged)
    };
    console.event_if_json(|| counted(Record::new().with("type", "summary")));
    match format.is_table() {
        true => Ok(()),
        false => output::one(format, &counted(Record::new())),
    }
}

/// The same command has finished before.
struct AlreadyOver<'a> {
    global: &'a Global,
    backend: &'a Backend,
    run: RunId,
    status: RunStatus,
    console: &'a Console,
}

impl AlreadyOver<'_> {
    /// Prints how the run ended, and lists the source again to see whether it has changed since.
    ///
    /// Returns the exit code that the command had then, so that a script that repeats a command
    /// gets the same result; but 3 if the source has other items now.
    fn conclude(&self, work: &WorkArgs) -> Result<Code, Failure> {
        let (run, status, tenant) = (self.run, self.status, store::tenant(self.global)?);
        let id = format!("{:016x}", run.as_raw());
        let coordinator = &mut self.backend.coordinator();
        let totals = runs::totals(coordinator, tenant, run)?;
        let code = match status {
            // Records may have been damaged after the end, so the status alone proves nothing.
            RunStatus::Done if totals.unread == 0 && totals.damaged == 0 => complete(work, &totals),
            RunStatus::Done => Code::Incomplete,
            RunStatus::Initializing
            | RunStatus::Active
            | RunStatus::Failed
            | RunStatus::Cancelled => Code::RunOver,
        };
        // Listing a source may take long; the result of an incomplete run does not depend on it.
        let looked = match (code, status) {
            (Code::Complete | Code::Findings, RunStatus::Done) => {
                changes::since(coordinator, tenant, run)?
            }
            _ => Looked::Same,
        };
        let text = match runs::outcome_word(status, &totals) {
            "incomplete" if totals.damaged > 0 => {
                let shards = count(totals.damaged, "shard");
                format!(
                    "already finished, but {shards} damaged since. List: \
                     `gossip shard list {id} --damaged`. Add --restart to start a new run"
                )
            }
            "incomplete" => {
                format!("already finished, incomplete: {}. {FIX_UNREAD}", unread(&totals))
            }
            word => {
                let totals = all_done(&totals);
                match &looked {
                    Looked::Changed(changes) => format!(
                        "already {word} ({totals}), but {changes}. \
                         Add --restart to process all items"
                    ),
                    Looked::Not(why) => format!(
                        "already {word} ({totals}); its source was not compared: {why}. \
                         Add --restart to start a new run"
                    ),
                    Looked::Same => {
                        format!("already {word} ({totals}). Add --restart to start a new run")
                    }
                }
            }
        };
        // Nor is a run called complete whose source cannot be compared.
        let code = if matches!(looked, Looked::Same) { code } else { Code::Incomplete };
        print_outcome(self.console, code, (&format!("run {id}: "), &text));
        if let Looked::Changed(changes) = &looked {
            changes.lines().for_each(|line| self.console.problem(&format!("  {line}")));
        }
        summary((self.global.output, self.console), run, code, &totals, 0)?;
        Ok(code)
    }
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
                // The user mistyped or forgot the mode; the other two have other causes.
                Broken::NotExecutable(_) => Code::Usage,
                Broken::OutputClosed | Broken::NoReply | Broken::Interrupted => Code::Interrupted,
                Broken::Failed(_) => Code::Internal,
            };
            Failure::new(code, "stopped; progress is saved")
                .why(broken)
                .next("fix the cause, then repeat the command to resume")
        }
        RunWorkerError::TooManyParked { .. } => {
            Failure::new(Code::Incomplete, "stopped because of too many failures").why(error).next(
                format!(
                    "fix the command, run gossip retry {id} --all, then repeat the command; \
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

/// Fails if the commands are to use the terminal and cannot.
fn check_terminal(args: &WorkArgs, stream: bool) -> Result<(), Failure> {
    if !args.tty {
        return Ok(());
    }
    let refused = |why: &str| Failure::new(Code::Usage, "--tty cannot be used here").why(why);
    if args.jobs.is_some_and(|jobs| jobs.get() > 1) {
        return Err(refused("several commands would compete for the keyboard").next("use -j 1"));
    }
    if stream {
        return Err(refused("a command with --stream reads items, not the keyboard"));
    }
    // Opened and not looked up: the path exists without a controlling terminal as well.
    match File::options().read(true).write(true).open("/dev/tty") {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(&format!("there is no terminal: {error}"))),
    }
}

pub(crate) fn jobs(args: &WorkArgs) -> usize {
    if args.tty {
        return 1;
    }
    args.jobs.map_or_else(processors, NonZeroUsize::get)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
