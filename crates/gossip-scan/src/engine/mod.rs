//! From a hit of the prefilter to findings: boundary, pattern, validator, gates, decoding.
//!
//! Everything here is a function of a bounded window around a hit: [`LOOK_BEHIND`] bytes before the
//! literal and [`LOOK_AHEAD`] from its start. No state of an earlier hit changes a later result,
//! except the decoding budget and the spacing of searches nearby, which depend on positions only.
//! That makes results independent of how the input is cut into chunks.

mod assign;
mod gates;
mod pending;
mod rule_match;
mod span;
mod work;

use std::sync::Arc;

use regex_automata::meta::Cache;
use regex_automata::util::captures::Captures;

use self::span::{encoded_len, encoded_span, form_class, is_cut, percent_may_hide};
use crate::anchors::Form;
use crate::compiled::CompiledRule;
use crate::decode::{self, Decoded};
use crate::finding::Checksum;
use crate::prefilter::{Hit, Literal, Prefilter};
use crate::rule::{Confidence, Search};
use crate::validate::Details;

pub(crate) use gates::is_config_path;
pub(crate) use pending::{HOLD, Pending, Placed};
pub(crate) use rule_match::{NEAR_AHEAD, NEAR_WINDOW};
pub(crate) use work::Work;

/// Bytes before a literal that may decide about a match.
pub(crate) const LOOK_BEHIND: usize = 4 << 10;
/// Bytes from the start of a literal that may decide about a match. A PEM block of a 16,384-bit key
/// has 12 KiB.
pub(crate) const LOOK_AHEAD: usize = 20 << 10;
/// Spans of encoded text nest at most this deep.
const DECODE_DEPTH_MAX: u8 = 3;
/// Encoded text before a hit that is decoded with it.
const DECODE_BEHIND: usize = 1 << 10;
/// Plain bytes beyond a rule's own reach that are decoded with a hit: a name, quotes, context.
const DECODE_SLACK: usize = 1 << 10;
/// Decoded bytes allowed before any are earned by progress.
const DECODE_BYTES_FREE: u64 = 1 << 20;
/// Decoded bytes allowed per byte of input: text that is one large anchor cannot cost more.
const DECODE_BYTES_PER_BYTE: u64 = 4;

/// Literals of one rule closer than this share one search of the lines around them.
const NEAR_SPACING: u64 = 64;

/// What an item's path says about it.
#[derive(Clone, Default)]
pub(crate) struct ItemTraits {
    /// Values without quotes are assignments in such files.
    pub(crate) is_config: bool,
    /// Whether each rule applies, by index; empty if all do.
    pub(crate) applies: Vec<bool>,
}

/// Bytes around a hit, and whether more bytes exist beyond either end.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) open_left: bool,
    pub(crate) open_right: bool,
}

/// A match in a view.
pub(crate) struct Candidate {
    pub(crate) rule: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) confidence: Confidence,
    pub(crate) checksum: Checksum,
    pub(crate) decoded: u8,
    pub(crate) details: Details,
    pub(crate) secret: Vec<u8>,
}

/// The parts of a scanner that never change.
pub(crate) struct Engine {
    pub(crate) rules: Vec<CompiledRule>,
    pub(crate) prefilter: Prefilter,
    /// Distinguishes scanners, because caches of one do not fit another.
    pub(crate) identity: Arc<()>,
}

/// Caches of patterns, one per rule, created at the first use.
#[derive(Default)]
pub(crate) struct Caches {
    slots: Vec<Option<(Cache, Captures)>>,
}

impl Caches {
    fn slot(&mut self, index: usize, rule: &CompiledRule) -> &mut (Cache, Captures) {
        // Grown on demand: the caches of all rules would take far more memory than those that have
        // hits.
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index].get_or_insert_with(|| {
            let regex = rule.regex();
            (regex.create_cache(), regex.create_captures())
        })
    }
}

