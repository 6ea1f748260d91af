//! What the oracle makes of the answer that a caller was given.

use gossip_coordination::{OP_LOG_CAP, PendingRequest, RUN_OP_LOG_CAP, ShardStatus};

use super::admin_requests::NOT_SHOWN;
use super::effects::{answer_of, has_op_id};
use super::op::{Ending, Granted, Label, LeaseRef, Member, Op, Verb};
use super::oracle::{Holder, Log, Oracle, Remembered, Rule, Violation};
use super::processes::CLOCK_SKEW_HONOURED;

/// What a caller was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpResult<'t> {
    pub(super) ending: Ending,
    /// The name of the outcome.
    pub(super) name: &'t str,
    /// What a replay must repeat, if the answer has anything of the kind.
    pub(super) answer: Option<u64>,
}

/// What a caller was told about one of the leases that it renewed together.
#[derive(Clone, Debug)]
pub(super) enum Renewal {
    /// It is good until then, and this is asked of its owner.
    Until(u64, Option<PendingRequest>),
    /// It was not renewed, or nobody knows.
    Not(Ending, Label),
}

impl Oracle {
    /// Hears what the caller of `op` was told.
    ///
    /// # Errors
    ///
    /// The rule that this breaks.
    pub(super) fn ended(&mut self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        op.ended.set(Some(result.ending));
        if op.misled.get() {
            return Ok(());
        }
        let applied = op.applied.get() > 0 && !self.is_over(op);
        // A flipped bit may look like a newer format, so any failure will do. A batch is told apart
        // for each of its leases.
        let failed = matches!(result.ending, Ending::Failed { .. });
        let noticed = !op.damaged.get() || failed || op.verb == Verb::RenewMany;
        self.require(noticed, Rule::Undetected, "something was decided about damaged bytes")?;
        match result.ending {
            Ending::Executed => self.judge_success(op, op.applied.get() > 0, result),
            Ending::Replayed => self.judge_replay(op, result),
            // Of a batch some may have happened: `batch_ended` heard which.
            Ending::Refused if op.verb == Verb::RenewMany => Ok(()),
            Ending::Refused => {
                self.require(!applied, Rule::RefusedHappened, "what was refused had happened")?;
                self.judge_refusal(op, result)
            }
            Ending::Failed { doubtful, .. } => {
                self.judge_doubt(op, doubtful)?;
                let honest = doubtful || !applied || op.verb == Verb::RenewMany;
                self.require(honest, Rule::RefusedHappened, "what was said to have failed happened")
            }
        }
    }

    /// Who says that something may have happened has sent a commit and not heard of it, or has done
    /// a part of it. Otherwise every failure could be told so, and nothing would ever be denied.
    fn judge_doubt(&self, op: &Op, doubtful: bool) -> Result<(), Violation> {
        // What is left to be swept of a run may be left of somebody else's deletion.
        let sweeps = matches!(op.verb, Verb::DeleteRun | Verb::CollectRuns);
        let founded = !doubtful || op.unsure.get() || op.begun.get() || sweeps;
        if founded {
            return Ok(());
        }
        let why = format!("{:?} had nothing to be in doubt about", op.verb);
        self.require(false, Rule::Unfounded, &why)
    }

