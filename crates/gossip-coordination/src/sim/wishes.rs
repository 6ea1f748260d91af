//! What the oracle knows of requests: what an administrator asks of a shard's owner.
//!
//! A request stands until its owner does what it asks, until a renewal or a checkpoint comes after
//! its time, or until the shard has another owner or none; `effects` ends it for the last reason.

use super::effects::written;
use super::op::{Op, Verb};
use super::oracle::{Oracle, Rule, Violation};
use crate::request::{PendingRequest, ShardAction};
use crate::store::Txn;

impl Oracle {
    /// Hears that a request was stored.
    pub(super) fn requested(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        let request = written(txn).and_then(|hot| hot.request);
        let right = request.as_ref().is_none_or(|it| {
            let until = op.said.asked.map(|(_, until)| until);
            it.op_id == op.op_id && until.is_none_or(|until| it.expires_at().as_raw() == until)
        });
        self.require(right, Rule::Acknowledged, "another request was stored")?;
        self.shards[number as usize].request = request;
        Ok(())
    }

    /// Whether what `op` asks for stands under its id: an earlier try of it came late.
    pub(super) fn is_asked(&self, op: &Op) -> bool {
        let shard = op.target.map(|target| &self.shards[target.shard as usize]);
        let standing = shard.and_then(|shard| shard.request.as_ref());
        op.verb == Verb::RequestAction && standing.is_some_and(|it| it.op_id == op.op_id)
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
        }
    }
}
