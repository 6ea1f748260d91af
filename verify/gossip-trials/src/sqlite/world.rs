//! The run that every process of a campaign works on.

use std::path::Path;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::OpId;
use gossip_coordination::store::{
    Allotment, StoreConfig, StoreCoordinator, fly, fresh_nonce, set_allotment,
};
use gossip_coordination::{RunConfig, RunManagement};
use gossip_coordination_sqlite::{SqliteCoordinator, SqliteDatabase, SqliteOptions};

use crate::Failure;
use crate::run::{RUN, TENANT, now, shards_between};
use crate::sqlite::keys::key_of;

/// Shards at the start.
pub(crate) const ROOTS: u64 = 8;
/// Shard limit. Processes split shards until they reach it.
pub(crate) const SHARDS_MAX: usize = 24;
/// Lease in milliseconds: short, so that shards of killed processes are free soon.
pub(crate) const LEASE: u64 = 20;

/// Opens the file as the product does by default: every commit is synced.
pub(crate) fn open(file: &Path) -> Result<SqliteDatabase, Failure> {
    Ok(SqliteDatabase::open(file, SqliteOptions::default())?)
}

/// Returns a handle of a process.
pub(crate) fn coordinator(database: &SqliteDatabase) -> SqliteCoordinator {
    StoreCoordinator::new(database.store(), StoreConfig::new(fresh_nonce()))
}

/// Writes the allotment and creates the run.
pub(crate) fn found(database: &SqliteDatabase) -> Result<(), Failure> {
    let allotment = Some(Allotment::of_shards(SHARDS_MAX as u64));
    fly(&mut database.store(), set_allotment(TENANT, allotment))?;
    let bounds: Vec<_> = (0..=ROOTS).map(|nth| key_of(u128::from(nth) << 88)).collect();
    let roots = shards_between(&bounds, b"campaign");
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None)?;
    let op = OpId::from_raw(u64::MAX);
    coordinator(database).create_run_with_shards(now(), TENANT, RUN, config, &roots, op)?;
    Ok(())
}
