//! Settings that cannot work are refused with their bounds, and secrets are shown nowhere.

use std::path::Path;
use std::time::Duration;

use gossip_coordination::SIDE_RECORD_BYTES_MAX;
use gossip_coordination::store::{CLAIM_COOLDOWN_MAX, SettingError};
use proptest::prelude::*;

use crate::budget::Budget;
use crate::config::{ENDPOINTS_MAX, MAX_TXN_OPS_MIN};
use crate::keyspace::NAMESPACE_LEN_MAX;
use crate::{
    ConfigError, Credentials, DEFAULT_MAX_REQUEST_BYTES, DEFAULT_OWNER_LEASE_TTL, EtcdConfig,
    EtcdTls, NamespaceError, TlsIdentityFiles, UrlError,
};

fn usual() -> EtcdConfig {
    EtcdConfig::new(["127.0.0.1:2379"], "team/prod").expect("the usual settings work")
}

/// What `change` of the usual settings is refused with.
fn refusal(change: impl FnOnce(&mut EtcdConfig)) -> ConfigError {
    let mut config = usual();
    change(&mut config);
    config.validate().expect_err("it cannot work")
}

#[test]
fn usual_settings_and_a_short_owner_lease_are_allowed() {
    let config = usual();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.owner_lease_ttl, DEFAULT_OWNER_LEASE_TTL);
    let short = EtcdConfig { owner_lease_ttl: Duration::from_secs(9), ..config };
    assert_eq!(short.validate(), Ok(()), "short is unwise, and allowed");
}

/// The setting that was out of its bounds.
fn out_of_range(change: impl FnOnce(&mut EtcdConfig)) -> &'static str {
    match refusal(change) {
        ConfigError::OutOfRange { name, value, min, max } => {
            assert!(value < min || value > max, "{name}: {value} is within {min} and {max}");
            name
        }
        other => panic!("no bound was missed: {other}"),
    }
}

#[test]
fn every_number_has_bounds() {
    let second = Duration::from_secs(1);
    type Change = fn(&mut EtcdConfig);
    let cases: [(&str, Change); 11] = [
        ("endpoints", |config| config.endpoints.clear()),
        ("endpoints", |config| config.endpoints = vec!["h:1".into(); ENDPOINTS_MAX + 1]),
        ("connect_timeout (ms)", |config| config.connect_timeout = Duration::from_millis(49)),
        ("request_timeout (ms)", |config| config.request_timeout = Duration::from_secs(301)),
        ("owner_lease_ttl (s)", |config| config.owner_lease_ttl = Duration::from_secs(1)),
        ("max_clock_skew (ms)", |config| config.max_clock_skew = Duration::from_secs(61)),
        ("retries", |config| config.retries = 65),
        ("max_children_per_op", |config| config.max_children_per_op = 1),
        ("max_txn_ops", |config| config.max_txn_ops = MAX_TXN_OPS_MIN - 1),
        ("claim_cooldown (ms)", |config| config.claim_cooldown = CLAIM_COOLDOWN_MAX * 2),
        ("max_request_bytes", |config| config.max_request_bytes = 11 << 20),
    ];
    for (name, change) in cases {
        assert_eq!(out_of_range(change), name);
    }
    assert_eq!(
        refusal(|config| config.owner_lease_ttl = second * 5 / 2),
        ConfigError::FractionOfSecond
    );
}

#[test]
fn endpoints_are_hosts_with_ports() {
    for (endpoint, is_fine) in [
        ("localhost:2379", true),
        ("etcd-0.svc_a:1", true),
        ("[::1]:2379", true),
        ("[fe80::1%eth0]:2379", false),
        ("localhost", false),
        ("localhost:0", false),
        ("localhost:70000", false),
        (":2379", false),
        ("http://localhost:2379", false),
        ("user@localhost:2379", false),
        ("a b:2379", false),
        ("[]:2379", false),
        ("::1:2379", false),
    ] {
        let config = EtcdConfig { endpoints: vec!["good:1".into(), endpoint.into()], ..usual() };
        let expected = if is_fine { Ok(()) } else { Err(ConfigError::Endpoint { index: 1 }) };
        assert_eq!(config.validate(), expected, "{endpoint}");
    }
}

