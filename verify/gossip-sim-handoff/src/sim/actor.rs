//! One worker of a world: uses `lease_handoff` as a product does, with random actions.

use std::rc::Rc;

use gossip_contracts::coordination::{
    Cursor, CursorUpdate, ShardSpecRef, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::store::{StoreConfig, StoreCoordinator};
use gossip_coordination::{
    CheckpointError, CompleteError, CoordinationBackend, Lease, ParkError, ParkReason, RenewError,
    ShardClaiming, SplitError, WorkerEntry, WorkerState,
};

use super::bugs::Bug;
use super::disk::key_of;
use super::held::Held;
use super::world::{RUN, SimStore, TENANT, World};
use gossip_handoff::lease_handoff::{
    DrainNext, Driver, HandoffConfig, HandoffSource, HeldShard, Inbound, InboundNext, MoveTerms,
    Recovery, RecoveryNext, SourceEnd, SourceNext, WorkerDrain, worker_name,
};
use gossip_handoff::{Machine, Phase, Repository, StoreRepository};

pub(super) const CONFIG: HandoffConfig = HandoffConfig {
    prepare_ticks: 12,
    offer_ticks: 12,
    finish_ticks: 8,
    lead_ticks: 1,
    find_ticks: 1,
    poll_ticks: 1,
    accepts_per_read: 2,
    retry_ticks: 1,
};
/// Maximum number of shards that a worker claims.
const CLAIMS_MAX: usize = 2;
/// Upper bound on the steps of one machine in a round without faults.
const TURNS_MAX: u32 = 200;
/// Ticks that a drain may take.
const DRAIN_TICKS: u64 = 20;

/// One process of a worker.
pub(super) struct Actor {
    place: usize,
    me: WorkerId,
    backend: StoreCoordinator<SimStore>,
    records: StoreRepository<SimStore>,
    held: Vec<Held>,
    /// Handoffs whose shard is, or may be, finished, split or parked; their next steps detect it.
    orphans: Vec<Orphan>,
    inbound: Inbound,
    recovery: Recovery,
    drain: Option<WorkerDrain>,
}

/// A handoff that outlives its shard.
struct Orphan {
    source: Box<HandoffSource>,
    lease: Lease,
    /// The last position in the shard.
    cursor: Cursor,
}

impl Actor {
    /// Creates a process with these leases.
    pub(super) fn new(world: &Rc<World>, place: usize, leases: &[Lease]) -> Self {
        let me = worker(place);
        let store = SimStore::new(world, place);
        let mut actor = Self {
            place,
            me,
            backend: StoreCoordinator::new(store.clone(), StoreConfig::new(world.fresh_nonce())),
            records: StoreRepository::new(store, TENANT, world.fresh_nonce()),
            held: Vec::new(),
            orphans: Vec::new(),
            inbound: Inbound::new(me, CONFIG),
            recovery: Recovery::new(me, CONFIG),
            drain: None,
        };
        for (nth, lease) in (0..).zip(leases) {
            actor.held.push(Held::at(lease.clone(), nth * 8, nth * 8 + 8, nth * 8));
        }
        if world.bug == Some(Bug::RollsBackWithoutLooking) {
            actor.roll_back_everything();
        }
        actor
    }

    /// Runs one random action.
    pub(super) fn act(&mut self, world: &Rc<World>) {
        if self.drain.is_some() {
            return match world.below(10) {
                0..7 => drop(self.step_drain(world)),
                7..9 => self.work(world),
                _ => self.renew(world),
            };
        }
        match world.below(100) {
            0..28 => drop(self.arrive(world)),
            28..70 => self.move_out(world),
            70..78 => self.work(world),
            78..82 => self.renew(world),
            82..86 => self.claim(world),
            86..88 => self.give_away(world),
            88..91 => self.split(world),
            91..93 => self.park(world),
            93..96 => self.change_mind(world),
            96..98 => drop(self.recover(world)),
            _ => self.start_drain(world),
        }
    }

    /// Returns whether the worker has no handoff left.
    pub(super) fn is_idle(&self) -> bool {
        let is_moving = self.held.iter().any(|held| held.source.is_some());
        !is_moving && self.orphans.is_empty() && self.inbound.is_idle() && self.drain.is_none()
    }

    /// Runs everything that needs neither faults nor time.
    pub(super) fn settle(&mut self, world: &Rc<World>) {
        for _ in 0..TURNS_MAX {
            if !self.arrive(world) {
                break;
            }
        }
        for _ in 0..TURNS_MAX {
            if self.drain.is_none() || !self.step_drain(world) {
                break;
            }
        }
        for place in (0..self.orphans.len()).rev() {
            while self.step_orphan(world, place) {}
        }
        for place in (0..self.held.len()).rev() {
            while self.step_source(world, place) {}
        }
        for _ in 0..TURNS_MAX {
            if !self.recover(world) {
                break;
            }
        }
        self.renew(world);
        if self.drain.is_none() {
            self.work_off(world);
            self.claim(world);
        }
    }

    fn now(&self, world: &World) -> LogicalTime {
        world.now(self.place)
    }

    fn driver(&mut self) -> Driver<'_, StoreCoordinator<SimStore>, StoreRepository<SimStore>> {
        Driver { tenant: TENANT, backend: &mut self.backend, records: &mut self.records }
    }

    fn pick(&self, world: &World) -> Option<usize> {
        let count = self.held.len();
        (count > 0).then(|| world.random.borrow_mut().place(count))
    }

    /// Selects a shard that is being processed.
    fn pick_working(&self, world: &World) -> Option<usize> {
        let now = self.now(world);
        let works_anyhow = world.bug == Some(Bug::WorksWhileOffered);
        let works = |held: &Held| (!held.is_frozen || works_anyhow) && held.is_live(now);
        self.pick(world).filter(|place| works(&self.held[*place]))
    }

    fn work(&mut self, world: &Rc<World>) {
        let Some(place) = self.pick_working(world) else { return self.drop_dead(world) };
        self.do_key(world, place);
        if world.one_in(2) || self.held[place].next == self.held[place].end {
            self.save(world, place);
        }
    }

    /// Processes the next key of a shard.
    fn do_key(&mut self, world: &World, place: usize) {
        let held = &mut self.held[place];
        if held.next < held.end {
            world.did(self.place, held.shard(), held.lease.fence().as_raw(), held.next);
            held.next += 1;
        }
    }

    /// Checkpoints or completes a shard.
    fn save(&mut self, world: &Rc<World>, place: usize) {
        let now = self.now(world);
        let held = &mut self.held[place];
        let (cursor, op, next) = (held.cursor(), held.fresh_op(), held.next);
        if held.is_frozen || next == held.start {
            return;
        }
        if next == held.end {
            let done = self.backend.complete(now, TENANT, &held.lease, cursor.as_update(), op);
            // If the outcome is unknown the shard is dropped: the next owner resolves it.
            let _result: Result<_, CompleteError> = done;
            return self.lose(world, place);
        }
        match self.backend.checkpoint(now, TENANT, &held.lease, cursor.as_update(), op) {
            Ok(_) => held.saved = next,
            Err(CheckpointError::BackendError(_)) => {}
            Err(_) => self.lose(world, place),
        }
    }

    /// Drops a shard that this worker no longer processes. A handoff of it detects that in its next
    /// step, or is cancelled.
    fn lose(&mut self, world: &World, place: usize) {
        let mut held = self.held.remove(place);
        if let Some(drain) = &mut self.drain {
            drain.finished(held.lease.key());
        }
        if let Some(mut source) = held.source.take() {
            if world.one_in(2) {
                source.cancel();
            }
            let (lease, cursor) = (held.lease.clone(), held.cursor());
            self.orphans.push(Orphan { source, lease, cursor });
        }
    }

    /// Drops expired leases, except those that a handoff still needs.
    fn drop_dead(&mut self, world: &World) {
        let now = self.now(world);
        let is_dead = |held: &Held| !held.is_live(now) && held.source.is_none();
        if self.drain.is_none()
            && let Some(place) = self.held.iter().position(is_dead)
        {
            self.held.remove(place);
        }
    }

    fn renew(&mut self, world: &Rc<World>) {
        let now = self.now(world);
        let leases: Vec<Lease> = self.held.iter().map(|held| held.lease.clone()).collect();
        let mut results = Vec::new();
        self.backend.renew_many(now, TENANT, &leases, &mut results);
        for (lease, result) in leases.iter().zip(results) {
            let is_it = |held: &Held| held.lease.key() == lease.key();
            let Some(place) = self.held.iter().position(is_it) else { continue };
            match result {
                Ok(renewed) => {
                    let held = &mut self.held[place];
                    held.until = held.until.max(renewed.new_deadline);
                }
                Err(RenewError::BackendError(_)) => {}
                // A source or a drain detects the loss of a frozen shard in its next step.
                Err(_) if self.held[place].is_frozen => {}
                Err(_) => self.lose(world, place),
            }
        }
    }

    fn claim(&mut self, world: &Rc<World>) {
        if self.held.len() >= CLAIMS_MAX {
            return;
        }
        let now = self.now(world);
        let (backend, me) = (&mut self.backend, self.me);
        let got = world.with_scratch(|scratch| {
            let got = backend.claim_next_available(now, TENANT, RUN, me, scratch);
            got.ok().map(|got| Held::new(&got))
        });
        got.into_iter().for_each(|held| self.take(held));
    }

    /// Adds a granted shard, replacing an earlier state of it.
    fn take(&mut self, held: Held) {
        self.held.retain(|one| one.lease.key() != held.lease.key());
        self.held.push(held);
    }

    fn give_away(&mut self, world: &Rc<World>) {
        if let Some(place) = self.pick_working(world) {
            self.begin_move(world, place);
        }
    }

    /// Starts a handoff of a shard to a random worker.
    fn begin_move(&mut self, world: &World, place: usize) {
        let now = self.now(world);
        let to = worker(world.random.borrow_mut().place(world.worker_count()));
        let held = &mut self.held[place];
        if held.source.is_some() || to == self.me {
            return;
        }
        let deadline = now.saturating_add(CONFIG.offer_ticks);
        let terms = MoveTerms::new(&held.lease, to, held.attempts, deadline);
        held.attempts += 1;
        // Sometimes the shard is frozen from the start, with a snapshot.
        let source = if world.one_in(4) {
            held.is_frozen = true;
            HandoffSource::new(terms, held.cursor(), b"state".to_vec(), CONFIG, now)
        } else {
            HandoffSource::prepare(terms, CONFIG, now)
        };
        held.source = source.ok().map(Box::new);
    }

    /// Advances an outbound handoff, or starts one.
    fn move_out(&mut self, world: &Rc<World>) {
        if let Some(place) = self.orphans.len().checked_sub(1)
            && world.one_in(2)
        {
            self.step_orphan(world, place);
            return;
        }
        let is_leaving = |held: &Held| held.source.is_some();
        match self.held.iter().position(is_leaving) {
            Some(first) => {
                let place = self.pick(world).filter(|place| is_leaving(&self.held[*place]));
                self.step_source(world, place.unwrap_or(first));
            }
            None => self.give_away(world),
        }
    }

    /// Returns whether another step can follow at once.
    fn step_orphan(&mut self, world: &Rc<World>, place: usize) -> bool {
        let now = self.now(world);
        let mut orphan = self.orphans.remove(place);
        let next = self.driver().step_source(&mut orphan.source, Some(&orphan.lease), now);
        match next {
            SourceNext::Done(_) => return false,
            // The shard is not processed: it stays frozen at its last position.
            SourceNext::Freeze => orphan.source.freeze(now, orphan.cursor.clone()),
            SourceNext::Again | SourceNext::Wait(_) => {}
        }
        self.orphans.insert(place, orphan);
        !matches!(next, SourceNext::Wait(_))
    }

    /// Returns whether another step can follow at once.
    fn step_source(&mut self, world: &Rc<World>, place: usize) -> bool {
        let now = self.now(world);
        let held = &mut self.held[place];
        let Some(mut source) = held.source.take() else { return false };
        if world.bug == Some(Bug::ResumesAtTheDeadline) && now >= source.terms().offer_deadline {
            held.is_frozen = false;
            return false;
        }
        let lease = held.lease.clone();
        let next = self.driver().step_source(&mut source, Some(&lease), now);
        let held = &mut self.held[place];
        match next {
            SourceNext::Freeze => {
                held.is_frozen = true;
                let forgets = world.bug == Some(Bug::OffersTheStoredCursor);
                source.freeze(now, if forgets { Cursor::initial() } else { held.cursor() });
            }
            SourceNext::Done(SourceEnd::Kept(_)) => {
                held.is_frozen = false;
                // Mostly another destination is tried at once.
                if world.is_faulty() && !world.one_in(4) {
                    self.begin_move(world, place);
                }
                return false;
            }
            SourceNext::Done(SourceEnd::Moved) if world.bug == Some(Bug::KeepsWhatMoved) => {
                held.is_frozen = false;
                return false;
            }
            SourceNext::Done(SourceEnd::Moved | SourceEnd::Lost(_)) => {
                self.held.remove(place);
                return false;
            }
            SourceNext::Again | SourceNext::Wait(_) => {}
        }
        held.source = Some(source);
        !matches!(next, SourceNext::Wait(_))
    }

    fn change_mind(&mut self, world: &Rc<World>) {
        let Some(place) = self.pick(world) else { return };
        if let Some(source) = &mut self.held[place].source {
            source.cancel();
        }
    }

    /// Returns whether another step can follow at once.
    fn arrive(&mut self, world: &Rc<World>) -> bool {
        let now = self.now(world);
        if world.bug == Some(Bug::AcksBeforeAccepting) {
            self.acknowledge_everything();
        }
        let mut driver =
            Driver { tenant: TENANT, backend: &mut self.backend, records: &mut self.records };
        let inbound = &mut self.inbound;
        let (is_busy, came) =
            world.with_scratch(|scratch| match inbound.step(&mut driver, scratch, now) {
                InboundNext::Again => (true, None),
                InboundNext::Wait(_) => (false, None),
                InboundNext::Live(arrived) => (true, Some(Held::new(&arrived.view))),
            });
        if let Some(mut held) = came {
            match world.bug {
                Some(Bug::StartsOver) => held.next = held.start,
                Some(Bug::SkipsAKey) => held.next = held.end.min(held.next + 1),
                Some(_) | None => {}
            }
            self.take(held);
            let last = self.held.len() - 1;
            self.do_key(world, last);
            // Mostly it is handed to a third worker before the first handoff has ended.
            if world.is_faulty() && !world.one_in(4) {
                self.begin_move(world, last);
            }
        }
        is_busy
    }

    /// Returns whether another step can follow at once.
    fn recover(&mut self, world: &Rc<World>) -> bool {
        let now = self.now(world);
        let held = self.held.iter().filter_map(|held| held.source.as_ref());
        let orphans = self.orphans.iter().map(|orphan| &orphan.source);
        let mut live: Vec<_> = held.chain(orphans).map(|one| one.terms().id.clone()).collect();
        // All keys of a drain are processed by this process.
        if self.drain.is_some() {
            return false;
        }
        live.sort();
        let mut driver =
            Driver { tenant: TENANT, backend: &mut self.backend, records: &mut self.records };
        let is_live = |id: &gossip_handoff::RecordId| live.binary_search(id).is_ok();
        self.recovery.step(&mut driver, is_live, now) == Ok(RecoveryNext::Again)
    }

    /// Splits a shard, also one that is being prepared for a handoff.
    fn split(&mut self, world: &Rc<World>) {
        let now = self.now(world);
        let Some(place) = self.pick_working(world) else { return };
        let replaces = world.one_in(2);
        let held = &mut self.held[place];
        let low = held.next.max(held.start) + 1;
        if held.is_frozen || low >= held.end || (replaces && held.saved != held.next) {
            return;
        }
        let cut = low + world.below(u64::from(held.end - low)) as u8;
        let (op, lease, cursor) = (held.fresh_op(), held.lease.clone(), held.cursor());
        let [start, cut_key, end] = [held.start, cut, held.end].map(key_of);
        let parts = [(&start, &cut_key), (&cut_key, &end)];
        let [left, right] = parts.map(|(start, end)| ShardSpecRef::new(start, end, b""));
        if replaces {
            let carried = held.next > held.start;
            let first = if carried { cursor.as_update() } else { CursorUpdate::initial() };
            let parts =
                [SplitChild::new(left, first), SplitChild::new(right, CursorUpdate::initial())];
            let Ok(plan) = SplitReplacePlan::try_new(parts) else { return };
            let _result: Result<_, SplitError> =
                self.backend.split_replace(now, TENANT, &lease, &plan, op);
            // The shard is terminal, or the outcome is unknown.
            return self.lose(world, place);
        }
        let Ok(plan) = SplitResidualPlan::try_new(left, right) else { return };
        match self.backend.split_residual(now, TENANT, &lease, &plan, op) {
            Ok(_) => self.held[place].end = cut,
            // The end of the shard is unknown, so it must not be processed.
            Err(_) => self.lose(world, place),
        }
    }

    fn park(&mut self, world: &Rc<World>) {
        let now = self.now(world);
        let Some(place) = self.pick_working(world) else { return };
        let held = &mut self.held[place];
        if held.is_frozen {
            return;
        }
        let (op, lease) = (held.fresh_op(), held.lease.clone());
        let _result: Result<_, ParkError> =
            self.backend.park_shard(now, TENANT, &lease, ParkReason::Other, op);
        self.lose(world, place);
    }

    fn start_drain(&mut self, world: &Rc<World>) {
        let now = self.now(world);
        let is_busy = self.held.iter().any(|held| held.source.is_some());
        if is_busy || self.held.is_empty() || !self.inbound.is_idle() || !world.one_in(2) {
            return;
        }
        self.inbound.close();
        let holding = |held: &Held| HeldShard::working(held.lease.clone(), held.attempts);
        let holdings = self.held.iter().map(holding).collect();
        let states = [WorkerState::Idle, WorkerState::Working, WorkerState::Draining];
        let entry = |place: usize| {
            let state = states[world.random.borrow_mut().place(states.len())];
            WorkerEntry::heard_of(worker(place), state, now)
        };
        let workers: Vec<WorkerEntry> = (0..world.worker_count()).map(entry).collect();
        let deadline = now.saturating_add(DRAIN_TICKS);
        self.drain = Some(WorkerDrain::new(self.me, holdings, &workers, CONFIG, deadline));
    }

    /// Returns whether another step can follow at once.
    fn step_drain(&mut self, world: &Rc<World>) -> bool {
        let now = self.now(world);
        let Some(mut drain) = self.drain.take() else { return false };
        let next = drain.step(&mut self.driver(), now);
        if let DrainNext::Freeze(key) = next {
            match self.held.iter_mut().find(|held| held.lease.key() == key) {
                Some(held) => {
                    held.is_frozen = true;
                    let forgets = world.bug == Some(Bug::ReleasesUnsaved);
                    drain.freeze(now, key, if forgets { Cursor::initial() } else { held.cursor() });
                }
                None => drain.finished(key),
            }
        }
        for (lease, _) in drain.take_ended() {
            self.held.retain(|held| held.lease.key() != lease.key());
        }
        if let DrainNext::Done(_) = next {
            // The worker ends, and a process with the same id starts.
            self.held.clear();
            self.inbound = Inbound::new(self.me, CONFIG);
            return false;
        }
        self.drain = Some(drain);
        !matches!(next, DrainNext::Wait(_))
    }

    /// Completes all shards that are being processed.
    fn work_off(&mut self, world: &Rc<World>) {
        let now = self.now(world);
        for place in (0..self.held.len()).rev() {
            if !self.held[place].is_live(now) && self.held[place].source.is_none() {
                self.held.remove(place);
            } else if !self.held[place].is_frozen && self.held[place].source.is_none() {
                while self.held[place].next < self.held[place].end {
                    self.do_key(world, place);
                }
                self.save(world, place);
            }
        }
    }

    /// See [`Bug::RollsBackWithoutLooking`].
    fn roll_back_everything(&mut self) {
        let name = worker_name(self.me);
        for stored in self.records.in_progress(&name).unwrap_or_default() {
            if stored.record.from == name
                && let Ok(mut machine) = Machine::from_record(stored.record)
                && machine.rollback("restarted").is_ok()
            {
                drop(self.records.save(&machine.record(), Some(stored.version)));
            }
        }
    }

    /// See [`Bug::AcksBeforeAccepting`].
    fn acknowledge_everything(&mut self) {
        let name = worker_name(self.me);
        for stored in self.records.in_progress(&name).unwrap_or_default() {
            if stored.record.to == name
                && stored.record.state == Phase::Transfer
                && let Ok(mut machine) = Machine::from_record(stored.record)
                && machine.ack().is_ok()
            {
                drop(self.records.save(&machine.record(), Some(stored.version)));
            }
        }
    }
}

fn worker(place: usize) -> WorkerId {
    WorkerId::from_raw(place as u64 + 1)
}
