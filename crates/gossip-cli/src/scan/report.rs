//! The report of a scan: text, JSON or SARIF on standard output.

use std::collections::BTreeMap;

use gossip::identity::RunId;
use gossip::secrets::{FindingReport, Found, Gap, ItemFindings};
use serde_json::{Value, json};

use super::accepted::{Judge, Judged, baseline_text};
use super::{sarif, whole_secrets};
use crate::args::Format;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, count};
use crate::progress::escaped;
use crate::scan_args::ReportArgs;

/// Gaps that are named on a terminal; all of them are in the JSON output.
const GAPS_SHOWN_MAX: usize = 20;

/// The findings of one run.
pub(crate) struct RunFindings {
    pub(crate) run: RunId,
    /// The source as it can be typed.
    pub(crate) source: String,
    pub(crate) report: FindingReport,
    pub(crate) judge: Judge,
    /// Whole secrets by place, if they are asked for.
    pub(crate) secrets: whole_secrets::Secrets,
}

/// How many findings a report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Findings that are not accepted.
    pub(crate) new: u64,
    pub(crate) accepted: u64,
    /// Parts of items that were not read.
    pub(crate) gaps: u64,
}

/// Prints the findings of runs, and writes the baseline if one is asked for.
pub(crate) fn print(
    format: Format,
    runs: &[RunFindings],
    args: &ReportArgs,
    console: &Console,
) -> Result<Counts, Failure> {
    // Judged once, so that the text, the baseline and the counts agree.
    let judged: Vec<(&RunFindings, Vec<Judged<'_>>)> =
        runs.iter().map(|run| (run, run.judge.judge(&run.report))).collect();
    let all = || judged.iter().flat_map(|(_, judged)| judged);
    if let Some(path) = &args.write_baseline {
        // Those of the present baseline stay in it. Those of an allow-list have their reason there.
        let is_kept =
            |it: &&Judged<'_>| it.accepted.as_ref().is_none_or(|by| by.name() == "baseline");
        std::fs::write(path, baseline_text(all().filter(is_kept))).map_err(|error| {
            Failure::new(Code::Usage, format!("cannot write {}", path.display())).why(error)
        })?;
    }
    match format {
        Format::Table | Format::Wide => {
            let shown = |it: &&Judged<'_>| args.show_accepted || it.accepted.is_none();
            for (run, judged) in &judged {
                let lines = judged.iter().filter(shown).map(|it| line(it, run));
                output::write(&lines.collect::<String>())?;
            }
        }
        Format::Json => {
            let values: Vec<Value> = judged.iter().flat_map(values).collect();
            output::write(&format!("{:#}\n", Value::from(values)))?;
        }
        Format::Jsonl => {
            for value in judged.iter().flat_map(values) {
                output::write(&format!("{value}\n"))?;
            }
        }
        Format::Sarif => {
            let parts: Vec<_> = judged.iter().map(|(run, it)| (&run.report, &it[..])).collect();
            output::write(&format!("{:#}\n", sarif::document(&parts)))?;
            if all().count() > sarif::RESULTS_MAX {
                console.problem(&format!(
                    "more than {} findings: GitHub rejects this file",
                    sarif::RESULTS_MAX
                ));
            }
        }
    }
    // Behind the findings, where a user who reads the end of the output sees them.
    print_gaps(runs, console);
    let accepted = all().filter(|it| it.accepted.is_some()).count() as u64;
    let gaps = runs.iter().flat_map(RunFindings::gaps).count() as u64;
    Ok(Counts { new: all().count() as u64 - accepted, accepted, gaps })
}

impl RunFindings {
    /// Returns the parts that were not read and are not accepted.
    fn gaps(&self) -> impl Iterator<Item = (&ItemFindings, &Gap)> {
        self.report
            .items()
            .flat_map(|item| item.gaps.iter().map(move |gap| (item, gap)))
            .filter(|(item, gap)| !self.judge.accepts_gap(item, gap))
    }
}

fn print_gaps(runs: &[RunFindings], console: &Console) {
    let gaps = || runs.iter().flat_map(RunFindings::gaps);
    for (item, gap) in gaps().take(GAPS_SHOWN_MAX) {
        let place = escaped(&item.place(gap.member.as_deref()));
        console.problem(&format!("not read completely: {place}: {}", gap_text(gap)));
    }
    let more = gaps().count().saturating_sub(GAPS_SHOWN_MAX) as u64;
    if more > 0 {
        console.problem(&format!("and {more} more; -o jsonl lists all"));
    }
}

/// Describes why something was not read.
fn gap_text(gap: &Gap) -> &str {
    match &*gap.reason {
        "depth" => "too many archives inside each other",
        "entries" => "too many members",
        "entry-size" => "a member is too large; its start was read",
        "total-size" => "it unpacks to too much; the start was read",
        "ratio" => "it unpacks to a suspicious size; the start was read",
        "encrypted" => "it is encrypted",
        "method" => "its compression is not supported",
        "malformed" => "it is damaged",
        "match-budget" => "a rule has too many places to look at; use a rarer anchor",
        "decode-budget" => "too much encoded text to decode all of it",
        "changed" => "it changed while it was read",
        "too-many-findings" => "it has more findings than can be stored",
        reason => reason,
    }
}

/// `src/db.rs:12:15: github-pat (high, checksum valid) ghp_…(40 bytes)`
fn line(judged: &Judged<'_>, run: &RunFindings) -> String {
    let Found { item, finding } = judged.found;
    let place = escaped(&item.place(finding.member.as_deref()));
    let mut notes = finding.confidence.name().to_owned();
    match finding.checksum.name() {
        "none" => {}
        checksum => notes.push_str(&format!(", checksum {checksum}")),
    }
    for (name, value) in &finding.details {
        notes.push_str(&format!(", {name} {value}"));
    }
    if let Some(accepted) = &judged.accepted {
        notes.push_str(&format!(", accepted by {}: {}", accepted.name(), accepted.reason()));
    }
    let (line, column, rule) = (finding.line, finding.column, &finding.rule);
    let secret = match run.secrets.find(&judged.found) {
        Some(secret) => escaped(secret),
        // Also if it could not be read again: the source may have changed.
        None => finding.redacted.to_string(),
    };
    format!("{place}:{line}:{column}: {rule} ({}) {secret}\n", escaped(notes.as_bytes()))
}

/// Returns the JSON values of the findings and gaps of a run.
fn values<'a>(
    (run, judged): &'a (&'a RunFindings, Vec<Judged<'a>>),
) -> impl Iterator<Item = Value> + 'a {
    let id = format!("{:016x}", run.run.as_raw());
    let findings = judged.iter().map({
        let id = id.clone();
        move |judged| finding_value(&id, run, judged)
    });
    let gaps = run.gaps().map(move |(item, gap)| {
        let mut value = item_value("unread", &id, run, item);
        value["member"] = json!(gap.member);
        value["reason"] = json!(gap.reason);
        value
    });
    findings.chain(gaps)
}

