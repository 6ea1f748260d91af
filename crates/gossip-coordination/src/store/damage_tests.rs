//! Damage is noticed: every flipped bit, every cut, every record under another key, and everything
//! that a checksum lets through but a record must not say.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use proptest::prelude::*;
use rstest::rstest;

use super::codec::{self, FORMAT_VERSION};
use super::key::{Key, KeyKind};
use super::samples::{Sample, decode, sample_of, samples};
use crate::handoff::HandoffId;
use crate::test_fixtures::{TENANT, key};
use crate::{InfraError, StoreRefusal};

/// What a refusal says; anything but corruption is a bug.
fn message(result: Result<(), InfraError>) -> String {
    match result {
        Err(InfraError::Corruption { message, .. }) => message,
        // What a flipped bit in the version makes of it; a newer version may frame differently.
        Err(InfraError::Refused { why: StoreRefusal::NewerFormat, message, .. }) => message,
        other => panic!("corruption is expected, not {other:?}"),
    }
}

fn refusal(sample: &Sample, value: &[u8]) -> String {
    message(decode(&sample.key, value, sample.partner.as_deref()))
}

#[test]
fn every_flipped_bit_is_detected() {
    for sample in samples() {
        let mut value = sample.value.clone();
        for bit in 0..value.len() * 8 {
            value[bit / 8] ^= 1 << (bit % 8);
            refusal(sample, &value);
            value[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(value, sample.value);
    }
}

#[test]
fn every_truncation_is_detected() {
    for sample in samples() {
        for len in 0..sample.value.len() {
            refusal(sample, &sample.value[..len]);
        }
    }
}

#[test]
fn every_byte_too_many_is_detected() {
    for sample in samples() {
        for byte in [0, 1, 0xFF] {
            refusal(sample, &[&sample.value[..], &[byte]].concat());
            let kind = sample.key.kind();
            if !is_opaque(kind) {
                let longer = codec::reseal(&sample.key, &[sample.payload(), &[byte]].concat());
                assert_eq!(refusal(sample, &longer), "1 bytes behind the last field", "{kind:?}");
            }
        }
    }
}

/// Whether the payload of the kind is opaque: only the frame says where it ends.
const fn is_opaque(kind: KeyKind) -> bool {
    matches!(kind, KeyKind::Handoff | KeyKind::ResultBlock)
}

/// The keys beside `key`: the same kind, one part different.
fn neighbours(key: &Key) -> Vec<Key> {
    let other = TenantId::from_bytes([8; 32]);
    let next_run = |run: RunId| RunId::from_raw(run.as_raw() + 1);
    let next = |shard: ShardKey| {
        let id = ShardId::from_raw(shard.shard().as_raw() ^ 2);
        [ShardKey::new(next_run(shard.run()), shard.shard()), ShardKey::new(shard.run(), id)]
    };
    match *key {
        Key::RunHead { tenant, run } => {
            vec![Key::RunHead { tenant: other, run }, Key::RunHead { tenant, run: next_run(run) }]
        }
        Key::RunRoots { tenant, run, chunk } => vec![
            Key::RunRoots { tenant: other, run, chunk },
            Key::RunRoots { tenant, run: next_run(run), chunk },
            Key::RunRoots { tenant, run, chunk: chunk + 1 },
        ],
        Key::ShardHot { tenant, shard } => {
            let [a, b] = next(shard).map(|shard| Key::ShardHot { tenant, shard });
            vec![a, b, Key::ShardHot { tenant: other, shard }]
        }
        Key::ShardCold { tenant, shard } => {
            let [a, b] = next(shard).map(|shard| Key::ShardCold { tenant, shard });
            vec![a, b, Key::ShardCold { tenant: other, shard }]
        }
        Key::Owner { tenant, shard } => {
            let [a, b] = next(shard).map(|shard| Key::Owner { tenant, shard });
            vec![a, b, Key::Owner { tenant: other, shard }]
        }
        Key::ClaimIndex { tenant, shard, at } => {
            let [a, b] = next(shard).map(|shard| Key::ClaimIndex { tenant, shard, at });
            let later = LogicalTime::from_raw(at.as_raw() + 1);
            vec![a, b, Key::ClaimIndex { tenant, shard, at: later }]
        }
        Key::ParkedIndex { tenant, shard } => {
            let [a, b] = next(shard).map(|shard| Key::ParkedIndex { tenant, shard });
            vec![a, b, Key::ParkedIndex { tenant: other, shard }]
        }
        Key::TenantCounter { .. } => vec![Key::TenantCounter { tenant: other }],
        Key::Allotment { .. } => vec![Key::Allotment { tenant: other }],
        Key::Worker { tenant, worker } => vec![
            Key::Worker { tenant: other, worker },
            Key::Worker { tenant, worker: WorkerId::from_raw(worker.as_raw() + 1) },
        ],
        Key::Handoff { tenant, handoff } => vec![
            Key::Handoff { tenant: other, handoff },
            Key::Handoff { tenant, handoff: HandoffId::from_raw(handoff.as_raw() + 1) },
        ],
        Key::HandoffIndex { tenant, party, handoff } => vec![
            Key::HandoffIndex { tenant: other, party, handoff },
            Key::HandoffIndex { tenant, party: party + 1, handoff },
        ],
        Key::Tombstone { tenant, run } => vec![
            Key::Tombstone { tenant: other, run },
            Key::Tombstone { tenant, run: next_run(run) },
        ],
        Key::Failure { tenant, shard, number } => {
            let [a, b] = next(shard).map(|shard| Key::Failure { tenant, shard, number });
            vec![a, b, Key::Failure { tenant: other, shard, number }]
        }
        Key::ResultBlock { tenant, shard, block } => {
            let [a, b] = next(shard).map(|shard| Key::ResultBlock { tenant, shard, block });
            vec![a, b, Key::ResultBlock { tenant, shard, block: block + 1 }]
        }
        Key::Event { tenant, run, writer, slot } => vec![
            Key::Event { tenant: other, run, writer, slot },
            Key::Event { tenant, run: next_run(run), writer, slot },
            Key::Event { tenant, run, writer: writer + 1, slot },
            Key::Event { tenant, run, writer, slot: slot + 1 },
        ],
        Key::FenceFloor { .. }
        | Key::KeyLedger { .. }
        | Key::Budget { .. }
        | Key::TenantEntry { .. } => unreachable!("no values of a reserved kind"),
        // The only key of its kind: a value of any other has another kind.
        Key::SchemaVersion => vec![],
    }
}

#[test]
fn a_record_under_another_key_is_refused() {
    let samples = samples();
    for sample in samples {
        for key in neighbours(&sample.key) {
            let said = message(decode(&key, &sample.value, None));
            assert!(said.contains("of another key"), "{said}");
        }
        for other in samples.iter().filter(|other| other.key.kind() != sample.key.kind()) {
            let said = message(decode(&other.key, &sample.value, None));
            assert!(said.contains("under a key of"), "{said}");
        }
    }
}

#[test]
fn a_newer_format_says_so() {
    for sample in samples() {
        let newer = codec::of_next_format(&sample.key, sample.payload());
        let refused = decode(&sample.key, &newer, sample.partner.as_deref());
        assert!(matches!(refused, Err(InfraError::Refused { .. })), "{refused:?}");
        let said = message(refused);
        assert!(said.starts_with("written by a newer version (format 3,"), "{said}");
        let mut value = sample.value.clone();
        value[0] = 0;
        assert_eq!(refusal(sample, &value), "format 0 is older than 2, the oldest that is read");
    }
}

#[test]
fn a_damaged_version_byte_is_damage_and_no_newer_format() {
    for sample in samples() {
        let mut value = sample.value.clone();
        value[0] = FORMAT_VERSION + 1;
        let refused = decode(&sample.key, &value, sample.partner.as_deref());
        assert!(matches!(refused, Err(InfraError::Corruption { .. })), "{refused:?}");
    }
}

#[test]
fn an_unknown_kind_says_so() {
    let sample = sample_of(KeyKind::Worker, "full");
    for number in (0..=u8::MAX).filter(|number| KeyKind::from_u8(*number).is_none()) {
        let mut value = sample.value.clone();
        value[1] = number;
        assert_eq!(refusal(sample, &value), format!("unknown kind {number}"));
    }
}

#[test]
fn a_payload_cut_inside_a_field_is_refused_by_the_name_of_that_field() {
    for sample in samples().iter().filter(|sample| !is_opaque(sample.key.kind())) {
        let mut end = 0;
        for (field, len) in &sample.fields.0 {
            end += len;
            if *len > 0 {
                let cut = codec::reseal(&sample.key, &sample.payload()[..end - 1]);
                let said = refusal(sample, &cut);
                assert!(said.starts_with(&format!("{field}: ")), "{field}: {said}");
            }
        }
        assert_eq!(end, sample.payload().len(), "every byte belongs to a field");
    }
}

#[test]
fn a_sequence_without_a_logged_operation_is_refused() {
    let sample = sample_of(KeyKind::ShardHot, "bare");
    let said = refusal(sample, &sample.with_field("op_sequence", &[1, 0, 0, 0, 0, 0, 0, 0]));
    assert!(said.starts_with("INV-14: "), "{said}");
}

#[rstest]
#[case::unknown_flag("flags", &[0x20], "flags: unknown flags 0x20")]
#[case::sequence_too_large("op_sequence", &[0, 0, 0, 0, 0, 0, 1, 0], "op_sequence: above the max")]
#[case::unknown_status("status", &[4], "status: unknown number 4")]
#[case::unknown_reason("park_reason", &[5], "park_reason: unknown number 5")]
#[case::unknown_semantics("cursor_semantics", &[2], "cursor_semantics: unknown number 2")]
#[case::reason_of_an_active_shard("park_reason", &[0], "INV-1: ")]
#[case::a_done_shard_with_a_lease("status", &[1], "INV-3: ")]
#[case::no_fence("fence", &[0; 8], "INV-4: ")]
#[case::last_fence("fence", &[0xFF; 8], "INV-4: ")]
#[case::too_many_spawned("spawned_count", &[1, 4], "spawned_count: 1025 is above")]
#[case::other_cold_part("spawned_count", &[2, 0], "spawned_count: 2, but the cold part lists 1")]
#[case::too_many_operations("op_log_count", &[17], "op_log_count: 17 is above")]
#[case::key_too_long("last_key_len", &[1, 16], "last_key_len: 4097 is above")]
#[case::token_too_long("token_len", &[1, 64], "token_len: 16385 is above")]
#[case::index_too_late("indexed_at", &[0xFF; 8], "a claim index entry is never later")]
#[case::deadline_of_nothing("lease.deadline", &[0; 8], "lease.deadline: zero")]
#[case::offer_without_deadline("offer.deadline", &[0; 8], "offer.deadline: zero")]
#[case::offer_without_hash("offer.payload_hash", &[0; 8], "offer.payload_hash: zero")]
#[case::operation_without_hash("op_log.payload_hash", &[0; 8], "op_log.payload_hash: zero")]
#[case::operation_at_no_time("op_log.executed_at", &[0; 8], "op_log.executed_at: zero")]
#[case::time_falls("op_log.executed_at", &[9, 0, 0, 0, 0, 0, 0, 0], "INV-13: ")]
#[case::operation_twice("op_log.op_id", &[11, 0, 0, 0, 0, 0, 0, 0], "INV-9: ")]
#[case::unknown_operation("op_log.kind", &[10], "op_log.kind: unknown number 10")]
#[case::refused_operation("op_log.result", &[1], "op_log.result: unknown number 1")]
#[case::unknown_result("op_log.result", &[3], "op_log.result: unknown number 3")]
#[case::cursor_outside("last_key", &[b'Z'; 64], "last_key: outside the range")]
#[case::request_without_hash("request.payload_hash", &[0; 8], "request.payload_hash: zero")]
#[case::unknown_action("request.action", &[4], "request.action: number 4 with 64 bytes")]
#[case::release_of_something("request.action", &[1], "request.action: number 1 with 64 bytes")]
#[case::handoff_to_a_key("request.action", &[2], "request.action: number 2 with 64 bytes")]
#[case::withdraw_of_something("request.action", &[3], "request.action: number 3 with 64 bytes")]
#[case::argument_too_long("request.argument_len", &[1, 16], "request.argument_len: 4097 is above")]
fn a_hot_part_that_cannot_be_is_refused(
    #[case] field: &str,
    #[case] bytes: &[u8],
    #[case] expected: &str,
) {
    let sample = sample_of(KeyKind::ShardHot, "full");
    let said = refusal(sample, &sample.with_field(field, bytes));
    assert!(said.starts_with(expected), "{said}");
}

#[rstest]
#[case::parked_without_reason("parked", "park_reason", &[255], "INV-1: ")]
#[case::split_without_children("split", "spawned_count", &[0, 0], "INV-6: ")]
#[case::terminal_in_the_index("parked", "status", &[0], "INV-1: ")]
#[case::done_by_a_flipped_status("bare", "status", &[1], "a claim index entry exactly")]
#[case::free_but_indexed_later("bare", "indexed_at", &[1, 0, 0, 0, 0, 0, 0, 0], "a claim index")]
#[case::token_without_key("bare", "token_len", &[1, 0], "token: ")]
fn a_hot_part_of_another_state_is_refused(
    #[case] name: &str,
    #[case] field: &str,
    #[case] bytes: &[u8],
    #[case] expected: &str,
) {
    let sample = sample_of(KeyKind::ShardHot, name);
    let said = refusal(sample, &sample.with_field(field, bytes));
    assert!(said.starts_with(expected), "{said}");
}

#[rstest]
#[case::unknown_flag("child", "flags", &[2], "flags: unknown flags 0x02")]
#[case::derived_without_parent("child", "flags", &[0], "")]
#[case::start_too_long("full", "start_len", &[1, 16], "start_len: 4097 is above")]
#[case::end_too_long("full", "end_len", &[1, 16], "end_len: 4097 is above")]
#[case::metadata_too_long("full", "metadata_len", &[1, 64], "metadata_len: 16385 is above")]
#[case::too_many_spawned("full", "spawned_count", &[1, 4], "spawned_count: 1025 is above")]
#[case::split_without_hash("child", "lineage.split_hash", &[0; 8], "lineage.split_hash: zero")]
#[case::inverted("full", "start", &[b'z'; 64], "range: ")]
#[case::root_spawned("full", "spawned.id", &[1, 0, 0, 0, 0, 0, 0, 0], "spawned shards are derived")]
fn a_cold_part_that_cannot_be_is_refused(
    #[case] name: &str,
    #[case] field: &str,
    #[case] bytes: &[u8],
    #[case] expected: &str,
) {
    let sample = sample_of(KeyKind::ShardCold, name);
    let said = refusal(sample, &sample.with_field(field, bytes));
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_root_with_a_parent_is_refused() {
    let child = sample_of(KeyKind::ShardCold, "child");
    let root = Key::ShardCold { tenant: TENANT, shard: key(0) };
    let said = message(decode(&root, &codec::reseal(&root, child.payload()), None));
    assert_eq!(said, "a parent exactly when derived");
}

#[rstest]
#[case::name_too_long("full", "name_len", &[65], "name_len: 65 is above")]
#[case::name_that_is_a_path("full", "name", b"/ightly", "name: a name has ASCII letters")]
#[case::reserved_job_mac("full", "flags", &[0x40], "flags: unknown flags 0x40")]
#[case::unknown_flag("full", "flags", &[0x80], "flags: unknown flags 0x80")]
#[case::floor_of_zero("full", "fence_floor", &[0; 8], "fence_floor: zero")]
#[case::floor_too_high("full", "fence_floor", &[0xFF; 8], "a fence floor is bounded")]
#[case::unknown_status("full", "status", &[5], "status: unknown number 5")]
#[case::unknown_semantics("full", "cursor_semantics", &[9], "cursor_semantics: unknown")]
#[case::too_many_operations("full", "op_log_count", &[9], "op_log_count: 9 is above")]
#[case::no_lease("full", "lease_duration", &[0; 8], "lease_duration: ")]
#[case::made_at_no_time("full", "created_at", &[0; 8], "created_at: zero")]
#[case::ends_before_it_began("full", "completed_at", &[0; 8], "a run ends after it began")]
#[case::active_and_over("full", "status", &[1], "an end exactly when the run is over")]
#[case::over_and_going_on("bare", "status", &[4], "an end exactly when the run is over")]
#[case::unknown_operation("full", "op_log.kind", &[6], "op_log.kind: unknown number 6")]
#[case::operation_twice("full", "op_log.op_id", &[7, 0, 0, 0, 0, 0, 0, 0], "operation ids")]
#[case::no_registration_hash("full", "registration.payload_hash", &[0; 8], "registration.payload")]
#[case::chunk_at_no_time("full", "roots.last_chunk_at", &[0; 8], "roots.last_chunk_at: zero")]
#[case::too_many_roots("begun", "roots.total", &[17, 39, 0, 0], "roots are bounded")]
#[case::more_roots_than_all("begun", "roots.registered", &[10, 0, 0, 0], "no more roots")]
#[case::all_roots_but_not_active("begun", "roots.registered", &[9, 0, 0, 0], "a run whose roots")]
#[case::empty_chunks("begun", "roots.chunks", &[5, 0], "a chunk holds at least one root")]
#[case::roots_without_chunk("begun", "roots.chunks", &[0, 0], "roots are in chunks")]
#[case::roots_without_registration("bare", "roots.total", &[1, 0, 0, 0], "roots exactly when")]
#[case::registered_nothing("full", "roots.total", &[0; 4], "roots exactly when")]
#[case::registered_before_the_run("full", "created_at", &[2, 0, 0, 0, 0, 0, 0, 0], "registration begins")]
fn a_run_that_cannot_be_is_refused(
    #[case] name: &str,
    #[case] field: &str,
    #[case] bytes: &[u8],
    #[case] expected: &str,
) {
    let sample = sample_of(KeyKind::RunHead, name);
    let said = refusal(sample, &sample.with_field(field, bytes));
    assert!(said.starts_with(expected), "{said}");
}

#[rstest]
#[case::unknown_flag(KeyKind::Worker, "flags", &[15], "flags: unknown flags 0x08")]
#[case::watcher_of_no_process(KeyKind::Worker, "flags", &[2], "a watcher and a label belong to")]
#[case::label_of_no_process(KeyKind::Worker, "flags", &[4], "host_len: 98 is above the limit")]
#[case::unknown_state(KeyKind::Worker, "state", &[3], "state: unknown number 3")]
#[case::owner_without_fence(KeyKind::Owner, "fence", &[0; 8], "an owner's fence is at least the initial one")]
#[case::deletion_without_hash(KeyKind::Tombstone, "payload_hash", &[0; 8], "payload_hash: zero")]
#[case::empty_chunk(KeyKind::RunRoots, "count", &[0, 0], "a chunk holds at least one root")]
#[case::too_many_roots(KeyKind::RunRoots, "count", &[17, 39], "count: 10001 is above")]
#[case::derived_root(KeyKind::RunRoots, "id", &[0xFF; 8], "roots are not derived")]
fn a_small_value_that_cannot_be_is_refused(
    #[case] kind: KeyKind,
    #[case] field: &str,
    #[case] bytes: &[u8],
    #[case] expected: &str,
) {
    let sample = sample_of(kind, "full");
    let said = refusal(sample, &sample.with_field(field, bytes));
    assert!(said.starts_with(expected), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The samples' own decoder checks the law wherever a shard decodes: see `decode_pair`.
    #[test]
    fn what_decodes_encodes_to_the_same_bytes_and_nothing_panics(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let samples = samples();
        let sample = pick.get(samples);
        let mut payload = sample.payload().to_vec();
        for (at, byte) in changes {
            if !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
        }
        if let Some(cut) = cut.filter(|_| !payload.is_empty()) {
            payload.truncate(cut.index(payload.len()));
        }
        let value = codec::reseal(&sample.key, &payload);
        if let Err(error) = decode(&sample.key, &value, sample.partner.as_deref()) {
            let corrupt = matches!(error, InfraError::Corruption { .. });
            prop_assert!(corrupt, "{error}");
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(
        pick in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let samples = samples();
        message(decode(&pick.get(samples).key, &bytes, None));
    }
}
