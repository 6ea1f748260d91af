//! Oracle rules for rejections: the returned reason must have been true.
//!
//! A rejection is decided at one instant during its operation, so its reason must have been true in
//! one of the states that the shard and the run had meanwhile ([`past`](super::past)). A reason
//! that is missing from these tables is always a violation.
//!
//! Rules that need more care about time are in `answers`: rejected lease holders, withheld shards
//! and forgotten operations.

use gossip_coordination::protocol::OFFER_LEASES_MAX;
use gossip_coordination::{RunStatus, ShardStatus};

use super::op::{Flaw, Op, Terms, Verb};
use super::oracle::{Oracle, Rule, RunFacts, ShardFacts, Violation};

impl Oracle {
    /// Checks the name of a rejection against the history.
    ///
    /// # Errors
    ///
    /// [`Rule::Unfounded`] if the reason was not true.
    pub(super) fn judge_reason(&self, op: &Op, name: &str) -> Result<(), Violation> {
        if op.said.stranger {
            // The other tenant has no such shard, or has one that the lease does not belong to.
            let result = matches!(name, "TenantMismatch" | "ShardNotFound");
            return self.require(
                result,
                Rule::Unfounded,
                "an operation on another tenant's lease returned another error",
            );
        }
        if Flaw::is_named_by(name) {
            // The input of a user worker is not known in such detail.
            let founded = op.said.flaw.is_some_and(|flaw| flaw.refusal() == name);
            let why = "valid input was rejected as malformed";
            return self.require(founded || op.said.foreign, Rule::Unfounded, why);
        }
        let shard = op.lease.or(op.target).map(|subject| subject.shard);
        let run = op.run.or_else(|| shard.map(|shard| self.shards[shard as usize].run));
        let founded = match (shard, run) {
            (Some(shard), Some(run)) => self.was_true_of_shard(op, name, shard, run),
            (None, Some(run)) => self.was_true_of_run(op, name, run),
            // A user worker may ask about a shard or run that never existed.
            (None | Some(_), None) => Some(self.is_true_of_worker(op, name)),
        };
        let Some(founded) = founded else {
            self.skip(|tally| &mut tally.refusals);
            return Ok(());
        };
        let why = || format!("{:?} was rejected with {name}, which was not true", op.verb);
        if founded { Ok(()) } else { self.require(false, Rule::Unfounded, &why()) }
    }

    /// Returns whether a reason was true at some instant of the operation; `None` if its states are
    /// not known.
    fn was_true_of_shard(&self, op: &Op, name: &str, shard: u32, run: u32) -> Option<bool> {
        let (facts, past) = (&self.shards[shard as usize], &self.past_shards[shard as usize]);
        let mut shards = past.states(facts, facts.changed_at, op.begun_at)?;
        let runs = self.runs_during(op, run)?;
        Some(
            shards.any(|shard| runs.clone().any(|run| self.is_true_of_shard(op, name, shard, run))),
        )
    }

    fn was_true_of_run(&self, op: &Op, name: &str, run: u32) -> Option<bool> {
        Some(self.runs_during(op, run)?.any(|run| self.is_true_of_run(op, name, run)))
    }

