//! Encoded records of every kind, made by the real kernel where it makes them, and one decoder for
//! all kinds. Shared by the tests of the codec.

use std::sync::{Arc, LazyLock};

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, ShardSpecRef, plan_split_replace_at_points_with_cursor,
    plan_split_residual_at_point,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, Redacted, RunId, ShardId, ShardKey, WorkerId,
};

use super::codec::{self, Put, RootProgress};
use super::key::{Key, KeyKind};
use crate::events::EventKind;
use crate::handoff::HandoffId;
use crate::lease::{GrantToken, Lease, OP_LOG_CAP};
use crate::protocol::{OfferTerms, Tombstone};
use crate::record::{ShardStatus, ShardView};
use crate::request::{ShardAction, SplitKey};
use crate::run::{RUN_OP_LOG_CAP, RunConfig, RunRecord};
use crate::run_name::RunName;
use crate::short_text::ShortText;
use crate::side_records::{ExitCause, FailureKind, FailureRecord, ResultBlock};
use crate::store::{Allotment, OwnerBinding};
use crate::stored_events::{EventWriter, StoredEvent};
use crate::test_fixtures::{
    RUN, TENANT, acquire, at, key, op, run_config, two_shards, two_shards_of, worker,
};
use crate::workers::{ProcessId, WorkerEntry, WorkerLabel, WorkerProcess, WorkerState};
use crate::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, InfraError,
    ParkContext, ParkReason, RecordPool, RunManagement,
};

/// Bytes for one decoded sample; small, because the tests of damage make tens of thousands.
pub(super) const POOL_LEN: usize = 1 << 13;

/// An encoded record and what its encoder wrote under which name.
pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) key: Key,
    pub(super) value: Vec<u8>,
    pub(super) fields: Fields,
    /// The other part of a shard.
    pub(super) partner: Option<Vec<u8>>,
}

impl Sample {
    /// The value with `bytes` in place of a field's, past the checksum.
    pub(super) fn with_field(&self, field: &str, bytes: &[u8]) -> Vec<u8> {
        let mut payload = self.payload().to_vec();
        let (start, len) = self.fields.place(field);
        payload.splice(start..start + len, bytes.iter().copied());
        // With a valid checksum, so that the decoder gets as far as the field.
        codec::reseal(&self.key, &payload)
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.value[codec::HEAD_LEN..self.value.len() - codec::CHECKSUM_LEN]
    }
}

/// The fields of a payload, in order.
#[derive(Default)]
pub(super) struct Fields(pub(super) Vec<(&'static str, usize)>);

impl Fields {
    /// Offset and length of the first field of that name.
    pub(super) fn place(&self, field: &str) -> (usize, usize) {
        let index = self.0.iter().position(|(name, _)| *name == field).expect("a field of it");
        (self.0[..index].iter().map(|(_, len)| len).sum(), self.0[index].1)
    }
}

impl Put for Fields {
    fn put(&mut self, field: &'static str, bytes: &[u8]) {
        self.0.push((field, bytes.len()));
    }
}

/// At least one record of every kind: the barest, and one in which everything is present.
pub(super) fn samples() -> &'static [Sample] {
    static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
        let parts =
            [shard_samples(), run_samples(), small_samples(), side_samples(), event_samples()];
        parts.into_iter().flatten().collect()
    });
    &SAMPLES
}

