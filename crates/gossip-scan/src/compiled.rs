//! A rule in the form in which the engine applies it, and the checks that refuse slow ones.
//!
//! Patterns are compiled at their first use: most rules of most scans never have a hit, and
//! compiling all of them would take longer than scanning a small tree. A rule that is not compiled
//! in is compiled at once, so that its error is reported before a scan begins.

use std::sync::{Arc, OnceLock};

use gossip_contracts::identity::RuleFingerprint;
use regex_automata::meta::{self, Regex};
use regex_automata::util::syntax;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::alphabet::Alphabet;
use crate::engine::{LOOK_AHEAD, LOOK_BEHIND, NEAR_AHEAD};
use crate::error::RuleError;
use crate::rule::{Rule, Search};
use crate::validate::{self, Validator};
use crate::{cost, mint};

/// Shorter literals occur so often that confirming them would dominate a scan.
pub(crate) const LITERAL_LEN_MIN: usize = 3;
/// Longer literals make the automaton large and find nothing more.
const LITERAL_LEN_MAX: usize = 48;
/// Longest match of a pattern; a longer secret uses `tail` or `until`, which cost no states.
const PATTERN_LEN_MAX: usize = 2048;
/// Memory of a compiled pattern. Counted repetitions of large classes exceed it.
const PATTERN_SIZE_MAX: usize = 512 << 10;
/// Positions that are compared with a table before the pattern runs.
const PREFIX_LEN_MAX: usize = 24;
/// The bits of entropy of a byte.
const ENTROPY_MAX: f64 = 8.0;
/// Ids are part of reports and allow-lists.
const ID_LEN_MAX: usize = 64;

/// A set of bytes as a bit map.
#[derive(Clone, Copy, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] | other.0[index]))
    }
}

/// One step by which a match is extended.
#[derive(Clone, Debug)]
pub(crate) enum TailStep {
    /// Any number of bytes of an alphabet.
    Run(Alphabet),
    /// These bytes.
    Literal(Vec<u8>),
}

/// A rule with everything derived from it.
pub(crate) struct CompiledRule {
    pub(crate) rule: Rule,
    pub(crate) id: Arc<str>,
    pub(crate) fingerprint: RuleFingerprint,
    pub(crate) validator: Validator,
    pub(crate) entropy_millibits: u32,
    /// Longest match of the pattern.
    pub(crate) pattern_len: usize,
    /// Sets of the first bytes of every match.
    prefix: Vec<ByteSet>,
    regex: OnceLock<Regex>,
    /// How a match is extended.
    pub(crate) tail: Vec<TailStep>,
    /// The pattern has a group called `secret`.
    pub(crate) has_group: bool,
}

impl CompiledRule {
    /// Checks a rule and prepares it.
    pub(crate) fn new(rule: &Rule, compile_now: bool) -> Result<Self, RuleError> {
        let refused = |reason: String| RuleError::Refused { id: rule.id.clone(), reason };
        check_fields(rule).map_err(refused)?;
        let validator = validate::by_name(&rule.validator)
            .ok_or_else(|| refused(format!("there is no validator `{}`", rule.validator)))?;
        // Without a sample no test could show that the rule finds anything.
        if !mint::is_recipe(&rule.mint) {
            return Err(refused(format!("there is no mint recipe `{}`", rule.mint)));
        }
        let hir = parse(&rule.regex).map_err(refused)?;
        let (prefix, _) = prefix_sets(&hir);
        check_pattern(rule, &hir, &prefix).map_err(refused)?;
        let has_group = hir.properties().explicit_captures_len() > 0;
        // Refused and not ignored: the author of such a group expects that it narrows the secret.
        if has_group && !rule.regex.contains("<secret>") {
            return Err(refused("its group is not called `secret`; use (?:…)".to_owned()));
        }
        let tail = rule.tail.iter().map(|step| tail_step(step));
        let tail = tail.collect::<Result<_, _>>().map_err(refused)?;
        let regex = OnceLock::new();
        // Only now is it known whether its states fit into memory, and a scan in progress could
        // not report it.
        if compile_now {
            let compiled = compile(&rule.regex).map_err(refused)?;
            drop(regex.set(compiled));
        }
        let made = Self {
            fingerprint: rule.fingerprint(),
            entropy_millibits: rule.entropy_millibits(),
            id: rule.id.as_str().into(),
            rule: rule.clone(),
            validator,
            prefix,
            regex,
            tail,
            // The smaller of both bounds: it is what a search without a match costs in the budget.
            pattern_len: hir.properties().maximum_len().unwrap_or(rule.max_len).min(rule.max_len),
            has_group,
        };
        // The tests check the cost of compiled-in rules, so that a start does not take the time to
        // do so.
        match cost::refusal(&made).filter(|_| compile_now) {
            Some(reason) => Err(refused(reason)),
            None => Ok(made),
        }
    }

