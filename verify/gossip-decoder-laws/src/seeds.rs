//! Seed inputs: outputs of the encoders, and user input.
//!
//! Seeds of stored values are payloads, because the laws seal them.

use std::ffi::OsString;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_KEY_SIZE, MAX_METADATA_SIZE,
    MAX_SPAWNED_PER_SHARD, MAX_TOKEN_SIZE, ShardSpecRef, plan_split_residual_at_point,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, Redacted, RunId, ShardId, ShardKey, WorkerId,
};
use gossip_coordination::protocol::{OfferTerms, Tombstone};
use gossip_coordination::store::{
    Key, OwnerBinding, RootProgress, encode_cold, encode_event, encode_failure, encode_hot,
    encode_owner, encode_results, encode_roots, encode_run_head, encode_tenant_count,
    encode_tombstone, encode_worker,
};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, EventKind, EventWriter,
    ExitCause, FailureKind, FailureRecord, GrantToken, HandoffId, InMemoryCoordinator, Lease,
    OP_LOG_CAP, ParkReason, ProcessId, RUN_OP_LOG_CAP, ResultBlock, RunConfig, RunManagement,
    RunName, ShardStatus, ShortText, StoredEvent, WorkerEntry, WorkerLabel, WorkerProcess,
    WorkerState,
};
use gossip_frontier::hint::{MetadataBuf, ShardHint, ShardMetadata};
use gossip_handoff::{Phase, Record, RecordId};
use gossip_scanner_runtime::certificate::{
    CertificateWriter, LeafRecord, LeafStatus, ParkedFor, Request,
};
use gossip_scanner_runtime::connectors::{SourceOptions, SourceStamp, row_key};
use gossip_scanner_runtime::{Accumulator, Job, RuntimeToken, StreamFormat};

use crate::seal::{FRAME_LEN, RUN, TENANT, shard};

/// Room for a shard with a thousand children whose keys and metadata are as long as they may be.
const FULL_SLAB_BYTES: usize = 1 << 26;

/// The texts as bytes.
fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// The payload of what `encode` writes.
fn payload(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut value = Vec::new();
    encode(&mut value);
    value[FRAME_LEN.0..value.len() - FRAME_LEN.1].to_vec()
}

pub(crate) fn certificates() -> Vec<Vec<u8>> {
    let request = Request::for_range(RunId::from_raw(1), "memory:2 keys", b"a", b"z");
    let mut accumulator = Accumulator::EMPTY;
    accumulator.add(b"b");
    let leaf = |start: &[u8], end: &[u8], status| {
        LeafRecord::new(start, end, status, FenceEpoch::from_raw(1)).with_progress(
            b"b",
            accumulator,
            0,
        )
    };
    let leaves = [
        vec![leaf(b"a", b"z", LeafStatus::Done)],
        vec![leaf(b"a", b"z", LeafStatus::Parked(ParkedFor::Poisoned))],
    ];
    let written = |leaves: &Vec<LeafRecord>| {
        let mut writer =
            CertificateWriter::new(Vec::new(), &request).expect("writing to memory does not fail");
        leaves.iter().for_each(|leaf| writer.leaf(leaf).expect("writing to memory does not fail"));
        writer.finish(None).expect("writing to memory does not fail")
    };
    leaves.iter().map(written).collect()
}

pub(crate) fn commands() -> Vec<Vec<u8>> {
    texts(&[
        "wc\0-c\0{}",
        "convert\0{}\0{}.png",
        "sh\0-c\0cat \"$1\"\0sh\0{}",
        "true",
        "sh\0-c\0{}",
    ])
}

pub(crate) fn counters() -> Vec<Vec<u8>> {
    let count = |count| payload(|out| encode_tenant_count(TENANT, count, out));
    vec![count(0), count(12_345), count(u64::MAX)]
}

pub(crate) fn hints() -> Vec<Vec<u8>> {
    let hints = [ShardHint::Range, ShardHint::Prefix { prefix: b"a/b/" }];
    let encoded = |hint| {
        let mut buf = MetadataBuf::new();
        let metadata = ShardMetadata { hint, connector_extra: b"extra" };
        metadata.encode_into(&mut buf).expect("a short one").to_vec()
    };
    hints.into_iter().map(encoded).collect()
}

