//! Samples inside containers are found, and limits are reported.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use gossip_scan::{Finding, Report, RuleSet, ScanOptions, Scanner, UnreadReason};

fn scanner() -> (RuleSet, Scanner) {
    let rules = RuleSet::built_in();
    let scanner = Scanner::new(&rules, ScanOptions::default()).unwrap();
    (rules, scanner)
}

/// Scans from memory and from a reader, which must agree.
fn scan(scanner: &Scanner, bytes: &[u8]) -> (Vec<Finding>, Report) {
    let (mut found, mut streamed) = (Vec::new(), Vec::new());
    let mut scratch = scanner.scratch();
    let report = scanner.scan_bytes(&mut scratch, b"item", bytes, |it| found.push(it));
    let from_reader =
        scanner.scan_reader(&mut scratch, b"item", bytes, |it| streamed.push(it)).unwrap();
    assert_eq!(found, streamed);
    assert_eq!(report, from_reader);
    (found, report)
}

fn reasons(report: &Report) -> Vec<UnreadReason> {
    report.unread.iter().map(|it| it.reason).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    tar_of(b'0', members)
}

/// A tar archive of members of this kind.
fn tar_of(kind: u8, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in members {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
        archive.extend(*content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.extend([0; 1024]);
    archive
}

/// A zip archive; the flag is the encryption bit.
fn zip(members: &[(&str, &[u8])], flag: u16) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        let packed = encoder.finish().unwrap();
        let at = u32::try_from(archive.len()).unwrap();
        let mut fields = Vec::new();
        fields.extend(20_u16.to_le_bytes());
        fields.extend(flag.to_le_bytes());
        fields.extend(8_u16.to_le_bytes());
        fields.extend([0; 8]);
        fields.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
        fields.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        fields.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        fields.extend([0; 2]);
        archive.extend(b"PK\x03\x04");
        archive.extend(&fields);
        archive.extend(name.as_bytes());
        archive.extend(packed);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let at = u32::try_from(archive.len()).unwrap();
    let count = u16::try_from(members.len()).unwrap().to_le_bytes();
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count);
    archive.extend(count);
    archive.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    archive.extend(at.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

#[test]
fn samples_of_every_rule_are_found_in_containers() {
    let (rules, scanner) = scanner();
    let named = |pattern: &String| pattern.replace('*', "x");
    let members: Vec<(String, Vec<u8>)> = rules
        .iter()
        .map(|rule| {
            let sample = [b"line\n", &rule.mint(5).unwrap()[..], b"\n"].concat();
            (
                format!("{}/{}", rule.id, rule.files.first().map_or_else(|| "a".to_owned(), named)),
                sample,
            )
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, it)| (&**name, &**it)).collect();
    let archive = tar(&members);
    for bytes in [gzip(&archive), zip(&members, 0), zstd(&archive), archive] {
        let (found, report) = scan(&scanner, &bytes);
        for rule in rules.iter() {
            let is_hit = |it: &&Finding| *it.rule == *rule.id && it.line > 1;
            let place = format!("{}/", rule.id);
            let hit = found
                .iter()
                .filter(is_hit)
                .find(|it| it.member.as_deref().is_some_and(|member| member.starts_with(&place)));
            assert!(hit.is_some(), "{}", rule.id);
        }
        assert_eq!(reasons(&report), []);
    }
}

#[test]
fn a_compressed_text_is_searched_as_one_member() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let twice = [gzip(b"first half\n"), gzip(&sample)].concat();
    for bytes in [gzip(&sample), zstd(&sample), twice] {
        let (found, _) = scan(&scanner, &bytes);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].member.as_deref(), Some("content"));
    }
}

#[test]
fn nesting_beyond_the_depth_limit_is_reported() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let two = zip(&[("in.tar", &tar(&[("a", &sample)]))], 0);
    let (found, report) = scan(&scanner, &tar(&[("b.zip", &two)]));
    assert_eq!(found[0].member.as_deref(), Some("b.zip!/in.tar!/a"));
    assert_eq!(reasons(&report), []);
    let (found, report) = scan(&scanner, &gzip(&tar(&[("b.zip", &two)])));
    assert_eq!((found.len(), reasons(&report)), (0, vec![UnreadReason::Depth]));
}

#[test]
fn too_many_members_are_reported_once() {
    let mut options = ScanOptions::default();
    options.archives.as_mut().unwrap().entries = 50;
    let scanner = Scanner::new(&RuleSet::built_in(), options).unwrap();
    let members = vec![("a", &b"text"[..]); 51];
    for bytes in [tar(&members), zip(&members, 0)] {
        assert_eq!(reasons(&scan(&scanner, &bytes).1), [UnreadReason::Entries]);
    }
}

