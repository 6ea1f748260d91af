//! The shard of the search: one shard in a store, and the results of operations on it.
//!
//! The shard has few states and the two machines have many, so the result of an operation on a
//! shard state is computed once and cached.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use gossip_contracts::coordination::{
    Cursor, CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::store::{StoreConfig, StoreCoordinator};
use gossip_coordination::{
    AcceptError, AcquireResultView, AcquireScratch, CoordinationBackend, IdempotentOutcome, Lease,
    OfferError, RunConfig, RunManagement, ShardFilter, ShardSummary, WithdrawError,
};

use super::fork_store::ForkStore;
use gossip_handoff::lease_handoff::MoveTerms;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
const SHARD: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const SOURCE: WorkerId = WorkerId::from_raw(1);
pub(super) const DESTINATION: WorkerId = WorkerId::from_raw(2);
const THIRD: WorkerId = WorkerId::from_raw(3);

/// Ticks of a lease.
pub(super) const LEASE: u64 = 3;
/// Start of the handoff.
pub(super) const START: LogicalTime = LogicalTime::from_raw(10);

/// One state of the shard.
#[derive(Debug)]
pub(super) struct Kernel {
    store: ForkStore,
    /// The stored shard, with its lease even if that has expired.
    pub(super) shard: ShardSummary,
    /// Hash of the store.
    pub(super) fingerprint: u64,
}

/// An operation on the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    Offer,
    Withdraw,
    Accept,
    Renew,
    TakeOver,
}

/// Deadline and fence of a lease, as known to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Belief {
    pub(super) fence: FenceEpoch,
    pub(super) until: LogicalTime,
}

impl Belief {
    fn of(view: &AcquireResultView<'_>) -> Self {
        Self { fence: view.lease.fence(), until: view.lease.deadline() }
    }
}

/// Result of an operation.
#[derive(Clone, Debug)]
pub(super) enum OpResult {
    Offered(Result<(), OfferError>),
    Withdrawn(Result<(), WithdrawError>),
    Accepted(Result<Belief, AcceptError>),
    Renewed(Option<LogicalTime>),
    TakenOver(Option<Belief>),
}

/// Cache of the results of operations.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) lease: Lease,
    pub(super) terms: MoveTerms,
    pub(super) cursor: Cursor,
    known: BTreeMap<(u64, Op, LogicalTime), (OpResult, Arc<Kernel>)>,
}

impl Kernels {
    /// Creates the shard, held by the source at [`START`], and the terms of a handoff whose offer
    /// lasts `offer_ticks`.
    pub(super) fn new(offer_ticks: u64) -> (Self, Arc<Kernel>) {
        let mut coordinator = StoreCoordinator::new(ForkStore::default(), StoreConfig::new(1));
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(30));
        let root = InitialShardInput {
            shard_id: SHARD.shard(),
            spec: ShardSpecRef::new(b"a", b"z", b""),
            cursor: CursorUpdate::initial(),
        };
        let (now, op, config) =
            (LogicalTime::from_raw(1), OpId::from_raw(1), config.expect("good settings"));
        let made = coordinator.create_run_with_shards(now, TENANT, RUN, config, &[root], op);
        made.expect("a valid manifest");
        let mut scratch = AcquireScratch::new();
        let got = coordinator.acquire_and_restore_into(START, TENANT, SHARD, SOURCE, &mut scratch);
        let lease = got.expect("the shard is free").lease;
        let deadline = START.saturating_add(offer_ticks);
        let terms = MoveTerms::new(&lease, DESTINATION, 0, deadline);
        let kernel = Kernel::new(std::mem::take(coordinator.store_mut()));
        let cursor = Cursor::with_last_key(b"k");
        (Self { lease, terms, cursor, known: BTreeMap::new() }, Arc::new(kernel))
    }

    /// Returns the result of `op` at `now`, and the shard after it.
    pub(super) fn answer(
        &mut self,
        kernel: &Arc<Kernel>,
        op: Op,
        now: LogicalTime,
    ) -> (OpResult, Arc<Kernel>) {
        let question = (kernel.fingerprint, op, now);
        if let Some(known) = self.known.get(&question) {
            return known.clone();
        }
        let answer = self.work_out(kernel, op, now);
        self.known.insert(question, answer.clone());
        answer
    }

    /// Uses a new handle without a cache. Its nonce is derived from the time, so the same history
    /// gives the same bytes.
    fn work_out(&self, kernel: &Arc<Kernel>, op: Op, now: LogicalTime) -> (OpResult, Arc<Kernel>) {
        let config = StoreConfig::new((op as u64) << 32 | now.as_raw());
        let mut backend = StoreCoordinator::new(kernel.store.clone(), config);
        let (terms, lease, mut scratch) = (&self.terms, &self.lease, AcquireScratch::new());
        let handoff = terms.handoff();
        let result = match op {
            Op::Offer => {
                let (offer, op, cursor) =
                    (terms.offer_terms(), terms.offer_op(), self.cursor.as_update());
                let offered = backend.offer(now, TENANT, lease, offer, cursor, op);
                OpResult::Offered(offered.map(IdempotentOutcome::into_inner))
            }
            Op::Withdraw => {
                let withdrawn = backend.withdraw(now, TENANT, lease, handoff, terms.withdraw_op());
                OpResult::Withdrawn(withdrawn.map(IdempotentOutcome::into_inner))
            }
            Op::Accept => {
                let got = backend.accept(now, TENANT, SHARD, DESTINATION, handoff, &mut scratch);
                OpResult::Accepted(got.map(|view| Belief::of(&view)))
            }
            Op::Renew => {
                OpResult::Renewed(backend.renew(now, TENANT, lease).ok().map(|it| it.new_deadline))
            }
            Op::TakeOver => {
                let got = backend.acquire_and_restore_into(now, TENANT, SHARD, THIRD, &mut scratch);
                OpResult::TakenOver(got.ok().map(|view| Belief::of(&view)))
            }
        };
        let store = std::mem::take(backend.store_mut());
        let is_same = store.is_as(&kernel.store);
        (result, if is_same { Arc::clone(kernel) } else { Arc::new(Kernel::new(store)) })
    }
}

impl Kernel {
    fn new(store: ForkStore) -> Self {
        let mut hasher = DefaultHasher::new();
        store.content().for_each(|pair| pair.hash(&mut hasher));
        Self { shard: shard_in(&store), fingerprint: hasher.finish(), store }
    }
}

/// Returns the shard in `store` with its stored lease.
fn shard_in(store: &ForkStore) -> ShardSummary {
    let mut rows = Vec::new();
    let mut coordinator = StoreCoordinator::new(store.clone(), StoreConfig::new(9));
    let (filter, early) = (ShardFilter::one(SHARD.shard()), LogicalTime::from_raw(1));
    let listed = coordinator.list_shards_into(early, TENANT, RUN, filter, &mut rows);
    listed.expect("the run exists");
    rows.pop().expect("the shard exists")
}
