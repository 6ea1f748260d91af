//! Oracle rules for grants: acquires, their confirmations, accepted offers, and parking by the
//! count of attempts.
//!
//! Leases end in true time: the simulator knows every clock error, so a rule never relies on the
//! time that a process presented.

use gossip_coordination::store::{Key, Txn, Write};
use gossip_coordination::{ParkReason, ShardStatus};

use super::op::{Granted, Op, Terms, Verb};
use super::oracle::{Holder, Oracle, Rule, RunFacts, Violation};
use super::processes::CLOCK_SKEW_HONOURED;

impl Oracle {
    /// Returns whether `txn` is the second commit of a grant, which leaves the deadline as it is.
    pub(super) fn is_confirmation(&self, op: &Op, number: u32, txn: &Txn) -> bool {
        let indexed = |write: &Write| matches!(write.key(), Key::ClaimIndex { .. });
        let granted = op.granted.get().is_some_and(|it| it.shard == number);
        granted && !txn.writes().iter().any(indexed)
    }

    /// Counts the attempt of a grant that its process has received.
    pub(super) fn confirm(&mut self, op: &Op, number: u32) -> Result<(), Violation> {
        let Some(granted) = op.granted.get() else { return Ok(()) };
        let shard = &self.shards[number as usize];
        let held = shard.holder.is_some_and(|holder| holder.grant == granted.grant);
        self.require(held, Rule::StaleFence, "a grant was confirmed that had ended")?;
        let once = shard.attempts + 1 == granted.attempts;
        self.require(once, Rule::Attempts, "a grant was counted twice")?;
        let shard = &mut self.shards[number as usize];
        shard.attempts = granted.attempts;
        shard.received += 1;
        // The commit belongs to the grant: one operation, one effect.
        op.applied.set(op.applied.get() - 1);
        Ok(())
    }

    pub(super) fn check_grantable(&self, number: u32) -> Result<(), Violation> {
        let shard = &self.shards[number as usize];
        let active = shard.status == ShardStatus::Active;
        self.require(active, Rule::StaleFence, "a terminal shard was granted")?;
        let run = &self.runs[shard.run as usize];
        let runs = run.is_active() && !run.paused;
        self.require(runs, Rule::RunOver, "a shard of a finished or paused run was granted")
    }

    /// Returns whether a grant may end the lease although it is live: its deadline lies too far
    /// ahead of the caller's clock, and nothing was written for a lease and the skew of true time.
    fn is_void(&self, op: &Op, number: u32) -> bool {
        let shard = &self.shards[number as usize];
        let Some(holder) = shard.holder else { return false };
        let window = self.runs[shard.run as usize].lease + CLOCK_SKEW_HONOURED;
        let is_far = holder.deadline > op.now.as_raw() + window;
        is_far && self.now - shard.written_true >= window
    }

    /// Returns whether the lease of a shard had ended in true time. A clock that is ahead of the
    /// holder's takes over so much earlier, unless the owner key shows that the holder lives: then
    /// the skew that is honoured comes on top.
    fn is_free(&mut self, op: &Op, number: u32) -> bool {
        let Some(holder) = self.shards[number as usize].holder else { return true };
        if self.is_void(op, number) {
            self.true_time.void_grants += 1;
            return true;
        }
        let alive = op.owner_key.get() && holder.worker != op.worker;
        let skew = if alive { CLOCK_SKEW_HONOURED } else { 0 };
        let early = holder.true_end.saturating_sub(self.now);
        self.true_time.early_grants += u64::from(early > 0);
        self.true_time.earliest = self.true_time.earliest.max(early);
        op.begun_true as i64 >= holder.live_until(op.clock_error) + skew as i64
    }

    /// An acquire parks a shard that has used up its attempts.
    pub(super) fn give_up(&mut self, op: &Op, number: u32) -> Result<(), Violation> {
        let free = self.is_free(op, number);
        self.require(free, Rule::TwoOwners, "a leased shard was parked by a claim")?;
        let shard = &self.shards[number as usize];
        let max = self.runs[shard.run as usize].retries;
        let used_up = max.is_some_and(|max| shard.attempts > max);
        self.require(
            used_up,
            Rule::Attempts,
            "a shard was parked before its attempts were used up",
        )?;
        // Independent of how the coordinator counts: lost replies alone must never park a shard.
        let tried = max.is_some_and(|max| shard.received >= max.max(1));
        let why = "a shard was parked because of grants that no worker had received";
        self.require(tried, Rule::Attempts, why)?;
        self.end_shard(number, ShardStatus::Parked);
        self.shards[number as usize].reason = Some(ParkReason::TooManyErrors);
        // The caller gets an error that the shard is parked, which this commit makes true.
        op.applied.set(op.applied.get() - 1);
        Ok(())
    }

