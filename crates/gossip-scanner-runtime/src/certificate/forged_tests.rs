//! A forger's handbook: each forgery is sealed anew with the right hash, and refused all the same.
//!
//! The forger has our writer and no key. What the structure cannot show, a listing of the source
//! does; whatever the forgery, a signature shows it.

use gossip_contracts::identity::{FenceEpoch, RunId};
use rstest::rstest;

use super::seal::SealHash;
use super::test_support::*;
use super::text::push_hex;
use super::*;

/// What a certificate says.
struct Claims {
    request: Request,
    leaves: Vec<LeafRecord>,
}

/// Changes the statements of a certificate, and writes them as if they were true.
fn forged(forge: fn(&mut Claims)) -> Vec<u8> {
    let mut claims = Claims { request: request(), leaves: leaves() };
    forge(&mut claims);
    written(&claims.request, &claims.leaves, None)
}

/// Changes text, and seals it with the hash that it then has.
fn retouched(from: &str, to: &str) -> Vec<u8> {
    let original = text(&written(&request(), &leaves(), None));
    assert!(original.contains(from), "nothing to retouch");
    reseal(&original.replacen(from, to, 1))
}

fn reseal(certificate: &str) -> Vec<u8> {
    let lines: Vec<&str> = certificate.lines().collect();
    let (mut hash, mut sealed) = (SealHash::new(), Vec::new());
    for line in &lines[..lines.len() - 1] {
        hash.add(line.as_bytes());
        sealed.extend_from_slice(line.as_bytes());
        sealed.push(b'\n');
    }
    sealed.extend_from_slice(b"{\"hash\":\"");
    push_hex(&mut sealed, &hash.finish());
    sealed.extend_from_slice(b"\"}\n");
    sealed
}

/// Puts the signature of the true certificate below the forged one.
fn with_stolen_signature(forged: &[u8]) -> Vec<u8> {
    let original = text(&written(&request(), &leaves(), Some(&signing_key(b'a'))));
    let signature = &original[original.find(",\"signature\"").unwrap()..];
    [forged.strip_suffix(b"}\n").unwrap(), signature.as_bytes()].concat()
}

fn refused_by_itself(forged: &[u8]) -> Option<Refusal> {
    verify(forged, Against::ITSELF).err()
}

fn refused_by_source(forged: &[u8]) -> Option<Refusal> {
    let (request, source) = (request(), source());
    verify(forged, Against::ITSELF.with_source(&request, &source)).err()
}

/// By whom the seal is, whatever the lines say.
fn assert_refused_by_signature(forged: &[u8]) {
    let key = signing_key(b'a');
    assert_eq!(verify_seal(forged, Some(&key)), Err(Refusal::NotSigned));
    let stolen = with_stolen_signature(forged);
    assert_eq!(verify_seal(&stolen[..], Some(&key)), Err(Refusal::SignatureDiffers));
    // The hash is right: the forger's work is good.
    assert_eq!(verify_seal(&stolen[..], None), Ok(Trust::Consistent));
    assert!(verify(&stolen[..], Against::ITSELF.with_key(&key)).is_err());
}

#[test]
fn the_true_certificate_passes_every_check() {
    let (request, source, key) = (request(), source(), signing_key(b'a'));
    let certificate = written(&request, &leaves(), Some(&key));
    let against = Against::ITSELF.with_key(&key).with_source(&request, &source);
    let verified = verify(&certificate[..], against).unwrap();
    assert_eq!(verified.trust, Trust::Signed);
    assert!(verified.is_compared);
}

#[rstest]
#[case::a_leaf_is_left_out(|c: &mut Claims| drop(c.leaves.remove(2)), Refusal::Gap { leaf: 3 })]
#[case::the_first_leaf_is_left_out(
    |c: &mut Claims| drop(c.leaves.remove(0)), Refusal::Gap { leaf: 1 })]
