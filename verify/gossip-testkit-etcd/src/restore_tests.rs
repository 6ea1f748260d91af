//! A cluster that is restored from a snapshot while workers with leases and record caches live on.
//!
//! Random sequences of grants, checkpoints, snapshots and restores, with an operator that raises
//! the fence floors after each restore. An oracle outside the store, as a sink is, remembers every
//! fence that was ever issued and every restore.

use std::collections::BTreeSet;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId,
};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::store::StoreConfig;
use gossip_coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend as _, IdempotentOutcome, Lease, RunConfig,
    RunManagement as _, ShardClaiming as _,
};
use gossip_coordination_etcd::EtcdConfig;
use gossip_testkit::Rng;

use crate::sim_etcd_kv::{SimEtcdKv, Snapshot};
use crate::{SimEtcdCoordinator, SimStore};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
const LEASE: u64 = 1_000;
const WORKERS: u64 = 3;
const STEPS: usize = 120;

/// A lease that a worker believes to hold, and the number of restores before it was granted.
struct Held {
    lease: Lease,
    restores: u32,
}

struct Trial {
    kv: SimEtcdKv,
    workers: Vec<SimEtcdCoordinator>,
    operator: SimEtcdCoordinator,
    held: Vec<Held>,
    now: u64,
    next_op: u64,
    restores: u32,
    snapshot: Snapshot,
    raises_floors: bool,
    issued: BTreeSet<(ShardId, FenceEpoch)>,
    /// Checkpoints that were executed and refused.
    executed: u32,
    refused_as_stale: u32,
}

impl Trial {
    fn new(raises_floors: bool) -> Self {
        let (kv, config) = (SimEtcdKv::new(), EtcdConfig::new(["model:1"], "trial").unwrap());
        let handle = |number: u64| {
            let store = SimStore::new(kv.clone(), &config).unwrap();
            store.coordinator(StoreConfig::new(number << 32))
        };
        let mut operator = handle(9);
        let run = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
        let bounds: [&[u8]; 3] = [b"a", b"i", b"q"];
        let roots: Vec<_> = (0..2)
            .map(|number| InitialShardInput {
                shard_id: ShardId::from_raw(number as u64),
                spec: ShardSpecRef::new(bounds[number], bounds[number + 1], b""),
                cursor: CursorUpdate::initial(),
            })
            .collect();
        let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
        operator.create_run_with_shards(now, TENANT, RUN, run, &roots, op).unwrap();
        Self {
            workers: (1..=WORKERS).map(handle).collect(),
            operator,
            held: Vec::new(),
            now: 1,
            next_op: 1,
            restores: 0,
            snapshot: kv.snapshot(),
            raises_floors,
            issued: BTreeSet::new(),
            executed: 0,
            refused_as_stale: 0,
            kv,
        }
    }

    fn step(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.advance(1 + rng.below(20));
        let worker = rng.below(WORKERS);
        match rng.below(16) {
            0 => self.snapshot = self.kv.snapshot(),
            1 => self.restore(),
            2 => self.advance(LEASE),
            3..=6 => return self.claim(worker),
            7 => self.release(rng),
            _ => return self.checkpoint(rng),
        }
        Ok(())
    }

    fn advance(&mut self, ticks: u64) {
        self.now += ticks;
        self.kv.advance(ticks);
    }

    /// As docs/operations.md says, except that the workers are not stopped.
    fn restore(&mut self) {
        self.kv.restore(&self.snapshot);
        self.restores += 1;
        if self.raises_floors {
            // By the clock, as `gossip store restored` does: the snapshot may be older than the
            // last floor.
            let at_least = FenceEpoch::from_raw(self.now << 20);
            let now = LogicalTime::from_raw(self.now);
            let mut raised = 0;
            let mut each = |_, _, result: Result<_, _>| raised += u32::from(result.is_ok());
            self.operator.raise_fence_floors(now, None, at_least, &mut each).unwrap();
            assert_eq!(raised, 1, "there is one run");
        }
    }