pub(crate) fn index_entries() -> Vec<Vec<u8>> {
    vec![vec![0], vec![1], vec![2], vec![2, 0]]
}

/// Up to two keys of the widest kind.
pub(crate) fn integer_keys() -> Vec<Vec<u8>> {
    (1..=8).map(|words| (0..words * 8).collect()).collect()
}

pub(crate) fn jobs() -> Vec<Vec<u8>> {
    let job = |command: &[&str], stamp, stream| Job {
        source: OsString::from("lines:/data/x"),
        options: SourceOptions { ignore: true, follow_links: false, no_header: false },
        stamp,
        command: command.iter().map(OsString::from).collect(),
        stream,
    };
    let stamp = Some(SourceStamp { len: 9, modified: 10 });
    let jobs = [
        job(&[], None, None),
        job(&["wc", "-c", "{}"], stamp, Some(StreamFormat::Json)),
        job(&["wc", "-c", "{}"], stamp, Some(StreamFormat::Lines)),
    ];
    jobs.iter().map(|job| job.encode().expect("a short job")).collect()
}

pub(crate) fn pairs_of_keys() -> Vec<Vec<u8>> {
    let mut around_the_limit = vec![0xC1, b'a', 0xFF, 0, 5, 0xC1, b'b', 0, 1, 7, 9];
    // One in so many inputs is long: the last byte makes this one of them.
    let sum: u8 = around_the_limit.iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
    around_the_limit.push(sum.wrapping_neg());
    vec![b"\x01a\x01z\x05".to_vec(), b"\x03abc\x02ab\x08".to_vec(), around_the_limit]
}

pub(crate) fn line_files() -> Vec<Vec<u8>> {
    texts(&["\0a\nbb\r\n\nccc", "\x02\n\n\n", "\x03no feed", "\x01a\rb\r\n"])
}

pub(crate) fn manifest_files() -> Vec<Vec<u8>> {
    texts(&[
        "\0\0{\"a\":1}\n\n[1, 2.5e3]\r\n\"text\"",
        "\0\x01{\"a\":\n1}\n",
        "\x01\0a,b\n1,\"x\ny\"\n\"\"\"q\"\"\",2\r\n",
        "\x02\x01name,size\nx,1\ny,2\nz,\"3\"\"\"",
        "\x01\0open,\"quote\n",
    ])
}

pub(crate) fn shard_manifests() -> Vec<Vec<u8>> {
    vec![
        b"\0\x01\x01a\x01c\0\x01b\0\x02\x01c\x01e\0\0\0".to_vec(),
        b"\0\xE1\x01a\x01c\0\0\0\x01\x01b\x01d\0\0\0".to_vec(),
        b"\xA5\x01\x01a\x01c\0\0\0".to_vec(),
    ]
}

