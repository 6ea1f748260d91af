//! One rule at one hit: candidates for the start, pattern, boundaries, validator, gates.

use regex_automata::{Anchored, Input};

use super::{Candidate, Session, View, assign, gates};
use crate::Alphabet;
use crate::compiled::{CompiledRule, TailStep};
use crate::finding::Checksum;
use crate::rule::{Rule, Search};
use crate::validate::Verdict;

/// Lines around a literal that [`crate::rule::Search::Near`] looks at.
const NEAR_LINES: usize = 8;
/// Bytes before a literal that count as near.
const NEAR_BEHIND: usize = 2 << 10;
/// Bytes after a literal that count as near.
pub(crate) const NEAR_AHEAD: usize = 4 << 10;
/// Bytes that are searched for a literal that is near.
pub(crate) const NEAR_WINDOW: usize = NEAR_BEHIND + NEAR_AHEAD;
/// Matches that one literal may lead to, those that are no secrets included.
const RANGE_MATCHES_MAX: usize = 512;
/// Begins the line between two documents of YAML.
const DOCUMENT_LINE: &[u8] = b"\n---";
/// Bytes between a match and the literals of `until`, beyond the match's own bound.
const UNTIL_SLACK: usize = 64;

impl Session<'_> {
    /// The match contains the literal.
    pub(super) fn match_at(
        &mut self,
        view: View<'_>,
        at: usize,
        index: usize,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        let engine = self.engine;
        let compiled = &engine.rules[index];
        let rule = &compiled.rule;
        let first = at.saturating_sub(rule.before);
        let Some(last) = at.checked_sub(rule.before_min) else { return };
        if !self.work.is_left() {
            return;
        }
        // Counted before the loop, because starts that do not fit cost time as well.
        self.work.add_starts((last + 1).saturating_sub(first));
        for start in first..=last {
            if !compiled.prefix_fits(&view.bytes[start..]) || !left_is_free(view, start, rule.left)
            {
                continue;
            }
            let end = view.bytes.len().min(start + rule.max_len);
            let Some(found) = self.search(compiled, index, view.bytes, (start, end), true) else {
                continue;
            };
            // It lies before the literal as a whole; a secret there has a literal of its own.
            if found.end <= at || !right_is_free(view, found.end, rule.right) {
                continue;
            }
            // One literal is part of one secret: later starts would give parts of the same.
            if self.accept(view, at, index, found, depth, out) {
                return;
            }
        }
    }

    /// The literal is part of a name to which a value is assigned.
    pub(super) fn match_assigned(
        &mut self,
        view: View<'_>,
        at: usize,
        name_end: usize,
        index: usize,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        let engine = self.engine;
        let compiled = &engine.rules[index];
        let is_config = self.traits.is_config;
        let Some(value) = assign::value_after(view, at, name_end, is_config) else { return };
        let (start, end) = (value.start, value.end);
        if end - start > compiled.rule.max_len || !compiled.prefix_fits(&view.bytes[start..end]) {
            return;
        }
        let Some(found) = self.search(compiled, index, view.bytes, (start, end), true) else {
            return;
        };
        // The whole value, or it is another kind of value.
        if found.end == end {
            self.accept(view, at, index, found, depth, out);
        }
    }

    /// The pattern matches within a range around the literal.
    pub(super) fn match_in(
        &mut self,
        view: View<'_>,
        at: usize,
        (start, end): (usize, usize),
        index: usize,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        let engine = self.engine;
        let compiled = &engine.rules[index];
        // A literal inside a longer word is not the context that the rule asks for.
        if !left_is_free(view, at, compiled.rule.left) {
            return;
        }
        let mut from = start;
        for _ in 0..RANGE_MATCHES_MAX {
            let Some(found) = self.search(compiled, index, view.bytes, (from, end), false) else {
                return;
            };
            // Boundaries are those of the secret: the rest of the pattern is context.
            let is_free = left_is_free(view, found.secret_start, compiled.rule.left)
                && right_is_free(view, found.secret_end, compiled.rule.right);
            from = found.end.max(from + 1);
            if is_free {
                self.accept(view, at, index, found, depth, out);
            }
        }
    }

    /// Searches a pattern and its tail, within the budget of the item.
    fn search(
        &mut self,
        compiled: &CompiledRule,
        index: usize,
        bytes: &[u8],
        (start, end_max): (usize, usize),
        is_anchored: bool,
    ) -> Option<Match> {
        if !self.work.is_left() {
            return None;
        }
        let found = self.find(compiled, index, bytes, (start, end_max), is_anchored);
        // How far a search without a match looked is not known: as far as its pattern may.
        let range = end_max - start;
        self.work.add(match &found {
            Some(found) => found.end - start,
            None if is_anchored => range.min(compiled.pattern_len),
            None => range,
        });
        found
    }

    fn find(
        &mut self,
        compiled: &CompiledRule,
        index: usize,
        bytes: &[u8],
        (start, end_max): (usize, usize),
        is_anchored: bool,
    ) -> Option<Match> {
        let anchored = if is_anchored { Anchored::Yes } else { Anchored::No };
        // A span and not a slice, so that `\b` and `^` see the bytes before the start.
        let input = Input::new(bytes).span(start..end_max).anchored(anchored);
        let regex = compiled.regex();
        let (cache, captures) = self.caches.slot(index, compiled);
        // Captures need a slower engine, so only patterns with a group pay for it.
        if !compiled.has_group {
            let found = regex.search_with(cache, &input)?;
            let (start, end) = (found.start(), found.end());
            let limit = limit_of(compiled, start, end_max);
            let extended = extend(compiled, &bytes[..limit], end)?;
            let secret_end = extended.secret;
            return Some(Match { end: extended.end, secret_start: start, secret_end });
        }
        regex.search_captures_with(cache, &input, captures);
        let found = captures.get_match()?;
        let secret = captures.get_group_by_name("secret").unwrap_or_else(|| found.span());
        let limit = limit_of(compiled, found.start(), end_max);
        let extended = extend(compiled, &bytes[..limit], found.end())?;
        // A tail belongs to the secret, so the pattern has nothing behind its group.
        let secret_end = if compiled.tail.is_empty() { secret.end } else { extended.secret };
        Some(Match { end: extended.end, secret_start: secret.start, secret_end })
    }

    /// Runs validator and gates; returns whether the match became a candidate.
    fn accept(
        &self,
        view: View<'_>,
        at: usize,
        index: usize,
        found: Match,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) -> bool {
        let compiled = &self.engine.rules[index];
        let rule = &compiled.rule;
        let (start, mut end) = (found.secret_start, found.secret_end);
        if !rule.until.is_empty() {
            let limit = view.bytes.len().min(start + rule.max_len + UNTIL_SLACK);
            // Not part of the pattern: the distance to the end is large, and would need a state
            // for each byte.
            let Some(extended) = extend_until(&view.bytes[..limit], end, &rule.until) else {
                return false;
            };
            end = extended;
        }
        let secret = &view.bytes[start..end];
        if secret.is_empty() || !context_fits(rule, view.bytes, at) {
            return false;
        }
        let mut details = Vec::new();
        let (checksum, mut confidence) = match (compiled.validator)(secret, &mut details) {
            Verdict::Reject => return false,
            Verdict::Valid => (Checksum::Valid, rule.confidence),
            Verdict::Unchecked => (Checksum::None, rule.confidence),
            Verdict::Fail => (Checksum::Fail, rule.confidence.lowered()),
        };
        // A token that proves itself is no placeholder, whatever it spells.
        if checksum != Checksum::Valid && !gates::pass(compiled, secret) {
            return false;
        }
        if rule.generic && self.traits.is_config {
            confidence = gates::raised_in_config(confidence);
        }
        let secret = secret.to_vec();
        out.push(Candidate {
            rule: index,
            start,
            end,
            confidence,
            checksum,
            decoded: depth,
            details,
            secret,
        });
        true
    }
}

