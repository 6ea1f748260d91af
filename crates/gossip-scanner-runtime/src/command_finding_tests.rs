//! Stored findings of commands.

use rstest::rstest;

use super::{CommandFinding, PLACE_MAX, UnreadableCommandFinding};

#[rstest]
#[case::text("password\n".as_bytes())]
#[case::empty(b"")]
#[case::no_text(b"\xff\x00")]
fn stored_finding_is_read_again(#[case] output: &[u8]) {
    let written = output.len() as u64;
    let found = CommandFinding::of_process(7, 3, output.to_vec(), written);
    let read = CommandFinding::decode(&found.encode("a/b")).unwrap();
    assert_eq!((&*read.place, read.status, read.items), ("a/b", Some(7), 3));
    assert_eq!((&*read.text, read.is_cut), (output, false));
}

#[test]
fn cut_output_begins_with_a_whole_character() {
    let end = "ä end".as_bytes()[1..].to_vec();
    let found = CommandFinding::of_process(0, 1, end, 100);
    assert_eq!((&*found.text, found.is_cut), (&b" end"[..], true));
}

#[test]
fn long_messages_and_places_are_cut() {
    let found = CommandFinding::of_reply(2.try_into().unwrap(), "three ä", 7);
    assert_eq!((&*found.text, found.is_cut), (&b"three "[..], true));
    let read = CommandFinding::decode(&found.encode(&"x".repeat(PLACE_MAX + 1))).unwrap();
    assert_eq!((read.place.len(), read.findings.get(), read.status), (PLACE_MAX, 2, None));
}

#[rstest]
#[case::nothing("")]
#[case::findings_of_a_scan(r#"{"v":2,"findings":[]}"#)]
#[case::newer(
    r#"{"command":2,"place":"","findings":1,"status":1,"items":1,"text":"","cut":false}"#
)]
#[case::odd_digits(
    r#"{"command":1,"place":"","findings":1,"status":1,"items":1,"text":{"hex":"abc"},"cut":false}"#
)]
fn other_results_are_unreadable(#[case] content: &str) {
    assert_eq!(CommandFinding::decode(content.as_bytes()), Err(UnreadableCommandFinding));
}
