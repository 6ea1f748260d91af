//! One worker process: claims, processes, hands off and accepts shards, and drains on request.
//!
//! One thread processes keys. A second thread accepts inbound handoffs, as in the product, because
//! the source is frozen until the accept. Standard input controls the process: `drain` drains it,
//! the end of the input ends it at once. It writes a line to standard output for each accepted
//! shard.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, RenewError, RunManagement, ShardClaiming, WorkerEntry,
    WorkerState,
};
use gossip_handoff::RecordId;
use gossip_handoff::lease_handoff::{
    DrainNext, HandoffSource, HeldShard, MoveTerms, Recovery, RecoveryNext, SourceEnd, SourceNext,
    WorkerDrain, collect_ended,
};

use crate::Failure;
use crate::handoff::held::Held;
use crate::handoff::inbound::InboundThread;
use crate::handoff::journal::{SharedJournal, What};
use crate::handoff::world::{CONFIG, SHORT_LEASE, Shape, Site};
use crate::run::{RUN, TENANT, now};
use gossip_testkit::Rng;

/// Keys between two checkpoints.
const BATCH: u64 = 8;
/// Shards that a worker claims; handoffs can add more.
const CLAIMS: usize = 4;
/// Milliseconds between renewals, claims and heartbeats: a tenth of the shortest lease.
const PERIOD: u64 = SHORT_LEASE / 10;
/// One in this many batches is followed by a handoff.
const MOVE_ONE_IN: u64 = 12;
/// Idle sleep.
const REST: Duration = Duration::from_micros(200);
/// Milliseconds that a drain may take.
const DRAIN: u64 = 20_000;

/// Runs until standard input requests the end.
pub(crate) fn run(
    url: &str,
    journal: &Path,
    worker: u64,
    seed: u64,
    shape: Shape,
) -> Result<String, Failure> {
    let drains = Arc::new(AtomicBool::new(false));
    let requested = Arc::clone(&drains);
    std::thread::spawn(move || listen(&requested));
    let journal = SharedJournal::create(journal)?;
    let me = WorkerId::from_raw(worker);
    let mut site = Site::open(url)?;
    site.backend.register_worker(now(), TENANT, me, None)?;
    collect_ended(&mut site.records, None, now())?;
    let mut worker = Worker {
        inbound: InboundThread::start(site.another(), me, journal.clone()),
        site,
        journal,
        me,
        shape,
        rng: Rng::seeded(seed ^ (worker << 32)),
        held: BTreeMap::new(),
        recovery: Recovery::new(me, CONFIG),
        peers: Vec::new(),
        periodic_at: LogicalTime::ZERO,
    };
    while !drains.load(Ordering::Relaxed) {
        worker.turn()?;
    }
    worker.drain()
}

/// Reads requests from standard input.
fn listen(drains: &AtomicBool) {
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("drain") => drains.store(true, Ordering::Relaxed),
            Ok(_) | Err(_) => break,
        }
    }
    std::process::exit(0);
}

struct Worker {
    site: Site,
    /// Accepts inbound handoffs.
    inbound: InboundThread,
    journal: SharedJournal,
    me: WorkerId,
    shape: Shape,
    rng: Rng,
    held: BTreeMap<u64, Held>,
    /// Handoffs that earlier processes of this worker id left unfinished.
    recovery: Recovery,
    peers: Vec<WorkerEntry>,
    periodic_at: LogicalTime,
}

impl Worker {
    /// Runs one round: periodic tasks, then a batch of each shard, and handoffs after each batch.
    fn turn(&mut self) -> Result<(), Failure> {
        if now() >= self.periodic_at {
            self.run_periodic_tasks()?;
        }
        self.let_in()?;
        let shards: Vec<u64> = self.held.keys().copied().collect();
        if shards.is_empty() {
            std::thread::sleep(REST);
        }
        for shard in shards {
            self.work(shard)?;
            self.move_on()?;
        }
        Ok(())
    }

    /// Takes over the accepted shards.
    fn let_in(&mut self) -> Result<(), Failure> {
        while let Some(held) = self.inbound.arrived()? {
            self.held.insert(held.shard(), held);
        }
        Ok(())
    }

    /// Runs periodic tasks.
    fn run_periodic_tasks(&mut self) -> Result<(), Failure> {
        self.periodic_at = now().saturating_add(PERIOD);
        self.renew();
        let state = if self.held.is_empty() { WorkerState::Idle } else { WorkerState::Working };
        if self.site.backend.heartbeat(now(), TENANT, self.me, state).is_err() {
            self.site.backend.register_worker(now(), TENANT, self.me, None)?;
        }
        self.peers.clear();
        self.site.backend.list_workers_into(now(), TENANT, &mut self.peers)?;
        while self.held.len() < CLAIMS && self.claim()? {}
        self.recover()
    }

