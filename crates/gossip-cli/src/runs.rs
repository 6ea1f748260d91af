//! `run`: creates, shows and controls runs.

use gossip::Totals;
use gossip::coordination::{
    DeleteRunError, GetRunError, RunManagement as _, RunProgress, RunStatus, RunTerminalEvaluation,
    RunTransitionError, ShardDamage, ShardFilter, ShardStatus, ShardSummary, evaluate_run_terminal,
};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{
    self, Clock as _, Job, ReadJobError, SystemClock, collect_abandoned, fresh_op_id,
};
use gossip::sources::{KeyFormat, Source};
use gossip::store::Coordinator;

use crate::args::{Format, Global, RunCommand};
use crate::certificate::{self, FinishedRun};
use crate::console::Console;
use crate::failure::{Code, Failure, Unreadable};
use crate::opening::Notices;
use crate::output::{self, Record};
use crate::shards::damaged_text;
use crate::watch::{self, Sampler};
use crate::{duration, exec, store};

/// Runs per page of a listing.
const PAGE: usize = 256;

pub(crate) fn run(
    global: &Global,
    command: RunCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let backend = match &command {
        RunCommand::Create(_) => store::open(global)?,
        RunCommand::List { .. }
        | RunCommand::Show { .. }
        | RunCommand::Pause(_)
        | RunCommand::Resume(_)
        | RunCommand::Cancel(_)
        | RunCommand::Fail(_)
        | RunCommand::Export { .. }
        | RunCommand::Verify { .. }
        | RunCommand::Rm { .. } => store::open_existing(global)?,
    };
    let tenant = store::tenant(global)?;
    let coordinator = &mut backend.coordinator();
    match command {
        RunCommand::Create(args) => return exec::create(global, &backend, &args, console),
        RunCommand::List { active } => list(global, coordinator, tenant, active, console)?,
        RunCommand::Show { run, watch } => {
            let run = RunId::from_raw(run.run);
            show(global, Sampler { coordinator, tenant, run, duration: watch }, console)?;
        }
        RunCommand::Pause(arg) => {
            let control = Control { coordinator, tenant, run: RunId::from_raw(arg.run) };
            control.pause(global, console)?;
        }
        RunCommand::Resume(arg) => {
            let control = Control { coordinator, tenant, run: RunId::from_raw(arg.run) };
            control.resume(global, console)?;
        }
        RunCommand::Cancel(arg) => {
            let control = Control { coordinator, tenant, run: RunId::from_raw(arg.run) };
            control.cancel(global, console)?;
        }
        RunCommand::Fail(arg) => {
            let control = Control { coordinator, tenant, run: RunId::from_raw(arg.run) };
            control.fail(global, console)?;
        }
        RunCommand::Export { run, key, to } => {
            let run = FinishedRun { coordinator, tenant, run: RunId::from_raw(run.run), console };
            return certificate::export(run, &key, to.as_deref(), console);
        }
        RunCommand::Verify { run, source } => {
            let run = FinishedRun { coordinator, tenant, run: RunId::from_raw(run.run), console };
            return certificate::verify_run(global, run, source, console);
        }
        RunCommand::Rm { run, damaged } => {
            let control = Control { coordinator, tenant, run: RunId::from_raw(run.run) };
            control.rm(global, damaged, console)?;
        }
    }
    Ok(Code::Complete)
}

