//! Calls of the coordinator, each repeated until it is answered.

use gossip_contracts::coordination::{ShardSpec, plan_split_residual_at_point};
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{CoordinationFacade, InfraError, ParkReason, PendingRequest};

use super::refusal::Refusal;
use super::{Decision, Ending, Gear, Operation, ShardTask, Turn};
use crate::observer::{Event, Observer};

/// What an answered operation leads to.
enum Answered {
    /// Go on.
    Went,
    /// The shard is over.
    Over(Ending),
}

impl ShardTask {
    /// Sends the operation that is under way.
    pub(super) fn perform<B>(&mut self, now: LogicalTime, gear: &mut Gear<'_, B>) -> Turn
    where
        B: CoordinationFacade,
    {
        let Some((operation, op_id)) = self.pending.take() else { return Turn::Going };
        let answer = match &operation {
            Operation::Checkpoint => self.checkpoint(now, op_id, gear),
            Operation::Complete => self.complete(now, op_id, gear),
            Operation::Park(reason) => self.park(now, *reason, op_id, gear),
            Operation::Release(mode) => self.give_back(now, *mode, op_id, gear),
            Operation::Split(point) => self.cut_off(now, point, op_id, gear),
        };
        match answer {
            Ok(answered) => {
                self.store_fails_since = None;
                self.backoff.reset();
                match answered {
                    Answered::Went => Turn::Going,
                    Answered::Over(ending) => Turn::Over(ending),
                }
            }
            Err(refusal) => self.refused(now, (operation, op_id), refusal, gear),
        }
    }

    fn checkpoint<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        op_id: OpId,
        gear: &mut Gear<'_, B>,
    ) -> Result<Answered, Refusal> {
        let (tenant, cursor) = (self.lease.tenant(), self.covered.cursor());
        let saved = gear.coordinator.checkpoint(now, tenant, &self.lease, cursor, op_id)?;
        if self.covered.unsaved > 0 {
            self.attempts = 0;
        }
        self.covered.unsaved = 0;
        self.saved_at = now;
        gear.observer.observe(Event::Checkpointed { shard: self.lease.key() });
        if let Some(request) = saved.into_inner().request {
            self.asked(now, &request);
        }
        Ok(Answered::Went)
    }

    fn complete<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        op_id: OpId,
        gear: &mut Gear<'_, B>,
    ) -> Result<Answered, Refusal> {
        let (tenant, cursor) = (self.lease.tenant(), self.covered.final_cursor(self.spec.start()));
        gear.coordinator.complete(now, tenant, &self.lease, cursor, op_id)?;
        Ok(Answered::Over(Ending::Completed))
    }

    fn park<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        reason: ParkReason,
        op_id: OpId,
        gear: &mut Gear<'_, B>,
    ) -> Result<Answered, Refusal> {
        gear.coordinator.park_shard(now, self.lease.tenant(), &self.lease, reason, op_id)?;
        Ok(Answered::Over(Ending::Parked(reason)))
    }

    fn give_back<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        mode: ReleaseMode,
        op_id: OpId,
        gear: &mut Gear<'_, B>,
    ) -> Result<Answered, Refusal> {
        gear.coordinator.release(now, self.lease.tenant(), &self.lease, mode, op_id)?;
        Ok(Answered::Over(self.released()))
    }

    /// Gives everything from `point` on to a new shard, and goes on with the rest.
    fn cut_off<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        point: &[u8],
        op_id: OpId,
        gear: &mut Gear<'_, B>,
    ) -> Result<Answered, Refusal> {
        let tenant = self.lease.tenant();
        let plan = plan_split_residual_at_point(self.spec.as_spec_ref(), point)
            .map_err(|_| Refusal::Declined)?;
        let split = gear.coordinator.split_residual(now, tenant, &self.lease, &plan, op_id)?;
        let narrowed = ShardSpec::try_from(plan.new_parent());
        self.spec = narrowed.expect("the plan was checked when it was made");
        self.leave_behind(now, point);
        match point > self.rest_from() {
            true => self.forget_unstarted(),
            false => self.forget_page(),
        }
        self.covered.since_cut = 0;
        let (shard, residual) = (self.lease.key(), split.into_inner().residual);
        gear.observer.observe(Event::Split { shard, residual });
        Ok(Answered::Went)
    }

    fn refused<B>(
        &mut self,
        now: LogicalTime,
        operation: (Operation, OpId),
        refusal: Refusal,
        gear: &mut Gear<'_, B>,
    ) -> Turn {
        match refusal {
            Refusal::Lost => self.drop_everything(gear),
            Refusal::Declined => {
                self.cuts.clear();
                Turn::Going
            }
            Refusal::Store(error) => self.store_failed(now, operation, error, gear.observer),
            Refusal::Nonsense(error) => {
                let shard = self.lease.key();
                gear.observer.observe(Event::Refused { shard, error: &error });
                self.nonsense(gear)
            }
        }
    }

    /// Our own mistake: the shard is set aside, unless that is what was refused.
    fn nonsense<B>(&mut self, gear: &mut Gear<'_, B>) -> Turn {
        if matches!(self.verdict, Some(Decision::Park(_))) {
            return self.drop_everything(gear);
        }
        self.forget_items(gear);
        // Progress that the store does not take is not recorded before the parking.
        self.covered.unsaved = 0;
        self.verdict = Some(Decision::Park(ParkReason::Poisoned));
        Turn::Going
    }

    fn store_failed(
        &mut self,
        now: LogicalTime,
        operation: (Operation, OpId),
        error: InfraError,
        observer: &dyn Observer,
    ) -> Turn {
        let since = *self.store_fails_since.get_or_insert(now);
        let patience = since.saturating_add(self.config.store_patience);
        // When its lease has ended there is nothing to give back: who leaves does not wait longer.
        let patience = match self.verdict {
            Some(Decision::Release | Decision::GiveUp(_)) => patience.min(self.lease.deadline()),
            None | Some(Decision::Park(_) | Decision::ParkItem(_) | Decision::Stand) => patience,
        };
        if !error.is_retryable() || now >= patience {
            return Turn::Over(Ending::StoreFailed(error));
        }
        observer.observe(Event::StoreFailed { error: &error });
        self.pending = Some(operation);
        self.wait(now)
    }

    fn released(&self) -> Ending {
        match &self.verdict {
            Some(Decision::GiveUp(broken)) => Ending::Broken(broken.clone()),
            None
            | Some(
                Decision::Park(_) | Decision::ParkItem(_) | Decision::Release | Decision::Stand,
            ) => Ending::Released,
        }
    }

    /// Hears a request of an administrator that came with a checkpoint.
    fn asked(&mut self, now: LogicalTime, request: &PendingRequest) {
        if request.is_pending_at(now) {
            self.order(request.action());
        }
    }
}
