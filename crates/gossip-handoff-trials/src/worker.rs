//! One worker: it claims, works, moves shards, takes what is offered, and drains when it is told.
//!
//! It is one thread, so that a trial shows what one loop makes of it. It is told by its standard
//! input: `drain` ends it gracefully, the end of the input at once. It tells by its standard
//! output: a line for each shard that it accepted.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, RenewError, RunManagement, ShardClaiming, WorkerEntry,
    WorkerState,
};
use gossip_handoff::join::{
    Destination, DestinationNext, Drain, DrainNext, Holding, MoveTerms, Mover, Source, SourceEnd,
    SourceNext, worker_name,
};
use gossip_handoff::{Phase, Repository, Stored};

use crate::Failure;
use crate::held::Held;
use crate::journal::{Journal, What};
use crate::numbers::Numbers;
use crate::world::{CONFIG, RUN, SHORT_LEASE, Shape, Site, TENANT, now};

/// Keys between two checkpoints.
const BATCH: u64 = 8;
/// Shards that a worker claims by itself; more come by moves.
const CLAIMS: usize = 4;
/// Milliseconds between renewals, claims and heartbeats: a tenth of the shortest lease.
const UPKEEP: u64 = SHORT_LEASE / 10;
/// One batch in so many is followed by a move.
const MOVE_ONE_IN: u64 = 12;
/// How long a worker rests when it has nothing to do.
const REST: Duration = Duration::from_micros(200);
/// How long a batch of work takes beside the store.
const PACE: Duration = Duration::from_micros(300);
/// Milliseconds that a drain may take.
const DRAIN: u64 = 20_000;

/// Works until it is told to end.
pub(crate) fn run(
    url: &str,
    journal: &Path,
    worker: u64,
    seed: u64,
    shape: Shape,
) -> Result<String, Failure> {
    let drains = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&drains);
    std::thread::spawn(move || listen(&told));
    let mut worker = Worker {
        site: Site::open(url)?,
        journal: Journal::create(journal)?,
        me: WorkerId::from_raw(worker),
        shape,
        numbers: Numbers::new(seed ^ (worker << 32)),
        held: BTreeMap::new(),
        arriving: Vec::new(),
        recovering: Vec::new(),
        peers: Vec::new(),
        upkeep_at: LogicalTime::ZERO,
    };
    worker.site.backend.register_worker(now(), TENANT, worker.me)?;
    worker.recover()?;
    while !drains.load(Ordering::Relaxed) {
        worker.turn()?;
    }
    worker.drain()
}

/// Hears what the trial says.
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
    journal: Journal,
    me: WorkerId,
    shape: Shape,
    numbers: Numbers,
    held: BTreeMap<u64, Held>,
    arriving: Vec<Destination>,
    /// Moves that an earlier process of this name left behind.
    recovering: Vec<Source>,
    peers: Vec<WorkerEntry>,
    upkeep_at: LogicalTime,
}

impl Worker {
    /// What an earlier process of this name left behind.
    fn recover(&mut self) -> Result<(), Failure> {
        let found = self.site.records.in_progress(&worker_name(self.me))?;
        let mine = |one: &Stored| one.record.from == worker_name(self.me);
        for stored in found.into_iter().filter(mine) {
            self.recovering.push(Source::recover(stored, false, CONFIG, now())?);
        }
        Ok(())
    }

