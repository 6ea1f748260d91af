//! Oracle rules for commits, checked at the instant a commit takes effect.

use gossip_contracts::identity::{FenceEpoch, ShardId, ShardKey, TenantId};
use gossip_coordination::protocol::{COLLECTION_DELETES, OFFER_LEASES_MAX};
use gossip_coordination::store::{HotPart, Key, Txn, Write, decode_cold, decode_hot};
use gossip_coordination::{OP_LOG_CAP, RUN_OP_LOG_CAP, RunStatus, ShardStatus};

use super::op::{Ending, LeaseRef, Op, Terms, Verb};
use super::oracle::{Holder, Log, Oracle, Rule, ShardFacts, Violation};
use super::random::mix;
use super::splits::metadata_of;

/// The initial fence of a root shard.
const FENCE_OF_ROOTS: u64 = FenceEpoch::INITIAL.as_raw();

/// Violation text: a commit took effect after a definite rejection or failure.
const AFTER_REFUSAL: &str = "an operation took effect after it was rejected or failed for certain";

/// A new shard and its range.
type Part = (ShardKey, (u32, u32));

impl Oracle {
    /// Records that a transaction of `op` was applied, and checks its effects.
    ///
    /// # Errors
    ///
    /// Returns the rule that the effect breaks.
    pub(super) fn applied(
        &mut self,
        op: &Op,
        tenant: TenantId,
        txn: &Txn,
    ) -> Result<(), Violation> {
        self.commits += 1;
        op.begun.set(true);
        op.note_overwritten(txn);
        self.purged(op, txn)?;
        // A batch of renewals or a garbage collection is applied in parts; its overall result does
        // not deny any part.
        let said_no = matches!(
            op.ended.get(),
            Some(Ending::Refused | Ending::Failed { doubtful: false, .. })
        );
        let many = matches!(op.verb, Verb::RenewMany | Verb::CollectRuns);
        let late = said_no && !many && !op.misled.get();
        self.require(!late, Rule::RefusedHappened, AFTER_REFUSAL)?;
        if op.verb.is_about_run() {
            return self.run_changed(op, tenant, txn);
        }
        if op.verb == Verb::SetAllotment {
            return self.allotted(op, tenant, txn);
        }
        // An operation on a shard writes the shard's record first.
        let first = txn.writes().first();
        if let Some(Write::Put(Key::ShardHot { tenant: of, shard }, _)) = first {
            self.require(*of == tenant, Rule::Tenants, "a shard of another tenant was changed")?;
            let Some(number) = self.find_shard(tenant, *shard) else {
                return self.require(false, Rule::Tiling, "a missing shard was changed");
            };
            op.applied.set(op.applied.get() + 1);
            let gone = self.is_gone(number);
            self.require(!gone, Rule::RunReborn, "a shard of a deleted run was changed")?;
            return self.shard_changed(op, tenant, number, txn);
        }
        self.registered_workers(op, tenant, txn)
    }

    /// Records the quota that an operator has set.
    fn allotted(&mut self, op: &Op, tenant: TenantId, txn: &Txn) -> Result<(), Violation> {
        op.applied.set(op.applied.get() + 1);
        let own =
            matches!(txn.writes(), [Write::Put(Key::Allotment { tenant: of }, _)] if *of == tenant);
        self.require(own, Rule::Tenants, "a quota other than the tenant's was changed")?;
        let max = op.said.allotment.unwrap_or_default();
        self.allotments[op.tenant as usize] = (max, self.commits);
        Ok(())
    }

