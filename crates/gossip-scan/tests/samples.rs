//! Every rule finds its own samples in every form, and not what only resembles them.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use gossip_scan::{Checksum, Finding, Rule, RuleSet, ScanOptions, Scanner};

/// Samples per rule and form.
const SEEDS: u64 = 3;

struct Bench {
    rules: RuleSet,
    scanner: Scanner,
}

impl Bench {
    fn new() -> Self {
        let rules = RuleSet::built_in();
        let scanner = Scanner::new(&rules, ScanOptions::default()).unwrap();
        Self { rules, scanner }
    }

    fn scan(&self, rule: &Rule, bytes: &[u8]) -> Vec<Finding> {
        let path =
            rule.files.first().map_or_else(|| "notes.txt".to_owned(), |it| it.replace('*', "x"));
        let mut findings = Vec::new();
        let mut scratch = self.scanner.scratch();
        self.scanner.scan_bytes(&mut scratch, path.as_bytes(), bytes, |it| findings.push(it));
        findings
    }

    /// Collects rules for which some sample in a form is not found exactly.
    fn misses(&self, form: impl Fn(&[u8]) -> Vec<u8>) -> Vec<String> {
        let mut misses = Vec::new();
        for rule in self.rules.iter() {
            for seed in 0..SEEDS {
                let text = form(&rule.mint(seed).unwrap());
                let found = self.scan(rule, &text);
                if !found.iter().any(|it| *it.rule == *rule.id) {
                    let others: Vec<_> = found.iter().map(|it| it.rule.to_string()).collect();
                    misses.push(format!("{} seed {seed}: {others:?}", rule.id));
                }
            }
        }
        misses
    }

    fn check(&self, form: impl Fn(&[u8]) -> Vec<u8>) {
        let misses = self.misses(form);
        assert!(misses.is_empty(), "{} misses:\n{}", misses.len(), misses.join("\n"));
    }
}

fn surrounded(sample: &[u8]) -> Vec<u8> {
    [b"first line\n  ", sample, b" \nlast line\n"].concat()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for group in bytes.chunks(3) {
        let bit = |at: usize| group.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
        for index in 0..4 {
            let value = (0..6).fold(0, |it, low| (it << 1) | bit(index * 6 + low));
            let is_padding = index > group.len();
            text.push(if is_padding { b'=' } else { ALPHABET[usize::from(value)] });
        }
    }
    text
}

#[test]
fn plain_samples_are_found() {
    Bench::new().check(surrounded);
}

#[test]
fn a_sample_that_is_the_whole_input_is_found() {
    Bench::new().check(<[u8]>::to_vec);
}

#[test]
fn samples_in_base64_are_found_in_every_alignment() {
    let bench = Bench::new();
    for alignment in 0..3 {
        bench.check(|sample| {
            let text = base64(&[&b"   "[..alignment], sample, b"\n"].concat());
            [b"data: ", &text[..], b"\n"].concat()
        });
    }
}

#[test]
fn samples_in_wrapped_base64_are_found() {
    let bench = Bench::new();
    for (columns, line_break) in [(76, "\n"), (64, "\r\n"), (76, "\n    ")] {
        let wrapped = |sample: &[u8], before: usize| {
            let filler = b".".repeat(columns / 4 * 3 + before);
            let encoded = base64(&[&filler[..], b"\n", sample, b"\n"].concat());
            let lines = encoded.chunks(columns).map(|it| std::str::from_utf8(it).unwrap());
            lines.collect::<Vec<_>>().join(line_break).into_bytes()
        };
        // An anchor that a line break divides is not found, so another place has to do.
        let first = bench.misses(|sample| wrapped(sample, 20));
        let second = bench.misses(|sample| wrapped(sample, 41));
        let both: Vec<_> = first.iter().filter(|it| second.contains(it)).collect();
        assert!(both.is_empty(), "{columns}: {both:?}");
    }
}

#[test]
fn samples_with_percent_escapes_are_found() {
    Bench::new().check(|sample| {
        let mut text = b"GET /?q=".to_vec();
        for &byte in sample {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                text.push(byte);
            } else {
                text.extend(format!("%{byte:02X}").bytes());
            }
        }
        text.extend(b" HTTP/1.1\n");
        text
    });
}

#[test]
fn samples_in_utf16_are_found_in_both_orders() {
    let bench = Bench::new();
    bench.check(|sample| surrounded(sample).iter().flat_map(|&byte| [byte, 0]).collect());
    bench.check(|sample| surrounded(sample).iter().flat_map(|&byte| [0, byte]).collect());
}

#[test]
fn a_corrupted_checksum_is_flagged() {
    let bench = Bench::new();
    let checked = ["crc32-base62", "gitlab-routable", "atlassian", "bech32", "nkey"];
    for rule in bench.rules.iter().filter(|it| checked.contains(&&*it.validator)) {
        let sample = rule.mint(1).unwrap();
        let found = bench.scan(rule, &surrounded(&sample));
        assert_eq!(found[0].checksum, Checksum::Valid, "{}", rule.id);
        // Every position behind the anchor, one character at a time.
        let start = rule.anchors.iter().map(String::len).max().unwrap();
        for at in start..sample.len() {
            let mut damaged = sample.clone();
            damaged[at] = match damaged[at] {
                b'A' => b'C',
                b'2' => b'3',
                b'a' => b'b',
                digit @ b'0'..=b'8' => digit + 1,
                b'9' => b'8',
                b'B'..=b'Y' => b'Z',
                b'Z' => b'Y',
                b'b'..=b'y' => b'z',
                b'z' => b'y',
                other => other,
            };
            if damaged == sample {
                continue;
            }
            let found = bench.scan(rule, &surrounded(&damaged));
            let valid = found.iter().any(|it| it.checksum == Checksum::Valid);
            assert!(!valid, "{} position {at}", rule.id);
        }
    }
}

#[test]
fn a_sample_inside_a_longer_word_is_not_found() {
    let bench = Bench::new();
    let bounded = bench.rules.iter().filter(|it| {
        it.left != gossip_scan::Alphabet::None
            && it.right != gossip_scan::Alphabet::None
            && it.search == gossip_scan::Search::At
            && it.sample == "{}"
    });
    for rule in bounded {
        let sample = rule.mint(2).unwrap();
        let before = [b"word", &sample[..], b" "].concat();
        let found = bench.scan(rule, &before);
        // A shorter spelling may begin later, behind a boundary of its own.
        assert!(!found.iter().any(|it| *it.rule == *rule.id && it.offset == 4), "{}", rule.id);
        let after = [b" ", &sample[..], &b"q7".repeat(10_000)].concat();
        let found = bench.scan(rule, &after);
        assert!(!found.iter().any(|it| *it.rule == *rule.id), "{}", rule.id);
    }
}

#[test]
fn a_sample_of_the_wrong_length_is_not_found() {
    let bench = Bench::new();
    // A body with a tail is complete long before its end.
    let has_length = |it: &&Rule| it.sample == "{}" && it.mint == "regex" && it.tail.is_empty();
    for rule in bench.rules.iter().filter(has_length) {
        let sample = rule.mint(3).unwrap();
        let cut = &sample[..sample.len() * 2 / 3];
        let found = bench.scan(rule, &surrounded(cut));
        assert!(!found.iter().any(|it| *it.rule == *rule.id), "{}", rule.id);
    }
}
