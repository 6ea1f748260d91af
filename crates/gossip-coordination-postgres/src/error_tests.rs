//! Which failures of a commit are certain.

use gossip_coordination::{InfraError, StoreRefusal};

use crate::error::Failure;

fn server(code: &str, is_error: bool) -> Failure {
    Failure::Server { code: code.to_owned(), is_error, text_len: 7 }
}

#[test]
fn errors_before_the_commit_are_certain() {
    let codes = [
        "40001", "40P01", "55P03", "57014", "53100", "53200", "25006", "42501", "42883", "3F000",
        "54000", "22023", "23505", "26000", "0A000", "XX001", "GS001",
    ];
    for code in codes {
        assert!(server(code, true).is_certain(), "{code}");
        // A session that the server ended may have committed before.
        assert!(!server(code, false).is_certain(), "{code}");
    }
    assert!(Failure::NotConnected { why: String::new() }.is_certain());
}

#[test]
fn every_other_failure_leaves_a_commit_unknown() {
    // Shutdown, termination, resolution unknown, connection failures, and codes of no list.
    let codes = [
        "57P01", "57P02", "57P03", "40003", "08007", "08006", "08P01", "58030", "XX000", "99999",
        "", "é", "57P05",
    ];
    for code in codes {
        assert!(!server(code, true).is_certain(), "{code}");
    }
    assert!(!Failure::Lost.is_certain());
    assert!(!Failure::Timeout { millis: 1 }.is_certain());
}

#[test]
fn a_refusal_says_why_and_what_to_do() {
    let cases = [
        ("53100", StoreRefusal::NoSpace),
        ("25006", StoreRefusal::ReadOnly),
        ("42501", StoreRefusal::NotPermitted),
        ("28P01", StoreRefusal::NotPermitted),
        ("42883", StoreRefusal::Unusable),
        ("54000", StoreRefusal::TooLarge),
    ];
    for (code, expected) in cases {
        match server(code, true).into_infra("test") {
            InfraError::Refused { why, message, .. } => {
                assert_eq!(why, expected, "{code}");
                assert!(message.contains(code), "{message}");
            }
            other => panic!("{code}: {other:?}"),
        }
    }
    for failure in [server("40P01", true), server("57P01", false), Failure::Lost] {
        assert!(failure.into_infra("test").is_retryable());
    }
    let damaged = server("XX001", true).into_infra("test");
    assert!(matches!(damaged, InfraError::Corruption { .. }));
}

#[test]
fn a_session_is_kept_after_an_error_of_one_statement() {
    assert!(server("40P01", true).keeps_session());
    for failure in [server("40P01", false), server("25006", true), Failure::Lost] {
        assert!(!failure.keeps_session(), "{failure:?}");
    }
}
