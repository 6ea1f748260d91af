//! A URL names a store, or is refused with what to type instead and without showing it.

use std::path::Path;
use std::time::Duration;

use gossip_coordination::store::SettingError;
use gossip_coordination_sqlite::SyncMode;
use rstest::rstest;

use super::*;

fn parse(url: &str) -> Result<StoreUrl, StoreUrlError> {
    url.parse()
}

#[rstest]
#[case("sqlite:state.db", "state.db", SyncMode::Full)]
#[case("sqlite:/var/lib/x/state", "/var/lib/x/state", SyncMode::Full)]
#[case("sqlite:///var/lib/x/state", "/var/lib/x/state", SyncMode::Full)]
#[case("sqlite:a b/ü", "a b/ü", SyncMode::Full)]
#[case("sqlite:x?sync=relaxed", "x", SyncMode::Relaxed)]
#[case("sqlite:x?sync=full", "x", SyncMode::Full)]
#[case("sqlite:what%3F?sync=relaxed", "what?", SyncMode::Relaxed)]
fn a_file_is_named_by_its_path(#[case] url: &str, #[case] file: &str, #[case] sync: SyncMode) {
    let Ok(StoreUrl::Sqlite { path, options }) = parse(url) else { panic!("{url}") };
    assert_eq!((path.as_path(), options.sync), (Path::new(file), sync));
}

#[test]
fn network_file_system_is_allowed_by_its_own_setting() {
    for (url, is_allowed) in
        [("sqlite:x", false), ("sqlite:x?sync=full&allow_network_file_system=yes", true)]
    {
        let Ok(StoreUrl::Sqlite { options, .. }) = parse(url) else { panic!("{url}") };
        assert_eq!(options.allow_network_file_system, is_allowed, "{url}");
    }
    for value in ["no", "", "yes&allow_network_file_system=yes"] {
        let url = format!("sqlite:x?allow_network_file_system={value}");
        assert!(matches!(parse(&url), Err(StoreUrlError::SqliteSetting)), "{url}");
    }
}

#[test]
fn memory_and_clusters_are_named_by_their_schemes() {
    assert!(matches!(parse("memory:"), Ok(StoreUrl::Memory { .. })));
    let Ok(StoreUrl::Etcd(config)) = parse("etcd://one:1234,two/prefix/x") else { panic!() };
    assert_eq!(config.endpoints, ["one:1234", "two:2379"]);
    assert_eq!(config.namespace.path(), "prefix/x");
    let Ok(StoreUrl::Postgres(config)) = parse("postgres://u@localhost/d") else { panic!() };
    assert_eq!((&*config.user, &*config.database, config.port), ("u", "d", 5432));
    let urls = ["memory:", "sqlite:x", "etcd://h/p", "postgres://u@localhost/d"];
    assert_eq!(urls.map(|url| parse(url).unwrap().is_shared()), [false, true, true, true]);
}

#[rstest]
#[case("memory:", 0)]
#[case("memory:?claim_cooldown=250ms", 250)]
#[case("sqlite:x", 0)]
#[case("sqlite:x?claim_cooldown=2s", 2_000)]
#[case("sqlite:x?sync=relaxed&claim_cooldown=60m", 3_600_000)]
#[case("etcd://h/p?claim_cooldown=250ms", 250)]
#[case("postgres://u@localhost/d?claim_cooldown=250ms", 250)]
fn every_store_has_a_claim_cooldown(#[case] url: &str, #[case] millis: u64) {
    let cooldown = match parse(url).unwrap() {
        StoreUrl::Memory { claim_cooldown } => claim_cooldown,
        StoreUrl::Sqlite { options, .. } => options.claim_cooldown,
        StoreUrl::Etcd(config) => config.claim_cooldown,
        StoreUrl::Postgres(config) => config.claim_cooldown,
    };
    assert_eq!(cooldown, Duration::from_millis(millis));
}

#[rstest]
#[case("", StoreUrlError::NoScheme)]
#[case("state.db", StoreUrlError::NoScheme)]
#[case("/var/lib/state.db", StoreUrlError::NoScheme)]
#[case("mysql://host/db", StoreUrlError::UnknownScheme)]
#[case("postgres://u@h/d?x=1", StoreUrlError::Postgres(SettingError::Unknown { index: 0 }.into()))]
#[case("SQLITE:x", StoreUrlError::NoScheme)]
#[case("memory:x", StoreUrlError::MemoryPath)]
#[case("memory:?", StoreUrlError::MemorySetting)]
#[case("memory:?sync=full", StoreUrlError::MemorySetting)]
#[case("memory:?claim_cooldown=1s&claim_cooldown=1s", StoreUrlError::MemorySetting)]
#[case("memory:?claim_cooldown=1", StoreUrlError::ClaimCooldown)]
#[case("memory:?claim_cooldown=+1s", StoreUrlError::ClaimCooldown)]
#[case("sqlite:x?claim_cooldown=61m", StoreUrlError::ClaimCooldown)]
#[case("sqlite:x?claim_cooldown=1s&claim_cooldown=1s", StoreUrlError::SqliteSetting)]
#[case("sqlite:x?sync=full&sync=full", StoreUrlError::SqliteSetting)]
#[case("etcd:host", StoreUrlError::EtcdSlashes)]
#[case("sqlite:", StoreUrlError::NoPath)]
#[case("sqlite:?sync=full", StoreUrlError::NoPath)]
#[case("sqlite://state.db", StoreUrlError::SqliteSlashes)]
#[case("sqlite://var/lib/state.db?sync=full", StoreUrlError::SqliteSlashes)]
#[case("sqlite:x?sync=off", StoreUrlError::SqliteSetting)]
#[case("sqlite:x?", StoreUrlError::SqliteSetting)]
fn what_names_no_store_is_refused(#[case] url: &str, #[case] expected: StoreUrlError) {
    assert_eq!(parse(url).unwrap_err(), expected);
}

#[test]
fn no_error_and_no_debug_shows_a_password() {
    let good = "etcd://canary@host/prefix?tls=off";
    let url = parse(good).unwrap().with_etcd_password(Some("canary".to_owned()));
    let shown = format!("{url:?}");
    assert!(!shown.contains("canary"), "{shown}");
    let good = "postgres://canary@localhost/canary?password_file=canary";
    let shown = format!("{:?}", parse(good).unwrap());
    assert!(!shown.contains("canary"), "{shown}");
    let bad_postgres = "postgres://canary:canary@localhost/canary";
    let bad_etcd = "etcd://canary:canary@host/p?canary=1";
    let etcd_password = "etcd://canary:canary@127.0.0.1/canary";
    for bad in [bad_etcd, etcd_password, bad_postgres, "canary://canary", "sqlite:x?canary"] {
        let error = parse(bad).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}