/// Decodes a value of any kind, a part of a shard together with its partner, and encodes it again:
/// what decodes encodes to the same bytes.
pub(super) fn decode(key: &Key, value: &[u8], partner: Option<&[u8]>) -> Result<(), InfraError> {
    let mut again = Vec::new();
    match *key {
        Key::RunHead { tenant, run } => {
            let part = codec::decode_run_head(tenant, run, value)?;
            let count = if part.has_roots() { part.roots().registered } else { 0 };
            let progress = part.roots();
            let record =
                part.into_record((0..u64::from(count)).map(ShardId::from_raw).collect())?;
            codec::encode_run_head(&record, progress, &mut again);
        }
        Key::RunRoots { tenant, run, chunk } => {
            let mut ids = Vec::new();
            codec::decode_roots(tenant, run, chunk, value, &mut ids)?;
            codec::encode_roots(tenant, run, chunk, &ids, &mut again);
        }
        Key::ShardHot { shard, tenant } => match partner {
            Some(cold) => return decode_pair(key, shard, value, cold),
            None => return codec::decode_hot(tenant, shard, value).map(drop),
        },
        Key::ShardCold { shard, tenant } => match partner {
            Some(hot) => return decode_pair(key, shard, hot, value),
            None => return codec::decode_cold(tenant, shard, value).map(drop),
        },
        Key::Owner { .. }
        | Key::ClaimIndex { .. }
        | Key::ParkedIndex { .. }
        | Key::TenantCounter { .. }
        | Key::Allotment { .. }
        | Key::Worker { .. }
        | Key::Handoff { .. }
        | Key::Tombstone { .. }
        | Key::SchemaVersion
        | Key::Failure { .. }
        | Key::Event { .. }
        | Key::ResultBlock { .. }
        | Key::HandoffIndex { .. } => recode_small(key, value, &mut again)?,
        Key::FenceFloor { .. }
        | Key::KeyLedger { .. }
        | Key::Budget { .. }
        | Key::TenantEntry { .. } => unreachable!("no values of a reserved kind"),
    }
    assert_eq!(again, value, "what decodes encodes to the same bytes");
    Ok(())
}

fn recode_small(key: &Key, value: &[u8], again: &mut Vec<u8>) -> Result<(), InfraError> {
    match *key {
        Key::Owner { tenant, shard } => {
            let owner = codec::decode_owner(tenant, shard, value)?;
            codec::encode_owner(tenant, shard, &owner, again);
        }
        Key::ClaimIndex { tenant, shard, at } => {
            codec::decode_claim_entry(tenant, shard, at, value)?;
            codec::encode_claim_entry(tenant, shard, at, again);
        }
        Key::ParkedIndex { tenant, shard } => {
            let context = codec::decode_parked_entry(tenant, shard, value)?;
            codec::encode_parked_entry(tenant, shard, context, again);
        }
        Key::TenantCounter { tenant } => {
            codec::encode_tenant_count(tenant, codec::decode_count(tenant, value)?, again);
        }
        Key::Allotment { tenant } => {
            codec::encode_allotment(tenant, codec::decode_allotment(tenant, value)?, again);
        }
        Key::Worker { tenant, worker } => {
            codec::encode_worker(tenant, &codec::decode_worker(tenant, worker, value)?, again);
        }
        Key::Handoff { tenant, handoff } => {
            let stored = codec::decode_handoff(tenant, handoff, value)?;
            codec::encode_handoff(tenant, handoff, stored, again).expect("as long as it was");
        }
        Key::HandoffIndex { tenant, party, handoff } => {
            codec::decode_mover_entry(tenant, party, handoff, value)?;
            codec::encode_mover_entry(tenant, party, handoff, again);
        }
        Key::Tombstone { tenant, run } => {
            let tombstone = codec::decode_tombstone(tenant, run, value)?;
            codec::encode_tombstone(tenant, run, &tombstone, again);
        }
        Key::SchemaVersion => codec::encode_schema(codec::decode_schema(value)?, again),
        Key::Failure { tenant, shard, number } => {
            let failure = codec::decode_failure(tenant, shard, number, value)?;
            codec::encode_failure(tenant, shard, &failure, again);
        }
        Key::Event { tenant, run, writer, slot } => {
            let place = (EventWriter::from_raw(writer), slot);
            let event = codec::decode_event(tenant, run, place, value)?;
            codec::encode_event(tenant, run, &event, again);
        }
        Key::ResultBlock { tenant, shard, block } => {
            let results = codec::decode_results(tenant, shard, block, value)?;
            codec::encode_results(tenant, shard, &results, again);
        }
        Key::RunHead { .. }
        | Key::RunRoots { .. }
        | Key::ShardHot { .. }
        | Key::ShardCold { .. }
        | Key::FenceFloor { .. }
        | Key::KeyLedger { .. }
        | Key::Budget { .. }
        | Key::TenantEntry { .. } => unreachable!("not a small value"),
    }
    Ok(())
}

