//! What identity hashing costs beside the least that BLAKE3 could cost.
//!
//! Compare within one run only: `bare keyed blocks` is BLAKE3 alone, over one contiguous buffer of
//! as many blocks as the rows below it need.

use std::hint::black_box;
use std::sync::LazyLock;

use criterion::{Criterion, criterion_group, criterion_main};
use gossip_contracts::identity::{
    CanonicalHasher, ConnectorInstanceIdHash, ConnectorTag, Domain, FindingId, FindingIdInputs,
    ItemIdentityKey, NormHash, RuleFingerprint, SecretHash, StableItemId, TenantId,
    TenantSecretKey,
};

/// A cursor's key in the benchmarks; with tag and lengths its payload takes two blocks.
const LONG_KEY: [u8; 64] = [b'k'; 64];
/// A key whose payload fits one block.
const SHORT_KEY: [u8; 40] = [b'k'; 40];

fn write_cursor(hasher: &mut CanonicalHasher, key: &[u8]) {
    hasher.write_u8(1);
    hasher.write_bytes_prefixed(key);
    hasher.write_u8(0);
}

/// The payload hash of a checkpoint, as the coordination crate computes it.
#[inline(never)]
fn payload(key: &[u8]) -> u64 {
    let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
    hasher.write_raw(b"checkpoint");
    write_cursor(&mut hasher, key);
    hasher.finalize_64()
}

/// The same from a hasher that has seen domain and tag already.
#[inline(never)]
fn payload_from_clone(key: &[u8]) -> u64 {
    static TAGGED: LazyLock<CanonicalHasher> = LazyLock::new(|| {
        let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
        hasher.write_raw(b"checkpoint");
        hasher
    });
    let mut hasher = TAGGED.clone();
    write_cursor(&mut hasher, key);
    hasher.finalize_64()
}

/// The same as one would write it at first: clone a derive-key hasher, update it field by field.
#[inline(never)]
fn payload_streamed(key: &[u8]) -> u64 {
    static TAGGED: LazyLock<blake3::Hasher> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new_derive_key(Domain::OP_PAYLOAD_V1.as_str());
        hasher.update(b"checkpoint");
        hasher
    });
    let mut hasher = TAGGED.clone();
    hasher
        .update(&[1])
        .update(&(key.len() as u32).to_le_bytes())
        .update(key)
        .update(&[0]);
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn payloads(c: &mut Criterion) {
    let key = [7; 32];
    for (name, cursor, bare_len) in [
        (
            "payload of a 40-byte cursor (one block)",
            &SHORT_KEY[..],
            64,
        ),
        (
            "payload of a 64-byte cursor (two blocks)",
            &LONG_KEY[..],
            128,
        ),
    ] {
        assert_eq!(payload(cursor), payload_streamed(cursor));
        assert_eq!(payload(cursor), payload_from_clone(cursor));
        let bare = vec![1; bare_len];
        let mut group = c.benchmark_group(name);
        group.bench_function("bare keyed blocks", |b| {
            b.iter(|| blake3::keyed_hash(&key, black_box(&bare)));
        });
        group.bench_function("canonical hasher", |b| {
            b.iter(|| payload(black_box(cursor)));
        });
        group.bench_function("cloned canonical hasher", |b| {
            b.iter(|| payload_from_clone(black_box(cursor)));
        });
        group.bench_function("cloned blake3 hasher, update per field", |b| {
            b.iter(|| payload_streamed(black_box(cursor)));
        });
        group.finish();
    }
}

fn derivations(c: &mut Criterion) {
    let tenant_key = TenantSecretKey::from_bytes([1; 32]);
    let norm = NormHash::from_digest([2; 32]);
    let inputs = FindingIdInputs {
        tenant: TenantId::from_bytes([3; 32]),
        item: StableItemId::from_bytes([4; 32]),
        rule: RuleFingerprint::from_bytes([5; 32]),
        secret: SecretHash::derive(&tenant_key, &norm),
    };
    let instance = ConnectorInstanceIdHash::from_bytes([6; 32]);
    let item = ItemIdentityKey::new(ConnectorTag::FS_LOCAL, instance, b"src/identity/mod.rs");
    let mut group = c.benchmark_group("derivations");
    group.bench_function("secret hash", |b| {
        b.iter(|| SecretHash::derive(black_box(&tenant_key), black_box(&norm)));
    });
    group.bench_function("finding id", |b| {
        b.iter(|| FindingId::derive(black_box(&inputs)));
    });
    group.bench_function("item id", |b| {
        b.iter(|| StableItemId::derive(black_box(&item)));
    });
    group.finish();
}

criterion_group!(benches, payloads, derivations);
criterion_main!(benches);
