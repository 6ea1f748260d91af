//! `run`: looking at runs and steering them.

use gossip::Totals;
use gossip::coordination::{
    DeleteRunError, GetRunError, RunManagement as _, RunStatus, RunTransitionError, ShardFilter,
    ShardStatus, ShardSummary,
};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{
    self, Clock as _, Job, ReadJobError, SystemClock, collect_abandoned, fresh_op_id,
};
use gossip::store::Coordinator;

use crate::args::{Format, Global, RunCommand};
use crate::certificate::{self, Settled};
use crate::console::Console;
use crate::failure::{Code, Failure, Unreadable};
use crate::opening::Notices;
use crate::output::{self, Record};
use crate::watch::{self, Watched};
use crate::{duration, exec, store};

/// Runs that one listing asks for at a time.
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
            show(global, Watched { coordinator, tenant, run, patience: watch }, console)?;
        }
        RunCommand::Pause(arg) => {
            let steer = Steer { coordinator, tenant, run: RunId::from_raw(arg.run) };
            steer.pause(global, console)?;
        }
        RunCommand::Resume(arg) => {
            let steer = Steer { coordinator, tenant, run: RunId::from_raw(arg.run) };
            steer.resume(global, console)?;
        }
        RunCommand::Cancel(arg) => {
            let steer = Steer { coordinator, tenant, run: RunId::from_raw(arg.run) };
            steer.cancel(global, console)?;
        }
        RunCommand::Export { run, key, to } => {
            let settled = Settled { coordinator, tenant, run: RunId::from_raw(run.run) };
            return certificate::export(settled, &key, to.as_deref(), console);
        }
        RunCommand::Verify { run, source } => {
            let settled = Settled { coordinator, tenant, run: RunId::from_raw(run.run) };
            return certificate::verify_run(global, settled, source, console);
        }
        RunCommand::Rm { run, damaged } => {
            let steer = Steer { coordinator, tenant, run: RunId::from_raw(run.run) };
            steer.rm(global, damaged, console)?;
        }
    }
    Ok(Code::Complete)
}

/// Shows what can be read, and fails if something cannot: whoever looks only at the exit code hears
/// of it.
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
            // Deleted while we looked.
            Err(failure) if failure.code == Code::Usage => {}
            Err(failure) if failure.unreadable.is_some() => {
                records.push(named(run).with("status", "unreadable"));
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
        console.note(&format!("run {id:016x} cannot be read ({why}){remedy}"));
    }
    match unreadable.len() as u64 {
        0 => Ok(()),
        runs => {
            let runs = output::count(runs, "run");
            Err(Failure::new(Code::Store, format!("{runs} cannot be read")))
        }
    }
}

/// The runs of a tenant; with `active` those that are not over.
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

/// How to be rid of a run with a record that cannot be read. If the run itself can be, it is a
/// record of one of its shards, and the run is ended and deleted as any other.
fn remedy(coordinator: &mut Coordinator, tenant: TenantId, run: RunId) -> String {
    let id = format!("{:016x}", run.as_raw());
    let typed = match coordinator.get_run(tenant, run) {
        Ok(record) if record.status().is_terminal() => format!("gossip run rm {id} deletes it"),
        Ok(_) => format!("gossip run cancel {id}, then gossip run rm {id} deletes it"),
        Err(_) => format!("gossip run rm {id} --damaged deletes it"),
    };
    format!("; if it is damaged, {typed}")
}

/// A run of which only the id is known.
fn named(run: RunId) -> Record {
    Record::new().with("run", format!("{:016x}", run.as_raw()))
}

fn show(global: &Global, mut watched: Watched<'_>, console: &Console) -> Result<(), Failure> {
    let (tenant, run) = (watched.tenant, watched.run);
    let job = job_of(watched.coordinator, tenant, run).ok();
    let seen = watched.progress(job.as_ref())?;
    let coordinator = watched.coordinator;
    let (record, unread) =
        (describe(coordinator, tenant, run)?, tally(coordinator, tenant, run)?.unread);
    let config = coordinator.get_run(tenant, run).map_err(|error| not_found(run, &error))?;
    let command = job.map(|job| {
        let words = job.command.iter().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>()
    });
    let record = watch::tell(global.output, record, &seen)
        .with("lease", duration::show(config.config().lease_duration()))
        .with("retries", config.config().max_shard_retries())
        .with("created_at", config.created_at().as_raw())
        .with("completed_at", config.completed_at().map(|at| at.as_raw()))
        .with("command", command);
    output::one(global.output, &record)?;
    if seen.shards_parked > 0 {
        let id = format!("{:016x}", run.as_raw());
        console.note(&format!(
            "gossip shard list {id} --parked shows what is set aside, \
             gossip shard unpark {id} --all brings it back"
        ));
    }
    if unread > 0 {
        console.note(&format!(
            "{} could not be read; whoever met them has told which, \
             and its command with --restart goes through all of them anew",
            output::count(unread, "key")
        ));
    }
    Ok(())
}