    fn shard_changed(
        &mut self,
        op: &Op,
        tenant: TenantId,
        number: u32,
        txn: &Txn,
    ) -> Result<(), Violation> {
        let before = self.shards[number as usize].clone();
        self.past_shards[number as usize].keep(before, self.commits);
        if let Some(lease) = self.lease_of(op, self.shards[number as usize].key) {
            self.leased_change(op, tenant, lease, txn)?;
        } else {
            self.unleased_change(op, number, txn)?;
        }
        let shard = &mut self.shards[number as usize];
        (shard.changed_at, shard.written_true) = (self.commits, self.now);
        shard.note_end_of_request(self.commits);
        shard.foreign |= op.said.foreign;
        self.runs[shard.run as usize].touched_at = self.commits;
        if has_op_id(op.verb) {
            let answer = answer_of(&op.born.borrow());
            self.remember(Log::Shard(number), op, answer, OP_LOG_CAP)?;
        }
        Ok(())
    }

    /// Returns the lease under which `op` changes the shard of that key. A batch may also contain
    /// an old lease of the shard.
    fn lease_of(&self, op: &Op, key: ShardKey) -> Option<LeaseRef> {
        if op.verb != Verb::RenewMany {
            return op.lease.filter(|lease| lease.key == key);
        }
        let batch = op.batch.borrow();
        let mut leases = batch.iter().map(|member| member.lease).filter(|lease| lease.key == key);
        let first = leases.clone().next();
        leases.find(|lease| self.is_held_by(*lease)).or(first)
    }

    /// Records that one lease of a batch was renewed.
    fn member_applied(&self, op: &Op, lease: LeaseRef) -> Result<(), Violation> {
        let mut batch = op.batch.borrow_mut();
        let member = batch.iter_mut().find(|member| member.lease.grant == lease.grant);
        let Some(member) = member else { return Ok(()) };
        member.applied = true;
        let late = member.refused && !op.misled.get();
        self.require(!late, Rule::RefusedHappened, AFTER_REFUSAL)
    }

    fn leased_change(
        &mut self,
        op: &Op,
        tenant: TenantId,
        lease: LeaseRef,
        txn: &Txn,
    ) -> Result<(), Violation> {
        let run = &self.runs[self.shards[lease.shard as usize].run as usize];
        let held = self.is_held_by(lease) || run.unprotected;
        let excused = self.is_suspended(Rule::StaleFence);
        self.stale.operations_accepted += u64::from(!held && !excused);
        self.stale.operations_excused += u64::from(!held && excused);
        self.require(
            held,
            Rule::StaleFence,
            "an effect came from a caller other than the last grant",
        )?;
        let shard = &self.shards[lease.shard as usize];
        let Some(holder) = shard.holder else { return Ok(()) };
        let in_time = (op.begun_true as i64) < holder.live_until(op.clock_error);
        self.require(in_time, Rule::Expired, "an effect after the end of the lease")?;
        self.true_time.late_effects += u64::from(self.now >= holder.true_end);
        let frozen = shard.offer.is_some()
            && !matches!(op.verb, Verb::Renew | Verb::RenewMany | Verb::Withdraw);
        self.require(!frozen, Rule::FrozenSource, "the source of an open offer changed the shard")?;
        let over = self.runs[shard.run as usize].is_over();
        let grows = matches!(
            op.verb,
            Verb::Renew | Verb::RenewMany | Verb::SplitReplace | Verb::SplitResidual | Verb::Offer
        );
        self.require(
            !(over && grows),
            Rule::RunOver,
            "a shard of a finished run was renewed, split or offered",
        )?;
        let possible = op.said.flaw.is_none();
        self.require(
            possible,
            Rule::ProgressFell,
            "an impossible cursor was accepted that no shard can have",
        )?;
        self.check_sequence(op, lease)?;
        self.member_applied(op, lease)?;
        self.show_request(op, lease);
        self.holder_acts(op, tenant, lease.shard, holder, txn)?;
        self.end_fulfilled_request(op, lease.shard);
        Ok(())
    }

