//! The simulated worker: claims shards, restores cursors, writes results, checkpoints and
//! completes, and calls every other worker operation in between.
//!
//! A worker is correct about its work: it writes results before it moves the cursor past them,
//! reports no key that it did not process, and after sending an offer only renews until its
//! withdrawal is acknowledged. It is deliberately incorrect about its leases: after losing one, it
//! sometimes continues as a zombie, which fences must stop.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, OpId, WorkerId};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode};
use gossip_coordination::store::AsyncStoreCoordinator;
use gossip_coordination::{
    AcquireResultView, AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement,
    AsyncShardClaiming, CheckpointError, ClaimError, HandoffId, Lease, OpSequence, ParkReason,
    PendingRequest, ShardAction, WorkerEntry, WorkerState,
};

use super::answers::Renewal;
use super::bugs::Bug;
use super::context::{Cx, Draft, Phase, Posted};
use super::keyspace::Keyspace;
use super::op::{Ending, Granted, Label, LeaseRef, Said, Terms, Verb, ending};
use super::pools::Pooled;
use super::port::{SimStore, SinkWrite};
use super::queries::carried;
use super::random::mix;

/// Maximum number of shards held at a time.
const HELD_MAX: usize = 3;

/// One operation in this many reuses the id of the one before, mostly for another operation or
/// another payload.
const REUSED_ONE_IN: u64 = 48;

/// One misplaced checkpoint in this many is replaced by malformed input.
const MALFORMED_ONE_IN: u64 = 2;

/// One offer in this many may exceed the maximum duration.
const LONG_OFFER_ONE_IN: u64 = 16;

/// One step of a lease holder in this many sends an old checkpoint again, however many operations
/// came between.
const OLD_RETRY_ONE_IN: u64 = 24;

/// One lease in this many sends operations without a sequence, as the seeds describe.
const UNSEQUENCED_ONE_IN: u64 = 4;

/// Maximum number of keys between two checkpoints.
const BATCH_MAX: u64 = 8;

/// Maximum attempts of an operation whose outcome is unknown.
const TRIES_MAX: u32 = 4;

/// Maximum ticks between two steps.
const IDLE_TICKS: u64 = 25;

/// Ticks to wait when there is no work.
const NOTHING_TICKS: u64 = 60;

/// Maximum operations under a lease after its loss was reported.
const ZOMBIE_STEPS_MAX: u64 = 8;

/// The coordinator of a simulated process.
pub(super) type Handle = AsyncStoreCoordinator<SimStore>;

/// A shard that a worker believes to hold.
#[derive(Debug)]
pub(super) struct Held {
    lease: Lease,
    pub(super) lease_ref: LeaseRef,
    run: u32,
    pub(super) range: (u32, u32),
    /// The first key that the sink has not accepted.
    worked: u32,
    /// The position of the last acknowledged checkpoint.
    done: u32,
    /// Operations under this lease.
    sequence: u64,
    /// Every operation id of this lease, with its sequence.
    issued: Vec<(OpId, u64)>,
    /// Every checkpoint that was sent under this lease, with its position.
    checkpoints: Vec<(OpId, u32)>,
    /// The offer that was sent and not withdrawn.
    frozen: Option<Terms>,
    /// The id of the last offer.
    offered_by: OpId,
    /// Remaining operations as a zombie, once the loss of the lease was reported.
    zombie: Option<u64>,
    /// The last requested action of an administrator.
    requested: Option<ShardAction>,
}

/// A worker.
pub(super) struct Worker {
    pub(super) cx: Cx,
    pub(super) handle: Pooled<Handle>,
    pub(super) scratch: Pooled<Box<AcquireScratch>>,
    pub(super) held: Vec<Held>,
}

impl Worker {
    /// Runs until the process is killed.
    pub(super) async fn run(mut self) {
        self.register().await;
        let forgets = self.cx.shared.borrow().bug.is_some_and(Bug::shows);
        while self.cx.phase() == Phase::Faulty {
            self.faulty_step().await;
            if forgets {
                self.handle.forget();
            }
        }
        while self.cx.phase() == Phase::Calm {
            self.calm_step().await;
        }
    }

