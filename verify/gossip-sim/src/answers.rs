//! Oracle rules for results: whether the result that a caller received agrees with the effects of
//! its operation.

use gossip_coordination::store::Key;
use gossip_coordination::{OP_LOG_CAP, PendingRequest, RUN_OP_LOG_CAP, ShardStatus};

use super::admin_requests::NOT_SHOWN;
use super::effects::{answer_of, has_op_id};
use super::op::{Ending, Granted, Label, LeaseRef, Member, Op, Verb, shard_of};
use super::oracle::{Holder, Log, Oracle, Remembered, Rule, Violation};
use super::processes::CLOCK_SKEW_HONOURED;

/// The result that a caller received.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpResult<'t> {
    pub(super) ending: Ending,
    /// Name of the outcome.
    pub(super) name: &'t str,
    /// Digest that a replay must repeat, if the result has one.
    pub(super) answer: Option<u64>,
}

/// The result of one lease of a `renew_many` batch.
#[derive(Clone, Debug)]
pub(super) enum Renewal {
    /// Renewed until then, with the pending request of the lease holder.
    Until(u64, Option<PendingRequest>),
    /// Not renewed, or unknown.
    Not(Ending, Label),
}

impl Oracle {
    /// Checks the result that the caller of `op` received.
    ///
    /// # Errors
    ///
    /// Returns the rule that the result breaks.
    pub(super) fn ended(&mut self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        op.ended.set(Some(result.ending));
        if op.misled.get() {
            self.skip(|tally| &mut tally.misled);
            return Ok(());
        }
        let applied = op.applied.get() > 0 && !self.is_over(op);
        // A flipped bit can look like a newer format version, so every failure counts as detection.
        // A batch has a result for each lease, which `batch_ended` checks.
        let failed = matches!(result.ending, Ending::Failed { .. });
        let skips = match op.verb {
            Verb::RenewMany => true,
            // A claim skips a damaged candidate, and a repair reads its intact parts.
            Verb::Claim | Verb::RepairShard => skips_damage(op, result.ending),
            _ => false,
        };
        let noticed = !op.relies_on_damage() || failed || skips;
        self.require(noticed, Rule::Undetected, "an operation was decided on damaged bytes")?;
        match result.ending {
            Ending::Executed => self.judge_success(op, op.applied.get() > 0, result),
            Ending::Replayed => self.judge_replay(op, result),
            // Some leases of a batch may have been renewed; `batch_ended` checks each.
            Ending::Refused if op.verb == Verb::RenewMany => Ok(()),
            Ending::Refused => {
                self.require(
                    !applied,
                    Rule::RefusedHappened,
                    "a rejected operation had taken effect",
                )?;
                self.judge_refusal(op, result)
            }
            Ending::Failed { doubtful, .. } => {
                self.judge_doubt(op, doubtful)?;
                let honest = doubtful || !applied || op.verb == Verb::RenewMany;
                self.require(
                    honest,
                    Rule::RefusedHappened,
                    "an operation that failed for certain had taken effect",
                )
            }
        }
    }

    /// Checks an unknown outcome: the operation must have sent a commit without receiving its
    /// reply, or have completed a part of its work. Otherwise the coordinator could report every
    /// failure as unknown, and no check of rejections would ever apply.
    fn judge_doubt(&self, op: &Op, doubtful: bool) -> Result<(), Violation> {
        // A purge may find the remains of another operation's deletion.
        let purges = matches!(op.verb, Verb::DeleteRun | Verb::CollectRuns);
        let founded = !doubtful || op.unsure.get() || op.begun.get() || purges;
        if founded {
            return Ok(());
        }
        let why = format!("{:?} returned an unknown outcome without an unresolved commit", op.verb);
        self.require(false, Rule::Unfounded, &why)
    }