    /// Checks that neither this operation nor a later one of the lease took effect before. Unlike
    /// the operation log, this does not depend on how long ago that was.
    fn check_sequence(&mut self, op: &Op, lease: LeaseRef) -> Result<(), Violation> {
        if !has_op_id(op.verb) || lease.sequence == 0 {
            return Ok(());
        }
        let executed = self.shards[lease.shard as usize].sequence;
        let newer = lease.sequence > executed;
        self.require(newer, Rule::Replay, "an operation took effect that was overtaken")?;
        self.shards[lease.shard as usize].sequence = lease.sequence;
        Ok(())
    }

    /// Applies the effect of an operation of the lease holder.
    fn holder_acts(
        &mut self,
        op: &Op,
        tenant: TenantId,
        number: u32,
        holder: Holder,
        txn: &Txn,
    ) -> Result<(), Violation> {
        match op.verb {
            Verb::Renew | Verb::RenewMany => self.renew(op, number, holder),
            Verb::Checkpoint => self.advance(number, op.said.to)?,
            Verb::Complete => {
                // A completed shard is not retried and keeps its attempts.
                let attempts = self.shards[number as usize].attempts;
                self.advance(number, op.said.to)?;
                self.shards[number as usize].attempts = attempts;
                let shard = &self.shards[number as usize];
                let covered = self.sink.covers(shard.run, shard.range);
                self.require(covered, Rule::DoneUncovered, "a shard was completed with keys left")?;
                self.end_shard(number, ShardStatus::Done);
            }
            Verb::Park => self.park(op, number, txn)?,
            Verb::Release => {
                let shard = &mut self.shards[number as usize];
                (shard.holder, shard.request) = (None, None);
                if op.said.clean {
                    shard.attempts = shard.attempts.saturating_sub(1);
                    shard.received = shard.received.saturating_sub(1);
                }
            }
            Verb::Offer => self.offer(op, number, holder)?,
            Verb::Withdraw => self.withdraw(op, number)?,
            Verb::SplitReplace => {
                self.add_children(op, tenant, number, txn)?;
                self.end_shard(number, ShardStatus::Split);
            }
            Verb::SplitResidual => self.add_children(op, tenant, number, txn)?,
            Verb::Claim
            | Verb::Acquire
            | Verb::Accept
            | Verb::Unpark
            | Verb::RequestAction
            | Verb::RevokeLease
            | Verb::CreateRun
            | Verb::RegisterShards
            | Verb::CompleteRun
            | Verb::FailRun
            | Verb::CancelRun
            | Verb::PauseRun
            | Verb::ResumeRun
            | Verb::DeleteRun
            | Verb::CollectRuns
            | Verb::GetRun
            | Verb::Progress
            | Verb::ListShards
            | Verb::ActiveRuns
            | Verb::ListRuns
            | Verb::RegisterWorker
            | Verb::Heartbeat
            | Verb::ListWorkers
            | Verb::SetAllotment
            | Verb::RepairShard => unreachable!("the operation has no lease"),
        }
        Ok(())
    }

    /// Parks a shard with the reason of the lease holder.
    fn park(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        self.end_shard(number, ShardStatus::Parked);
        let stored = written(txn).and_then(|hot| hot.park_reason);
        let right = op.said.reason.is_none_or(|reason| Some(reason) == stored);
        self.require(
            right,
            Rule::Acknowledged,
            "the stored park reason is not the one that was sent",
        )?;
        self.shards[number as usize].reason = stored;
        Ok(())
    }

    /// Withdraws an offer by its handoff id, if one is open.
    fn withdraw(&mut self, op: &Op, number: u32) -> Result<(), Violation> {
        let standing = self.shards[number as usize].offer.map(|offer| offer.handoff);
        let named = op.said.terms.map(|terms| terms.handoff);
        let right = standing.is_none() || standing == named;
        self.require(right, Rule::Handoff, "the offer of another handoff was withdrawn")?;
        let shard = &mut self.shards[number as usize];
        shard.offer = None;
        shard.withdrawn.extend(named.filter(|named| !shard.withdrawn.contains(named)));
        Ok(())
    }

