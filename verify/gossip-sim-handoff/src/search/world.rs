//! The world of the search: possible actions and required properties.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{AcceptError, InfraError, OfferError, WithdrawError};

use super::bugs::Bug;
use super::fork_records::ForkRecords;
use super::kernel::{Belief, Kernel, Kernels, LEASE, Op, OpResult, START};
use gossip_handoff::lease_handoff::{
    DestinationEnd, DestinationReply, DestinationRequest, HandoffConfig, HandoffDestination,
    HandoffSource, SourceEnd, SourceReply, SourceRequest,
};
use gossip_handoff::{Phase, Record, RepositoryError, Version};

/// Rounds of one lease each in which a world without faults settles: the offer ends, the lease
/// after it ends, the third worker acquires the shard, both sides recover, and the same again.
const SETTLE_ROUNDS: u64 = 8;
/// Upper bound on the requests of one machine in a round.
const QUESTIONS_MAX: u32 = 40;

/// A freeze can happen at any time, and a destination can search at any time.
pub(super) const CONFIG: HandoffConfig = HandoffConfig {
    prepare_ticks: 2,
    offer_ticks: 2,
    finish_ticks: 2,
    lead_ticks: 0,
    find_ticks: 1,
    poll_ticks: 1,
    accepts_per_read: 2,
    retry_ticks: 1,
};

/// Bounds of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Requests with a fault: request or reply lost, delayed or duplicated.
    pub faults: u8,
    /// Crashes of either side.
    pub crashes: u8,
    /// Renewals of the source's lease.
    pub renewals: u8,
    /// Takeovers of an expired lease by the third worker.
    pub takeovers: u8,
    /// The last tick.
    pub ticks: u8,
}

/// Fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "everything a network does")]
pub enum Fault {
    /// It is executed and answered.
    None,
    /// It is not executed.
    LoseRequest,
    /// It is executed, and the reply is lost.
    LoseReply,
    /// It is executed at a later step, and the reply is lost.
    Delay,
    /// It is executed and answered, and executed again at a later step.
    Duplicate,
}

impl Fault {
    const ALL: [Self; 5] =
        [Self::None, Self::LoseReply, Self::LoseRequest, Self::Delay, Self::Duplicate];
    /// The faults of a read: it is answered or not.
    const OF_READS: [Self; 2] = [Self::None, Self::LoseReply];
}

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "everything there is")]
pub enum Action {
    /// The source sends a request with this fate.
    Source(Fault),
    /// The destination sends a request with this fate.
    Destination(Fault),
    /// The destination searches for handoffs and finds this one.
    Find,
    /// The process of the source ends.
    CrashSource,
    /// The process of the source restarts without its lease, and recovers.
    RestartSource,
    /// The task of the source restarts with its lease, and recovers.
    RestartTask,
    /// The process of the destination ends.
    CrashDestination,
    /// The source renews.
    Renew,
    /// The third worker acquires a shard whose lease has expired.
    TakeOver,
    /// A delayed request arrives.
    Arrive(usize),
    /// Time passes.
    Tick,
}

/// A violated property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Broken {
    /// Two workers consider themselves the owner.
    TwoOwners,
    /// A source continues while its offer is open.
    OfferedWhileResumed,
    /// The record is rolled back although the shard was handed off.
    RolledBackAfterAccept,
    /// The record is acknowledged without an accept.
    AcknowledgedBeforeAccept,
    /// A source dropped its copy although the shard was not taken by the handoff.
    ForwardWithoutTheMove,
    /// The shard is unavailable for too long.
    Stranded,
    /// The record does not end.
    RecordLeftOver,
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum InFlight {
    Save(Box<Record>, Option<Version>),
    Offer,
    Withdraw,
    Accept,
}

/// State of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    /// It is frozen.
    Frozen,
    /// It processes keys: it continued, or is not frozen yet.
    Resumed,
    /// It will never write again under this lease.
    Dropped,
    /// Its process has ended.
    Dead,
}

