//! `run`: creates, shows and controls runs.

use gossip::Totals;
use gossip::coordination::{
    DeleteRunError, GetRunError, RunManagement as _, RunStatus, RunTransitionError, ShardDamage,
    ShardFilter, ShardSummary, WorkerEntry,
};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{
    self, Clock as _, Job, ReadJobError, SystemClock, collect_abandoned, fresh_op_id,
};
use gossip::sources::{KeyFormat, Source};
use gossip::store::Coordinator;

use crate::args::{Global, RunArg, RunCommand};
use crate::certificate::{self, FinishedRun, Written};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::listing::RunFacts;
use crate::opening::Notices;
use crate::output::{self, Record};
use crate::shards::damaged_text;
use crate::sources;
use crate::watch::Sampler;
use crate::{exec, listing, store};

/// Runs per page of a listing.
const PAGE: usize = 256;

pub(crate) fn run(
    global: &Global,
    command: RunCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let backend = match &command {
        // Only this one may create the store; the others would show an empty one for a mistyped
        // name.
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
        RunCommand::List { active, sample } => {
            listing::list(global, coordinator, tenant, (active, sample), console)?;
        }
        RunCommand::Show { run, sample } => {
            let run = run.find(coordinator, tenant)?;
            show(global, Sampler { coordinator, tenant, run, duration: sample }, console)?;
        }
        RunCommand::Pause(arg) => {
            Control::of(coordinator, tenant, &arg)?.pause(global, console)?;
        }
        RunCommand::Resume(arg) => {
            Control::of(coordinator, tenant, &arg)?.resume(global, console)?;
        }
        RunCommand::Cancel(arg) => {
            Control::of(coordinator, tenant, &arg)?.cancel(global, console)?;
        }
        RunCommand::Fail(arg) => {
            Control::of(coordinator, tenant, &arg)?.fail(global, console)?;
        }
        RunCommand::Export { run, key, to, html, no_command_in_proof } => {
            let run = run.find(coordinator, tenant)?;
            let states_command = !no_command_in_proof;
            let run = FinishedRun { coordinator, tenant, run, console, states_command };
            let to = Written { certificate: to.as_deref(), page: html.as_deref() };
            return certificate::export(run, &key, to, console);
        }
        RunCommand::Verify { run, source } => {
            let run = run.find(coordinator, tenant)?;
            let states_command = true;
            let run = FinishedRun { coordinator, tenant, run, console, states_command };
            return certificate::verify_run(global, run, source, console);
        }
        RunCommand::Rm { run, damaged } => {
            Control::of(coordinator, tenant, &run)?.rm(global, damaged, console)?;
        }
    }
    Ok(Code::Complete)
}

/// Returns the runs of a tenant.
pub(crate) fn ids(coordinator: &mut Coordinator, tenant: TenantId) -> Result<Vec<RunId>, Failure> {
    let (mut runs, mut after) = (Vec::new(), None);
    loop {
        let before = runs.len();
        let listed = coordinator.list_runs_into(tenant, after, PAGE, &mut runs);
        listed.map_err(|error| Failure::store(&error))?;
        // A short page is the last; a full one may be followed by an empty one.
        if runs.len() - before < PAGE {
            return Ok(runs);
        }
        after = runs.last().copied();
    }
}

/// The unfinished runs of a tenant.
pub(crate) struct ActiveRuns {
    pub(crate) ids: Vec<RunId>,
    /// Whether the record of another run is damaged, which may be unfinished.
    pub(crate) is_partial: bool,
}

/// Returns the unfinished runs of a tenant whose records can be read.
pub(crate) fn active(
    coordinator: &mut Coordinator,
    tenant: TenantId,
) -> Result<ActiveRuns, Failure> {
    let mut active = ActiveRuns { ids: Vec::new(), is_partial: false };
    loop {
        let after = active.ids.last().copied();
        let before = active.ids.len();
        match coordinator.list_active_runs_into(tenant, after, PAGE, &mut active.ids) {
            Ok(()) if active.ids.len() - before < PAGE => return Ok(active),
            Ok(()) => {}
            // The page lacks the damaged run, so a short one may be followed by another.
            Err(error) if error.is_of_record() => {
                active.is_partial = true;
                if active.ids.len() == before {
                    return Ok(active);
                }
            }
            Err(error) => return Err(Failure::store(&error)),
        }
    }
}