    async fn faulty_step(&mut self) {
        let wants = self.held.is_empty() || self.held.len() < HELD_MAX && self.cx.one_in(6);
        match (wants, self.cx.below(64)) {
            (_, 0) => self.heartbeat().await,
            (_, 1) => self.renew_many().await,
            (_, 2..4) if self.held.len() < HELD_MAX && self.accept_posted().await => {}
            (true, 4..16) if self.accept_posted().await => {}
            (true, 16..19) => self.acquire_any().await,
            (true, _) => self.claim().await,
            (false, roll) => {
                let place = self.cx.below(self.held.len() as u64) as usize;
                self.act(place, roll).await;
            }
        }
        if self.cx.one_in(16) {
            self.cx.sleep(1 + self.cx.below(IDLE_TICKS)).await;
        }
    }

    /// Only processes shards once faults are over.
    async fn calm_step(&mut self) {
        self.held.retain(|held| held.zombie.is_none());
        if let Some(place) = self.held.iter().position(|held| held.frozen.is_some()) {
            return self.withdraw(place).await;
        }
        if self.held.is_empty() {
            self.claim().await;
        } else {
            self.work(0).await;
        }
    }

    async fn act(&mut self, place: usize, roll: u64) {
        let held = &self.held[place];
        if held.frozen.is_some() {
            return match roll {
                0..16 => self.renew(place).await,
                16..26 => self.withdraw(place).await,
                26..30 => self.checkpoint(place, self.held[place].worked).await,
                30..36 => self.offer_again(place).await,
                _ => self.cx.sleep(1 + roll % IDLE_TICKS).await,
            };
        }
        if self.cx.odd_below(OLD_RETRY_ONE_IN) == 0 {
            return self.retry_old_checkpoint(place).await;
        }
        if let Some(action) = self.held[place].requested.take().filter(|_| roll < 40) {
            return self.perform(place, action).await;
        }
        match roll {
            0..42 => self.work(place).await,
            42..48 => self.renew(place).await,
            48..50 => self.release(place).await,
            50 => self.park(place).await,
            51..55 => self.split_residual(place, None).await,
            55..57 => self.split_replace(place).await,
            57..60 => self.offer(place, None).await,
            60 if self.cx.odd_below(MALFORMED_ONE_IN) == 0 => self.send_malformed(place).await,
            60 => self.checkpoint_elsewhere(place).await,
            61 => self.withdraw(place).await,
            62 => self.probe_other_tenant(place).await,
            _ => self.list_workers().await,
        }
    }

    async fn register(&mut self) {
        let op = self.cx.begin(Draft::new(Verb::RegisterWorker));
        let (tenant, worker) = (self.cx.tenant_id, self.cx.worker);
        let result = self.handle.register_worker(op.now, tenant, worker, None).await;
        self.cx.end_plain(&op, &result);
    }

    async fn heartbeat(&mut self) {
        let state = WorkerState::ALL[self.cx.below(WorkerState::ALL.len() as u64) as usize];
        let said = Said { state: Some(state), ..Said::default() };
        let op = self.cx.begin(Draft { said, ..Draft::new(Verb::Heartbeat) });
        let (tenant, worker) = (self.cx.tenant_id, self.cx.worker);
        let result = self.handle.heartbeat(op.now, tenant, worker, state).await;
        self.cx.end_plain(&op, &result);
    }

    async fn list_workers(&mut self) {
        let op = self.cx.begin(Draft::new(Verb::ListWorkers));
        let mut workers = Vec::new();
        let result = self.handle.list_workers_into(op.now, self.cx.tenant_id, &mut workers).await;
        self.cx.trace_answer(&op, &workers);
        self.cx.end_plain(&op, &result);
        if result.is_ok() {
            self.cx.judge(|oracle| oracle.check_listed_workers(&op, &workers));
        }
        for WorkerEntry { worker, state, expires_at, .. } in workers {
            self.cx.hash_values(&[worker.as_raw(), state as u64, expires_at.as_raw()]);
        }
    }

    async fn claim(&mut self) {
        let Some(run) = self.cx.any_run() else { return self.cx.sleep(NOTHING_TICKS).await };
        let op = self.cx.begin(Draft { run: Some(run), ..Draft::new(Verb::Claim) });
        let id = self.cx.shared.borrow().oracle.runs[run as usize].id;
        let (tenant, worker) = (self.cx.tenant_id, self.cx.worker);
        let result =
            self.handle.claim_next_available(op.now, tenant, id, worker, &mut self.scratch).await;
        self.cx.end_plain(&op, &result);
        match result {
            Ok(view) => {
                let held = take(&self.cx, &op, run, view);
                self.held.extend(held);
            }
            Err(error) => {
                if matches!(error, ClaimError::RunTerminal { .. } | ClaimError::RunNotFound) {
                    self.cx.remove_if_finished(run);
                }
                self.cx.sleep(NOTHING_TICKS).await;
            }
        }
    }

