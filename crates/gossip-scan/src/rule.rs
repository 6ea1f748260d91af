//! Detection rules as data: the TOML format, the built-in set, changes to it, and its digest.
//!
//! A rule names its anchors, its pattern and its bounds; [`crate::Scanner::new`] refuses one that
//! would be slow. This module reads and merges texts. It never searches and never reads a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gossip_contracts::identity::{CanonicalHasher, Domain, RuleFingerprint};
use serde::Deserialize;

use crate::Alphabet;
use crate::error::RuleError;

/// The format of rule texts that this code reads.
const FORMAT_VERSION: u32 = 1;

/// Changes whenever validators, gates or the search give other findings, so that a policy hash
/// covers the code as well as the rules.
const ENGINE_VERSION: u32 = 2;

/// The rules compiled into this crate, by topic.
const BUILT_IN: [&str; 5] = [
    include_str!("../rules/hosting.toml"),
    include_str!("../rules/cloud.toml"),
    include_str!("../rules/messaging.toml"),
    include_str!("../rules/ai.toml"),
    include_str!("../rules/structural.toml"),
];

/// How likely a finding is a live secret. Complete: readers distinguish three levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "callers map every level to a severity of their own")]
pub enum Confidence {
    /// A guess from a name and the shape of a value.
    Low,
    /// The shape of one vendor's token, without proof.
    Medium,
    /// A distinctive shape, or a shape with proof.
    High,
}

impl Confidence {
    /// Returns the name that rules and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Returns the next lower level; the lowest is its own.
    pub(crate) const fn lowered(self) -> Self {
        match self {
            Self::High => Self::Medium,
            Self::Medium | Self::Low => Self::Low,
        }
    }
}

/// Where a rule's pattern is applied, relative to a hit of one of its literals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Search {
    /// The match contains the literal and begins at most `before` bytes ahead of it.
    #[default]
    At,
    /// The literal is part of a name; the pattern must match the whole value assigned to it.
    Assign,
    /// The pattern is searched within a few lines around the literal.
    Near,
    /// The pattern is searched in the document around the literal: up to a line `---` or the next
    /// occurrence of the literal on either side, as far as the window of a hit reaches.
    Document,
}

impl Search {
    const fn name(self) -> &'static str {
        match self {
            Self::At => "at",
            Self::Assign => "assign",
            Self::Near => "near",
            Self::Document => "document",
        }
    }
}

/// One detection rule. The fields are those of the TOML format.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// Stable name in lower case, for reports, allow-lists and overrides.
    pub id: String,
    /// A title for readers.
    pub name: String,
    /// Literals in exact case, one of which every match has.
    #[serde(default)]
    pub anchors: Vec<String>,
    /// Context words, found in lower, upper, capitalised and camel case. An underscore separates
    /// the parts of a word, which names join by `_`, `-`, `.` or nothing.
    #[serde(default)]
    pub words: Vec<String>,
    /// The pattern, over bytes. A group called `secret` narrows the secret to a part.
    pub regex: String,
    /// Longest match in bytes.
    pub max_len: usize,
    /// Fewest bytes between the start of a match and its anchor.
    #[serde(default)]
    pub before_min: usize,
    /// Most bytes between the start of a match and its anchor.
    #[serde(default)]
    pub before: usize,
    /// Where the pattern is applied.
    #[serde(default)]
    pub search: Search,
    /// Bytes that may not precede a match.
    #[serde(default)]
    pub left: Alphabet,
    /// Bytes that may not follow a match.
    #[serde(default)]
    pub right: Alphabet,
    /// Name of the offline validator; see the list in the documentation of rules.
    #[serde(default = "no_validator")]
    pub validator: String,
    /// Confidence of a finding whose validator has no objection.
    pub confidence: Confidence,
    /// Least entropy of the secret, in bits per byte.
    #[serde(default)]
    pub entropy: Option<f64>,
    /// Steps by which a match is extended, and the secret with it, up to `max_len`: the name of an
    /// alphabet in brackets for a run of its bytes, which may be empty, or a literal that must
    /// follow. The secret ends with the last run. A long body costs no states in this way.
    #[serde(default)]
    pub tail: Vec<String>,
    /// Literals that must follow the match in this order; the secret ends with the last.
    #[serde(default)]
    pub until: Vec<String>,
    /// Literals in lower case, one of which must occur within a few KiB of the anchor, or in the
    /// document.
    #[serde(default)]
    pub nearby: Vec<String>,
    /// Whether the gates for guesses apply: no hash, UUID, path, identifier or prose.
    #[serde(default)]
    pub generic: bool,
    /// Precedence when matches of several rules overlap.
    #[serde(default = "usual_rank")]
    pub rank: u8,
    /// Patterns of file names (`*` at either end); empty for every file.
    #[serde(default)]
    pub files: Vec<String>,
    /// Whether the secret is base64 that is decoded and searched in turn.
    #[serde(default)]
    pub decode: bool,
    /// Name of the recipe that creates a valid sample.
    #[serde(default = "regex_recipe")]
    pub mint: String,
    /// Text around a sample, with `{}` where the sample goes.
    #[serde(default = "bare_sample")]
    pub sample: String,
}

fn no_validator() -> String {
    "none".to_owned()
}

const fn usual_rank() -> u8 {
    2
}

fn regex_recipe() -> String {
    "regex".to_owned()
}

