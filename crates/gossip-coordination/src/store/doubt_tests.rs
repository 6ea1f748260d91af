//! A reply is lost, and before the flight looks again somebody else has been there.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::core::Core;
use super::{
    CommitOutcome, Fault, Flight, MapStore, Step, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Told,
};
use crate::protocol::{Acquire, Checkpoint, Grant};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(5);
const KEY: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const WORKER: WorkerId = WorkerId::from_raw(1);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// A run with one shard.
fn administrator() -> StoreCoordinator<MapStore> {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: KEY.shard(), spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    admin.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op(1)).unwrap();
    admin
}

fn core() -> Core {
    Core::new(StoreConfig::new(2 << 32), StoreLimits::GENEROUS)
}

fn acquire(core: &mut Core) -> Flight<'_, Result<IdempotentOutcome<Grant>, AcquireError>> {
    let token = core.fresh_grant();
    core.on_shard(at(10), Acquire { tenant: TENANT, key: KEY, worker: WORKER, token })
}

/// Flies on. The reply to every commit is lost once it happened, or once it got lost itself, and
/// then `meanwhile` happens.
fn fly<A>(
    admin: &mut StoreCoordinator<MapStore>,
    mut flight: Flight<'_, A>,
    happens: bool,
    mut meanwhile: impl FnMut(&mut StoreCoordinator<MapStore>),
) -> A {
    let mut store = admin.store().another_handle();
    let mut lost = false;
    loop {
        let told = match flight.step() {
            Step::Read(reads) => Told::Read(store.read(reads)),
            Step::Wait(_) => Told::Waited,
            Step::Commit(txns) if lost => Told::Committed(store.commit(txns)),
            Step::Commit(txns) => {
                lost = true;
                if happens {
                    let outcome = store.commit(txns).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                meanwhile(admin);
                Told::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(answer) => return answer,
        };
        flight.tell(told);
    }
}

fn row(admin: &mut StoreCoordinator<MapStore>) -> ShardSummary {
    let mut rows = Vec::new();
    admin.list_shards_into(at(20), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    rows.remove(0)
}

#[test]
fn a_grant_is_known_again_by_its_token() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), true, |admin| {
        let until = at(50);
        admin.request_action(at(11), TENANT, KEY, &ShardAction::Release, until, op(2)).unwrap();
    });
    let lease = granted.unwrap().into_inner().lease;
    assert_eq!(row(&mut admin).acquire_count, 1, "one grant");
    admin.renew(at(12), TENANT, &lease).expect("the grant is good");
}

#[test]
fn a_grant_that_was_shut_out_is_refused() {
    let (mut admin, mut core) = (administrator(), core());
    let refused = fly(&mut admin, acquire(&mut core), false, |admin| {
        let mut scratch = AcquireScratch::new();
        // The same name, as of two processes by mistake.
        admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch).unwrap();
    });
    assert!(matches!(refused, Err(AcquireError::AlreadyLeased { .. })), "{refused:?}");
    assert_eq!(row(&mut admin).acquire_count, 1);
}

#[test]
fn a_checkpoint_is_told_as_it_was_although_the_lease_is_gone() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
        let told = fly(&mut admin, core.on_shard(at(11), checkpoint), happens, |admin| {
            admin.revoke_lease(at(11), TENANT, KEY, op(9)).unwrap();
        });
        match told {
            Ok(told) => assert!(told.is_executed() && happens),
            Err(CheckpointError::StaleFence { .. }) => assert!(!happens),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(row(&mut admin).last_key.is_some(), happens);
    }
}

#[test]
fn a_commit_that_got_lost_is_made_again() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), false, |_| ());
    assert!(granted.unwrap().is_executed());
    assert_eq!(row(&mut admin).acquire_count, 1);
}

/// The request is not lost but late, and meanwhile the run was deleted, although not all of it.
#[test]
fn a_commit_that_comes_late_is_shut_out_by_the_deletion_of_the_run() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
    let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.on_shard(at(11), checkpoint);
    let told = loop {
        let told = match flight.step() {
            Step::Read(reads) => Told::Read(store.read(reads)),
            Step::Wait(_) => Told::Waited,
            Step::Commit(txns) => {
                assert!(late.replace(txns).is_none(), "one try");
                admin.cancel_run(at(11), TENANT, RUN, op(8)).unwrap();
                admin.store_mut().inject(Fault::None);
                admin.store_mut().inject(Fault::Fail);
                admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap_err();
                Told::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(told) => break told,
        };
        flight.tell(told);
    };
    assert!(matches!(told, Err(CheckpointError::ShardNotFound { .. })), "{told:?}");
    let outcome = store.commit(late.unwrap()).remove(0);
    assert!(matches!(outcome, Ok(CommitOutcome::Conflict(_))), "{outcome:?}");
}