    /// Records of ended processes are completed when the fence has changed; until then they are
    /// checked again.
    fn recover(&mut self) -> Result<(), Failure> {
        let held = &self.held;
        let is_live = |id: &RecordId| {
            let mut sources = held.values().filter_map(|held| held.source.as_ref());
            sources.any(|source| source.terms().id == *id)
        };
        let mut driver = self.site.driver();
        while self.recovery.step(&mut driver, is_live, now())? == RecoveryNext::Again {}
        Ok(())
    }

    fn renew(&mut self) {
        let leases: Vec<_> = self.held.values().map(|held| held.lease.clone()).collect();
        let mut results = Vec::new();
        self.site.backend.renew_many(now(), TENANT, &leases, &mut results);
        for (lease, result) in leases.iter().zip(results) {
            let shard = lease.shard().as_raw();
            match result {
                Ok(renewed) => {
                    if let Some(held) = self.held.get_mut(&shard) {
                        held.until = held.until.max(renewed.new_deadline);
                    }
                }
                // A handoff source detects the loss of its lease in its next step.
                Err(RenewError::BackendError(_)) => {}
                Err(_) => {
                    if self.held.get(&shard).is_some_and(|held| held.source.is_none()) {
                        self.held.remove(&shard);
                    }
                }
            }
        }
    }

    fn claim(&mut self) -> Result<bool, Failure> {
        let mut scratch = AcquireScratch::new();
        let backend = &mut self.site.backend;
        let claimed = backend.claim_next_available(now(), TENANT, RUN, self.me, &mut scratch);
        let Ok(got) = claimed else { return Ok(false) };
        let held = Held::new(&got)?;
        self.journal.note(held.shard(), held.fence(), &[What::Claimed])?;
        self.held.insert(held.shard(), held);
        Ok(true)
    }

    /// Processes a batch of keys of a shard, and sometimes starts a handoff.
    fn work(&mut self, shard: u64) -> Result<(), Failure> {
        let Some(held) = self.held.get_mut(&shard) else { return Ok(()) };
        if held.is_frozen || now() >= held.until {
            return Ok(());
        }
        let keys: Vec<What> = (held.next..held.end).take(BATCH as usize).map(What::Did).collect();
        self.journal.note(shard, held.fence(), &keys)?;
        held.next += keys.len() as u64;
        std::thread::sleep(self.shape.pace());
        let is_staying = held.source.is_none();
        if self.shape == Shape::Moving && is_staying && self.rng.below(MOVE_ONE_IN) == 0 {
            return self.give_away(shard);
        }
        self.checkpoint(shard)
    }

    /// Checkpoints, and records the acknowledged progress.
    fn checkpoint(&mut self, shard: u64) -> Result<(), Failure> {
        let Some(held) = self.held.get_mut(&shard) else { return Ok(()) };
        let (fence, saved) = (held.fence(), held.next.checked_sub(1).map(What::Saved));
        let (cursor, op, lease) = (held.cursor(), held.fresh_op(), held.lease.clone());
        let (backend, cursor, is_done) =
            (&mut self.site.backend, cursor.as_update(), held.is_done());
        let (is_saved, goes_on) = if is_done {
            match backend.complete(now(), TENANT, &lease, cursor, op) {
                Ok(_) => (true, false),
                Err(gossip_coordination::CompleteError::BackendError(_)) => (false, true),
                Err(_) => (false, false),
            }
        } else {
            match backend.checkpoint(now(), TENANT, &lease, cursor, op) {
                Ok(_) => (true, true),
                Err(gossip_coordination::CheckpointError::BackendError(_)) => (false, true),
                Err(_) => (false, false),
            }
        };
        if let Some(saved) = saved.filter(|_| is_saved) {
            self.journal.note(shard, fence, &[saved])?;
        }
        if !goes_on {
            self.held.remove(&shard);
        }
        Ok(())
    }

    /// Starts a handoff. Processing continues until only the offer is left.
    fn give_away(&mut self, shard: u64) -> Result<(), Failure> {
        let others: Vec<WorkerId> = self
            .peers
            .iter()
            .filter(|peer| peer.worker != self.me && peer.state != WorkerState::Draining)
            .map(|peer| peer.worker)
            .collect();
        let Some(held) = self.held.get_mut(&shard).filter(|_| !others.is_empty()) else {
            return self.checkpoint(shard);
        };
        let to = others[usize::try_from(self.rng.next_u64())? % others.len()];
        let deadline = now().saturating_add(CONFIG.offer_ticks);
        let terms = MoveTerms::new(&held.lease, to, held.attempts, deadline);
        held.attempts += 1;
        held.source = Some(Box::new(HandoffSource::prepare(terms, CONFIG, now())?));
        Ok(())
    }

