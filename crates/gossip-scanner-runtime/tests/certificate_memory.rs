//! The memory of an export does not depend on the number of shards.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::io::{BufReader, Seek as _};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, plan_split_residual,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, Lease, RunConfig, RunManagement, ShardFilter,
};
use gossip_scanner_runtime::certificate::{Against, CertificateWriter, Request, RunLeaves, verify};
use gossip_scanner_runtime::connectors::{Source, SourceOptions};
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TENANT: TenantId = TenantId::from_bytes([0x5c; 32]);
const RUN: RunId = RunId::from_raw(0x31);
const NOW: LogicalTime = LogicalTime::from_raw(1_000);
/// As many as a run may begin with; each is split into two.
const ROOTS: u64 = 10_000;
/// Bytes of a bound: twenty thousand leaves with two bounds and a cursor have 18 MB, and their
/// rows more.
const KEY_LEN: usize = 300;
/// What an export may hold at a time: the leaves that are sorted in memory, a page of the store,
/// and buffers.
const PEAK_MAX: i64 = 10 << 20;

type Coordinator = StoreCoordinator<MapStore>;

fn key(number: u64) -> Vec<u8> {
    format!("{number:0KEY_LEN$}").into_bytes()
}

fn acquire(coordinator: &mut Coordinator, shard: ShardId) -> Lease {
    let (key, mut scratch) = (ShardKey::new(RUN, shard), Box::<AcquireScratch>::default());
    let worker = WorkerId::from_raw(1);
    coordinator.acquire_and_restore_into(NOW, TENANT, key, worker, &mut scratch).unwrap().lease
}

fn complete(coordinator: &mut Coordinator, lease: &Lease, last: &[u8], op: u64) {
    let cursor = CursorUpdate::with_last_key(last);
    coordinator.complete(NOW, TENANT, lease, cursor, OpId::from_raw(op)).unwrap();
}

/// A run of twice [`ROOTS`] leaves, all done. The ids of half of them are hashes, so they come in
/// another order than their ranges.
fn finished_run() -> Coordinator {
    let mut coordinator = StoreCoordinator::new(MapStore::default(), StoreConfig::new(7));
    let bounds: Vec<Vec<u8>> = (0..=2 * ROOTS).map(key).collect();
    let bound = |number: u64| &bounds[usize::try_from(number).unwrap()][..];
    let shards: Vec<InitialShardInput<'_>> = (0..ROOTS)
        .map(|root| InitialShardInput {
            shard_id: ShardId::from_raw(root),
            spec: ShardSpecRef::new(bound(2 * root), bound(2 * root + 2), b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap();
    let op = OpId::from_raw(1);
    coordinator.create_run_with_shards(NOW, TENANT, RUN, config, &shards, op).unwrap();
    for root in 0..ROOTS {
        let lease = acquire(&mut coordinator, ShardId::from_raw(root));
        let spec = |first, end| ShardSpecRef::new(bound(first), bound(end), b"");
        let (first, middle, end) = (2 * root, 2 * root + 1, 2 * root + 2);
        let plan =
            plan_split_residual(spec(first, end), spec(first, middle), spec(middle, end)).unwrap();
        let split = coordinator.split_residual(NOW, TENANT, &lease, &plan, OpId::from_raw(2));
        let residual = split.unwrap().into_inner().residual;
        complete(&mut coordinator, &lease, bound(first), 3);
        let lease = acquire(&mut coordinator, residual);
        complete(&mut coordinator, &lease, bound(middle), 4);
    }
    coordinator
}

#[test]
fn export_of_twenty_thousand_leaves_is_written_in_bounded_memory() {
    let mut coordinator = finished_run();
    let source = Source::parse("range:0..1".as_ref(), SourceOptions::default()).unwrap();
    let mut request = Request::new(RUN, &source);
    (request.start, request.end) = (key(0), key(2 * ROOTS));
    let directory = std::env::temp_dir();
    let path = directory.join(format!("gossip-export-{}", std::process::id()));
    let mut file = std::fs::File::options();
    let mut file = file.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let ((), counts) = count_allocations(|| {
        let leaves = RunLeaves::read(&mut coordinator, NOW, (TENANT, RUN), &directory).unwrap();
        assert_eq!((leaves.waiting(), leaves.damaged().len()), (0, 0));
        let mut writer = CertificateWriter::new(&file, &request).unwrap();
        leaves.write_to(&request, &mut writer).unwrap();
        writer.finish(None).unwrap();
    });
    assert!(counts.peak_bytes < PEAK_MAX, "{counts:?}");
    assert!(counts.live_bytes.abs() < 1 << 20, "{counts:?}");
    // A listing of the whole run needs far more, so the bound means something.
    let (rows, counts) = count_allocations(|| {
        let mut rows = Vec::new();
        let listed = coordinator.list_shards_into(NOW, TENANT, RUN, ShardFilter::all(), &mut rows);
        listed.map(|()| rows.len()).unwrap()
    });
    assert_eq!(rows as u64, 2 * ROOTS);
    assert!(counts.peak_bytes > 2 * PEAK_MAX, "{counts:?}");
    // The leaves tile the request in their order.
    file.rewind().unwrap();
    let found = verify(BufReader::new(&file), Against::ITSELF).unwrap();
    assert_eq!((found.done, found.parked), (2 * ROOTS, 0));
}
