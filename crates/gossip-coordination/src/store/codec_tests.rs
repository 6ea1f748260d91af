//! Encoding and decoding are inverse: over records that random histories of the real kernel
//! leave behind.

use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, ShardSpecRef, plan_split_replace_at_points_with_cursor,
    plan_split_residual_at_point,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey};
use gossip_testkit::Rng;
use proptest::prelude::*;

use super::codec::{self, DecodeShardError, RootProgress};
use super::key::KeyKind;
use super::samples::{self, index_of, sample_of, sample_shard, samples, whole};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::record::{ParkReason, ShardView};
use crate::request::{ShardAction, SplitKey};
use crate::run::{RunRecord, ShardFilter, ShardSummary};
use crate::store::{Allotment, HANDOFF_PAYLOAD_MAX};
use crate::test_fixtures::{RUN, TENANT, at, key, op, run_config, worker};
use crate::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, RecordPool,
    RunManagement,
};

/// Bytes written for a checkpoint with keys of 64 bytes may be this many.
const HOT_LEN_MAX: usize = 1 << 10;

/// One step of a history: which operation, on which shard, with what.
type Step = (u8, u8, u8);

/// A coordinator, and every lease it ever gave out.
struct History {
    coordinator: InMemoryCoordinator,
    leases: Vec<Lease>,
    now: u64,
}

impl History {
    fn new() -> Self {
        let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
            slab_capacity: 1 << 18,
            ..CoordinatorRuntimeConfig::default()
        });
        let roots = [(0, b"a", b"m"), (1, b"m", b"z")].map(|(id, start, end)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b"metadata"),
            cursor: CursorUpdate::initial(),
        });
        let made =
            coordinator.create_run_with_shards(at(1), TENANT, RUN, run_config(), &roots, op(9));
        made.unwrap();
        Self { coordinator, leases: Vec::new(), now: 1 }
    }

    fn shards(&mut self) -> Vec<ShardKey> {
        let mut rows: Vec<ShardSummary> = Vec::new();
        let now = at(self.now);
        self.coordinator.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
        rows.iter().map(|row| ShardKey::new(RUN, row.shard)).collect()
    }

    /// Tries one operation; refusals are part of a history.
    fn step(&mut self, index: usize, (operation, pick, byte): Step) {
        self.now += u64::from(byte % 16);
        let shards = self.shards();
        let shard = shards[usize::from(pick) % shards.len()];
        let now = at(self.now);
        let id = op(100 + index as u64);
        let held = self.leases.iter().rev().find(|lease| lease.key() == shard).cloned();
        match (operation % 14, held) {
            (0..=1, _) | (_, None) => self.acquire(now, shard, byte),
            (2..=13, Some(lease)) => {
                self.owned(now, &lease, operation % 14, byte, id);
                self.administer(now, shard, operation % 14, byte, id);
            }
            (14.., _) => unreachable!("a remainder by 14"),
        }
    }

    fn acquire(&mut self, now: LogicalTime, shard: ShardKey, byte: u8) {
        let mut scratch = AcquireScratch::new();
        let worker = worker(u64::from(byte % 3));
        let got =
            self.coordinator.acquire_and_restore_into(now, TENANT, shard, worker, &mut scratch);
        self.leases.extend(got.map(|got| got.lease));
    }

    /// What an owner may do; which of it is refused is the kernel's business.
    fn owned(&mut self, now: LogicalTime, lease: &Lease, operation: u8, byte: u8, id: OpId) {
        let view = self.coordinator.shard(TENANT, lease.key()).unwrap();
        let (spec, stored) = (view.spec(), view.cursor());
        let bytes = (spec.start.to_vec(), spec.end.to_vec(), spec.metadata.to_vec());
        let kept = (stored.last_key().map(<[u8]>::to_vec), stored.token().map(<[u8]>::to_vec));
        let spec = ShardSpecRef::new(&bytes.0, &bytes.1, &bytes.2);
        let stored = CursorUpdate::try_from_parts(kept.0.as_deref(), kept.1.as_deref()).unwrap();
        let point = [spec.start[0].midpoint(spec.end[0]), byte];
        let next = [spec.start[0].midpoint(b'a' + byte % 26), byte];
        let token = [byte; 3];
        let cursor = CursorUpdate::new(&next, &token[..usize::from(byte % 4)]);
        let coordinator = &mut self.coordinator;
        match operation {
            2..=3 => drop(coordinator.checkpoint(now, TENANT, lease, cursor, id)),
            4 => drop(coordinator.complete(now, TENANT, lease, cursor, id)),
            5 => {
                let reason = ParkReason::ALL[usize::from(byte) % ParkReason::ALL.len()];
                drop(coordinator.park_shard(now, TENANT, lease, reason, id));
            }
            6 => {
                let points = [&point[..]];
                let plan = plan_split_replace_at_points_with_cursor(spec, &points, stored);
                drop(plan.map(|plan| coordinator.split_replace(now, TENANT, lease, &plan, id)));
            }
            7 => {
                let plan = plan_split_residual_at_point(spec, &point);
                drop(plan.map(|plan| coordinator.split_residual(now, TENANT, lease, &plan, id)));
            }
            8 => {
                let mode = [ReleaseMode::Clean, ReleaseMode::Failed][usize::from(byte % 2)];
                drop(coordinator.release(now, TENANT, lease, mode, id));
            }
            9 => self.offer(now, lease, byte, id),
            10 => self.accept(now, lease, byte),
            11 => drop(coordinator.renew(now, TENANT, lease)),
            _ => {}
        }
    }

    fn offer(&mut self, now: LogicalTime, lease: &Lease, byte: u8, id: OpId) {
        let terms = OfferTerms {
            handoff: HandoffId::from_raw(u64::from(byte % 4)),
            destination: worker(u64::from(byte % 3)),
            deadline: now.saturating_add(50),
        };
        let stay = CursorUpdate::initial();
        drop(self.coordinator.offer(now, TENANT, lease, terms, stay, id));
    }

    fn accept(&mut self, now: LogicalTime, lease: &Lease, byte: u8) {
        let view = self.coordinator.shard(TENANT, lease.key()).unwrap();
        let Some(offer) = view.record().offer().copied() else { return };
        if byte.is_multiple_of(4) {
            let id = op(10_000 + self.now);
            drop(self.coordinator.withdraw(now, TENANT, lease, offer.handoff, id));
            return;
        }
        let mut scratch = AcquireScratch::new();
        let to = offer.destination;
        let got =
            self.coordinator.accept(now, TENANT, lease.key(), to, offer.handoff, &mut scratch);
        self.leases.extend(got.map(|got| got.lease));
    }

    fn administer(&mut self, now: LogicalTime, shard: ShardKey, operation: u8, byte: u8, id: OpId) {
        let action = match byte % 6 {
            0 => ShardAction::Split(None),
            1 => ShardAction::Split(SplitKey::try_new(&[byte, 1])),
            2 => ShardAction::Release,
            3 => ShardAction::HandOff(None),
            4 => ShardAction::HandOff(Some(worker(u64::from(byte)))),
            _ => ShardAction::Withdraw,
        };
        let until = now.saturating_add(u64::from(byte));
        let coordinator = &mut self.coordinator;
        match operation {
            12 => drop(coordinator.request_action(now, TENANT, shard, &action, until, id)),
            13 if byte.is_multiple_of(4) => {
                drop(coordinator.revoke_lease(now, TENANT, shard, None, id));
            }
            13 => drop(coordinator.unpark_shard(now, TENANT, shard, id)),
            _ => {}
        }
    }
}

