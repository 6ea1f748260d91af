//! Canonical hashing and every derivation allocate nothing, on the first call and later.

use std::hint::black_box;

use gossip_contracts::identity::{
    CanonicalBytes, CanonicalHasher, ConnectorInstanceIdHash, ConnectorTag, Domain, FenceEpoch,
    FindingId, FindingIdInputs, IdHashMode, ItemIdentityKey, LogicalTime, NormHash,
    ObjectVersionId, ObservationId, ObservationIdInputs, OccurrenceId, OccurrenceIdInputs,
    PolicyHash, PolicyHashInputs, RuleFingerprint, RunId, SecretHash, ShardId, ShardKey,
    StableItemId, TenantId, TenantSecretKey,
};
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Longer than any buffer or BLAKE3 chunk, so that the spill path runs too.
static LONG: [u8; 5000] = [b'k'; 5000];

fn assert_allocates_nothing<R>(what: &str, action: impl FnOnce() -> R) {
    let (result, counts) = count_allocations(action);
    black_box(result);
    assert_eq!((counts.allocations, counts.bytes), (0, 0), "{what}");
}

#[test]
fn the_counter_counts_allocations() {
    let (_, counts) = count_allocations(|| black_box(LONG.to_vec()));
    assert_eq!((counts.allocations, counts.bytes), (1, 5000));
}

#[test]
fn canonical_hashing_allocates_nothing() {
    for domain in Domain::ALL {
        for len in [0, 64, 256, 257, LONG.len()] {
            assert_allocates_nothing("bytes", || {
                let mut hasher = CanonicalHasher::for_domain(domain);
                hasher.write_raw(b"checkpoint");
                hasher.write_bytes_prefixed(&LONG[..len]);
                hasher.write_u32(1);
                (hasher.clone().finalize_64(), hasher.finalize_32())
            });
        }
    }
    let key = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2));
    assert_allocates_nothing("ids", || {
        let mut hasher = CanonicalHasher::for_domain(Domain::SPLIT_ID_V1);
        key.write_canonical(&mut hasher);
        FenceEpoch::INITIAL.write_canonical(&mut hasher);
        LogicalTime::ZERO.write_canonical(&mut hasher);
        hasher.finalize_64()
    });
}

#[test]
fn item_derivations_allocate_nothing() {
    for locator in [&LONG[..20], &LONG[..]] {
        assert_allocates_nothing("item", || {
            let instance = ConnectorInstanceIdHash::from_instance_id(locator);
            let key = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, instance, locator);
            (StableItemId::derive(&key), ObjectVersionId::from_version(locator))
        });
    }
    assert_allocates_nothing("refusals", || {
        (ConnectorTag::try_from_ascii(&LONG), ObjectVersionId::try_from_version(b""))
    });
}

#[test]
fn finding_derivations_allocate_nothing() {
    let key = TenantSecretKey::from_bytes([1; 32]);
    let tenant = TenantId::from_bytes([2; 32]);
    assert_allocates_nothing("findings", || {
        let secret = SecretHash::derive(&key, &NormHash::from_digest([3; 32]));
        let item = StableItemId::from_bytes([4; 32]);
        let rule = RuleFingerprint::from_bytes([5; 32]);
        let finding = FindingId::derive(&FindingIdInputs { tenant, item, rule, secret });
        let version = ObjectVersionId::from_bytes([6; 32]);
        let inputs = OccurrenceIdInputs { finding, version, offset: 7, length: 8 };
        let occurrence = OccurrenceId::derive(&inputs);
        let policy = PolicyHash::derive(&PolicyHashInputs::current(IdHashMode::KeyedV1, [9; 32]));
        ObservationId::derive(&ObservationIdInputs { tenant, policy, occurrence })
    });
}
