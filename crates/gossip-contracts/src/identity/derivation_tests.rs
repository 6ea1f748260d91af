//! Golden vectors. Each derivation is compared twice: with plain BLAKE3 over bytes assembled here
//! by hand, and with a literal computed outside this crate. The first documents the layout; the
//! second fails if both change together.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// Concatenates the parts of a hand-made input.
fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares a digest with hand-assembled derive-key input and with a literal.
fn check(digest: &[u8; 32], context: &str, input: &[u8], literal: &str) {
    assert_eq!(*digest, blake3::derive_key(context, input), "layout of {context}");
    assert_eq!(hex(digest), literal, "literal of {context}");
}

fn secret(byte: u8) -> SecretHash {
    SecretHash::derive(&TenantSecretKey::from_bytes([byte; 32]), &NormHash::from_digest([5; 32]))
}

#[test]
fn finding_id_golden() {
    let secret = secret(4);
    let id = FindingId::derive(&FindingIdInputs {
        tenant: TenantId::from_bytes([1; 32]),
        item: StableItemId::from_bytes([2; 32]),
        rule: RuleFingerprint::from_bytes([3; 32]),
        secret,
    });
    let input = bytes(&[&[1; 32], &[2; 32], &[3; 32], secret.as_bytes()]);
    assert_eq!(input.len(), 128);
    check(
        id.as_bytes(),
        "gossip/finding/v1",
        &input,
        "12e8c3e5cd07b7d18dffe74077605d477c7c0dc6a83f4d4a2e006fa7ece7ac40",
    );
}

#[test]
fn occurrence_id_golden() {
    let id = OccurrenceId::derive(&OccurrenceIdInputs {
        finding: FindingId::from_bytes([1; 32]),
        version: ObjectVersionId::from_bytes([2; 32]),
        offset: 0x0102,
        length: u64::MAX - 1,
    });
    let input = bytes(&[
        &[1; 32],
        &[2; 32],
        &[0x02, 0x01, 0, 0, 0, 0, 0, 0],
        &[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
    ]);
    assert_eq!(input.len(), 80);
    check(
        id.as_bytes(),
        "gossip/occurrence/v1",
        &input,
        "e10fcd74ad79e91ad095a029a919716636caac9ad903c5a975f6ca87cd8f6a8d",
    );
}

#[test]
fn observation_id_golden() {
    let id = ObservationId::derive(&ObservationIdInputs {
        tenant: TenantId::from_bytes([1; 32]),
        policy: PolicyHash::from_bytes([2; 32]),
        occurrence: OccurrenceId::from_bytes([3; 32]),
    });
    let input = bytes(&[&[1; 32], &[2; 32], &[3; 32]]);
    check(
        id.as_bytes(),
        "gossip/observation/v1",
        &input,
        "80b67e6d2d7a34e225e5083a7e91319e0d2550b327da118016becb74f3f3d526",
    );
}

#[test]
fn object_version_id_golden() {
    let id = ObjectVersionId::from_version(b"etag-1");
    check(
        id.as_bytes(),
        "gossip/object-version/v1",
        b"\x06\0\0\0etag-1",
        "e90f011f07ccff49c876bac6fa642daa67a610d1c53398aafd0134478b3da517",
    );
}

#[test]
fn connector_instance_golden() {
    let hash = ConnectorInstanceIdHash::from_instance_id(b"host-a");
    let context = "gossip/connector-instance-id/v1";
    check(
        hash.as_bytes(),
        context,
        b"\x06\0\0\0host-a",
        "15bdd09011d501d105b8b4c61bd994524b42d489f94298864ae1c90a4b9d5045",
    );
    let empty = ConnectorInstanceIdHash::from_instance_id(b"");
    assert_eq!(*empty.as_bytes(), blake3::derive_key(context, b"\0\0\0\0"));
}

#[test]
fn stable_item_id_golden() {
    let instance = ConnectorInstanceIdHash::from_bytes([7; 32]);
    let key = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, instance, b"a/b.txt");
    let input = bytes(&[b"fslocal\0", &[7; 32], b"\x07\0\0\0a/b.txt"]);
    check(
        StableItemId::derive(&key).as_bytes(),
        "gossip/item-id/v1",
        &input,
        "fb8c172cf739fce4f1ca3f38284b1ef0c9c03808b3d0d0b67405d726ba9c8443",
    );
}

#[test]
fn policy_hash_golden() {
    let inputs = PolicyHashInputs::current(IdHashMode::KeyedV1, [9; 32]);
    let input = bytes(&[&[1, 0, 0, 0], &[1], &[1, 0, 0, 0], &[9; 32]]);
    assert_eq!(input.len(), 41);
    check(
        PolicyHash::derive(&inputs).as_bytes(),
        "gossip/policy-hash/v2",
        &input,
        "95e6532b98cbc2a15376adc6fc653813aae9d4d2524630fa179f39992ff308f9",
    );
    let unkeyed = PolicyHashInputs {
        version: 2,
        id_hash_mode: IdHashMode::Unkeyed,
        evidence_version: 3,
        ..inputs
    };
    let input = bytes(&[&[2, 0, 0, 0], &[0], &[3, 0, 0, 0], &[9; 32]]);
    let expected = blake3::derive_key("gossip/policy-hash/v2", &input);
    assert_eq!(*PolicyHash::derive(&unkeyed).as_bytes(), expected);
}

#[test]
fn secret_hash_golden() {
    let input = bytes(&[b"gossip/secret-hash/v1", &[5; 32]]);
    let hash = secret(4);
    assert_eq!(hash.as_bytes(), blake3::keyed_hash(&[4; 32], &input).as_bytes());
    assert_eq!(
        hex(hash.as_bytes()),
        "ae5091a0b46cca28096424386bd00d3e32f9aa6845d9402b6a11d6e925fe7d00"
    );
}

