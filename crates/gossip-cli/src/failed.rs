//! `failed` and `retry`: the items that failed or could not be read.
//!
//! A failed item is a shard that is parked, and its record says why. A record whose shard is not
//! parked any more is history and not shown. An unread item was passed by the cursor: it has a
//! record and no shard of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use gossip::coordination::{ExitCause, ParkReason, RunManagement as _, ShardFilter, UnparkError};
use gossip::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId};
use gossip::runtime::{Clock as _, FailedItem, SystemClock, fresh_op_id, list_failures};
use gossip::store::Coordinator;

use crate::args::{Global, RetryArgs, RunArg};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::items::RunItems;
use crate::output::{self, Record};
use crate::{duration, runs, shards, store};

/// Lines of a command's error output that a table shows; JSON has all that is kept.
const STDERR_LINES: usize = 10;

/// An item that failed or was not read, as it is shown.
pub(crate) struct ShownItem {
    /// The item as the user knows it.
    pub(crate) name: String,
    /// The text of its key.
    text: Vec<u8>,
    pub(crate) item: FailedItem,
}

pub(crate) fn list(global: &Global, run: &RunArg, console: &Console) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let coordinator = &mut backend.coordinator();
    let run = run.find(coordinator, tenant)?;
    let (items, _) = failed_items(coordinator, tenant, run)?;
    let now = SystemClock::new().now();
    let records: Vec<_> = items.iter().map(|item| item.describe(run, now)).collect();
    let columns = ["item", "status", "tries", "age", "worker"];
    let details: Vec<_> = items.iter().map(ShownItem::details).collect();
    output::list_with_details(global.output, &columns, &records, &details)?;
    if !global.output.is_table() {
        return Ok(Code::Complete);
    }
    console.note(&summary(&items, run));
    Ok(Code::Complete)
}

/// Counts the listed items as `run list` does: a parked range is no failed item.
fn summary(items: &[ShownItem], run: RunId) -> String {
    let of = |wanted: fn(&ShownItem) -> bool| items.iter().filter(|item| wanted(item)).count();
    let failed = of(ShownItem::is_failed) as u64;
    let unread = of(|item| item.item.shard().is_none()) as u64;
    let parked = items.len() as u64 - failed - unread;
    let parts =
        [(failed, "item", "failed"), (parked, "shard", "parked"), (unread, "item", "unread")];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let parts =
        parts.map(|(number, thing, what)| format!("{} {what}", output::count(number, thing)));
    let counts = parts.collect::<Vec<_>>().join(", ");
    let retry =
        format!("Retry: `gossip retry {:016x} --all`, then repeat the command", run.as_raw());
    match (failed + parked, unread) {
        (0, 0) => "no item failed".to_owned(),
        (0, _) => format!("{counts}. {}", unread_text(false)),
        (_, 0) => format!("{counts}. {retry}"),
        _ => format!("{counts}. {retry}. {}", unread_text(true)),
    }
}

pub(crate) fn retry(global: &Global, args: &RetryArgs, console: &Console) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let mut coordinator = backend.coordinator();
    let run = args.run.find(&mut coordinator, tenant)?;
    let (items, of_run) = failed_items(&mut coordinator, tenant, run)?;
    let is_parked = items.iter().any(|item| item.item.shard().is_some());
    // All names are looked up before the first change, so that a mistyped one changes nothing.
    let chosen = choose((&items, &of_run), args, run)?;
    let unread = chosen.iter().filter(|item| item.item.shard().is_none()).count() as u64;
    let (mut retried, mut ranges) = (0, 0);
    for item in &chosen {
        let Some(shard) = item.item.shard() else { continue };
        if unpark(&mut coordinator, tenant, ShardKey::new(run, shard))? {
            *if item.is_failed() { &mut retried } else { &mut ranges } += 1;
        }
    }
    if unread > 0 {
        let items = output::count(unread, "unread item");
        console.note(&format!("{items} not retried. {}", unread_text(is_parked)));
    }
    let again = match (retried, ranges) {
        (0, 0) => {
            console.note("no item to retry");
            return Ok(Code::Complete);
        }
        (retried, 0) => output::count(retried, "item"),
        (0, ranges) => output::count(ranges, "shard"),
        (retried, ranges) => {
            format!("{} and {}", output::count(retried, "item"), output::count(ranges, "shard"))
        }
    };
    console.note(&format!(
        "{again} to be tried again. Next: repeat the command of the run, or `gossip worker {:016x}`",
        run.as_raw()
    ));
    Ok(Code::Complete)
}

