//! Leases and cursors without the runtime: for programs with a worker of their own.
//!
//! `cargo run -p gossip-engine --example coordinator_only -- STORE`. One worker processes half of a
//! shard and dies; another takes over behind the last checkpoint, and the first is refused when it
//! comes back.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;

use gossip::coordination::{
    AcquireScratch, CoordinationBackend as _, RunConfig, RunManagement as _, ShardClaiming as _,
};
use gossip::identity::{LogicalTime, RunId, ShardId, WorkerId};
use gossip::model::{CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip::runtime::{Clock as _, SystemClock, fresh_op_id};
use gossip::store::Backend;

/// How long a lease lasts, in milliseconds.
const LEASE: u64 = 15_000;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let backend = Backend::open(&url.parse()?)?;
    let tenant = gossip::tenant_id("example")?;
    let now = SystemClock::new().now();
    let run = RunId::from_raw(now.as_raw());

    // One shard from `a` up to and without `z`.
    let mut first = backend.coordinator();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(3))?;
    let shard = InitialShardInput {
        shard_id: ShardId::from_raw(1),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    first.create_run_with_shards(now, tenant, run, config, &[shard], fresh_op_id())?;

    // The first worker processes the keys up to `m`, and checkpoints.
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let lost = first.claim_next_available(now, tenant, run, worker, &mut scratch)?.lease;
    let half = CursorUpdate::with_last_key(b"m");
    first.checkpoint(now, tenant, &lost, half, fresh_op_id())?;

    // It dies. After its lease another one claims the shard, under a higher fence.
    let later = LogicalTime::from_raw(now.as_raw() + LEASE + 1);
    let mut second = backend.coordinator();
    let worker = WorkerId::from_raw(2);
    let claimed = second.claim_next_available(later, tenant, run, worker, &mut scratch)?;
    let resumed = claimed.snapshot.cursor().last_key().map(String::from_utf8_lossy);
    println!("resumes after {}", resumed.unwrap_or_default());
    let held = claimed.lease;
    println!("fence {} after {}", held.fence().as_raw(), lost.fence().as_raw());

    // The first one was only paused. Whatever it writes now is refused.
    let stale =
        first.checkpoint(later, tenant, &lost, CursorUpdate::with_last_key(b"n"), fresh_op_id());
    println!("the first worker: {}", stale.expect_err("its lease is over"));
    second.complete(later, tenant, &held, CursorUpdate::with_last_key(b"y"), fresh_op_id())?;
    println!("complete");
    Ok(())
}