pub(crate) fn move_records() -> Vec<Vec<u8>> {
    let record = |state, snapshot: &[u8], error: &str| Record {
        id: RecordId::new("move").expect("a short name"),
        subject: "shard/1".to_owned(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        state,
        started_at: LogicalTime::from_raw(3),
        last_transition: LogicalTime::from_raw(4),
        snapshot: snapshot.to_vec(),
        error: error.to_owned(),
    };
    let records = [
        record(Phase::Lock, b"", ""),
        record(Phase::Transfer, b"snapshot", ""),
        record(Phase::Complete, b"", ""),
        record(Phase::RolledBack, b"snapshot", "why"),
    ];
    records.iter().map(Record::to_bytes).collect()
}

pub(crate) fn move_terms() -> Vec<Vec<u8>> {
    let numbers = ["0000000000000001", "00000000000000ff", "0000000000000007", "ffffffffffffffff"];
    let subject = format!("shard/{}", numbers.join("/"));
    texts(&[&format!("{subject}\0{}\0{}", numbers[0], numbers[1]), "shard/1/2/3/4\0a\0b"])
}

pub(crate) fn move_values() -> Vec<Vec<u8>> {
    move_records().into_iter().chain([Vec::new()]).collect()
}

pub(crate) fn row_keys() -> Vec<Vec<u8>> {
    [0, 7, u64::MAX].map(|row| row_key(row).to_vec()).to_vec()
}

/// Steps of eight bytes, which are numbers to draw from. The long ones fill operation logs, and
/// repeat operations that a full log has dropped.
pub(crate) fn sequences() -> Vec<Vec<u8>> {
    let sequence = |(seed, steps): (u64, u64)| -> Vec<u8> {
        let number = |step: u64| (seed + step).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        (0..steps).flat_map(|step| number(step).to_le_bytes()).collect()
    };
    [(0, 12), (1, 12), (2, 12), (3, 12), (4, 500), (504, 500)].map(sequence).to_vec()
}

pub(crate) fn owners() -> Vec<Vec<u8>> {
    let owner = OwnerBinding {
        owner: WorkerId::from_raw(3),
        fence: FenceEpoch::from_raw(8),
        token: GrantToken::from_raw(0xFEED),
    };
    vec![payload(|out| encode_owner(TENANT, shard(false), &owner, out))]
}

pub(crate) fn run_heads() -> Vec<Vec<u8>> {
    let mut coordinator = shards_in_every_state();
    let head = |coordinator: &mut InMemoryCoordinator| {
        let run = coordinator.get_run(TENANT, RUN).expect("a run");
        let count = u32::try_from(run.root_shards().len()).expect("few roots");
        let last_chunk_at = run.created_at();
        let roots = RootProgress { total: count, registered: count, chunks: 1, last_chunk_at };
        payload(|out| encode_run_head(&run, roots, out))
    };
    let active = head(&mut coordinator);
    // A head with a full log: it drops its oldest operation.
    for step in 0..RUN_OP_LOG_CAP as u64 {
        let changed = match step % 2 {
            0 => coordinator.pause_run(at(50), TENANT, RUN, op(70 + step)),
            _ => coordinator.resume_run(at(50), TENANT, RUN, op(70 + step)),
        };
        changed.expect("an active run");
    }
    let full = head(&mut coordinator);
    coordinator.cancel_run(at(60), TENANT, RUN, op(90)).expect("an active run");
    vec![active, full, head(&mut coordinator)]
}

pub(crate) fn run_roots() -> Vec<Vec<u8>> {
    let roots = |ids: &[u64]| {
        let ids: Vec<ShardId> = ids.iter().copied().map(ShardId::from_raw).collect();
        payload(|out| encode_roots(TENANT, RUN, 2, &ids, out))
    };
    vec![roots(&[0]), roots(&[0, 1, 7]), roots(&[5, 6, 7, 8, 9])]
}

pub(crate) fn tokens() -> Vec<Vec<u8>> {
    let mut accumulator = Accumulator::EMPTY;
    accumulator.add(b"key");
    let tokens = [
        RuntimeToken::START,
        RuntimeToken { unread: 1, ..RuntimeToken::new(accumulator, b"token") },
        RuntimeToken { found: 3, ..RuntimeToken::new(accumulator, b"") },
    ];
    let encoded = |token: &RuntimeToken<'_>| {
        let mut out = Vec::new();
        token.encode_into(&mut out).expect("a short token");
        out
    };
    tokens.iter().map(encoded).collect()
}

/// Where the parts are cut, whether the shard is derived, and both payloads.
pub(crate) fn whole_shards() -> Vec<Vec<u8>> {
    let whole = |(derived, hot, cold): (bool, Vec<u8>, Vec<u8>)| {
        let cut = u16::try_from(hot.len()).expect("short keys");
        let [low, high] = cut.to_le_bytes();
        [vec![low, high, u8::from(derived)], hot, cold].concat()
    };
    parts().into_iter().map(whole).collect()
}

pub(crate) fn hot_shards() -> Vec<Vec<u8>> {
    let with_flag = |(derived, hot, _): (bool, Vec<u8>, _)| [vec![u8::from(derived)], hot].concat();
    parts().into_iter().map(with_flag).collect()
}