fn assert_same(a: ShardView<'_>, b: ShardView<'_>) {
    let (left, right) = (a.record(), b.record());
    assert_eq!((left.tenant(), left.key()), (right.tenant(), right.key()));
    assert_eq!((left.status(), left.park_reason()), (right.status(), right.park_reason()));
    assert_eq!(left.fence_epoch(), right.fence_epoch());
    assert_eq!(left.cursor_semantics(), right.cursor_semantics());
    assert_eq!(left.lease(), right.lease());
    assert_eq!(left.attempts(), right.attempts());
    assert_eq!(left.acquire_count(), right.acquire_count());
    assert_eq!(left.lineage(), right.lineage());
    assert_eq!(left.offer(), right.offer());
    assert_eq!(left.request(), right.request());
    assert_eq!(left.last_handoff(), right.last_handoff());
    assert_eq!((a.spec(), a.cursor()), (b.spec(), b.cursor()));
    assert_eq!(a.op_log(), b.op_log());
    assert!(a.spawned().eq(b.spawned()));
}

fn assert_round_trip(shard: ShardView<'_>) {
    let [hot, cold] = sample_shard("random", shard);
    let mut pool = RecordPool::new(samples::POOL_LEN);
    let tenant = Arc::new(shard.record().tenant());
    let key = shard.record().key();
    let decoded = codec::decode_shard(&tenant, key, &hot.value, &cold.value, &mut pool);
    let (record, indexed_at) = decoded.unwrap();
    assert_eq!(indexed_at, index_of(shard));
    assert_same(shard, ShardView::new(&record, &pool));
    record.free(&mut pool);
    assert_eq!(pool.bytes().live_slots(), 0);
}

