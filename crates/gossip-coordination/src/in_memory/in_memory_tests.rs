//! Places remembered by leases, and the claim index beside a plain scan.

use std::collections::BTreeSet;

use gossip_contracts::coordination::{CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey};
use gossip_stdx::SlotSpacing;
use proptest::prelude::*;

use super::InMemoryCoordinator;
use super::claims::{Link, PackedLink, Standing};
use super::table::{SLOT_MAX, Slot};
use crate::lease::PlaceHint;
use crate::protocol::{ClaimCandidates, ReleaseMode};
use crate::record::ShardStatus;
use crate::test_fixtures::{
    LEASE, RUN, TENANT, acquire, at, key, op, run_config, two_shards, worker,
};
use crate::{
    AcquireScratch, CheckpointError, CoordinationBackend, CoordinatorRuntimeConfig, Lease,
    ParkReason, RenewError, RunManagement,
};

/// A lease of shard 0 whose hint says `shard` and `run`.
fn misled(coordinator: &mut InMemoryCoordinator, shard: u32, run: u32) -> Lease {
    let mut lease = acquire(coordinator, 2, 0, 1);
    lease.place = PlaceHint { shard, run };
    lease
}

#[test]
fn a_hint_that_is_wrong_leads_to_the_same_shard() {
    for (shard, run) in [(0, 0), (1, 0), (0, 1), (1, 7), (u32::MAX, 0), (5_000, u32::MAX)] {
        let mut coordinator = two_shards();
        let lease = misled(&mut coordinator, shard, run);
        let cursor = CursorUpdate::with_last_key(b"b");
        let done = coordinator.checkpoint(at(3), TENANT, &lease, cursor, op(1)).unwrap();
        assert!(done.is_executed());
        assert_eq!(coordinator.renew(at(3), TENANT, &lease).unwrap().new_deadline, at(3 + LEASE));
        let first = coordinator.shard(TENANT, key(0)).unwrap();
        assert_eq!(first.cursor(), cursor);
        let second = coordinator.shard(TENANT, key(1)).unwrap();
        assert!(second.cursor().is_initial() && second.record().lease().is_none());
    }
}

#[test]
fn a_lease_of_another_coordinator_opens_nothing() {
    let (mut one, mut other) = (two_shards(), two_shards());
    let lease = acquire(&mut one, 2, 0, 1);
    let cursor = CursorUpdate::with_last_key(b"b");
    let refused = other.checkpoint(at(3), TENANT, &lease, cursor, op(1));
    assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })));
    let mut empty = InMemoryCoordinator::default();
    let refused = empty.checkpoint(at(3), TENANT, &lease, cursor, op(1));
    assert!(matches!(refused, Err(CheckpointError::ShardNotFound { .. })));
}

#[test]
fn a_hint_does_not_outlive_the_run() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 2, 0, 1);
    coordinator.cancel_run(at(3), TENANT, RUN, op(1)).unwrap();
    coordinator.delete_run(at(4), TENANT, RUN, op(2)).unwrap();
    let renewed = coordinator.renew(at(5), TENANT, &lease);
    assert!(matches!(renewed, Err(RenewError::ShardNotFound { .. })));
}

#[test]
fn hints_are_no_part_of_what_a_lease_is() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 2, 0, 1);
    let mut other = lease.clone();
    other.place = PlaceHint { shard: 9, run: 9 };
    assert_eq!(lease, other);
}

#[test]
fn links_survive_packing() {
    let (before, behind) = (Slot(0), Slot(SLOT_MAX));
    let links = [
        Link::None,
        Link::Apart,
        Link::Chain { before, behind },
        Link::Chain { before: behind, behind: before },
    ];
    for (link, listed) in links.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        let mut packed = PackedLink::NONE;
        packed.set_listed(listed);
        packed.set_link(link);
        assert_eq!((packed.link(), packed.is_listed()), (link, listed));
        packed.set_listed(!listed);
        assert_eq!((packed.link(), packed.is_listed()), (link, !listed));
    }
}

#[test]
fn the_spacing_of_bytes_is_that_of_the_first_two_records() {
    let coordinator = some_shards();
    let spacing_of = |slot: u32| {
        let [one, next] = [slot, slot + 1].map(|slot| &coordinator.records.get(Slot(slot)).record);
        one.spacing_to(next)
    };
    assert_ne!(spacing_of(0), SlotSpacing::default());
    assert_ne!(spacing_of(0), spacing_of(1));
    assert_eq!(coordinator.records.spacings().collect::<Vec<_>>(), [spacing_of(0)]);
}

const SHARDS: u64 = 12;

