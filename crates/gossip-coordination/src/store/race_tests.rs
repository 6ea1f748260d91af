//! Workers and an administrator on separate handles, interleaved at every step to the store, which
//! loses replies and requests, delays requests long after it reported an unknown outcome, fails,
//! and drops owner keys.
//!
//! Each handle caches its shards, so most decisions are made on possibly stale values. The oracle
//! checks every change of a shard when it is committed: its author and its fence.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_testkit::Rng;

use super::core::Core;
use super::flight::Io;
use super::{
    Answer, CommitOutcome, Compare, Fault, Flight, HotPart, Key, MapStore, OwnerBinding, Read,
    Reply, Step, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn, Versioned, decode_hot,
    decode_owner, renewals, run_flight, shard_flight,
};
use crate::protocol::{
    Acquire, Checkpoint, Release, ReleaseMode, Renew, ReplyPath, RequestAction, RevokeLease,
    RunTransition, RunTransitionKind, SplitResidual,
};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const RUN: RunId = RunId::from_raw(4);
const SHARDS: u64 = 3;
const WORKERS: u64 = 3;
/// Its number among the actors; the workers come before.
const ADMIN: u64 = WORKERS;
const LEASE: u64 = 30;
const SKEW: u64 = 5;
/// Operations of each actor.
const ROUNDS: u64 = 20;
/// Number of interleavings.
const SEEDS: u64 = 1_000;

/// Where the range of a shard begins; it is as long as `1 << RANGE_BITS`.
const RANGE_BITS: u32 = 56;

const fn shard_key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

const fn start_of(shard: u64) -> u64 {
    (shard + 1) << RANGE_BITS
}

/// The acknowledged history of one shard.
#[derive(Default)]
struct Ledger {
    /// Fences that were granted.
    fences: Vec<u64>,
    /// The furthest position that was acknowledged.
    reached: u64,
    /// The furthest position with an unknown outcome.
    is_unresolved: u64,
    executed: u64,
}

/// What all actors share.
#[derive(Default)]
struct World {
    clock: AtomicU64,
    ledgers: Mutex<BTreeMap<u64, Ledger>>,
}

impl World {
    fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(self.clock.load(Ordering::Relaxed))
    }

    fn note(&self, shard: u64, note: impl FnOnce(&mut Ledger)) {
        note(self.ledgers.lock().unwrap().entry(shard).or_default());
    }
}

/// A lease, where the shard ended when it was granted or split, and how often it was used.
struct Held {
    lease: Lease,
    end: u64,
    steps: u64,
}

/// One worker.
struct Worker<'w> {
    core: &'w mut Core,
    io: &'w Io,
    id: u64,
    world: Arc<World>,
    rng: Rng,
    held: BTreeMap<u64, Held>,
    op_count: u64,
}