    fn runs_during<'o>(
        &'o self,
        op: &Op,
        run: u32,
    ) -> Option<impl Iterator<Item = &'o RunFacts> + Clone + use<'o>> {
        let (facts, past) = (&self.runs[run as usize], &self.past_runs[run as usize]);
        past.states(facts, facts.changed_at, op.begun_at)
    }

    fn is_true_of_shard(&self, op: &Op, name: &str, shard: &ShardFacts, run: &RunFacts) -> bool {
        let now = op.now.as_raw();
        let grant = shard.holder.map(|holder| holder.grant);
        let held = op.lease.is_some_and(|lease| Some(lease.grant) == grant);
        let deadline = shard.holder.map(|holder| holder.deadline);
        let (terms, standing) = (op.said.terms, shard.offer);
        match name {
            "OpIdConflict" | "AlreadyLeased" => true,
            "ShardNotFound" => run.deleted || !run.is_whole(),
            "RunTerminal" => run.is_over(),
            "RunPaused" => run.paused,
            "ShardTerminal" => shard.status != ShardStatus::Active,
            "StaleFence" if op.verb == Verb::RevokeLease => {
                op.said.fence.is_some_and(|fence| fence != shard.fence)
            }
            "StaleFence" => !held,
            "LeaseExpired" => !held || deadline.is_none_or(|deadline| now >= deadline),
            "OperationTooOld" => {
                op.lease.is_some_and(|lease| (1..=shard.sequence).contains(&lease.sequence))
            }
            "Offered" => standing.is_some(),
            "CursorRegression" => op.said.to.is_some_and(|to| to < shard.done),
            "CursorOutOfBounds" => {
                op.said.to.is_none_or(|to| to <= shard.range.0 || to > shard.range.1)
            }
            "SplitInvalid" => !is_valid_split(op, shard) || self.may_lack_room(op, run),
            // Withdrawing an offer that is not open succeeds.
            "NoOffer" if op.verb == Verb::Withdraw => standing.is_some() && !names(terms, standing),
            "NoOffer" => !names(terms, standing),
            "NotDestination" => standing.is_none_or(|offer| offer.destination != op.worker),
            "OfferExpired" => standing.is_none_or(|offer| now >= offer.until),
            "Withdrawn" => terms.is_some_and(|terms| shard.withdrawn.contains(&terms.handoff)),
            "InvalidDestination" => terms.is_some_and(|terms| terms.destination == op.worker),
            "InvalidOfferDeadline" => terms.is_some_and(|terms| {
                terms.until <= now || terms.until > now + OFFER_LEASES_MAX * run.lease
            }),
            // The last read of a repair shows both parts.
            "NotDamaged" => !op.damaged_shards().contains(&shard.key.shard()),
            "RangeUnknown" => !op.damaged_shards().is_empty(),
            "NotParked" => shard.status != ShardStatus::Parked,
            // A revocation ignores the deadline, a request to the holder does not.
            "NotLeased" if op.verb == Verb::RevokeLease => deadline.is_none(),
            "NotLeased" => deadline.is_none_or(|deadline| now >= deadline),
            "RequestPending" => shard.request.as_ref().is_some_and(|it| it.is_pending_at(op.now)),
            _ => false,
        }
    }

    fn is_true_of_run(&self, op: &Op, name: &str, run: &RunFacts) -> bool {
        let initializing = run.status == Some(RunStatus::Initializing);
        match name {
            "OpIdConflict" | "NoneAvailable" => true,
            "RunNotFound" => run.deleted || run.status.is_none(),
            "RunAlreadyExists" => run.deleted || run.status.is_some(),
            "RunTerminal" => run.is_over(),
            "RunPaused" => run.paused,
            "NotTerminal" => !run.is_over(),
            // A registration that has begun can only continue with the same roots.
            "WrongStatus" if op.verb == Verb::RegisterShards => {
                let others = op.said.flaw.is_some() || op.said.cuts != run.cuts;
                !initializing || others && run.roots_born > 0
            }
            "WrongStatus" => initializing && op.verb != Verb::CancelRun,
            "NotSettled" => run.unsettled > 0 || run.touched_at > op.begun_at,
            "ShardLimitExceeded" => self.may_lack_room(op, run),
            _ => false,
        }
    }

    /// Without a shard and a run, the operation is about the worker registry.
    fn is_true_of_worker(&self, op: &Op, name: &str) -> bool {
        let registry = &self.registries[op.tenant as usize];
        let live = registry.is_live(op.worker, op.now.as_raw());
        match (op.verb, name) {
            (Verb::Heartbeat, "NotRegistered") => !live || registry.changed_at > op.begun_at,
            (Verb::Heartbeat | Verb::RegisterWorker | Verb::ListWorkers, _) => false,
            // A subject of a user worker that never existed is not found.
            (_, result) => result.ends_with("NotFound"),
        }
    }

    /// Returns whether the quota may have been exhausted for `op`. A registration reserves quota
    /// before its shards exist, so unfinished runs count in full.
    fn may_lack_room(&self, op: &Op, run: &RunFacts) -> bool {
        let wanted = match op.verb {
            Verb::RegisterShards => run.cuts.len() as u64 + 1,
            Verb::SplitReplace => op.said.cuts.len() as u64 + 1,
            _ => 1,
        };
        let others =
            self.runs.iter().filter(|other| other.id != run.id && other.tenant == op.tenant);
        let reserved: u64 = others.map(RunFacts::reserved).sum();
        let live = u64::from(self.live_shards[op.tenant as usize]);
        let (max, changed_at) = self.allotments[op.tenant as usize];
        let fits = live + reserved + wanted <= max.into();
        !fits || self.shrunk_at.max(changed_at) > op.begun_at
    }
}

/// Returns whether the terms name the open offer.
fn names(terms: Option<Terms>, standing: Option<Terms>) -> bool {
    terms.zip(standing).is_some_and(|(terms, standing)| terms.handoff == standing.handoff)
}

/// Returns whether the cuts lie within the shard and after its cursor.
fn is_valid_split(op: &Op, shard: &ShardFacts) -> bool {
    let (from, to) = shard.range;
    let cuts = &op.said.cuts;
    let inside = cuts.iter().all(|cut| *cut > from && *cut < to);
    let behind = cuts.first().is_some_and(|cut| *cut >= shard.done);
    inside && behind
}