#[test]
fn a_server_that_takes_too_little_is_refused_with_what_it_needs() {
    let ConfigError::RequestTooSmall(small) = refusal(|config| config.max_txn_ops = 8_192) else {
        panic!("no room is left");
    };
    let ops = small.ops;
    let enough =
        EtcdConfig { max_txn_ops: ops, max_request_bytes: small.needed, ..usual() }.validate();
    assert_eq!(enough, Ok(()), "what it says it needs is enough");
    let config = EtcdConfig { max_txn_ops: ops, max_request_bytes: small.needed - 1, ..usual() };
    assert!(config.validate().is_err());
}

#[test]
fn a_server_that_some_checkpoint_does_not_fit_is_refused() {
    let small = |change: fn(&mut EtcdConfig)| {
        let ConfigError::RequestTooSmall(small) = refusal(change) else { panic!("it is refused") };
        small
    };
    let refused = [
        small(|config| config.max_request_bytes = 512 << 10),
        small(|config| config.max_txn_ops = 2_048),
    ];
    for small in refused {
        let text = ConfigError::RequestTooSmall(small).to_string();
        assert!(text.contains(&format!("--max-request-bytes={}", small.needed)), "{text}");
        let ops = small.ops;
        let config = EtcdConfig { max_txn_ops: ops, max_request_bytes: small.needed, ..usual() };
        // A shard with everything as long as it may be has 40 KiB.
        let left = Budget::new(&config).expect("it is enough").limits.txn_bytes;
        assert!(left >= SIDE_RECORD_BYTES_MAX + (40 << 10), "{left} bytes");
    }
}

#[test]
fn a_default_server_leaves_most_of_a_request_to_values() {
    let longest = "x".repeat(NAMESPACE_LEN_MAX);
    let config = EtcdConfig::new(["h:1"], &longest).expect("it works");
    let limits = Budget::new(&config).expect("it works").limits;
    assert_eq!(limits.txn_ops, 128);
    assert!(limits.txn_bytes > DEFAULT_MAX_REQUEST_BYTES * 9 / 10, "{}", limits.txn_bytes);
}