    fn claim(&mut self, worker: u64) -> Result<(), String> {
        let (now, mut scratch) = (LogicalTime::from_raw(self.now), AcquireScratch::new());
        let name = WorkerId::from_raw(worker + 1);
        let handle = &mut self.workers[worker as usize];
        let claimed = handle.claim_next_available(now, TENANT, RUN, name, &mut scratch);
        let Ok(claimed) = claimed else { return Ok(()) };
        let lease = claimed.lease;
        if !self.issued.insert((lease.shard(), lease.fence())) {
            return Err(format!("fence {} was issued twice", lease.fence().as_raw()));
        }
        self.held.push(Held { lease, restores: self.restores });
        Ok(())
    }

    fn checkpoint(&mut self, rng: &mut Rng) -> Result<(), String> {
        // Mostly one of the latest, which may be live.
        let back = 1 + rng.below(4) as usize;
        let Some(place) = self.held.len().checked_sub(back) else { return Ok(()) };
        let Held { lease, restores } = &self.held[place];
        self.next_op += 1;
        let first = if lease.shard().as_raw() == 0 { b'a' } else { b'i' };
        let key = [first + (self.now / 400 % 8) as u8];
        let (now, cursor) = (LogicalTime::from_raw(self.now), CursorUpdate::with_last_key(&key));
        let handle = &mut self.workers[lease.owner().as_raw() as usize - 1];
        let answer = handle.checkpoint(now, TENANT, lease, cursor, OpId::from_raw(self.next_op));
        match answer {
            Ok(IdempotentOutcome::Executed(_)) if *restores < self.restores => {
                Err(format!("a lease from before a restore wrote at {}", self.now))
            }
            Ok(_) => {
                self.executed += 1;
                Ok(())
            }
            Err(CheckpointError::StaleFence { .. }) => {
                self.refused_as_stale += 1;
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn release(&mut self, rng: &mut Rng) {
        let back = 1 + rng.below(2) as usize;
        let Some(place) = self.held.len().checked_sub(back) else { return };
        let lease = &self.held[place].lease;
        self.next_op += 1;
        let (now, op) = (LogicalTime::from_raw(self.now), OpId::from_raw(self.next_op));
        let handle = &mut self.workers[lease.owner().as_raw() as usize - 1];
        // A refusal is one of the outcomes.
        let _ = handle.release(now, TENANT, lease, ReleaseMode::Clean, op);
    }
}

/// Runs the seeds and returns the violations, the executed checkpoints and those refused as stale.
fn run(seeds: u64, raises_floors: bool) -> (Vec<String>, u32, u32) {
    let (mut violations, mut executed, mut stale) = (Vec::new(), 0, 0);
    for seed in 0..seeds {
        let (mut trial, mut rng) = (Trial::new(raises_floors), Rng::seeded(seed));
        for step in 0..STEPS {
            if let Err(violation) = trial.step(&mut rng) {
                violations.push(format!("seed {seed}, step {step}: {violation}"));
                break;
            }
        }
        executed += trial.executed;
        stale += trial.refused_as_stale;
    }
    (violations, executed, stale)
}

const SEEDS: u64 = 100;

#[test]
fn raised_floors_repeat_no_fence_and_refuse_every_old_lease() {
    let (violations, executed, stale) = run(SEEDS, true);
    assert_eq!(violations, [""; 0]);
    assert!(executed > SEEDS as u32 && stale > SEEDS as u32, "{executed} and {stale}");
}

/// The oracle can fail: without floors it finds both kinds of violation.
#[test]
fn restores_without_raised_floors_are_found() {
    let (violations, ..) = run(SEEDS, false);
    for kind in ["was issued twice", "from before a restore wrote"] {
        assert!(violations.iter().any(|it| it.contains(kind)), "{kind}: {violations:?}");
    }
}