/// Lists the runs. Unreadable runs are listed as such and make the command fail, so that a script
/// notices them by the exit code.
fn list(
    global: &Global,
    coordinator: &mut Coordinator,
    tenant: TenantId,
    active: bool,
    console: &Console,
) -> Result<(), Failure> {
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    for run in ids(coordinator, tenant, active)? {
        match describe(coordinator, tenant, run) {
            // Deleted since the ids were listed.
            Err(failure) if failure.code == Code::Usage => {}
            Err(failure) if failure.unreadable.is_some() => {
                records.push(id_record(run).with("status", "unreadable"));
                unreadable.push((run, failure));
            }
            described => records.push(described?),
        }
    }
    let columns =
        ["run", "status", "keys", "unread", "shards", "done", "parked", "leased", "source"];
    output::list(global.output, &columns, &records)?;
    for (run, failure) in &unreadable {
        let (id, why) = (run.as_raw(), failure.why.as_deref().unwrap_or_default());
        let remedy = match failure.unreadable {
            Some(Unreadable::Record) => remedy(coordinator, tenant, *run),
            Some(Unreadable::Store) | None => String::new(),
        };
        console.note(&format!("run {id:016x} cannot be read: {why}{remedy}"));
    }
    match unreadable.len() as u64 {
        0 => Ok(()),
        runs => {
            let runs = output::count(runs, "run");
            Err(Failure::new(Code::Store, format!("{runs} cannot be read")))
        }
    }
}

/// Returns the runs of a tenant; with `active` the unfinished ones.
fn ids(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    active: bool,
) -> Result<Vec<RunId>, Failure> {
    let (mut runs, mut after) = (Vec::new(), None);
    loop {
        let before = runs.len();
        let listed = match active {
            true => coordinator.list_active_runs_into(tenant, after, PAGE, &mut runs),
            false => coordinator.list_runs_into(tenant, after, PAGE, &mut runs),
        };
        listed.map_err(|error| Failure::store(&error))?;
        if runs.len() - before < PAGE {
            return Ok(runs);
        }
        after = runs.last().copied();
    }
}

/// Describes how to delete a run with an unreadable record. If the run's own record is readable,
/// the damaged one belongs to a shard, and the run is cancelled and deleted as usual.
fn remedy(coordinator: &mut Coordinator, tenant: TenantId, run: RunId) -> String {
    let id = format!("{:016x}", run.as_raw());
    let command = match coordinator.get_run(tenant, run) {
        Ok(record) if record.status().is_terminal() => format!("gossip run rm {id}"),
        Ok(_) => format!("gossip run cancel {id} && gossip run rm {id}"),
        Err(_) => format!("gossip run rm {id} --damaged"),
    };
    format!(". If it is damaged, delete it: `{command}`")
}

/// Returns a record with only the id of a run.
fn id_record(run: RunId) -> Record {
    Record::new().with("run", format!("{:016x}", run.as_raw()))
}

fn show(global: &Global, mut sampler: Sampler<'_>, console: &Console) -> Result<(), Failure> {
    let (tenant, run) = (sampler.tenant, sampler.run);
    let job = job_of(sampler.coordinator, tenant, run).ok();
    let progress = sampler.progress(job.as_ref())?;
    let coordinator = sampler.coordinator;
    let record = describe(coordinator, tenant, run)?;
    let unread = totals(coordinator, tenant, run)?.unread;
    let config = coordinator.get_run(tenant, run).map_err(|error| not_found(run, &error))?;
    let command = job.map(|job| {
        let words = job.command.iter().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>()
    });
    let record = watch::with_progress(global.output, record, &progress)
        .with("lease", duration::show(config.config().lease_duration()))
        .with("retries", config.config().max_shard_retries())
        .with("created_at", config.created_at().as_raw())
        .with("completed_at", config.completed_at().map(|at| at.as_raw()))
        .with("command", command);
    output::one(global.output, &record)?;
    if progress.shards_parked > 0 {
        let id = format!("{:016x}", run.as_raw());
        console.note(&format!(
            "{} parked. List: `gossip shard list {id} --parked`. \
             Retry: `gossip shard unpark {id} --all`, then repeat the command of the run",
            output::count(progress.shards_parked, "shard")
        ));
    }
    let damaged = rows(coordinator, tenant, run, ShardFilter::damaged())?;
    if let Some(text) = damaged_text(run, &damaged.iter().collect::<Vec<_>>()) {
        console.note(&text);
    }
    if unread > 0 {
        console.note(&format!(
            "{} could not be read; the worker printed which. \
             Fix the source, then add --restart to the command to process all items again",
            output::count(unread, "item")
        ));
    }
    Ok(())
}