    /// Acquires a random shard of a run, whether it is held or not.
    async fn acquire_any(&mut self) {
        let Some((run, target)) = self.any_shard() else { return };
        let op = self.cx.begin(Draft::about(Verb::Acquire, target, OpId::from_raw(0)));
        let (tenant, worker) = (self.cx.tenant_id, self.cx.worker);
        let result = self
            .handle
            .acquire_and_restore_into(op.now, tenant, target.key, worker, &mut self.scratch)
            .await;
        self.cx.end_plain(&op, &result);
        if let Ok(view) = result {
            self.held.extend(take(&self.cx, &op, run, view));
        }
    }

    fn any_shard(&self) -> Option<(u32, LeaseRef)> {
        let shared = self.cx.shared.borrow();
        let ours = &shared.oracle.shards_of[self.cx.tenant as usize];
        if ours.is_empty() {
            return None;
        }
        let shard = ours[self.cx.below(ours.len() as u64) as usize];
        let facts = &shared.oracle.shards[shard as usize];
        Some((facts.run, LeaseRef::to(shard, facts.key)))
    }

    /// Accepts a posted offer. Returns whether there was one.
    async fn accept_posted(&mut self) -> bool {
        let Some(Posted { target, run, terms }) = self.cx.noticed() else { return false };
        let said = Said { terms: Some(terms), ..Said::default() };
        let draft = Draft { said, ..Draft::about(Verb::Accept, target, OpId::from_raw(0)) };
        let op = self.cx.begin(draft);
        let (tenant, worker) = (self.cx.tenant_id, self.cx.worker);
        let handoff = HandoffId::from_raw(terms.handoff);
        let result = self
            .handle
            .accept(op.now, tenant, target.key, worker, handoff, &mut self.scratch)
            .await;
        self.cx.end_plain(&op, &result);
        if let Ok(view) = result {
            self.held.extend(take(&self.cx, &op, run, view));
        }
        true
    }

    /// Processes the next keys, and mostly checkpoints them.
    async fn work(&mut self, place: usize) {
        let held = &self.held[place];
        let (from, end) = (held.worked, held.range.1);
        let to = end.min(from + 1 + self.cx.below(BATCH_MAX) as u32);
        if from < to {
            let LeaseRef { shard, grant, .. } = held.lease_ref;
            let (run, fence) = (held.run, held.lease.fence().as_raw());
            let taken =
                self.cx.write(SinkWrite { run, keys: (from, to), shard, grant, fence }).await;
            match taken {
                Some(true) => {
                    self.held[place].worked = to;
                    self.cx.shared.borrow_mut().oracle.worked[grant as usize] = to;
                }
                Some(false) => return self.lost(place),
                None => return,
            }
        }
        if to == end {
            self.complete(place).await;
        } else if self.cx.below(8) > 0 || self.cx.phase() == Phase::Calm {
            self.checkpoint(place, to).await;
        }
    }

    /// Sends results again, and a checkpoint at a wrong position.
    async fn checkpoint_elsewhere(&mut self, place: usize) {
        let (low, high) = self.held[place].range;
        let at = low + self.cx.below(u64::from(high - low) + 8) as u32;
        let at = at.min(self.held[place].worked);
        self.checkpoint(place, at).await;
    }

    async fn checkpoint(&mut self, place: usize, to: u32) {
        if to == 0 {
            return;
        }
        let (op_id, grant) = (self.next_op_id(place), self.held[place].lease_ref.grant);
        self.held[place].checkpoints.push((op_id, to));
        for _ in 0..TRIES_MAX {
            match self.send_checkpoint(place, to, op_id).await {
                Ending::Failed { corrupt: false, .. } => self.cx.sleep(4).await,
                Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => {
                    break;
                }
            }
        }
        // The shard may have been dropped, and another one may have its place.
        if self.held.get(place).is_none_or(|held| held.lease_ref.grant != grant) {
            return;
        }
        match self.cx.below(24) {
            0 => _ = self.send_checkpoint(place, to, op_id).await,
            1 => {
                self.send_checkpoint(place, (to - 1).max(1), op_id).await;
            }
            _ => {}
        }
    }

