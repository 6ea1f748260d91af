//! One process that works on the run until it is killed or has made enough requests.
//!
//! Two threads share one database, so that a kill also interrupts group commits. Each acquires
//! leases, checkpoints, splits and releases, and records each call and its answer.

use std::path::{Path, PathBuf};
use std::thread::scope;

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef, SplitResidualPlan};
use gossip_contracts::identity::{OpId, ShardId, ShardKey, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, IdempotentOutcome, Lease, RunManagement, ShardFilter,
    SplitError,
};
use gossip_coordination_sqlite::{SqliteCoordinator, SqliteDatabase};

use crate::Failure;
use crate::run::{RUN, TENANT, now};
use crate::sqlite::journal::{Call, Journal};
use crate::sqlite::keys::{key_of, number_of};
use crate::sqlite::world::{coordinator, open};
use gossip_testkit::Rng;

/// Threads of a process.
pub(crate) const THREADS: u64 = 2;
/// Calls under one lease at most.
const CALLS_MAX: u64 = 6;
/// Keys are this far apart at most.
const STRIDE: u64 = 5;

/// The journal of one thread of a process.
pub(crate) fn journal_of(journal: &Path, thread: u64) -> PathBuf {
    journal.with_extension(thread.to_string())
}

/// Works on `file` until each thread has requested `operations` leases; without end if zero.
pub(crate) fn run(
    file: &Path,
    journal: &Path,
    worker: u64,
    operations: u64,
    seed: u64,
) -> Result<String, Failure> {
    if operations == 0 {
        std::thread::spawn(end_with_parent);
    }
    let database = open(file)?;
    scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let database = &database;
                let journal = Journal::create(&journal_of(journal, thread));
                let id = worker * THREADS + thread;
                scope.spawn(move || Worker::new(database, journal?, id, seed)?.work(operations))
            })
            .collect();
        threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok("worked".to_owned())
}

/// Ends a process without a limit when its parent process has ended.
fn end_with_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(1);
}

/// One thread with its own coordinator handle.
pub(crate) struct Worker {
    backend: SqliteCoordinator,
    journal: Journal,
    id: u64,
    rng: Rng,
    shards: Vec<ShardId>,
    op_count: u64,
}

/// A lease and the progress of its shard.
struct Held {
    lease: Lease,
    /// The cursor key, or the first key of the shard.
    at: u128,
    /// The first key after the shard.
    end: u128,
    start: u128,
}

impl Worker {
    pub(crate) fn new(
        database: &SqliteDatabase,
        journal: Journal,
        id: u64,
        seed: u64,
    ) -> Result<Self, Failure> {
        let mut worker = Self {
            backend: coordinator(database),
            journal,
            id,
            rng: Rng::seeded(seed ^ (id << 32)),
            shards: Vec::new(),
            op_count: 0,
        };
        worker.list()?;
        Ok(worker)
    }