#[case::the_last_leaf_is_left_out(
    |c: &mut Claims| drop(c.leaves.pop()), Refusal::EndMissing { leaves: 4 })]
#[case::all_leaves_are_left_out(
    |c: &mut Claims| c.leaves.clear(), Refusal::EndMissing { leaves: 0 })]
#[case::a_leaf_stands_twice(
    |c: &mut Claims| c.leaves.insert(1, c.leaves[1].clone()), Refusal::Overlap { leaf: 3 })]
#[case::leaves_change_places(|c: &mut Claims| c.leaves.swap(1, 2), Refusal::Gap { leaf: 2 })]
#[case::a_leaf_is_narrowed(
    |c: &mut Claims| c.leaves[0].end = b"k07x".to_vec(), Refusal::Gap { leaf: 2 })]
#[case::a_leaf_is_widened(
    |c: &mut Claims| c.leaves[0].end = b"k09".to_vec(), Refusal::Overlap { leaf: 2 })]
#[case::the_request_is_narrowed(
    |c: &mut Claims| c.request.end = b"k32".to_vec(), Refusal::BeyondRequest { leaf: 5 })]
#[case::the_request_is_widened(
    |c: &mut Claims| c.request.end = b"zz".to_vec(), Refusal::EndMissing { leaves: 5 })]
#[case::the_request_begins_later(
    |c: &mut Claims| c.request.start = b"b".to_vec(), Refusal::Overlap { leaf: 1 })]
#[case::the_request_has_no_end(
    |c: &mut Claims| c.request.end.clear(), Refusal::EmptyRequest { start_len: 1, end_len: 0 })]
#[case::a_leaf_has_no_end(
    |c: &mut Claims| c.leaves[4].end.clear(),
    Refusal::EmptyLeaf { leaf: 5, start_len: 3, end_len: 0 })]
#[case::a_cursor_is_moved_into_the_next_leaf(
    |c: &mut Claims| c.leaves[0].cursor = Some(key(9)), Refusal::CursorOutside { leaf: 1 })]
#[case::a_cursor_is_moved_before_its_leaf(
    |c: &mut Claims| c.leaves[1].cursor = Some(key(1)), Refusal::CursorOutside { leaf: 2 })]
#[case::keys_without_a_cursor(
    |c: &mut Claims| c.leaves[3].cursor = None, Refusal::TooManyKeys { leaf: 4, count: 3, max: 0 })]
#[case::keys_up_to_a_cursor_at_the_start(
    |c: &mut Claims| c.leaves[3].cursor = Some(key(24)),
    Refusal::TooManyKeys { leaf: 4, count: 3, max: 1 })]
#[case::done_without_a_cursor(
    |c: &mut Claims| c.leaves[2].cursor = None, Refusal::DoneWithoutCursor { leaf: 3 })]
#[case::never_owned(
    |c: &mut Claims| c.leaves[2].fence = FenceEpoch::ZERO,
    Refusal::NeverOwned { leaf: 3 })]
#[case::more_unread_than_keys(
    |c: &mut Claims| c.leaves[1].unread = 9,
    Refusal::UnreadExceedsCount { leaf: 2, unread: 9, count: 8 })]
fn a_forgery_is_refused_by_structure(#[case] forge: fn(&mut Claims), #[case] expected: Refusal) {
    let forged = forged(forge);
    assert_eq!(refused_by_itself(&forged), Some(expected));
    assert_refused_by_signature(&forged);
}