/// What becomes of unread items. A run with parked shards is not finished, and `--restart` starts
/// a new run only behind a finished one, or if the source is another file now.
const fn unread_text(is_parked: bool) -> &'static str {
    match is_parked {
        false => {
            "The run has passed unread items and cannot return to them. Make them readable, then \
             repeat the command with --restart"
        }
        true => {
            "The run has passed unread items and cannot return to them. When the others are done, \
             make them readable, then repeat the command with --restart"
        }
    }
}

/// Returns the items that the arguments name.
fn choose<'i>(
    (items, of_run): (&'i [ShownItem], &RunItems),
    args: &RetryArgs,
    run: RunId,
) -> Result<Vec<&'i ShownItem>, Failure> {
    // Unread items are among them, so that the command says why they are not retried.
    if args.all {
        return Ok(items.iter().collect());
    }
    if let Some(status) = args.status {
        let exited = |item: &&ShownItem| {
            let exit = item.item.record().and_then(|record| record.exit);
            exit == Some(ExitCause::Code(status))
        };
        return Ok(items.iter().filter(exited).collect());
    }
    let mut chosen: Vec<&ShownItem> = Vec::new();
    for typed in &args.items {
        // Lines with the same text are several items.
        let named: Vec<&ShownItem> = named(items, of_run, typed);
        if named.is_empty() {
            let shown = output::readable(typed.as_bytes());
            return Err(Failure::new(
                Code::Usage,
                format!("no failed item of this run is named `{shown}`"),
            )
            .next(format!("list them: gossip failed {:016x}", run.as_raw())));
        }
        chosen.extend(named);
    }
    Ok(chosen)
}

/// Returns the failed items that the typed text means: by their names, or by their keys if the
/// source is on this machine.
pub(crate) fn named<'i>(
    items: &'i [ShownItem],
    of_run: &RunItems,
    typed: &OsStr,
) -> Vec<&'i ShownItem> {
    let text = output::readable(typed.as_bytes());
    let is_it = |item: &&ShownItem| of_run.is_named(item.item.record(), &item.name, &text);
    let found: Vec<_> = items.iter().filter(is_it).collect();
    // A name is what the list shows, so it precedes a key with the same text.
    if !found.is_empty() {
        return found;
    }
    let Some(key) = of_run.key_of(typed) else { return found };
    let has_key = |item: &&ShownItem| item.item.record().is_some_and(|record| *record.key == *key);
    items.iter().filter(has_key).collect()
}

/// Makes a parked shard claimable. Returns `false` if it is not parked any more.
fn unpark(coordinator: &mut Coordinator, tenant: TenantId, key: ShardKey) -> Result<bool, Failure> {
    let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
    match coordinator.unpark_shard(now, tenant, key, op_id) {
        Ok(_) => Ok(true),
        // Another process was faster.
        Err(UnparkError::NotParked { .. }) => Ok(false),
        Err(UnparkError::BackendError(error)) => Err(Failure::store(&error)),
        Err(UnparkError::RunTerminal { status }) => {
            let why = format!("the run is already {}", runs::status_word(status));
            Err(Failure::new(Code::Usage, "the items were not retried").why(why))
        }
        Err(error) => Err(Failure::new(Code::Usage, "the items were not retried").why(error)),
    }
}

