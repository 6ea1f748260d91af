//! Keys of one namespace come back, and never get into another's ranges.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{ClaimSpot, Key, KeyRange};
use proptest::prelude::*;

use crate::keyspace::{KeySpan, NAMESPACE_LEN_MAX, Namespace, NamespaceError};

fn namespace(path: &str) -> Namespace {
    Namespace::new(path).expect("a plain path")
}

fn holds(span: &KeySpan, key: &[u8]) -> bool {
    span.start.as_slice() <= key && key < span.end.as_slice()
}

#[test]
fn a_path_is_framed_by_one_slash_and_two() {
    let expected = b"/team/prod//";
    assert_eq!(namespace("team/prod").prefix(), expected);
    assert_eq!(namespace("/team/prod/").prefix(), expected);
    assert_eq!(namespace("team/prod").path(), "team/prod");
    assert_eq!(namespace("a").key(&Key::SchemaVersion), b"/a//op/schema");
}

/// The store layer checks `docs/storage-format.md` against its code; this checks the etcd section.
#[test]
fn keys_are_what_the_document_says() {
    let document = include_str!("../../../docs/storage-format.md");
    let (_, section) = document.split_once("\n## In etcd\n").expect("a section");
    let section = section.split("\n## ").next().expect("its text");
    let namespace = namespace("team/prod");
    let key = namespace.key(&Key::SchemaVersion);
    for said in [
        format!("is `{}`.", String::from_utf8_lossy(&key)),
        format!("may use `{}` sees", String::from_utf8_lossy(namespace.prefix())),
        format!("at most {NAMESPACE_LEN_MAX} bytes long"),
    ] {
        assert!(section.contains(&said), "{said}");
    }
}

#[test]
fn paths_that_are_none_are_refused() {
    let long = "x".repeat(NAMESPACE_LEN_MAX + 1);
    let too_long = NamespaceError::TooLong { len: long.len(), max: NAMESPACE_LEN_MAX };
    for (path, why) in [
        ("", NamespaceError::Empty),
        ("///", NamespaceError::Empty),
        ("a//b", NamespaceError::EmptyPart),
        ("a b", NamespaceError::Character { at: 1 }),
        ("caf\u{e9}", NamespaceError::Character { at: 3 }),
        (&long, too_long),
    ] {
        assert_eq!(Namespace::new(path), Err(why), "a path of {} bytes", path.len());
    }
    assert!(Namespace::new(&long[1..]).is_ok());
}

#[test]
fn a_key_of_another_namespace_is_corruption() {
    let ours = namespace("a");
    for bytes in [b"/b//op/schema".as_slice(), b"/a//op/schema2", b"", b"/a/op/schema"] {
        assert!(ours.parse(bytes).is_err(), "{} bytes", bytes.len());
    }
}

#[test]
fn a_range_the_wrong_way_round_is_no_span() {
    let (tenant, run) = (TenantId::from_bytes([7; 32]), RunId::from_raw(1));
    let spot = |ticks| ClaimSpot::first_at(LogicalTime::from_raw(ticks));
    let range = KeyRange::claims_within(tenant, run, spot(9)..=spot(3));
    assert_eq!(namespace("a").span(&range), None);
}

#[test]
fn nothing_shows_a_path() {
    let shown = format!("{:?}", namespace("acme/payroll"));
    assert_eq!(shown, "Namespace(<12 bytes>)");
    assert_eq!(format!("{:?}", namespace("acme").everything()), "KeySpan(<7 bytes>..<7 bytes>)");
}

/// Parts that are easily confused: short, and names that the store layer uses.
fn any_path() -> impl Strategy<Value = String> {
    let part =
        prop_oneof!["[ab0/._-]{1,2}", "run|hot|cold|claim|count|schema|t|op", "[a-z0-9]{1,8}"];
    prop::collection::vec(part, 1..4)
        .prop_map(|parts| parts.join("/"))
        .prop_filter("a path", |path| Namespace::new(path).is_ok())
}

fn any_key() -> impl Strategy<Value = Key> {
    let number = prop_oneof![0_u64..3, any::<u64>()];
    (0_u8..13, any::<[u8; 32]>(), number.clone(), number.clone(), number).prop_map(
        |(kind, tenant, one, two, three)| {
            let (tenant, run) = (TenantId::from_bytes(tenant), RunId::from_raw(one));
            let shard = ShardKey::new(run, ShardId::from_raw(two));
            match kind {
                0 => Key::RunHead { tenant, run },
                1 => Key::RunRoots { tenant, run, chunk: 3 },
                2 => Key::ShardHot { tenant, shard },
                3 => Key::ShardCold { tenant, shard },
                4 => Key::Owner { tenant, shard },
                5 => Key::ClaimIndex { tenant, shard, at: LogicalTime::from_raw(three) },
                6 => Key::ParkedIndex { tenant, shard },
                7 => Key::TenantCounter { tenant },
                8 => Key::Worker { tenant, worker: WorkerId::from_raw(two) },
                9 => Key::Tombstone { tenant, run },
                10 => Key::Allotment { tenant },
                _ => Key::SchemaVersion,
            }
        },
    )
}

/// The ranges that access rules are written for.
fn whole_ranges(key: &Key) -> [KeyRange; 5] {
    let tenant = key.tenant().unwrap_or(TenantId::from_bytes([0; 32]));
    [
        KeyRange::all_tenants(),
        KeyRange::tenant(tenant),
        KeyRange::operator(),
        KeyRange::runs_of(tenant),
        KeyRange::all_hot_shards_of(tenant),
    ]
}

proptest! {
    #[test]
    fn a_key_comes_back_from_its_bytes(path in any_path(), key in any_key()) {
        let namespace = namespace(&path);
        let bytes = namespace.key(&key);
        prop_assert_eq!(namespace.parse(&bytes), Ok(key));
        prop_assert!(holds(&namespace.everything(), &bytes));
    }

    #[test]
    fn no_key_lies_in_a_range_of_another_namespace(
        one in any_path(),
        other in any_path(),
        key in any_key(),
    ) {
        let (one, other) = (namespace(&one), namespace(&other));
        prop_assume!(one != other);
        let bytes = one.key(&key);
        prop_assert!(!holds(&other.everything(), &bytes));
        prop_assert!(other.parse(&bytes).is_err());
        for range in whole_ranges(&key) {
            let span = other.span(&range).expect("a range of some width");
            prop_assert!(!holds(&span, &bytes));
        }
    }

    #[test]
    fn a_span_holds_exactly_the_keys_of_its_range(path in any_path(), key in any_key()) {
        let namespace = namespace(&path);
        for range in whole_ranges(&key) {
            let span = namespace.span(&range).expect("a range of some width");
            let inside = range.contains(key.to_bytes().as_bytes());
            prop_assert_eq!(holds(&span, &namespace.key(&key)), inside);
        }
    }

    #[test]
    fn parsing_is_total(path in any_path(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let namespace = namespace(&path);
        if let Ok(key) = namespace.parse(&bytes) {
            prop_assert_eq!(namespace.key(&key), bytes);
        }
    }
}