    /// Sends one of the lease's checkpoints again, as a delayed duplicate.
    async fn retry_old_checkpoint(&mut self, place: usize) {
        let count = self.held[place].checkpoints.len() as u64;
        if count == 0 {
            return;
        }
        let (op_id, to) = self.held[place].checkpoints[self.cx.odd_below(count) as usize];
        self.held[place].present(op_id);
        self.send_checkpoint(place, to, op_id).await;
    }

    async fn send_checkpoint(&mut self, place: usize, to: u32, op_id: OpId) -> Ending {
        let held = &self.held[place];
        let said = Said { to: Some(to), ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::Checkpoint, held.lease_ref, op_id) };
        let op = self.cx.begin(draft);
        let keys = keys(&self.cx);
        let cursor = cursor_at(&keys, to);
        let (now, tenant) = (op.now, self.cx.tenant_id);
        let result = self.handle.checkpoint(now, tenant, &held.lease, cursor, op_id).await;
        let ending = self.cx.end(&op, &result, None);
        match result {
            Ok(result) => {
                self.held[place].done = self.held[place].done.max(to);
                let request = result.into_inner().request;
                if ending == Ending::Executed {
                    self.cx.judge(|oracle| oracle.was_shown(&op, request.as_ref()));
                }
                self.held[place].requested(request);
            }
            // The lease is live, and the duplicate was not needed.
            Err(CheckpointError::OperationTooOld { .. }) => {}
            Err(_) => self.maybe_lost(place, ending),
        }
        ending
    }

    /// Performs the action that an administrator requested.
    async fn perform(&mut self, place: usize, action: ShardAction) {
        match action {
            ShardAction::Split(at) => {
                let at = at.and_then(|at| keys(&self.cx).number(at.as_bytes()));
                self.split_residual(place, at).await;
            }
            ShardAction::Release => self.release(place).await,
            ShardAction::HandOff(to) => self.offer(place, to.map(|to| to.as_raw())).await,
            ShardAction::Withdraw => self.withdraw(place).await,
            other => unreachable!("no simulated administrator requests {}", other.label()),
        }
    }

    async fn complete(&mut self, place: usize) {
        let op_id = self.next_op_id(place);
        for _ in 0..TRIES_MAX {
            let held = &self.held[place];
            let to = held.range.1;
            let said = Said { to: Some(to), ..Said::default() };
            let draft = Draft { said, ..Draft::under(Verb::Complete, held.lease_ref, op_id) };
            let op = self.cx.begin(draft);
            let keys = keys(&self.cx);
            let (cursor, tenant) = (cursor_at(&keys, to), self.cx.tenant_id);
            let result = self.handle.complete(op.now, tenant, &held.lease, cursor, op_id).await;
            let ending = self.cx.end(&op, &result, None);
            if result.is_ok() && !self.cx.one_in(16) {
                self.held.swap_remove(place);
                return;
            }
            match ending {
                Ending::Failed { corrupt: false, .. } => self.cx.sleep(4).await,
                Ending::Executed | Ending::Replayed => {}
                Ending::Failed { .. } => return,
                Ending::Refused => return self.maybe_lost(place, ending),
            }
        }
    }

    async fn renew(&mut self, place: usize) {
        let held = &self.held[place];
        let lease = held.lease_ref;
        let op = self.cx.begin(Draft::under(Verb::Renew, lease, OpId::from_raw(0)));
        let result = self.handle.renew(op.now, self.cx.tenant_id, &held.lease).await;
        let ending = self.cx.end_plain(&op, &result);
        match result {
            Ok(renewed) => {
                let (until, result) = (op.renewed.get(), renewed.new_deadline.as_raw());
                if !op.misled.get() {
                    self.cx.judge(|oracle| oracle.renewed(lease, until, result));
                }
                self.cx.judge(|oracle| oracle.was_shown(&op, renewed.request.as_ref()));
                self.cx.hash_values(&[renewed.new_deadline.as_raw()]);
                self.prolong(place, renewed.new_deadline);
                self.held[place].requested(renewed.request);
            }
            Err(_) => self.maybe_lost(place, ending),
        }
    }

    async fn renew_many(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let leases: Vec<Lease> = self.held.iter().map(|held| held.lease.clone()).collect();
        let refs: Vec<LeaseRef> = self.held.iter().map(|held| held.lease_ref).collect();
        let op = self.cx.begin(Draft::new(Verb::RenewMany));
        self.cx.begin_batch(&op, &refs);
        let mut result = Vec::new();
        self.handle.renew_many(op.now, self.cx.tenant_id, &leases, &mut result).await;
        self.cx.trace_answer(&op, &result);
        let mut first = None;
        for (place, result) in result.iter().enumerate() {
            match result {
                Ok(renewed) => self.prolong(place, renewed.new_deadline),
                Err(error) => first = first.or_else(|| Some(error.clone())),
            }
        }
        let answers = result.iter().map(|result| match result {
            Ok(it) => Renewal::Until(it.new_deadline.as_raw(), it.request.clone()),
            Err(error) => Renewal::Not(ending(error), Label::of(error)),
        });
        let answers: Vec<Renewal> = answers.collect();
        for answer in &answers {
            self.cx.hash_values(&[match answer {
                Renewal::Until(deadline, _) => *deadline,
                Renewal::Not(_, label) => label.code(),
            }]);
        }
        self.cx.judge(|oracle| oracle.batch_ended(&op, &answers));
        let all_failed = result.iter().all(Result::is_err);
        self.cx.end_plain(&op, &first.filter(|_| all_failed).map_or(Ok(()), Err));
    }

    fn prolong(&mut self, place: usize, deadline: LogicalTime) {
        let lease = &mut self.held[place].lease;
        lease.set_deadline(deadline.max(lease.deadline()));
    }

    async fn release(&mut self, place: usize) {
        let (op_id, clean) = (self.next_op_id(place), self.cx.one_in(2));
        let mode = if clean { ReleaseMode::Clean } else { ReleaseMode::Failed };
        for _ in 0..TRIES_MAX {
            let held = &self.held[place];
            let said = Said { clean, ..Said::default() };
            let draft = Draft { said, ..Draft::under(Verb::Release, held.lease_ref, op_id) };
            let op = self.cx.begin(draft);
            let tenant = self.cx.tenant_id;
            let result = self.handle.release(op.now, tenant, &held.lease, mode, op_id).await;
            match self.cx.end(&op, &result, None) {
                Ending::Failed { corrupt: false, .. } => self.cx.sleep(4).await,
                Ending::Executed | Ending::Replayed if self.cx.below(8) > 0 => break,
                Ending::Executed | Ending::Replayed => {}
                Ending::Failed { .. } | Ending::Refused => break,
            }
        }
        self.drop_or_keep(place);
    }

    async fn park(&mut self, place: usize) {
        let op_id = self.next_op_id(place);
        let reason = ParkReason::ALL[self.cx.below(ParkReason::ALL.len() as u64) as usize];
        for _ in 0..TRIES_MAX {
            let held = &self.held[place];
            let said = Said { reason: Some(reason), ..Said::default() };
            let draft = Draft { said, ..Draft::under(Verb::Park, held.lease_ref, op_id) };
            let (op, tenant) = (self.cx.begin(draft), self.cx.tenant_id);
            let result = self.handle.park_shard(op.now, tenant, &held.lease, reason, op_id).await;
            match self.cx.end(&op, &result, None) {
                Ending::Failed { corrupt: false, .. } => self.cx.sleep(4).await,
                Ending::Executed | Ending::Replayed if self.cx.below(8) > 0 => break,
                Ending::Executed | Ending::Replayed => {}
                Ending::Failed { .. } | Ending::Refused => break,
            }
        }
        self.drop_or_keep(place);
    }

    async fn offer(&mut self, place: usize, to: Option<u64>) {
        let destination = to.unwrap_or_else(|| self.any_worker());
        let op_id = self.next_op_id(place);
        let held = &mut self.held[place];
        // The handoff id is new even if the operation id is reused.
        held.sequence += 1;
        let handoff = mix(held.lease.token().as_raw() ^ mix(held.sequence)) >> 1;
        let lease = self.cx.shared.borrow().oracle.runs[held.run as usize].lease;
        // Mostly within bounds; sometimes longer than an offer may be open.
        let longest = if self.cx.one_in(LONG_OFFER_ONE_IN) { 8 * lease } else { 2 * lease };
        let until = self.cx.now().as_raw() + 1 + self.cx.below(longest);
        let terms = Terms { handoff, destination, until };
        // The source is frozen from the moment it sends the offer.
        (held.frozen, held.offered_by) = (Some(terms), op_id);
        if self.send_offer(place, terms, op_id).await == Ending::Refused {
            // No attempt is in flight: the rejection is final.
            self.held[place].frozen = None;
            self.lost(place);
        }
    }

    /// Sends the same offer again, because a reply may have been lost; sometimes under another
    /// operation id, which is still the same offer. A rejection is final for this attempt but not
    /// for the one before, which may be in flight: the source stays frozen until a withdrawal is
    /// acknowledged.
    async fn offer_again(&mut self, place: usize) {
        let Some(terms) = self.held[place].frozen else { return };
        let same = self.held[place].offered_by;
        let op_id = if self.cx.one_in(4) { self.next_op_id(place) } else { same };
        self.held[place].present(op_id);
        self.send_offer(place, terms, op_id).await;
    }

    async fn send_offer(&mut self, place: usize, terms: Terms, op_id: OpId) -> Ending {
        let held = &self.held[place];
        let position = (held.worked > held.range.0).then_some(held.worked);
        let said = Said { to: position, terms: Some(terms), ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::Offer, held.lease_ref, op_id) };
        let (target, run) = (held.lease_ref, held.run);
        let op = self.cx.begin(draft);
        let keys = keys(&self.cx);
        let cursor = position.map_or(CursorUpdate::initial(), |at| cursor_at(&keys, at));
        let handoff = HandoffId::from_raw(terms.handoff);
        let destination = WorkerId::from_raw(terms.destination);
        let deadline = LogicalTime::from_raw(terms.until);
        let offered = OfferTerms { handoff, destination, deadline };
        let lease = &self.held[place].lease;
        let result =
            self.handle.offer(op.now, self.cx.tenant_id, lease, offered, cursor, op_id).await;
        let ending = self.cx.end(&op, &result, None);
        self.cx.post(Posted { target, run, terms });
        ending
    }

    fn any_worker(&self) -> u64 {
        let shared = self.cx.shared.borrow();
        let names = &shared.names[self.cx.tenant as usize];
        names[self.cx.below(names.len() as u64) as usize]
    }

    async fn withdraw(&mut self, place: usize) {
        let op_id = self.next_op_id(place);
        let held = &self.held[place];
        let terms = held.frozen.unwrap_or(Terms { handoff: 7, destination: 0, until: 0 });
        let said = Said { terms: Some(terms), ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::Withdraw, held.lease_ref, op_id) };
        let op = self.cx.begin(draft);
        let (tenant, handoff) = (self.cx.tenant_id, HandoffId::from_raw(terms.handoff));
        let result = self.handle.withdraw(op.now, tenant, &held.lease, handoff, op_id).await;
        match self.cx.end(&op, &result, None) {
            Ending::Executed | Ending::Replayed => self.held[place].frozen = None,
            ending @ (Ending::Refused | Ending::Failed { .. }) => self.maybe_lost(place, ending),
        }
    }

    /// Drops a shard that was given up, or keeps it as a zombie.
    fn drop_or_keep(&mut self, place: usize) {
        if self.cx.one_in(8) {
            self.lost(place);
        } else {
            self.held.swap_remove(place);
        }
    }

    /// Handles a rejected operation of the lease holder.
    pub(super) fn maybe_lost(&mut self, place: usize, ending: Ending) {
        if ending == Ending::Refused {
            self.lost(place);
        }
    }

    /// Handles a lost lease: the worker may continue as a zombie for a while.
    fn lost(&mut self, place: usize) {
        let Some(held) = self.held.get_mut(place) else { return };
        let steps = match held.zombie {
            Some(left) => left.saturating_sub(1),
            None => self.cx.below(2 * ZOMBIE_STEPS_MAX).saturating_sub(ZOMBIE_STEPS_MAX),
        };
        held.zombie = Some(steps);
        if steps == 0 {
            self.held.swap_remove(place);
        }
    }

    /// Returns the id of the next operation: a new one, or sometimes the previous one again.
    pub(super) fn next_op_id(&mut self, place: usize) -> OpId {
        let last = self.held[place].issued.last().map(|(op_id, _)| *op_id);
        let again = last.filter(|_| self.cx.phase() == Phase::Faulty);
        match again.filter(|_| self.cx.one_in(REUSED_ONE_IN)) {
            Some(again) => {
                self.held[place].present(again);
                again
            }
            None => self.new_op_id(place),
        }
    }

    /// Returns an id that no other operation has.
    pub(super) fn new_op_id(&mut self, place: usize) -> OpId {
        let held = &mut self.held[place];
        held.sequence += 1;
        let id = OpId::from_raw(mix(held.lease.token().as_raw() ^ held.sequence));
        held.issued.push((id, held.sequence));
        held.present(id);
        id
    }

    pub(super) const fn lease(&self, place: usize) -> &Lease {
        &self.held.as_slice()[place].lease
    }
}