impl Worker<'_> {
    fn op(&mut self) -> OpId {
        self.op_count += 1;
        OpId::from_raw(self.id << 32 | self.op_count)
    }

    async fn step(&mut self) {
        let mut shard = self.rng.below(SHARDS);
        if self.rng.below(4) != 0 {
            // Mostly one that it holds.
            shard = self.held.keys().copied().max_by_key(|held| held ^ shard).unwrap_or(shard);
        }
        match (self.held.contains_key(&shard), self.rng.below(16)) {
            (false, _) => self.acquire(shard).await,
            (true, 0..10) => self.checkpoint(shard).await,
            (true, 10) => self.renew(shard).await,
            (true, 11..13) => self.renew_all().await,
            (true, 13) => self.split(shard).await,
            (true, _) => self.release(shard).await,
        }
    }

    async fn acquire(&mut self, shard: u64) {
        let (now, token) = (self.world.now(), self.core.fresh_grant());
        let worker = WorkerId::from_raw(self.id);
        let acquire = Acquire {
            tenant: TENANT,
            key: shard_key(shard),
            worker,
            token,
            reply: ReplyPath::CanBeLost,
            spares_last_attempt: false,
        };
        let mut end = 0;
        let show = |shown: ShardView<'_>| {
            end = u64::from_be_bytes(shown.spec().end.try_into().unwrap());
        };
        let granted = shard_flight::fly(self.core, self.io, now, &acquire, show).await;
        let Ok(granted) = granted else { return };
        let lease = granted.into_inner().lease;
        self.world.note(shard, |ledger| ledger.fences.push(lease.fence().as_raw()));
        self.held.insert(shard, Held { lease, end, steps: 0 });
    }

    /// Checkpoints further than anybody under an earlier fence, sometimes twice.
    async fn checkpoint(&mut self, shard: u64) {
        let (now, op_id) = (self.world.now(), self.op());
        let again = self.rng.below(4) == 0;
        let held = self.held.get_mut(&shard).unwrap();
        held.steps += 1;
        let position = start_of(shard) + held.lease.fence().as_raw() * 1_000 + held.steps;
        let bytes = position.to_be_bytes();
        let cursor = CursorUpdate::try_from_parts(Some(&bytes), None).unwrap();
        let lease = &held.lease;
        let checkpoint = Checkpoint { tenant: TENANT, lease, cursor, op_id };
        let result = shard_flight::fly(self.core, self.io, now, &checkpoint, |_| ()).await;
        self.world.note(shard, |ledger| match &result {
            Ok(result) => {
                assert!(result.is_executed(), "an operation is new once");
                ledger.reached = ledger.reached.max(position);
                ledger.executed += 1;
            }
            Err(CheckpointError::BackendError(error)) => {
                assert!(error.is_retryable(), "{error}");
                ledger.is_unresolved = ledger.is_unresolved.max(position);
            }
            Err(_) => {}
        });
        if again && result.is_ok() {
            let result = shard_flight::fly(self.core, self.io, now, &checkpoint, |_| ()).await;
            assert!(!result.is_ok_and(|result| result.is_executed()), "nothing happens twice");
        }
        if result.is_err_and(|error| !matches!(error, CheckpointError::BackendError(_))) {
            self.held.remove(&shard);
        }
    }

    async fn renew(&mut self, shard: u64) {
        let (now, lease) = (self.world.now(), &self.held[&shard].lease);
        let renew = Renew { tenant: TENANT, lease };
        let result = shard_flight::fly(self.core, self.io, now, &renew, |_| ()).await;
        if result.is_err_and(is_final) {
            self.held.remove(&shard);
        }
    }

    async fn renew_all(&mut self) {
        let (now, shards): (_, Vec<u64>) = (self.world.now(), self.held.keys().copied().collect());
        let leases: Vec<_> = self.held.values().map(|held| held.lease.clone()).collect();
        let result = renewals::renew_many(self.core, self.io, now, TENANT, &leases).await;
        for (shard, result) in shards.into_iter().zip(result) {
            if result.is_err_and(is_final) {
                self.held.remove(&shard);
            }
        }
    }

    /// Splits half of the remaining range off to a new shard, far behind every position.
    async fn split(&mut self, shard: u64) {
        let (now, op_id) = (self.world.now(), self.op());
        let held = self.held.get_mut(&shard).unwrap();
        let cut = start_of(shard) + (held.end - start_of(shard)) / 2;
        let [start, cut_bytes, end] = [start_of(shard), cut, held.end].map(u64::to_be_bytes);
        let left = ShardSpecRef::new(&start, &cut_bytes, b"");
        let plan = SplitResidualPlan::try_new(left, ShardSpecRef::new(&cut_bytes, &end, b""));
        let (plan, lease) = (plan.unwrap(), &held.lease);
        let split = SplitResidual { tenant: TENANT, lease, plan: &plan, op_id };
        match shard_flight::fly(self.core, self.io, now, &split, |_| ()).await {
            Ok(_) => held.end = cut,
            Err(error) => {
                if let SplitError::BackendError(failed) = &error {
                    assert!(failed.is_retryable(), "{failed}");
                }
                // If the store failed, it is not known whether the shard was split.
                self.held.remove(&shard);
            }
        }
    }

    async fn release(&mut self, shard: u64) {
        let (now, op_id) = (self.world.now(), self.op());
        let lease = self.held.remove(&shard).unwrap().lease;
        let release = Release { tenant: TENANT, lease: &lease, mode: ReleaseMode::Clean, op_id };
        let _ = shard_flight::fly(self.core, self.io, now, &release, |_| ()).await;
    }
}