    /// Returns the compiled pattern.
    pub(crate) fn regex(&self) -> &Regex {
        self.regex.get_or_init(|| {
            compile(&self.rule.regex).expect("compiled-in patterns are compiled by the tests")
        })
    }

    /// Returns how far from the start of its literal the rule may look in plain text.
    pub(crate) fn reach(&self) -> usize {
        match self.rule.search {
            Search::At | Search::Assign => self.rule.max_len,
            Search::Near => NEAR_AHEAD,
            Search::Document => LOOK_AHEAD - LOOK_BEHIND,
        }
    }

    /// Returns whether the first bytes allow a match; cheap, and false for almost every hit.
    #[inline]
    pub(crate) fn prefix_fits(&self, bytes: &[u8]) -> bool {
        bytes.len() >= self.prefix.len()
            && self.prefix.iter().zip(bytes).all(|(set, byte)| set.contains(*byte))
    }
}

/// Reads a step of a tail.
pub(crate) fn tail_step(step: &str) -> Result<TailStep, String> {
    match step.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(name) => Alphabet::by_name(name)
            .map(TailStep::Run)
            .ok_or_else(|| format!("its tail has no alphabet `{name}`")),
        None if step.is_empty() => Err("a step of its tail is empty".to_owned()),
        None => Ok(TailStep::Literal(step.as_bytes().to_vec())),
    }
}

/// The rules about fields, one early return each.
fn check_fields(rule: &Rule) -> Result<(), String> {
    let is_id = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    if rule.id.is_empty() || rule.id.len() > ID_LEN_MAX || !rule.id.bytes().all(is_id) {
        return Err("the id needs lower-case letters, digits and `-`, at most 64".to_owned());
    }
    if rule.anchors.is_empty() && rule.words.is_empty() {
        return Err("without an anchor or a word, its pattern would run at every byte".to_owned());
    }
    for literal in rule.anchors.iter().chain(&rule.words) {
        if !literal.is_ascii() {
            return Err("an anchor is not ASCII".to_owned());
        }
        if !(LITERAL_LEN_MIN..=LITERAL_LEN_MAX).contains(&literal.len()) {
            let len = literal.len();
            return Err(format!(
                "an anchor has {len} bytes, expected {LITERAL_LEN_MIN} to {LITERAL_LEN_MAX}"
            ));
        }
    }
    // A longer match would end beyond the window of its hit, and depend on how the input is cut.
    if rule.max_len == 0 || rule.max_len > LOOK_AHEAD - LOOK_BEHIND {
        let max = LOOK_AHEAD - LOOK_BEHIND;
        return Err(format!("max_len is {}, expected 1 to {max}", rule.max_len));
    }
    // The other half of the window is for what precedes the match: a boundary, and the marker of
    // an allowed line.
    if rule.before > LOOK_BEHIND / 2 || rule.before_min > rule.before {
        let max = LOOK_BEHIND / 2;
        return Err(format!("before is {}, expected before_min to {max}", rule.before));
    }
    if rule.until.iter().any(String::is_empty) {
        return Err("a literal of `until` is empty".to_owned());
    }
    // Both say where the secret ends.
    if !rule.tail.is_empty() && !rule.until.is_empty() {
        return Err("it has a tail and `until`; use one of them".to_owned());
    }
    if !rule.entropy.is_none_or(|it| (0.0..=ENTROPY_MAX).contains(&it)) {
        return Err("its entropy is not between 0 and 8 bits".to_owned());
    }
    if rule.sample.matches("{}").count() != 1 {
        return Err("its sample needs `{}` once".to_owned());
    }
    Ok(())
}

/// The rules about patterns.
fn check_pattern(rule: &Rule, hir: &Hir, prefix: &[ByteSet]) -> Result<(), String> {
    let properties = hir.properties();
    // An unbounded repetition would run to the end of the window at each hit.
    let Some(max) = properties.maximum_len() else {
        return Err("its pattern has no longest match; give repetitions an upper bound".to_owned());
    };
    if max > PATTERN_LEN_MAX {
        return Err(format!("its pattern matches {max} bytes, at most {PATTERN_LEN_MAX} allowed"));
    }
    match properties.minimum_len() {
        // An empty match would be found at every hit, and a secret without bytes cannot be
        // reported.
        Some(min) if min > 0 && min <= rule.max_len => {}
        _ => return Err("its shortest match is empty or exceeds max_len".to_owned()),
    }
    // Only there does the match begin with its literal; elsewhere the pattern may begin with
    // anything.
    if rule.search != Search::At || rule.before > 0 {
        return Ok(());
    }
    let begins = |anchor: &str| {
        anchor.bytes().zip(prefix).all(|(byte, set)| {
            // In either case, because the spellings of a word have both.
            set.contains(byte.to_ascii_lowercase()) || set.contains(byte.to_ascii_uppercase())
        })
    };
    let stray = rule.anchors.iter().chain(&rule.words).find(|it| !begins(it));
    match stray {
        Some(anchor) => Err(format!("its pattern does not begin with its anchor `{anchor}`")),
        None => Ok(()),
    }
}