    /// Requests that many leases; without end if zero.
    pub(crate) fn work(mut self, operations: u64) -> Result<(), Failure> {
        let mut asked = 0;
        while operations == 0 || asked < operations {
            asked += 1;
            let Some(mut held) = self.grant()? else { continue };
            for _ in 0..self.rng.below(CALLS_MAX) {
                let goes_on = match self.rng.below(8) {
                    0 => self.split(&mut held)?,
                    _ => self.checkpoint(&mut held)?,
                };
                if !goes_on {
                    break;
                }
            }
            if self.rng.below(3) > 0 {
                self.release(&held)?;
            }
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(), Failure> {
        let mut rows = Vec::new();
        self.backend.list_shards_into(now(), TENANT, RUN, ShardFilter::all(), &mut rows)?;
        self.shards = rows.iter().map(|row| row.shard).collect();
        Ok(())
    }

    fn grant(&mut self) -> Result<Option<Held>, Failure> {
        let index = self.rng.below(self.shards.len() as u64);
        let shard = self.shards[usize::try_from(index)?];
        let mut scratch = Box::<AcquireScratch>::default();
        self.journal.ask(shard.as_raw(), Call::Grant { fence: 0 })?;
        let key = ShardKey::new(RUN, shard);
        let worker = WorkerId::from_raw(self.id);
        let view = self.backend.acquire_and_restore_into(now(), TENANT, key, worker, &mut scratch);
        // Most often another worker holds it.
        let Ok(view) = view else { return Ok(None) };
        let spec = view.snapshot.spec();
        let (start, end) = (number_of(spec.start), number_of(spec.end));
        let at = view.snapshot.cursor().last_key().map_or(start, number_of);
        let held = Held { lease: view.lease.clone(), at, end, start };
        let fence = held.lease.fence().as_raw();
        self.journal.got(shard.as_raw(), Call::Grant { fence })?;
        Ok(Some(held))
    }

    /// Returns whether the lease is still valid.
    fn checkpoint(&mut self, held: &mut Held) -> Result<bool, Failure> {
        let key = held.at + 1 + u128::from(self.rng.below(STRIDE));
        if key >= held.end {
            return Ok(false);
        }
        let (shard, fence) = (held.lease.shard().as_raw(), held.lease.fence().as_raw());
        let op = self.next_op();
        let call = Call::Checkpoint { fence, op, key };
        self.journal.ask(shard, call)?;
        let bytes = key_of(key);
        let cursor = CursorUpdate::try_from_parts(Some(&bytes), None)?;
        let op = OpId::from_raw(op);
        match self.backend.checkpoint(now(), TENANT, &held.lease, cursor, op) {
            Ok(IdempotentOutcome::Executed(_)) => {
                held.at = key;
                self.journal.got(shard, call)?;
                Ok(true)
            }
            Ok(IdempotentOutcome::Replayed(_)) => Err("a fresh operation was replayed".into()),
            Err(_) => Ok(false),
        }
    }

    /// Returns whether the lease is still valid.
    fn split(&mut self, held: &mut Held) -> Result<bool, Failure> {
        let at = held.at + (held.end - held.at) / 2;
        if at <= held.at + u128::from(STRIDE) {
            return Ok(true);
        }
        let (start, middle, end) = (key_of(held.start), key_of(at), key_of(held.end));
        let left = ShardSpecRef::new(&start, &middle, b"campaign");
        let right = ShardSpecRef::new(&middle, &end, b"campaign");
        let plan = SplitResidualPlan::try_new(left, right)?;
        let (shard, fence) = (held.lease.shard().as_raw(), held.lease.fence().as_raw());
        let op = self.next_op();
        self.journal.ask(shard, Call::Split { fence, op, child: 0 })?;
        let op_id = OpId::from_raw(op);
        match self.backend.split_residual(now(), TENANT, &held.lease, &plan, op_id) {
            Ok(result) => {
                let child = result.into_inner().residual;
                held.end = at;
                self.journal.got(shard, Call::Split { fence, op, child: child.as_raw() })?;
                self.list()?;
                Ok(true)
            }
            // The shard limit is reached.
            Err(SplitError::SplitInvalid(_)) => Ok(true),
            Err(_) => Ok(false),
        }
    }

    fn release(&mut self, held: &Held) -> Result<(), Failure> {
        let (shard, fence) = (held.lease.shard().as_raw(), held.lease.fence().as_raw());
        let op = self.next_op();
        let call = Call::Release { fence, op };
        self.journal.ask(shard, call)?;
        let mode = ReleaseMode::Clean;
        let released = self.backend.release(now(), TENANT, &held.lease, mode, OpId::from_raw(op));
        if released.is_ok() {
            self.journal.got(shard, call)?;
        }
        Ok(())
    }

    /// Unique among all threads of all processes of a campaign.
    const fn next_op(&mut self) -> u64 {
        self.op_count += 1;
        (self.id << 32) | self.op_count
    }
}