/// Decodes both parts, encodes the record again, and finds the same bytes; or is refused, and then
/// finds nothing left in the pool.
fn decode_pair(key: &Key, shard: ShardKey, hot: &[u8], cold: &[u8]) -> Result<(), InfraError> {
    let tenant = match key {
        Key::ShardHot { tenant, .. } | Key::ShardCold { tenant, .. } => Arc::new(*tenant),
        other => unreachable!("{other:?} is no part of a shard"),
    };
    let mut pool = RecordPool::new(POOL_LEN);
    let decoded = codec::decode_shard(&tenant, shard, hot, cold, &mut pool);
    let decoded = decoded.map(|(record, indexed_at)| {
        let mut again = Vec::new();
        codec::encode_hot(ShardView::new(&record, &pool), indexed_at, &mut again);
        assert_eq!(again, hot, "what decodes encodes to the same bytes");
        codec::encode_cold(ShardView::new(&record, &pool), &mut again);
        assert_eq!(again, cold, "what decodes encodes to the same bytes");
        record.free(&mut pool);
    });
    assert_eq!(pool.bytes().live_slots(), 0, "nothing stays in the pool");
    decoded.map_err(|error| match error {
        codec::DecodeShardError::Stored(error) => error,
        codec::DecodeShardError::PoolFull(full) => unreachable!("a large pool: {full}"),
    })
}

/// The entry that the store layer would keep in the claim index.
pub(super) fn index_of(shard: ShardView<'_>) -> Option<LogicalTime> {
    let record = shard.record();
    // The latest time that is allowed: a later entry would hide the shard from claims.
    let time = record.lease_deadline().unwrap_or(LogicalTime::ZERO);
    (record.status() == ShardStatus::Active).then_some(time)
}

/// Both parts of a shard.
pub(super) fn sample_shard(name: &'static str, shard: ShardView<'_>) -> [Sample; 2] {
    let (tenant, key) = (shard.record().tenant(), shard.record().key());
    let (mut hot, mut cold) = (Vec::new(), Vec::new());
    codec::encode_hot(shard, index_of(shard), &mut hot);
    codec::encode_cold(shard, &mut cold);
    let (mut hot_fields, mut cold_fields) = (Fields::default(), Fields::default());
    codec::write_hot(&mut hot_fields, shard, index_of(shard));
    codec::write_cold(&mut cold_fields, shard);
    let hot_sample = Sample {
        name,
        key: Key::ShardHot { tenant, shard: key },
        value: hot.clone(),
        fields: hot_fields,
        partner: Some(cold.clone()),
    };
    let cold_key = Key::ShardCold { tenant, shard: key };
    [
        hot_sample,
        Sample { name, key: cold_key, value: cold, fields: cold_fields, partner: Some(hot) },
    ]
}

/// A shard in which everything is present: keys of 64 bytes, a full log, a cursor with a token, an
/// offer, a request, a finished handoff, a spawned shard.
pub(super) fn full_shard() -> InMemoryCoordinator {
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        slab_capacity: 1 << 16,
        ..CoordinatorRuntimeConfig::default()
    });
    let [start, end, point] = [b'a', b'z', b'y'].map(|byte| [byte; 64]);
    let shards = [InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(&start, &end, b"meta"),
        cursor: CursorUpdate::initial(),
    }];
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, run_config(), &shards, op(1));
    made.expect("a new run");
    let first = acquire(&mut coordinator, 2, 0, 1);
    // A residual, because the parent stays active and lists a spawned shard.
    let plan = plan_split_residual_at_point(shards[0].spec, &point).expect("a point inside");
    coordinator.split_residual(at(3), TENANT, &first, &plan, op(2)).expect("a good split");
    let mut lease = hand_over(&mut coordinator, &first);
    for step in 0..OP_LOG_CAP as u64 - 1 {
        // As a session does: an operation with the sequence of an earlier one is refused.
        lease.set_sequence(lease.sequence().next());
        let cursor = [b'b' + u8::try_from(step).expect("few steps"); 64];
        let cursor = CursorUpdate::new(&cursor, b"token of the connector");
        let checkpoint = coordinator.checkpoint(at(6), TENANT, &lease, cursor, op(10 + step));
        checkpoint.expect("progress");
    }
    let action = ShardAction::Split(SplitKey::try_new(&[b'w'; 64]));
    let asked = coordinator.request_action(at(7), TENANT, key(0), &action, at(90), op(50));
    asked.expect("a leased shard");
    lease.set_sequence(lease.sequence().next());
    offer(&mut coordinator, &lease, 8, 3);
    coordinator
}

