//! Every documented kind of secret, from samples that do not come from the rules.
//!
//! The samples of `samples.rs` follow from the patterns of the rules, so a wrong pattern has wrong
//! samples, and no test fails. Here they follow from the table of formats: vendor, prefix,
//! alphabet, length, checksum. They are minted from seeds while the test runs; none is ever written
//! down.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a file of tests")]

#[path = "table/kinds.rs"]
mod kinds;
#[path = "table/samples.rs"]
mod samples;

use std::collections::BTreeSet;

use gossip_scan::{RuleSet, ScanOptions, Scanner};
use kinds::{EXCEPTIONS, IN_CONTEXT, TOKENS};
use samples::{Random, Sample};

/// Samples per kind.
const SEEDS: u64 = 4;

/// The numbers of the table.
const KINDS: u32 = 140;

/// Finds secrets by rule, and collects what should be different.
struct Bench {
    scanner: Scanner,
    wrong: BTreeSet<String>,
    /// Documented exceptions that were seen.
    known: BTreeSet<(&'static str, &'static str)>,
}

impl Bench {
    fn new() -> Self {
        let scanner = Scanner::new(&RuleSet::built_in(), ScanOptions::default()).unwrap();
        Self { scanner, wrong: BTreeSet::new(), known: BTreeSet::new() }
    }

    /// Returns whether a rule finds exactly this secret.
    fn finds(&self, path: &str, text: &str, rule: &str, secret: &str) -> bool {
        let mut is_found = false;
        let mut scratch = self.scanner.scratch();
        self.scanner.scan_bytes(&mut scratch, path.as_bytes(), text.as_bytes(), |it| {
            is_found |= *it.rule == *rule && it.secret.expose() == secret.as_bytes();
        });
        is_found
    }

    /// Returns whether a rule finds anything.
    fn finds_any(&self, path: &str, text: &str, rule: &str) -> bool {
        let mut is_found = false;
        let mut scratch = self.scanner.scratch();
        let sink = |it: gossip_scan::Finding| is_found |= *it.rule == *rule;
        self.scanner.scan_bytes(&mut scratch, path.as_bytes(), text.as_bytes(), sink);
        is_found
    }

    /// Notes a problem unless it is a documented exception.
    fn expect(&mut self, is_right: bool, rule: &str, template: &str, problem: &str) {
        if is_right {
            return;
        }
        match EXCEPTIONS.iter().find(|(at, kind, _)| (*at, *kind) == (template, problem)) {
            Some((at, kind, _)) => drop(self.known.insert((at, kind))),
            None => drop(self.wrong.insert(format!("{rule}: {template}: {problem}"))),
        }
    }

    fn finish(self) {
        let wrong: Vec<String> = self.wrong.into_iter().collect();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn tokens_of_every_kind_are_found_in_every_surrounding() {
    let mut bench = Bench::new();
    for (kind, rule, template) in TOKENS {
        for seed in 0..SEEDS {
            let token = Sample::new(template, &mut Random::new(seed)).text;
            for (name, text) in [
                ("not found in an assignment", format!("let value = \"{token}\";\n")),
                ("not found in JSON", format!("{{\"a\": 1, \"value\": \"{token}\"}}")),
                ("not found on a line of its own", format!("first\n{token}\nlast\n")),
            ] {
                let is_found = bench.finds("a", &text, rule, &token);
                bench.expect(is_found, &format!("{kind} {rule}"), template, name);
            }
        }
    }
    bench.finish();
}

#[test]
fn damaged_tokens_are_not_found() {
    let mut bench = Bench::new();
    for (kind, rule, template) in TOKENS {
        let name = format!("{kind} {rule}");
        for seed in 0..SEEDS {
            let sample = Sample::new(template, &mut Random::new(seed));
            let mut check = |problem: &str, token: Option<String>| {
                let Some(token) = token else { return };
                let is_found = bench.finds_any("a", &format!("value = \"{token}\"\n"), rule);
                bench.expect(!is_found, &name, template, problem);
            };
            check("found with one character less", sample.short());
            check("found with a character of another alphabet", sample.wrong());
            check("found inside a longer word", Some(format!("word{}", sample.text)));
            let longer = format!("{}word", sample.text);
            check("found before more of the word", sample.is_fixed.then_some(longer));
        }
    }
    // An exception that is none any more would hide the next mistake.
    assert_eq!(bench.known.len(), EXCEPTIONS.len(), "{:?}", bench.known);
    bench.finish();
}

#[test]
fn secrets_that_need_a_context_are_found_in_it_and_not_without() {
    let mut bench = Bench::new();
    for (kind, rule, path, template, word) in IN_CONTEXT {
        let name = format!("{kind} {rule}");
        for seed in 0..SEEDS {
            let marked = Sample::new(template, &mut Random::new(seed)).text;
            let secret = marked.split(['«', '»']).nth(1).unwrap().to_owned();
            let text = marked.replace(['«', '»'], "");
            let is_found = bench.finds(path, &text, rule, &secret);
            bench.expect(is_found, &name, template, "not found in its context");
            let other = text.replace(word, "other");
            let is_found = bench.finds_any(path, &other, rule);
            bench.expect(!is_found, &name, template, "found without its context");
            let is_found = bench.finds_any(path, &format!("first\n{secret}\n"), rule);
            let is_own = template.starts_with('«') || rule.ends_with("-hash");
            bench.expect(!is_found || is_own, &name, template, "found on a line of its own");
        }
    }
    bench.finish();
}

#[test]
fn every_kind_and_every_rule_has_a_sample() {
    let tokens = TOKENS.iter().map(|(kind, rule, _)| (*kind, *rule));
    let contexts = IN_CONTEXT.iter().map(|(kind, rule, ..)| (*kind, *rule));
    let (kinds, rules): (BTreeSet<&str>, BTreeSet<&str>) = tokens.chain(contexts).unzip();
    let missing: Vec<u32> =
        (1..=KINDS).filter(|kind| !kinds.contains(&*kind.to_string())).collect();
    assert_eq!(missing, [] as [u32; 0]);
    let built_in = RuleSet::built_in();
    let without: Vec<_> = built_in.iter().filter(|it| !rules.contains(&*it.id)).collect();
    assert!(without.is_empty(), "{:?}", without.iter().map(|it| &it.id).collect::<Vec<_>>());
}