pub(crate) fn cold_shards() -> Vec<Vec<u8>> {
    let with_flag =
        |(derived, _, cold): (bool, _, Vec<u8>)| [vec![u8::from(derived)], cold].concat();
    parts().into_iter().map(with_flag).collect()
}

pub(crate) fn source_ranges() -> Vec<Vec<u8>> {
    texts(&["0..10", "5..=5", "1_000..2_000", "0..=18446744073709551615", "9..1", "+1..2"])
}

pub(crate) fn store_keys() -> Vec<Vec<u8>> {
    let (tenant, shard, run) = (TENANT, shard(true), RUN);
    let (at, handoff) = (at(4), HandoffId::from_raw(6));
    let worker = WorkerId::from_raw(5);
    let keys = [
        Key::RunHead { tenant, run },
        Key::RunRoots { tenant, run, chunk: 2 },
        Key::ShardHot { tenant, shard },
        Key::ShardCold { tenant, shard },
        Key::Owner { tenant, shard },
        Key::ClaimIndex { tenant, shard, at },
        Key::ParkedIndex { tenant, shard },
        Key::TenantCounter { tenant },
        Key::Allotment { tenant },
        Key::Worker { tenant, worker },
        Key::Handoff { tenant, handoff },
        Key::Tombstone { tenant, run },
        Key::HandoffIndex { tenant, party: 9, handoff },
        Key::FenceFloor { tenant, run },
        Key::Failure { tenant, shard, number: 1 },
        Key::Event { tenant, run, writer: 3, slot: 7 },
        Key::KeyLedger { tenant, shard, block: 2 },
        Key::ResultBlock { tenant, shard, block: 2 },
        Key::Budget { tenant, run, number: 1 },
        Key::TenantEntry { tenant },
        Key::SchemaVersion,
    ];
    keys.iter().map(|key| key.to_bytes().as_bytes().to_vec()).collect()
}

pub(crate) fn store_urls() -> Vec<Vec<u8>> {
    texts(&[
        "memory:",
        "sqlite:a/b.db?sync=relaxed",
        "etcd://host/team/prod",
        "etcd://us%40er@[::1]:2379,other/x?retries=3&connect_timeout=500ms&coalesce=off&tls=off",
        "etcd://h/x?ca=/a&cert=/b&key=/c&server_name=s&owner_lease_ttl=15s&max_txn_ops=128",
        "etcd:h",
        "https://h",
    ])
}

pub(crate) fn stream_answers() -> Vec<Vec<u8>> {
    texts(&[
        "{\"type\":\"done\",\"id\":7}\n{\"type\":\"done\",\"id\":8,\"findings\":3}\n",
        "{\"type\":\"error\",\"id\":7,\"message\":\"why\",\"retry\":false}\n\n{\"id\":1}",
        "{\"type\":\"error\",\"id\":18446744073709551615,\"retry\":true}",
    ])
}

pub(crate) fn tombstones() -> Vec<Vec<u8>> {
    let tombstone = Tombstone { op_id: op(9), payload_hash: 77 };
    vec![payload(|out| encode_tombstone(TENANT, RUN, &tombstone, out))]
}

pub(crate) fn events() -> Vec<Vec<u8>> {
    let (shard, fence) = (shard(false).shard(), FenceEpoch::from_raw(4));
    let (by, handoff) = (Redacted::new(WorkerId::from_raw(5)), HandoffId::from_raw(6));
    let kinds = [
        EventKind::ShardAcquired { shard, worker: by, fence_epoch: fence },
        EventKind::ShardResidualCreated { parent: shard, residual: shard },
        EventKind::ShardLeaseRevoked { shard, new_fence_epoch: fence },
        EventKind::ShardCompleted { shard },
        EventKind::ShardParked { shard, reason: ParkReason::Poisoned },
        EventKind::ShardSplit { parent: shard, children: vec![shard; 3] },
        EventKind::ShardOffered { shard, handoff },
        EventKind::ShardActionRequested { shard, action: "hand-off" },
        EventKind::RunActivated { shard_count: 64 },
        EventKind::RunCompleted,
    ];
    let event = |(number, kind): (u64, EventKind)| StoredEvent {
        writer: EventWriter::from_raw(3),
        sequence: 700 + number,
        earlier: 600,
        at: at(99),
        worker: Some(by),
        previous: (number % 2 == 0).then_some(by),
        kind,
    };
    let events = (0..).zip(kinds).map(event);
    events.map(|event| payload(|out| encode_event(TENANT, RUN, &event, out))).collect()
}

