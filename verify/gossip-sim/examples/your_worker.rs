//! Simulates a worker of your own: one with a bug, and the same without it.
//!
//! ```text
//! cargo run --release -p gossip-sim --example your_worker
//! cargo run --release -p gossip-sim --example your_worker -- hasty
//! ```
//!
//! The careful worker writes the result of a key, waits until the sink has accepted it, and then
//! moves the cursor past it. The hasty worker moves the cursor first, which saves a wait. If it is
//! killed in between, or the result is lost, no worker processes that key again: the shard
//! completes and the key is missing. Without faults both look the same. `hasty` finds a failing
//! seed, shrinks the simulation, and prints its trace and the command that reproduces it.
//!
//! The other arguments are those of `cargo xtask sim`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a program: its output is its use")]

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{OpId, RunId};
use gossip_coordination::{
    AcquireScratch, AsyncCoordinationBackend, AsyncShardClaiming, CheckpointError, CompleteError,
    Lease,
};
use gossip_sim::command::{self, Options, Verdict};
use gossip_sim::{SimCoordinator, SimWorker, SimWorld, Simulator, Trial, Written};

/// Default number of simulations: the hasty worker fails in one of the first, and the careful one
/// should pass several.
const SEEDS: u64 = 20;

/// Ticks to wait when there is no work.
const IDLE_TICKS: u64 = 40;

/// Maximum attempts of a message that may be lost.
const TRIES_MAX: u32 = 5;

/// Which of the two workers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Careful,
    Hasty,
}

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program reads its own arguments")]
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (manner, words) = match words.split_first() {
        Some((first, rest)) if first == "hasty" => (Manner::Hasty, rest),
        Some((first, rest)) if first == "careful" => (Manner::Careful, rest),
        Some(_) | None => (Manner::Careful, &*words),
    };
    let Some(options) = Options::parse(words) else {
        eprintln!("usage: your_worker [careful|hasty] {}", command::USAGE);
        return ExitCode::from(2);
    };
    let seeds = options.seeds.or_else(|| options.seed.is_none().then_some(SEEDS));
    let options = Options { seeds, ..options };
    let simulator = Simulator::of(Trial::of(move |me| live(me, manner)), replay(manner));
    // This example prints no rates.
    let no_time = || Duration::ZERO;
    match command::run_with(&simulator, &options, &no_time, &mut io::stdout().lock()) {
        Ok(Verdict::Held) => ExitCode::SUCCESS,
        Ok(Verdict::Broken) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command that reproductions begin with.
const fn replay(manner: Manner) -> &'static str {
    match manner {
        Manner::Careful => {
            "cargo run --release -p gossip-sim --example your_worker -- \
             careful"
        }
        Manner::Hasty => {
            "cargo run --release -p gossip-sim --example your_worker -- \
             hasty"
        }
    }
}

/// Runs one worker process: claims a shard, processes it, claims the next.
pub(crate) async fn live(mut me: SimWorker, manner: Manner) {
    let mut scratch = Box::new(AcquireScratch::new());
    loop {
        let claimed = match any_run(&mut me.world) {
            Some(run) => claim(&mut me, run, &mut scratch).await,
            None => None,
        };
        match claimed {
            Some(shard) => do_shard(&mut me, &shard, manner).await,
            None => me.world.sleep(IDLE_TICKS).await,
        }
    }
}

fn any_run(world: &mut SimWorld) -> Option<RunId> {
    let runs = world.runs();
    let place = world.below(runs.len() as u64);
    runs.get(place as usize).copied()
}

/// A claimed shard.
struct Shard {
    lease: Lease,
    /// The keys that are left.
    keys: Vec<Vec<u8>>,
    /// The last key of the range.
    last: Option<Vec<u8>>,
}

async fn claim(me: &mut SimWorker, run: RunId, scratch: &mut AcquireScratch) -> Option<Shard> {
    let SimWorker { coordinator, world } = me;
    let (now, tenant, worker) = (world.now(), world.tenant(), world.worker());
    let claimed = coordinator.claim_next_available(now, tenant, run, worker, scratch).await.ok()?;
    let (spec, cursor) = (claimed.snapshot.spec(), claimed.snapshot.cursor());
    let keys = world.keys(spec.start, spec.end, cursor.last_key());
    let last = world.keys(spec.start, spec.end, None).pop();
    Some(Shard { lease: claimed.lease, keys, last })
}

/// Processes the keys of a shard one by one. Stops at the first error and leaves the shard to the
/// next holder after the lease has expired.
async fn do_shard(me: &mut SimWorker, shard: &Shard, manner: Manner) {
    let SimWorker { coordinator, world } = me;
    for key in &shard.keys {
        let done = match manner {
            Manner::Careful => {
                deliver(world, shard, key).await && record(coordinator, world, shard, key).await
            }
            // The bug: the cursor passes a key that is not processed yet.
            Manner::Hasty => {
                record(coordinator, world, shard, key).await && deliver(world, shard, key).await
            }
        };
        if !done {
            return;
        }
    }
    finish(coordinator, world, shard).await;
}

/// Sends a result until the sink has accepted it. Returns whether it has.
async fn deliver(world: &SimWorld, shard: &Shard, key: &[u8]) -> bool {
    for _ in 0..TRIES_MAX {
        match world.write(&shard.lease, key).await {
            Written::Accepted => return true,
            Written::Refused => return false,
            Written::Unknown => {}
        }
    }
    false
}

/// Moves the cursor past `key`. Returns whether the checkpoint is acknowledged.
async fn record(
    coordinator: &mut SimCoordinator,
    world: &mut SimWorld,
    shard: &Shard,
    key: &[u8],
) -> bool {
    let op_id = OpId::from_raw(world.below(u64::MAX));
    for _ in 0..TRIES_MAX {
        let (now, tenant, cursor) = (world.now(), world.tenant(), CursorUpdate::new(key, b""));
        // A retry with the same operation id takes effect at most once.
        match coordinator.checkpoint(now, tenant, &shard.lease, cursor, op_id).await {
            Ok(_) => return true,
            Err(CheckpointError::BackendError(_)) => world.sleep(1).await,
            Err(_) => return false,
        }
    }
    false
}

/// Completes the shard.
async fn finish(coordinator: &mut SimCoordinator, world: &mut SimWorld, shard: &Shard) {
    let Some(last) = &shard.last else { return };
    let op_id = OpId::from_raw(world.below(u64::MAX));
    for _ in 0..TRIES_MAX {
        let (now, tenant, cursor) = (world.now(), world.tenant(), CursorUpdate::new(last, b""));
        match coordinator.complete(now, tenant, &shard.lease, cursor, op_id).await {
            Err(CompleteError::BackendError(_)) => world.sleep(1).await,
            Ok(_) | Err(_) => return,
        }
    }
}