/// Returns the fields of a run that a listing shows.
fn describe(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Record, Failure> {
    let record = coordinator.get_run(tenant, run).map_err(|error| not_found(run, &error))?;
    let rows = rows(coordinator, tenant, run, ShardFilter::all())?;
    let totals = Totals::of(&rows);
    let intact = || rows.iter().filter(|row| row.damage.is_none());
    let count = |status: ShardStatus| intact().filter(|row| row.status == status).count();
    let progress = RunProgress {
        active: count(ShardStatus::Active) as u64,
        parked: totals.parked,
        damaged: totals.damaged,
        ..RunProgress::default()
    };
    let end = evaluate_run_terminal(&progress);
    let status = match record.status() {
        RunStatus::Active if record.is_paused() => "paused",
        // Nothing is left to claim until a shard is unparked or repaired.
        RunStatus::Active if end == RunTerminalEvaluation::HasFailures => "incomplete",
        status => outcome_word(status, &totals),
    };
    let job = stored_job(&rows);
    let described = Record::new()
        .with("run", format!("{:016x}", run.as_raw()))
        .with("status", status)
        .with("keys", totals.keys)
        .with("unread", totals.unread)
        .with("findings", totals.findings)
        .with("shards", totals.shards)
        .with("done", count(ShardStatus::Done))
        .with("parked", totals.parked)
        .with("damaged", totals.damaged)
        .with("leased", intact().filter(|row| row.leased).count());
    Ok(match job {
        Some(job) => {
            use std::os::unix::ffi::OsStrExt as _;
            described.with_bytes(["source", "source_hex"], job.source.as_bytes())
        }
        None => described,
    })
}

struct Control<'c> {
    coordinator: &'c mut Coordinator,
    tenant: TenantId,
    run: RunId,
}

impl Control<'_> {
    fn pause(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let paused = self.coordinator.pause_run(now, self.tenant, self.run, op_id);
        paused.map_err(|error| transition(self.run, "paused", &error))?;
        console.note("paused; workers release their shards at their next lease renewal");
        self.print(global, "paused")
    }

    fn resume(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let resumed = self.coordinator.resume_run(now, self.tenant, self.run, op_id);
        resumed.map_err(|error| transition(self.run, "resumed", &error))?;
        console.note("resumed");
        self.print(global, status_word(RunStatus::Active))
    }

    fn cancel(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let cancelled = self.coordinator.cancel_run(now, self.tenant, self.run, op_id);
        cancelled.map_err(|error| transition(self.run, "cancelled", &error))?;
        console.note("cancelled; its workers stop at their next lease renewal");
        self.print(global, status_word(RunStatus::Cancelled))
    }

    fn fail(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let failed = self.coordinator.fail_run(now, self.tenant, self.run, op_id);
        failed.map_err(|error| transition(self.run, "marked as failed", &error))?;
        console.note("failed; its workers stop at their next lease renewal");
        self.print(global, status_word(RunStatus::Failed))
    }

    fn rm(self, global: &Global, damaged: bool, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let deleted = match damaged {
            true => self.coordinator.delete_damaged_run(now, self.tenant, self.run, op_id),
            false => self.coordinator.delete_run(now, self.tenant, self.run, op_id),
        };
        let deleted = deleted.map_err(|error| not_deleted(self.run, error))?;
        // A repetition completes an interrupted deletion, and is harmless otherwise.
        console.note(if deleted.is_replay() { "already deleted" } else { "deleted" });
        let now = SystemClock::new().now();
        collect_abandoned(self.coordinator, now, self.tenant, &Notices::for_worker(console));
        self.print(global, "deleted")
    }

    /// Prints the new status as JSON; the table format has it on standard error.
    fn print(&self, global: &Global, status: &str) -> Result<(), Failure> {
        match global.output {
            Format::Table => Ok(()),
            Format::Json | Format::Jsonl => {
                output::one(global.output, &id_record(self.run).with("status", status))
            }
        }
    }
}

