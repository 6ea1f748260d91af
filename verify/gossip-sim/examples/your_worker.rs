//! Your own worker under our schedules: one with a bug, and the same without it.
//!
//! ```text
//! cargo run --release -p gossip-sim --example your_worker
//! cargo run --release -p gossip-sim --example your_worker -- hasty
//! ```
//!
//! The careful worker sends the result of a key, waits until the sink has it, and moves the cursor
//! behind it. The hasty one moves the cursor first, because that is one wait less. If it dies in
//! between, or the result is lost on its way, nobody does that key again: the shard ends, and the
//! key is missing. On a good day both look the same. `hasty` finds the bad day, makes it as short
//! as it can, and prints what happens in it and the line that plays it again.
//!
//! The words behind the name of a worker are those of `cargo xtask sim`.
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

/// Worlds that are played, unless somebody asks for another number: the hasty worker fails in one
/// of the first, and the careful one should be seen to survive some.
const SEEDS: u64 = 20;

/// Ticks to wait when there is nothing to do.
const IDLE_TICKS: u64 = 40;

/// How often something is sent again that may not have arrived.
const TRIES_MAX: u32 = 5;

/// Which of the two.
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
    // Nobody asks here how fast it is.
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

/// What replays begin with.
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

/// One life of a worker: claim a shard, do it, claim the next.
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

/// A shard that was claimed.
struct Shard {
    lease: Lease,
    /// What is left to do.
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

/// Does the keys of a shard one by one; gives up at the first thing that does not work out, and
/// leaves the shard to whoever comes when the lease has run out.
async fn do_shard(me: &mut SimWorker, shard: &Shard, manner: Manner) {
    let SimWorker { coordinator, world } = me;
    for key in &shard.keys {
        let done = match manner {
            Manner::Careful => {
                deliver(world, shard, key).await && record(coordinator, world, shard, key).await
            }
            // The bug: the cursor says that the key is done, and it is not.
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

/// Sends a result until the sink has it; whether it has.
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

/// Moves the cursor behind `key`; whether that is known to have happened.
async fn record(
    coordinator: &mut SimCoordinator,
    world: &mut SimWorld,
    shard: &Shard,
    key: &[u8],
) -> bool {
    let op_id = OpId::from_raw(world.below(u64::MAX));
    for _ in 0..TRIES_MAX {
        let (now, tenant, cursor) = (world.now(), world.tenant(), CursorUpdate::new(key, b""));
        // The same id again: whatever happened to the first, it happens once.
        match coordinator.checkpoint(now, tenant, &shard.lease, cursor, op_id).await {
            Ok(_) => return true,
            Err(CheckpointError::BackendError(_)) => world.sleep(1).await,
            Err(_) => return false,
        }
    }
    false
}

/// Says that the shard is done.
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