/// A coordinator with one run of some shards, each with a range of one byte.
fn some_shards() -> InMemoryCoordinator {
    let bounds: Vec<[u8; 1]> = (0..=SHARDS as u8).map(|byte| [b'a' + byte]).collect();
    let rows: Vec<_> = (0..SHARDS as usize)
        .map(|index| InitialShardInput {
            shard_id: ShardId::from_raw(index as u64),
            spec: ShardSpecRef::new(&bounds[index], &bounds[index + 1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        slab_capacity: 1 << 16,
        ..CoordinatorRuntimeConfig::default()
    });
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, run_config(), &rows, op(1));
    made.unwrap();
    coordinator
}

/// The index must say what looking at every record says.
pub(super) fn assert_index_agrees(coordinator: &InMemoryCoordinator) {
    let run = coordinator.runs[0].as_ref().unwrap();
    let standings = || {
        let slots = run.shards.iter().copied();
        slots.map(|slot| (slot, Standing::of(&coordinator.records.get(slot).record)))
    };
    let mut listed: Vec<_> = run.claims.listed_for(worker(0)).collect();
    listed.sort();
    let marked = |slot: &&Slot| coordinator.records.get(**slot).link.is_listed();
    let marked: Vec<_> = run.shards.iter().filter(marked).copied().collect();
    assert_eq!(listed, marked, "each is listed once, and knows it");
    let scanned: Vec<_> = standings()
        .filter(|(_, standing)| *standing == Standing::Free)
        .map(|pair| pair.0)
        .collect();
    assert_eq!(run.claims.free_count(), scanned.len());
    assert!(scanned.iter().all(|slot| listed.contains(slot)), "every free shard is listed");

    let mut held: Vec<(LogicalTime, Slot)> = standings()
        .filter_map(|(slot, standing)| match standing {
            Standing::Leased(deadline) => Some((deadline, slot)),
            Standing::Free | Standing::Settled(_) => None,
        })
        .collect();
    held.sort();
    let by_deadline: Vec<_> = run.claims.by_deadline(&coordinator.records).collect();
    assert!(by_deadline.is_sorted_by_key(|(deadline, _)| *deadline));
    assert_eq!(run.claims.soonest_deadline(), held.first().map(|one| one.0));
    let mut indexed = by_deadline;
    indexed.sort();
    assert_eq!((indexed, run.claims.leased()), (held.clone(), held.len()));
    let done = standings().filter(|pair| pair.1 == Standing::Settled(ShardStatus::Done)).count();
    assert_eq!(run.claims.settled(ShardStatus::Done), done as u64);
}

/// Candidates are free, each another, and as many as there are and were asked for; shards whose
/// lease expired fill the rest.
fn assert_candidates_are_free(coordinator: &mut InMemoryCoordinator, name: u64, limit: usize) {
    let mut found = ClaimCandidates::new();
    let looked = coordinator.collect_claim_candidates_into(
        at(1),
        TENANT,
        RUN,
        worker(name),
        limit,
        &mut found,
    );
    looked.unwrap();
    let free_count = coordinator.runs[0].as_ref().unwrap().claims.free_count();
    assert_eq!(found.len(), limit.min(free_count), "no lease has run out at the first instant");
    let standing = |shard: &ShardId| {
        let key = ShardKey::new(RUN, *shard);
        Standing::of(coordinator.shard(TENANT, key).unwrap().record())
    };
    assert!(found.iter().all(|shard| standing(shard) == Standing::Free));
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
}

proptest! {
    /// Clocks step forward and back, so that deadlines come out of order.
    #[test]
    fn the_claim_index_says_what_a_scan_says(
        steps in prop::collection::vec((0_u64..SHARDS, 0_u8..7, 1_u64..500), 1..120),
    ) {
        let mut coordinator = some_shards();
        let mut scratch = Box::new(AcquireScratch::new());
        let mut leases: Vec<Option<Lease>> = vec![None; SHARDS as usize];
        for (number, (shard, action, now)) in steps.into_iter().enumerate() {
            let (now, op_id) = (at(now), op(number as u64 + 10));
            let last_key = [b'a' + shard as u8, 0];
            let cursor = CursorUpdate::with_last_key(&last_key);
            match (action, &leases[shard as usize]) {
                (0..=2, None) | (0, Some(_)) => {
                    let got = coordinator
                        .acquire_and_restore_into(now, TENANT, key(shard), worker(1), &mut scratch);
                    if let Ok(got) = got {
                        leases[shard as usize] = Some(got.lease);
                    }
                }
                (1 | 2, Some(lease)) => {
                    let _ = coordinator.renew(now, TENANT, lease);
                }
                (3, Some(lease)) => {
                    let _ = coordinator.release(now, TENANT, lease, ReleaseMode::Clean, op_id);
                }
                (4, Some(lease)) => {
                    let _ = coordinator.complete(now, TENANT, lease, cursor, op_id);
                }
                (5, Some(lease)) => {
                    let _ = coordinator.park_shard(now, TENANT, lease, ParkReason::Other, op_id);
                }
                (6, _) => {
                    let limit = shard as usize;
                    assert_candidates_are_free(&mut coordinator, now.as_raw(), limit);
                }
                (_, _) => {
                    let _ = coordinator.unpark_shard(now, TENANT, key(shard), op_id);
                }
            }
            assert_index_agrees(&coordinator);
        }
    }
}