/// One state of the search.
#[derive(Clone, Debug)]
pub(super) struct World {
    now: LogicalTime,
    kernel: Arc<Kernel>,
    records: ForkRecords,
    source: Option<HandoffSource>,
    standing: Standing,
    source_belief: Belief,
    destination: Option<HandoffDestination>,
    destination_belief: Option<Belief>,
    third_belief: Option<Belief>,
    in_flight: Vec<InFlight>,
    /// Whether the handoff was ever accepted; only the checks use it.
    was_accepted: bool,
    left: Budget,
    bug: Option<Bug>,
}

impl World {
    pub(super) fn new(budget: Budget, bug: Option<Bug>) -> (Self, Kernels) {
        let (kernels, kernel) = Kernels::new(CONFIG.offer_ticks);
        let terms = kernels.terms.clone();
        let source = HandoffSource::prepare(terms, CONFIG, START).expect("two workers");
        let (fence, until) = (kernels.lease.fence(), kernels.lease.deadline());
        let world = Self {
            now: START,
            kernel,
            records: ForkRecords::default(),
            source_belief: Belief { fence, until },
            source: Some(source),
            standing: Standing::Resumed,
            destination: None,
            destination_belief: None,
            third_belief: None,
            in_flight: Vec::new(),
            was_accepted: false,
            left: budget,
            bug,
        };
        (world, kernels)
    }