/// Returns the failed items in the order of their ranges, then the unread ones, and how the run
/// names its items.
pub(crate) fn failed_items(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<(Vec<ShownItem>, RunItems), Failure> {
    // Roots say how keys are written, also if no shard is parked.
    let roots = runs::rows(coordinator, tenant, run, ShardFilter::all().roots())?;
    let of_run = RunItems::of(&roots);
    let items = list_failures(coordinator, SystemClock::new().now(), tenant, run);
    let items = items.map_err(|error| runs::not_found(run, &error))?;
    let shown = items.into_iter().map(|item| {
        let text = of_run.text(item.key());
        let name = match item.record() {
            Some(record) => of_run.name(record),
            // A parked range without a record has no item, only a first key.
            None => format!("from {}", output::readable(&text)),
        };
        ShownItem { name, text, item }
    });
    Ok((shown.collect(), of_run))
}

impl ShownItem {
    /// Returns whether it failed alone, so that this parked shard holds nothing else.
    pub(crate) fn is_failed_item_of(&self, shard: ShardId) -> bool {
        match &self.item {
            FailedItem::Parked { shard: row, record: Some(_) } => {
                row.shard == shard && row.park_reason == Some(ParkReason::Poisoned)
            }
            FailedItem::Parked { record: None, .. } | FailedItem::Unread(_) => false,
        }
    }

    /// Returns whether it is one item that failed for good, as `run list` counts it. Any other
    /// parked shard is a range whose items were not tried.
    fn is_failed(&self) -> bool {
        match &self.item {
            FailedItem::Parked { shard, .. } => shard.park_reason == Some(ParkReason::Poisoned),
            FailedItem::Unread(_) => false,
        }
    }

    /// Returns the text with which the shard of an item without a record was parked.
    fn park_text(&self) -> Option<&str> {
        match &self.item {
            FailedItem::Parked { shard, .. } => shard.park_context.as_deref(),
            FailedItem::Unread(_) => None,
        }
    }

    fn describe(&self, run: RunId, now: LogicalTime) -> Record {
        let record = self.item.record();
        let exit = record.and_then(|record| record.exit);
        let (code, signal) = match exit {
            Some(ExitCause::Code(code)) => (Some(code), None),
            Some(ExitCause::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let at = record.map(|record| record.at);
        let host = record.map(|record| &*record.host).filter(|host| !host.is_empty());
        let pid = record.map(|record| record.pid).filter(|pid| *pid != 0);
        let worker = match (host, pid) {
            (Some(host), Some(pid)) => Some(format!("{host}:{pid}")),
            (Some(host), None) => Some(host.to_owned()),
            (None, pid) => pid.map(|pid| pid.to_string()),
        };
        let message = record.map(|record| &*record.message).filter(|text| !text.is_empty());
        // Without a record, the short text of the shard is all there is.
        let message = message.or_else(|| self.park_text());
        let stderr = record.map(|record| String::from_utf8_lossy(&record.stderr).into_owned());
        Record::new()
            .with("run", format!("{:016x}", run.as_raw()))
            .with("item", self.name.as_str())
            .with_bytes(["key", "key_hex"], &self.text)
            .with("status", self.status())
            .with("exit_code", code)
            .with("signal", signal)
            .with("tries", record.map(|record| record.tries))
            .with("at", at.map(|at| duration::rfc3339(at.as_raw())))
            .with("age", at.map(|at| duration::rough(now.as_raw().saturating_sub(at.as_raw()))))
            .with("worker", worker)
            .with("shard", self.item.shard().map(|shard| format!("{:016x}", shard.as_raw())))
            .with("message", message)
            .with("stderr", stderr.filter(|text| !text.is_empty()))
    }

    fn status(&self) -> String {
        match &self.item {
            FailedItem::Unread(_) => "unread".to_owned(),
            FailedItem::Parked { record: Some(record), .. } => match record.exit {
                Some(ExitCause::Code(code)) => format!("exit {code}"),
                Some(ExitCause::Signal(signal)) => format!("signal {signal}"),
                None => "failed".to_owned(),
            },
            FailedItem::Parked { shard, record: None } => {
                shard.park_reason.map_or("parked", shards::reason_word).to_owned()
            }
        }
    }

    /// Returns the lines below the item in a table: its message, and the end of its error output.
    fn details(&self) -> Vec<String> {
        let Some(record) = self.item.record() else {
            return self
                .park_text()
                .into_iter()
                .map(|text| output::readable(text.as_bytes()))
                .collect();
        };
        let mut lines = Vec::new();
        // The status says it already, unless the message says more.
        if record.exit.is_none() && !record.message.is_empty() {
            lines.push(output::readable(record.message.as_bytes()));
        }
        let written: Vec<_> = record.stderr.split(|byte| *byte == b'\n').collect();
        // What follows the last line break is no line.
        let written = written.strip_suffix(&[&b""[..]]).unwrap_or(&written);
        let shown = &written[written.len().saturating_sub(STDERR_LINES)..];
        lines.extend(shown.iter().filter(|line| !line.is_empty()).map(|it| output::readable(it)));
        lines
    }
}
