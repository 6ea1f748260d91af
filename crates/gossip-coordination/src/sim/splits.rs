//! The two splits of a simulated worker.

use gossip_contracts::coordination::{
    CursorUpdate, ShardSpecRef, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::OpId;

use super::context::Draft;
use super::effects::{answer_of, wanted_parts};
use super::keyspace::Keyspace;
use super::op::{Ending, Said, Verb};
use super::worker::{Worker, cursor_at, keys};
use crate::traits::AsyncCoordinationBackend;

/// Children of a replacing split, at most: the store's transactions are small here.
const CHILDREN_MAX: u64 = 3;

/// How often a split is sent again that may have happened.
const TRIES_MAX: u32 = 4;

/// The metadata of every shard that is no guest's.
pub(super) const METADATA: &[u8] = b"sim";

impl Worker {
    /// Gives the right part of a shard to a new one: from `wanted` on, if that can be.
    pub(super) async fn split_residual(&mut self, place: usize, wanted: Option<u32>) {
        let (worked, end) = self.held[place].open();
        let low = worked.max(self.held[place].range.0 + 1);
        if low >= end {
            return;
        }
        let any = low + self.cx.below(u64::from(end - low)) as u32;
        let cut = wanted.filter(|cut| (low..end).contains(cut)).unwrap_or(any);
        let op_id = self.next_op_id(place);
        for _ in 0..TRIES_MAX {
            match self.send_residual(place, cut, op_id).await {
                Ending::Executed | Ending::Replayed => {
                    self.held[place].shrink(cut);
                    return;
                }
                Ending::Refused => return self.maybe_lost(place, Ending::Refused),
                Ending::Failed { .. } => self.cx.sleep(4).await,
            }
        }
        // It is not known where the shard ends, so it is nobody's to work on.
        self.held.swap_remove(place);
    }

    async fn send_residual(&mut self, place: usize, cut: u32, op_id: OpId) -> Ending {
        let held = &self.held[place];
        let (range, lease_ref) = (held.range, held.lease_ref);
        let said = Said { cuts: vec![cut], ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::SplitResidual, lease_ref, op_id) };
        let op = self.cx.begin(draft);
        let keys = keys(&self.cx);
        let [left, right] = [(range.0, cut), (cut, range.1)].map(|it| spec(&keys, it));
        let plan = SplitResidualPlan::try_new(left, right).expect("the two parts differ");
        let tenant = self.cx.tenant_id;
        let lease = self.lease(place).clone();
        let told = self.handle.split_residual(op.now, tenant, &lease, &plan, op_id).await;
        let answer = told.as_ref().ok().map(|told| {
            let result = told.as_ref().into_inner();
            answer_of(&[result.residual])
        });
        self.cx.end(&op, &told, answer)
    }

    /// Replaces a shard by children.
    pub(super) async fn split_replace(&mut self, place: usize) {
        let (worked, end) = self.held[place].open();
        // Only what was recorded can be handed down, and a child lies behind it in part.
        let recorded = worked == self.held[place].done();
        let low = worked.max(self.held[place].range.0) + 1;
        if !recorded || low >= end {
            return;
        }
        let mut cuts: Vec<u32> =
            (1..CHILDREN_MAX).map(|_| low + self.cx.below(u64::from(end - low)) as u32).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let op_id = self.next_op_id(place);
        for _ in 0..TRIES_MAX {
            // Its plan has room for hundreds of children: it would be moved about with every worker
            // that starts, and with every split that is not tried.
            match Box::pin(self.send_replace(place, &cuts, op_id)).await {
                Ending::Executed | Ending::Replayed => break,
                Ending::Refused => return self.maybe_lost(place, Ending::Refused),
                Ending::Failed { .. } => self.cx.sleep(4).await,
            }
        }
        self.held.swap_remove(place);
    }

    async fn send_replace(&mut self, place: usize, cuts: &[u32], op_id: OpId) -> Ending {
        let held = &self.held[place];
        let (range, done, lease_ref) = (held.range, held.done(), held.lease_ref);
        let said = Said { cuts: cuts.to_vec(), ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::SplitReplace, lease_ref, op_id) };
        let op = self.cx.begin(draft);
        let keys = keys(&self.cx);
        let mut carried = (done > range.0).then(|| cursor_at(&keys, done));
        let parts = wanted_parts(range, cuts).into_iter().map(|part| {
            let cursor = carried.take().unwrap_or(CursorUpdate::initial());
            SplitChild::new(spec(&keys, part), cursor)
        });
        let plan = SplitReplacePlan::try_new(parts).expect("two or three parts make a plan");
        let tenant = self.cx.tenant_id;
        let lease = self.lease(place).clone();
        let told = self.handle.split_replace(op.now, tenant, &lease, &plan, op_id).await;
        let answer = told.as_ref().ok().map(|told| answer_of(&told.as_ref().into_inner().children));
        self.cx.end(&op, &told, answer)
    }
}

/// The range of keys between two positions.
pub(super) fn spec(keys: &Keyspace, range: (u32, u32)) -> ShardSpecRef<'_> {
    ShardSpecRef::new(keys.key(range.0), keys.key(range.1), METADATA)
}