    /// Returns the possible next actions.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let faults = |asks: Option<bool>| {
            let (is_busy, writes) = (asks.is_some(), asks == Some(true));
            let all = if writes { &Fault::ALL[..] } else { &Fault::OF_READS[..] };
            let fits = move |fault: &Fault| *fault == Fault::None || self.left.faults > 0;
            all.iter().copied().filter(fits).filter(move |_| is_busy)
        };
        let is_live = self.records.record().is_some_and(|record| !record.state.is_terminal());
        let source_faults = faults(self.source_asks());
        let is_possible = |fault: &Fault| *fault == Fault::None || !self.is_to_freeze();
        actions.extend(source_faults.filter(is_possible).map(Action::Source));
        actions.extend(faults(self.destination_asks()).map(Action::Destination));
        if self.destination.is_none() && is_live {
            actions.push(Action::Find);
        }
        if self.left.crashes > 0 {
            if self.standing != Standing::Dead {
                actions.push(Action::CrashSource);
            }
            let is_moving = self.source.as_ref().is_some_and(|source| source.end().is_none());
            if self.standing != Standing::Dead && is_moving {
                actions.push(Action::RestartTask);
            }
            if self.destination.is_some() {
                actions.push(Action::CrashDestination);
            }
        }
        if self.standing == Standing::Dead && self.source.is_none() && is_live {
            actions.push(Action::RestartSource);
        }
        if self.left.renewals > 0 && matches!(self.standing, Standing::Frozen | Standing::Resumed) {
            actions.push(Action::Renew);
        }
        let has_ended =
            self.kernel.shard.lease_deadline.is_none_or(|deadline| self.now >= deadline);
        if self.left.takeovers > 0 && self.third_belief.is_none() && has_ended {
            actions.push(Action::TakeOver);
        }
        actions.extend((0..self.in_flight.len()).map(Action::Arrive));
        if self.left.ticks > 0 {
            actions.push(Action::Tick);
        }
        actions
    }

    /// Returns the world after `action`; `None` if it has no effect.
    pub(super) fn after(&self, action: Action, kernels: &mut Kernels) -> Option<Self> {
        let mut next = self.clone();
        match action {
            Action::Source(fault) => next.step_source(fault, kernels),
            Action::Destination(fault) => next.step_destination(fault, kernels)?,
            Action::Find => next.find(),
            Action::CrashSource => {
                next.left.crashes -= 1;
                next.source = None;
                next.standing = Standing::Dead;
            }
            Action::RestartSource => next.recover(false),
            Action::RestartTask => {
                next.left.crashes -= 1;
                next.restart_task();
            }
            Action::CrashDestination => {
                next.left.crashes -= 1;
                next.destination = None;
                next.destination_belief = None;
            }
            Action::Renew => next.renew(kernels)?,
            Action::TakeOver => next.take_over(kernels)?,
            Action::Arrive(index) => next.arrive(index, kernels),
            Action::Tick => {
                next.left.ticks -= 1;
                next.now = next.now.saturating_add(1);
                if let Some(source) = &mut next.source {
                    source.tick(next.now);
                }
            }
        }
        Some(next)
    }

    /// Checks the properties of every state.
    pub(super) fn check(&self, kernels: &mut Kernels) -> Result<(), Broken> {
        let shard = &self.kernel.shard;
        let resumed = self.standing == Standing::Resumed;
        let beliefs =
            [resumed.then_some(self.source_belief), self.destination_belief, self.third_belief];
        let is_live = |belief: &&Belief| self.now < belief.until;
        if beliefs.iter().flatten().filter(is_live).count() > 1 {
            return Err(Broken::TwoOwners);
        }
        if resumed && self.now < self.source_belief.until && self.is_offered(kernels) {
            return Err(Broken::OfferedWhileResumed);
        }
        let moved = shard.last_handoff == Some(kernels.terms.handoff());
        let phase = self.records.record().map(|record| record.state);
        if moved && phase == Some(Phase::RolledBack) {
            return Err(Broken::RolledBackAfterAccept);
        }
        let says_moved = matches!(phase, Some(Phase::Ack | Phase::Unlock | Phase::Complete));
        if says_moved && !self.was_accepted {
            return Err(Broken::AcknowledgedBeforeAccept);
        }
        let ended = self.source.as_ref().and_then(HandoffSource::end);
        if ended == Some(SourceEnd::Moved) && !self.was_accepted {
            return Err(Broken::ForwardWithoutTheMove);
        }
        let bound = self.now.saturating_add(LEASE + CONFIG.offer_ticks);
        if shard.lease_deadline.is_some_and(|deadline| deadline > bound) {
            return Err(Broken::Stranded);
        }
        Ok(())
    }

    /// Checks that the world settles without further faults: in-flight requests are lost, processes
    /// restart, and the third worker acquires a free shard.
    pub(super) fn settles(&self, kernels: &mut Kernels) -> Result<(), Broken> {
        let mut world = self.clone();
        world.left = Budget { faults: 0, crashes: 0, renewals: 0, takeovers: 9, ticks: 0 };
        world.in_flight.clear();
        let mut is_taken = false;
        for _ in 0..SETTLE_ROUNDS {
            world.rest(kernels)?;
            world.now = world.now.saturating_add(LEASE);
            let deadline = world.kernel.shard.lease_deadline;
            if !is_taken && deadline.is_none_or(|deadline| world.now >= deadline) {
                // Some worker must be able to acquire it: otherwise the shard is stranded.
                world.take_over(kernels).ok_or(Broken::Stranded)?;
                is_taken = true;
            }
            if world.source.as_ref().is_none_or(|source| source.end().is_some()) {
                world.standing = Standing::Dead;
                world.source = None;
                world.recover(false);
            }
            world.destination = None;
            world.find();
        }
        world.rest(kernels)?;
        if !is_taken {
            return Err(Broken::Stranded);
        }
        if world.records.live().is_none() { Ok(()) } else { Err(Broken::RecordLeftOver) }
    }

    /// Runs both sides until neither has a request.
    fn rest(&mut self, kernels: &mut Kernels) -> Result<(), Broken> {
        for _ in 0..QUESTIONS_MAX {
            let (source, destination) =
                (self.source_asks().is_some(), self.destination_asks().is_some());
            if !source && !destination {
                return self.check(kernels);
            }
            if source {
                self.step_source(Fault::None, kernels);
            }
            if destination {
                let _happened = self.step_destination(Fault::None, kernels);
            }
            self.check(kernels)?;
        }
        Err(Broken::RecordLeftOver)
    }

    /// Returns the fingerprint of this state.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, self.standing, self.source_belief, self.left).hash(&mut hasher);
        (self.kernel.fingerprint, &self.records).hash(&mut hasher);
        (&self.source, &self.destination, &self.in_flight).hash(&mut hasher);
        (self.destination_belief, self.third_belief, self.was_accepted).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether the source has a request, and whether that is a write.
    fn source_asks(&self) -> Option<bool> {
        let ask = self.source.as_ref()?.next_request(self.now);
        let is_idle = matches!(ask, SourceRequest::Wait(_) | SourceRequest::Done(_));
        (!is_idle).then(|| source_request_in_flight(&ask).is_some())
    }

    /// Returns whether the next step freezes the source, which cannot fail.
    fn is_to_freeze(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| source.next_request(self.now) == SourceRequest::Freeze)
    }

    /// Returns the same for the destination.
    fn destination_asks(&self) -> Option<bool> {
        let ask = self.destination.as_ref()?.next_request(self.now);
        let is_idle = matches!(ask, DestinationRequest::Wait(_) | DestinationRequest::Done(_));
        (!is_idle).then(|| destination_request_in_flight(&ask).is_some())
    }

    fn step_source(&mut self, fault: Fault, kernels: &mut Kernels) {
        let Some(mut source) = self.source.take() else { return };
        let ask = source.next_request(self.now);
        if ask == SourceRequest::Freeze {
            source.freeze(self.now, kernels.cursor.clone());
            self.standing = Standing::Frozen;
        } else if let Some(reply) = self.answer_source(ask, fault, kernels) {
            source.on_reply(self.now, reply);
        }
        if self.standing != Standing::Dead {
            match source.end() {
                Some(SourceEnd::Kept(_)) => self.standing = Standing::Resumed,
                Some(SourceEnd::Moved | SourceEnd::Lost(_)) => self.standing = Standing::Dropped,
                None => {}
            }
        }
        self.source = Some(source);
    }

    /// Returns the reply to the source.
    fn answer_source(
        &mut self,
        ask: SourceRequest,
        fault: Fault,
        kernels: &mut Kernels,
    ) -> Option<SourceReply> {
        self.inject(fault, source_request_in_flight(&ask));
        let lost = lost_source(&ask);
        if matches!(fault, Fault::LoseRequest | Fault::Delay) {
            return lost;
        }
        if ask == SourceRequest::Withdraw && self.bug.is_some_and(Bug::skips_withdrawal) {
            return Some(SourceReply::Withdrawn(Ok(())));
        }
        let reply = self.happen(ask, kernels)?;
        if fault == Fault::LoseReply {
            return lost;
        }
        Some(match self.bug {
            Some(bug) => bug.twist(reply, &kernels.terms),
            None => reply,
        })
    }

    /// Executes a request of the source.
    fn happen(&mut self, ask: SourceRequest, kernels: &mut Kernels) -> Option<SourceReply> {
        Some(match ask {
            SourceRequest::Save(record, expected) => {
                let saved = self.records.save(&record, expected);
                SourceReply::Saved(record, saved)
            }
            SourceRequest::Get => SourceReply::Got(self.records.get()),
            SourceRequest::Forget(stored) => {
                self.records.forget(&stored);
                SourceReply::Forgotten
            }
            SourceRequest::Offer => match self.operate(Op::Offer, kernels) {
                OpResult::Offered(offered) => SourceReply::Offered(offered),
                _ => return None,
            },
            SourceRequest::Withdraw => match self.operate(Op::Withdraw, kernels) {
                OpResult::Withdrawn(withdrawn) => SourceReply::Withdrawn(withdrawn),
                _ => return None,
            },
            SourceRequest::ReadShard => {
                SourceReply::Shard(Some(Some(Box::new(self.kernel.shard.clone()))))
            }
            SourceRequest::Freeze | SourceRequest::Wait(_) | SourceRequest::Done(_) => return None,
        })
    }

    fn step_destination(&mut self, fault: Fault, kernels: &mut Kernels) -> Option<()> {
        let mut destination = self.destination.take()?;
        let ask = destination.next_request(self.now);
        self.inject(fault, destination_request_in_flight(&ask));
        let happens = !matches!(fault, Fault::LoseRequest | Fault::Delay);
        let reply = if happens { self.answer_destination(&ask, fault, kernels) } else { None };
        let reply = reply.or_else(|| lost_destination(&ask))?;
        destination.on_reply(self.now, reply);
        self.destination = Some(destination);
        Some(())
    }

    /// Returns the reply to the destination; `None` if it is lost.
    fn answer_destination(
        &mut self,
        ask: &DestinationRequest,
        fault: Fault,
        kernels: &mut Kernels,
    ) -> Option<DestinationReply> {
        let reply = match ask {
            DestinationRequest::Accept => {
                let accepted = self.accept(kernels);
                if fault != Fault::LoseReply {
                    self.destination_belief = accepted.as_ref().ok().copied();
                }
                DestinationReply::Accepted(accepted.map(drop))
            }
            DestinationRequest::ReadShard => {
                DestinationReply::Shard(Some(Some(Box::new(self.kernel.shard.clone()))))
            }
            DestinationRequest::Save(record, version) => {
                let saved = self.records.save(record, *version);
                DestinationReply::Saved(record.clone(), saved)
            }
            DestinationRequest::Get => DestinationReply::Got(self.records.get()),
            DestinationRequest::Wait(_) | DestinationRequest::Done(_) => return None,
        };
        (fault != Fault::LoseReply).then_some(reply)
    }

    fn accept(&mut self, kernels: &mut Kernels) -> Result<Belief, AcceptError> {
        match self.operate(Op::Accept, kernels) {
            OpResult::Accepted(accepted) => accepted,
            _ => Err(AcceptError::NoOffer),
        }
    }

    fn find(&mut self) {
        let found = self.records.live();
        self.destination = found.and_then(|it| HandoffDestination::new(it, CONFIG, self.now).ok());
    }

    fn recover(&mut self, has_lease: bool) {
        let found = self.records.live();
        self.source =
            found.and_then(|it| HandoffSource::recover(it, has_lease, CONFIG, self.now).ok());
    }

    /// A task that finds no record has offered nothing.
    fn restart_task(&mut self) {
        self.recover(true);
        match self.source.as_ref().map(HandoffSource::end) {
            None | Some(Some(SourceEnd::Kept(_))) => self.standing = Standing::Resumed,
            Some(Some(SourceEnd::Moved | SourceEnd::Lost(_))) => self.standing = Standing::Dropped,
            Some(None) => self.standing = Standing::Frozen,
        }
    }

    fn renew(&mut self, kernels: &mut Kernels) -> Option<()> {
        self.left.renewals -= 1;
        let OpResult::Renewed(until) = self.operate(Op::Renew, kernels) else { return None };
        self.source_belief.until = self.source_belief.until.max(until?);
        Some(())
    }

    fn take_over(&mut self, kernels: &mut Kernels) -> Option<()> {
        self.left.takeovers -= 1;
        let OpResult::TakenOver(belief) = self.operate(Op::TakeOver, kernels) else { return None };
        self.third_belief = Some(belief?);
        Some(())
    }

    /// Counts a fault, and stores a request that arrives later.
    fn inject(&mut self, fault: Fault, request: Option<InFlight>) {
        self.left.faults -= u8::from(fault != Fault::None);
        if matches!(fault, Fault::Delay | Fault::Duplicate) {
            self.in_flight.extend(request);
        }
    }

    fn arrive(&mut self, index: usize, kernels: &mut Kernels) {
        match self.in_flight.remove(index) {
            InFlight::Save(record, version) => drop(self.records.save(&record, version)),
            InFlight::Accept => drop(self.operate(Op::Accept, kernels)),
            InFlight::Offer => drop(self.operate(Op::Offer, kernels)),
            InFlight::Withdraw => drop(self.operate(Op::Withdraw, kernels)),
        }
    }

    fn operate(&mut self, op: Op, kernels: &mut Kernels) -> OpResult {
        let (reply, kernel) = kernels.answer(&self.kernel, op, self.now);
        self.kernel = kernel;
        self.was_accepted |= matches!(reply, OpResult::Accepted(Ok(_)));
        reply
    }

    /// Returns whether an open offer of this handoff could be accepted.
    fn is_offered(&self, kernels: &mut Kernels) -> bool {
        let (reply, _) = kernels.answer(&self.kernel, Op::Accept, self.now);
        matches!(reply, OpResult::Accepted(Ok(_)))
    }
}