#[rstest]
#[case::a_smaller_number_of_keys("\"leaves\":5,\"done\":4", "\"leaves\":4,\"done\":4")]
#[case::a_larger_total("\"keys\":35,", "\"keys\":40,")]
#[case::a_better_verdict("\"verdict\":\"incomplete\"", "\"verdict\":\"complete\"")]
#[case::no_parked_leaf("\"done\":4,\"parked\":1", "\"done\":5,\"parked\":0")]
#[case::nothing_unread_in_all("\"unread\":1,\"verdict\"", "\"unread\":0,\"verdict\"")]
#[case::more_keys_in_a_leaf("\"cursor\":\"k07\",\"keys\":8,", "\"cursor\":\"k07\",\"keys\":9,")]
fn retouched_totals_are_refused(#[case] from: &str, #[case] to: &str) {
    let forged = retouched(from, to);
    assert_eq!(refused_by_itself(&forged), Some(Refusal::TotalsDiffer));
    assert_refused_by_signature(&forged);
}

#[rstest]
#[case::less_is_left("\"uncovered\":{\"after\":\"k26\"", "\"uncovered\":{\"after\":\"k30\"")]
#[case::it_ends_earlier("\"before\":\"k32\"", "\"before\":\"k28\"")]
#[case::it_begins_otherwise("{\"after\":\"k26\"", "{\"from\":\"k26\"")]
fn a_parked_leaf_that_misstates_its_rest_is_refused(#[case] from: &str, #[case] to: &str) {
    let forged = retouched(from, to);
    assert_eq!(refused_by_itself(&forged), Some(Refusal::UncoveredMisstated { leaf: 4 }));
    assert_refused_by_signature(&forged);
}

/// Two readers of one line must not be able to read two things.
#[rstest]
#[case::a_field_twice("\"unread\":0}", "\"unread\":0,\"unread\":0}", 2)]
#[case::a_field_more("\"unread\":0}", "\"unread\":0,\"note\":\"fine\"}", 2)]
#[case::spaces("\"status\":\"done\"", "\"status\": \"done\"", 2)]
#[case::another_escape("\"start\":\"k08\"", "\"start\":\"%6B08\"", 3)]
#[case::an_unknown_reason("\"Poisoned\"", "\"Fine\"", 5)]
#[case::an_unknown_version("\"gossip-certificate\":2", "\"gossip-certificate\":3", 1)]
#[case::another_version("\"gossip-certificate\":2", "\"gossip-certificate\":1", 1)]
#[case::another_meaning_of_cursors("\"completed\"", "\"imagined\"", 1)]
#[case::a_number_written_otherwise("\"fence\":1,", "\"fence\":01,", 2)]
#[case::the_uncovered_part_left_out(",\"uncovered\":{\"after\":\"k26\",\"before\":\"k32\"}", "", 5)]
fn other_forms_are_refused(#[case] from: &str, #[case] to: &str, #[case] line: u64) {
    let forged = retouched(from, to);
    assert_eq!(refused_by_itself(&forged), Some(Refusal::Malformed { line }));
    assert_refused_by_signature(&forged);
}

/// These are consistent in themselves, so only the source or a key reveals them.
#[rstest]
#[case::leaves_and_request_are_narrowed_together(
    |c: &mut Claims| { c.leaves.pop(); c.request.end = b"k32".to_vec(); },
    Refusal::OtherRequest { what: "end" })]
#[case::the_beginning_is_left_out_of_both(
    |c: &mut Claims| { c.leaves.remove(0); c.request.start = b"k08".to_vec(); },
    Refusal::OtherRequest { what: "start" })]
#[case::an_option_is_denied(
    |c: &mut Claims| c.request.options[0].1 = true, Refusal::OtherRequest { what: "options" })]
#[case::an_exclusion_is_hidden(
    |c: &mut Claims| c.request.excluded.clear(), Refusal::OtherRequest { what: "exclusions" })]
#[case::another_kind_of_source(
    |c: &mut Claims| c.request.source = b"tree:/data".to_vec(),
    Refusal::OtherRequest { what: "kind" })]
#[case::a_parked_leaf_is_called_done(
    |c: &mut Claims| c.leaves[3].status = LeafStatus::Done,
    Refusal::CountDiffers { leaf: 4, stated: 3, found: 8 })]
