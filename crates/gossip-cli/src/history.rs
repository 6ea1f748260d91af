//! `events`: the stored lifecycle events of a run, and new ones until it ends. It only reads.
//!
//! A line is printed for each event and for each gap. With `--follow`, the store's count of changes
//! says when to read again, if it has one; otherwise the store is read at intervals.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use gossip::coordination::{
    EventKind, GetRunError, RunManagement as _, ShardClaiming as _, StoredEvent,
};
use gossip::identity::{LogicalTime, Redacted, RunId, TenantId, WorkerId};
use gossip::runtime::{Clock as _, EventLog, LogEntry, SystemClock};
use gossip::store::Coordinator;
use serde_json::Value;

use crate::args::{EventsArgs, Global};
use crate::console::Console;
use crate::events::{self, Described};
use crate::failure::{Code, Failure};
use crate::output::{self, Record, count};
use crate::{duration, runs, shards, store};

/// Longest interval between two reads of the store while a run is followed.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Interval between two looks at the count of changes, which cost next to nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A read is followed by a wait of this many times its duration, so that a large run, or a slow
/// store, is not read all the time.
const READ_SHARE: u32 = 10;

/// Longest interval between two reads of a store that cannot be read.
const RETRY_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(global: &Global, args: &EventsArgs, console: &Console) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let coordinator = &mut backend.coordinator();
    let run = args.run.find(coordinator, tenant)?;
    let since = args.since.map(|since| since.at(SystemClock::new().now().as_raw()));
    let mut printer = Printer {
        tenant,
        run,
        since: LogicalTime::from_raw(since.unwrap_or_default()),
        is_text: global.output.is_table(),
        follows: args.follow,
        names: BTreeMap::new(),
    };
    let mut log = EventLog::new(tenant, run);
    // Its own check for the run is in the loop, because the store may be unreachable at first.
    if args.follow {
        return follow(coordinator, &mut log, &mut printer, console);
    }
    // A run that does not exist has no events, and a mistyped one must not look like it.
    coordinator.get_run(tenant, run).map_err(|error| runs::not_found(run, &error))?;
    let entries = log.read(coordinator).map_err(|error| Failure::store(&error))?;
    if printer.print(coordinator, &entries)? == 0 && printer.is_text {
        console.note("no events");
    }
    Ok(Code::Complete)
}

/// Prints entries until the run has ended.
fn follow(
    coordinator: &mut Coordinator,
    log: &mut EventLog,
    printer: &mut Printer,
    console: &Console,
) -> Result<Code, Failure> {
    let mut has_failed = false;
    loop {
        // Before the read: a change during it ends the wait at once.
        let changes = coordinator.change_count();
        let begun = Instant::now();
        // The status first, so that the last read is after the end of the run.
        let status = coordinator.get_run(printer.tenant, printer.run).map(|run| run.status());
        let read = match status {
            Ok(status) => log.read(coordinator).map(|entries| (status, entries)),
            Err(GetRunError::BackendError(error)) => Err(error),
            Err(error) => return Err(runs::not_found(printer.run, &error)),
        };
        match read {
            Ok((status, entries)) => {
                has_failed = false;
                printer.print(coordinator, &entries)?;
                if status.is_terminal() {
                    return Ok(Code::Complete);
                }
            }
            Err(error) if error.is_retryable() => {
                // Once, and not for each attempt.
                if !has_failed {
                    console.note(&format!("the store cannot be read, trying again: {error}"));
                }
                has_failed = true;
                thread::sleep(RETRY_EVERY);
            }
            Err(error) => return Err(Failure::store(&error)),
        }
        wait(coordinator, changes, begun.elapsed() * READ_SHARE);
    }
}

/// Waits until the store has changed since it counted `changes`, and at least for `shortest`.
fn wait(coordinator: &mut Coordinator, changes: Option<u64>, shortest: Duration) {
    let begun = Instant::now();
    loop {
        let (elapsed, bound) = (begun.elapsed(), READ_EVERY.max(shortest));
        let has_changed = changes.is_some() && coordinator.change_count() != changes;
        // The bound also holds with a count, which some stores do not have.
        if elapsed >= bound || (has_changed && elapsed >= shortest) {
            return;
        }
        thread::sleep(LOOK_EVERY.min(bound.saturating_sub(elapsed)));
    }
}

/// Prints the entries of a log.
struct Printer {
    tenant: TenantId,
    run: RunId,
    since: LogicalTime,
    is_text: bool,
    /// Ages would be wrong as soon as the next line is printed.
    follows: bool,
    /// Workers by the processes that they are.
    names: BTreeMap<WorkerId, Option<(String, u32)>>,
}

impl Printer {
    /// Prints the entries that are not too old, and returns how many these are.
    fn print(
        &mut self,
        coordinator: &mut Coordinator,
        entries: &[LogEntry],
    ) -> Result<usize, Failure> {
        let shown: Vec<&LogEntry> = entries.iter().filter(|it| it.at() >= self.since).collect();
        if shown.is_empty() {
            return Ok(0);
        }
        self.learn_names(coordinator, &shown);
        let line = |entry: &&LogEntry| match self.is_text {
            true => self.text(entry),
            false => format!("{}\n", self.record(entry).to_json()),
        };
        output::write(&shown.iter().map(line).collect::<String>())?;
        Ok(shown.len())
    }