    /// Extends the lease by its full duration, at most one lease duration beyond an open offer, and
    /// never shortens it.
    fn renew(&mut self, op: &Op, number: u32, holder: Holder) {
        let shard = &mut self.shards[number as usize];
        let lease = self.runs[shard.run as usize].lease;
        let wanted = op.now.as_raw() + lease;
        let allowed = shard.offer.map_or(wanted, |offer| wanted.min(offer.until + lease));
        let deadline = allowed.max(holder.deadline);
        // An unchanged deadline ends when it did; another one was computed by this clock.
        let (true_end, clock_error) = match deadline == holder.deadline {
            true => (holder.true_end, holder.clock_error),
            false => (op.begun_true + (deadline - op.now.as_raw()), op.clock_error),
        };
        shard.holder = Some(Holder { deadline, true_end, clock_error, ..holder });
        shard.renewed_at = self.commits;
        op.renewed.set(Some(deadline));
        let mut batch = op.batch.borrow_mut();
        let members = batch.iter_mut().filter(|member| member.lease.grant == holder.grant);
        members.for_each(|member| member.until = Some(deadline));
    }

    /// Opens an offer, which may advance the cursor.
    fn offer(&mut self, op: &Op, number: u32, holder: Holder) -> Result<(), Violation> {
        if op.said.to.is_some() {
            self.advance(number, op.said.to)?;
        }
        self.check_offer(op, number, holder)?;
        self.shards[number as usize].offer = op.said.terms;
        Ok(())
    }

    /// An offer must be to another worker, and may be open for four lease durations at most.
    fn check_offer(&self, op: &Op, number: u32, holder: Holder) -> Result<(), Violation> {
        let Some(Terms { destination, until, .. }) = op.said.terms else {
            return self.require(false, Rule::Handoff, "an offer without terms was accepted");
        };
        let elsewhere = destination != holder.worker;
        self.require(elsewhere, Rule::Handoff, "a shard was offered to its owner")?;
        let lease = self.runs[self.shards[number as usize].run as usize].lease;
        let latest = op.now.as_raw() + OFFER_LEASES_MAX * lease;
        let bounded = op.now.as_raw() < until && until <= latest;
        self.require(bounded, Rule::Handoff, "an offer has an invalid deadline")
    }

    /// Advances the cursor of a shard. The sink must have accepted every key before it.
    fn advance(&mut self, number: u32, to: Option<u32>) -> Result<(), Violation> {
        let shard = &self.shards[number as usize];
        let (run, range, done) = (shard.run, shard.range, shard.done);
        let Some(to) = to else {
            return self.require(false, Rule::ProgressFell, "a cursor without a key was accepted");
        };
        self.require(to >= done, Rule::ProgressFell, "a cursor moved backwards")?;
        let inside = to > range.0 && to <= range.1;
        self.require(inside, Rule::ProgressFell, "a cursor left its range")?;
        let written = self.sink.covers(run, (range.0, to));
        self.require(written, Rule::LostKey, "a cursor passed a key without an accepted write")?;
        let shard = &mut self.shards[number as usize];
        if to > done {
            (shard.attempts, shard.received) = (0, 0);
        }
        shard.done = to;
        Ok(())
    }

    pub(super) fn end_shard(&mut self, number: u32, status: ShardStatus) {
        let shard = &mut self.shards[number as usize];
        let settled = |status| !matches!(status, ShardStatus::Active | ShardStatus::Parked);
        let run = &mut self.runs[shard.run as usize];
        // A store that lost the end of a shard may report it twice.
        let ends = u32::from(settled(status) && !settled(shard.status));
        run.unsettled = run.unsettled.saturating_sub(ends);
        (shard.status, shard.holder, shard.offer) = (status, None, None);
        shard.request = None;
    }

