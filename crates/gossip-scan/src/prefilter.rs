//! One pass over raw bytes that finds every literal of every rule.
//!
//! The automaton is a DFA by request: the default choice for this many literals is a third as fast.
//! Context words are part of it in the spellings that occur, so that the bytes are read once. This
//! module reports positions of literals; it decides nothing about them.

use std::collections::BTreeMap;

use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::{Builder, DFA};
use aho_corasick::{Input, MatchKind, automaton::OverlappingState};

use crate::anchors::{self, Form};
use crate::compiled::CompiledRule;
use crate::error::RuleError;

/// One literal of the automaton.
pub(crate) struct Literal {
    pub(crate) form: Form,
    pub(crate) len: usize,
    /// Indices of rules, ascending.
    pub(crate) rules: Vec<usize>,
    /// Plain bytes from the literal's start that its rules may look at.
    pub(crate) reach: usize,
    /// The literal ends inside a name; see [`crate::rule::Search::Assign`].
    pub(crate) is_word: bool,
}

/// A literal at a position.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    pub(crate) literal: usize,
}

/// Maximum length of all literals together, in all their forms. The automaton has at most one state
/// per byte, and a state takes up to 1 KiB.
const LITERAL_BYTES_MAX: usize = 1 << 20;

// The ids of states are multiplied by the number of transitions and must fit into 31 bits.
const _: () = assert!((LITERAL_BYTES_MAX + 2) * 256 < 1 << 31);

/// The automaton over all literals.
pub(crate) struct Prefilter {
    dfa: DFA,
    literals: Vec<Literal>,
    len_max: usize,
}

impl Prefilter {
    /// Builds the automaton.
    pub(crate) fn new(rules: &[CompiledRule]) -> Result<Self, RuleError> {
        // Ordered, so that numbers of literals do not depend on anything but the rules.
        let mut table: BTreeMap<(Vec<u8>, Form, bool), Vec<usize>> = BTreeMap::new();
        for (index, compiled) in rules.iter().enumerate() {
            for anchor in &compiled.rule.anchors {
                for (form, literal) in anchors::forms(anchor.as_bytes()) {
                    note(&mut table, (literal, form, false), index);
                }
            }
            for spelling in compiled.rule.words.iter().flat_map(|word| anchors::spellings(word)) {
                for (form, literal) in anchors::forms(&spelling) {
                    note(&mut table, (literal, form, true), index);
                }
            }
        }
        let len = table.keys().map(|(literal, ..)| literal.len()).sum();
        if len > LITERAL_BYTES_MAX {
            return Err(RuleError::Literals { len, max: LITERAL_BYTES_MAX });
        }
        let dfa = Builder::new()
            // The only kind that reports overlapping matches: one literal may lie inside another.
            .match_kind(MatchKind::Standard)
            .prefilter(false)
            .build(table.keys().map(|(literal, ..)| literal))
            .expect("so few literals make fewer states than there are ids");
        let len_max = table.keys().map(|(literal, ..)| literal.len()).max().unwrap_or(1);
        let literals = table
            .into_iter()
            .map(|((literal, form, is_word), numbers)| Literal {
                form,
                len: literal.len(),
                // The farthest of them, because the text around a hit is decoded once for all.
                reach: numbers.iter().map(|it| rules[*it].reach()).max().unwrap_or(0),
                rules: numbers,
                is_word,
            })
            .collect();
        Ok(Self { dfa, literals, len_max })
    }

    /// Calls `visit` for every literal that ends in `bytes[from..]` beyond `from`, in the order of
    /// ends. Literals may begin before `from`.
    pub(crate) fn find(&self, bytes: &[u8], from: usize, mut visit: impl FnMut(Hit)) {
        // Far enough back that a literal which ends at `from + 1` is seen whole.
        let start = from.saturating_sub(self.len_max - 1);
        let input = Input::new(bytes).span(start..bytes.len());
        let mut state = OverlappingState::start();
        loop {
            // The only error is an anchored search, which this is not.
            if self.dfa.try_find_overlapping(&input, &mut state).is_err() {
                return;
            }
            let Some(found) = state.get_match() else { return };
            // The others were visited by the call before.
            if found.end() > from {
                visit(Hit { start: found.start(), literal: found.pattern().as_usize() });
            }
        }
    }

    pub(crate) fn literal(&self, hit: Hit) -> &Literal {
        &self.literals[hit.literal]
    }

    /// Returns the length of the longest literal.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max
    }

    /// Returns the number of literals and the bytes of the automaton.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.literals.len(), self.dfa.memory_usage())
    }
}

fn note(
    table: &mut BTreeMap<(Vec<u8>, Form, bool), Vec<usize>>,
    key: (Vec<u8>, Form, bool),
    rule: usize,
) {
    let rules = table.entry(key).or_default();
    // Rules come in ascending order, so the last entry shows whether this one is there.
    if rules.last() != Some(&rule) {
        rules.push(rule);
    }
}