/// Whether the lease is lost. A store that fails loses nothing, and has nothing damaged.
fn is_final(error: RenewError) -> bool {
    let RenewError::BackendError(failed) = &error else { return true };
    assert!(failed.is_retryable(), "{failed}");
    false
}

fn work(core: &mut Core, id: u64, seed: u64, world: Arc<World>) -> Flight<'_, ()> {
    Flight::new(move |io| async move {
        let (held, op_count) = (BTreeMap::new(), 0);
        let mut worker =
            Worker { core, io: &io, id, world, rng: Rng::seeded(seed), held, op_count };
        for _ in 0..ROUNDS {
            worker.step().await;
        }
    })
}

/// Asks, revokes, pauses and resumes.
fn administer(core: &mut Core, seed: u64, world: Arc<World>) -> Flight<'_, ()> {
    Flight::new(move |io| async move {
        let mut rng = Rng::seeded(seed);
        for round in 0..ROUNDS {
            let (now, op_id) = (world.now(), OpId::from_raw(ADMIN << 32 | round));
            let key = shard_key(rng.below(SHARDS));
            match rng.below(8) {
                0..4 => {
                    let (action, expires_at) = (ShardAction::Release, now.saturating_add(9));
                    let asked = RequestAction { tenant: TENANT, key, action, expires_at, op_id };
                    let _ = shard_flight::fly(core, &io, now, &asked, |_| ()).await;
                }
                4 => {
                    let revoke = RevokeLease { tenant: TENANT, key, expected_fence: None, op_id };
                    let _ = shard_flight::fly(core, &io, now, &revoke, |_| ()).await;
                }
                number => {
                    let pause = number == 5;
                    let kind =
                        if pause { RunTransitionKind::Pause } else { RunTransitionKind::Resume };
                    let moved = RunTransition { tenant: TENANT, run: RUN, kind, op_id };
                    let _ = run_flight::fly(core, &io, now, &moved, false).await;
                }
            }
        }
    })
}

/// The stored state of a shard.
struct StoredShard {
    hot: Versioned,
    owner: Option<OwnerBinding>,
}

impl StoredShard {
    fn of(store: &mut MapStore, shard: ShardKey) -> Self {
        let keys = [Key::ShardHot { tenant: TENANT, shard }, Key::Owner { tenant: TENANT, shard }];
        let mut answers = store.read(keys.map(Read::Get).to_vec()).unwrap();
        let (Some(Answer::Value(owner)), Some(Answer::Value(Some(hot)))) =
            (answers.pop(), answers.pop())
        else {
            panic!("the shard is there")
        };
        let owner = owner.map(|value| decode_owner(TENANT, shard, &value.bytes).unwrap());
        Self { hot, owner }
    }

    fn part(&self, shard: ShardKey) -> HotPart<'_> {
        decode_hot(TENANT, shard, &self.hot.bytes).unwrap()
    }
}

/// Commits, and checks every change of a shard.
fn commit(
    store: &mut MapStore,
    actor: u64,
    clock: u64,
    txn: Txn,
) -> Result<CommitOutcome, InfraError> {
    // An operation on a shard compares it before anything else.
    let Some(Compare::At { key: Key::ShardHot { shard, .. }, .. }) = txn.compares().first() else {
        return store.commit(vec![txn]).remove(0);
    };
    let shard = *shard;
    let before = StoredShard::of(store, shard);
    let outcome = store.commit(vec![txn]).remove(0);
    let after = StoredShard::of(store, shard);
    if before.hot.revision != after.hot.revision {
        check(actor, clock, (&before, &before.part(shard)), (&after, &after.part(shard)));
        check_owner_key(&after, &after.part(shard), store.binding().is_some());
    }
    outcome
}

type State<'s> = (&'s StoredShard, &'s HotPart<'s>);

