use std::sync::Mutex;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{OpId, ShardId, ShardKey, WorkerId};
use gossip_coordination::{
    AcquireScratch, CollectEvents as _, CoordinationBackend as _, EventKind, RunManagement as _,
    ShardClaiming as _,
};

use crate::observed::Observed;
use crate::observer::{Event, Observer};
use crate::test_support::{RUN, TENANT, World, at};

/// Keeps the kinds of the kernel's events.
#[derive(Default)]
struct Seen(Mutex<Vec<EventKind>>);

impl Observer for Seen {
    fn observe(&self, event: Event<'_>) {
        if let Event::Kernel(event) = event {
            assert_eq!((event.tenant, event.run), (TENANT, RUN));
            self.0.lock().unwrap().push(event.kind.clone());
        }
    }
}

impl Seen {
    fn take(&self) -> Vec<EventKind> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[test]
fn each_operation_delivers_its_events_before_it_returns() {
    let (world, seen) = (World::new(), Seen::default());
    let mut handle = Observed::new(world.handle(), &seen);
    let (mut scratch, worker) = (Box::<AcquireScratch>::default(), WorkerId::from_raw(1));
    let claimed = handle.claim_next_available(at(2), TENANT, RUN, worker, &mut scratch);
    let lease = claimed.unwrap().lease;
    assert!(matches!(seen.take()[..], [EventKind::ShardAcquired { .. }]));
    handle.renew_many(at(3), TENANT, std::slice::from_ref(&lease), &mut Vec::new());
    assert!(matches!(seen.take()[..], [EventKind::ShardLeaseRenewed { .. }]));
    let (cursor, op_id) = (CursorUpdate::with_last_key(b"b"), OpId::from_raw(5));
    handle.complete(at(4), TENANT, &lease, cursor, op_id).unwrap();
    let shard = lease.key().shard();
    assert_eq!(seen.take(), [EventKind::ShardCompleted { shard }]);
    handle.complete_run(at(5), TENANT, RUN, op_id).unwrap();
    assert_eq!(seen.take(), [EventKind::RunCompleted]);
}

#[test]
fn replay_and_refusal_deliver_nothing() {
    let (world, seen) = (World::new(), Seen::default());
    let mut handle = Observed::new(world.handle(), &seen);
    handle.pause_run(at(2), TENANT, RUN, OpId::from_raw(5)).unwrap();
    assert_eq!(seen.take(), [EventKind::RunPaused]);
    let again = handle.pause_run(at(3), TENANT, RUN, OpId::from_raw(5));
    assert!(again.unwrap().is_replay());
    let absent = ShardKey::new(RUN, ShardId::from_raw(77));
    handle.unpark_shard(at(3), TENANT, absent, OpId::from_raw(6)).unwrap_err();
    assert_eq!(seen.take(), []);
}

#[test]
fn observer_without_interest_attaches_no_collector() {
    let world = World::new();
    let mut handle = Observed::new(world.handle(), &());
    handle.pause_run(at(2), TENANT, RUN, OpId::from_raw(5)).unwrap();
    assert!(handle.inner.collect_events(None).is_none());
    let seen = Seen::default();
    let mut handle = Observed::new(world.handle(), &seen);
    assert!(handle.inner.collect_events(None).is_some());
}