fn source_request_in_flight(ask: &SourceRequest) -> Option<InFlight> {
    match ask {
        SourceRequest::Save(record, version) => Some(InFlight::Save(record.clone(), *version)),
        SourceRequest::Offer => Some(InFlight::Offer),
        SourceRequest::Withdraw => Some(InFlight::Withdraw),
        SourceRequest::Get
        | SourceRequest::Forget(_)
        | SourceRequest::ReadShard
        | SourceRequest::Freeze
        | SourceRequest::Wait(_)
        | SourceRequest::Done(_) => None,
    }
}

fn destination_request_in_flight(ask: &DestinationRequest) -> Option<InFlight> {
    match ask {
        DestinationRequest::Save(record, version) => Some(InFlight::Save(record.clone(), *version)),
        DestinationRequest::Accept => Some(InFlight::Accept),
        DestinationRequest::Get
        | DestinationRequest::ReadShard
        | DestinationRequest::Wait(_)
        | DestinationRequest::Done(_) => None,
    }
}

/// Returns the reply to a source whose request or reply was lost.
fn lost_source(ask: &SourceRequest) -> Option<SourceReply> {
    Some(match ask {
        SourceRequest::Save(record, _) => SourceReply::Saved(record.clone(), Err(failed())),
        SourceRequest::Get => SourceReply::Got(Err(failed())),
        SourceRequest::Forget(_) => SourceReply::Forgotten,
        SourceRequest::Offer => SourceReply::Offered(Err(OfferError::BackendError(silence()))),
        SourceRequest::Withdraw => {
            SourceReply::Withdrawn(Err(WithdrawError::BackendError(silence())))
        }
        SourceRequest::ReadShard => SourceReply::Shard(None),
        SourceRequest::Freeze | SourceRequest::Wait(_) | SourceRequest::Done(_) => return None,
    })
}

/// Returns the reply to a destination whose request or reply was lost.
fn lost_destination(ask: &DestinationRequest) -> Option<DestinationReply> {
    Some(match ask {
        DestinationRequest::Accept => {
            DestinationReply::Accepted(Err(AcceptError::BackendError(silence())))
        }
        DestinationRequest::ReadShard => DestinationReply::Shard(None),
        DestinationRequest::Save(record, _) => {
            DestinationReply::Saved(record.clone(), Err(failed()))
        }
        DestinationRequest::Get => DestinationReply::Got(Err(failed())),
        DestinationRequest::Wait(_) | DestinationRequest::Done(_) => return None,
    })
}

fn silence() -> InfraError {
    InfraError::Transient { operation: "search", message: "no reply".to_owned() }
}

fn failed() -> RepositoryError {
    silence().into()
}

/// Returns whether a destination has the shard, for the figures.
pub(super) fn is_live(world: &World) -> bool {
    world.destination.as_ref().and_then(HandoffDestination::end) == Some(DestinationEnd::Live)
}
