use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{FenceEpoch, RunId};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::test_support::*;
use super::*;
use crate::certificate::seal::SIGNING_KEY_LEN_MIN;

fn check(certificate: &[u8]) -> Result<Verification, Refusal> {
    verify(certificate, Against::ITSELF)
}

#[test]
fn a_complete_run_is_complete() {
    let verified = check(&written(&request(), &complete_leaves(), None)).unwrap();
    assert!(verified.is_complete());
    assert_eq!(verified.trust, Trust::Consistent);
    assert_eq!((verified.done, verified.parked), (5, 0));
    assert_eq!((verified.keys, verified.unread), (40, 0));
    assert_eq!(verified.request, request());
    assert!(!verified.is_compared);
}

#[test]
fn parked_leaves_and_unread_keys_make_it_incomplete() {
    let verified = check(&written(&request(), &leaves(), None)).unwrap();
    assert!(!verified.is_complete());
    assert_eq!((verified.done, verified.parked), (4, 1));
    assert_eq!((verified.keys, verified.unread), (35, 1));

    let mut unread_only = complete_leaves();
    unread_only[0].unread = 1;
    let verified = check(&written(&request(), &unread_only, None)).unwrap();
    assert!(!verified.is_complete());
}

#[test]
fn a_signature_differs_from_none_and_from_that_of_another_key() {
    let (ours, theirs) = (signing_key(b'a'), signing_key(b'b'));
    let signed = written(&request(), &leaves(), Some(&ours));
    let unsigned = written(&request(), &leaves(), None);
    let trust = |certificate: &[u8], key: &SigningKey| {
        let verified = verify(certificate, Against::ITSELF.with_key(key));
        verified.map(|verified| verified.trust)
    };
    assert_eq!(trust(&signed, &ours), Ok(Trust::Signed));
    assert_eq!(trust(&signed, &theirs), Err(Refusal::SignatureDiffers));
    assert_eq!(trust(&unsigned, &ours), Err(Refusal::NotSigned));
    // Without a key a signature says nothing, and does not hurt.
    assert_eq!(check(&signed).unwrap().trust, Trust::Consistent);
    assert_eq!(verify_seal(&signed[..], Some(&ours)), Ok(Trust::Signed));
    assert_eq!(verify_seal(&signed[..], None), Ok(Trust::Consistent));
}

#[test]
fn keys_of_unfit_length_are_refused_and_never_shown() {
    for len in [0, SIGNING_KEY_LEN_MIN - 1, SIGNING_KEY_LEN_MAX + 1] {
        let refused = SigningKey::try_new(&vec![1; len]).unwrap_err();
        assert_eq!(refused.len, len);
    }
    assert_eq!(format!("{:?}", signing_key(b'a')), "SigningKey { .. }");
}

/// Pinned: certificates outlive the program that wrote them.
#[test]
fn the_form_is_pinned() {
    let mut leaves = leaves();
    leaves.drain(..3);
    leaves[0].start = b"a".to_vec();
    leaves[1].cursor = Some(b"k 9\xff".to_vec());
    let text = text(&written(&request(), &leaves, Some(&signing_key(b'a'))));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "{\"gossip-certificate\":2,\"run\":\"00000000000000a1\",\"source\":\"memory:40 keys\",\
         \"options\":{\"ignore\":false},\"excluded\":[\"nothing, %22really%22\"],\
         \"command\":[\"wc\",\"%FF{}\"],\"settings\":{\"batch\":\"64\"},\"start\":\"a\",\"end\":\"z\",\"cursor\":\"completed\"}"
    );
    assert!(lines[1].starts_with(
        "{\"start\":\"a\",\"end\":\"k32\",\"status\":\"parked\",\"reason\":\"Poisoned\",\
         \"fence\":4,\"cursor\":\"k26\",\"keys\":3,\"sum\":\""
    ));
    assert!(
        lines[1].ends_with("\",\"unread\":0,\"uncovered\":{\"after\":\"k26\",\"before\":\"k32\"}}")
    );
    assert!(lines[2].contains("\"fence\":5,\"cursor\":\"k 9%FF\",\"keys\":8,"));
    assert!(lines[3].starts_with("{\"leaves\":2,\"done\":1,\"parked\":1,\"keys\":11,\"sum\":\""));
    assert!(lines[3].ends_with("\",\"unread\":0,\"verdict\":\"incomplete\"}"));
    assert_eq!(lines[4], seal_of(&text[..text.len() - lines[4].len() - 1], [b'a'; 32]));
    assert_eq!(lines.len(), 5);
    for line in lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

