use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use proptest::prelude::*;

use super::scatter::scatter;
use super::{ClaimSpot, KEY_LEN_MAX, Key, KeyBytes, KeyKind, KeyRange};
use crate::handoff::HandoffId;

/// Numbers that collide often and reach both ends.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..4, any::<u64>(), (u64::MAX - 3)..=u64::MAX]
}

fn tenant() -> impl Strategy<Value = TenantId> {
    prop_oneof![
        (0_u8..3).prop_map(|byte| TenantId::from_bytes([byte; 32])),
        any::<[u8; 32]>().prop_map(TenantId::from_bytes),
        Just(TenantId::from_bytes([0xFF; 32])),
    ]
}

fn shard_key() -> impl Strategy<Value = ShardKey> {
    (number(), number())
        .prop_map(|(run, shard)| ShardKey::new(RunId::from_raw(run), ShardId::from_raw(shard)))
}

fn key_of(kind: KeyKind, tenant: TenantId, shard: ShardKey, number: u64) -> Key {
    let run = shard.run();
    match kind {
        KeyKind::RunHead => Key::RunHead { tenant, run },
        KeyKind::RunRoots => Key::RunRoots { tenant, run, chunk: number as u16 },
        KeyKind::ShardHot => Key::ShardHot { tenant, shard },
        KeyKind::ShardCold => Key::ShardCold { tenant, shard },
        KeyKind::Owner => Key::Owner { tenant, shard },
        KeyKind::ClaimIndex => Key::ClaimIndex { tenant, shard, at: LogicalTime::from_raw(number) },
        KeyKind::ParkedIndex => Key::ParkedIndex { tenant, shard },
        KeyKind::TenantCounter => Key::TenantCounter { tenant },
        KeyKind::Allotment => Key::Allotment { tenant },
        KeyKind::Worker => Key::Worker { tenant, worker: WorkerId::from_raw(number) },
        KeyKind::Handoff => Key::Handoff { tenant, handoff: HandoffId::from_raw(number) },
        KeyKind::Tombstone => Key::Tombstone { tenant, run },
        KeyKind::HandoffIndex => {
            Key::HandoffIndex { tenant, party: run.as_raw(), handoff: HandoffId::from_raw(number) }
        }
        KeyKind::FenceFloor => Key::FenceFloor { tenant, run },
        KeyKind::Failure => Key::Failure { tenant, shard, number },
        KeyKind::Event => {
            Key::Event { tenant, run, writer: shard.shard().as_raw(), slot: number as u16 }
        }
        KeyKind::KeyLedger => Key::KeyLedger { tenant, shard, block: number },
        KeyKind::ResultBlock => Key::ResultBlock { tenant, shard, block: number },
        KeyKind::Budget => Key::Budget { tenant, run, number: number as u16 },
        KeyKind::TenantEntry => Key::TenantEntry { tenant },
        KeyKind::SchemaVersion => Key::SchemaVersion,
    }
}

fn kind() -> impl Strategy<Value = KeyKind> {
    prop::sample::select(KeyKind::ALL.as_slice())
}

fn key() -> impl Strategy<Value = Key> {
    (kind(), tenant(), shard_key(), number())
        .prop_map(|(kind, tenant, shard, number)| key_of(kind, tenant, shard, number))
}

/// What a key sorts by within its kind: tenant, then its numbers in the order of the path.
fn sort_key(key: &Key) -> ([u8; 32], [u64; 3]) {
    let shard_numbers = |shard: &ShardKey| [shard.run().as_raw(), shard.shard().as_raw(), 0];
    match key {
        Key::RunHead { tenant, run }
        | Key::Tombstone { tenant, run }
        | Key::FenceFloor { tenant, run } => (*tenant.as_bytes(), [run.as_raw(), 0, 0]),
        Key::RunRoots { tenant, run, chunk: small }
        | Key::Budget { tenant, run, number: small } => {
            (*tenant.as_bytes(), [run.as_raw(), u64::from(*small), 0])
        }
        Key::ShardHot { tenant, shard }
        | Key::ShardCold { tenant, shard }
        | Key::Owner { tenant, shard }
        | Key::ParkedIndex { tenant, shard } => (*tenant.as_bytes(), shard_numbers(shard)),
        Key::ClaimIndex { tenant, shard, at } => {
            let numbers = [shard.run().as_raw(), at.as_raw(), scatter(shard.shard())];
            (*tenant.as_bytes(), numbers)
        }
        Key::TenantCounter { tenant } | Key::Allotment { tenant } | Key::TenantEntry { tenant } => {
            (*tenant.as_bytes(), [0; 3])
        }
        Key::SchemaVersion => ([0; 32], [0; 3]),
        Key::Event { tenant, run, writer, slot } => {
            (*tenant.as_bytes(), [run.as_raw(), *writer, u64::from(*slot)])
        }
        Key::Failure { tenant, shard, number: block }
        | Key::KeyLedger { tenant, shard, block }
        | Key::ResultBlock { tenant, shard, block } => {
            let [run, shard, _] = shard_numbers(shard);
            (*tenant.as_bytes(), [run, shard, *block])
        }
        Key::Worker { tenant, worker } => (*tenant.as_bytes(), [worker.as_raw(), 0, 0]),
        Key::Handoff { tenant, handoff } => (*tenant.as_bytes(), [handoff.as_raw(), 0, 0]),
        Key::HandoffIndex { tenant, party, handoff } => {
            (*tenant.as_bytes(), [*party, handoff.as_raw(), 0])
        }
    }
}