#[test]
fn a_bomb_is_cut_at_its_ratio() {
    let (_, scanner) = scanner();
    let zeros = vec![b' '; 8 << 20];
    for bytes in [gzip(&zeros), zip(&[("a", &zeros)], 0), gzip(&tar(&[("a", &zeros)]))] {
        let (_, report) = scan(&scanner, &bytes);
        assert!(reasons(&report).contains(&UnreadReason::Ratio), "{:?}", report.unread);
        assert!(report.bytes < zeros.len() as u64);
    }
}

#[test]
fn a_large_member_is_read_up_to_its_limit() {
    let rules = RuleSet::built_in();
    let mut options = ScanOptions::default();
    options.archives.as_mut().unwrap().entry_bytes = 20_000;
    let scanner = Scanner::new(&rules, options).unwrap();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let text = [&sample[..], &b" some text".repeat(3_000), b" ", &sample].concat();
    let (found, report) = scan(&scanner, &tar(&[("a", &text), ("b", &sample)]));
    assert_eq!(found.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(reasons(&report), [UnreadReason::EntrySize]);
}

#[test]
fn encrypted_and_damaged_members_are_reported() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let (found, report) = scan(&scanner, &zip(&[("a", &sample)], 1));
    assert_eq!((found.len(), reasons(&report)), (0, vec![UnreadReason::Encrypted]));
    // The start of a truncated stream is still searched.
    let random: Vec<u8> =
        (0..40_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8 | 32).collect();
    let text = [&sample[..], b" ", &random].concat();
    let packed = gzip(&text);
    let (found, report) = scan(&scanner, &packed[..packed.len() / 2]);
    assert_eq!((found.len(), reasons(&report)), (1, vec![UnreadReason::Malformed]));
    let archive = tar(&[("a", &text)]);
    let (found, report) = scan(&scanner, &archive[..archive.len() / 2]);
    assert_eq!((found.len(), reasons(&report)), (1, vec![UnreadReason::Malformed]));
}

#[test]
fn content_of_a_directory_or_link_is_searched() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let members = [("a/", &sample[..]), ("b", &b"text"[..])];
    let tars = [b'1', b'2', b'3', b'5', b'D', b'M', b'?'].map(|kind| tar_of(kind, &members));
    for bytes in tars.into_iter().chain([zip(&members, 0)]) {
        let (found, report) = scan(&scanner, &bytes);
        let places: Vec<_> = found.iter().map(|it| it.member.as_deref()).collect();
        assert_eq!((places, reasons(&report)), (vec![Some("a/")], vec![]));
    }
}

#[test]
fn directories_without_content_are_no_members() {
    let mut options = ScanOptions::default();
    options.archives.as_mut().unwrap().entries = 1;
    let scanner = Scanner::new(&RuleSet::built_in(), options).unwrap();
    let members = vec![("a/", &b""[..]); 9];
    assert_eq!(reasons(&scan(&scanner, &tar_of(b'5', &members)).1), []);
}

/// A binary number in the checksum field, which is too short for one, caused a panic.
#[test]
fn every_value_of_a_header_byte_is_read_or_reported() {
    let (_, scanner) = scanner();
    let archive = tar(&[("a", b"text")]);
    for at in (0..512).filter(|at| !(257..262).contains(at)) {
        for value in [0, b'1', 0x80, 0xff] {
            let mut damaged = archive.clone();
            damaged[at] = value;
            scan(&scanner, &damaged);
        }
    }
}

#[test]
fn a_file_is_scanned_as_its_bytes_are() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let bytes = zip(&[("a", &sample), ("b", &vec![b' '; 9_000])], 0);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("scan_file.zip");
    std::fs::write(&path, &bytes).unwrap();
    let mut found = Vec::new();
    let report = scanner.scan_file(&mut scanner.scratch(), &path, |it| found.push(it)).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((found, report), scan(&scanner, &bytes));
    assert!(scanner.scan_file(&mut scanner.scratch(), &path, drop).is_err());
}

#[test]
fn a_failing_reader_is_an_error_and_no_damage() {
    struct Failing<'a>(&'a [u8]);
    impl std::io::Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer) {
                Ok(0) => Err(std::io::ErrorKind::PermissionDenied.into()),
                other => other,
            }
        }
    }
    let (_, scanner) = scanner();
    for bytes in [gzip(b"text")[..10].to_vec(), tar(&[("a", &[b'a'; 20_000])])[..9_000].to_vec()] {
        let result = scanner.scan_reader(&mut scanner.scratch(), b"a", Failing(&bytes), drop);
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn binaries_are_reported_unless_asked_for() {
    let (rules, scanner) = scanner();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let bytes = [b"\x7fELF\0\0\0\x01", &sample[..], b"\0\0"].concat();
    let (found, report) = scan(&scanner, &bytes);
    assert_eq!((found.len(), reasons(&report)), (0, vec![UnreadReason::Binary]));
    let mut options = ScanOptions::default();
    options.binaries = true;
    let scanner = Scanner::new(&rules, options).unwrap();
    let (found, _) = scan(&scanner, &[b"\x7fELF\0\0\0 ", &sample[..], b"\0\0"].concat());
    assert_eq!(found.len(), 1);
}