/// Pinned: files of the first version, which have no command and no null, are still verified.
#[test]
fn version_one_is_verified() {
    let text = text(&written(&request(), &complete_leaves(), None));
    let body =
        text.replace(":2,\"run\"", ":1,\"run\"").replace("\"command\":[\"wc\",\"%FF{}\"],", "");
    let sealed = body.split_inclusive('\n').take(text.lines().count() - 1).collect::<String>();
    let hash = blake3::derive_key("gossip/certificate/v1", sealed.as_bytes());
    let hash = blake3::Hash::from_bytes(hash).to_hex();
    let old = format!("{sealed}{{\"hash\":\"{hash}\"}}\n");
    let verified = check(old.as_bytes()).unwrap();
    assert!(verified.is_complete() && verified.request.command.is_empty());
}

/// A tree has no last path: its end is null, in every place where it is stated.
#[test]
fn a_bound_after_every_path_is_null() {
    let end = [0xFF; 256];
    let mut request = Request::for_range(RunId::from_raw(1), "tree:/data", b"a", &end);
    request.command = vec![b"true".to_vec()];
    let parked = LeafStatus::Parked(ParkedFor::Other);
    let leaf = LeafRecord::new(b"a", &end, parked, FenceEpoch::INITIAL);
    let certificate = written(&request, &[leaf], None);
    assert_eq!(text(&certificate).matches("\"end\":null").count(), 2);
    assert!(text(&certificate).contains("\"before\":null}"), "{}", text(&certificate));
    assert_eq!(check(&certificate).unwrap().request, request);
    // The end of a real tree is this one.
    let directory = crate::connectors::test_support::TempDir::new();
    let options = crate::connectors::SourceOptions::NONE;
    let source = crate::connectors::Source::parse(directory.path().as_os_str(), options).unwrap();
    assert_eq!(Request::new(RunId::from_raw(1), &source).end, end);
}

/// The last line, from BLAKE3 itself.
fn seal_of(sealed: &str, key: [u8; 32]) -> String {
    let hash = blake3::derive_key("gossip/certificate/v1", sealed.as_bytes());
    let key = [&32_u32.to_le_bytes()[..], &key].concat();
    let key = blake3::derive_key("gossip/certificate/v1/signature-key", &key);
    let signature = blake3::keyed_hash(&key, &hash).to_hex();
    let hash = blake3::Hash::from_bytes(hash).to_hex();
    format!("{{\"hash\":\"{hash}\",\"signature\":\"{signature}\"}}")
}

#[test]
fn a_parked_leaf_without_progress_says_so() {
    let start = LeafRecord::new(
        b"a",
        b"z",
        LeafStatus::Parked(ParkedFor::PermissionDenied),
        FenceEpoch::INITIAL,
    );
    let certificate = written(&request(), &[start], None);
    assert!(text(&certificate).contains(
        "\"cursor\":null,\"keys\":0,\"sum\":\"0000000000000000000000000000000000000000000000000000\
         000000000000\",\"unread\":0,\"uncovered\":{\"from\":\"a\",\"before\":\"z\"}}"
    ));
    assert_eq!(check(&certificate).unwrap().parked, 1);
}

#[test]
fn an_empty_leaf_completes_at_its_start() {
    let done = LeafRecord::new(b"a", b"z", LeafStatus::Done, FenceEpoch::INITIAL);
    let done = done.with_progress(b"a", accumulator([]), 0);
    assert!(check(&written(&request(), &[done], None)).unwrap().is_complete());
}

#[test]
fn every_reason_and_every_meaning_of_a_cursor_reads_back() {
    for reason in ParkedFor::ALL {
        let mut leaves = leaves();
        leaves[3].status = LeafStatus::Parked(reason);
        assert!(check(&written(&request(), &leaves, None)).is_ok(), "{reason:?}");
    }
    let mut dispatched = request();
    dispatched.semantics = CursorSemantics::Dispatched;
    let verified = check(&written(&dispatched, &leaves(), None)).unwrap();
    assert_eq!(verified.request.semantics, CursorSemantics::Dispatched);
}