#[case::a_parked_leaf_is_called_done_with_a_later_cursor(
    |c: &mut Claims| { c.leaves[3].status = LeafStatus::Done; c.leaves[3].cursor = Some(key(31)); },
    Refusal::CountDiffers { leaf: 4, stated: 3, found: 8 })]
#[case::a_cursor_is_moved_on(
    |c: &mut Claims| c.leaves[3].cursor = Some(key(28)),
    Refusal::CountDiffers { leaf: 4, stated: 3, found: 5 })]
#[case::a_cursor_is_moved_back(
    |c: &mut Claims| c.leaves[3].cursor = Some(key(25)),
    Refusal::CountDiffers { leaf: 4, stated: 3, found: 2 })]
#[case::a_key_was_skipped(
    |c: &mut Claims| c.leaves[2].accumulator = accumulator([16, 17, 19, 20, 21, 22, 23]),
    Refusal::CountDiffers { leaf: 3, stated: 7, found: 8 })]
#[case::a_key_was_done_twice_instead_of_another(
    |c: &mut Claims| c.leaves[2].accumulator = accumulator([16, 17, 17, 19, 20, 21, 22, 23]),
    Refusal::KeysDiffer { leaf: 3, count: 8 })]
#[case::a_key_was_made_up(
    |c: &mut Claims| c.leaves[2].accumulator = accumulator([16, 17, 18, 19, 20, 21, 22, 23, 99]),
    Refusal::CountDiffers { leaf: 3, stated: 9, found: 8 })]
#[case::keys_are_claimed_by_the_neighbour(
    |c: &mut Claims| {
        c.leaves[0].accumulator = accumulator(0..9);
        c.leaves[1].accumulator = accumulator(9..16);
    },
    Refusal::CountDiffers { leaf: 1, stated: 9, found: 8 })]
#[case::a_cut_is_moved(
    |c: &mut Claims| {
        c.leaves[0].end = key(7);
        c.leaves[1].start = key(7);
        c.leaves[0].cursor = Some(key(6));
    },
    Refusal::CountDiffers { leaf: 1, stated: 8, found: 7 })]
#[case::everything_is_one_leaf_that_counts_what_it_likes(
    |c: &mut Claims| {
        c.leaves.truncate(1);
        c.leaves[0].end = b"z".to_vec();
        c.leaves[0].cursor = Some(key(39));
    },
    Refusal::CountDiffers { leaf: 1, stated: 8, found: 40 })]
fn a_forgery_is_refused_by_the_source(#[case] forge: fn(&mut Claims), #[case] expected: Refusal) {
    let forged = forged(forge);
    assert_eq!(refused_by_itself(&forged), None, "this one needs a source");
    assert_eq!(refused_by_source(&forged), Some(expected));
    assert_refused_by_signature(&forged);
}

/// What neither structure nor source can show, and the documentation says so.
#[rstest]
#[case::nothing_was_unread(|c: &mut Claims| c.leaves[1].unread = 0)]
#[case::another_fence(|c: &mut Claims| {
    c.leaves[1].fence = FenceEpoch::from_raw(99);
})]
#[case::another_reason(|c: &mut Claims| {
    c.leaves[3].status = LeafStatus::Parked(ParkedFor::PermissionDenied);
})]
#[case::another_setting(|c: &mut Claims| c.request.settings.clear())]
#[case::another_command(|c: &mut Claims| c.request.command.clear())]
#[case::another_run(|c: &mut Claims| c.request.run = RunId::from_raw(7))]
#[case::another_place(|c: &mut Claims| c.request.source = b"memory:elsewhere".to_vec())]
fn some_forgeries_are_refused_by_signature_alone(#[case] forge: fn(&mut Claims)) {
    let forged = forged(forge);
    assert_eq!(refused_by_itself(&forged), None);
    assert_eq!(refused_by_source(&forged), None);
    assert_refused_by_signature(&forged);
}