fn hand_over(coordinator: &mut InMemoryCoordinator, lease: &Lease) -> Lease {
    offer(coordinator, lease, 4, 2);
    let mut scratch = AcquireScratch::new();
    let handoff = HandoffId::from_raw(4);
    let accepted = coordinator.accept(at(5), TENANT, lease.key(), worker(2), handoff, &mut scratch);
    accepted.expect("the destination of the offer").lease
}

/// Offers at `now`, under a handoff of the same number.
fn offer(coordinator: &mut InMemoryCoordinator, lease: &Lease, now: u64, destination: u64) {
    let terms = OfferTerms {
        handoff: HandoffId::from_raw(now),
        destination: worker(destination),
        deadline: at(now + 50),
    };
    let stay = CursorUpdate::initial();
    let offered = coordinator.offer(at(now), TENANT, lease, terms, stay, op(100 + now));
    offered.expect("a live lease");
}

fn shard_samples() -> Vec<Sample> {
    let full = full_shard();
    let mut coordinator = two_shards();
    let parked = acquire(&mut coordinator, 10, 1, 1);
    let reason = ParkReason::Poisoned;
    coordinator.park_shard(at(11), TENANT, &parked, reason, op(1)).expect("a live lease");
    let children = split(&mut coordinator);
    let view = |shard| coordinator.shard(TENANT, shard).expect("a shard of the run");
    let bare = two_shards();
    let mut asked = two_shards();
    acquire(&mut asked, 10, 0, 1);
    let request = ShardAction::HandOff(Some(worker(2)));
    let request = asked.request_action(at(11), TENANT, key(0), &request, at(60), op(5));
    request.expect("a leased shard");
    let mut samples = Vec::new();
    samples.extend(sample_shard("bare", bare.shard(TENANT, key(0)).expect("a shard")));
    samples.extend(sample_shard("full", full.shard(TENANT, key(0)).expect("a shard")));
    samples.extend(sample_shard("asked", asked.shard(TENANT, key(0)).expect("a shard")));
    samples.extend(sample_shard("parked", view(key(1))));
    samples.extend(sample_shard("split", view(key(0))));
    samples.extend(children.into_iter().flat_map(|child| sample_shard("child", view(child))));
    samples
}

fn split(coordinator: &mut InMemoryCoordinator) -> [ShardKey; 2] {
    let lease = acquire(coordinator, 12, 0, 1);
    let cursor = CursorUpdate::new(b"c", b"t");
    coordinator.checkpoint(at(13), TENANT, &lease, cursor, op(2)).expect("progress");
    let parent = ShardSpecRef::new(b"a", b"m", b"");
    let plan = plan_split_replace_at_points_with_cursor(parent, &[b"h"], cursor);
    let plan = plan.expect("a point ahead of the cursor");
    let children = coordinator.split_replace(at(14), TENANT, &lease, &plan, op(3));
    drop(children.expect("a good plan"));
    let parent = coordinator.shard(TENANT, key(0)).expect("a shard");
    let ids: Vec<ShardId> = parent.spawned().collect();
    [ShardKey::new(RUN, ids[0]), ShardKey::new(RUN, ids[1])]
}

/// How far a run that registered all its roots at once has come.
pub(super) fn whole(run: &RunRecord) -> RootProgress {
    let count = u32::try_from(run.root_shards().len()).expect("few roots");
    match count {
        0 => RootProgress::NONE,
        _ => RootProgress {
            total: count,
            registered: count,
            chunks: 1,
            last_chunk_at: run.created_at(),
        },
    }
}