/// Damage is noticed wherever it is, and never panics.
#[test]
fn every_cut_and_every_changed_byte_is_refused() {
    let certificate = written(&request(), &leaves(), None);
    for len in 0..certificate.len() {
        assert!(check(&certificate[..len]).is_err(), "cut to {len} bytes");
    }
    for at in 0..certificate.len() {
        let mut damaged = certificate.clone();
        damaged[at] ^= 1;
        assert!(check(&damaged).is_err(), "byte {at}");
        assert!(verify_seal(&damaged[..], None).is_err(), "byte {at}");
    }
}

#[test]
fn what_comes_after_the_end_is_refused() {
    for tail in ["\n", "x", "{\"hash\":\"\"}\n"] {
        let certificate = [&written(&request(), &leaves(), None), tail.as_bytes()].concat();
        assert_eq!(check(&certificate), Err(Refusal::TrailingBytes { line: 8 }));
    }
}

#[test]
fn a_line_without_end_is_refused_in_bounded_memory() {
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let refused = verify(endless, Against::ITSELF).unwrap_err();
    assert!(matches!(refused, Refusal::LineTooLong { line: 1, .. }), "{refused}");
    let nothing = check(b"");
    assert_eq!(nothing, Err(Refusal::CutShort { line: 1 }));
}

#[test]
fn a_request_that_could_not_be_read_is_not_written() {
    let refused = |settings: Vec<(String, String)>| {
        let mut request = request();
        request.settings = settings;
        CertificateWriter::new(Vec::new(), &request).map(drop).map_err(|error| error.kind())
    };
    let setting = |len: usize| ("command".to_owned(), "x".repeat(len));
    assert_eq!(refused(vec![setting(60_000)]), Ok(()));
    let invalid = Err(std::io::ErrorKind::InvalidInput);
    assert_eq!(refused(vec![setting(70_000)]), invalid);
    assert_eq!(refused(vec![setting(1); 256]), Ok(()));
    assert_eq!(refused(vec![setting(1); 257]), invalid);
}

/// Every byte of every key takes three letters, and no key can be longer.
#[test]
fn the_longest_leaf_reads_back() {
    let (start, end) = (vec![0; 4096], vec![0xFF; 4096]);
    let mut request = request();
    request.start.clone_from(&start);
    request.end.clone_from(&end);
    let status = LeafStatus::Parked(ParkedFor::PermissionDenied);
    let leaf = LeafRecord::new(&start, &end, status, FenceEpoch::from_raw(u64::MAX));
    let leaf = leaf.with_progress(&[1; 4096], accumulator([7]), 1);
    assert_eq!(check(&written(&request, &[leaf], None)).unwrap().parked, 1);
}

#[test]
fn debug_and_errors_show_no_bytes_of_keys() {
    let leaf = leaves().remove(0);
    let shown = format!("{leaf:?} {:?}", request());
    assert!(!shown.contains("k07") && !shown.contains("107, 48"), "{shown}");
}

proptest! {
    #[test]
    fn whatever_tiles_is_accepted_and_whatever_is_dropped_is_missed(
        cuts in btree_set(vec(any::<u8>(), 1..5), 2..12),
        dropped in any::<prop::sample::Index>(),
    ) {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let leaf = |pair: &[Vec<u8>]| {
            let leaf = LeafRecord::new(&pair[0], &pair[1], LeafStatus::Done, FenceEpoch::INITIAL);
            leaf.with_progress(&pair[0], accumulator([]), 0)
        };
        let mut leaves: Vec<_> = cuts.windows(2).map(leaf).collect();
        let mut request = request();
        request.start.clone_from(&cuts[0]);
        request.end.clone_from(&cuts[cuts.len() - 1]);
        prop_assert!(check(&written(&request, &leaves, None)).is_ok());
        leaves.remove(dropped.index(leaves.len()));
        let refused = check(&written(&request, &leaves, None)).unwrap_err();
        let is_missed = matches!(refused, Refusal::Gap { .. } | Refusal::EndMissing { .. });
        prop_assert!(is_missed, "{}", refused);
    }

    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(check(&bytes).is_err());
    }
}