    /// Holds a grant against what its worker was told.
    ///
    /// # Errors
    ///
    /// The rule that this breaks.
    pub(super) fn granted(&self, op: &Op, result: Granted) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let Some(known) = op.granted.get().filter(|known| known.key == result.key) else {
            return self.require(false, Rule::Acknowledged, "a grant was told that never happened");
        };
        self.require(result.fence == known.fence, Rule::FenceFell, "a grant has the wrong fence")?;
        let same = result.deadline == known.deadline;
        self.require(same, Rule::Acknowledged, "a lease ends when it was not to")?;
        let same = result.range == known.range;
        self.require(same, Rule::Acknowledged, "a worker was told another range")?;
        let same = result.done == known.done;
        self.require(same, Rule::Acknowledged, "a worker was told another position")?;
        let same = result.carried == known.carried || known.carried == 0 || result.carried == 0;
        self.require(same, Rule::Acknowledged, "a worker was told another token or metadata")?;
        let same = result.attempts == known.attempts;
        self.require(same, Rule::Attempts, "a worker was told another number of attempts")
    }

    /// Holds a renewal against what its worker was told.
    ///
    /// # Errors
    ///
    /// The rule that this breaks.
    pub(super) fn renewed(
        &self,
        lease: LeaseRef,
        until: Option<u64>,
        result: u64,
    ) -> Result<(), Violation> {
        let same = until == Some(result);
        self.require(same, Rule::Acknowledged, "a lease ends when its renewal did not say")?;
        // Somebody may have come since; whoever is there still was told nothing beyond its end.
        let Some(holder) = self.shards[lease.shard as usize].holder else { return Ok(()) };
        let kept = holder.grant != lease.grant || result <= holder.deadline;
        self.require(kept, Rule::Acknowledged, "a renewal was told that never happened")
    }

    /// Holds the answers to a batch of renewals, each for itself, against what became of them.
    ///
    /// # Errors
    ///
    /// The rule that this breaks.
    pub(super) fn batch_ended(&self, op: &Op, answers: &[Renewal]) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let mut batch = op.batch.borrow_mut();
        let all = batch.len() == answers.len();
        self.require(all, Rule::Acknowledged, "a batch has another number of answers")?;
        // Who shares a read with damaged bytes may not look at them; whose they are must fail.
        let failed = |answer: &Renewal| matches!(answer, Renewal::Not(Ending::Failed { .. }, _));
        let noticed = !op.damaged.get() || answers.iter().any(failed);
        self.require(noticed, Rule::Undetected, "a batch was decided about damaged bytes")?;
        for (member, answer) in batch.iter_mut().zip(answers) {
            match answer {
                Renewal::Until(deadline, notice) => {
                    let why = "a renewal was acknowledged that had not happened";
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

    /// One of a batch was told that it is not renewed.
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
                let why = "a renewal that was said to have failed happened";
                self.require(honest || doubtful, Rule::RefusedHappened, why)
            }
            Ending::Refused | Ending::Executed | Ending::Replayed => {
                member.refused = true;
                let why = "a renewal that was refused had happened";
                self.require(honest, Rule::RefusedHappened, why)?;
                let good = lives && op.now.as_raw() < member.good_until;
                let shut_out = good && shuts_out(label.as_str());
                self.require(!shut_out, Rule::OwnerShutOut, "the holder of one of many was refused")
            }
        }
    }

    /// Whether nothing is left of what `op` did. A grant or a renewal whose reply was lost and that
    /// ended meanwhile is as good as none, and of a run that was deleted nothing is found: the
    /// caller is told what is true now.
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

    /// Until when another renewal of the same lease made it last, after `op` began and before it
    /// knew what became of its own. While an offer stands the two leave the same bytes, which is
    /// what a renewal is known again by; whose they are changes nothing for their owner.
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
        // An earlier try of it, under an id of its own, may have come late.
        let offered =
            || op.verb == Verb::Offer && log.is_some_and(|it| self.is_done_otherwise(op, it));
        let done = done || op.unsure.get() && (self.is_asked(op) || offered());
        self.require(done, Rule::Acknowledged, "what was acknowledged had not happened")?;
        let same = match (result.answer, applied, known) {
            (Some(answer), true, _) => answer == answer_of(&op.born.borrow()),
            (Some(answer), false, Some(known)) => answer == known.answer,
            (Some(_), false, None) | (None, _, _) => true,
        };
        self.require(same, Rule::Acknowledged, "an answer names other shards than were made")
    }

    fn judge_replay(&self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        if op.verb == Verb::RequestAction {
            return self.judge_repeated_request(op);
        }
        let Some(log) = self.log_of(op) else { return Ok(()) };
        let known = self.recall(log, op.op_id).filter(|known| known.payload == op.payload);
        let honest = known.is_some() || self.is_done_otherwise(op, log);
        self.require(honest, Rule::Replay, "something that never happened was replayed")?;
        let same = known.zip(result.answer).is_none_or(|(known, answer)| known.answer == answer);
        self.require(same, Rule::Replay, "a retry was answered differently")
    }

    /// Whether what was asked was so already: the same offer stands, the run is registered or
    /// deleted, though by another operation.
    fn is_done_otherwise(&self, op: &Op, log: Log) -> bool {
        match log {
            Log::Run(run) => match op.verb {
                Verb::DeleteRun => self.runs[run as usize].deleted,
                Verb::RegisterShards => self.runs[run as usize].is_whole(),
                _ => false,
            },
            Log::Shard(shard) => {
                let shard = &self.shards[shard as usize];
                // It may have stood and gone meanwhile.
                let stood = shard.offer == op.said.terms || shard.changed_at > op.begun_at;
                op.verb == Verb::Offer && stood
            }
        }
    }

    /// A refusal must have a reason.
    fn judge_refusal(&self, op: &Op, result: OpResult<'_>) -> Result<(), Violation> {
        self.judge_forgetting(op, result.name)?;
        self.judge_reason(op, result.name)?;
        if let Some(lease) = op.lease
            && op.verb.is_leased()
            && self.is_held_by(lease)
        {
            let good = op.now.as_raw() < op.good_until && !self.is_gone(lease.shard);
            let why = "the holder of a live lease was refused";
            self.require(!(good && shuts_out(result.name)), Rule::OwnerShutOut, why)?;
        }
        let withheld = if op.verb == Verb::Acquire && result.name == "AlreadyLeased" {
            op.target.is_some_and(|target| self.was_free(op, target.shard))
        } else if op.verb == Verb::Claim && result.name == "NoneAvailable" {
            op.run.is_some_and(|run| self.had_free(op, run))
        } else {
            false
        };
        self.require(!withheld, Rule::FreeShardWithheld, "a free shard was withheld")
    }

    /// Whether a run had a shard to give from the beginning of `op` until now.
    fn had_free(&self, op: &Op, run: u32) -> bool {
        let run = &self.runs[run as usize];
        let open = run.is_active() && !run.paused && run.changed_at <= op.begun_at;
        open && run.shards.iter().any(|shard| self.was_free(op, *shard))
    }

    /// Whether a shard was free from the beginning of `op` until now: nobody held it, or whoever
    /// did was so late that not even a live process is waited for any longer.
    fn was_free(&self, op: &Op, shard: u32) -> bool {
        let shard = &self.shards[shard as usize];
        let late = |holder: Holder| op.now.as_raw() >= holder.deadline + CLOCK_SKEW_HONOURED;
        let unchanged = shard.changed_at <= op.begun_at;
        unchanged && shard.status == ShardStatus::Active && shard.holder.is_none_or(late)
    }

    /// What is remembered is answered from memory, whatever became of the lease.
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
            return self.require(reused, Rule::Replay, "an id was refused that was not reused");
        }
        let before = |known: &Remembered| known.commit <= op.begun_at;
        let fresh = |known: &Remembered| self.is_fresh(log, *known, capacity);
        let Some(known) = known.filter(before).filter(fresh).filter(|_| !gone) else {
            return Ok(());
        };
        match known.payload == op.payload {
            true => self.require(false, Rule::Replay, "a retry was not answered from memory"),
            false => self.require(false, Rule::OpIdReused, "a reused id was not refused for that"),
        }
    }

    /// The log in which `op` would stand.
    fn log_of(&self, op: &Op) -> Option<Log> {
        if op.verb.is_about_run() {
            return op.run.map(Log::Run);
        }
        let subject = op.lease.or(op.target).map(|subject| Log::Shard(subject.shard));
        subject.filter(|_| has_op_id(op.verb))
    }
}

/// Whether a refusal of that name says that its caller has no live lease.
fn shuts_out(name: &str) -> bool {
    matches!(name, "StaleFence" | "LeaseExpired" | "ShardTerminal")
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
    )
}
