//! One rule at one hit: candidates for the start, pattern, boundaries, validator, gates.

use regex_automata::{Anchored, Input};

use super::{Candidate, Session, View, assign, gates};
use crate::Alphabet;
use crate::compiled::CompiledRule;
use crate::finding::Checksum;
use crate::validate::Verdict;

/// Lines around a literal that [`crate::rule::Search::Near`] looks at.
const NEAR_LINES: usize = 8;
/// Bytes before a literal that count as near.
const NEAR_BEHIND: usize = 2 << 10;
/// Bytes after a literal that count as near.
pub(crate) const NEAR_AHEAD: usize = 4 << 10;
/// Matches that one literal may lead to.
const NEAR_MATCHES_MAX: usize = 32;
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
        for start in first..=last {
            if !compiled.prefix_fits(&view.bytes[start..]) || !left_is_free(view, start, rule.left)
            {
                continue;
            }
            let end = view.bytes.len().min(start + rule.max_len);
            let Some(found) = self.search(compiled, index, view.bytes, (start, end), true) else {
                continue;
            };
            if found.end <= at || !right_is_free(view, found.end, rule.right) {
                continue;
            }
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

    /// The pattern matches within a few lines.
    pub(super) fn match_near(
        &mut self,
        view: View<'_>,
        at: usize,
        index: usize,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        let engine = self.engine;
        let compiled = &engine.rules[index];
        if !left_is_free(view, at, compiled.rule.left) {
            return;
        }
        let (start, end) = near(view.bytes, at);
        let mut from = start;
        for _ in 0..NEAR_MATCHES_MAX {
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

    fn search(
        &mut self,
        compiled: &CompiledRule,
        index: usize,
        bytes: &[u8],
        (start, end): (usize, usize),
        is_anchored: bool,
    ) -> Option<Match> {
        let anchored = if is_anchored { Anchored::Yes } else { Anchored::No };
        let input = Input::new(bytes).span(start..end).anchored(anchored);
        let regex = compiled.regex();
        let (cache, captures) = self.caches.slot(index, compiled);
        if !compiled.has_group {
            let found = regex.search_with(cache, &input)?;
            let (start, end) = (found.start(), found.end());
            return Some(Match { end, secret_start: start, secret_end: end });
        }
        regex.search_captures_with(cache, &input, captures);
        let found = captures.get_match()?;
        let secret = captures.get_group_by_name("secret").unwrap_or_else(|| found.span());
        let (secret_start, secret_end) = (secret.start, secret.end);
        Some(Match { end: found.end(), secret_start, secret_end })
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
            let Some(extended) = extend_until(&view.bytes[..limit], end, &rule.until) else {
                return false;
            };
            end = extended;
        }
        let secret = &view.bytes[start..end];
        if secret.is_empty() || !is_near(view.bytes, at, &rule.nearby) {
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
fn near(bytes: &[u8], at: usize) -> (usize, usize) {
    let first = at.saturating_sub(NEAR_BEHIND);
    let last = bytes.len().min(at + NEAR_AHEAD);
    let start = memchr::memrchr_iter(b'\n', &bytes[first..at]).nth(NEAR_LINES);
    let end = memchr::memchr_iter(b'\n', &bytes[at..last]).nth(NEAR_LINES);
    (start.map_or(first, |it| first + it), end.map_or(last, |it| at + it))
}

/// Returns whether one of several literals occurs near a position, whatever its case.
fn is_near(bytes: &[u8], at: usize, literals: &[String]) -> bool {
    if literals.is_empty() {
        return true;
    }
    let window = &bytes[at.saturating_sub(NEAR_BEHIND)..bytes.len().min(at + NEAR_AHEAD)];
    let lower = window.to_ascii_lowercase();
    literals.iter().any(|literal| memchr::memmem::find(&lower, literal.as_bytes()).is_some())
}
