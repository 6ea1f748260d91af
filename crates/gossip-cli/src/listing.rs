//! `run list`, and what it shares with `run show`: the fields of a run.
//!
//! Status, counts and progress are read from the shards of a run, so a listing costs one read per
//! shard of each listed run. `--active` reads those of unfinished runs only.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::thread;
use std::time::Duration;

use gossip::Totals;
use gossip::coordination::{
    ParkReason, RunManagement as _, RunRecord, RunStatus, RunTerminalEvaluation, ShardStatus,
    ShardSummary, WorkerEntry, evaluate_run_terminal,
};
use gossip::identity::{RunId, TenantId, WorkerId};
use gossip::runtime::{
    Clock as _, Density, Host as _, Job, Presence, Progress, ProgressKind, ProgressMeter, RunLook,
    SystemClock, SystemHost, worker_of,
};
use gossip::store::Coordinator;

use crate::args::{Format, Global};
use crate::console::Console;
use crate::failure::{Code, Failure, Unreadable};
use crate::output::{self, Record};
use crate::{duration, progress, runs, watch};

/// Digits of an id that are shown at least, so that a short list does not show single letters.
const SHORT_ID_MIN: usize = 8;

const ID_DIGITS: usize = 16;

const COLUMNS: [&str; 8] = [
    "name",
    "status",
    "fraction:progress",
    "failed",
    "workers",
    "left_ms:eta",
    "created_at:age",
    "command",
];

const WIDE_COLUMNS: [&str; 16] = [
    "run",
    "name",
    "status",
    "fraction:progress",
    "keys",
    "failed",
    "unread",
    "workers",
    "left_ms:eta",
    "created_at:age",
    "shards",
    "done",
    "parked",
    "leased",
    "source",
    "command",
];

/// The state of a run at one time.
pub(crate) struct RunFacts {
    run: RunId,
    record: RunRecord,
    job: Option<Job>,
    look: RunLook,
    meter: ProgressMeter,
    progress: Progress,
    /// Live workers of the run.
    workers: usize,
}

impl RunFacts {
    /// Reads a run with its shards. Measures the source only of an unfinished run, because the
    /// total of a finished one is the number of its keys.
    pub(crate) fn read(
        coordinator: &mut Coordinator,
        tenant: TenantId,
        run: RunId,
        registered: &[WorkerEntry],
    ) -> Result<Self, Failure> {
        let record =
            coordinator.get_run(tenant, run).map_err(|error| runs::not_found(run, &error))?;
        let look = RunLook::take(coordinator, SystemClock::new().now(), tenant, run)
            .map_err(|error| runs::not_found(run, &error))?;
        // From the shards that were read already, which saves a request for each listed run.
        let job = runs::stored_job(look.shards());
        let density = match &job {
            Some(job) if !look.status.is_terminal() => watch::density_of_job(job),
            Some(_) | None => Density::default(),
        };
        let mut meter = ProgressMeter::new(density);
        let progress = meter.observe(&look);
        let workers = match look.status.is_terminal() {
            true => 0,
            false => workers_of(run, look.shards(), registered).len(),
        };
        Ok(Self { run, record, job, look, meter, progress, workers })
    }

    /// Returns whether a worker holds a shard, so that another sample shows a speed.
    fn is_worked_on(&self) -> bool {
        self.look.status == RunStatus::Active
            && !self.look.paused
            && self.progress.shards_leased > 0
    }

    fn sample_again(&mut self, coordinator: &mut Coordinator, tenant: TenantId) {
        // A run that was deleted meanwhile keeps its first sample.
        if let Ok(look) = RunLook::take(coordinator, SystemClock::new().now(), tenant, self.run) {
            self.progress = self.meter.observe(&look);
        }
    }

    /// Returns the fields of a row of the list; `name` is shown for a run without a name.
    fn row(&self, name: &str) -> Record {
        let eta = self.progress.eta.filter(|_| !self.look.status.is_terminal());
        let record = self
            .counts(name)
            .with("total", self.progress.total)
            .with("total_kind", self.progress.kind.to_string())
            .with_shown("fraction", self.progress.fraction, short_progress(&self.progress))
            .with_shown(
                "left_ms",
                eta.map(|eta| eta.left),
                eta.map_or_else(|| "-".to_owned(), |eta| duration::rough(eta.left)),
            )
            .with("left_error_ms", eta.map(|eta| eta.error));
        self.with_origin(record)
    }

    /// Returns the fields of one run, with a progress that was sampled for longer.
    pub(crate) fn shown(&self, format: Format, progress: &Progress) -> Record {
        let (config, is_over) = (self.record.config(), self.look.status.is_terminal());
        let record = self.counts("-");
        let record = match format.is_table() {
            true => record
                .with("progress", progress::keys_of(progress))
                .with("left", progress::left(progress).filter(|_| !is_over)),
            false => record
                .with("total", progress.total)
                .with("total_kind", progress.kind.to_string())
                .with("fraction", progress.fraction)
                .with("left_ms", progress.eta.map(|eta| eta.left))
                .with("left_error_ms", progress.eta.map(|eta| eta.error)),
        };
        let record = record
            .with("lease", duration::show(config.lease_duration()))
            .with("retries", config.max_shard_retries());
        self.with_origin(record)
    }