/// Returns the end of the bytes that a match may be extended over.
fn limit_of(compiled: &CompiledRule, start: usize, end_max: usize) -> usize {
    end_max.min(start + compiled.rule.max_len)
}

/// The ends of a match and of its secret, with their tail.
struct Extended {
    end: usize,
    secret: usize,
}

/// Extends a match by its tail; `None` if a literal of the tail does not follow.
fn extend(compiled: &CompiledRule, bytes: &[u8], end: usize) -> Option<Extended> {
    let mut extended = Extended { end, secret: end };
    for step in &compiled.tail {
        let rest = bytes.get(extended.end..)?;
        match step {
            TailStep::Run(alphabet) => {
                extended.end += rest.iter().take_while(|byte| alphabet.contains(**byte)).count();
                extended.secret = extended.end;
            }
            TailStep::Literal(literal) => {
                extended.end += rest.starts_with(literal).then_some(literal.len())?;
            }
        }
    }
    Some(extended)
}

/// A match of a pattern and the part of it that is the secret.
struct Match {
    end: usize,
    secret_start: usize,
    secret_end: usize,
}

/// Returns whether a match may begin here: not inside a longer word.
fn left_is_free(view: View<'_>, start: usize, alphabet: Alphabet) -> bool {
    if alphabet == Alphabet::None {
        return true;
    }
    let Some(previous) = start.checked_sub(1) else { return !view.open_left };
    let bytes = view.bytes;
    if !alphabet.contains(bytes[previous]) {
        return true;
    }
    // `\n`, `\t` and `\u0022` in a string literal end a word, although their last byte is in it.
    let is_escape = previous >= 1
        && bytes[previous - 1] == b'\\'
        && matches!(bytes[previous], b'n' | b'r' | b't')
        && !(previous >= 2 && bytes[previous - 2] == b'\\');
    is_escape || previous >= 5 && bytes[previous - 5..].starts_with(b"\\u00")
}