/// What a listing shows of a run.
fn describe(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Record, Failure> {
    let record = coordinator.get_run(tenant, run).map_err(|error| not_found(run, &error))?;
    let rows = rows(coordinator, tenant, run, ShardFilter::all())?;
    let tally = Totals::of(&rows);
    let count = |status: ShardStatus| rows.iter().filter(|row| row.status == status).count();
    let is_settled = !rows.iter().any(|row| row.status == ShardStatus::Active);
    let status = match record.status() {
        RunStatus::Active if record.is_paused() => "paused",
        // Nobody works on it until something is brought back.
        RunStatus::Active if is_settled && tally.parked > 0 => "incomplete",
        status => outcome_word(status, &tally),
    };
    let job = rows.first().and_then(|row| Job::decode(&row.metadata).ok());
    let described = Record::new()
        .with("run", format!("{:016x}", run.as_raw()))
        .with("status", status)
        .with("keys", tally.keys)
        .with("unread", tally.unread)
        .with("findings", tally.findings)
        .with("shards", tally.shards)
        .with("done", count(ShardStatus::Done))
        .with("parked", tally.parked)
        .with("leased", rows.iter().filter(|row| row.leased).count());
    Ok(match job {
        Some(job) => {
            use std::os::unix::ffi::OsStrExt as _;
            described.with_bytes(["source", "source_hex"], job.source.as_bytes())
        }
        None => described,
    })
}

struct Steer<'c> {
    coordinator: &'c mut Coordinator,
    tenant: TenantId,
    run: RunId,
}

impl Steer<'_> {
    fn pause(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let paused = self.coordinator.pause_run(now, self.tenant, self.run, op_id);
        paused.map_err(|error| transition(self.run, "paused", &error))?;
        console.note("paused; owners give their shards back when they renew");
        self.tell(global, "paused")
    }

    fn resume(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let resumed = self.coordinator.resume_run(now, self.tenant, self.run, op_id);
        resumed.map_err(|error| transition(self.run, "resumed", &error))?;
        console.note("resumed");
        self.tell(global, status_word(RunStatus::Active))
    }

    fn cancel(self, global: &Global, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let cancelled = self.coordinator.cancel_run(now, self.tenant, self.run, op_id);
        cancelled.map_err(|error| transition(self.run, "cancelled", &error))?;
        console.note("cancelled; its workers stop when they renew");
        self.tell(global, status_word(RunStatus::Cancelled))
    }

    fn rm(self, global: &Global, damaged: bool, console: &Console) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let deleted = match damaged {
            true => self.coordinator.delete_damaged_run(now, self.tenant, self.run, op_id),
            false => self.coordinator.delete_run(now, self.tenant, self.run, op_id),
        };
        deleted.map_err(|error| not_deleted(self.run, error))?;
        console.note("deleted");
        let now = SystemClock::new().now();
        collect_abandoned(self.coordinator, now, self.tenant, &Notices(console));
        self.tell(global, "deleted")
    }

    /// What programs are told; people have read it on standard error.
    fn tell(&self, global: &Global, status: &str) -> Result<(), Failure> {
        match global.output {
            Format::Table => Ok(()),
            Format::Json | Format::Jsonl => {
                output::one(global.output, &named(self.run).with("status", status))
            }
        }
    }
}

/// Why a run was not deleted, and what to do about it.
fn not_deleted(run: RunId, error: DeleteRunError) -> Failure {
    match error {
        DeleteRunError::BackendError(error) => Failure::store(&error),
        DeleteRunError::RunNotFound => not_found(run, &GetRunError::RunNotFound),
        error @ DeleteRunError::NotTerminal { .. } => {
            let id = format!("{:016x}", run.as_raw());
            Failure::new(Code::Usage, "the run is not over")
                .why(error)
                .next(format!("gossip run cancel {id}, then gossip run rm {id}"))
        }
        error => Failure::new(Code::Usage, "it was not deleted").why(error),
    }
}

/// What all shards of a run say together.
pub(crate) fn tally(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Totals, Failure> {
    Ok(Totals::of(&rows(coordinator, tenant, run, ShardFilter::all())?))
}

/// The shards of a run.
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

/// What a run is about.
pub(crate) fn job_of(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<Job, Failure> {
    let job = runtime::job_of(coordinator, SystemClock::new().now(), tenant, run);
    job.map_err(|error| job_failure(run, &error))
}

/// Why what a run is about cannot be read.
pub(crate) fn job_failure(run: RunId, error: &ReadJobError) -> Failure {
    match error {
        ReadJobError::Run(error) => not_found(run, error),
        error => Failure::new(Code::Usage, "the run was not made by gossip exec").why(error),
    }
}

/// A run that is not there, or a store that does not say.
pub(crate) fn not_found(run: RunId, error: &GetRunError) -> Failure {
    match error {
        GetRunError::BackendError(error) => Failure::store(error),
        // The tenant of the question is that of the answer: the run is not there for anybody else.
        _ => Failure::new(Code::Usage, format!("there is no run {:016x}", run.as_raw()))
            .next("gossip run list shows the runs; check --store and --tenant"),
    }
}

fn transition(run: RunId, done: &str, error: &RunTransitionError) -> Failure {
    match error {
        RunTransitionError::BackendError(error) => Failure::store(error),
        RunTransitionError::RunNotFound => not_found(run, &GetRunError::RunNotFound),
        error @ RunTransitionError::RunTerminal { .. } => {
            Failure::new(Code::Usage, format!("the run was not {done}")).why(error).next(
                "what is over stays so: type its command again, with --restart if it was done",
            )
        }
        error => Failure::new(Code::Usage, format!("the run was not {done}")).why(error),
    }
}

/// A status in one word; a run is not called done if a key of it could not be read.
pub(crate) const fn outcome_word(status: RunStatus, tally: &Totals) -> &'static str {
    match status {
        RunStatus::Done if tally.unread > 0 => "incomplete",
        status => status_word(status),
    }
}

/// A status in one word.
pub(crate) const fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Initializing => "initializing",
        RunStatus::Active => "active",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}
