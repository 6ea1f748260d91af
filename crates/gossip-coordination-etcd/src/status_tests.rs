//! Which answers are certain, one row each.

use tonic::{Code, Status};

use crate::error::{EtcdCause, Fate, SizeLimit};
use crate::status::{Peer, classify, wrong_version};

/// What a status of the server means, by its fate and cause.
fn meaning(code: Code, text: &str) -> (Fate, EtcdCause) {
    let error = classify("txn", "host:1", Peer::Known, &Status::new(code, text));
    (error.fate, error.cause)
}

#[test]
fn what_the_gate_refuses_did_not_happen() {
    let too_large = EtcdCause::TooLarge(SizeLimit::Bytes);
    for (code, text, cause) in [
        (Code::Unavailable, "etcdserver: no leader", EtcdCause::NoLeader),
        (Code::ResourceExhausted, "etcdserver: too many requests", EtcdCause::Busy),
        (
            Code::InvalidArgument,
            "etcdserver: too many operations in txn request",
            EtcdCause::TooLarge(SizeLimit::Ops),
        ),
        (Code::InvalidArgument, "etcdserver: request is too large", too_large.clone()),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (4000019 vs. 2097152)",
            too_large,
        ),
        (Code::InvalidArgument, "etcdserver: user name is empty", EtcdCause::AuthRefused),
        (Code::Unauthenticated, "etcdserver: invalid auth token", EtcdCause::AuthRefused),
        (
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old",
            EtcdCause::AuthRefused,
        ),
        (Code::PermissionDenied, "etcdserver: permission denied", EtcdCause::PermissionDenied),
        (Code::NotFound, "etcdserver: requested lease not found", EtcdCause::LeaseNotFound),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            EtcdCause::Compacted,
        ),
        (Code::Unimplemented, "unknown method Txn", wrong_version("a server without this request")),
    ] {
        assert_eq!(meaning(code, text), (Fate::Refused, cause), "{text}");
    }
}

#[test]
fn a_proposed_request_may_have_been_applied() {
    for (code, text, cause) in [
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", EtcdCause::NoSpace),
        (Code::Unavailable, "etcdserver: request timed out", EtcdCause::ServerTimeout),
        (
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
            EtcdCause::ServerTimeout,
        ),
        (
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to connection lost",
            EtcdCause::ServerTimeout,
        ),
        (Code::DeadlineExceeded, "context deadline exceeded", EtcdCause::ServerTimeout),
        (Code::Unavailable, "etcdserver: leader changed", EtcdCause::NoLeader),
        (Code::Unavailable, "etcdserver: server stopped", EtcdCause::NoLeader),
        (Code::DataLoss, "etcdserver: corrupt cluster", EtcdCause::Corrupt),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
            EtcdCause::TooLarge(SizeLimit::Answer),
        ),
        (
            Code::Unknown,
            "raft proposal dropped",
            EtcdCause::Other { code: Code::Unknown as i32, text_len: 21 },
        ),
    ] {
        assert_eq!(meaning(code, text), (Fate::Unknown, cause), "{text}");
    }
}

#[test]
fn an_unrecognised_text_is_unknown_and_never_quoted() {
    for code in 0..=16 {
        let text = "etcdserver: the key secret-key is new to me";
        let error = classify("txn", "host:1", Peer::Known, &Status::new(Code::from(code), text));
        if Code::from(code) != Code::Unimplemented {
            assert_eq!(error.fate, Fate::Unknown, "{code}");
        }
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}

#[test]
fn every_message_says_what_to_do() {
    let (endpoint, detail) = ("host:1".to_owned(), "refused".to_owned());
    for cause in [
        EtcdCause::Unreachable { endpoint: endpoint.clone(), detail: detail.clone() },
        EtcdCause::Timeout { millis: 1 },
        EtcdCause::ServerTimeout,
        EtcdCause::NoLeader,
        EtcdCause::Busy,
        EtcdCause::AuthRefused,
        EtcdCause::PermissionDenied,
        EtcdCause::NoSpace,
        EtcdCause::TooLarge(SizeLimit::Ops),
        EtcdCause::Compacted,
        EtcdCause::FutureRevision,
        EtcdCause::LeaseNotFound,
        EtcdCause::WrongVersion { found: "etcd 3.2".to_owned(), needed: "3.4" },
        EtcdCause::OtherCluster { endpoint: endpoint.clone() },
        EtcdCause::Tls { endpoint, detail },
        EtcdCause::BadConfig("there is no endpoint"),
        EtcdCause::BadRequest("duplicate key"),
        EtcdCause::Corrupt,
        EtcdCause::Other { code: 2, text_len: 5 },
    ] {
        let text = cause.to_string();
        assert!(text.contains("; "), "{text}");
    }
}