/// Describes why a run was not deleted.
fn not_deleted(run: RunId, error: DeleteRunError) -> Failure {
    match error {
        DeleteRunError::BackendError(error) => Failure::store(&error),
        DeleteRunError::RunNotFound => not_found(run, &GetRunError::RunNotFound),
        DeleteRunError::NotTerminal { status } => {
            let id = format!("{:016x}", run.as_raw());
            Failure::new(Code::Usage, "the run is not finished")
                .why(format!("it is {}", status_word(status)))
                .next(format!("cancel it first: gossip run cancel {id} && gossip run rm {id}"))
        }
        error => Failure::new(Code::Usage, "the run was not deleted").why(error),
    }
}

/// Adds up the shards of a run.
pub(crate) fn totals(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Totals, Failure> {
    Ok(Totals::of(&rows(coordinator, tenant, run, ShardFilter::all())?))
}

/// Returns the shards of a run.
pub(crate) fn rows(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
    filter: ShardFilter,
) -> Result<Vec<ShardSummary>, Failure> {
    let (mut rows, now) = (Vec::new(), SystemClock::new().now());
    let listed = coordinator.list_shards_into(now, tenant, run, filter, &mut rows);
    listed.map_err(|error| not_found(run, &error))?;
    Ok(rows)
}

/// Returns the source and command of a run, if its shards describe them.
fn stored_job(rows: &[ShardSummary]) -> Option<Job> {
    // Every shard has it; a damaged one may have lost it.
    let readable = rows.iter().find(|row| row.damage.is_none_or(ShardDamage::has_range));
    readable.and_then(|row| Job::of_shard(&row.metadata).ok())
}

/// Returns how the keys of a run are written. Does not open the source, which may be on another
/// machine.
pub(crate) fn key_format(rows: &[ShardSummary]) -> KeyFormat {
    let source = stored_job(rows).and_then(|job| Source::restore(&job.source, job.options).ok());
    source.map_or(KeyFormat::Bytes, |source| source.key_format())
}

/// Returns the source and command of a run.
pub(crate) fn job_of(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Job, Failure> {
    let job = runtime::job_of(coordinator, SystemClock::new().now(), tenant, run);
    job.map_err(|error| job_failure(run, &error))
}

/// Describes why the source and command of a run cannot be read.
pub(crate) fn job_failure(run: RunId, error: &ReadJobError) -> Failure {
    match error {
        ReadJobError::Run(error) => not_found(run, error),
        error => Failure::new(Code::Usage, "the run was not created by gossip exec").why(error),
    }
}

/// Describes a failed lookup of a run.
pub(crate) fn not_found(run: RunId, error: &GetRunError) -> Failure {
    match error {
        GetRunError::BackendError(error) => Failure::store(error),
        // A run of another tenant looks the same as a missing one.
        _ => Failure::new(Code::Usage, format!("no such run: {:016x}", run.as_raw()))
            .next("list the runs: gossip run list; check --store and --tenant"),
    }
}

fn transition(run: RunId, done: &str, error: &RunTransitionError) -> Failure {
    match error {
        RunTransitionError::BackendError(error) => Failure::store(error),
        RunTransitionError::RunNotFound => not_found(run, &GetRunError::RunNotFound),
        RunTransitionError::RunTerminal { status } => {
            let failure = Failure::new(Code::Usage, format!("the run was not {done}"))
                .why(format!("it is already {}", status_word(*status)));
            failure.next(match status {
                RunStatus::Done => "start a new run: repeat its command with --restart",
                _ => "start a new run: repeat its command",
            })
        }
        error => Failure::new(Code::Usage, format!("the run was not {done}")).why(error),
    }
}

/// Returns the status in one word; a run with unread items or damaged shards is not done.
pub(crate) const fn outcome_word(status: RunStatus, totals: &Totals) -> &'static str {
    match status {
        RunStatus::Done if totals.unread > 0 || totals.damaged > 0 => "incomplete",
        status => status_word(status),
    }
}

/// Returns the status in one word.
pub(crate) const fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Initializing => "initializing",
        RunStatus::Active => "active",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}