    fn counts(&self, name: &str) -> Record {
        let rows = self.look.shards();
        let totals = Totals::of(rows);
        let intact = || rows.iter().filter(|row| row.damage.is_none());
        // Of a finished run no worker holds anything; its last leases merely were not given back.
        let leased = match self.record.status().is_terminal() {
            true => 0,
            false => intact().filter(|row| row.leased).count(),
        };
        let given = self.record.config().name().map(|name| name.to_string());
        let shown = given.clone().unwrap_or_else(|| name.to_owned());
        runs::id_record(self.run)
            .with_shown("name", given, shown)
            .with("status", self.status(&totals))
            .with("keys", totals.keys)
            .with("failed", failed(rows))
            .with("unread", totals.unread)
            .with("findings", totals.findings)
            .with("shards", totals.shards)
            .with("done", intact().filter(|row| row.status == ShardStatus::Done).count())
            .with("parked", totals.parked)
            .with("damaged", totals.damaged)
            .with("leased", leased)
            .with("workers", self.workers)
    }

    /// Adds times, source and command.
    fn with_origin(&self, record: Record) -> Record {
        let record = record
            .with_time("created_at", Some(self.record.created_at()))
            .with_time("completed_at", self.record.completed_at());
        let Some(job) = &self.job else { return record };
        let words = job.command.iter().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<_> = words.collect();
        record.with_bytes(["source", "source_hex"], job.source.as_bytes()).with_shown(
            "command",
            words,
            typed(&job.command),
        )
    }

    /// Returns the status in one word.
    fn status(&self, totals: &Totals) -> &'static str {
        let is_active =
            |row: &&ShardSummary| row.damage.is_none() && row.status == ShardStatus::Active;
        let active = self.look.shards().iter().filter(is_active);
        let progress = gossip::coordination::RunProgress {
            active: active.count() as u64,
            parked: totals.parked,
            damaged: totals.damaged,
            ..Default::default()
        };
        let end = evaluate_run_terminal(&progress);
        match self.record.status() {
            // Before the next line: a paused run is resumed first, whatever else it needs.
            RunStatus::Active if self.record.is_paused() => "paused",
            // Nothing is left to claim until a shard is unparked or repaired.
            RunStatus::Active if end == RunTerminalEvaluation::HasFailures => "incomplete",
            status => runs::outcome_word(status, totals),
        }
    }
}

/// Counts the items that failed for good: each is parked alone.
fn failed(rows: &[ShardSummary]) -> usize {
    rows.iter().filter(|row| row.park_reason == Some(ParkReason::Poisoned)).count()
}

/// Returns the live workers of a run: the registered ones, and those that hold a shard. Those that
/// are known to be gone are left out.
pub(crate) fn workers_of(
    run: RunId,
    rows: &[ShardSummary],
    registered: &[WorkerEntry],
) -> BTreeSet<WorkerId> {
    let is_gone = |worker: WorkerId| {
        let entry = registered.iter().find(|entry| entry.worker == worker);
        let process = entry.and_then(|entry| entry.process);
        // Only processes of this host can be seen; those of others count until their lease ends.
        process.is_some_and(|process| SystemHost.presence(&process) == Presence::Gone)
    };
    let of_run = registered.iter().map(|entry| entry.worker);
    let of_run = of_run.filter(|worker| *worker == worker_of(run, worker.as_raw()));
    let holders = rows.iter().filter(|row| row.leased).filter_map(|row| row.owner);
    of_run.chain(holders).filter(|worker| !is_gone(*worker)).collect()
}

/// Formats progress in few letters: `39 %`, `~39 %` of an estimate, or the number of done keys.
fn short_progress(progress: &Progress) -> String {
    match (progress.kind, progress.percent) {
        (ProgressKind::Exact, Some(percent)) => format!("{percent} %"),
        (ProgressKind::Estimated, Some(percent)) => format!("~{percent} %"),
        (ProgressKind::Exact | ProgressKind::Estimated | ProgressKind::Unknown, _) => {
            output::count(progress.keys, "key")
        }
    }
}

