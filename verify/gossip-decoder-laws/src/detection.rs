//! Rule texts and inputs of a scan for secrets.

use std::sync::LazyLock;

use gossip_scan::{Finding, RuleSet, ScanOptions, Scanner};

/// Rules whose samples are seeds: a checksum, a block of lines, a name, an encoding.
const SEEDED_RULES: [&str; 5] =
    ["npm-token", "private-key-pem", "generic-assignment", "azure-sas", "kubernetes-secret"];

/// One scanner with the default chunks, and one that reads a few bytes at a time.
static SCANNERS: LazyLock<[Scanner; 2]> = LazyLock::new(|| {
    [1 << 20, 61].map(|chunk_len| {
        let mut options = ScanOptions::default();
        (options.chunk_len, options.binaries) = (chunk_len, true);
        let scanner = Scanner::new(&RuleSet::built_in(), options);
        scanner.expect("the tests of gossip-scan compile the built-in rules")
    })
});

/// An input, archives included, gives the same findings from memory and in small chunks, in the
/// order of their offsets and inside the input.
pub(crate) fn scan_input(data: &[u8]) -> bool {
    let [whole, chunked] = &*SCANNERS;
    let (mut found, mut streamed): (Vec<Finding>, Vec<Finding>) = (Vec::new(), Vec::new());
    let report = whole.scan_bytes(&mut whole.scratch(), b"a.env", data, |it| found.push(it));
    let same = chunked
        .scan_reader(&mut chunked.scratch(), b"a.env", data, |it| streamed.push(it))
        .expect("a slice is read without an error");
    assert_eq!(found, streamed);
    assert_eq!(report, same);
    for pair in found.windows(2).filter(|pair| pair[0].member == pair[1].member) {
        assert!(pair[0].offset <= pair[1].offset);
    }
    for finding in found.iter().filter(|it| it.member.is_none()) {
        assert!(finding.length > 0);
        assert!(finding.offset + finding.length <= data.len() as u64);
    }
    !found.is_empty()
}

/// A rule text that is merged and compiles can scan, and one that is refused changes nothing.
pub(crate) fn rule_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut rules = RuleSet::empty();
    if rules.merge(text).is_err() {
        assert!(rules.is_empty());
        return false;
    }
    let Ok(scanner) = Scanner::new(&rules, ScanOptions::default()) else { return false };
    scanner.scan_bytes(&mut scanner.scratch(), b"a", data, drop);
    for rule in rules.iter() {
        let _sample_or_refusal = rule.mint(1);
    }
    true
}

/// Samples in plain text and in every container.
pub(crate) fn inputs() -> Vec<Vec<u8>> {
    let rules = RuleSet::built_in();
    let samples = SEEDED_RULES.iter().map(|id| {
        let sample = rules.rule(id).and_then(|rule| rule.mint(1).ok());
        sample.expect("the built-in rules mint samples")
    });
    let mut inputs: Vec<Vec<u8>> = samples.collect();
    let wide = inputs[0].iter().flat_map(|&byte| [byte, 0]).collect();
    let archive = tar(&inputs[0]);
    let packed = [gzip(&inputs[0]), zstd(&inputs[0]), zip(&inputs[0]), gzip(&archive)];
    inputs.extend(packed);
    inputs.extend([archive, wide]);
    inputs
}

pub(crate) fn rule_texts() -> Vec<Vec<u8>> {
    let rule = "version = 1\n[[rule]]\nid = \"a\"\nname = \"A\"\nanchors = [\"acme_\"]\n\
                regex = 'acme_(?<secret>[0-9a-f]{2,9})'\nmax_len = 20\nconfidence = \"low\"\n";
    let assigned = "version = 1\n[[rule]]\nid = \"b\"\nname = \"B\"\nwords = [\"acme\"]\n\
                    search = \"assign\"\nentropy = 2.5\ngeneric = true\nright = \"none\"\n\
                    regex = '[!-~]{4,9}'\nmax_len = 20\nconfidence = \"high\"\n";
    [rule, assigned, "version = 1\n"].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// One stored block; the checksum is wrong, which is noticed after the content.
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let len = content.len() as u16;
    bytes.extend(len.to_le_bytes());
    bytes.extend((!len).to_le_bytes());
    bytes.extend(content);
    bytes.extend([0; 8]);
    bytes
}

/// One raw block of a single segment.
fn zstd(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, content.len() as u8];
    bytes.extend(&((content.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    bytes.extend(content);
    bytes
}

/// One stored member.
fn zip(content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u32).to_le_bytes();
    let fields = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &len[..], &len, &[1, 0, 0, 0]];
    let fields = fields.concat();
    let mut bytes = [b"PK\x03\x04", &fields[..], b"a", content].concat();
    let directory_at = (bytes.len() as u32).to_le_bytes();
    let entry = [b"PK\x01\x02\x14\x00", &fields[..], &[0; 14], b"a"].concat();
    let entry_len = (entry.len() as u32).to_le_bytes();
    bytes.extend(entry);
    bytes.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    bytes.extend(entry_len);
    bytes.extend(directory_at);
    bytes.extend([0; 2]);
    bytes
}

/// One member with a POSIX header.
fn tar(content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[0] = b'a';
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = [&header[..], content].concat();
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}