fn contains(range: &KeyRange, key: &Key) -> bool {
    range.contains(key.to_bytes().as_bytes())
}

proptest! {
    #[test]
    fn parsing_returns_the_written_key(key in key()) {
        prop_assert_eq!(Key::parse(key.to_bytes().as_bytes()), Ok(key));
    }

    #[test]
    fn whatever_parses_is_spelled_that_way(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
        match Key::parse(&bytes) {
            Ok(key) => prop_assert_eq!(key.to_bytes().as_bytes().to_vec(), bytes),
            Err(error) => prop_assert_eq!(error.len, bytes.len()),
        }
    }

    #[test]
    fn a_damaged_key_is_none_or_another(
        key in key(), at in any::<prop::sample::Index>(), byte: u8
    ) {
        let mut bytes = key.to_bytes().as_bytes().to_vec();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        if let Ok(other) = Key::parse(&bytes) {
            prop_assert_ne!(other, key);
            prop_assert_eq!(other.to_bytes().as_bytes().to_vec(), bytes);
        }
    }

    #[test]
    fn order_of_bytes_is_order_of_numbers(
        kind in kind(),
        a in (tenant(), shard_key(), number()),
        b in (tenant(), shard_key(), number()),
    ) {
        let [a, b] = [a, b].map(|(tenant, shard, number)| key_of(kind, tenant, shard, number));
        prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), sort_key(&a).cmp(&sort_key(&b)));
    }

    #[test]
    fn no_key_is_a_prefix_of_another(a in key(), b in key()) {
        let (a_bytes, b_bytes) = (a.to_bytes(), b.to_bytes());
        prop_assert!(a == b || !b_bytes.as_bytes().starts_with(a_bytes.as_bytes()));
        prop_assert!(a_bytes.as_bytes().len() <= KEY_LEN_MAX);
        prop_assert_eq!(a_bytes.as_bytes().len(), a.kind().key_len());
    }

    #[test]
    fn every_key_lies_below_its_tenant_or_the_operator(owner in tenant(), key in key()) {
        let is_operators = key.kind().is_of_operator();
        let mine = !is_operators && key.tenant() == Some(owner);
        prop_assert_eq!(contains(&KeyRange::tenant(owner), &key), mine);
        prop_assert_eq!(contains(&KeyRange::all_tenants(), &key), !is_operators);
        prop_assert_eq!(contains(&KeyRange::operator(), &key), is_operators);
    }

    #[test]
    fn the_prefix_of_a_tenant_is_spelled_as_access_rules_spell_it(key in key()) {
        let bytes = key.to_bytes();
        let prefix = match key.tenant().filter(|_| !key.kind().is_of_operator()) {
            Some(tenant) => {
                let digits = tenant.as_bytes().iter().map(|byte| format!("{byte:02x}"));
                format!("t/{}/{}", digits.collect::<String>(), key.kind().name())
            }
            None => format!("op/{}", key.kind().name()),
        };
        prop_assert!(bytes.as_bytes().starts_with(prefix.as_bytes()));
    }

    #[test]
    fn ranges_of_a_tenant_hold_exactly_its_keys(owner in tenant(), key in key()) {
        let mine = sort_key(&key).0 == *owner.as_bytes();
        for (range, kind) in [
            (KeyRange::runs_of(owner), KeyKind::RunHead),
            (KeyRange::workers_of(owner), KeyKind::Worker),
            (KeyRange::handoffs_of(owner), KeyKind::Handoff),
        ] {
            prop_assert_eq!(contains(&range, &key), mine && key.kind() == kind);
        }
    }

    #[test]
    fn ranges_of_a_run_hold_exactly_its_keys(owner in tenant(), run in number(), key in key()) {
        let (tenant, numbers) = sort_key(&key);
        let mine = tenant == *owner.as_bytes() && numbers[0] == run;
        let run = RunId::from_raw(run);
        for (range, kind) in [
            (KeyRange::roots_of(owner, run), KeyKind::RunRoots),
            (KeyRange::hot_shards_of(owner, run), KeyKind::ShardHot),
            (KeyRange::cold_shards_of(owner, run), KeyKind::ShardCold),
            (KeyRange::parked_of(owner, run), KeyKind::ParkedIndex),
            (KeyRange::claims_of(owner, run), KeyKind::ClaimIndex),
        ] {
            prop_assert_eq!(contains(&range, &key), mine && key.kind() == kind);
        }
    }

    #[test]
    fn claim_ranges_hold_exactly_their_times_and_places(
        (owner, other) in (tenant(), tenant()),
        (run, shard, at) in (0_u64..3, number(), number()),
        (from, until, places) in (number(), number(), [number(), number()]),
    ) {
        let index = ShardKey::new(RunId::from_raw(run), ShardId::from_raw(shard));
        let key = Key::ClaimIndex { tenant: other, shard: index, at: LogicalTime::from_raw(at) };
        let mine = owner == other && run == 1;
        let run = RunId::from_raw(1);
        let [early, late] = [from, until].map(LogicalTime::from_raw);
        let [first, last] = places.map(|place| ClaimSpot::new(early, place));
        let narrow = KeyRange::claims_within(owner, run, first..=last);
        let inside = (places[0]..=places[1]).contains(&scatter(index.shard()));
        prop_assert_eq!(contains(&narrow, &key), mine && at == from && inside);
        let [first, last] = [ClaimSpot::new(early, places[0]), ClaimSpot::new(late, places[1])];
        let wide = KeyRange::claims_within(owner, run, first..=last);
        let spot = ClaimSpot::new(LogicalTime::from_raw(at), scatter(index.shard()));
        prop_assert_eq!(contains(&wide, &key), mine && (first..=last).contains(&spot));
    }

    #[test]
    fn the_next_page_holds_what_lies_behind_the_last_key(
        owner in tenant(),
        [read, other] in [number(), number()],
    ) {
        let [read, other] = [read, other]
            .map(|run| Key::RunHead { tenant: owner, run: RunId::from_raw(run) });
        let rest = KeyRange::runs_of(owner).after(&read);
        prop_assert_eq!(contains(&rest, &other), sort_key(&other) > sort_key(&read));
    }
}

