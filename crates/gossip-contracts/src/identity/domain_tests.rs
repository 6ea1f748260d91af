use std::collections::BTreeSet;

use super::*;
use crate::identity::domain::{DOMAIN_LEN_MAX, DOMAIN_LEN_MIN};

/// Returns whether `text` is `gossip/<subsystem>/v<N>[/<operation>]`, parsed part by part.
fn has_registry_form(text: &str) -> bool {
    let word = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let version = |part: &str| part.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
    let parts: Vec<&str> = text.split('/').collect();
    matches!(parts.len(), 3 | 4)
        && parts[0] == "gossip"
        && parts.iter().all(word)
        && version(parts[2])
}

#[test]
fn domain_strings_are_unique() {
    let strings: BTreeSet<_> = Domain::ALL.iter().map(|domain| domain.as_str()).collect();
    assert_eq!(strings.len(), Domain::ALL.len());
}

#[test]
fn domain_names_are_unique() {
    let names: BTreeSet<_> = Domain::ALL.iter().map(|domain| domain.name()).collect();
    assert_eq!(names.len(), Domain::ALL.len());
}

#[test]
fn domain_strings_follow_the_pattern() {
    for domain in Domain::ALL {
        let text = domain.as_str();
        assert!((DOMAIN_LEN_MIN..=DOMAIN_LEN_MAX).contains(&text.len()), "{text}");
        assert!(has_registry_form(text), "{text}");
    }
}

#[test]
fn the_pattern_check_rejects_invalid_strings() {
    for bad in [
        "gossip/finding",
        "gossip/finding/1",
        "gossip/finding/v",
        "gossip/Finding/v1",
        "gossip//v1",
        "gossip/finding/v1/",
        "gossip/finding/v1/a/b",
        "other/finding/v1",
        "gossip/find_ing/v1",
    ] {
        assert!(!has_registry_form(bad), "{bad}");
    }
}

#[test]
fn names_end_in_the_version_of_their_string() {
    for domain in Domain::ALL {
        let version = domain.as_str().split('/').nth(2).unwrap().to_uppercase();
        assert!(domain.name().ends_with(&format!("_{version}")), "{domain:?}");
    }
}

/// Domains of the specification that are in use: their hashes are comparable with the reference.
const SPECIFIED: [&str; 12] = [
    "gossip/coord/v1/split-id",
    "gossip/coord/v1/op-payload",
    "gossip/finding/v1",
    "gossip/occurrence/v1",
    "gossip/observation/v1",
    "gossip/secret-hash/v1",
    "gossip/item-id/v1",
    "gossip/connector-instance-id/v1",
    "gossip/object-version/v1",
    "gossip/rule/v1",
    "gossip/policy-hash/v2",
    "gossip/rules-digest/v1",
];

/// Domains added by this project, with the same pattern.
const ADDED: [&str; 12] = [
    "gossip/content/v1",
    "gossip/run-id/v1",
    "gossip/runtime/v1/op-id",
    "gossip/certificate/v1",
    "gossip/certificate/v1/item",
    "gossip/certificate/v1/signature-key",
    "gossip/handoff/v1/id",
    "gossip/handoff/v1/party",
    "gossip/handoff/v1/op-id",
    "gossip/coord/v1/record-checksum",
    "gossip/coord/v1/failure-number",
    "gossip/norm-hash/v1",
];

#[test]
fn registry_starts_with_the_domains_of_the_specification() {
    let specified = Domain::ALL.iter().take(SPECIFIED.len());
    assert!(specified.map(|domain| domain.as_str()).eq(SPECIFIED));
}

#[test]
fn every_other_domain_string_is_a_known_addition() {
    let added = Domain::ALL.iter().skip(SPECIFIED.len());
    assert!(added.map(|domain| domain.as_str()).eq(ADDED));
}

#[test]
fn every_domain_hashes_in_derive_key_mode() {
    for domain in Domain::ALL {
        let hasher = CanonicalHasher::for_domain(domain);
        assert_eq!(hasher.finalize_32(), blake3::derive_key(domain.as_str(), b""), "{domain:?}");
    }
}