fn bare_sample() -> String {
    "{}".to_owned()
}

/// A rule that a text switches off.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Disabled {
    id: String,
    reason: String,
}

/// One TOML text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    version: u32,
    #[serde(default)]
    rule: Vec<Rule>,
    #[serde(default)]
    disable: Vec<Disabled>,
}

/// A set of rules, ordered by id.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: BTreeMap<String, Rule>,
    /// Ids of rules that differ from the compiled-in ones; the tests have not compiled those.
    changed: BTreeSet<String>,
}

impl RuleSet {
    /// Returns a set without rules.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns the rules compiled into this crate.
    ///
    /// # Panics
    ///
    /// If a compiled-in text cannot be read, which the tests of this crate exclude.
    #[must_use]
    pub fn built_in() -> Self {
        let mut set = Self::default();
        for text in BUILT_IN {
            set.merge(text).expect("the compiled-in rules are read by the tests of this crate");
        }
        // The tests have compiled these, and `merge` has noted all of them.
        set.changed.clear();
        set
    }

    /// Adds the rules of a TOML text, replaces those with the same id, and removes disabled ones.
    ///
    /// # Errors
    ///
    /// If the text is not TOML or not in this format (with line and column), if a rule occurs twice
    /// in it, or if it disables a rule that does not exist or gives no reason. The set stays the
    /// same.
    pub fn merge(&mut self, text: &str) -> Result<(), RuleError> {
        let parsed: RuleText = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        if parsed.version != FORMAT_VERSION {
            let expected = FORMAT_VERSION;
            return Err(RuleError::Version { presented: parsed.version, expected });
        }
        // A copy, because an error further down must leave the set as it is.
        let mut rules = self.rules.clone();
        let mut seen = Vec::new();
        for rule in parsed.rule {
            // Within one text it is a mistake; across texts the later one replaces the earlier on
            // purpose.
            if seen.contains(&rule.id) {
                return Err(RuleError::Refused { id: rule.id, reason: "occurs twice".to_owned() });
            }
            seen.push(rule.id.clone());
            rules.insert(rule.id.clone(), rule);
        }
        for disabled in parsed.disable {
            if disabled.reason.trim().is_empty() {
                let reason = "is disabled without a reason".to_owned();
                return Err(RuleError::Refused { id: disabled.id, reason });
            }
            // A misspelt id would otherwise leave the rule on without a word.
            if rules.remove(&disabled.id).is_none() {
                let reason = "is disabled but does not exist".to_owned();
                return Err(RuleError::Refused { id: disabled.id, reason });
            }
        }
        self.changed.extend(seen);
        self.rules = rules;
        Ok(())
    }

    /// Returns the rules in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// Returns the rule with this id.
    #[must_use]
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.get(id)
    }

    /// Returns whether a rule is not, or no longer, a compiled-in one.
    pub(crate) fn is_changed(&self, id: &str) -> bool {
        self.changed.contains(id)
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the digest of all rules and of the version of the search.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = CanonicalHasher::for_domain(Domain::RULES_DIGEST_V1);
        // The same rules find other things under another version of the search.
        hasher.write_u32(ENGINE_VERSION);
        hasher.write_u64(self.rules.len() as u64);
        for rule in self.iter() {
            hasher.write_raw(rule.fingerprint().as_bytes());
        }
        hasher.finalize_32()
    }
}

impl Rule {
    /// Returns the hash of everything that decides what the rule finds.
    #[must_use]
    pub fn fingerprint(&self) -> RuleFingerprint {
        let mut hasher = CanonicalHasher::for_domain(Domain::RULE_V1);
        hasher.write_bytes_prefixed(self.id.as_bytes());
        let lists =
            [&self.anchors, &self.words, &self.files, &self.until, &self.nearby, &self.tail];
        for list in lists {
            // With its length, or moving an entry from one list to the next would give the same
            // hash.
            hasher.write_u64(list.len() as u64);
            for text in list {
                hasher.write_bytes_prefixed(text.as_bytes());
            }
        }
        let (search, left, right) = (self.search.name(), self.left.name(), self.right.name());
        for text in [&*self.regex, search, left, right, &self.validator, self.confidence.name()] {
            hasher.write_bytes_prefixed(text.as_bytes());
        }
        for number in [self.max_len, self.before_min, self.before] {
            hasher.write_u64(number as u64);
        }
        // In thousandths, as the gate compares it: rules that differ by less find the same.
        hasher.write_u32(self.entropy_millibits());
        for byte in [u8::from(self.generic), self.rank, u8::from(self.decode)] {
            hasher.write_u8(byte);
        }
        RuleFingerprint::from_bytes(hasher.finalize_32())
    }

    /// Returns the entropy gate in thousandths of a bit; zero without one.
    pub(crate) fn entropy_millibits(&self) -> u32 {
        let millibits = self.entropy.unwrap_or(0.0) * 1000.0;
        // Saturates at both ends; `check` refuses values that are no entropy.
        millibits as u32
    }
}

/// Line and column of a syntax error, counted from one. The text of the error is not passed on: it
/// quotes the input.
pub(crate) fn syntax_error(text: &str, error: &toml::de::Error) -> RuleError {
    let offset = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..offset];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = offset - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
    RuleError::Syntax { line, column, reason: error.message().to_owned() }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
