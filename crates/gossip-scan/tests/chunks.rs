//! The result does not depend on how the input is cut.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{self, Read};

use gossip_scan::{Finding, RuleSet, ScanOptions, Scanner};
use proptest::prelude::*;

/// A reader that returns at most the next of some lengths, in turn.
struct Cut<'a> {
    bytes: &'a [u8],
    lens: Vec<usize>,
    turn: usize,
}

impl Read for Cut<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.lens[self.turn % self.lens.len()].clamp(1, buffer.len().max(1));
        self.turn += 1;
        let len = len.min(buffer.len());
        self.bytes.read(&mut buffer[..len])
    }
}

/// A scanner that reads chunks of this length, and texts with zero bytes in them.
fn scanner(rules: &RuleSet, chunk_len: usize) -> Scanner {
    let mut options = ScanOptions::default();
    (options.chunk_len, options.binaries) = (chunk_len, true);
    Scanner::new(rules, options).unwrap()
}

fn scan_cut(rules: &RuleSet, bytes: &[u8], chunk_len: usize, lens: Vec<usize>) -> Vec<Finding> {
    let scanner = scanner(rules, chunk_len);
    let mut findings = Vec::new();
    let reader = Cut { bytes, lens, turn: 0 };
    scanner.scan_reader(&mut scanner.scratch(), b"a.env", reader, |it| findings.push(it)).unwrap();
    findings
}

/// Base64 in lines of 76 characters.
fn wrapped_base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
    let value = |group: usize| (0..6).fold(0, |it, low| (it << 1) | bit(group * 6 + low));
    let groups = (bytes.len() * 8).div_ceil(6);
    let text: Vec<u8> = (0..groups).map(|group| ALPHABET[usize::from(value(group))]).collect();
    text.chunks(76).collect::<Vec<_>>().join(&b'\n')
}

/// Samples of many rules between stretches of filler, some of them encoded or allowed.
fn text(rules: &RuleSet, seed: u64, every: u64, spacing: usize) -> Vec<u8> {
    let filler = b"let value = other_name + 17; // nothing here\n";
    let mut text = Vec::new();
    for (rule, index) in rules.iter().zip(0_u64..) {
        if (index + seed).is_multiple_of(every) {
            let sample = rule.mint(seed + index).unwrap();
            text.push(b'\n');
            match index % 5 {
                0 => text.extend(sample.iter().flat_map(|&byte| [byte, 0])),
                1 => text.extend([sample.trim_ascii_end(), b" // gossip:allow test\n"].concat()),
                2 => text.extend(wrapped_base64(&[b"first\nsecond ", &sample[..]].concat())),
                _ => text.extend(sample),
            }
            text.push(b'\n');
        }
        let len = (index.wrapping_mul(seed.wrapping_add(11)) as usize * 131) % spacing.max(1);
        text.extend(filler.iter().cycle().take(len));
    }
    text
}

#[test]
fn every_small_chunk_size_finds_the_same() {
    // A smaller automaton, because one is built for every size.
    let mut rules = RuleSet::empty();
    rules.merge(include_str!("../rules/structural.toml")).unwrap();
    let text = text(&rules, 3, 2, 4_000);
    let whole = scan_cut(&rules, &text, 1 << 20, vec![1 << 20]);
    assert!(whole.len() > 2);
    for chunk_len in (1..40).chain([511, 4_096, 20_479, 20_480, 65_536]) {
        assert_eq!(scan_cut(&rules, &text, chunk_len, vec![usize::MAX]), whole, "{chunk_len}");
    }
}

/// The better of two overlapping findings, and one that lies before another, come from later hits.
#[test]
fn findings_wait_for_better_and_for_earlier_ones() {
    let rules = RuleSet::built_in();
    let secret =
        |id: &str| String::from_utf8(rules.rule(id).unwrap().mint_secret(1).unwrap()).unwrap();
    let (token, npm) = (secret("github-pat"), secret("npm-token"));
    let (id, key) = (secret("aws-key-id-long-lived"), secret("aws-secret-key"));
    let filler = "let value = other + 17;\n".repeat(1_500);
    let text = format!("{filler}token = \"{token}\"\n{filler}{key}\n{npm}\n{id}\n{filler}");
    let ids = ["github-pat", "aws-secret-key-paired", "npm-token", "aws-key-id-long-lived"];
    for chunk_len in [1, 2, 7, 50, 1 << 20] {
        let found = scan_cut(&rules, text.as_bytes(), chunk_len, vec![usize::MAX]);
        let found: Vec<&str> = found.iter().map(|it| &*it.rule).collect();
        assert_eq!(found, ids, "{chunk_len}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn findings_do_not_depend_on_chunks_or_reads(
        seed in 0_u64..1_000,
        spacing in 1_usize..3_000,
        chunk_len in 1_usize..70_000,
        lens in prop::collection::vec(1_usize..9_000, 1..6),
    ) {
        let rules = RuleSet::built_in();
        let text = text(&rules, seed, 7, spacing);
        let scanner = scanner(&rules, 1 << 20);
        let mut whole = Vec::new();
        let report =
            scanner.scan_bytes(&mut scanner.scratch(), b"a.env", &text, |it| whole.push(it));
        prop_assert!(whole.len() > 5);
        prop_assert!(report.allowed > 0);
        prop_assert!(whole.is_sorted_by_key(|it| it.offset));
        for finding in &whole {
            let before = &text[..usize::try_from(finding.offset).unwrap()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            prop_assert_eq!(finding.line, line);
            prop_assert_eq!(finding.column, (before.len() - start) as u64 + 1);
        }
        prop_assert_eq!(scan_cut(&rules, &text, chunk_len, lens), whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        let rules = RuleSet::built_in();
        let scanner = scanner(&rules, 1);
        scanner.scan_bytes(&mut scanner.scratch(), &bytes, &bytes, drop);
    }
}