    /// Applies the effect of an operation without a lease.
    fn unleased_change(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        match op.verb {
            Verb::Claim | Verb::Acquire if self.is_confirmation(op, number, txn) => {
                self.confirm(op, number)
            }
            Verb::Claim | Verb::Acquire => {
                let parks = writes(txn, |key| matches!(key, Key::ParkedIndex { .. }));
                self.check_grantable(number)?;
                if parks { self.give_up(op, number) } else { self.acquire(op, number) }
            }
            Verb::Accept => self.accept(op, number),
            Verb::Unpark => {
                let shard = &self.shards[number as usize];
                let parked = shard.status == ShardStatus::Parked;
                let what = "a shard was unparked that was not parked";
                self.require(parked, Rule::Acknowledged, what)?;
                let over = self.runs[shard.run as usize].is_over();
                self.require(!over, Rule::RunOver, "a shard of a finished run was unparked")?;
                let shard = &mut self.shards[number as usize];
                (shard.status, shard.attempts) = (ShardStatus::Active, 0);
                shard.received = 0;
                (shard.reason, shard.moved_by) = (None, None);
                shard.fence += 1;
                Ok(())
            }
            Verb::RevokeLease => {
                let current = self.shards[number as usize].fence;
                let meant = op.said.fence.is_none_or(|fence| fence == current);
                self.require(meant, Rule::StaleFence, "a lease was revoked that was not meant")?;
                let shard = &mut self.shards[number as usize];
                shard.fence += 1;
                (shard.holder, shard.offer) = (None, None);
                (shard.request, shard.moved_by) = (None, None);
                Ok(())
            }
            Verb::RequestAction => self.requested(op, number, txn),
            Verb::RepairShard => self.repaired(op, number, txn),
            verb => self.require(
                false,
                Rule::StaleFence,
                &format!("{verb:?} changed a shard without a lease of it"),
            ),
        }
    }

    /// Adds the shards that a split made of `parent`. They and the rest of the parent must tile its
    /// former range.
    fn add_children(
        &mut self,
        op: &Op,
        tenant: TenantId,
        parent: u32,
        txn: &Txn,
    ) -> Result<(), Violation> {
        let ShardFacts { key, run, range, done, fence, attempts, foreign, .. } =
            self.shards[parent as usize].clone();
        let parent_id = key.shard();
        let foreign = foreign || op.said.foreign;
        let mut parts = self.new_shards(op, tenant, key, txn)?;
        let kept = (op.verb == Verb::SplitResidual).then(|| (range.0, op.said.cuts[0]));
        let wanted = wanted_parts(range, &op.said.cuts);
        let found: Vec<_> = kept.into_iter().chain(parts.iter().map(|part| part.1)).collect();
        self.require(found == wanted, Rule::Tiling, "a split made other parts than requested")?;
        let retries = self.runs[run as usize].retries;
        let left = retries.map_or(u32::MAX, |max| max.saturating_sub(1));
        let born: Vec<ShardId> = parts.iter().map(|part| part.0.shard()).collect();
        self.shards[parent as usize].spawned.extend(&born);
        op.born.replace(born);
        for (key, range) in parts.drain(..) {
            let done = done.clamp(range.0, range.1);
            self.add_new_shard(
                op,
                tenant,
                ShardFacts {
                    attempts: attempts.min(left),
                    // The first grant of the parent was not confirmed.
                    received: attempts.min(left).saturating_sub(1),
                    parent: Some(parent_id),
                    foreign,
                    ..new_shard_facts(key, run, range, fence, done)
                },
            )?;
        }
        if let Some(kept) = kept {
            self.require(
                done <= kept.1,
                Rule::ProgressFell,
                "a split point lies before the cursor",
            )?;
            self.shards[parent as usize].range = kept;
        }
        Ok(())
    }

