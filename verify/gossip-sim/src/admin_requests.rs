//! What the oracle knows of requests: what an administrator asks of a shard's owner.
//!
//! A request stands until its owner does what it asks, until a renewal or a checkpoint comes after
//! its time, or until the shard has another owner or none; `effects` ends it for the last reason.
//! While it stands it is its own memory: whoever asks the same again under its id is told so, and
//! whoever asks for something else under its id is refused. Its owner is shown it with every
//! renewal and checkpoint.
//!
//! What is answered is held against every request that stood at some time between the beginning of
//! the operation and its end, and demanded only of those that stood all the while.

use gossip_coordination::store::Txn;
use gossip_coordination::{PendingRequest, ShardAction};

use super::effects::written;
use super::op::{LeaseRef, Op, Verb};
use super::oracle::{Asked, Oracle, Rule, ShardFacts, Violation};

/// What is wrong with a notice.
pub(super) const NOT_SHOWN: &str = "an owner was not shown what is asked of it, or another request";

impl Oracle {
    /// Hears that a request was stored: what was asked, and in nobody's place.
    pub(super) fn requested(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        if let Some(standing) = &self.shards[number as usize].request {
            let again = standing.op_id() == op.op_id;
            self.require(!again, Rule::Replay, "a request that stands was stored again")?;
            let pending = standing.is_pending_at(op.now);
            self.require(!pending, Rule::Acknowledged, "a request took the place of another")?;
        }
        let request = written(txn).and_then(|hot| hot.request);
        let right = request.as_ref().zip(op.said.asked.as_ref()).is_some_and(|(it, asked)| {
            let result = (it.action(), it.expires_at().as_raw());
            it.op_id() == op.op_id && result == (&asked.0, asked.1)
        });
        self.require(right, Rule::Acknowledged, "another request was stored")?;
        let (op_id, payload, stored_at) = (op.op_id, op.payload, self.commits);
        let shard = &mut self.shards[number as usize];
        shard.request = None;
        shard.note_end_of_request(stored_at);
        shard.request = request;
        shard.asked.push(Asked { op_id, payload, stored_at, ended_at: None });
        Ok(())
    }

    /// Whether what `op` asks for stands under its id: an earlier try of it came late.
    pub(super) fn is_asked(&self, op: &Op) -> bool {
        let last = self.asked_since(op).next();
        let same = |it: &Asked| it.op_id == op.op_id && it.payload == op.payload;
        op.verb == Verb::RequestAction && last.is_some_and(same)
    }

    /// The requests of the shard that `op` is about that stood since `op` began, the last first.
    fn asked_since<'o>(&'o self, op: &Op) -> impl Iterator<Item = &'o Asked> {
        let (shard, begun_at) = (op.target.map(|it| it.shard), op.begun_at);
        let asked = shard.map_or(&[][..], |shard| &self.shards[shard as usize].asked);
        asked.iter().rev().take_while(move |it| it.ended_at.is_none_or(|at| at > begun_at))
    }

    /// A request is said to stand already.
    pub(super) fn judge_repeated_request(&self, op: &Op) -> Result<(), Violation> {
        let same = |it: &Asked| it.op_id == op.op_id && it.payload == op.payload;
        let stood = self.asked_since(op).any(same);
        self.require(stood, Rule::Replay, "a request was replayed that did not stand")
    }

    /// A request is refused: for its id only if that was another's, and not if it stands.
    pub(super) fn judge_refused_request(&self, op: &Op, name: &str) -> Result<(), Violation> {
        if name == "OpIdConflict" {
            let other = |it: &Asked| it.op_id == op.op_id && it.payload != op.payload;
            let reused = self.asked_since(op).any(other);
            return self.require(reused, Rule::Replay, "a request's id was not another's");
        }
        let gone = op.target.is_none_or(|target| self.is_gone(target.shard));
        let always = |it: &&Asked| it.ended_at.is_none() && it.stored_at <= op.begun_at;
        let known = self.asked_since(op).find(always).filter(|it| it.op_id == op.op_id && !gone);
        match known.map(|it| it.payload == op.payload) {
            None => Ok(()),
            Some(true) => self.require(false, Rule::Replay, "a request that stands was refused"),
            Some(false) => {
                let why = "a request under another's id was not refused for that";
                self.require(false, Rule::OpIdReused, why)
            }
        }
    }

    /// Remembers what the owner must be shown, if `op` shows it anything.
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

    /// Holds what the owner was shown against what is asked of it: what there was when the commit
    /// took effect. Whoever heard nothing of a commit and finds it done is told so without news,
    /// and hears of the request with the next one.
    pub(super) fn was_shown(
        &self,
        op: &Op,
        result: Option<&PendingRequest>,
    ) -> Result<(), Violation> {
        let right = op.shown.borrow().as_ref() == result;
        let judged = op.applied.get() == 1 && !op.misled.get() && !op.unsure.get();
        self.require(right || !judged, Rule::Acknowledged, NOT_SHOWN)
    }

    /// Ends the request of a shard whose holder has just done `op`, if that ends it.
    pub(super) fn heed_request(&mut self, op: &Op, number: u32) {
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
            // Whoever gives a shard up ends every request.
            ShardAction::Release => false,
            other => unreachable!("no administrator asks to {}", other.label()),
        }
    }
}

impl ShardFacts {
    /// Notes that no request stands any more, if none does.
    pub(super) fn note_end_of_request(&mut self, commits: u64) {
        let last = self.asked.last_mut().filter(|last| last.ended_at.is_none());
        if let Some(last) = last.filter(|_| self.request.is_none()) {
            last.ended_at = Some(commits);
        }
    }
}
