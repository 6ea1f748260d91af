//! The two split operations of a simulated worker.

use gossip_contracts::coordination::{
    CursorUpdate, ShardSpecRef, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{OpId, RunId};
use gossip_coordination::AsyncCoordinationBackend;

use super::context::Draft;
use super::effects::{answer_of, wanted_parts};
use super::keyspace::Keyspace;
use super::op::{Ending, Said, Verb};
use super::random::mix;
use super::worker::{Worker, cursor_at, keys};

/// Maximum number of children of a replacing split: transactions are small here.
const CHILDREN_MAX: u64 = 3;

/// Maximum attempts of a split whose outcome is unknown.
const TRIES_MAX: u32 = 4;

/// Maximum length of the simulator's own metadata.
const METADATA_MAX: u64 = 12;

/// Subtracted from the drawn lengths, so that five of seventeen shards have no metadata.
const METADATA_NONE: u64 = 4;

/// The source of metadata.
const METADATA: &[u8; 64] =
    b"\0sim/\xFFkinds of bytes that only connectors know, \xC3\x84 and others\0\n!";

const _: () = assert!(METADATA_MAX < METADATA.len() as u64);

impl Worker {
    /// Splits off the right part of a shard, from `wanted` on if possible.
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
        // The end of the shard is unknown, so the worker stops working on it.
        self.held.swap_remove(place);
    }

    async fn send_residual(&mut self, place: usize, cut: u32, op_id: OpId) -> Ending {
        let held = &self.held[place];
        let (range, lease_ref) = (held.range, held.lease_ref);
        let said = Said { cuts: vec![cut], ..Said::default() };
        let draft = Draft { said, ..Draft::under(Verb::SplitResidual, lease_ref, op_id) };
        let op = self.cx.begin(draft);
        let (keys, run) = (keys(&self.cx), lease_ref.key.run());
        let [left, right] = [(range.0, cut), (cut, range.1)].map(|it| spec(&keys, run, it));
        let plan = SplitResidualPlan::try_new(left, right).expect("the two parts differ");
        let tenant = self.cx.tenant_id;
        let lease = self.lease(place).clone();
        let result = self.handle.split_residual(op.now, tenant, &lease, &plan, op_id).await;
        let answer = result.as_ref().ok().map(|result| {
            let result = result.as_ref().into_inner();
            answer_of(&[result.residual])
        });
        self.cx.end(&op, &result, answer)
    }

    /// Replaces a shard by children.
    pub(super) async fn split_replace(&mut self, place: usize) {
        let (worked, end) = self.held[place].open();
        // Only checkpointed progress can be inherited, and a child begins in part before it.
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
            // The plan has room for hundreds of children. Boxed, it does not enlarge the future of
            // every worker.
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
        let (keys, run) = (keys(&self.cx), lease_ref.key.run());
        let mut carried = (done > range.0).then(|| cursor_at(&keys, done));
        let parts = wanted_parts(range, cuts).into_iter().map(|part| {
            let cursor = carried.take().unwrap_or(CursorUpdate::initial());
            SplitChild::new(spec(&keys, run, part), cursor)
        });
        let plan = SplitReplacePlan::try_new(parts).expect("two or three parts make a plan");
        let tenant = self.cx.tenant_id;
        let lease = self.lease(place).clone();
        let result = self.handle.split_replace(op.now, tenant, &lease, &plan, op_id).await;
        let answer =
            result.as_ref().ok().map(|result| answer_of(&result.as_ref().into_inner().children));
        self.cx.end(&op, &result, answer)
    }
}

/// Returns the range of keys of a run between two positions.
pub(super) fn spec(keys: &Keyspace, run: RunId, range: (u32, u32)) -> ShardSpecRef<'_> {
    ShardSpecRef::new(keys.key(range.0), keys.key(range.1), metadata_of(run, range.0))
}

/// Returns the metadata of a shard. They depend on the run and on the start of the range, which
/// never changes, so different shards have different ones.
pub(super) fn metadata_of(run: RunId, start: u32) -> &'static [u8] {
    let number = mix(run.as_raw() << 32 ^ u64::from(start));
    let length = (number % (METADATA_MAX + METADATA_NONE + 1)).saturating_sub(METADATA_NONE);
    let from = number.rotate_left(32) % (METADATA.len() as u64 - METADATA_MAX);
    &METADATA[from as usize..][..length as usize]
}