fn sample_head(name: &'static str, run: &RunRecord, roots: RootProgress) -> Sample {
    let (mut value, mut fields) = (Vec::new(), Fields::default());
    codec::encode_run_head(run, roots, &mut value);
    codec::write_run_head(&mut fields, run, roots);
    let key = Key::RunHead { tenant: run.tenant(), run: run.run() };
    Sample { name, key, value, fields, partner: None }
}

/// A new run, one in the middle of its registration, and one that is over and remembers much.
fn run_samples() -> Vec<Sample> {
    let semantics = run_config().cursor_semantics();
    let config = RunConfig::try_new(semantics, 15_000, None).expect("a lease that lasts");
    let new = RunRecord::new(TENANT, RunId::from_raw(2), config, at(1));
    let short = config.with_name(Some(RunName::try_new("weekly").expect("a name")));
    let mut begun = RunRecord::new(TENANT, RunId::from_raw(2), short, at(1));
    let name = RunName::try_new("nightly").expect("a name");
    let mut coordinator = two_shards_of(run_config().with_name(Some(name)));
    for step in 0..RUN_OP_LOG_CAP as u64 {
        let paused = coordinator.pause_run(at(5 + step), TENANT, RUN, op(step));
        paused.expect("an active run");
    }
    coordinator.cancel_run(at(20), TENANT, RUN, op(30)).expect("an active run");
    let floor = coordinator.raise_fence_floor(at(21), TENANT, RUN, FenceEpoch::ZERO);
    floor.expect("a run");
    let over = coordinator.get_run(TENANT, RUN).expect("a run");
    begun.registration = over.registration();
    let half = RootProgress { total: 9, registered: 4, chunks: 2, last_chunk_at: at(3) };
    let ids = [0, 1, 7].map(ShardId::from_raw);
    let tombstone = Tombstone { op_id: op(9), payload_hash: 77 };
    let roots = Key::RunRoots { tenant: TENANT, run: RUN, chunk: 1 };
    let grave = Key::Tombstone { tenant: TENANT, run: RUN };
    vec![
        sample_head("bare", &new, RootProgress::NONE),
        sample_head("begun", &begun, half),
        sample_head("full", &over, whole(&over)),
        sample(
            "full",
            roots,
            |out| codec::encode_roots(TENANT, RUN, 1, &ids, out),
            |fields| codec::write_roots(fields, &ids),
        ),
        sample(
            "full",
            grave,
            |out| codec::encode_tombstone(TENANT, RUN, &tombstone, out),
            |fields| codec::write_tombstone(fields, &tombstone),
        ),
    ]
}