/// Returns a record with only the id of a run.
pub(crate) fn id_record(run: RunId) -> Record {
    Record::new().with("run", format!("{:016x}", run.as_raw()))
}

fn show(global: &Global, mut sampler: Sampler<'_>, console: &Console) -> Result<(), Failure> {
    let (tenant, run) = (sampler.tenant, sampler.run);
    // Optional: a run of another program, or a damaged one, is shown without it.
    let job = job_of(sampler.coordinator, tenant, run).ok();
    let progress = sampler.progress(job.as_ref())?;
    let coordinator = sampler.coordinator;
    let registered = registered(coordinator, tenant);
    let facts = RunFacts::read(coordinator, tenant, run, &registered)?;
    output::one(global.output, &facts.shown(global.output, &progress))?;
    if progress.shards_parked > 0 {
        let id = format!("{:016x}", run.as_raw());
        console.note(&format!(
            "{} parked. List: `gossip failed {id}`. \
             Retry: `gossip retry {id} --all`, then repeat the command of the run",
            output::count(progress.shards_parked, "shard")
        ));
    }
    let damaged = rows(coordinator, tenant, run, ShardFilter::damaged())?;
    if let Some(text) = damaged_text(run, &damaged.iter().collect::<Vec<_>>()) {
        console.note(&text);
    }
    if progress.unread > 0 {
        console.note(&format!(
            "{} could not be read. List: `gossip failed {:016x}`. \
             Fix the source, then add --restart to the command to process all items again",
            output::count(progress.unread, "item"),
            run.as_raw()
        ));
    }
    Ok(())
}

/// Returns the live workers of the tenant; none if the registry cannot be read, which costs only
/// the count of idle workers.
pub(crate) fn registered(coordinator: &mut Coordinator, tenant: TenantId) -> Vec<WorkerEntry> {
    let mut found = Vec::new();
    // Registered workers only add names and counts, so a failure must not hide the run.
    drop(coordinator.list_workers_into(SystemClock::new().now(), tenant, &mut found));
    found
}

struct Control<'c> {
    coordinator: &'c mut Coordinator,
    tenant: TenantId,
    run: RunId,
}

impl<'c> Control<'c> {
    fn of(
        coordinator: &'c mut Coordinator,
        tenant: TenantId,
        run: &RunArg,
    ) -> Result<Self, Failure> {
        let run = run.find(coordinator, tenant)?;
        Ok(Self { coordinator, tenant, run })
    }

    fn pause(self, global: &Global, console: &Console) -> Result<(), Failure> {
        // A fresh id for each command: typed again, it is a new request and no retry of the old
        // one.
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
        cancel(self.coordinator, self.tenant, self.run)?;
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
        // Now, and not with the next run: the user who deletes data expects that it leaves the
        // store.
        collect_abandoned(self.coordinator, now, self.tenant, &Notices::for_worker(console));
        self.print(global, "deleted")
    }

    /// Prints the new status as JSON; the table format has it on standard error.
    fn print(&self, global: &Global, status: &str) -> Result<(), Failure> {
        match global.output.is_table() {
            true => Ok(()),
            false => output::one(global.output, &id_record(self.run).with("status", status)),
        }
    }
}

/// Cancels a run.
pub(crate) fn cancel(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<(), Failure> {
    let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
    let cancelled = coordinator.cancel_run(now, tenant, run, op_id);
    cancelled.map(drop).map_err(|error| transition(run, "cancelled", &error))
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
pub(crate) fn stored_job(rows: &[ShardSummary]) -> Option<Job> {
    // Every shard has it; a damaged one may have lost it.
    let readable = rows.iter().find(|row| row.damage.is_none_or(ShardDamage::has_range));
    readable.and_then(|row| Job::of_shard(&row.metadata).ok())
}

/// Returns how the keys of a run are written. Does not open the source, which may be on another
/// machine.
pub(crate) fn key_format(rows: &[ShardSummary]) -> KeyFormat {
    source_of(rows).map_or(KeyFormat::Bytes, |source| source.key_format())
}

/// Returns the source of a run, if its shards describe it.
pub(crate) fn source_of(rows: &[ShardSummary]) -> Option<Source> {
    stored_job(rows).and_then(|job| sources::restore(&job.source, job.options).ok())
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
                // Without the option the command would report the finished run again.
                RunStatus::Done => "start a new run: repeat its command with --restart",
                RunStatus::Initializing
                | RunStatus::Active
                | RunStatus::Failed
                | RunStatus::Cancelled => "start a new run: repeat its command",
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
