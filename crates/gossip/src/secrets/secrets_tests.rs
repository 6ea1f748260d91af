use gossip_contracts::identity::{FindingId, ObjectVersionId};
use gossip_coordination::store::fresh_nonce;
use rstest::rstest;

use super::item::{Reading, read_unchanged};
use super::*;
use crate::Scan;
use crate::scan::Status;

const TENANT: TenantId = TenantId::from_bytes([3; 32]);

fn item(path: &[u8]) -> ItemFindings {
    ItemFindings {
        key: path.into(),
        path: path.into(),
        revision: "".into(),
        version: ObjectVersionId::from_bytes([1; 32]),
        policy: PolicyHash::from_bytes([2; 32]),
        tenant: TENANT,
        findings: vec![StoredFinding {
            rule: "npm-token".into(),
            confidence: Confidence::High,
            checksum: Checksum::Valid,
            offset: u64::MAX,
            length: 40,
            line: 2,
            column: 7,
            decoded: 1,
            allowed: true,
            member: Some("a/\u{1b}\"b".into()),
            details: vec![("account".into(), "12".into())],
            redacted: "npm_…(40 bytes)".into(),
            secret: [4; 32],
            id: FindingId::from_bytes([5; 32]),
        }],
        gaps: vec![Gap { member: None, reason: "ratio".into() }],
    }
}

#[rstest]
#[case(b"plain")]
#[case(b"\xff\x00\"\\")]
#[case("é\n".as_bytes())]
fn stored_findings_are_read_back(#[case] path: &[u8]) {
    let item = item(path);
    assert_eq!(ItemFindings::decode(&item.encode(), TENANT).unwrap(), item);
}

#[test]
fn length_of_an_item_is_that_of_its_parts() {
    let whole = item(b"\xff\x01\"");
    let empty = ItemFindings { findings: Vec::new(), ..whole.clone() };
    // The first finding has no comma before it.
    let parts = empty.encode().len() + whole.findings[0].encoded_len() - 1;
    assert_eq!(whole.encode().len(), parts);
}

#[test]
fn other_bytes_are_no_findings() {
    let text = String::from_utf8(item(b"x").encode()).unwrap();
    for broken in [
        String::new(),
        "[]".to_owned(),
        text.replace("\"v\":2", "\"v\":1"),
        text.replace("0505", "05"),
        text.replace("0505", "0z05"),
        text.replace("\"valid\"", "\"good\""),
        text.replace("\"high\"", "\"sure\""),
        text[..text.len() - 1].to_owned(),
    ] {
        assert_eq!(
            ItemFindings::decode(broken.as_bytes(), TENANT),
            Err(UnreadableFindings),
            "{broken}"
        );
    }
}

#[test]
fn ids_depend_on_place_version_and_policy() {
    let (one, finding) = (item(b"x"), item(b"x").findings.remove(0));
    let moved = StoredFinding { offset: 1, ..finding.clone() };
    let newer = ItemFindings { version: ObjectVersionId::from_bytes([9; 32]), ..item(b"x") };
    let other_policy = ItemFindings { policy: PolicyHash::from_bytes([9; 32]), ..item(b"x") };
    assert_ne!(one.occurrence(&finding), one.occurrence(&moved));
    assert_ne!(one.occurrence(&finding), newer.occurrence(&finding));
    assert_eq!(one.occurrence(&finding), other_policy.occurrence(&finding));
    assert_ne!(one.observation(&finding), other_policy.observation(&finding));
}

/// A directory of its own, removed at the end.
struct Files(std::path::PathBuf);

