//! A URL names a store, or is refused without showing it.

use std::path::PathBuf;
use std::time::Duration;

use gossip_coordination::store::SettingError;

use crate::config::{ConfigError, PostgresConfig, PostgresTls};
use crate::url::UrlError;

fn parse(rest: &str) -> Result<PostgresConfig, UrlError> {
    PostgresConfig::from_url(&format!("postgres://{rest}"))
}

#[test]
fn every_setting_is_read() {
    let config = parse(
        "us%40er@db.example:6432/wo%2Frk?schema=team_1&password_file=/run/pw&ca=/ca.pem&cert=/c.pem\
         &key=/k.pem&server_name=db&pooler=transaction&connect_timeout=1s&request_timeout=2s\
         &claim_cooldown=250ms&max_children_per_op=8",
    )
    .unwrap();
    let place = (&*config.host, config.port, &*config.user, &*config.database, &*config.schema);
    assert_eq!(place, ("db.example", 6432, "us@er", "wo/rk", "team_1"));
    assert_eq!(config.password_file, Some(PathBuf::from("/run/pw")));
    assert!(config.is_pooled);
    let times = [config.connect_timeout, config.request_timeout, config.claim_cooldown];
    assert_eq!(times, [1_000, 2_000, 250].map(Duration::from_millis));
    assert_eq!(config.max_children_per_op, 8);
    let PostgresTls::Verified(files) = config.tls else { panic!("no TLS") };
    assert_eq!(files.ca_file, PathBuf::from("/ca.pem"));
    assert_eq!(files.identity, Some(("/c.pem".into(), "/k.pem".into())));
    assert_eq!(files.server_name.as_deref(), Some("db"));
}

#[test]
fn clear_text_is_for_this_machine_or_asked_for() {
    for host in ["localhost", "127.0.0.1", "127.8.8.8:5433", "[::1]", "[::1]:5433"] {
        assert!(parse(&format!("u@{host}/d")).is_ok(), "{host}");
    }
    for host in ["db.example", "10.0.0.1", "[fe80::1]", "localhost.example"] {
        let refused = Err(UrlError::Config(ConfigError::NoTls));
        assert_eq!(parse(&format!("u@{host}/d")).map(|_| ()), refused, "{host}");
        assert!(parse(&format!("u@{host}/d?tls=off")).is_ok(), "{host}");
        assert!(parse(&format!("u@{host}/d?ca=x")).is_ok(), "{host}");
    }
}

#[test]
fn a_wrong_url_is_refused_and_not_shown() {
    let cases = [
        ("canary", UrlError::Place),
        ("canary/d", UrlError::Place),
        ("localhost/canary", UrlError::Place),
        ("u:canary@localhost/d", UrlError::Password),
        ("u@localhost:canary/d", UrlError::Place),
        ("u@localhost:0/d", UrlError::Config(ConfigError::Host)),
        ("u@/d", UrlError::Config(ConfigError::Host)),
        ("u@can ary/d", UrlError::Config(ConfigError::Host)),
        ("@localhost/d", UrlError::Config(ConfigError::Name { name: "user" })),
        ("u@localhost/", UrlError::Config(ConfigError::Name { name: "database" })),
        ("u@localhost/%canary", UrlError::Place),
        ("u@localhost/d?canary", SettingError::Pair { index: 0 }.into()),
        ("u@localhost/d?canary=1", SettingError::Unknown { index: 0 }.into()),
        ("u@localhost/d?schema=a&schema=canary", SettingError::SetTwice { name: "schema" }.into()),
        ("u@localhost/d?schema=Canary", UrlError::Config(ConfigError::Schema)),
        ("u@localhost/d?schema=1canary", UrlError::Config(ConfigError::Schema)),
        ("u@localhost/d?schema=pg_canary", UrlError::Config(ConfigError::Schema)),
        ("u@localhost/d?schema=a\";canary", UrlError::Config(ConfigError::Schema)),
        ("u@localhost/d?cert=canary", SettingError::HalfIdentity.into()),
        ("u@localhost/d?cert=canary&key=k", SettingError::NoAuthorities.into()),
        ("u@localhost/d?ca=canary&tls=off", SettingError::Contradiction.into()),
        ("u@localhost/d?tls=canary", SettingError::Value { name: "tls", expected: "off" }.into()),
        (
            "u@localhost/d?pooler=canary",
            SettingError::Value { name: "pooler", expected: "transaction" }.into(),
        ),
        (
            "u@localhost/d?request_timeout=1ms",
            UrlError::Config(ConfigError::Timeout { name: "request_timeout" }),
        ),
        ("u@localhost/d?max_children_per_op=1", UrlError::Config(ConfigError::Children)),
        ("u@localhost/d?claim_cooldown=61m", UrlError::Config(ConfigError::ClaimCooldown)),
    ];
    for (rest, expected) in cases {
        let error = parse(rest).unwrap_err();
        assert_eq!(error, expected, "{rest}");
        assert!(!format!("{error} {error:?}").to_lowercase().contains("canary"), "{error:?}");
    }
    assert_eq!(PostgresConfig::from_url("postgresql://u@h/d").unwrap_err(), UrlError::Scheme);
    let long = format!("postgres://{}", "x".repeat(9_000));
    assert!(matches!(PostgresConfig::from_url(&long), Err(UrlError::TooLong { .. })));
}

#[test]
fn debug_shows_no_user_and_no_password() {
    let mut config = parse("canary@localhost/canary?password_file=canary").unwrap();
    config.environment.password = Some("canary".to_owned());
    config.environment.password_file = Some("canary".into());
    let shown = format!("{config:?} {:?}", config.environment);
    assert!(!shown.contains("canary"), "{shown}");
}