#[test]
fn numbers_of_kinds_are_read_back_and_no_others() {
    for number in 0..=u8::MAX {
        let kind = KeyKind::from_u8(number);
        assert_eq!(kind.is_some(), (1..=21).contains(&number));
        assert!(kind.is_none_or(|kind| kind as u8 == number));
    }
}

/// Whether the kind only has a number and a spelling, and no values yet.
pub(super) fn is_reserved(kind: KeyKind) -> bool {
    // Numbers never change, and the reserved kinds are among the last ones.
    let in_use = [KeyKind::Failure, KeyKind::Event, KeyKind::ResultBlock, KeyKind::SchemaVersion];
    kind as u8 >= KeyKind::FenceFloor as u8 && !in_use.contains(&kind)
}

#[test]
fn reserved_kinds_are_those_without_values() {
    let reserved = KeyKind::ALL.into_iter().filter(|kind| is_reserved(*kind));
    assert_eq!(
        reserved.map(KeyKind::name).collect::<Vec<_>>(),
        ["floor", "ledger", "budget", "tenant"]
    );
}

#[test]
fn kinds_below_the_wrong_prefix_are_no_keys() {
    let tenant = TenantId::from_bytes([7; 32]);
    let digits = "07".repeat(32);
    for misplaced in [
        format!("op/count/{digits}"),
        format!("op/run/{digits}/{:016x}", 1),
        format!("t/{digits}/allotment"),
        format!("t/{digits}/allotment/{digits}"),
        format!("t/{digits}/schema"),
        format!("count/{digits}"),
        "schema".to_owned(),
        format!("t/{digits}"),
        "op".to_owned(),
    ] {
        assert!(Key::parse(misplaced.as_bytes()).is_err(), "{misplaced}");
    }
    let allotment = format!("op/allotment/{digits}");
    assert_eq!(Key::parse(allotment.as_bytes()), Ok(Key::Allotment { tenant }));
    assert_eq!(Key::parse(b"op/schema"), Ok(Key::SchemaVersion));
}

#[test]
fn upper_case_digits_are_no_key() {
    let key = Key::TenantCounter { tenant: TenantId::from_bytes([0xAB; 32]) };
    let upper = key.to_bytes().as_bytes().to_ascii_uppercase();
    let mixed = [b"t/".as_slice(), &upper[2..66], b"/count"].concat();
    assert!(Key::parse(&mixed).is_err());
    assert_eq!(Key::parse(&mixed.to_ascii_lowercase()), Ok(key));
}

#[test]
fn debug_shows_neither_tenant_nor_bytes() {
    let key = Key::TenantCounter { tenant: TenantId::from_bytes([0xAB; 32]) };
    let shown = format!("{key:?} {:?}", KeyBytes::prefix_of(TenantId::from_bytes([0xAB; 32])));
    assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
}
