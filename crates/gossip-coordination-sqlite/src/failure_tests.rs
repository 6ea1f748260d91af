//! What SQLite's codes mean, row by row.

use gossip_coordination::store::{CommitOutcome, Conflict, Key};
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::Error;
use rusqlite::ffi;

use crate::failure::{certainly_did_not_happen, infra};
use crate::writer::{GroupFailure, failed};

fn error(code: i32) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), Some("what SQLite said".to_owned()))
}

/// A kind of failure, by name.
fn kind(code: i32) -> String {
    let infra = infra("step", &error(code));
    assert!(infra.to_string().starts_with("step: what SQLite said; "), "{infra}");
    match infra {
        InfraError::Transient { .. } => "transient".to_owned(),
        InfraError::Corruption { .. } => "corruption".to_owned(),
        InfraError::Refused { why, .. } => format!("{why:?}"),
        other => panic!("{other}"),
    }
}

#[test]
fn every_code_that_callers_meet_has_its_kind() {
    let rows = [
        (ffi::SQLITE_BUSY, "transient"),
        (ffi::SQLITE_BUSY_SNAPSHOT, "transient"),
        (ffi::SQLITE_LOCKED, "transient"),
        (ffi::SQLITE_PROTOCOL, "transient"),
        (ffi::SQLITE_IOERR_READ, "transient"),
        (ffi::SQLITE_IOERR_VNODE, "transient"),
        (ffi::SQLITE_NOMEM, "transient"),
        (ffi::SQLITE_INTERRUPT, "transient"),
        (ffi::SQLITE_CANTOPEN, "transient"),
        (ffi::SQLITE_FULL, "NoSpace"),
        (ffi::SQLITE_READONLY, "ReadOnly"),
        (ffi::SQLITE_READONLY_DBMOVED, "Unusable"),
        (ffi::SQLITE_PERM, "NotPermitted"),
        (ffi::SQLITE_TOOBIG, "TooLarge"),
        (ffi::SQLITE_CORRUPT, "corruption"),
        (ffi::SQLITE_NOTADB, "corruption"),
        (ffi::SQLITE_ERROR, "Unusable"),
        (ffi::SQLITE_CONSTRAINT, "Unusable"),
    ];
    for (code, expected) in rows {
        assert_eq!(kind(code), expected, "code {code}");
    }
    let mistyped = infra("step", &Error::IntegralValueOutOfRange(0, -1));
    assert!(matches!(mistyped, InfraError::Corruption { .. }));
}

#[test]
fn a_commit_is_certain_not_to_have_happened_only_if_its_last_frame_was_not_written() {
    let certain = [ffi::SQLITE_FULL, ffi::SQLITE_BUSY];
    let in_doubt = [
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_NOMEM,
    ];
    assert!(certain.into_iter().all(|code| certainly_did_not_happen(&error(code))));
    assert!(!in_doubt.into_iter().any(|code| certainly_did_not_happen(&error(code))));
}

#[test]
fn a_group_in_doubt_is_unknown_to_those_who_wrote_and_failed_for_those_who_did_not() {
    let cause = infra("step", &error(ffi::SQLITE_IOERR_FSYNC));
    let conflict = Conflict::new(vec![(Key::SchemaVersion, None)]).unwrap();
    let outcomes = vec![CommitOutcome::Applied { revision: 7 }, CommitOutcome::Conflict(conflict)];
    let outcomes = failed(GroupFailure::Unresolved(cause.clone(), outcomes), 2);
    assert_eq!(outcomes, [Ok(CommitOutcome::Unknown), Err(cause)]);
}

#[test]
fn a_group_that_did_not_happen_fails_for_all() {
    let why = StoreRefusal::NoSpace;
    let cause = InfraError::Refused { operation: "step", why, message: String::new() };
    let not_started = failed(GroupFailure::NotStarted(cause.clone()), 2);
    assert_eq!(not_started, [Err(cause.clone()), Err(cause)]);
}