pub(crate) fn side_records() -> Vec<Vec<u8>> {
    let failure = FailureRecord {
        key: b"k".as_slice().into(),
        place: "urls.txt:2".into(),
        kind: FailureKind::Failed,
        exit: Some(ExitCause::Code(22)),
        tries: 3,
        at: at(99),
        host: "host".into(),
        pid: 7,
        message: "exit status 22".into(),
        stderr: b"not found".as_slice().into(),
    };
    let unread = FailureRecord { exit: None, kind: FailureKind::Unread, ..failure.clone() };
    let killed = FailureRecord { exit: Some(ExitCause::Signal(9)), ..failure.clone() };
    let block = ResultBlock { number: 9, content: b"results".as_slice().into() };
    let failures = [failure, unread, killed];
    let failures = failures.map(|it| payload(|out| encode_failure(TENANT, shard(false), &it, out)));
    let results = payload(|out| encode_results(TENANT, shard(false), &block, out));
    let with = |kind: u8, payload: Vec<u8>| [vec![kind], payload].concat();
    failures.into_iter().map(|it| with(0, it)).chain([with(1, results)]).collect()
}

pub(crate) fn workers() -> Vec<Vec<u8>> {
    let states = WorkerState::ALL;
    let process = ProcessId { pid: 7, started: 8 };
    let (watcher, label) = (None, None);
    let alone = WorkerProcess { boot: [9; 16], pid_namespace: 10, process, watcher, label };
    let (host, version) = (ShortText::cut("host"), ShortText::cut("0.1.0"));
    let label = Some(WorkerLabel { host, version, jobs: 8 });
    let full = WorkerProcess { watcher: Some(process), label, ..alone };
    let processes = [None, Some(alone), Some(full)];
    let worker = WorkerId::from_raw(5);
    let entry = |(state, process)| WorkerEntry { worker, state, expires_at: at(99), process };
    let entries = states.into_iter().zip(processes).map(entry);
    entries.map(|entry| payload(|out| encode_worker(TENANT, &entry, out))).collect()
}

