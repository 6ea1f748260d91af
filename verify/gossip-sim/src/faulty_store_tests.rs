//! The faulty disk: its faults, and their reproduction from the same seed.

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::store::{StoreConfig, StoreCoordinator};
use gossip_coordination::{RunConfig, RunManagement as _};

use super::faults::{FaultKind, FaultSet};
use super::faulty_store::{FaultyDisk, Nature};

const CALM: Nature =
    Nature { seed: 1, faults: FaultSet::NONE, roughness: 1, binds: false, lease: 1_000 };

/// Creates runs until the process dies. Returns the outcome of each attempt, and the fault counts.
fn life(seed: u64) -> (Vec<bool>, Vec<u64>) {
    let disk = FaultyDisk::new(Nature { seed, faults: FaultSet::usual(), roughness: 8, ..CALM });
    disk.start(7);
    let mut handle = StoreCoordinator::new(disk.store(7), StoreConfig::new(3));
    let config = RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap();
    let result = (1..200).map(|run| {
        let (tenant, run) = (TenantId::from_bytes([1; 32]), RunId::from_raw(run));
        handle.create_run(LogicalTime::from_raw(1), tenant, run, config).is_ok()
    });
    let result = result.collect();
    let tally = disk.tally();
    (result, FaultKind::ALL.iter().map(|kind| tally.of(*kind)).collect())
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    assert_eq!(life(5), life(5));
    assert_ne!(life(5), life(6));
}

#[test]
fn nothing_of_a_dead_process_arrives() {
    let disk = FaultyDisk::new(CALM);
    disk.start(1);
    disk.start_spared(2);
    let mut handle = StoreCoordinator::new(disk.store(1), StoreConfig::new(1));
    let mut other = StoreCoordinator::new(disk.store(2), StoreConfig::new(2));
    let (tenant, run) = (TenantId::from_bytes([1; 32]), RunId::from_raw(1));
    let config = RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap();
    disk.kill(1);
    assert!(handle.create_run(LogicalTime::from_raw(1), tenant, run, config).is_err());
    assert!(other.get_run(tenant, run).is_err(), "it was not created");
    assert!(other.create_run(LogicalTime::from_raw(1), tenant, run, config).is_ok());
}