impl Files {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gossip-secrets-{:016x}", fresh_nonce()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), content).unwrap();
    }

    /// Scans the files under a key; returns ids and places, and the status.
    fn scan(&self, key: u8) -> (Vec<(String, FindingId)>, Status) {
        let rules = RuleSet::built_in();
        let secrets = SecretScan::new(&rules, TenantSecretKey::from_bytes([key; 32])).unwrap();
        let mut found = Vec::new();
        let outcome = Scan::of(&self.0)
            .store("memory:")
            .threads(2)
            .find_secrets(&secrets, |it| {
                found.push((format!("{}:{}", it.place(), it.finding.line), it.finding.id));
            })
            .unwrap();
        (found, outcome.status)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A failed removal must not hide the failure of the test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn minted(seed: u64) -> Vec<u8> {
    RuleSet::built_in().rule("npm-token").unwrap().mint(seed).unwrap()
}

#[test]
fn ids_of_findings_depend_on_the_key_and_not_on_the_line() {
    let files = Files::new();
    files.write("a", minted(1));
    let (first, _) = files.scan(1);
    files.write("a", [b"\n\n", &minted(1)[..]].concat());
    let (moved, _) = files.scan(1);
    assert_eq!((first[0].1, &*first[0].0, &*moved[0].0), (moved[0].1, "a:1", "a:3"));
    assert_ne!(files.scan(2).0[0].1, first[0].1);
}

#[test]
fn findings_come_in_the_order_of_places() {
    let files = Files::new();
    for number in (0..40).rev() {
        let two = [&minted(number)[..], b"\n", &minted(number + 100)].concat();
        files.write(&format!("f{number:02}"), two);
    }
    let (found, status) = files.scan(1);
    assert_eq!((found.len(), status), (80, Status::Complete));
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{found:?}");
}

#[test]
fn a_file_with_more_findings_than_can_be_stored_has_a_gap() {
    let files = Files::new();
    let rules = RuleSet::built_in();
    let rule = rules.rule("npm-token").unwrap();
    let many = (0..2_000).flat_map(|seed| [rule.mint(seed).unwrap(), b"\n".to_vec()].concat());
    let many: Vec<u8> = many.collect();
    files.write("many", many);
    files.write("one", minted(1));
    let (found, status) = files.scan(1);
    assert_eq!(status, Status::Incomplete);
    assert!((500..1_999).contains(&found.len()), "{}", found.len());
    assert_eq!(found.last().unwrap().0, "one:1");
}

/// Returns a tar archive of one member, whose name is as long as a header allows and has the
/// longest escapes of JSON.
fn tar_with_control_characters(content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..100].fill(1);
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[345..500].fill(1);
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = [&header[..], content].concat();
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

#[test]
fn findings_with_long_escapes_are_cut_and_not_lost() {
    let files = Files::new();
    let rules = RuleSet::built_in();
    let rule = rules.rule("npm-token").unwrap();
    let many = (0..600).flat_map(|seed| [rule.mint(seed).unwrap(), b"\n".to_vec()].concat());
    files.write("many.tar", tar_with_control_characters(&many.collect::<Vec<u8>>()));
    let (found, status) = files.scan(1);
    assert_eq!(status, Status::Incomplete);
    assert!((100..600).contains(&found.len()), "{}", found.len());
}

#[test]
fn a_damaged_archive_makes_the_outcome_incomplete() {
    let files = Files::new();
    files.write("x.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0damaged");
    files.write("y", minted(1));
    let (found, status) = files.scan(1);
    assert_eq!((found.len(), status), (1, Status::Incomplete));
}

/// The findings and the status of a scan in so many shards, by so many threads.
fn scanned(files: &Files, shards: usize, threads: usize) -> (Vec<String>, Status) {
    let secrets =
        SecretScan::new(&RuleSet::built_in(), TenantSecretKey::from_bytes([1; 32])).unwrap();
    let mut found = Vec::new();
    let outcome = Scan::of(&files.0)
        .store("memory:")
        .shards(shards.try_into().unwrap())
        .threads(threads)
        .find_secrets(&secrets, |it| {
            let (item, one) = (it.item, it.finding);
            let place = format!("{}:{}:{}", it.place(), one.line, one.column);
            found.push(format!("{place} {} {}", one.rule, item.observation(one)));
        })
        .unwrap();
    (found, outcome.status)
}

#[test]
fn findings_do_not_depend_on_shards_and_threads() {
    let files = Files::new();
    let rules = RuleSet::built_in();
    for (rule, number) in rules.iter().zip(0_u64..) {
        let sample = rule.mint(number).unwrap();
        files.write(&format!("{:03}.txt", number * 7 % 211), [&sample[..], b"\n"].concat());
    }
    files.write("damaged.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0damaged");
    let expected = scanned(&files, 1, 1);
    assert_eq!(expected.1, Status::Incomplete);
    assert!(expected.0.len() > 180, "{}", expected.0.len());
    for shards in [1, 2, 7, 64] {
        for threads in [1, 2, 4] {
            assert!(scanned(&files, shards, threads) == expected, "{shards} shards, {threads}");
        }
    }
}

#[rstest]
#[case(0, 1, false)]
#[case(1, 2, false)]
#[case(2, 3, false)]
#[case(3, 3, true)]
#[case(9, 3, true)]
fn a_file_that_changes_while_it_is_read_is_read_again(
    #[case] changes: usize,
    #[case] reads: usize,
    #[case] is_torn: bool,
) {
    use std::io::{Read as _, Write as _};
    let files = Files::new();
    files.write("x", "first");
    let path = files.0.join("x");
    let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let (mut count, mut last) = (0, String::new());
    let read = read_unchanged(&std::fs::File::open(&path).unwrap(), |mut file| {
        count += 1;
        last.clear();
        file.read_to_string(&mut last)?;
        if count <= changes {
            write!(writer, " change {count}")?;
        }
        Ok(Reading::default())
    });
    assert_eq!((read.unwrap().is_torn, count), (is_torn, reads));
    // The last reading begins at the start again.
    assert!(last.starts_with("first"), "{last}");
}