impl Held {
    /// Sets the sequence of the next operation to the one under which `op_id` was issued.
    fn present(&mut self, op_id: OpId) {
        let issued = self.issued.iter().rev().find(|(id, _)| *id == op_id);
        // By the fence: numbers of grants depend on other tenants.
        let sequenced = !self.lease_ref.fence.is_multiple_of(UNSEQUENCED_ONE_IN);
        let raw = issued.filter(|_| sequenced).map_or(0, |(_, sequence)| *sequence);
        self.lease.set_sequence(OpSequence::try_from_raw(raw).expect("few operations"));
        self.lease_ref.sequence = raw;
    }

    fn requested(&mut self, request: Option<PendingRequest>) {
        self.requested = request.map(|request| request.action().clone());
    }

    /// Returns where a split may cut: after the cursor, before the end.
    pub(super) const fn open(&self) -> (u32, u32) {
        (self.worked, self.range.1)
    }

    pub(super) const fn done(&self) -> u32 {
        self.done
    }

    /// Removes the part that was split off.
    pub(super) const fn shrink(&mut self, end: u32) {
        self.range.1 = end;
    }
}

/// Checks a grant and returns the held shard.
fn take(cx: &Cx, op: &super::op::Op, run: u32, view: AcquireResultView<'_>) -> Option<Held> {
    let AcquireResultView { lease, snapshot, attempts, .. } = view;
    let keys = keys(cx);
    let (spec, cursor) = (snapshot.spec(), snapshot.cursor());
    let (from, to) = (keys.number(spec.start), keys.number(spec.end));
    let done = cursor.last_key().map_or(from, |key| Some(keys.number(key)? + 1));
    let shard = cx.find(lease.key());
    // A worker that read an old version may have committed two grants; the lease belongs to one of
    // them.
    let of_shard = op.granted.get().filter(|granted| granted.key == lease.key());
    let known = of_shard.map(|granted| granted.grant).or_else(|| cx.holder(shard?));
    let result = Granted {
        shard: shard.unwrap_or(u32::MAX),
        key: lease.key(),
        grant: known.unwrap_or(0),
        fence: lease.fence().as_raw(),
        deadline: lease.deadline().as_raw(),
        range: (from.unwrap_or(u32::MAX), to.unwrap_or(u32::MAX)),
        done: done.unwrap_or(u32::MAX),
        attempts,
        carried: carried(cursor.token(), spec.metadata, snapshot.cursor_semantics()),
    };
    cx.judge(|oracle| oracle.granted(op, result));
    let (first, last) = (u64::from(result.range.0), u64::from(result.range.1));
    let rest = [u64::from(result.done), u64::from(result.attempts)];
    cx.hash_values(&[result.fence, result.deadline, first, last, rest[0], rest[1]]);
    let (Some(range), Some(done), Some(shard)) = (from.zip(to), done, shard) else { return None };
    let (fence, token) = (result.fence, lease.token().as_raw());
    let (key, grant) = (lease.key(), result.grant);
    let lease_ref = LeaseRef { shard, key, grant, fence, token, sequence: 0 };
    let (sequence, frozen, zombie, requested) = (0, None, None, None);
    let (worked, offered_by) = (done, OpId::from_raw(0));
    Some(Held {
        lease,
        lease_ref,
        run,
        range,
        worked,
        done,
        sequence,
        issued: Vec::new(),
        checkpoints: Vec::new(),
        frozen,
        offered_by,
        zombie,
        requested,
    })
}

pub(super) fn keys(cx: &Cx) -> std::rc::Rc<Keyspace> {
    std::rc::Rc::clone(&cx.shared.borrow().oracle.keys)
}

/// Returns the cursor after the keys before `to`. A cursor before the first key is invalid in a
/// checkpoint, so position zero gives the first key.
pub(super) fn cursor_at(keys: &Keyspace, to: u32) -> CursorUpdate<'_> {
    let last = keys.key(to.saturating_sub(1));
    CursorUpdate::new(last, &last[last.len() - 1..])
}