/// Checks that `actor` respects the fence and never replaces a live lease.
fn check(actor: u64, clock: u64, (before_key, before): State<'_>, (_, after): State<'_>) {
    let owner = |part: &HotPart<'_>| part.lease.map(|holder| holder.owner().as_raw());
    assert!(after.cursor.last_key() >= before.cursor.last_key(), "a cursor never moves backwards");
    if after.fence == before.fence {
        if actor == ADMIN {
            assert_eq!(
                (after.lease, after.cursor),
                (before.lease, before.cursor),
                "a request changes neither lease nor cursor"
            );
        } else {
            assert_eq!(owner(before), Some(actor), "only the lease holder writes under a fence");
        }
        return;
    }
    assert_eq!(after.fence, before.fence.increment(), "a fence increases by one");
    if actor == ADMIN {
        assert_eq!(after.lease, None, "a revocation grants no lease");
        return;
    }
    assert_eq!(owner(after), Some(actor), "a grant makes the actor the lease holder");
    if let Some(holder) = before.lease {
        let alive = before_key.owner.is_some() && holder.owner().as_raw() != actor;
        let skew = if alive { SKEW } else { 0 };
        assert!(clock >= holder.deadline().as_raw() + skew, "a live lease was replaced");
    }
}

/// Checks that an owner key, if it exists, belongs to the current lease.
fn check_owner_key(stored: &StoredShard, part: &HotPart<'_>, binds: bool) {
    let Some(OwnerBinding { owner, fence, token }) = stored.owner else { return };
    assert!(binds, "a store that binds nothing has no owner keys");
    let holder = part.lease.expect("an owner key ends with its lease");
    let found = (holder.owner(), part.fence, holder.token());
    assert_eq!((owner, fence, token), found, "an owner key is of the latest grant");
}

fn set_up(store: &MapStore) -> StoreCoordinator<MapStore> {
    let mut admin = StoreCoordinator::new(store.another_handle(), StoreConfig::new(1));
    let bounds: Vec<_> = (0..=SHARDS).map(|shard| start_of(shard).to_be_bytes()).collect();
    let roots: Vec<_> = (0..SHARDS)
        .zip(bounds.windows(2))
        .map(|(shard, pair)| InitialShardInput {
            shard_id: ShardId::from_raw(shard),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
    admin.create_run_with_shards(now, TENANT, RUN, config, &roots, op).unwrap();
    admin
}

/// Counts over the interleavings.
#[derive(Debug, Default)]
struct Tally {
    grants: usize,
    executed: u64,
    conflicts: u64,
    /// Of commits before which nothing was read.
    unread: u64,
    /// Times that owner keys vanished.
    vanished: u64,
    /// Requests that came late, and happened.
    late: u64,
}

/// A delayed request, whose sender received an unknown outcome.
struct Late {
    actor: u64,
    store: MapStore,
    txn: Txn,
}

impl Late {
    fn arrive(mut self, world: &World, tally: &mut Tally) {
        let outcome = commit(&mut self.store, self.actor, world.now().as_raw(), self.txn);
        tally.late += u64::from(matches!(outcome, Ok(CommitOutcome::Applied { .. })));
    }
}

/// An actor on its way.
struct Actor<'f> {
    id: u64,
    store: MapStore,
    flight: Flight<'f, ()>,
    asked: Step<()>,
    has_read: bool,
    /// The pending request.
    late: Vec<Late>,
}

impl<'f> Actor<'f> {
    fn new(id: u64, store: MapStore, flight: Flight<'f, ()>) -> Self {
        let (asked, late) = (Step::Wait(0), Vec::new());
        let mut actor = Self { id, store, flight, asked, has_read: false, late };
        actor.step();
        actor
    }

    fn step(&mut self) {
        self.flight.set_binding(self.store.binding());
        self.asked = self.flight.step();
    }

    /// Answers the request; returns `false` if the actor is done.
    fn advance(&mut self, world: &World, rng: &mut Rng, tally: &mut Tally) -> bool {
        let reply = match std::mem::replace(&mut self.asked, Step::Done(())) {
            Step::Read(reads) => {
                self.has_read = true;
                Reply::Read(self.store.read(reads))
            }
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                tally.unread += u64::from(!std::mem::take(&mut self.has_read));
                let clock = world.now().as_raw();
                let outcomes: Vec<_> = txns
                    .into_iter()
                    .map(|txn| {
                        if rng.below(8) == 0 {
                            let (actor, store) = (self.id, self.store.clone());
                            self.late.push(Late { actor, store, txn });
                            return Ok(CommitOutcome::Unknown);
                        }
                        self.store.inject(fault(rng));
                        commit(&mut self.store, self.id, clock, txn)
                    })
                    .collect();
                let lost = |outcome: &&Result<CommitOutcome, _>| {
                    matches!(outcome, Ok(CommitOutcome::Conflict(_)))
                };
                tally.conflicts += outcomes.iter().filter(lost).count() as u64;
                Reply::Committed(outcomes)
            }
            Step::Done(()) => return false,
        };
        self.flight.answer(reply);
        self.step();
        true
    }
}