fn syntax_config() -> syntax::Config {
    // Inputs are bytes: a Unicode class would need many more states, and would refuse text that is
    // not UTF-8.
    syntax::Config::new().unicode(false).utf8(false)
}

/// Parses a pattern over bytes.
pub(crate) fn parse(pattern: &str) -> Result<Hir, String> {
    let parsed = syntax::parse_with(pattern, &syntax_config());
    parsed.map_err(|error| format!("its pattern cannot be read: {error}"))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let config = meta::Config::new()
        .utf8_empty(false)
        // All three, because each engine of the library has its own memory, and each thread its
        // own cache.
        .nfa_size_limit(Some(PATTERN_SIZE_MAX))
        .hybrid_cache_capacity(PATTERN_SIZE_MAX)
        .onepass_size_limit(Some(PATTERN_SIZE_MAX));
    let built = Regex::builder().configure(config).syntax(syntax_config()).build(pattern);
    built.map_err(|_| format!("its pattern needs more than {PATTERN_SIZE_MAX} bytes of states"))
}

/// Returns the sets of the first bytes of every match, and whether they are the whole match.
fn prefix_sets(hir: &Hir) -> (Vec<ByteSet>, bool) {
    let mut sets = Vec::new();
    let is_whole = match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => {
            for &byte in &literal.0 {
                let mut set = ByteSet::default();
                set.insert(byte);
                sets.push(set);
            }
            true
        }
        HirKind::Class(class) => match class_set(class) {
            Some(set) => {
                sets.push(set);
                true
            }
            None => false,
        },
        HirKind::Repetition(repetition) => {
            let (unit, unit_is_whole) = prefix_sets(&repetition.sub);
            for _ in 0..repetition.min {
                sets.extend(&unit);
                // Behind a part of unknown length no position is known.
                if !unit_is_whole || sets.len() >= PREFIX_LEN_MAX {
                    break;
                }
            }
            unit_is_whole && repetition.max == Some(repetition.min)
        }
        HirKind::Capture(capture) => return prefix_sets(&capture.sub),
        HirKind::Concat(parts) => {
            let mut is_whole = true;
            for part in parts {
                let (next, next_is_whole) = prefix_sets(part);
                sets.extend(next);
                is_whole = next_is_whole;
                if !is_whole || sets.len() >= PREFIX_LEN_MAX {
                    break;
                }
            }
            is_whole
        }
        HirKind::Alternation(branches) => {
            let branches: Vec<_> = branches.iter().map(prefix_sets).collect();
            // The shortest branch decides: behind its end, the bytes of a match are not known.
            let len = branches.iter().map(|(sets, _)| sets.len()).min().unwrap_or(0);
            sets = (0..len)
                .map(|at| branches.iter().fold(ByteSet::default(), |it, (s, _)| it.union(&s[at])))
                .collect();
            branches.iter().all(|(sets, is_whole)| *is_whole && sets.len() == len)
        }
    };
    let is_whole = is_whole && sets.len() <= PREFIX_LEN_MAX;
    sets.truncate(PREFIX_LEN_MAX);
    (sets, is_whole)
}

/// The bytes of a class; `None` if it has a character beyond ASCII.
fn class_set(class: &Class) -> Option<ByteSet> {
    let mut set = ByteSet::default();
    match class {
        Class::Bytes(bytes) => {
            for range in bytes.ranges() {
                (range.start()..=range.end()).for_each(|byte| set.insert(byte));
            }
        }
        Class::Unicode(characters) => {
            for range in characters.ranges() {
                let (start, end) = (u8::try_from(range.start()), u8::try_from(range.end()));
                // Beyond ASCII a character has several bytes, which one set cannot describe.
                let (Ok(start), Ok(end @ ..=127)) = (start, end) else { return None };
                (start..=end).for_each(|byte| set.insert(byte));
            }
        }
    }
    Some(set)
}
