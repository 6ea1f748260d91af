//! Commands about moves, on moves that real machines have made over a store in memory.

use gossip::coordination::{AcquireScratch, CoordinationBackend as _, Lease, RunConfig};
use gossip::handoff::Phase;
use gossip::handoff::lease_handoff::{DestinationNext, HandoffDestination, worker_name};
use gossip::identity::{LogicalTime, OpId};
use gossip::model::{Cursor, CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip::store::StoreUrl;

use super::*;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const KEY: ShardKey = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(1));
const ADA: WorkerId = WorkerId::from_raw(1);
const BOB: WorkerId = WorkerId::from_raw(2);

/// A shard that Ada has offered to Bob.
struct Offered {
    backend: Backend,
    moves: Moves,
    lease: Lease,
    id: String,
}

fn now() -> LogicalTime {
    SystemClock::new().now()
}

impl Offered {
    fn new() -> Self {
        let backend = Backend::open(&StoreUrl::Memory).expect("memory is there");
        let mut moves = Moves::new(&backend, TENANT);
        let config = RunConfig::try_new(CursorSemantics::Completed, 15_000, None).unwrap();
        let root = InitialShardInput {
            shard_id: KEY.shard(),
            spec: ShardSpecRef::new(b"a", b"z", b""),
            cursor: CursorUpdate::initial(),
        };
        let (coordinator, op) = (&mut moves.coordinator, OpId::from_raw(1));
        coordinator.create_run_with_shards(now(), TENANT, KEY.run(), config, &[root], op).unwrap();
        let mut scratch = AcquireScratch::new();
        let acquired = coordinator.acquire_and_restore_into(now(), TENANT, KEY, ADA, &mut scratch);
        let lease = acquired.unwrap().lease;
        let config = HandoffConfig::default();
        let terms = MoveTerms::new(&lease, BOB, 0, now().saturating_add(config.offer_ticks));
        let id = terms.id.as_str().to_owned();
        let stopped_at = Cursor::with_last_key(b"k");
        let mut source = HandoffSource::new(terms, stopped_at, Vec::new(), config, now()).unwrap();
        let Moves { coordinator, records, .. } = &mut moves;
        let mut driver = Driver { tenant: TENANT, backend: coordinator, records };
        while driver.step_source(&mut source, Some(&lease), now()) == SourceNext::Again {}
        Self { backend, moves, lease, id }
    }

    /// Lets Bob take it.
    fn accept(&mut self) {
        let Moves { coordinator, records, .. } = &mut self.moves;
        let mut driver = Driver { tenant: TENANT, backend: coordinator, records };
        let found = driver.records.in_progress(&worker_name(BOB)).unwrap().remove(0);
        let mut bob = HandoffDestination::new(found, HandoffConfig::default(), now()).unwrap();
        let mut scratch = AcquireScratch::new();
        let next = driver.step_destination(&mut bob, &mut scratch, now());
        assert!(matches!(next, DestinationNext::Live(_)), "the offer stands");
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        let id = self.id.clone();
        self.moves.rollback(&id, &Console::new(true, false))
    }

    fn described(&mut self) -> String {
        let record = self.moves.get(&self.id).unwrap().record;
        format!("{:?}", self.moves.describe(&record).unwrap())
    }
}

#[test]
fn a_move_is_described_by_its_record_and_by_its_shard() {
    let mut world = Offered::new();
    let before = world.described();
    assert!(before.contains("not moved") && before.contains(&world.id), "{before}");
    world.accept();
    assert!(world.described().contains("\"moved\""), "{}", world.described());
}

#[test]
fn an_offer_that_stands_is_asked_back_from_its_owner() {
    let mut world = Offered::new();
    world.rollback().expect("the owner can be asked");
    let renewed = world.backend.coordinator().renew(now(), TENANT, &world.lease);
    let request = renewed.expect("the lease is good").request.expect("something is asked");
    assert_eq!(request.action().label(), "withdraw");
}

#[test]
fn a_move_that_has_happened_is_not_undone() {
    let mut world = Offered::new();
    world.accept();
    let failure = world.rollback().expect_err("there are never two owners");
    assert_eq!((failure.code, failure.what.as_str()), (Code::Usage, "the shard has moved already"));
    assert!(failure.next.is_some_and(|next| next.contains("handoff start")));
}

#[test]
fn the_record_of_a_move_that_can_no_longer_happen_is_ended() {
    let mut world = Offered::new();
    let coordinator = &mut world.moves.coordinator;
    coordinator.revoke_lease(now(), TENANT, KEY, OpId::from_raw(9)).unwrap();
    let mut scratch = AcquireScratch::new();
    coordinator.acquire_and_restore_into(now(), TENANT, KEY, ADA, &mut scratch).unwrap();
    world.rollback().expect("nobody can take the offer any more");
    assert_eq!(world.moves.get(&world.id).unwrap().record.state, Phase::RolledBack);
    let again = world.rollback().expect_err("it is over");
    assert_eq!(again.code, Code::Usage);
}

#[test]
fn a_move_goes_only_to_somebody_who_was_heard_of() {
    let mut world = Offered::new();
    let console = Console::new(true, false);
    let failure = world.moves.start(KEY, Some(BOB), &console).expect_err("nobody knows Bob");
    assert!(failure.what.contains("heard of"), "{}", failure.what);
    let missing = world.moves.get("no such move").expect_err("there is none");
    assert_eq!(missing.code, Code::Usage);
}