fn fault(rng: &mut Rng) -> Fault {
    match rng.below(16) {
        0 | 1 => Fault::LoseReply,
        2 | 3 => Fault::LoseRequest,
        4 => Fault::Conflict,
        5 => Fault::Fail,
        _ => Fault::None,
    }
}

/// Runs one interleaving.
fn run_interleaving(seed: u64, tally: &mut Tally) {
    let plain = MapStore::new();
    let store = if seed.is_multiple_of(2) { plain } else { plain.with_bindings() };
    let mut reader = set_up(&store);
    let world = Arc::new(World { clock: AtomicU64::new(10), ..World::default() });
    let mut rng = Rng::seeded(seed);
    let config = |id: u64| StoreConfig { max_clock_skew: SKEW, ..StoreConfig::new((id + 2) << 40) };
    let mut cores: Vec<_> =
        (0..=ADMIN).map(|id| Core::new(config(id), StoreLimits::GENEROUS)).collect();
    let (admin, workers) = cores.split_last_mut().unwrap();
    let administering = administer(admin, rng.next_u64(), Arc::clone(&world));
    let mut actors = vec![Actor::new(ADMIN, store.another_handle(), administering)];
    for (core, id) in workers.iter_mut().zip(0..) {
        let working = work(core, id, rng.next_u64(), Arc::clone(&world));
        actors.push(Actor::new(id, store.another_handle(), working));
    }
    let mut late = Vec::new();
    while !actors.is_empty() {
        world.clock.fetch_add(rng.below(2), Ordering::Relaxed);
        let chosen = rng.index(actors.len());
        let actor = &mut actors[chosen];
        let vanishes = rng.below(64);
        match vanishes {
            0 => actor.store.revoke_bindings(),
            1 => actor.store.end_process(),
            _ => {}
        }
        tally.vanished += u64::from(vanishes < 2);
        let goes_on = actor.advance(&world, &mut rng, tally);
        late.append(&mut actor.late);
        if !goes_on {
            actors.swap_remove(chosen);
        }
        if !late.is_empty() && rng.below(8) == 0 {
            let first = rng.index(late.len());
            late.swap_remove(first).arrive(&world, tally);
        }
    }
    late.into_iter().for_each(|late| late.arrive(&world, tally));
    settle(seed, &mut reader, &world, tally);
}

/// Checks that the acknowledged history is stored.
fn settle(seed: u64, reader: &mut StoreCoordinator<MapStore>, world: &World, tally: &mut Tally) {
    let mut rows = Vec::new();
    let now = LogicalTime::from_raw(1 << 40);
    reader.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    for (shard, ledger) in &*world.ledgers.lock().unwrap() {
        let row = rows.iter().find(|row| row.shard == ShardId::from_raw(*shard)).unwrap();
        let stored = row.last_key.as_ref().map(|key| (**key).try_into().unwrap());
        let stored = stored.map_or(0, u64::from_be_bytes);
        let Ledger { fences, reached, is_unresolved, executed } = ledger;
        assert!(stored >= *reached, "seed {seed}: acknowledged progress is stored");
        assert!(
            stored == *reached || stored <= *is_unresolved,
            "seed {seed}: no unknown progress is stored"
        );
        let mut distinct = fences.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), fences.len(), "seed {seed}: no fence is given twice");
        assert!(row.acquire_count as usize >= fences.len(), "seed {seed}: grants are stored");
        tally.grants += fences.len();
        tally.executed += executed;
    }
}

#[test]
fn racing_handles_never_write_under_a_stale_fence() {
    let mut tally = Tally::default();
    (1..=SEEDS).for_each(|seed| run_interleaving(seed, &mut tally));
    println!("{tally:?}");
    let Tally { grants, executed, conflicts, unread, vanished, late } = tally;
    assert!(grants > 5_000 && executed > 8_000 && conflicts > 2_000, "{tally:?}");
    assert!(unread > 10_000 && vanished > 1_000 && late > 500, "{tally:?}");
}
