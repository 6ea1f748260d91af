//! Findings that are accepted: allow-lists by path and rule, and baselines of known findings.
//!
//! Data and matching only. Reading files, and deciding what a finding without an entry leads to, is
//! the caller's part.

use std::collections::BTreeSet;

use gossip_contracts::identity::FindingId;
use serde::Deserialize;
use thiserror::Error;

use crate::error::RuleError;
use crate::rule::syntax_error;

/// The first line of a baseline.
const BASELINE_HEADER: &str = "gossip-baseline 1";

/// One accepted combination of path and rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Allow {
    /// A path, with `*` for any bytes; every path if it is missing.
    #[serde(default = "any_path")]
    pub path: String,
    /// The id of a rule; every rule if it is missing.
    #[serde(default)]
    pub rule: Option<String>,
    /// Why findings there are accepted.
    pub reason: String,
}

fn any_path() -> String {
    "*".to_owned()
}

/// The accepted combinations of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowList {
    #[serde(default)]
    allow: Vec<Allow>,
}

impl AllowList {
    /// Reads a TOML text of `[[allow]]` tables.
    ///
    /// # Errors
    ///
    /// If the text is not TOML or not in this format, or if an entry has no reason or accepts
    /// every finding.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let list: Self = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        for (entry, number) in list.allow.iter().zip(1..) {
            let refused = |reason: &str| RuleError::Refused {
                id: format!("allow entry {number}"),
                reason: reason.to_owned(),
            };
            // An exception without a reason cannot be reviewed.
            if entry.reason.trim().is_empty() {
                return Err(refused("has no reason"));
            }
            // It would switch the scan off, and a run without findings would look clean.
            if entry.rule.is_none() && entry.path == "*" {
                return Err(refused("accepts every finding"));
            }
        }
        Ok(list)
    }

    /// Returns the entry that accepts findings of a rule in a path.
    #[must_use]
    pub fn find(&self, path: &[u8], rule: &str) -> Option<&Allow> {
        self.allow.iter().find(|entry| {
            entry.rule.as_deref().is_none_or(|it| it == rule)
                && path_matches(entry.path.as_bytes(), path)
        })
    }
}

/// Matches a pattern in which `*` is any number of bytes. Linear in time: the last star is enough
/// to return to.
fn path_matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < path.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(byte) if *byte == path[at] => {
                in_pattern += 1;
                at += 1;
            }
            _ => {
                let Some((star_at, from)) = star else { return false };
                // The star takes one byte more; earlier stars need no second try, because theirs
                // were the shortest.
                star = Some((star_at, from + 1));
                in_pattern = star_at + 1;
                at = from + 1;
            }
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'*')
}

/// Ids of findings that are known, so that only new ones count.
///
/// The text has a header line, then one id per line in hexadecimal digits, sorted. A `#` begins a
/// comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    ids: BTreeSet<FindingId>,
}

/// A baseline that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// The first line is not the header of this format.
    #[error("line 1: expected `gossip-baseline 1`")]
    Header,
    /// A line is not an id.
    #[error("line {line}: expected 64 hexadecimal digits")]
    Line {
        /// Line, counted from one.
        line: usize,
    },
}

impl Baseline {
    /// Returns a baseline of these findings.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = FindingId>) -> Self {
        Self { ids: ids.into_iter().collect() }
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// If the header or a line is wrong.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        let mut lines = text.lines().zip(1..);
        // Another file given by mistake would otherwise be a baseline without ids.
        if lines.next().is_none_or(|(line, _)| line.trim() != BASELINE_HEADER) {
            return Err(BaselineError::Header);
        }
        let mut ids = BTreeSet::new();
        for (line, number) in lines {
            let id = line.split('#').next().unwrap_or_default().trim();
            if !id.is_empty() {
                ids.insert(parse_id(id).ok_or(BaselineError::Line { line: number })?);
            }
        }
        Ok(Self { ids })
    }

    /// Returns the text of this baseline.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{BASELINE_HEADER}\n");
        for id in &self.ids {
            text.push_str(&format!("{id}\n"));
        }
        text
    }

    /// Returns whether a finding is known.
    #[must_use]
    pub fn contains(&self, id: &FindingId) -> bool {
        self.ids.contains(id)
    }
}

fn parse_id(text: &str) -> Option<FindingId> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(FindingId::from_bytes(bytes))
}
