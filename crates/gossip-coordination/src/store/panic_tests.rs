//! A command whose change violates an assertion panics before anything is committed.
//!
//! All stores share the flight, so one of them, a map, is enough.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::core::Core;
use super::{MapStore, Store, StoreConfig, StoreCoordinator, fly};
use crate::protocol::{Checkpoint, Decision, Park, ShardChange, ShardInputs, ShardTransition};
use crate::test_fixtures::{RUN, TENANT, at, key, op, register_two_shards, worker};
use crate::*;

/// A checkpoint that is logged under an id that the log contains.
struct LoggedTwice<'a>(Checkpoint<'a>);

impl ShardTransition for LoggedTwice<'_> {
    type Output = CheckpointResult;
    type Error = CheckpointError;

    fn subject(&self) -> (TenantId, ShardKey) {
        self.0.subject()
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, CheckpointResult, CheckpointError>, CheckpointError> {
        let mut decision = self.0.decide(now, seen)?;
        if let Decision::Commit { change: ShardChange::Advance { entry, .. }, .. } = &mut decision {
            *entry = OpLogEntry::new(op(1), OpKind::Checkpoint, 9, now);
        }
        Ok(decision)
    }
}

#[test]
fn change_that_panics_commits_nothing_and_the_shard_can_be_parked() {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    register_two_shards(&mut admin);
    let mut scratch = Box::new(AcquireScratch::new());
    let granted =
        admin.acquire_and_restore_into(at(2), TENANT, key(0), worker(1), &mut scratch).unwrap();
    let lease = &granted.lease;
    let cursor = CursorUpdate::with_last_key(b"c");
    admin.checkpoint(at(3), TENANT, lease, cursor, op(1)).unwrap();
    let listed = |admin: &mut StoreCoordinator<MapStore>| {
        let mut rows = Vec::new();
        admin.list_shards_into(at(4), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
        rows
    };
    let before = listed(&mut admin);

    let mut store = admin.store().another_handle();
    let mut core = Core::new(StoreConfig::new(2 << 32), store.limits());
    let cursor = CursorUpdate::with_last_key(b"d");
    let wrong = LoggedTwice(Checkpoint { tenant: TENANT, lease, cursor, op_id: op(2) });
    let flown =
        catch_unwind(AssertUnwindSafe(|| fly(&mut store, core.on_shard(at(5), wrong)).is_ok()));
    assert!(flown.is_err(), "no assertion failed");
    assert_eq!(listed(&mut admin), before);

    let (reason, op_id) = (ParkReason::Poisoned, op(3));
    let park = Park { tenant: TENANT, lease, reason, context: ParkContext::NONE, op_id };
    fly(&mut store, core.on_shard(at(6), park)).unwrap();
    assert_eq!(listed(&mut admin)[0].park_reason, Some(reason));
    drop(core);
}

#[test]
fn handle_whose_decision_panicked_can_be_dropped() {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    register_two_shards(&mut admin);
    let mut scratch = Box::new(AcquireScratch::new());
    let granted =
        admin.acquire_and_restore_into(at(2), TENANT, key(0), worker(1), &mut scratch).unwrap();
    let lease = &granted.lease;
    admin.checkpoint(at(3), TENANT, lease, CursorUpdate::with_last_key(b"c"), op(1)).unwrap();
    let mut store = admin.store().another_handle();
    let mut core = Core::new(StoreConfig::new(2 << 32), store.limits());
    let cursor = CursorUpdate::with_last_key(b"d");
    let wrong = LoggedTwice(Checkpoint { tenant: TENANT, lease, cursor, op_id: op(2) });
    let flown =
        catch_unwind(AssertUnwindSafe(|| fly(&mut store, core.on_shard(at(5), wrong)).is_ok()));
    assert!(flown.is_err(), "no assertion failed");
    // A debug build panics here if the record of the panicked change is still in the pool.
    drop(core);
}