fn item_value(kind: &str, id: &str, run: &RunFindings, item: &ItemFindings) -> Value {
    let mut value = json!({"type": kind, "run": id, "source": run.source});
    let path = if item.path.is_empty() { &item.key } else { &item.path };
    match std::str::from_utf8(path) {
        Ok(text) => value["path"] = json!(text),
        // A lossy text could be the name of another file.
        Err(_) => value["path_hex"] = json!(hex(path)),
    }
    if !item.revision.is_empty() {
        value["commit"] = json!(item.revision);
        value["blob"] = json!(hex(&item.key));
    }
    value
}

fn finding_value(id: &str, run: &RunFindings, judged: &Judged<'_>) -> Value {
    let Found { item, finding } = judged.found;
    let details: BTreeMap<&str, &str> =
        finding.details.iter().map(|(name, value)| (&**name, &**value)).collect();
    let accepted =
        judged.accepted.as_ref().map(|it| json!({"by": it.name(), "reason": it.reason()}));
    let mut value = item_value("finding", id, run, item);
    let fields = json!({
        "member": finding.member,
        "line": finding.line,
        "column": finding.column,
        "offset": finding.offset,
        "length": finding.length,
        "rule": finding.rule,
        "confidence": finding.confidence.name(),
        "checksum": finding.checksum.name(),
        "decoded": finding.decoded,
        "details": details,
        "redacted": finding.redacted,
        "secret_hash": hex(&finding.secret),
        "finding_id": finding.id.to_string(),
        "occurrence_id": item.occurrence(finding).to_string(),
        "observation_id": item.observation(finding).to_string(),
        "accepted": accepted,
    });
    if let (Some(value), Value::Object(fields)) = (value.as_object_mut(), fields) {
        value.extend(fields);
    }
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes counts for the last line of a scan.
pub(crate) fn counts_text(counts: &Counts) -> String {
    let mut text = count(counts.new, "finding");
    if counts.accepted > 0 {
        text.push_str(&format!(", {} accepted", counts.accepted));
    }
    text
}