    pub(super) fn add_new_shard(
        &mut self,
        op: &Op,
        tenant: TenantId,
        facts: ShardFacts,
    ) -> Result<(), Violation> {
        let taken = self.find_shard(tenant, facts.key).is_some();
        self.require(!taken, Rule::Tiling, "a new shard replaced an existing one")?;
        self.runs[facts.run as usize].unsettled += 1;
        self.live_shards[op.tenant as usize] += 1;
        self.add_shard(tenant, ShardFacts { changed_at: self.commits, ..facts });
        // The first chunk of a registration has reserved quota for all; it may be lowered since.
        if op.verb == Verb::RegisterShards {
            return Ok(());
        }
        self.check_quota(op.tenant, 0)
    }

    /// Checks that the shards of a tenant and `more` do not exceed its quota.
    fn check_quota(&self, tenant: u32, more: usize) -> Result<(), Violation> {
        let live = self.live_shards[tenant as usize] as usize;
        let within = live + more <= self.allotments[tenant as usize].0 as usize;
        self.require(within, Rule::Limit, "the shard quota was exceeded")
    }

    /// Returns the new shards of `txn` other than `subject`, with their ranges, in order.
    fn new_shards(
        &self,
        op: &Op,
        tenant: TenantId,
        subject: ShardKey,
        txn: &Txn,
    ) -> Result<Vec<Part>, Violation> {
        let mut parts = Vec::new();
        for write in txn.writes() {
            let Write::Put(Key::ShardCold { tenant: of, shard }, bytes) = write else { continue };
            if *shard == subject {
                continue;
            }
            self.require(*of == tenant, Rule::Tenants, "a shard was made for another tenant")?;
            let cold = decode_cold(*of, *shard, bytes).ok();
            let range = cold.and_then(|cold| {
                Some((self.keys.number(cold.spec.start)?, self.keys.number(cold.spec.end)?))
            });
            let right = cold.zip(range).is_none_or(|(cold, range)| {
                op.said.foreign || cold.spec.metadata == metadata_of(shard.run(), range.0)
            });
            self.require(right, Rule::Acknowledged, "a new shard has wrong metadata")?;
            let Some(range) = range else {
                self.require(
                    false,
                    Rule::Tiling,
                    "a new shard has a range that is not on key boundaries",
                )?;
                continue;
            };
            parts.push((*shard, range));
        }
        parts.sort_unstable_by_key(|part| part.1);
        Ok(parts)
    }

    fn run_changed(&mut self, op: &Op, tenant: TenantId, txn: &Txn) -> Result<(), Violation> {
        let Some(number) = self.run_in(op, txn) else { return Ok(()) };
        let before = self.runs[number as usize].clone();
        self.past_runs[number as usize].keep(before, self.commits);
        self.runs[number as usize].changed_at = self.commits;
        let run = &self.runs[number as usize];
        let buries = writes(txn, |key| matches!(key, Key::Tombstone { .. }));
        let over = run.is_over();
        if op.verb == Verb::CollectRuns || op.verb == Verb::DeleteRun {
            // Reserved quota without shards is returned.
            self.shrunk_at = self.commits;
            if buries {
                self.require(over && !run.deleted, Rule::RunOver, "an unfinished run was deleted")?;
                let collected = op.verb == Verb::CollectRuns;
                let by = if collected { COLLECTION_DELETES } else { op.op_id };
                let run = &mut self.runs[number as usize];
                (run.deleted, run.deleted_by) = (true, Some(by));
                // The mark of an unfinished purge: a root list of one name, if there was none.
                if writes(txn, |key| matches!(key, Key::RunRoots { .. })) {
                    run.chunks = vec![Some((0, 1))];
                }
            } else if writes(txn, |key| matches!(key, Key::RunHead { .. })) {
                let stale = run.status == Some(RunStatus::Initializing);
                self.require(stale, Rule::RunOver, "a run was collected that was not stale")?;
                self.runs[number as usize].status = Some(RunStatus::Cancelled);
            }
            if buries && op.verb == Verb::DeleteRun {
                op.applied.set(op.applied.get() + 1);
                self.remember(Log::Run(number), op, 0, RUN_OP_LOG_CAP)?;
            }
            return Ok(());
        }
        self.require(!run.deleted, Rule::RunReborn, "a deleted run was changed")?;
        match op.verb {
            Verb::CreateRun => {
                self.require(run.status.is_none(), Rule::RunReborn, "a run was created twice")?;
                self.runs[number as usize].status = Some(RunStatus::Initializing);
            }
            Verb::RegisterShards => return self.registered(op, tenant, number, txn),
            Verb::PauseRun | Verb::ResumeRun => {
                self.require(!over, Rule::RunOver, "a finished run was paused or resumed")?;
                self.runs[number as usize].paused = op.verb == Verb::PauseRun;
            }
            verb => self.end_run(verb, number)?,
        }
        op.applied.set(op.applied.get() + 1);
        if op.verb != Verb::CreateRun {
            self.remember(Log::Run(number), op, 0, RUN_OP_LOG_CAP)?;
        }
        Ok(())
    }

