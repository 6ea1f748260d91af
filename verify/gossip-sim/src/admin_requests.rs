//! Oracle rules for requests: actions that an administrator asks of a lease holder.
//!
//! A request is pending until the lease holder performs the action, until a renewal or checkpoint
//! arrives after its expiry, or until the shard changes its holder; `effects` ends it for the last
//! reason. A pending request acts as its own operation log: the same request under the same id is
//! replayed, and a different request under that id is rejected. Every renewal and checkpoint shows
//! the request to the lease holder.
//!
//! An answer may agree with any request that was pending at some time during the operation. It must
//! agree with a request that was pending during the whole operation.

use gossip_coordination::store::Txn;
use gossip_coordination::{PendingRequest, ShardAction};

use super::effects::written;
use super::op::{LeaseRef, Op, Verb};
use super::oracle::{Asked, Oracle, Rule, ShardFacts, Violation};

/// Violation text: a renewal or checkpoint did not show the pending request.
pub(super) const NOT_SHOWN: &str = "a lease holder was not shown its pending request";

impl Oracle {
    /// Records that a request was stored. It must be the one that was sent, and must not replace a
    /// pending one.
    pub(super) fn requested(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        if let Some(standing) = &self.shards[number as usize].request {
            let again = standing.op_id() == op.op_id;
            self.require(!again, Rule::Replay, "a pending request was stored again")?;
            let pending = standing.is_pending_at(op.now);
            self.require(!pending, Rule::Acknowledged, "a request replaced a pending one")?;
        }
        let request = written(txn).and_then(|hot| hot.request);
        let right = request.as_ref().zip(op.said.asked.as_ref()).is_some_and(|(it, asked)| {
            let result = (it.action(), it.expires_at().as_raw());
            it.op_id() == op.op_id && result == (&asked.0, asked.1)
        });
        self.require(right, Rule::Acknowledged, "the stored request is not the one that was sent")?;
        let (op_id, payload, stored_at) = (op.op_id, op.payload, self.commits);
        let shard = &mut self.shards[number as usize];
        shard.request = None;
        shard.note_end_of_request(stored_at);
        shard.request = request;
        shard.asked.push(Asked { op_id, payload, stored_at, ended_at: None });
        Ok(())
    }

    /// Returns whether the request of `op` is pending under its id, because an earlier attempt
    /// arrived late.
    pub(super) fn is_asked(&self, op: &Op) -> bool {
        let last = self.asked_since(op).next();
        let same = |it: &Asked| it.op_id == op.op_id && it.payload == op.payload;
        op.verb == Verb::RequestAction && last.is_some_and(same)
    }

    /// Returns the requests of the shard of `op` that were pending since `op` began, the latest
    /// first.
    fn asked_since<'o>(&'o self, op: &Op) -> impl Iterator<Item = &'o Asked> {
        let (shard, begun_at) = (op.target.map(|it| it.shard), op.begun_at);
        let asked = shard.map_or(&[][..], |shard| &self.shards[shard as usize].asked);
        asked.iter().rev().take_while(move |it| it.ended_at.is_none_or(|at| at > begun_at))
    }

    /// Checks a replayed request: it must have been pending during the operation.
    pub(super) fn judge_repeated_request(&self, op: &Op) -> Result<(), Violation> {
        let same = |it: &Asked| it.op_id == op.op_id && it.payload == op.payload;
        let stood = self.asked_since(op).any(same);
        self.require(stood, Rule::Replay, "a request was replayed that was not pending")
    }

    /// Checks a rejected request: `OpIdConflict` needs another request under that id, and a pending
    /// request must be replayed.
    pub(super) fn judge_refused_request(&self, op: &Op, name: &str) -> Result<(), Violation> {
        if name == "OpIdConflict" {
            let other = |it: &Asked| it.op_id == op.op_id && it.payload != op.payload;
            let reused = self.asked_since(op).any(other);
            return self.require(
                reused,
                Rule::Replay,
                "a request id was rejected as reused but was not",
            );
        }
        let gone = op.target.is_none_or(|target| self.is_gone(target.shard));
        let always = |it: &&Asked| it.ended_at.is_none() && it.stored_at <= op.begun_at;
        let known = self.asked_since(op).find(always).filter(|it| it.op_id == op.op_id && !gone);
        match known.map(|it| it.payload == op.payload) {
            None => Ok(()),
            Some(true) => self.require(
                false,
                Rule::Replay,
                "a pending request was rejected instead of replayed",
            ),
            Some(false) => {
                let why = "a request under a reused id was not rejected for that";
                self.require(false, Rule::OpIdReused, why)
            }
        }
    }

    /// Records the request that the reply to `op` must show to the lease holder.
    pub(super) fn show_request(&self, op: &Op, lease: LeaseRef) {
        let Some(request) = &self.shards[lease.shard as usize].request else { return };
        if !request.is_pending_at(op.now) {
            return;
        }
        let mut batch = op.batch.borrow_mut();
        let members = batch.iter_mut().filter(|member| member.lease.grant == lease.grant);
        members.for_each(|member| member.shown = Some(request.clone()));
        op.shown.replace(Some(request.clone()));
    }

    /// Checks the request that a reply showed: it must be the one that was pending when the commit
    /// took effect. A caller that lost the reply and finds its commit applied gets a reply without
    /// a request, and sees the request with its next operation.
    pub(super) fn was_shown(
        &self,
        op: &Op,
        result: Option<&PendingRequest>,
    ) -> Result<(), Violation> {
        let right = op.shown.borrow().as_ref() == result;
        let judged = op.applied.get() == 1 && !op.misled.get() && !op.unsure.get();
        self.require(right || !judged, Rule::Acknowledged, NOT_SHOWN)
    }

    /// Ends the pending request of a shard if `op` of its lease holder fulfils or expires it.
    pub(super) fn end_fulfilled_request(&mut self, op: &Op, number: u32) {
        let Some(request) = self.shards[number as usize].request.take() else { return };
        let expires = matches!(op.verb, Verb::Renew | Verb::RenewMany | Verb::Checkpoint);
        let over = expires && !request.is_pending_at(op.now) || self.is_fulfilled(op, &request);
        self.shards[number as usize].request = Some(request).filter(|_| !over);
    }

    fn is_fulfilled(&self, op: &Op, request: &PendingRequest) -> bool {
        match request.action() {
            ShardAction::Split(at) => {
                let cut = op.said.cuts.first().map(|cut| self.keys.key(*cut));
                let there = at.as_ref().is_none_or(|at| Some(at.as_bytes()) == cut);
                op.verb == Verb::SplitResidual && there
            }
            ShardAction::HandOff(to) => {
                let offered = op.said.terms.map(|terms| terms.destination);
                let there = to.is_none_or(|to| Some(to.as_raw()) == offered);
                op.verb == Verb::Offer && there
            }
            ShardAction::Withdraw => op.verb == Verb::Withdraw,
            // Giving up the lease ends every request.
            ShardAction::Release => false,
            other => unreachable!("no simulated administrator requests {}", other.label()),
        }
    }
}

impl ShardFacts {
    /// Records the end of the last request, if none is pending.
    pub(super) fn note_end_of_request(&mut self, commits: u64) {
        let last = self.asked.last_mut().filter(|last| last.ended_at.is_none());
        if let Some(last) = last.filter(|_| self.request.is_none()) {
            last.ended_at = Some(commits);
        }
    }
}
