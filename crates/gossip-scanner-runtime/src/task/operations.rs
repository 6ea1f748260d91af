//! Coordinator operations, each retried until it is answered.
//!
//! The task's session is attached to the lent coordinator for one operation and detached again. An
//! operation that ends the shard consumes the session; if it fails, the error returns the session,
//! and the task continues or retries with it.

use std::iter;

use gossip_contracts::coordination::{
    CursorUpdate, RestoredShardState, SplitChild, plan_split_replace, plan_split_residual,
};
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    CoordinationFacade, InfraError, ParkContext, ParkReason, SessionError, SideRecord,
    WorkerSession,
};

use super::refusal::Refusal;
use super::side_records::checked;
use super::{Decision, Operation, ShardTask, StoreAccess, TaskContext, TaskOutcome, TaskStep};
use crate::observer::Event;
use crate::split_specs;

/// The effect of an answered operation.
enum Answered {
    /// The task continues.
    Continue,
    /// The task is over.
    Over(TaskOutcome),
}

impl ShardTask {
    /// Sends the operation in flight, and applies its answer to the task.
    ///
    /// Returns the outcome if it ended the shard or the lease is lost. If the store does not
    /// answer, the operation stays in flight and the step waits.
    pub(super) fn perform<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> TaskStep
    where
        B: CoordinationFacade,
    {
        let Some((operation, op_id)) = self.pending.take() else { return TaskStep::Continue };
        let answer = match &operation {
            Operation::Checkpoint => self.checkpoint(now, op_id, context),
            Operation::Complete => self.complete(now, op_id, context),
            Operation::Park(reason) => self.park(now, *reason, op_id, context),
            Operation::Release(mode) => self.send_release(now, *mode, op_id, context),
            Operation::Split(point) => self.split_off(now, point, op_id, context),
            Operation::Replace(cuts) => self.replace(now, cuts, op_id, context),
        };
        match answer {
            Ok(answered) => {
                self.backoff.reset();
                match answered {
                    Answered::Continue => TaskStep::Continue,
                    Answered::Over(outcome) => TaskStep::Over(outcome),
                }
            }
            Err(refusal) => self.refused(now, (operation, op_id), refusal, context),
        }
    }