    pub(super) fn acquire(&mut self, op: &Op, number: u32) -> Result<(), Violation> {
        let free = self.is_free(op, number);
        self.require(free, Rule::TwoOwners, "a shard was granted while its lease was live")?;
        let shard = &self.shards[number as usize];
        let max = self.runs[shard.run as usize].retries;
        let left = max.is_none_or(|max| shard.attempts <= max);
        self.require(left, Rule::Attempts, "a shard was granted that had used up its attempts")?;
        let attempts = shard.attempts + 1;
        // Only the first grant since the last progress counts before it is confirmed.
        if max.is_none() || shard.attempts == 0 && max != Some(0) {
            self.shards[number as usize].attempts = attempts;
        }
        self.grant(op, number, attempts)
    }

    pub(super) fn accept(&mut self, op: &Op, number: u32) -> Result<(), Violation> {
        self.check_grantable(number)?;
        let asked = op.said.terms.map(|terms| terms.handoff);
        let shard = &self.shards[number as usize];
        let Some(offer) = shard.offer.filter(|offer| Some(offer.handoff) == asked) else {
            return self.require(false, Rule::Handoff, "an offer was accepted that is not open");
        };
        let Terms { destination, until, .. } = offer;
        self.require(
            destination == op.worker,
            Rule::Handoff,
            "a worker other than the destination accepted an offer",
        )?;
        self.require(op.now.as_raw() < until, Rule::Handoff, "an offer was accepted too late")?;
        if let Some(source) = shard.holder {
            let redone = self.worked[source.grant as usize] > shard.done;
            let why = "the source had done more keys than the destination was granted";
            self.require(!redone, Rule::MoveRedoesNothing, why)?;
        }
        let attempts = shard.attempts;
        self.grant(op, number, attempts)
    }

    /// Grants one shard to one operation. If the operation were granted a second shard while it
    /// holds the first, the first would have a holder that never learns of its lease.
    fn grant(&mut self, op: &Op, number: u32, attempts: u32) -> Result<(), Violation> {
        let leaked = op.granted.get().is_some_and(|first| {
            let holder = self.shards[first.shard as usize].holder;
            holder.is_some_and(|holder| holder.grant == first.grant)
        });
        let leaked = leaked && !op.misled.get();
        self.require(!leaked, Rule::Acknowledged, "one operation was granted two shards")?;
        self.grants += 1;
        let carried = self.carried(&self.shards[number as usize]);
        let shard = &mut self.shards[number as usize];
        self.worked.push(shard.done);
        let RunFacts { lease, floor, tenant, unprotected, .. } = self.runs[shard.run as usize];
        let (deadline, true_end) = (op.now.as_raw() + lease, op.begun_true + lease);
        let (grant, worker, clock_error) = (self.grants, op.worker, op.clock_error);
        shard.holder = Some(Holder { grant, worker, deadline, true_end, clock_error });
        shard.fence = (shard.fence + 1).max(floor);
        let (fence, key) = (shard.fence, shard.key);
        let before = self.issued.insert((tenant, key), fence);
        let risen = unprotected || before.is_none_or(|before| fence > before);
        self.require(risen, Rule::FenceFell, "a fence was issued a second time")?;
        let shard = &mut self.shards[number as usize];
        shard.granted += 1;
        (shard.offer, shard.request, shard.sequence) = (None, None, 0);
        let moves = op.verb == Verb::Accept;
        shard.moved_by = op.said.terms.filter(|_| moves).map(|terms| terms.handoff);
        op.granted.set(Some(Granted {
            shard: number,
            key: shard.key,
            grant: self.grants,
            fence: shard.fence,
            deadline,
            range: shard.range,
            done: shard.done,
            attempts,
            carried,
        }));
        Ok(())
    }
}