    /// Advances every outbound handoff as far as possible.
    fn move_on(&mut self) -> Result<(), Failure> {
        let is_leaving = |(shard, held): (&u64, &Held)| held.source.as_ref().map(|_| *shard);
        let leaving: Vec<u64> = self.held.iter().filter_map(is_leaving).collect();
        for shard in leaving {
            while self.move_out(shard)? {}
        }
        Ok(())
    }

    /// Runs one step of an outbound handoff; returns whether another step can follow at once.
    fn move_out(&mut self, shard: u64) -> Result<bool, Failure> {
        let Some(held) = self.held.get_mut(&shard) else { return Ok(false) };
        let Some(mut source) = held.source.take() else { return Ok(false) };
        let lease = held.lease.clone();
        let mut next = self.site.driver().step_source(&mut source, Some(&lease), now());
        if next == SourceNext::Freeze {
            // The offer, which follows at once, carries the final cursor.
            self.journal.note(shard, held.fence(), &[What::Froze])?;
            held.is_frozen = true;
            source.freeze(now(), held.cursor());
            next = self.site.driver().step_source(&mut source, Some(&lease), now());
        }
        match next {
            SourceNext::Done(SourceEnd::Kept(_)) => {
                held.is_frozen = false;
                self.journal.note(shard, held.fence(), &[What::Kept])?;
            }
            SourceNext::Done(SourceEnd::Moved | SourceEnd::Lost(_)) => {
                drop(self.held.remove(&shard));
            }
            SourceNext::Again | SourceNext::Freeze | SourceNext::Wait(_) => {
                held.source = Some(source);
            }
        }
        Ok(next == SourceNext::Again)
    }

    /// Hands off all shards and ends.
    fn drain(mut self) -> Result<String, Failure> {
        let deadline = now().saturating_add(DRAIN);
        self.site.backend.heartbeat(now(), TENANT, self.me, WorkerState::Draining)?;
        self.finish_moves(deadline)?;
        self.peers.clear();
        self.site.backend.list_workers_into(now(), TENANT, &mut self.peers)?;
        // A different order for each worker, so that destinations are spread.
        let turn = self.me.as_raw() as usize % self.peers.len().max(1);
        self.peers.rotate_left(turn);
        let holding = |held: &Held| HeldShard::working(held.lease.clone(), held.attempts);
        let holdings = self.held.values().map(holding).collect();
        let mut drain = WorkerDrain::new(self.me, holdings, &self.peers, CONFIG, deadline);
        loop {
            if now() >= self.periodic_at {
                self.periodic_at = now().saturating_add(PERIOD);
                self.renew();
            }
            match drain.step(&mut self.site.driver(), now()) {
                DrainNext::Again => {}
                DrainNext::Freeze(key) => {
                    let Some(held) = self.held.get_mut(&key.shard().as_raw()) else {
                        drain.finished(key);
                        continue;
                    };
                    self.journal.note(held.shard(), held.fence(), &[What::Froze])?;
                    held.is_frozen = true;
                    drain.freeze(now(), key, held.cursor());
                }
                DrainNext::Wait(_) => self.work_on(&mut drain)?,
                DrainNext::Done(tally) => {
                    return Ok(format!(
                        "drained {} {} {} {}",
                        tally.moved, tally.released, tally.lost, tally.finished
                    ));
                }
            }
            for (lease, _) in drain.take_ended() {
                self.held.remove(&lease.shard().as_raw());
            }
        }
    }

    /// Processes the shard with the least progress that is not frozen.
    fn work_on(&mut self, drain: &mut WorkerDrain) -> Result<(), Failure> {
        let working = self.held.values().filter(|held| !held.is_frozen);
        let Some(key) = working.min_by_key(|held| held.done()).map(|held| held.lease.key()) else {
            std::thread::sleep(REST);
            return Ok(());
        };
        let shard = key.shard().as_raw();
        self.work(shard)?;
        if !self.held.contains_key(&shard) {
            drain.finished(key);
        }
        Ok(())
    }

    /// Completes in-flight handoffs before the drain starts new ones.
    fn finish_moves(&mut self, deadline: LogicalTime) -> Result<(), Failure> {
        self.inbound.close();
        let is_moving = |worker: &Self| worker.held.values().any(|held| held.source.is_some());
        while (is_moving(self) || !self.inbound.has_ended()) && now() < deadline {
            self.move_on()?;
            self.let_in()?;
            std::thread::sleep(REST);
        }
        self.let_in()
    }
}