    /// One round: upkeep, then each shard in turn, and moves after each of them.
    fn turn(&mut self) -> Result<(), Failure> {
        if now() >= self.upkeep_at {
            self.upkeep()?;
        }
        self.move_on()?;
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

    /// What is due now and then. Arrivals are looked for in between: they stand still.
    fn upkeep(&mut self) -> Result<(), Failure> {
        self.upkeep_at = now().saturating_add(UPKEEP);
        self.renew();
        self.arrive()?;
        let state = if self.held.is_empty() { WorkerState::Idle } else { WorkerState::Working };
        if self.site.backend.heartbeat(now(), TENANT, self.me, state).is_err() {
            self.site.backend.register_worker(now(), TENANT, self.me)?;
        }
        self.arrive()?;
        self.peers.clear();
        self.site.backend.list_workers_into(now(), TENANT, &mut self.peers)?;
        while self.held.len() < CLAIMS && self.claim()? {
            self.arrive()?;
        }
        self.resume_recovery()
    }

    /// Records of the dead end when the fence has moved; until then they are looked at again.
    fn resume_recovery(&mut self) -> Result<(), Failure> {
        for mut source in std::mem::take(&mut self.recovering) {
            let mut mover = mover(&mut self.site);
            while mover.step_source(&mut source, None, now()) == SourceNext::Again {}
        }
        let found = self.site.records.in_progress(&worker_name(self.me))?;
        let live = |one: &Stored| {
            let shard = MoveTerms::of(&one.record).map(|terms| terms.key.shard().as_raw());
            let moving = shard.ok().and_then(|shard| self.held.get(&shard)?.source.as_ref());
            moving.is_some_and(|source| source.terms().id == one.record.id)
        };
        let mine = |one: &Stored| one.record.from == worker_name(self.me) && !live(one);
        for stored in found.into_iter().filter(mine) {
            self.recovering.push(Source::recover(stored, false, CONFIG, now())?);
        }
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
                // A source finds out by itself what became of it.
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

    /// Works on a few keys of a shard, and sometimes begins to give it away.
    fn work(&mut self, shard: u64) -> Result<(), Failure> {
        let Some(held) = self.held.get_mut(&shard) else { return Ok(()) };
        if held.is_frozen || now() >= held.until {
            return Ok(());
        }
        let keys: Vec<What> = (held.next..held.end).take(BATCH as usize).map(What::Did).collect();
        self.journal.note(shard, held.fence(), &keys)?;
        held.next += keys.len() as u64;
        std::thread::sleep(PACE);
        let is_staying = held.source.is_none();
        if self.shape == Shape::Moving && is_staying && self.numbers.below(MOVE_ONE_IN) == 0 {
            return self.give_away(shard);
        }
        self.checkpoint(shard);
        Ok(())
    }

    fn checkpoint(&mut self, shard: u64) {
        let Some(held) = self.held.get_mut(&shard) else { return };
        let (cursor, op, lease) = (held.cursor(), held.fresh_op(), held.lease.clone());
        let (backend, cursor, is_done) =
            (&mut self.site.backend, cursor.as_update(), held.is_done());
        let goes_on = if is_done {
            let done = backend.complete(now(), TENANT, &lease, cursor, op);
            done.is_err_and(|error| {
                matches!(error, gossip_coordination::CompleteError::BackendError(_))
            })
        } else {
            let moved = backend.checkpoint(now(), TENANT, &lease, cursor, op);
            match moved {
                Ok(_) | Err(gossip_coordination::CheckpointError::BackendError(_)) => true,
                Err(_) => false,
            }
        };
        if !goes_on {
            self.held.remove(&shard);
        }
    }

    /// Begins to give a shard away. It is worked on until only the offer is left to do.
    fn give_away(&mut self, shard: u64) -> Result<(), Failure> {
        let others: Vec<WorkerId> = self
            .peers
            .iter()
            .filter(|peer| peer.worker != self.me && peer.state != WorkerState::Draining)
            .map(|peer| peer.worker)
            .collect();
        let Some(held) = self.held.get_mut(&shard).filter(|_| !others.is_empty()) else {
            self.checkpoint(shard);
            return Ok(());
        };
        let to = others[usize::try_from(self.numbers.next())? % others.len()];
        let deadline = now().saturating_add(CONFIG.offer_ticks);
        let terms = MoveTerms::new(&held.lease, to, held.attempts, deadline);
        held.attempts += 1;
        held.source = Some(Box::new(Source::prepare(terms, CONFIG, now())?));
        Ok(())
    }

    /// Lets every move that is under way go on as far as it can. What arrives goes first: its
    /// source stands still.
    fn move_on(&mut self) -> Result<(), Failure> {
        self.arrive()?;
        let is_leaving = |(shard, held): (&u64, &Held)| held.source.as_ref().map(|_| *shard);
        let leaving: Vec<u64> = self.held.iter().filter_map(is_leaving).collect();
        for shard in leaving {
            while self.move_out(shard)? {
                self.arrive()?;
            }
        }
        Ok(())
    }

    /// Takes what was offered.
    fn arrive(&mut self) -> Result<(), Failure> {
        self.find()?;
        for mut destination in std::mem::take(&mut self.arriving) {
            if self.move_in(&mut destination)? {
                self.arriving.push(destination);
            }
        }
        Ok(())
    }

    /// One step of a move away; whether there is another at once.
    fn move_out(&mut self, shard: u64) -> Result<bool, Failure> {
        let Some(held) = self.held.get_mut(&shard) else { return Ok(false) };
        let Some(mut source) = held.source.take() else { return Ok(false) };
        let lease = held.lease.clone();
        let mut next = mover(&mut self.site).step_source(&mut source, Some(&lease), now());
        if next == SourceNext::Freeze {
            // Its last keys travel with the offer, which follows at once.
            self.journal.note(shard, held.fence(), &[What::Froze])?;
            held.is_frozen = true;
            source.freeze(now(), held.cursor());
            next = mover(&mut self.site).step_source(&mut source, Some(&lease), now());
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

    /// Looks for moves to this worker that it does not know yet.
    fn find(&mut self) -> Result<(), Failure> {
        let name = worker_name(self.me);
        let Ok(found) = self.site.records.in_progress(&name) else { return Ok(()) };
        for stored in found {
            let known = self.arriving.iter().any(|one| one.terms().id == stored.record.id);
            let ready = stored.record.state >= Phase::Transfer;
            if stored.record.to == name && ready && !known {
                let destination = Destination::new(stored, CONFIG, now())?;
                if destination.end().is_none() {
                    self.arriving.push(destination);
                }
            }
        }
        Ok(())
    }

    /// Whether the move is still under way.
    fn move_in(&mut self, destination: &mut Destination) -> Result<bool, Failure> {
        let mut scratch = AcquireScratch::new();
        loop {
            match mover(&mut self.site).step_destination(destination, &mut scratch, now()) {
                DestinationNext::Again => {}
                DestinationNext::Wait(_) => return Ok(true),
                DestinationNext::Done(_) => return Ok(false),
                DestinationNext::Live(got) => {
                    let held = Held::new(&got)?;
                    let (shard, fence) = (held.shard(), held.fence());
                    self.journal.note(shard, fence, &[What::Accepted])?;
                    self.held.insert(shard, held);
                    self.start(shard, fence)?;
                    writeln!(std::io::stdout(), "accepted")?;
                }
            }
        }
    }

    /// The first key of an accepted shard, before the record says anything.
    fn start(&mut self, shard: u64, fence: u64) -> Result<(), Failure> {
        let Some(held) = self.held.get_mut(&shard).filter(|held| !held.is_done()) else {
            return Ok(());
        };
        self.journal.note(shard, fence, &[What::Did(held.next)])?;
        held.next += 1;
        Ok(())
    }

    /// Gives everything away and ends.
    fn drain(mut self) -> Result<String, Failure> {
        let deadline = now().saturating_add(DRAIN);
        self.site.backend.heartbeat(now(), TENANT, self.me, WorkerState::Draining)?;
        self.finish_moves(deadline)?;
        self.peers.clear();
        self.site.backend.list_workers_into(now(), TENANT, &mut self.peers)?;
        // Another order for each worker, so that the first is not everybody's favourite.
        let turn = self.me.as_raw() as usize % self.peers.len().max(1);
        self.peers.rotate_left(turn);
        let mut holdings = Vec::new();
        for held in self.held.values() {
            self.journal.note(held.shard(), held.fence(), &[What::Froze])?;
            let (lease, cursor): (_, Cursor) = (held.lease.clone(), held.cursor());
            let (snapshot, attempts) = (Vec::new(), held.attempts);
            holdings.push(Holding { lease, cursor, snapshot, attempts });
        }
        let mut drain = Drain::new(self.me, holdings, &self.peers, CONFIG, deadline);
        let mut results = Vec::new();
        loop {
            if now() >= self.upkeep_at {
                self.upkeep_at = now().saturating_add(UPKEEP);
                let leases: Vec<_> = drain.leases().cloned().collect();
                self.site.backend.renew_many(now(), TENANT, &leases, &mut results);
            }
            match drain.step(&mut mover(&mut self.site), now()) {
                DrainNext::Again => {}
                DrainNext::Wait(_) => std::thread::sleep(REST),
                DrainNext::Done(tally) => {
                    return Ok(format!(
                        "drained {} {} {}",
                        tally.moved, tally.released, tally.lost
                    ));
                }
            }
        }
    }

    /// What is under way comes to its end before the rest is given away.
    fn finish_moves(&mut self, deadline: LogicalTime) -> Result<(), Failure> {
        let is_moving = |worker: &Self| {
            !worker.arriving.is_empty() || worker.held.values().any(|held| held.source.is_some())
        };
        self.find()?;
        while is_moving(self) && now() < deadline {
            self.move_on()?;
            std::thread::sleep(REST);
        }
        Ok(())
    }
}

fn mover(site: &mut Site) -> Mover<'_, gossip_stores::Coordinator, StoreRecords> {
    Mover { tenant: TENANT, backend: &mut site.backend, records: &mut site.records }
}

type StoreRecords = gossip_handoff::StoreRepository<gossip_stores::AnyStore>;
