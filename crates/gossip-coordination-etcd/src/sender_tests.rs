//! The error that the store layer receives when a request fails.

use gossip_coordination::{InfraError, StoreRefusal};

use crate::sender::infra_error;
use crate::{EtcdCause, EtcdError, SizeLimit};

/// A caller can either retry or needs an operator, depending on the cause.
#[test]
fn every_cause_is_reported_by_its_kind() {
    let text = || "there".to_owned();
    let wrong = EtcdCause::WrongVersion { found: text(), needed: "3" };
    for (cause, expected) in [
        (EtcdCause::Unreachable { endpoint: text(), detail: text() }, None),
        (EtcdCause::Timeout { millis: 1 }, None),
        (EtcdCause::ServerTimeout, None),
        (EtcdCause::NoLeader, None),
        (EtcdCause::Busy, None),
        (EtcdCause::Compacted, None),
        (EtcdCause::LeaseNotFound, None),
        (EtcdCause::AuthRefused, Some(StoreRefusal::NotPermitted)),
        (EtcdCause::PermissionDenied, Some(StoreRefusal::NotPermitted)),
        (EtcdCause::NoSpace, Some(StoreRefusal::NoSpace)),
        (EtcdCause::TooLarge(SizeLimit::Bytes), Some(StoreRefusal::TooLarge)),
        (wrong, Some(StoreRefusal::Unusable)),
        (EtcdCause::Tls { endpoint: text(), detail: text() }, Some(StoreRefusal::Unusable)),
        (EtcdCause::OtherCluster { endpoint: text() }, Some(StoreRefusal::Unusable)),
        (EtcdCause::BadRequest("it"), Some(StoreRefusal::Unusable)),
    ] {
        let reply = infra_error(&EtcdError::refused("txn", cause));
        let why = match &reply {
            InfraError::Refused { why, .. } => Some(*why),
            other => {
                assert!(other.is_retryable(), "{other}");
                None
            }
        };
        assert_eq!(why, expected, "{reply}");
        assert!(reply.to_string().starts_with("etcd.commit: "), "{reply}");
    }
    let corrupt = infra_error(&EtcdError::refused("txn", EtcdCause::Corrupt));
    assert!(matches!(corrupt, InfraError::Corruption { .. }), "{corrupt}");
}