    /// Checks the lease that a grant returned.
    ///
    /// # Errors
    ///
    /// Returns the rule that the lease breaks.
    pub(super) fn granted(&self, op: &Op, result: Granted) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let Some(known) = op.granted.get().filter(|known| known.key == result.key) else {
            return self.require(
                false,
                Rule::Acknowledged,
                "a grant was returned that never happened",
            );
        };
        self.require(
            result.fence == known.fence,
            Rule::FenceFell,
            "a grant returned a wrong fence",
        )?;
        let same = result.deadline == known.deadline;
        self.require(same, Rule::Acknowledged, "a grant returned a wrong deadline")?;
        let same = result.range == known.range;
        self.require(same, Rule::Acknowledged, "a grant returned a wrong range")?;
        let same = result.done == known.done;
        self.require(same, Rule::Acknowledged, "a grant returned a wrong position")?;
        let same = result.carried == known.carried || known.carried == 0 || result.carried == 0;
        self.require(same, Rule::Acknowledged, "a grant returned a wrong token or metadata")?;
        let same = result.attempts == known.attempts;
        self.require(same, Rule::Attempts, "a grant returned a wrong number of attempts")
    }

    /// Checks the deadline that a renewal returned.
    ///
    /// # Errors
    ///
    /// Returns the rule that the deadline breaks.
    pub(super) fn renewed(
        &self,
        lease: LeaseRef,
        until: Option<u64>,
        result: u64,
    ) -> Result<(), Violation> {
        let same = until == Some(result);
        self.require(same, Rule::Acknowledged, "a renewal returned a wrong deadline")?;
        // The shard may have been granted again since. If not, no returned deadline lies after the
        // stored one.
        let Some(holder) = self.shards[lease.shard as usize].holder else { return Ok(()) };
        let kept = holder.grant != lease.grant || result <= holder.deadline;
        self.require(kept, Rule::Acknowledged, "a renewal was returned that never happened")
    }

    /// Checks each result of a batch of renewals.
    ///
    /// # Errors
    ///
    /// Returns the rule that a result breaks.
    pub(super) fn batch_ended(&self, op: &Op, answers: &[Renewal]) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let mut batch = op.batch.borrow_mut();
        let all = batch.len() == answers.len();
        self.require(all, Rule::Acknowledged, "a batch returned a wrong number of results")?;
        // A lease that shares a read with damaged bytes need not decode them; the lease they belong
        // to must fail.
        let failed = |answer: &Renewal| matches!(answer, Renewal::Not(Ending::Failed { .. }, _));
        let noticed = !op.relies_on_damage() || answers.iter().any(failed);
        self.require(noticed, Rule::Undetected, "a batch was decided on damaged bytes")?;
        for (member, answer) in batch.iter_mut().zip(answers) {
            match answer {
                Renewal::Until(deadline, notice) => {
                    let why = "a renewal was acknowledged that had not taken effect";
                    let by_another = self.renewed_by_another(op, member.lease);
                    let done = member.applied || by_another.is_some();
                    self.require(done, Rule::Acknowledged, why)?;
                    self.renewed(member.lease, member.until.or(by_another), *deadline)?;
                    let judged = member.applied && !op.unsure.get();
                    let right = !judged || member.shown == *notice;
                    self.require(right, Rule::Acknowledged, NOT_SHOWN)?;
                }
                Renewal::Not(ending, label) => self.not_renewed(op, member, *ending, *label)?,
            }
        }
        Ok(())
    }

    /// Checks a lease of a batch that was not renewed.
    fn not_renewed(
        &self,
        op: &Op,
        member: &mut Member,
        ending: Ending,
        label: Label,
    ) -> Result<(), Violation> {
        let lease = member.lease;
        let lives = self.is_held_by(lease) && !self.is_gone(lease.shard);
        let honest = !(member.applied && lives);
        match ending {
            Ending::Failed { doubtful, .. } => {
                self.judge_doubt(op, doubtful)?;
                let why = "a renewal that failed for certain had taken effect";
                self.require(honest || doubtful, Rule::RefusedHappened, why)
            }
            Ending::Refused | Ending::Executed | Ending::Replayed => {
                member.refused = true;
                let why = "a rejected renewal had taken effect";
                self.require(honest, Rule::RefusedHappened, why)?;
                let good = lives && op.now.as_raw() < member.good_until;
                let shut_out = good && shuts_out(label.as_str());
                self.require(
                    !shut_out,
                    Rule::OwnerShutOut,
                    "a batch rejected the holder of a live lease",
                )
            }
        }
    }

    /// Returns whether nothing remains of the effect of `op`: its grant or renewal has ended, or
    /// its run was deleted. The result then describes the present state.
    fn is_over(&self, op: &Op) -> bool {
        let shard = op.lease.or(op.target).map(|subject| subject.shard);
        let run = op.run.filter(|_| op.verb != Verb::DeleteRun);
        let deleted = run.is_some_and(|run| self.runs[run as usize].deleted);
        if deleted || shard.is_some_and(|shard| self.is_gone(shard)) {
            return true;
        }
        if op.verb == Verb::Renew {
            return op.lease.is_some_and(|lease| !self.is_held_by(lease));
        }
        op.granted.get().is_some_and(|granted| {
            let holder = self.shards[granted.shard as usize].holder;
            holder.is_none_or(|holder| holder.grant != granted.grant)
        })
    }

    /// Returns the deadline of a concurrent renewal of the same lease, committed between the begin
    /// of `op` and the resolution of its own commit. While an offer is open, both renewals write
    /// the same bytes, and an unresolved renewal is recognized by its bytes; for the lease holder
    /// the two are equivalent.
    fn renewed_by_another(&self, op: &Op, lease: LeaseRef) -> Option<u64> {
        let shard = &self.shards[lease.shard as usize];
        let since = op.unsure.get() && shard.renewed_at > op.begun_at;
        let holder = shard.holder.filter(|holder| since && holder.grant == lease.grant);
        holder.map(|holder| holder.deadline)
    }

    fn judge_success(&self, op: &Op, applied: bool, result: OpResult<'_>) -> Result<(), Violation> {
        if !changes_something(op.verb) {
            return Ok(());
        }
        let log = self.log_of(op);
        let known = log.and_then(|log| self.recall(log, op.op_id));
        let done = applied || known.is_some_and(|known| known.payload == op.payload);
        let by_another = op.lease.and_then(|lease| self.renewed_by_another(op, lease));
        if let Some(deadline) = by_another.filter(|_| op.verb == Verb::Renew && !done) {
            op.renewed.set(Some(deadline));
            return Ok(());
        }
        // An earlier attempt under another id may have arrived late.
        let offered =
            || op.verb == Verb::Offer && log.is_some_and(|it| self.is_done_otherwise(op, it));
        let done = done || op.unsure.get() && (self.is_asked(op) || offered());
        // A registration or a heartbeat that is not newer than the stored one changes nothing.
        let registers = matches!(op.verb, Verb::RegisterWorker | Verb::Heartbeat);
        let done = done || registers && self.registries[op.tenant as usize].has_newer(op);
        self.require(done, Rule::Acknowledged, "an acknowledged operation had not taken effect")?;
        let same = match (result.answer, applied, known) {
            (Some(answer), true, _) => answer == answer_of(&op.born.borrow()),
            (Some(answer), false, Some(known)) => answer == known.answer,
            (Some(_), false, None) | (None, _, _) => true,
        };
        self.require(same, Rule::Acknowledged, "a result names other shards than were created")
    }

    fn judge_replay(&self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        if op.verb == Verb::RequestAction {
            return self.judge_repeated_request(op);
        }
        let Some(log) = self.log_of(op) else { return Ok(()) };
        let known = self.recall(log, op.op_id).filter(|known| known.payload == op.payload);
        let honest = known.is_some() || self.is_done_otherwise(op, log);
        self.require(honest, Rule::Replay, "an operation was replayed that never took effect")?;
        let same = known.zip(result.answer).is_none_or(|(known, answer)| known.answer == answer);
        self.require(same, Rule::Replay, "a retry returned a different result")
    }

    /// Returns whether another operation had already reached the requested state: the same offer is
    /// open, or the run is registered or deleted.
    fn is_done_otherwise(&self, op: &Op, log: Log) -> bool {
        match log {
            Log::Run(run) => match op.verb {
                Verb::DeleteRun => self.runs[run as usize].deleted,
                Verb::RegisterShards => self.runs[run as usize].is_whole(),
                _ => false,
            },
            Log::Shard(shard) => {
                let shard = &self.shards[shard as usize];
                // The offer may have been opened and closed during the operation.
                let stood = shard.offer == op.said.terms || shard.changed_at > op.begun_at;
                op.verb == Verb::Offer && stood
            }
        }
    }

    /// Checks that a rejection has a valid reason.
    fn judge_refusal(&self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        self.judge_forgetting(op, result.name)?;
        self.judge_reason(op, result.name)?;
        if let Some(lease) = op.lease
            && op.verb.is_leased()
            && self.is_held_by(lease)
        {
            let good = op.now.as_raw() < op.good_until && !self.is_gone(lease.shard);
            let why = "the holder of a live lease was rejected";
            self.require(!(good && shuts_out(result.name)), Rule::OwnerShutOut, why)?;
        }
        let withheld = if op.verb == Verb::Acquire && result.name == "AlreadyLeased" {
            op.target.is_some_and(|target| self.was_free(op, target.shard))
        } else if op.verb == Verb::Claim && result.name == "NoneAvailable" && !op.damaged.get() {
            // A claim that read damaged bytes skips the shard they belong to.
            op.run.is_some_and(|run| self.had_free(op, run))
        } else {
            false
        };
        self.require(!withheld, Rule::FreeShardWithheld, "a free shard was withheld")
    }

    /// Returns whether a run had a claimable shard from the begin of `op` until now.
    fn had_free(&self, op: &Op, run: u32) -> bool {
        let run = &self.runs[run as usize];
        let open = run.is_active() && !run.paused && run.changed_at <= op.begun_at;
        open && run.shards.iter().any(|shard| self.was_free(op, *shard))
    }

    /// Returns whether a shard was free from the begin of `op` until now: it had no lease, or its
    /// lease was expired by more than the skew for which a live process is waited for.
    fn was_free(&self, op: &Op, shard: u32) -> bool {
        let shard = &self.shards[shard as usize];
        let late = |holder: Holder| op.now.as_raw() >= holder.deadline + CLOCK_SKEW_HONOURED;
        let unchanged = shard.changed_at <= op.begun_at;
        unchanged && shard.status == ShardStatus::Active && shard.holder.is_none_or(late)
    }

    /// Checks that a logged operation is replayed, even after its lease has ended.
    fn judge_forgetting(&self, op: &Op, name: &str) -> Result<(), Violation> {
        if op.verb == Verb::RequestAction {
            return self.judge_refused_request(op, name);
        }
        let Some(log) = self.log_of(op) else { return Ok(()) };
        let (capacity, gone) = match log {
            Log::Shard(shard) => (OP_LOG_CAP, self.is_gone(shard)),
            Log::Run(run) => (RUN_OP_LOG_CAP, self.runs[run as usize].deleted),
        };
        let known = self.recall(log, op.op_id);
        if name == "OpIdConflict" {
            let reused = known.is_some_and(|known| known.payload != op.payload);
            return self.require(
                reused,
                Rule::Replay,
                "an operation id was rejected as reused but was not",
            );
        }
        let before = |known: &Remembered| known.commit <= op.begun_at;
        let fresh = |known: &Remembered| self.is_fresh(log, *known, capacity);
        let Some(known) = known.filter(before).filter(fresh).filter(|_| !gone) else {
            return Ok(());
        };
        match known.payload == op.payload {
            true => self.require(false, Rule::Replay, "a retry was not replayed from the log"),
            false => self.require(
                false,
                Rule::OpIdReused,
                "a reused operation id was not rejected for that",
            ),
        }
    }

    /// Returns the log that records `op`.
    fn log_of(&self, op: &Op) -> Option<Log> {
        if op.verb.is_about_run() {
            return op.run.map(Log::Run);
        }
        let subject = op.lease.or(op.target).map(|subject| Log::Shard(subject.shard));
        subject.filter(|_| has_op_id(op.verb))
    }
}

/// Returns whether a rejection of that name means that its caller has no live lease.
fn shuts_out(name: &str) -> bool {
    matches!(name, "StaleFence" | "LeaseExpired" | "ShardTerminal")
}

/// Returns whether all damage that `op` has read concerns shards that it did not return as granted.
fn skips_damage(op: &Op, ending: Ending) -> bool {
    // A grant whose reply was lost may have been superseded before the shard was read again.
    let returned = matches!(ending, Ending::Executed);
    let granted = op.granted.get().filter(|_| returned).map(|granted| granted.key);
    let suspects = op.suspects.borrow();
    let skipped = |key: &Key| shard_of(key).is_some_and(|shard| Some(shard) != granted);
    suspects.iter().filter(|(_, must)| *must).all(|(key, _)| skipped(key))
}

const fn changes_something(verb: Verb) -> bool {
    !matches!(
        verb,
        Verb::RenewMany
            | Verb::CollectRuns
            | Verb::GetRun
            | Verb::Progress
            | Verb::ListShards
            | Verb::ActiveRuns
            | Verb::ListRuns
            | Verb::ListWorkers
            | Verb::SetAllotment
    )
}