    /// Reads the registry if an entry names a worker that was not looked up.
    fn learn_names(&mut self, coordinator: &mut Coordinator, entries: &[&LogEntry]) {
        let named = entries.iter().flat_map(|entry| match entry {
            LogEntry::Event(event) => [event.worker, event.previous],
            LogEntry::Gap { worker, .. } => [*worker, None],
        });
        let named = named.flatten().map(Redacted::into_inner);
        let unknown: Vec<_> = named.filter(|worker| !self.names.contains_key(worker)).collect();
        // The registry is read for new names only: it has a record for each worker of the tenant.
        if unknown.is_empty() {
            return;
        }
        let mut listed = Vec::new();
        // From the beginning of time: most workers of a finished run have expired. If the registry
        // cannot be read, they are named by their ids.
        let _ = coordinator.list_workers_into(LogicalTime::ZERO, self.tenant, &mut listed);
        for worker in unknown {
            let entry = listed.iter().find(|entry| entry.worker == worker);
            let process = entry.and_then(|entry| entry.process);
            let name = process.and_then(|process| {
                let label = process.label?;
                Some((label.host.as_str().to_owned(), process.process.pid))
            });
            // Also if it has no name, so that it is not looked up again.
            self.names.insert(worker, name);
        }
    }

    /// Returns the name of a worker: its host and process id, or its id.
    fn name(&self, worker: Redacted<WorkerId>) -> String {
        let worker = worker.into_inner();
        match self.names.get(&worker) {
            Some(Some((host, pid))) => output::readable(format!("{host}:{pid}").as_bytes()),
            Some(None) | None => format!("{:016x}", worker.as_raw()),
        }
    }

    /// Returns the line of an entry: when, who, what, which shard.
    fn text(&self, entry: &LogEntry) -> String {
        let at = entry.at().as_raw();
        let when = match self.follows {
            true => duration::rfc3339(at),
            false => duration::from_now(at, SystemClock::new().now().as_raw()),
        };
        let (who, text) = match entry {
            LogEntry::Event(event) => (event.worker, self.what(event)),
            LogEntry::Gap { writer, worker, lost, .. } => {
                let events = count(*lost, "earlier event");
                let text = format!(
                    "at least {events} of writer {:016x} no longer stored",
                    writer.as_raw()
                );
                (*worker, text)
            }
        };
        let who = who.map_or_else(|| "-".to_owned(), |worker| self.name(worker));
        format!("{when:<12}  {who:<16}  {text}\n")
    }

    /// Returns what happened, and to which shard.
    fn what(&self, event: &StoredEvent) -> String {
        // A newer program may have written it.
        let Some(described) = events::describe(&event.kind) else {
            return "an event of a newer version".to_owned();
        };
        let Described { shard, mut text, .. } = described;
        if let Some(previous) = taken_over(event) {
            text = format!("took over from {}, {}", self.name(previous), rest_of(&text));
        }
        match shard {
            Some(shard) => format!("shard {:016x}: {text}", shard.as_raw()),
            None => format!("run: {text}"),
        }
    }

    /// Returns the entry for programs.
    fn record(&self, entry: &LogEntry) -> Record {
        let id = |number: u64| format!("{number:016x}");
        let record = Record::new()
            .with("run", id(self.run.as_raw()))
            .with("at", duration::rfc3339(entry.at().as_raw()));
        let (record, worker) = match entry {
            LogEntry::Gap { writer, worker, lost, .. } => {
                let record = record.with("event", "gap").with("writer", id(writer.as_raw()));
                (record.with("lost", *lost), *worker)
            }
            LogEntry::Event(event) => (with_facts(record, event), event.worker),
        };
        let Some(worker) = worker.map(Redacted::into_inner) else { return record };
        let process = self.names.get(&worker).cloned().flatten();
        let (host, pid) = process.unzip();
        record.with("worker", id(worker.as_raw())).with("host", host).with("pid", pid)
    }
}

/// Returns the worker from which a grant took the shard over.
fn taken_over(event: &StoredEvent) -> Option<Redacted<WorkerId>> {
    // A worker that claims its own shard again takes nothing over.
    event.previous.filter(|previous| Some(*previous) != event.worker)
}

/// Returns a text without its first word: the fence of a grant.
fn rest_of(text: &str) -> &str {
    text.split_once(", ").map_or(text, |(_, rest)| rest)
}

/// Adds everything that an event holds but its worker.
fn with_facts(record: Record, event: &StoredEvent) -> Record {
    let id = |number: u64| format!("{number:016x}");
    let described = events::describe(&event.kind);
    let name = described.as_ref().map_or("unknown", |described| described.name);
    let record = record
        .with("event", name)
        .with("writer", id(event.writer.as_raw()))
        .with("sequence", event.sequence);
    let record = match described.and_then(|described| described.shard) {
        Some(shard) => record.with("shard", id(shard.as_raw())),
        None => record,
    };
    let record = match taken_over(event) {
        Some(previous) => record.with("previous_worker", id(previous.into_inner().as_raw())),
        None => record,
    };
    match &event.kind {
        EventKind::ShardAcquired { fence_epoch: fence, .. }
        | EventKind::ShardUnparked { new_fence_epoch: fence, .. }
        | EventKind::ShardLeaseRevoked { new_fence_epoch: fence, .. } => {
            record.with("fence", fence.as_raw())
        }
        EventKind::ShardResidualCreated { residual, .. } => {
            record.with("new_shards", vec![id(residual.as_raw())])
        }
        EventKind::ShardSplit { children, .. } => {
            let new: Vec<Value> = children.iter().map(|it| id(it.as_raw()).into()).collect();
            record.with("new_shards", new)
        }
        EventKind::ShardParked { reason, .. } => {
            record.with("reason", shards::reason_word(*reason))
        }
        EventKind::ShardOffered { handoff, .. }
        | EventKind::ShardOfferWithdrawn { handoff, .. } => {
            record.with("handoff", id(handoff.as_raw()))
        }
        EventKind::ShardActionRequested { action, .. } => record.with("action", *action),
        EventKind::RunActivated { shard_count } => record.with("shards", *shard_count),
        // Everything else is in the fields of all events.
        _ => record,
    }
}
