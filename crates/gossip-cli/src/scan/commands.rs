//! The findings of commands: what `exec` stored with the items of its run.

use gossip::Totals;
use gossip::coordination::ShardFilter;
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{
    CommandFinding, ResultsError, StoredResults, UnreadableCommandFinding, for_each_result,
};
use gossip::store::Backend;

use crate::args::{FailOn, Format, Global};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::items::RunItems;
use crate::output::{self, Record, count};
use crate::runs;
use crate::scan_args::{FindingsArgs, MinConfidence, ReportArgs};

/// Letters of a line of text that a table keeps: the lines of many items are in memory at once.
const SHOWN_MAX: usize = 200;

const COLUMNS: [&str; 4] = ["item", "status", "findings", "text"];

/// Prints the findings of the commands of a run, whose counts are `totals`.
pub(super) fn findings(
    global: &Global,
    args: &FindingsArgs,
    (backend, tenant, run): (&Backend, TenantId, RunId),
    totals: &Totals,
    console: &Console,
) -> Result<Code, Failure> {
    check(global.output, &args.report)?;
    let roots = ShardFilter::all().roots();
    let items = RunItems::of(&runs::rows(&mut backend.coordinator(), tenant, run, roots)?);
    let stored = print(global.output, (backend, tenant, run), &items)?;
    // An active run may have stored more since it was counted.
    let found = stored.max(totals.findings);
    let code = if totals.unread > 0 || totals.parked > 0 || totals.damaged > 0 {
        Code::Incomplete
    } else if args.fail_on == Some(FailOn::Findings) && found > 0 {
        Code::Findings
    } else {
        Code::Complete
    };
    if global.output == Format::Jsonl {
        let record = Record::new()
            .with("type", "summary")
            .with("exit_code", code as u8)
            .with("keys", totals.keys)
            .with("findings", found)
            .with("only_counted", found - stored);
        output::one(global.output, &record)?;
        return Ok(code);
    }
    let only_counted = match found - stored {
        0 => String::new(),
        number => format!("; {number} only counted: their items are not stored"),
    };
    console.note(&format!("{}{only_counted}", count(found, "finding")));
    Ok(code)
}

/// Fails if the report is asked for what findings of commands do not have.
fn check(format: Format, args: &ReportArgs) -> Result<(), Failure> {
    let needs_scan = [
        (format == Format::Sarif, "-o sarif"),
        (args.allow_list.is_some(), "--allow-list"),
        (args.baseline.is_some(), "--baseline"),
        (args.write_baseline.is_some(), "--write-baseline"),
        (args.min_confidence != MinConfidence::Low, "--min-confidence"),
        (args.show_secrets, "--show-secrets"),
    ];
    match needs_scan.into_iter().find(|(is_asked, _)| *is_asked) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::new(Code::Usage, format!("{option} needs a scan"))
            .why("the findings of this run are those of a command")
            .next("leave it out, or search with gossip scan")),
    }
}

/// Prints the stored findings, and returns how many there are.
fn print(
    format: Format,
    (backend, tenant, run): (&Backend, TenantId, RunId),
    items: &RunItems,
) -> Result<u64, Failure> {
    let (mut findings, mut rows) = (0, Vec::new());
    for_each_result(&mut backend.coordinator(), tenant, run, |stored: StoredResults| {
        let found = CommandFinding::decode(&stored.content)?;
        findings += u64::from(found.findings.get());
        let name = name(&stored.key, &found, items);
        match format {
            // Not gathered: the texts of many items would fill the memory.
            Format::Jsonl => {
                let text = items.text(&stored.key);
                output::one(format, &describe(run, &name, &text, &found))?;
            }
            Format::Json | Format::Sarif => {
                rows.push(describe(run, &name, &items.text(&stored.key), &found));
            }
            Format::Table | Format::Wide => rows.push(row(&name, &found)),
        }
        Ok::<(), ListingError>(())
    })?;
    match format {
        Format::Jsonl => {}
        Format::Table | Format::Wide if rows.is_empty() => {}
        Format::Table | Format::Wide | Format::Json | Format::Sarif => {
            output::list(format, &COLUMNS, &rows)?;
        }
    }
    Ok(findings)
}

/// Returns the name of an item: as its worker named it, if it did.
fn name(key: &[u8], found: &CommandFinding, items: &RunItems) -> String {
    match &*found.place {
        "" => output::readable(&items.text(key)),
        place => output::readable(place.as_bytes()),
    }
}

/// Returns all that is stored of a finding. `text` is that of the key.
fn describe(run: RunId, name: &str, text: &[u8], found: &CommandFinding) -> Record {
    Record::new()
        .with("type", "finding")
        .with("run", format!("{:016x}", run.as_raw()))
        .with("item", name)
        .with_bytes(["key", "key_hex"], text)
        .with("items", found.items)
        .with("exit_code", found.status)
        .with("findings", found.findings.get())
        .with_bytes(["text", "text_hex"], &found.text)
        .with("cut", found.is_cut)
}

/// Returns the line of a finding in a table.
fn row(name: &str, found: &CommandFinding) -> Record {
    let item = match found.items {
        0 | 1 => name.to_owned(),
        items => format!("{name} (+{})", items - 1),
    };
    let status = found.status.map_or_else(|| "reply".to_owned(), |status| format!("exit {status}"));
    let line = found.text.split(|byte| *byte == b'\n').find(|line| !line.is_empty());
    let line: String = output::readable(line.unwrap_or_default()).chars().take(SHOWN_MAX).collect();
    Record::new()
        .with("item", item)
        .with("status", status)
        .with("findings", found.findings.get())
        .with("text", line)
}

/// Why the findings were not listed.
enum ListingError {
    Results(ResultsError),
    Unreadable(UnreadableCommandFinding),
    Output(Failure),
}

impl From<ResultsError> for ListingError {
    fn from(error: ResultsError) -> Self {
        Self::Results(error)
    }
}

impl From<UnreadableCommandFinding> for ListingError {
    fn from(error: UnreadableCommandFinding) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Failure> for ListingError {
    fn from(failure: Failure) -> Self {
        Self::Output(failure)
    }
}

impl From<ListingError> for Failure {
    fn from(error: ListingError) -> Self {
        let unreadable = || Self::new(Code::Store, "the findings cannot be read");
        match error {
            ListingError::Results(ResultsError::Store(error)) => Self::store(&error),
            ListingError::Results(error) => unreadable().why(error),
            ListingError::Unreadable(error) => unreadable().why(error),
            ListingError::Output(failure) => failure,
        }
    }
}