/// One item's scan in progress.
pub(crate) struct Session<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) caches: &'a mut Caches,
    pub(crate) traits: &'a ItemTraits,
    pub(crate) structured_only: bool,
    /// Bytes decoded so far in this item.
    decoded_bytes: u64,
    /// The decoding budget was exceeded.
    pub(crate) budget_exceeded: bool,
    /// The last span that was decoded whole, in positions of the item, with its form.
    last_span: Option<(Form, u64, u64)>,
    /// The work of patterns so far in this item.
    pub(crate) work: Work,
    /// For each rule that searches nearby, where its last search was, in positions of the item.
    near: Vec<(usize, u64)>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        caches: &'a mut Caches,
        traits: &'a ItemTraits,
        structured_only: bool,
    ) -> Self {
        Self {
            engine,
            caches,
            traits,
            structured_only,
            decoded_bytes: 0,
            budget_exceeded: false,
            last_span: None,
            work: Work::default(),
            near: Vec::new(),
        }
    }

    /// Examines one hit; `base` is the position of the view in the item.
    pub(crate) fn examine(
        &mut self,
        view: View<'_>,
        hit: Hit,
        base: u64,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        let engine = self.engine;
        let literal = engine.prefilter.literal(hit);
        // Positions in decoded text are none of the item, and would let the budget grow by
        // decoding.
        if depth == 0 {
            self.work.reach(base + hit.start as u64);
        }
        if literal.is_word && self.structured_only {
            return;
        }
        match literal.form {
            Form::Plain => {
                for &index in &literal.rules {
                    self.apply(view, hit, index, literal, depth, base, out);
                }
                // An anchor without reserved bytes looks the same in escaped text; the secret
                // behind it may not.
                if percent_may_hide(view.bytes, hit.start) {
                    self.decode_around(view, hit, Form::Percent, base, depth, out);
                }
            }
            form => self.decode_around(view, hit, form, base, depth, out),
        }
    }

    /// Applies one rule to one hit in plain text.
    #[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename them")]
    fn apply(
        &mut self,
        view: View<'_>,
        hit: Hit,
        index: usize,
        literal: &Literal,
        depth: u8,
        base: u64,
        out: &mut Vec<Candidate>,
    ) {
        if self.traits.applies.get(index) == Some(&false) {
            return;
        }
        // Only what this rule finds is decoded below, not what others have found.
        let first_new = out.len();
        let rule = &self.engine.rules[index];
        match rule.rule.search {
            Search::At => self.match_at(view, hit.start, index, depth, out),
            Search::Assign => {
                self.match_assigned(view, hit.start, hit.start + literal.len, index, depth, out);
            }
            Search::Near
                if depth == 0 && self.near_was_searched(index, base + hit.start as u64) => {}
            Search::Near => {
                let range = rule_match::near(view.bytes, hit.start);
                self.match_in(view, hit.start, range, index, depth, out);
            }
            Search::Document => {
                let range = rule_match::document(view.bytes, hit.start, literal.len);
                // Once for the document and before the pattern, which is far slower on large
                // documents.
                if rule_match::has_word(&view.bytes[range.0..range.1], &rule.rule.nearby) {
                    self.match_in(view, hit.start, range, index, depth, out);
                }
            }
        }
        if rule.rule.decode && depth < DECODE_DEPTH_MAX {
            // Copied, because the search of decoded bytes appends to the same list.
            let spans: Vec<_> = out[first_new..].iter().map(|it| (it.start, it.end)).collect();
            for (start, end) in spans {
                let decoded = decode::base64_span(&view.bytes[start..end]);
                self.rescan(&decoded, start, (false, false), base, depth, out);
            }
        }
    }

    /// Returns whether the lines around a literal were searched just before it; if not, notes that
    /// they are now.
    fn near_was_searched(&mut self, rule: usize, position: u64) -> bool {
        match self.near.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, last)) if position.saturating_sub(*last) < NEAR_SPACING => true,
            Some((_, last)) => {
                *last = position;
                false
            }
            None => {
                self.near.push((rule, position));
                false
            }
        }
    }

    /// Decodes the text around a hit in encoded form, and searches the decoded bytes.
    fn decode_around(
        &mut self,
        view: View<'_>,
        hit: Hit,
        form: Form,
        base: u64,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        if depth >= DECODE_DEPTH_MAX {
            return;
        }
        let reach = self.engine.prefilter.literal(hit).reach + DECODE_SLACK;
        let (start, end) = encoded_span(view.bytes, hit.start, form, reach);
        let open_left = start == 0 && view.open_left || hit.start - start >= DECODE_BEHIND;
        let open_right = is_cut(view, end, hit.start + encoded_len(form, reach));
        let is_whole = depth == 0 && !open_left && !open_right;
        let absolute = (form_class(form), base + start as u64, base + end as u64);
        // Several hits in one span decode to the same bytes, which were searched already.
        if is_whole && self.last_span == Some(absolute) {
            return;
        }
        // A span that is cut is not remembered: the window of the next hit may show more of it.
        self.last_span = is_whole.then_some(absolute);
        let source = &view.bytes[start..end];
        let decoded = match form {
            Form::Base64 { .. } => decode::wrapped_base64_span(source),
            Form::Utf16Le => decode::utf16_span(source, true),
            Form::Utf16Be => decode::utf16_span(source, false),
            Form::Percent | Form::Plain => decode::percent_span(source),
        };
        self.rescan(&decoded, start, (open_left, open_right), base, depth, out);
    }

    /// Searches decoded bytes and reports findings at their place in the source.
    fn rescan(
        &mut self,
        decoded: &Decoded,
        source_start: usize,
        (open_left, open_right): (bool, bool),
        base: u64,
        depth: u8,
        out: &mut Vec<Candidate>,
    ) {
        self.decoded_bytes += decoded.bytes.len() as u64;
        // Positions of the item, not of the read buffer: the same under every chunk size.
        let allowed = DECODE_BYTES_FREE + DECODE_BYTES_PER_BYTE * base;
        if self.decoded_bytes > allowed {
            self.budget_exceeded = true;
            return;
        }
        let engine = self.engine;
        let view = View { bytes: &decoded.bytes, open_left, open_right };
        let mut inner = Vec::new();
        engine.prefilter.find(&decoded.bytes, 0, |hit| {
            self.examine(view, hit, base, depth + 1, &mut inner);
        });
        for mut candidate in inner {
            // A reader needs the place in the input: the decoded bytes exist nowhere.
            let (start, end) = decoded.source_span(candidate.start, candidate.end);
            (candidate.start, candidate.end) = (source_start + start, source_start + end);
            out.push(candidate);
        }
    }
}
