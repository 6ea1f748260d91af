use std::io::{self, ErrorKind};

use rstest::rstest;

use super::*;

/// The table of reactions that the module documentation refers to: printed and compared.
#[test]
fn reactions_match_the_table() {
    let unavailable = ConnectorError::Unavailable { kind: ErrorKind::TimedOut };
    let sources = [
        unavailable,
        ConnectorError::PermissionDenied,
        ConnectorError::NotFound,
        ConnectorError::SourceChanged,
        ConnectorError::Listing { problem: ListingProblem::Stuck },
        ConnectorError::Malformed { position: 7 },
    ];
    let items = [
        OpenError::Vanished,
        OpenError::Changed,
        OpenError::PermissionDenied,
        OpenError::Malformed,
        OpenError::Refused,
        OpenError::Archived,
        OpenError::Unaddressable,
        OpenError::TooLong { max: 1 },
        OpenError::Source(unavailable),
        OpenError::Source(ConnectorError::NotFound),
    ];
    let pages = [
        PageError::Connector(unavailable),
        PageError::Connector(ConnectorError::SourceChanged),
        PageError::Violation(PageViolation::NotAdvancing),
    ];
    let mut table = String::new();
    table.extend(sources.map(|e| format!("source: {e}: {:?}\n", e.reaction())));
    table.extend(items.map(|e| format!("item: {e}: {:?}\n", e.reaction())));
    table.extend(pages.map(|e| format!("page: {e}: {:?}\n", e.reaction())));
    println!("{table}");
    assert_eq!(table, REACTIONS);
    assert_eq!(OpenError::from(unavailable).reaction(), unavailable.reaction());
    assert!(unavailable.is_retryable() && !ConnectorError::NotFound.is_retryable());
}

const REACTIONS: &str = "\
source: the source did not answer (timed out): Retry
source: the source may not be read: Park(PermissionDenied)
source: the source does not exist: Park(NotFound)
source: the source has changed since the run was created: Park(Poisoned)
source: the server says that its listing is truncated, and lists no further key: Park(Poisoned)
source: the source cannot be parsed at position 7: Park(Poisoned)
item: the item is not in the source: SkipGone
item: the item has changed since it was listed: SkipUnread
item: the item may not be read: SkipUnread
item: the item cannot be parsed: SkipUnread
item: the system rejects the lookup or the read of the item: SkipUnread
item: the item is archived; restore it, then try it again: SkipUnread
item: the name of the item has a `.` or `..` segment, which may lead to another item: SkipUnread
item: the item is longer than the limit of 1 bytes: SkipUnread
item: the source did not answer (timed out): Retry
item: the source does not exist: Park(NotFound)
page: the source did not answer (timed out): Retry
page: the source has changed since the run was created: Park(Poisoned)
page: an empty page that is not the last: Park(Poisoned)
";

#[rstest]
#[case(ErrorKind::NotFound, OpenError::Vanished)]
#[case(ErrorKind::NotADirectory, OpenError::Vanished)]
#[case(ErrorKind::InvalidInput, OpenError::Refused)]
#[case(ErrorKind::InvalidFilename, OpenError::Refused)]
#[case(ErrorKind::IsADirectory, OpenError::Changed)]
#[case(ErrorKind::UnexpectedEof, OpenError::Changed)]
#[case(ErrorKind::PermissionDenied, OpenError::PermissionDenied)]
#[case(ErrorKind::InvalidData, OpenError::Malformed)]
#[case(ErrorKind::TimedOut, ConnectorError::Unavailable { kind: ErrorKind::TimedOut }.into())]
#[case(ErrorKind::Other, ConnectorError::Unavailable { kind: ErrorKind::Other }.into())]
fn failures_of_an_item_are_sorted(#[case] kind: ErrorKind, #[case] expected: OpenError) {
    assert_eq!(OpenError::from_io(&io::Error::from(kind)), expected);
}

#[rstest]
#[case(ErrorKind::NotFound, ConnectorError::NotFound)]
#[case(ErrorKind::NotADirectory, ConnectorError::NotFound)]
#[case(ErrorKind::PermissionDenied, ConnectorError::PermissionDenied)]
#[case(ErrorKind::Interrupted, ConnectorError::Unavailable { kind: ErrorKind::Interrupted })]
fn failures_of_a_source_are_sorted(#[case] kind: ErrorKind, #[case] expected: ConnectorError) {
    assert_eq!(ConnectorError::from_io(&io::Error::from(kind)), expected);
}

/// An `io::Error` may quote the path it failed on; the error derived from it must not.
#[test]
fn the_text_of_an_io_error_is_not_kept() {
    let error = io::Error::other("cannot read canary-key");
    let shown = format!("{:?} {:?}", ConnectorError::from_io(&error), OpenError::from_io(&error));
    assert!(!shown.contains("canary"), "{shown}");
}