const fn at(time: u64) -> LogicalTime {
    LogicalTime::from_raw(time)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// Both payloads of every shard of [`shards_in_every_state`], and whether it is derived.
fn parts() -> Vec<(bool, Vec<u8>, Vec<u8>)> {
    let coordinator = shards_in_every_state();
    let mut keys: Vec<ShardKey> = (0..4).map(root).collect();
    let split = coordinator.shard(TENANT, root(0)).expect("a shard");
    keys.extend(split.spawned().map(|id| ShardKey::new(RUN, id)));
    let mut parts: Vec<_> = keys.into_iter().map(|key| parts_of(&coordinator, key)).collect();
    // A full log alone, and with everything else at its limit too.
    for (key_len, token_len, metadata_len, splits) in
        [(8, 8, 8, 2), (MAX_KEY_SIZE, MAX_TOKEN_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD)]
    {
        let coordinator = full_shard(key_len, token_len, metadata_len, splits);
        parts.push(parts_of(&coordinator, root(0)));
    }
    parts
}

fn parts_of(coordinator: &InMemoryCoordinator, key: ShardKey) -> (bool, Vec<u8>, Vec<u8>) {
    let shard = coordinator.shard(TENANT, key).expect("a shard");
    let time = shard.record().lease_deadline().unwrap_or(LogicalTime::ZERO);
    let indexed_at = (shard.record().status() == ShardStatus::Active).then_some(time);
    let hot = payload(|out| encode_hot(shard, indexed_at, out));
    (key.shard().is_derived(), hot, payload(|out| encode_cold(shard, out)))
}

/// A leased shard whose operation log is full: it was split `splits` times and checkpointed as
/// often as its log holds operations, with keys, token and metadata of these lengths.
fn full_shard(
    key_len: usize,
    token_len: usize,
    metadata_len: usize,
    splits: usize,
) -> InMemoryCoordinator {
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        slab_capacity: FULL_SLAB_BYTES,
        ..CoordinatorRuntimeConfig::default()
    });
    // Keys are ordered by their last two bytes.
    let key = |first: u8, last: usize| {
        let mut key = vec![first; key_len];
        let last = u16::try_from(last).expect("few keys").to_be_bytes();
        key[key_len - 2..].copy_from_slice(&last);
        key
    };
    let (start, end, metadata) = (key(b'a', 0), key(b'z', 0), vec![7; metadata_len]);
    let shards = [InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(&start, &end, &metadata),
        cursor: CursorUpdate::initial(),
    }];
    let config = RunConfig::try_new(CursorSemantics::Completed, 50, None).expect("a good lease");
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &shards, op(1));
    made.expect("a new run");
    let mut lease = acquire(&mut coordinator, 0);
    let mut end = end;
    for split in 0..splits {
        let point = key(b'y', splits - split);
        let spec = ShardSpecRef::new(&start, &end, &metadata);
        let plan = plan_split_residual_at_point(spec, &point).expect("a point inside");
        lease.set_sequence(lease.sequence().next());
        let split =
            coordinator.split_residual(at(3), TENANT, &lease, &plan, op(10_000 + split as u64));
        split.expect("a good split");
        end = point;
    }
    let token = vec![8; token_len];
    for step in 0..OP_LOG_CAP {
        let cursor = key(b'b', step);
        let cursor = CursorUpdate::new(&cursor, &token);
        lease.set_sequence(lease.sequence().next());
        let id = op(20_000 + step as u64);
        coordinator.checkpoint(at(4), TENANT, &lease, cursor, id).expect("progress");
    }
    coordinator
}

const fn root(id: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(id))
}

/// A run of four roots: one that was split, moved on and is offered; one that is parked; one that
/// is done; one that is untouched.
fn shards_in_every_state() -> InMemoryCoordinator {
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig::default());
    let bounds: [&[u8]; 5] = [b"a", b"g", b"m", b"s", b"z"];
    let shards: Vec<InitialShardInput<'_>> = (0..4)
        .map(|index| InitialShardInput {
            shard_id: ShardId::from_raw(index as u64),
            spec: ShardSpecRef::new(bounds[index], bounds[index + 1], b"meta"),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 50, None).expect("a good lease");
    let config = config.with_name(Some(RunName::try_new("nightly").expect("a name")));
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &shards, op(1));
    made.expect("a new run");
    let split = acquire(&mut coordinator, 0);
    let plan = plan_split_residual_at_point(shards[0].spec, b"d").expect("a point inside");
    coordinator.split_residual(at(3), TENANT, &split, &plan, op(2)).expect("a good split");
    let cursor = CursorUpdate::new(b"b", b"token");
    coordinator.checkpoint(at(4), TENANT, &split, cursor, op(3)).expect("progress");
    let offer = OfferTerms {
        handoff: HandoffId::from_raw(4),
        destination: WorkerId::from_raw(2),
        deadline: at(40),
    };
    let offered = coordinator.offer(at(5), TENANT, &split, offer, CursorUpdate::initial(), op(4));
    offered.expect("a live lease");
    let parked = acquire(&mut coordinator, 1);
    let reason = ParkReason::Poisoned;
    coordinator.park_shard(at(6), TENANT, &parked, reason, op(5)).expect("a live lease");
    let done = acquire(&mut coordinator, 2);
    let last = CursorUpdate::new(b"n", b"");
    coordinator.complete(at(7), TENANT, &done, last, op(6)).expect("a live lease");
    coordinator
}

fn acquire(coordinator: &mut InMemoryCoordinator, id: u64) -> Lease {
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let acquired =
        coordinator.acquire_and_restore_into(at(2), TENANT, root(id), worker, &mut scratch);
    acquired.expect("a free shard").lease
}