/// Formats a command as it is typed: words that a shell would change are quoted.
pub(crate) fn typed(command: &[std::ffi::OsString]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+{}".contains(letter);
    let words = command.iter().map(|word| {
        // Escaped only where it could harm the terminal: a copy of the rest can be typed again.
        let word = match word.to_str().filter(|word| !word.chars().any(char::is_control)) {
            Some(word) => word.to_owned(),
            None => progress::escaped(word.as_bytes()),
        };
        match !word.is_empty() && word.chars().all(plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Lists the runs, newest first. Unreadable runs are listed last and make the command fail, so that
/// a script notices them by the exit code.
///
/// If a run is being worked on, it is sampled twice, `sample` apart, because the time left needs a
/// rate.
pub(crate) fn list(
    global: &Global,
    coordinator: &mut Coordinator,
    tenant: TenantId,
    (active, sample): (bool, Duration),
    console: &Console,
) -> Result<(), Failure> {
    let registered = runs::registered(coordinator, tenant);
    // All of them, also with `--active`: a short id must not begin another run's.
    let all = runs::ids(coordinator, tenant)?;
    let unfinished = if active { Some(runs::active(coordinator, tenant)?) } else { None };
    let chosen = match unfinished {
        Some(unfinished) if !unfinished.is_partial => unfinished.ids,
        // A damaged run may be unfinished, and only the read of each run shows which one it is.
        Some(_) | None => all.clone(),
    };
    let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
    for run in chosen {
        match RunFacts::read(coordinator, tenant, run, &registered) {
            // Deleted since the ids were listed.
            Err(failure) if failure.code == Code::Usage => {}
            // One damaged run must not hide the others.
            Err(failure) if failure.unreadable.is_some() => unreadable.push((run, failure)),
            facts => {
                let facts = facts?;
                if !active || !facts.look.status.is_terminal() {
                    listed.push(facts);
                }
            }
        }
    }
    // One wait for all, and none if nothing would change meanwhile.
    if !sample.is_zero() && listed.iter().any(RunFacts::is_worked_on) {
        thread::sleep(sample);
        for facts in listed.iter_mut().filter(|facts| facts.is_worked_on()) {
            facts.sample_again(coordinator, tenant);
        }
    }
    listed.sort_by_key(|facts| (std::cmp::Reverse(facts.record.created_at()), facts.run));
    let short = short_ids(&all);
    let short_of = |run: RunId| short.get(&run).map_or("", String::as_str);
    let mut records: Vec<_> = listed.iter().map(|facts| facts.row(short_of(facts.run))).collect();
    records.extend(unreadable.iter().map(|(run, _)| {
        runs::id_record(*run)
            .with_shown("name", None::<String>, short_of(*run))
            .with("status", "unreadable")
    }));
    let columns = if global.output.is_wide() { &WIDE_COLUMNS[..] } else { &COLUMNS[..] };
    output::list(global.output, columns, &records)?;
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

/// Returns the shortest beginning of each id that no other has; `ids` are in ascending order.
fn short_ids(ids: &[RunId]) -> BTreeMap<RunId, String> {
    let text = |run: &RunId| format!("{:016x}", run.as_raw());
    let shared = |one: &str, other: &str| {
        one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
    };
    let short = |(index, run): (usize, &RunId)| {
        let own = text(run);
        // Sorted, so the longest common beginning is that with a neighbour.
        let neighbours = [index.checked_sub(1), Some(index + 1)];
        let neighbours = neighbours.into_iter().flatten().filter_map(|at| ids.get(at));
        let longest = neighbours.map(|other| shared(&own, &text(other))).max().unwrap_or(0);
        // One digit more than is shared separates them.
        let digits = (longest + 1).clamp(SHORT_ID_MIN, ID_DIGITS);
        (*run, own[..digits].to_owned())
    };
    ids.iter().enumerate().map(short).collect()
}

/// Describes how to delete a run with an unreadable record. If the run's own record is readable,
/// the damaged one belongs to a shard, and the run is cancelled and deleted as usual.
fn remedy(coordinator: &mut Coordinator, tenant: TenantId, run: RunId) -> String {
    let id = format!("{:016x}", run.as_raw());
    let command = match coordinator.get_run(tenant, run) {
        Ok(record) if record.status().is_terminal() => format!("gossip run rm {id}"),
        Ok(_) => format!("gossip run cancel {id} && gossip run rm {id}"),
        // Cancelling needs the record that cannot be read.
        Err(_) => format!("gossip run rm {id} --damaged"),
    };
    format!(". If it is damaged, delete it: `{command}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_unique() {
        let ids = [0x1111_2222_3333_4444, 0x1111_2222_3333_5555, 0x1111_2222_9999_0000, u64::MAX];
        let ids = ids.map(RunId::from_raw);
        let short = short_ids(&ids);
        let texts: Vec<_> = ids.iter().map(|id| short[id].as_str()).collect();
        assert_eq!(texts, ["1111222233334", "1111222233335", "111122229", "ffffffff"]);
        assert_eq!(short_ids(&ids[..1])[&ids[0]], "11112222");
    }

    #[test]
    fn commands_are_quoted_where_a_shell_would_change_them() {
        let words = |words: &[&str]| typed(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(words(&["wc", "-c", "{}"]), "wc -c {}");
        assert_eq!(words(&["sh", "-c", "echo $1", "it's", ""]), "sh -c 'echo $1' 'it'\\''s' ''");
    }
}