fn assert_run_round_trip(run: &RunRecord) {
    let (mut head, mut chunk, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    codec::encode_run_head(run, whole(run), &mut head);
    codec::encode_roots(TENANT, RUN, 0, run.root_shards(), &mut chunk);
    let part = codec::decode_run_head(TENANT, RUN, &head).unwrap();
    assert_eq!((part.head(), part.roots()), (run.head(), whole(run)));
    codec::decode_roots(TENANT, RUN, 0, &chunk, &mut roots).unwrap();
    let same = part.into_record(roots).unwrap();
    assert_eq!(same.created_at(), run.created_at());
    assert_eq!(same.completed_at(), run.completed_at());
    assert_eq!(same.registration(), run.registration());
    assert_eq!(same.root_shards(), run.root_shards());
    assert_eq!((same.head(), same.is_paused()), (run.head(), run.is_paused()));
    assert!(same.op_log().eq(run.op_log()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_record_of_a_history_decodes_to_what_it_was(
        steps in prop::collection::vec(any::<Step>(), 1..120),
    ) {
        let mut history = History::new();
        for (index, step) in steps.into_iter().enumerate() {
            history.step(index, step);
            // Most of the states in between are worth as much as the last one.
            if index % 4 == 0 {
                for shard in history.shards() {
                    assert_round_trip(history.coordinator.shard(TENANT, shard).unwrap());
                }
            }
        }
        assert_run_round_trip(&history.coordinator.get_run(TENANT, RUN).unwrap());
    }

    #[test]
    fn every_run_decodes_to_what_it_was(
        steps in prop::collection::vec(0_u8..4, 0..20),
        end in 0_u8..3,
    ) {
        let mut coordinator = History::new().coordinator;
        for (index, step) in steps.into_iter().enumerate() {
            let (now, id) = (at(1 + index as u64), op(100 + index as u64));
            if step == 0 {
                coordinator.resume_run(now, TENANT, RUN, id).unwrap();
            } else {
                coordinator.pause_run(now, TENANT, RUN, id).unwrap();
            }
        }
        match end {
            0 => drop(coordinator.fail_run(at(50), TENANT, RUN, op(77)).unwrap()),
            1 => drop(coordinator.cancel_run(at(50), TENANT, RUN, op(77)).unwrap()),
            _ => {}
        }
        assert_run_round_trip(&coordinator.get_run(TENANT, RUN).unwrap());
    }
}

#[test]
fn histories_reach_every_part_of_a_record() {
    let mut seen = [false; 8];
    let mut rng = Rng::seeded(1);
    for _ in 0..40 {
        let mut history = History::new();
        for index in 0..150 {
            let [.., a, b, c] = rng.next_u64().to_be_bytes();
            history.step(index, (a, b, c));
            for shard in history.shards() {
                let view = history.coordinator.shard(TENANT, shard).unwrap();
                let record = view.record();
                let parts = [
                    record.offer().is_some(),
                    record.request().is_some(),
                    record.last_handoff().is_some(),
                    record.lineage().is_some(),
                    record.park_reason().is_some(),
                    record.lease().is_some(),
                    view.cursor().token().is_some(),
                    view.op_log().len() > 8,
                ];
                for (seen, part) in seen.iter_mut().zip(parts) {
                    *seen |= part;
                }
            }
        }
    }
    assert_eq!(seen, [true; 8], "offer, request, handoff, lineage, parked, lease, token, log");
}

#[test]
fn every_sample_decodes_and_encodes_to_the_same_bytes() {
    for sample in samples() {
        let decoded = samples::decode(&sample.key, &sample.value, sample.partner.as_deref());
        assert_eq!(decoded, Ok(()), "{:?} {}", sample.key.kind(), sample.name);
    }
}

#[test]
fn small_values_decode_to_what_they_were() {
    let owner = sample_of(KeyKind::Owner, "full");
    let owner = codec::decode_owner(TENANT, key(5), &owner.value).unwrap();
    assert_eq!((owner.owner, owner.fence.as_raw()), (worker(3), 8));
    assert_eq!(owner.token.as_raw(), 0xFEED);
    assert!(!format!("{owner:?}").contains("65261"), "a token is not shown");
    let entry = sample_of(KeyKind::Worker, "full");
    let entry = codec::decode_worker(TENANT, worker(3), &entry.value).unwrap();
    assert_eq!((entry.state as u8, entry.expires_at), (2, at(99)));
    let count = sample_of(KeyKind::TenantCounter, "full");
    assert_eq!(codec::decode_count(TENANT, &count.value), Ok(12_345));
    let allotment = sample_of(KeyKind::Allotment, "full");
    let decoded = codec::decode_allotment(TENANT, &allotment.value);
    assert_eq!(decoded, Ok(Allotment::of_shards(67_890)));
    let handoff = sample_of(KeyKind::Handoff, "full");
    let payload = codec::decode_handoff(TENANT, HandoffId::from_raw(6), &handoff.value);
    assert_eq!(payload, Ok((0xF00D, b"snapshot".as_slice())));
    let tombstone = sample_of(KeyKind::Tombstone, "full");
    let tombstone = codec::decode_tombstone(TENANT, RUN, &tombstone.value).unwrap();
    assert_eq!((tombstone.op_id, tombstone.payload_hash), (op(9), 77));
}

#[test]
fn a_hot_part_with_keys_of_64_bytes_and_a_full_log_is_below_one_kibibyte() {
    let sample = sample_of(KeyKind::ShardHot, "full");
    let len = sample.value.len();
    assert!(sample.fields.0.iter().filter(|(name, _)| *name == "op_log.op_id").count() == 16);
    assert_eq!(sample.fields.place("last_key").1, 64);
    assert!(len <= HOT_LEN_MAX, "{len} bytes");
    let beside = ["offer", "request", "last_handoff", "token"];
    let rare = |name: &str| beside.iter().any(|part| name.starts_with(part)) && name != "token_len";
    let rare_len: usize =
        sample.fields.0.iter().filter(|(name, _)| rare(name)).map(|(_, len)| len).sum();
    assert_eq!((len, len - rare_len), (714, 561), "with everything, and with a lease alone");
}

#[test]
fn debug_of_a_part_shows_lengths_and_no_bytes() {
    let [hot, cold] = [KeyKind::ShardHot, KeyKind::ShardCold].map(|kind| sample_of(kind, "full"));
    let hot = codec::decode_hot(TENANT, key(0), &hot.value).unwrap();
    let cold = codec::decode_cold(TENANT, key(0), &cold.value).unwrap();
    let shown = format!("{hot:?} {cold:?}");
    for bytes in ["112, 112", "97, 97", "pp", "token of", "meta\"", "109, 101, 116, 97"] {
        assert!(!shown.contains(bytes), "{bytes} in {shown}");
    }
    assert!(shown.contains("64"), "the length of the key in {shown}");
}

#[test]
fn a_continued_registration_keeps_its_progress() {
    let begun = sample_of(KeyKind::RunHead, "begun");
    let part = codec::decode_run_head(TENANT, RunId::from_raw(2), &begun.value).unwrap();
    let half = RootProgress { total: 9, registered: 4, chunks: 2, last_chunk_at: at(3) };
    assert_eq!(part.roots(), half);
    assert!(!part.has_roots());
    assert!(part.clone().into_record(vec![ShardId::from_raw(0); 4]).is_err());
    let record = part.into_record(Vec::new()).unwrap();
    assert!(record.registration().is_some() && record.root_shards().is_empty());
}

#[test]
fn a_full_pool_refuses_a_shard_and_keeps_nothing() {
    let [hot, cold] = [KeyKind::ShardHot, KeyKind::ShardCold].map(|kind| sample_of(kind, "full"));
    let tenant = Arc::new(TENANT);
    let mut fitted = None;
    for capacity in (0..4096).step_by(16) {
        let mut pool = RecordPool::new(capacity);
        match codec::decode_shard(&tenant, key(0), &hot.value, &cold.value, &mut pool) {
            Ok((record, _)) => {
                record.free(&mut pool);
                fitted.get_or_insert(capacity);
            }
            Err(error) => {
                assert!(matches!(error, DecodeShardError::PoolFull(_)), "{error}");
                assert!(fitted.is_none(), "what fits {fitted:?} bytes fits {capacity}");
            }
        }
        assert_eq!(pool.bytes().live_slots(), 0);
    }
    assert!(fitted.is_some_and(|capacity| capacity > 64));
}

#[test]
fn a_handoff_may_be_as_long_as_its_limit_and_no_longer() {
    let (handoff, mut out) = (HandoffId::from_raw(1), Vec::new());
    let long = vec![7; HANDOFF_PAYLOAD_MAX + 1];
    assert_eq!(
        codec::encode_handoff(TENANT, handoff, (1, &long), &mut out).unwrap_err().len,
        long.len()
    );
    codec::encode_handoff(TENANT, handoff, (1, &long[1..]), &mut out).unwrap();
    assert_eq!(codec::decode_handoff(TENANT, handoff, &out), Ok((1, &long[1..])));
}

#[test]
#[should_panic(expected = "an active shard is in the claim index")]
fn an_active_shard_without_an_index_entry_is_not_stored() {
    let history = History::new();
    let view = history.coordinator.shard(TENANT, key(0)).unwrap();
    codec::encode_hot(view, None, &mut Vec::new());
}