fn small_samples() -> Vec<Sample> {
    let (tenant, shard, time) = (TENANT, key(5), at(0x0123_4567));
    let owner = OwnerBinding {
        owner: worker(3),
        fence: FenceEpoch::from_raw(8),
        token: GrantToken::from_raw(0xFEED),
    };
    let context = ParkContext::new("exit status 1");
    let (handoff, allotment) = (HandoffId::from_raw(6), Allotment::of_shards(67_890));
    let (host, version) = (ShortText::cut("host-1"), ShortText::cut("0.1.0"));
    let label = Some(WorkerLabel { host, version, jobs: 8 });
    let (host, version) = (ShortText::cut("localhost"), ShortText::cut("0.2.0-rc.1"));
    let other_label = Some(WorkerLabel { host, version, jobs: 1 });
    vec![
        sample(
            "full",
            Key::Owner { tenant, shard },
            |out| codec::encode_owner(tenant, shard, &owner, out),
            |fields| codec::write_owner(fields, &owner),
        ),
        sample(
            "full",
            Key::ClaimIndex { tenant, shard, at: time },
            |out| codec::encode_claim_entry(tenant, shard, time, out),
            |_| {},
        ),
        sample(
            "empty",
            Key::ParkedIndex { tenant, shard },
            |out| codec::encode_parked_entry(tenant, shard, ParkContext::NONE, out),
            |fields| codec::write_parked_entry(fields, ParkContext::NONE),
        ),
        sample(
            "full",
            Key::ParkedIndex { tenant, shard },
            |out| codec::encode_parked_entry(tenant, shard, context, out),
            |fields| codec::write_parked_entry(fields, context),
        ),
        sample(
            "full",
            Key::TenantCounter { tenant },
            |out| codec::encode_tenant_count(tenant, 12_345, out),
            |fields| codec::write_count(fields, 12_345),
        ),
        sample(
            "full",
            Key::Allotment { tenant },
            |out| codec::encode_allotment(tenant, allotment, out),
            |fields| codec::write_allotment(fields, allotment),
        ),
        sample_worker("labelled", Some(WorkerProcess { label: other_label, ..PROCESS })),
        sample_worker("full", Some(WorkerProcess { watcher: Some(WATCHER), label, ..PROCESS })),
        sample_worker("bare", None),
        sample_worker("without a watcher", Some(PROCESS)),
        sample_handoff("full", handoff, b"snapshot"),
        sample_handoff("bare", handoff, b""),
        sample(
            "full",
            Key::HandoffIndex { tenant, party: 0xABBA, handoff },
            |out| codec::encode_mover_entry(tenant, 0xABBA, handoff, out),
            |_| {},
        ),
        sample(
            "full",
            Key::SchemaVersion,
            |out| codec::encode_schema(codec::FORMAT_VERSION, out),
            |fields| codec::write_schema(fields, codec::FORMAT_VERSION),
        ),
    ]
}

fn side_samples() -> Vec<Sample> {
    let (tenant, shard) = (TENANT, key(5));
    let full = FailureRecord {
        key: b"urls.txt:2".as_slice().into(),
        place: "urls.txt:2".into(),
        kind: FailureKind::Failed,
        exit: Some(ExitCause::Code(22)),
        tries: 3,
        at: at(1_700_000_000_000),
        host: "worker-1".into(),
        pid: 4711,
        message: "exit status 22".into(),
        stderr: b"curl: (22) 404\n".as_slice().into(),
    };
    let killed = FailureRecord { exit: Some(ExitCause::Signal(9)), ..full.clone() };
    let bare = FailureRecord {
        key: b"k".as_slice().into(),
        place: "".into(),
        kind: FailureKind::Unread,
        exit: None,
        host: "".into(),
        message: "".into(),
        stderr: [].into(),
        ..full
    };
    let failure = |name, failure: &FailureRecord| {
        sample(
            name,
            Key::Failure { tenant, shard, number: failure.number() },
            |out| codec::encode_failure(tenant, shard, failure, out),
            |fields| codec::write_failure(fields, failure),
        )
    };
    let results = |name, content: &[u8]| {
        let block = ResultBlock { number: 0x0203, content: content.into() };
        sample(
            name,
            Key::ResultBlock { tenant, shard, block: block.number },
            |out| codec::encode_results(tenant, shard, &block, out),
            |fields| codec::write_results(fields, &block),
        )
    };
    vec![
        failure("full", &full),
        failure("killed", &killed),
        failure("bare", &bare),
        results("full", b"results of two items"),
        results("bare", b""),
    ]
}

