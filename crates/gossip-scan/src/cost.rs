//! The cost of a rule on text without secrets: how many bytes its pattern is applied to, for each
//! byte of a fixed probe of prose, code, logs and data.
//!
//! A rule whose anchor is a common word, and whose pattern is applied at many positions around it,
//! takes minutes for a file that others pass in milliseconds. This estimate refuses it before a
//! scan begins; what an unusual text costs is bounded while it is searched.

use crate::anchors;
use crate::compiled::CompiledRule;
use crate::engine::{LOOK_AHEAD, LOOK_BEHIND, NEAR_WINDOW};
use crate::rule::{Rule, Search};

/// Text in which every rule must be cheap.
const PROBE: &[u8] = include_bytes!("../rules/probe.txt");
/// Bytes of pattern work per byte of text. The costliest built-in rule has less than one; at
/// sixteen, the pattern takes as long as the rest of the search.
const WORK_PER_BYTE_MAX: usize = 16;

/// Returns why a rule would be slow, if it would.
pub(crate) fn refusal(compiled: &CompiledRule) -> Option<String> {
    let work = work(compiled) / PROBE.len();
    (work > WORK_PER_BYTE_MAX).then(|| {
        format!(
            "its pattern would be applied to {work} bytes per byte of ordinary text, at most \
             {WORK_PER_BYTE_MAX} allowed; use a rarer anchor, or a smaller `before` or pattern"
        )
    })
}

fn work(compiled: &CompiledRule) -> usize {
    let rule = &compiled.rule;
    let words = rule.words.iter().flat_map(|word| anchors::spellings(word));
    let literals = rule.anchors.iter().map(|anchor| anchor.clone().into_bytes()).chain(words);
    literals
        .map(|literal| {
            // Plain forms only: the probe is ordinary text, in which encoded ones hardly occur.
            let hits = memchr::memmem::find_iter(PROBE, &literal);
            hits.map(|at| work_at(compiled, rule, at)).sum::<usize>()
        })
        .sum()
}

/// Bytes that the pattern may be applied to because of one hit.
fn work_at(compiled: &CompiledRule, rule: &Rule, at: usize) -> usize {
    match rule.search {
        Search::At => {
            let Some(last) = at.checked_sub(rule.before_min) else { return 0 };
            let starts = at.saturating_sub(rule.before)..=last;
            starts.filter(|start| compiled.prefix_fits(&PROBE[*start..])).count()
                * compiled.pattern_len
        }
        Search::Assign => compiled.pattern_len,
        Search::Near => NEAR_WINDOW,
        // A document is searched for each of its hits, and ends at the next one.
        Search::Document => 2 * (LOOK_AHEAD + LOOK_BEHIND).min(PROBE.len()),
    }
}