#[test]
fn secrets_are_shown_nowhere() {
    let mut config = usual();
    let (user, password) = ("acme-admin".to_owned(), "hunter2!".to_owned());
    config.credentials = Some(Credentials { user, password });
    let shown = format!("{config:?}");
    for secret in ["acme-admin", "hunter2", "team/prod"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(
        refusal(|config| {
            config.credentials =
                Some(Credentials { user: String::new(), password: "hunter2".into() });
        }) == ConfigError::NoUser
    );
}

#[test]
fn an_url_says_everything() {
    let url = "etcd://m%40e%3a%2f@h1:4001,h2,[::1],[::1]:5/team/prod?owner_lease_ttl=20s\
               &request_timeout=750ms&claim_cooldown=1m&retries=7&max_txn_ops=1024&coalesce=off\
               &password_file=%2Fetc/password&ca=%2Fetc/ca.pem&cert=c&key=k&server_name=etcd.local";
    let config = EtcdConfig::from_url(url).expect("it says everything");
    assert_eq!(config.endpoints, ["h1:4001", "h2:2379", "[::1]:2379", "[::1]:5"]);
    assert_eq!(config.namespace.path(), "team/prod");
    let credentials = config.credentials.expect("a user");
    assert_eq!((&*credentials.user, &*credentials.password), ("m@e:/", ""));
    assert_eq!(config.password_file.as_deref(), Some(Path::new("/etc/password")));
    assert_eq!(config.owner_lease_ttl, Duration::from_secs(20));
    assert_eq!(config.request_timeout, Duration::from_millis(750));
    assert_eq!(config.claim_cooldown, Duration::from_secs(60));
    assert_eq!((config.retries, config.max_txn_ops, config.coalesce), (7, 1024, false));
    let identity = Some(TlsIdentityFiles { cert_file: "c".into(), key_file: "k".into() });
    let ca_file = "/etc/ca.pem".into();
    let server_name = Some("etcd.local".into());
    assert_eq!(config.tls, Some(EtcdTls { ca_file, identity, server_name }));
}

#[test]
fn an_url_that_says_little_gets_the_usual() {
    let config = EtcdConfig::from_url("etcd://h/p").expect("enough");
    assert_eq!(config.endpoints, ["h:2379"]);
    assert!(config.tls.is_none() && config.credentials.is_none() && config.coalesce);
    let config = EtcdConfig::from_url("etcd://h/p?ca=a.pem").expect("enough");
    let tls = EtcdTls { ca_file: "a.pem".into(), identity: None, server_name: None };
    assert_eq!(config.tls, Some(tls));
}

#[test]
fn credentials_reach_other_machines_by_tls_or_if_allowed() {
    for url in [
        "etcd://u@h/p?ca=c",
        "etcd://u@h/p?tls=off",
        "etcd://u@localhost/p",
        "etcd://u@127.0.0.2,[::1]/p",
        "etcd://h/p",
    ] {
        EtcdConfig::from_url(url).expect(url);
    }
    let credentials = Some(Credentials { user: "u".into(), password: "p".into() });
    let endpoints = vec!["h:2379".into()];
    let config = EtcdConfig { credentials, endpoints, ..usual() };
    assert_eq!(config.validate(), Err(ConfigError::NoTls), "also without a URL");
}

#[test]
fn urls_that_are_none_are_refused() {
    let value = |name, expected| UrlError::Setting(SettingError::Value { name, expected });
    let time = "a number followed by ms, s or m";
    for (url, why) in [
        ("http://h/p", UrlError::Scheme),
        ("etcd:h/p", UrlError::Scheme),
        ("etcd://h", ConfigError::from(NamespaceError::Empty).into()),
        ("etcd:///p", ConfigError::Endpoint { index: 0 }.into()),
        ("etcd://h1,,h2/p", ConfigError::Endpoint { index: 1 }.into()),
        ("etcd://user@h/p", ConfigError::NoTls.into()),
        ("etcd://user@127.0.0.1,h/p", ConfigError::NoTls.into()),
        ("etcd://user:password@127.0.0.1/p", UrlError::Password),
        ("etcd://user:password@h/p?ca=c", UrlError::Password),
        ("etcd://u%4@h/p", UrlError::User),
        ("etcd://u%+4@h/p", UrlError::User),
        ("etcd://u%ff@h/p", UrlError::User),
        ("etcd://:p@h/p", UrlError::Password),
        ("etcd://@h/p", ConfigError::NoUser.into()),
        ("etcd://h/p?password_file=f", ConfigError::NoUser.into()),
        ("etcd://h/p?tls=on", value("tls", "off")),
        ("etcd://u@h/p?tls=off&ca=c", SettingError::Contradiction.into()),
        ("etcd://h/p?retries", SettingError::Pair { index: 0 }.into()),
        ("etcd://h/p?retries=1&x=2", SettingError::Unknown { index: 1 }.into()),
        ("etcd://h/p?retries=1&retries=1", SettingError::SetTwice { name: "retries" }.into()),
        ("etcd://h/p?retries=-1", value("retries", "a number")),
        ("etcd://h/p?coalesce=yes", value("coalesce", "on or off")),
        ("etcd://h/p?request_timeout=5", value("request_timeout", time)),
        ("etcd://h/p?request_timeout=s", value("request_timeout", time)),
        ("etcd://h/p?ca=", value("ca", "percent-encoded text")),
        ("etcd://h/p?cert=c", SettingError::HalfIdentity.into()),
        ("etcd://h/p?server_name=c", SettingError::NoAuthorities.into()),
        ("etcd://h/p?owner_lease_ttl=2500ms", ConfigError::FractionOfSecond.into()),
    ] {
        assert_eq!(EtcdConfig::from_url(url).expect_err(url), why, "{url}");
    }
    let long = format!("etcd://h/p?ca={}", "x".repeat(9_000));
    assert!(matches!(EtcdConfig::from_url(&long), Err(UrlError::TooLong { .. })));
}

proptest! {
    #[test]
    fn a_refused_url_shows_nothing_of_the_password(
        before in "[a-z0-9:/@?&=%,]{0,12}",
        after in "[a-z0-9:/@?&=%,]{0,12}",
    ) {
        let secret = "Zq7Xk";
        let url = format!("etcd://{before}{secret}{after}");
        if let Err(error) = EtcdConfig::from_url(&url) {
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains(secret), "{}", shown);
        }
    }

    #[test]
    fn reading_an_url_is_total(url in "(etcd://)?\\PC{0,40}") {
        let _answer = EtcdConfig::from_url(&url);
    }
}

#[test]
fn an_address_is_not_shown() {
    let config = crate::GrpcConfig::new(["http://someone:secret@secret.host:1"]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("secret"), "{shown}");
}
