//! Handoff commands, on handoffs of the real state machines over a store in memory.

use std::sync::Arc;

use gossip::coordination::{AcquireScratch, CoordinationBackend as _, Lease, RunConfig};
use gossip::handoff::Phase;
use gossip::handoff::lease_handoff::{DestinationNext, HandoffDestination, worker_name};
use gossip::identity::{LogicalTime, OpId, RunId, ShardId, WorkerId};
use gossip::model::{Cursor, CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip::store::StoreUrl;

use super::*;
use crate::reference::id_start;
use crate::screen::Screen;
use crate::screen::style::Color;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const KEY: ShardKey = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(1));
const SOURCE: WorkerId = WorkerId::from_raw(1);
const DESTINATION: WorkerId = WorkerId::from_raw(2);

/// A shard that one worker has offered to another.
struct Offered {
    backend: Backend,
    handoffs: Handoffs,
    lease: Lease,
    id: String,
}

fn console() -> Console {
    Console::new(true, 0, Arc::new(Screen::new(Color::Never)))
}

fn now() -> LogicalTime {
    SystemClock::new().now()
}

impl Offered {
    fn new() -> Self {
        let backend = Backend::open(&StoreUrl::memory()).expect("a store in memory always opens");
        let mut handoffs = Handoffs::new(&backend, TENANT);
        let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, None).unwrap();
        let root = InitialShardInput {
            shard_id: KEY.shard(),
            spec: ShardSpecRef::new(b"a", b"z", b""),
            cursor: CursorUpdate::initial(),
        };
        let (coordinator, op) = (&mut handoffs.coordinator, OpId::from_raw(1));
        coordinator.create_run_with_shards(now(), TENANT, KEY.run(), config, &[root], op).unwrap();
        let mut scratch = AcquireScratch::new();
        let acquired =
            coordinator.acquire_and_restore_into(now(), TENANT, KEY, SOURCE, &mut scratch);
        let lease = acquired.unwrap().lease;
        let config = HandoffConfig::default();
        let terms =
            MoveTerms::new(&lease, DESTINATION, 0, now().saturating_add(config.offer_ticks));
        let id = terms.id.as_str().to_owned();
        let stopped_at = Cursor::with_last_key(b"k");
        let mut source = HandoffSource::new(terms, stopped_at, Vec::new(), config, now()).unwrap();
        let Handoffs { coordinator, records, .. } = &mut handoffs;
        let mut driver = Driver { tenant: TENANT, backend: coordinator, records };
        while driver.step_source(&mut source, Some(&lease), now()) == SourceNext::Again {}
        Self { backend, handoffs, lease, id }
    }

    /// Accepts the offer.
    fn accept(&mut self) {
        let Handoffs { coordinator, records, .. } = &mut self.handoffs;
        let mut driver = Driver { tenant: TENANT, backend: coordinator, records };
        let found = driver.records.in_progress(&worker_name(DESTINATION)).unwrap().remove(0);
        let mut destination =
            HandoffDestination::new(found, HandoffConfig::default(), now()).unwrap();
        let mut scratch = AcquireScratch::new();
        let next = driver.step_destination(&mut destination, &mut scratch, now());
        assert!(matches!(next, DestinationNext::Live(_)), "the offer is valid");
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        let id = self.id.clone();
        self.handoffs.rollback(&id, &console())
    }

    fn described(&mut self) -> String {
        let record = self.handoffs.get(&self.id).unwrap().record;
        format!("{:?}", self.handoffs.describe(&record).unwrap())
    }
}

#[test]
fn description_combines_record_and_shard() {
    let mut offered = Offered::new();
    let before = offered.described();
    assert!(before.contains("not moved") && before.contains(&offered.id), "{before}");
    offered.accept();
    assert!(offered.described().contains("\"moved\""), "{}", offered.described());
}

#[test]
fn rollback_of_a_pending_offer_requests_a_withdrawal() {
    let mut offered = Offered::new();
    offered.rollback().expect("the request is stored");
    let renewed = offered.backend.coordinator().renew(now(), TENANT, &offered.lease);
    let request = renewed.expect("the lease is live").request.expect("a request is pending");
    assert_eq!(request.action().label(), "withdraw");
}

#[test]
fn completed_handoff_is_not_rolled_back() {
    let mut offered = Offered::new();
    offered.accept();
    let failure = offered.rollback().expect_err("a shard never has two owners");
    assert_eq!((failure.code, failure.what.as_str()), (Code::Usage, "the handoff has completed"));
    assert!(failure.next.is_some_and(|next| next.contains("handoff start")));
}

#[test]
fn rollback_closes_the_record_of_an_impossible_handoff() {
    let mut offered = Offered::new();
    let coordinator = &mut offered.handoffs.coordinator;
    coordinator.revoke_lease(now(), TENANT, KEY, None, OpId::from_raw(9)).unwrap();
    let mut scratch = AcquireScratch::new();
    coordinator.acquire_and_restore_into(now(), TENANT, KEY, SOURCE, &mut scratch).unwrap();
    offered.rollback().expect("the offer cannot be accepted any more");
    assert_eq!(offered.handoffs.get(&offered.id).unwrap().record.state, Phase::RolledBack);
    let again = offered.rollback().expect_err("the handoff is rolled back");
    assert_eq!(again.code, Code::Usage);
}

#[test]
fn handoff_to_an_unknown_worker_is_rejected() {
    let mut offered = Offered::new();
    let console = console();
    let failure = offered
        .handoffs
        .start(KEY, Some(id_start("0000000000000002").unwrap()), &console)
        .expect_err("the worker never announced itself");
    assert!(failure.what.contains("no such live worker"), "{}", failure.what);
    let missing = offered.handoffs.get("no such handoff").expect_err("there is no such record");
    assert_eq!(missing.code, Code::Usage);
}

#[test]
fn short_ids_mean_their_handoffs() {
    let id = |run: u64, shard: u64, fence: u64, attempt: u64| {
        RecordId::new(format!("{run:016x}-{shard:016x}-{fence:016x}-{attempt:08x}")).unwrap()
    };
    let (run, shard) = (0x35c9_4d9c_1234_5678, 0x0123_4567_89ab_cdef);
    let ids = [
        id(run, shard, 3, 0),
        id(run, shard + 1, 3, 0),
        id(run + 1, shard << 4, 3, 0),
        id(run, shard + 1, 0x30, 0),
        id(run, shard + 1, 0x30, 1),
    ];
    let short = short_ids(ids.iter());
    let expected = [
        "35c94d9c-0123456789abcdef",
        "35c94d9c-0123456789abcdf0-3",
        "35c94d9c-12345678",
        "35c94d9c-0123456789abcdf0-30-0",
        "35c94d9c-0123456789abcdf0-30-1",
    ];
    assert_eq!(short, expected);
    for (short, own) in short.iter().zip(&ids) {
        let meant: Vec<_> = ids.iter().filter(|id| means(short, id.as_str())).collect();
        assert_eq!(meant, [own]);
        assert!(means(own.as_str(), own.as_str()));
    }
    assert!(!means("", ids[0].as_str()) && !means("35c94d9c-", ids[0].as_str()));
}

#[test]
fn handoff_is_found_by_its_short_id() {
    let mut offered = Offered::new();
    let whole = RecordId::new(offered.id.clone()).unwrap();
    let short = short_ids(std::iter::once(&whole)).remove(0);
    assert_eq!(short, "00000000-00000000");
    assert_eq!(offered.handoffs.get(&short).unwrap().record.id, whole);
    assert_eq!(offered.handoffs.get("1").unwrap_err().code, Code::Usage);
}