    fn end_run(&mut self, verb: Verb, number: u32) -> Result<(), Violation> {
        let run = &self.runs[number as usize];
        self.require(!run.is_over(), Rule::RunOver, "a run was finished twice")?;
        let status = match verb {
            Verb::CompleteRun => RunStatus::Done,
            Verb::FailRun => RunStatus::Failed,
            Verb::CancelRun => RunStatus::Cancelled,
            other => {
                let why = format!("{other:?} changed a run");
                return self.require(false, Rule::RunOver, &why);
            }
        };
        if status == RunStatus::Done {
            let settled = run.unsettled == 0 && run.status == Some(RunStatus::Active);
            self.require(settled, Rule::RunUnsettled, "a run completed with shards left")?;
            let covered = self.sink.covers(number, (0, run.key_count));
            self.require(covered, Rule::DoneUncovered, "a run completed with keys left")?;
        }
        self.runs[number as usize].status = Some(status);
        Ok(())
    }

    /// Records a chunk of a registration. The last chunk activates the run.
    fn registered(
        &mut self,
        op: &Op,
        tenant: TenantId,
        number: u32,
        txn: &Txn,
    ) -> Result<(), Violation> {
        let run = &self.runs[number as usize];
        let possible = op.said.flaw.is_none();
        self.require(possible, Rule::Tiling, "a malformed manifest was accepted")?;
        let open = run.status == Some(RunStatus::Initializing);
        self.require(open, Rule::RunOver, "shards of a run were registered in a wrong status")?;
        let wanted = wanted_parts((0, run.key_count), &run.cuts);
        let no_subject = ShardKey::new(run.id, ShardId::from_raw(u64::MAX));
        let born = self.new_shards(op, tenant, no_subject, txn)?;
        let from = run.roots_born;
        if from == 0 {
            self.check_quota(op.tenant, wanted.len())?;
        }
        self.runs[number as usize].chunks.push(Some((from, from + born.len() as u32)));
        for (key, range) in born {
            let place = key.shard().as_raw() as usize;
            let right = wanted.get(place) == Some(&range);
            self.require(right, Rule::Tiling, "a root was created that is not in the manifest")?;
            self.add_new_shard(
                op,
                tenant,
                new_shard_facts(key, number, range, FENCE_OF_ROOTS, range.0),
            )?;
            self.runs[number as usize].roots_born += 1;
        }
        if self.runs[number as usize].roots_born as usize == wanted.len() {
            self.runs[number as usize].status = Some(RunStatus::Active);
            op.applied.set(op.applied.get() + 1);
            self.remember(Log::Run(number), op, 0, usize::MAX)?;
        }
        Ok(())
    }