/// The coordination crate derives this id; the registry and the hasher must produce exactly this
/// value.
#[test]
fn split_shard_id_golden() {
    let mut hasher = CanonicalHasher::for_domain(Domain::SPLIT_ID_V1);
    RunId::from_raw(1).write_canonical(&mut hasher);
    ShardId::from_raw(2).write_canonical(&mut hasher);
    OpId::from_raw(3).write_canonical(&mut hasher);
    hasher.write_u8(1);
    hasher.write_u32(4);
    let shard = ShardId::from_raw(hasher.finalize_64() | ShardId::DERIVED_BIT);

    let mut input = [0; 29];
    (input[0], input[8], input[16], input[24], input[25]) = (1, 2, 3, 1, 4);
    let output = blake3::derive_key("gossip/coord/v1/split-id", &input);
    let expected = u64::from_le_bytes(output[..8].try_into().unwrap()) | 1 << 63;
    assert_eq!(shard.as_raw(), expected);
    assert_eq!(format!("{:016x}", shard.as_raw()), "ef7c9ddf8f0cab83");
    assert!(shard.is_derived());
}

/// The payload hash of a checkpoint at key `k1` without a token, as the coordination crate computes
/// it.
#[test]
fn op_payload_golden() {
    let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
    hasher.write_raw(b"checkpoint");
    hasher.write_u8(1);
    hasher.write_bytes_prefixed(b"k1");
    hasher.write_u8(0);
    let hash = hasher.finalize_64();

    let input = b"checkpoint\x01\x02\0\0\0k1\0";
    let output = blake3::derive_key("gossip/coord/v1/op-payload", input);
    assert_eq!(hash.to_le_bytes(), output[..8]);
    assert_eq!(format!("{hash:016x}"), "1e4abf4541fa302f");
}

#[rstest]
#[case(0, Some(IdHashMode::Unkeyed))]
#[case(1, Some(IdHashMode::KeyedV1))]
#[case(2, None)]
#[case(255, None)]
fn id_hash_modes_have_fixed_numbers(#[case] number: u8, #[case] mode: Option<IdHashMode>) {
    assert_eq!(IdHashMode::from_u8(number), mode);
    assert!(mode.is_none_or(|mode| mode.as_u8() == number));
}

/// Yields one of a few 32-byte values, so that random inputs collide often.
fn a_digest() -> impl Strategy<Value = [u8; 32]> {
    (0_u8..3, 0_usize..2).prop_map(|(byte, at)| {
        let mut bytes = [0; 32];
        bytes[at * 31] = byte;
        bytes
    })
}

prop_compose! {
    fn finding_inputs()(
        tenant in a_digest(), item in a_digest(), rule in a_digest(), key in 0_u8..2,
    ) -> FindingIdInputs {
        FindingIdInputs {
            tenant: TenantId::from_bytes(tenant),
            item: StableItemId::from_bytes(item),
            rule: RuleFingerprint::from_bytes(rule),
            secret: secret(key),
        }
    }
}

prop_compose! {
    fn occurrence_inputs()(
        finding in a_digest(), version in a_digest(), offset in 0_u64..3, length in 0_u64..3,
    ) -> OccurrenceIdInputs {
        OccurrenceIdInputs {
            finding: FindingId::from_bytes(finding),
            version: ObjectVersionId::from_bytes(version),
            offset,
            length,
        }
    }
}

prop_compose! {
    fn observation_inputs()(
        tenant in a_digest(), policy in a_digest(), occurrence in a_digest(),
    ) -> ObservationIdInputs {
        ObservationIdInputs {
            tenant: TenantId::from_bytes(tenant),
            policy: PolicyHash::from_bytes(policy),
            occurrence: OccurrenceId::from_bytes(occurrence),
        }
    }
}

prop_compose! {
    fn policy_inputs()(
        version in 0_u32..2, keyed: bool, evidence_version in 0_u32..2, rules_digest in a_digest(),
    ) -> PolicyHashInputs {
        let id_hash_mode = if keyed { IdHashMode::KeyedV1 } else { IdHashMode::Unkeyed };
        PolicyHashInputs { version, id_hash_mode, evidence_version, rules_digest }
    }
}

proptest! {
    #[test]
    fn finding_ids_are_injective(a in finding_inputs(), b in finding_inputs()) {
        prop_assert_eq!(FindingId::derive(&a) == FindingId::derive(&b), a == b);
    }

    #[test]
    fn occurrence_ids_are_injective(a in occurrence_inputs(), b in occurrence_inputs()) {
        prop_assert_eq!(OccurrenceId::derive(&a) == OccurrenceId::derive(&b), a == b);
    }

    #[test]
    fn observation_ids_are_injective(a in observation_inputs(), b in observation_inputs()) {
        prop_assert_eq!(ObservationId::derive(&a) == ObservationId::derive(&b), a == b);
    }

    #[test]
    fn policy_hashes_are_injective(a in policy_inputs(), b in policy_inputs()) {
        prop_assert_eq!(PolicyHash::derive(&a) == PolicyHash::derive(&b), a == b);
    }

    /// Equal bytes hash to different digests in two domains.
    #[test]
    fn domains_separate_equal_inputs(input in prop::collection::vec(any::<u8>(), 0..100)) {
        let digests = Domain::ALL.map(|domain| domain.digest(input.as_slice()));
        for (index, digest) in digests.iter().enumerate() {
            prop_assert!(!digests[..index].contains(digest));
        }
    }
}
