//! A URL names a store, or is refused with what to type instead and without showing it.

use std::path::Path;

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
fn memory_and_clusters_are_named_by_their_schemes() {
    assert!(matches!(parse("memory:"), Ok(StoreUrl::Memory)));
    let Ok(StoreUrl::Etcd(config)) = parse("etcd://one:1234,two/prefix/x") else { panic!() };
    assert_eq!(config.endpoints, ["one:1234", "two:2379"]);
    assert_eq!(config.namespace.path(), "prefix/x");
    let shared = ["memory:", "sqlite:x", "etcd://h/p"].map(|url| parse(url).unwrap().is_shared());
    assert_eq!(shared, [false, true, true]);
}

#[rstest]
#[case("", StoreUrlError::NoScheme)]
#[case("state.db", StoreUrlError::NoScheme)]
#[case("/var/lib/state.db", StoreUrlError::NoScheme)]
#[case("postgres://host/db", StoreUrlError::UnknownScheme)]
#[case("SQLITE:x", StoreUrlError::NoScheme)]
#[case("memory:x", StoreUrlError::MemoryPath)]
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
    let good = "etcd://canary:canary@host/prefix";
    let shown = format!("{:?}", parse(good).unwrap());
    assert!(!shown.contains("canary"), "{shown}");
    for bad in ["etcd://canary:canary@host/p?canary=1", "canary://canary", "sqlite:x?canary"] {
        let error = parse(bad).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}
