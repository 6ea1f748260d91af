//! SARIF 2.1.0: the format that code hosts read.

use std::collections::BTreeMap;

use gossip::secrets::{Confidence, FindingReport, Found, ItemFindings};
use serde_json::{Value, json};

use super::accepted::Judged;

/// Results of a file that GitHub accepts.
pub(crate) const RESULTS_MAX: usize = 25_000;

/// Returns the document of some runs: one SARIF run, because the tool and its rules are the same.
pub(crate) fn document(parts: &[(&FindingReport, &[Judged<'_>])]) -> Value {
    let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
    for judged in parts.iter().flat_map(|(_, judged)| *judged) {
        // The index is known only when all rules are: the map is in the order of their ids.
        rules.insert(&judged.found.finding.rule, 0);
    }
    for (index, place) in rules.values_mut().enumerate() {
        *place = index;
    }
    let results = parts.iter().flat_map(|(_, judged)| *judged);
    let results: Vec<Value> = results.map(|judged| result(judged, &rules)).collect();
    let described: Vec<Value> =
        rules.keys().map(|id| json!({"id": id, "shortDescription": {"text": id}})).collect();
    let unread: Vec<Value> =
        parts.iter().flat_map(|(report, _)| report.items()).flat_map(unread).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "gossip",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": described,
            }},
            "invocations": [{
                "executionSuccessful": unread.is_empty(),
                "toolExecutionNotifications": unread,
            }],
            "results": results,
        }],
    })
}

fn result(judged: &Judged<'_>, rules: &BTreeMap<&str, usize>) -> Value {
    let Found { item, finding } = judged.found;
    let level = match finding.confidence {
        Confidence::High => "error",
        Confidence::Medium => "warning",
        Confidence::Low => "note",
    };
    let mut text = format!("{} {}", finding.rule, finding.redacted);
    if let Some(member) = &finding.member {
        text.push_str(&format!(" in {member}, line {}", finding.line));
    }
    if !item.revision.is_empty() {
        text.push_str(&format!(" since commit {}", item.revision));
    }
    let mut place = json!({"artifactLocation": {"uri": uri(item), "uriBaseId": "SRCROOT"}});
    if finding.member.is_none() {
        // Lines of a member are no lines of the archive.
        place["region"] = json!({"startLine": finding.line, "startColumn": finding.column});
    }
    let mut result = json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.get(&*finding.rule),
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "gossipFindingId/v1": finding.id.to_string(),
            "gossipOccurrenceId/v1": item.occurrence(finding).to_string(),
        },
    });
    if let Some(accepted) = &judged.accepted {
        result["suppressions"] =
            json!([{"kind": accepted.sarif_kind(), "justification": accepted.reason()}]);
    }
    result
}

fn unread(item: &ItemFindings) -> impl Iterator<Item = Value> + '_ {
    item.gaps.iter().map(move |gap| {
        json!({
            "level": "warning",
            "message": {"text": format!("not read completely: {}", gap.reason)},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": uri(item), "uriBaseId": "SRCROOT"},
            }}],
        })
    })
}

/// Returns the path as a relative URI: any byte that is not plain is escaped.
fn uri(item: &ItemFindings) -> String {
    let path = if item.path.is_empty() { &item.key } else { &item.path };
    let mut uri = String::new();
    for byte in path.iter() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