    /// Attaches the session to the lent coordinator. The caller puts it back.
    fn attach<'c, B: CoordinationFacade>(
        &mut self,
        context: &'c mut TaskContext<'_, B>,
    ) -> Result<WorkerSession<'c, B>, Refusal> {
        // A task without a session has ended its shard, and so its lease.
        let state = self.session.take().ok_or(Refusal::Lost)?;
        Ok(WorkerSession::attach(context.coordinator, state))
    }

    /// Keeps the session of an operation that did not end it, and returns why.
    fn keep<B, E: Into<Refusal>>(
        &mut self,
        failed: SessionError<WorkerSession<'_, B>, E>,
    ) -> Refusal {
        let (session, error) = failed.into_parts();
        self.session = Some(session.detach());
        error.into()
    }

    /// Stores the cursor, and applies a request that the answer carries.
    fn checkpoint<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        let mut session = self.attach(context)?;
        let records = self.records.for_operation();
        let cursor = self.covered.cursor();
        let saved = session.checkpoint_with_records(now, cursor, checked(&records), op_id);
        self.session = Some(session.detach());
        let saved = saved?;
        self.records.stored();
        // Only a checkpoint with progress resets the attempts, here as in the store: otherwise a
        // shard that never advances would never be parked.
        if self.covered.unsaved > 0 {
            self.attempts = 0;
        }
        self.covered.unsaved = 0;
        self.saved_at = now;
        self.pace.stored(now);
        self.save_soon = false;
        if let Some(request) = saved.into_inner().request {
            self.request(request.action());
        }
        // The watermark may have waited for room among the records.
        self.advance(context);
        Ok(Answered::Continue)
    }

    fn complete<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        let session = self.attach(context)?;
        let start: Box<[u8]> = session.spec().start.into();
        let records = self.records.for_operation();
        let cursor = self.covered.final_cursor(&start);
        let ended = session.complete_with_records(now, cursor, checked(&records), op_id);
        ended.map_err(|failed| self.keep(failed))?;
        Ok(Answered::Over(TaskOutcome::Completed))
    }

    fn park<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        reason: ParkReason,
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        let session = self.attach(context)?;
        let text = ParkContext::new(&self.park_text);
        let mut records = self.records.for_operation();
        records.extend(self.failed_item.as_deref().cloned().map(SideRecord::Failure));
        let ended = session.park_with_records(now, (reason, text), checked(&records), op_id);
        ended.map_err(|failed| self.keep(failed))?;
        Ok(Answered::Over(TaskOutcome::Parked(reason)))
    }

    fn send_release<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        mode: ReleaseMode,
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        let ended = self.attach(context)?.release(now, mode, op_id);
        ended.map_err(|failed| self.keep(failed))?;
        Ok(Answered::Over(self.released()))
    }

    /// Splits off everything from `point` on into a new shard, and continues with the rest.
    fn split_off<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        point: &[u8],
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        // A copy, because the plan borrows the range that the split narrows.
        let whole = self.spec().clone();
        let spec = whole.as_spec_ref();
        let part = |start, end| split_specs::part(spec, start, end).map_err(|_| Refusal::Declined);
        let (narrowed, rest) = (part(spec.start, point)?, part(point, spec.end)?);
        let plan = plan_split_residual(spec, narrowed.as_spec_ref(), rest.as_spec_ref())
            .map_err(|_| Refusal::Declined)?;
        let mut session = self.attach(context)?;
        let split = session.split_residual(now, &plan, op_id);
        self.session = Some(session.detach());
        split?;
        // The narrowed range counts from here on: the new shard may be claimed already, so an item
        // beyond `point` must not be submitted any more. Finished ones go to the cache before the
        // page is dropped.
        self.cache_results(now, point);
        match point > self.rest_from() {
            true => self.forget_unstarted(),
            false => self.forget_page(),
        }
        self.covered.since_cut = 0;
        Ok(Answered::Continue)
    }

    /// Replaces the shard by several. The first of them has the cursor.
    fn replace<B: CoordinationFacade>(
        &mut self,
        now: LogicalTime,
        cuts: &[Box<[u8]>],
        op_id: OpId,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Answered, Refusal> {
        // Nothing was finished under this lease, so the acquired cursor is still the stored one.
        let RestoredShardState { spec, cursor, .. } = self.session().restored().clone();
        let points: Vec<&[u8]> = cuts.iter().map(|cut| &**cut).collect();
        let parts = split_specs::parts(spec.as_spec_ref(), &points);
        let parts = parts.map_err(|_| Refusal::Declined)?;
        // Cuts lie after the cursor, so only the first part contains it. The others start fresh.
        let cursors = iter::once(cursor.as_update()).chain(iter::repeat(CursorUpdate::initial()));
        let children = parts.iter().zip(cursors);
        let children = children.map(|(part, cursor)| SplitChild::new(part.as_spec_ref(), cursor));
        let plan = plan_split_replace(spec.as_spec_ref(), children);
        let plan = plan.map_err(|_| Refusal::Declined)?;
        let replaced = self.attach(context)?.split_replace(now, &plan, op_id);
        replaced.map_err(|failed| self.keep(failed))?;
        Ok(Answered::Over(TaskOutcome::Split))
    }

    /// Handles an operation that was not applied, or whose answer is unknown: ends the task if the
    /// lease is lost, drops a declined split, retries after a store failure, and parks the shard if
    /// the store calls the operation invalid.
    fn refused<B>(
        &mut self,
        now: LogicalTime,
        operation: (Operation, OpId),
        refusal: Refusal,
        context: &mut TaskContext<'_, B>,
    ) -> TaskStep {
        match refusal {
            // The new lease holder continues from the last checkpoint. Results of items in flight
            // here carry our lower fence.
            Refusal::Lost => self.drop_lease(context),
            Refusal::Damaged => self.damaged(context),
            // The split isolates a failed item. Without it the shard would be parked with the items
            // behind that one, although a bad read damages nothing.
            Refusal::SplitDamaged if matches!(self.decision, Some(Decision::Park(_))) => {
                self.damaged(context)
            }
            Refusal::SplitDamaged | Refusal::Declined => {
                // Later cuts were computed with this one; the shard continues unsplit.
                self.cuts.clear();
                TaskStep::Continue
            }
            Refusal::Store(error) => self.store_failed(now, operation, error),
            Refusal::Invalid(error) => {
                context.observer.observe(Event::Refused { shard: self.shard, error: &error });
                self.park_text = error;
                self.park_after_bug(context)
            }
        }
    }

    /// Drops the shard, whose record is damaged, or was read damaged.
    fn damaged<B>(&mut self, context: &mut TaskContext<'_, B>) -> TaskStep {
        self.forget_items(context);
        TaskStep::Over(TaskOutcome::Damaged)
    }

    /// Parks the shard after a bug of the runtime, unless parking itself was refused.
    fn park_after_bug<B>(&mut self, context: &mut TaskContext<'_, B>) -> TaskStep {
        if matches!(self.decision, Some(Decision::Park(_))) {
            return self.drop_lease(context);
        }
        self.forget_items(context);
        // The store refuses this progress; a checkpoint before parking would be refused again.
        self.covered.unsaved = 0;
        self.records.stored();
        self.decision = Some(Decision::Park(ParkReason::Poisoned));
        TaskStep::Continue
    }

    /// Keeps the operation for a retry with the same id. Ends the task if the error is permanent or
    /// the store is not waited for.
    fn store_failed(
        &mut self,
        now: LogicalTime,
        operation: (Operation, OpId),
        error: InfraError,
    ) -> TaskStep {
        if !error.is_retryable() || self.store == StoreAccess::Last {
            return TaskStep::Over(TaskOutcome::StoreFailed(error));
        }
        // The same id: if the lost reply belonged to a commit that was applied, the retry returns
        // its result and is not applied twice.
        self.pending = Some(operation);
        // The backoff is the caller's, who knows of the other tasks, too.
        let until = now.saturating_add(self.config.retry_first);
        self.wait_until = Some(until);
        TaskStep::Wait(until)
    }

    fn released(&self) -> TaskOutcome {
        match &self.decision {
            Some(Decision::GiveUp(broken)) => TaskOutcome::Broken(broken.clone()),
            None
            | Some(
                Decision::Park(_) | Decision::ParkItem(_) | Decision::Release | Decision::Freeze,
            ) => TaskOutcome::Released,
        }
    }
}