/// An event of every kind that is stored; grants with and without a worker who held the shard.
fn event_samples() -> Vec<Sample> {
    let (shard, other) = (key(5).shard(), key(6).shard());
    let (by, fence) = (Redacted::new(worker(3)), FenceEpoch::from_raw(4));
    let handoff = HandoffId::from_raw(6);
    let grant = EventKind::ShardAcquired { shard, worker: by, fence_epoch: fence };
    let (both, one, none) = ([Some(by); 2], [Some(by), None], [None; 2]);
    let split = EventKind::ShardSplit { parent: shard, children: vec![other, key(7).shard()] };
    let residual = EventKind::ShardResidualCreated { parent: shard, residual: other };
    let action = EventKind::ShardActionRequested { shard, action: "hand-off" };
    let revoked = EventKind::ShardLeaseRevoked { shard, new_fence_epoch: fence };
    let kinds = [
        ("full", both, grant.clone()),
        ("granted", one, grant),
        ("residual", one, residual),
        ("unparked", none, EventKind::ShardUnparked { shard, new_fence_epoch: fence }),
        ("completed", one, EventKind::ShardCompleted { shard }),
        ("parked", one, EventKind::ShardParked { shard, reason: ParkReason::Poisoned }),
        ("split", one, split),
        ("released", one, EventKind::ShardReleased { shard }),
        ("offered", one, EventKind::ShardOffered { shard, handoff }),
        ("withdrawn", one, EventKind::ShardOfferWithdrawn { shard, handoff }),
        ("requested", one, action),
        ("revoked", one, revoked),
        ("created", none, EventKind::RunCreated),
        ("activated", none, EventKind::RunActivated { shard_count: 64 }),
        ("run completed", none, EventKind::RunCompleted),
        ("failed", none, EventKind::RunFailed),
        ("cancelled", none, EventKind::RunCancelled),
        ("paused", none, EventKind::RunPaused),
        ("bare", none, EventKind::RunResumed),
    ];
    kinds.into_iter().map(|(name, by, kind)| event_sample(name, by, kind)).collect()
}

fn event_sample(
    name: &'static str,
    [worker, previous]: [Option<Redacted<WorkerId>>; 2],
    kind: EventKind,
) -> Sample {
    let (tenant, run, writer) = (TENANT, RUN, EventWriter::from_raw(0xBEEF));
    let (sequence, at) = (513, at(1_700_000_000_000));
    let event = StoredEvent { writer, sequence, earlier: 512, at, worker, previous, kind };
    sample(
        name,
        Key::Event { tenant, run, writer: writer.as_raw(), slot: 1 },
        |out| codec::encode_event(tenant, run, &event, out),
        |fields| codec::write_event(fields, &event),
    )
}

/// One key of each reserved kind, in the order of their numbers.
pub(super) fn reserved_keys() -> [Key; 4] {
    let (tenant, run, shard) = (TENANT, RUN, key(5));
    [
        Key::FenceFloor { tenant, run },
        Key::KeyLedger { tenant, shard, block: 9 },
        Key::Budget { tenant, run, number: 1 },
        Key::TenantEntry { tenant },
    ]
}

const PROCESS: WorkerProcess = WorkerProcess {
    boot: *b"boot id 16 bytes",
    pid_namespace: 0xF000_0004,
    process: ProcessId { pid: 4711, started: 86_400 },
    watcher: None,
    label: None,
};

const WATCHER: ProcessId = ProcessId { pid: 4712, started: 86_401 };

fn sample_worker(name: &'static str, process: Option<WorkerProcess>) -> Sample {
    let (worker, state, expires_at) = (worker(3), WorkerState::Draining, at(99));
    let entry = WorkerEntry { worker, state, expires_at, process };
    sample(
        name,
        Key::Worker { tenant: TENANT, worker },
        |out| codec::encode_worker(TENANT, &entry, out),
        |fields| codec::write_worker(fields, &entry),
    )
}

fn sample_handoff(name: &'static str, handoff: HandoffId, payload: &[u8]) -> Sample {
    sample(
        name,
        Key::Handoff { tenant: TENANT, handoff },
        |out| {
            codec::encode_handoff(TENANT, handoff, (0xF00D, payload), out)
                .expect("a short payload");
        },
        |fields| codec::write_handoff(fields, 0xF00D, payload),
    )
}

fn sample(
    name: &'static str,
    key: Key,
    encode: impl FnOnce(&mut Vec<u8>),
    trace: impl FnOnce(&mut Fields),
) -> Sample {
    let (mut value, mut fields) = (Vec::new(), Fields::default());
    encode(&mut value);
    trace(&mut fields);
    Sample { name, key, value, fields, partner: None }
}

/// The sample of that kind and name.
pub(super) fn sample_of(kind: KeyKind, name: &str) -> &'static Sample {
    let mut all = samples().iter();
    all.find(|sample| sample.key.kind() == kind && sample.name == name).expect("a sample")
}