fn right_is_free(view: View<'_>, end: usize, alphabet: Alphabet) -> bool {
    match view.bytes.get(end) {
        Some(&next) => !alphabet.contains(next),
        // At the end of a window that was cut, the next byte is not known and may continue the
        // word.
        None => alphabet == Alphabet::None || !view.open_right,
    }
}

/// Returns the end of the last of several literals that follow each other in order.
fn extend_until(bytes: &[u8], from: usize, literals: &[String]) -> Option<usize> {
    let mut end = from;
    for literal in literals {
        end += memchr::memmem::find(bytes.get(end..)?, literal.as_bytes())? + literal.len();
    }
    Some(end)
}

/// The bytes within some lines of a position.
pub(super) fn near(bytes: &[u8], at: usize) -> (usize, usize) {
    let first = at.saturating_sub(NEAR_BEHIND);
    let last = bytes.len().min(at + NEAR_AHEAD);
    let start = memchr::memrchr_iter(b'\n', &bytes[first..at]).nth(NEAR_LINES);
    let end = memchr::memchr_iter(b'\n', &bytes[at..last]).nth(NEAR_LINES);
    (start.map_or(first, |it| first + it), end.map_or(last, |it| at + it))
}

/// The document around a literal. It ends at the next occurrence of the literal, too, so that a
/// text full of them is searched twice at most.
pub(super) fn document(bytes: &[u8], at: usize, len: usize) -> (usize, usize) {
    let literal = &bytes[at..bytes.len().min(at + len)];
    let (before, after) = (&bytes[..at], &bytes[at + literal.len()..]);
    let previous = memchr::memmem::rfind(before, literal).map_or(0, |it| it + literal.len());
    let line = memchr::memmem::rfind(&before[previous..], DOCUMENT_LINE);
    let start = line.map_or(previous, |it| previous + it + DOCUMENT_LINE.len());
    let after = &after[..memchr::memmem::find(after, literal).unwrap_or(after.len())];
    let after = &after[..memchr::memmem::find(after, DOCUMENT_LINE).unwrap_or(after.len())];
    (start, at + literal.len() + after.len())
}

/// Returns whether the words that must be near are; those of a document were compared before.
fn context_fits(rule: &Rule, bytes: &[u8], at: usize) -> bool {
    let window = || &bytes[at.saturating_sub(NEAR_BEHIND)..bytes.len().min(at + NEAR_AHEAD)];
    match rule.search {
        Search::At | Search::Assign | Search::Near => has_word(window(), &rule.nearby),
        Search::Document => true,
    }
}

/// Returns whether one of several literals occurs in bytes, whatever its case; true without any.
pub(super) fn has_word(bytes: &[u8], literals: &[String]) -> bool {
    if literals.is_empty() {
        return true;
    }
    let lower = bytes.to_ascii_lowercase();
    literals.iter().any(|literal| memchr::memmem::find(&lower, literal.as_bytes()).is_some())
}