    fn run_in(&self, op: &Op, txn: &Txn) -> Option<u32> {
        let id = txn.writes().iter().find_map(|write| {
            let (Key::RunHead { run, .. } | Key::Tombstone { run, .. }) = write.key() else {
                return None;
            };
            Some(*run)
        })?;
        self.run_of(op.tenant, id)
    }

    /// Records the purge of shards and root lists. They may be purged with their run, or before it
    /// if they were never visible.
    fn purged(&mut self, op: &Op, txn: &Txn) -> Result<(), Violation> {
        for write in txn.writes() {
            let Write::Delete(key) = write else { continue };
            if let Key::ShardHot { tenant, shard } = *key {
                self.shard_purged(op, tenant, shard)?;
            } else if let Key::RunRoots { run, chunk, .. } = *key {
                let Some(run) = self.run_of(op.tenant, run) else { continue };
                let chunk = self.runs[run as usize].chunks.get_mut(usize::from(chunk));
                chunk.into_iter().for_each(|chunk| *chunk = None);
            }
        }
        Ok(())
    }

    fn shard_purged(&mut self, op: &Op, tenant: TenantId, key: ShardKey) -> Result<(), Violation> {
        let Some(number) = self.find_shard(tenant, key) else {
            return self.require(false, Rule::Tiling, "a missing shard was purged");
        };
        let run = self.shards[number as usize].run;
        let over = self.runs[run as usize].may_be_swept();
        self.require(over, Rule::RunOver, "a shard of an existing run was purged")?;
        self.shards[number as usize].swept = true;
        let live = &mut self.live_shards[op.tenant as usize];
        *live = live.saturating_sub(1);
        self.shrunk_at = self.commits;
        Ok(())
    }
}

/// Returns whether an operation is logged by its id. A request is its own log, and grants and
/// renewals have none.
pub(super) const fn has_op_id(verb: Verb) -> bool {
    !matches!(
        verb,
        Verb::Claim
            | Verb::Acquire
            | Verb::Accept
            | Verb::Renew
            | Verb::RenewMany
            | Verb::RequestAction
            | Verb::RepairShard
    )
}

/// Returns the digest that a replay must return: the created shards.
pub(super) fn answer_of(born: &[ShardId]) -> u64 {
    born.iter().fold(0, |hash, shard| mix(hash ^ shard.as_raw()))
}

pub(super) fn new_shard_facts(
    key: ShardKey,
    run: u32,
    range: (u32, u32),
    fence: u64,
    done: u32,
) -> ShardFacts {
    ShardFacts {
        key,
        run,
        range,
        status: ShardStatus::Active,
        holder: None,
        fence,
        done,
        attempts: 0,
        received: 0,
        offer: None,
        sequence: 0,
        logged: 0,
        forgotten: 0,
        withdrawn: Vec::new(),
        request: None,
        asked: Vec::new(),
        reason: None,
        granted: 0,
        moved_by: None,
        renewed_at: 0,
        parent: None,
        spawned: Vec::new(),
        foreign: false,
        swept: false,
        changed_at: 0,
        written_true: 0,
    }
}

/// Returns the parts of `range` between cuts.
pub(super) fn wanted_parts(range: (u32, u32), cuts: &[u32]) -> Vec<(u32, u32)> {
    let starts = std::iter::once(range.0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(range.1));
    starts.zip(ends).collect()
}

/// Returns the stored hot part of the subject of `txn`. The oracle reads only values that the
/// caller chooses freely: a park reason, a request.
pub(super) fn written(txn: &Txn) -> Option<HotPart<'_>> {
    let Write::Put(Key::ShardHot { tenant, shard }, bytes) = txn.writes().first()? else {
        return None;
    };
    decode_hot(*tenant, *shard, bytes).ok()
}

fn writes(txn: &Txn, wanted: impl Fn(&Key) -> bool) -> bool {
    let puts = |write: &Write| matches!(write, Write::Put(..) | Write::Bind(..));
    txn.writes().iter().any(|write| puts(write) && wanted(write.key()))
}
