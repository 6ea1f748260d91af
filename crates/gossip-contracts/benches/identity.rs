//! Cost of identity hashing compared with the minimum cost of BLAKE3.
//!
//! Compare within one run only: `bare keyed blocks` is BLAKE3 alone, over one contiguous buffer of
//! as many blocks as the rows below it need.

#[path = "support/payload.rs"]
mod payload;

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use gossip_contracts::identity::{
    CanonicalHasher, ConnectorInstanceIdHash, ConnectorTag, Domain, FindingId, FindingIdInputs,
    ItemIdentityKey, NormHash, RuleFingerprint, SecretHash, StableItemId, TenantId,
    TenantSecretKey,
};
use payload::{CASES, bare_blocks, payload, write_cursor};

/// Returns the payload hash, from a clone of a hasher that already contains domain and tag.
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

/// Returns the same hash from a naive implementation: clones a derive-key hasher and updates it
/// field by field.
#[inline(never)]
fn payload_streamed(key: &[u8]) -> u64 {
    static TAGGED: LazyLock<blake3::Hasher> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new_derive_key(Domain::OP_PAYLOAD_V1.as_str());
        hasher.update(b"checkpoint");
        hasher
    });
    let mut hasher = TAGGED.clone();
    hasher.update(&[1]).update(&(key.len() as u32).to_le_bytes()).update(key).update(&[0]);
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn payloads(c: &mut Criterion) {
    for (name, cursor, bare_len) in CASES {
        assert_eq!(payload(cursor), payload_streamed(cursor));
        assert_eq!(payload(cursor), payload_from_clone(cursor));
        let bare = vec![1; bare_len];
        let mut group = c.benchmark_group(name);
        group.bench_function("bare keyed blocks", |b| {
            b.iter(|| bare_blocks(black_box(&bare)));
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

criterion_group! {
    name = benches;
    // Short: differences of 10 % are visible, and a whole run takes about twenty seconds.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = payloads, derivations
}
criterion_main!(benches);
