//! How an idle runner obtains a part of a shard that another runner holds.
//!
//! It lists the shards of the run, lets the policy choose one, and requests a split: from a runner
//! of the same process by a message in its lease slot, from another process by a request that the
//! lease holder receives with its next checkpoint or renewal. Of concurrent requests for one shard,
//! one is served.

use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey};
use gossip_coordination::store::{DEFAULT_MAX_CLOCK_SKEW, ticks};
use gossip_coordination::{
    CoordinationFacade, RequestActionError, ShardAction, ShardFilter, ShardSummary,
};

use super::WorkerShared;
use super::lease_slot::LeaseSlot;
use super::sync::{Instant, Mutex, MutexGuard, Ordering, PoisonError};
use crate::backoff::Backoff;
use crate::density::Density;
use crate::op_ids;
use crate::split_policy::{Situation, SplitPolicy};

/// The first and the longest time between two fruitless searches, in ticks: each lists the shards
/// of the run.
const LOOK_FIRST: u64 = 50;
const LOOK_LONGEST: u64 = 2_000;

/// A run with more root shards than this is balanced by them, and listing them costs too much.
const LOOK_SHARDS_MAX: usize = 20_000;

/// How long a request waits for the lease holder, in ticks: a few checkpoints. Until a request that
/// was not served expires, no other one can be made for the shard.
const REQUEST_TICKS: u64 = 4_000;

/// A search on a store of this machine takes at most one part in so many of a thread's time.
const LOOK_SHARE: u64 = 50;

/// How long a move between processes takes on a store that counts changes, in ticks, while none was
/// measured: its workers are woken and need not poll.
const WATCHED_MOVE: f64 = 150.0;

const _: () = assert!(LOOK_FIRST < LOOK_LONGEST);

/// What the runners of a worker have learned about splittable shards.
///
/// A search holds the lock of the state while it uses the store. The times of moves have a lock of
/// their own, held for a few instructions: a runner that has just claimed a shard must not wait for
/// the store before its lease is where it is renewed.
#[derive(Debug)]
pub(super) struct Sharing {
    state: Mutex<SharingState>,
    moves: Mutex<Moves>,
}

#[derive(Debug)]
pub(super) struct SharingState {
    policy: SplitPolicy,
    /// Sampled when a runner is idle for the first time.
    density: Option<Density>,
    /// When the worker started.
    begun: LogicalTime,
    /// How many shards the run was created with.
    roots: Option<usize>,
    /// Whether the store counts changes.
    is_watched: bool,
    /// The earliest time of the next search.
    next_look: LogicalTime,
    backoff: Backoff,
    /// How many requests this worker has made.
    requests: u64,
    /// Ticks and keys of the shards that this worker has finished, and of the last one.
    spent: (u64, u64),
    last_spent: (u64, u64),
}

/// How long it takes from a request to another process until a shard comes.
#[derive(Debug, Default)]
struct Moves {
    /// When the first request was made that no shard has followed.
    asked_at: Option<LogicalTime>,
    /// The average of the last few, in ticks.
    ticks: Option<f64>,
}

/// How much the last move counts in the average.
const LAST_MOVE: f64 = 0.25;

impl Moves {
    fn asked(&mut self, now: LogicalTime) {
        self.asked_at.get_or_insert(now);
    }

    /// Records that a shard was claimed.
    fn claimed(&mut self, now: LogicalTime) {
        let Some(asked_at) = self.asked_at.take() else { return };
        // A shard that comes later than a request lives was not split off for it.
        let ticks = now.as_raw().saturating_sub(asked_at.as_raw()).min(REQUEST_TICKS) as f64;
        self.ticks = Some(self.ticks.map_or(ticks, |known| known + LAST_MOVE * (ticks - known)));
    }
}

impl Sharing {
    pub(super) fn new(seed: u64, begun: LogicalTime) -> Self {
        let state = SharingState {
            policy: SplitPolicy::default(),
            density: None,
            begun,
            roots: None,
            is_watched: false,
            next_look: LogicalTime::ZERO,
            backoff: Backoff::new(LOOK_FIRST, LOOK_LONGEST, seed),
            requests: 0,
            spent: (0, 0),
            last_spent: (0, 0),
        };
        Self { state: Mutex::new(state), moves: Mutex::new(Moves::default()) }
    }

    /// Records that a runner has claimed a shard. Never waits for the store.
    pub(super) fn claimed(&self, now: LogicalTime) {
        self.moves().claimed(now);
    }

    /// Records that a runner spent `ticks` on `keys` keys.
    pub(super) fn learn(&self, ticks: u64, keys: u64) {
        let mut state = self.lock();
        state.spent.0 += ticks;
        state.spent.1 += keys;
        state.last_spent = (ticks, keys);
    }

    /// Puts the next search off.
    pub(super) fn not_before(&self, time: LogicalTime) {
        let mut state = self.lock();
        state.next_look = state.next_look.max(time);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SharingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self) -> MutexGuard<'_, Moves> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the shards of the run, if a search for one to split is due. `None` also if they cannot be
/// listed: the next search tries again, and correctness does not depend on it.
pub(super) fn list_if_due<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
) -> Option<Vec<ShardSummary>> {
    if !shared.config.auto_split || shared.is_stopping() {
        return None;
    }
    // One search for all idle runners of the process: the lock is held during the listing, and the
    // next runner finds `next_look` in the future.
    let mut state = shared.sharing.lock();
    if now < state.next_look {
        return None;
    }
    let begun = Instant::now();
    state.is_watched = coordinator.change_count().is_some();
    let shards = state.list(shared, coordinator, now);
    let wait = match state.is_watched {
        // A store that counts changes lies on this machine: only the time of the look counts.
        true => LOOK_FIRST.max(millis(begun.elapsed()).saturating_mul(LOOK_SHARE)),
        false => state.backoff.wait(),
    };
    state.next_look = now.saturating_add(wait);
    shards
}

/// Requests splits of held shards, of those that were just listed and are worth splitting: as many
/// as there are idle runners.
pub(super) fn ask<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
    shards: &[ShardSummary],
) {
    let mut state = shared.sharing.lock();
    let idle = shared.slots.len().saturating_sub(shared.busy.load(Ordering::SeqCst));
    let candidates = state.candidates(shared, now, shards).into_iter();
    let asked = candidates.filter(|shard| state.ask_owner(shared, coordinator, now, *shard));
    if asked.take(idle.max(1)).count() > 0 {
        state.backoff.reset();
    }
}

impl SharingState {
    /// Returns all shards; `None` if there are too many or they cannot be listed.
    fn list<B>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        coordinator: &mut impl CoordinationFacade,
        now: LogicalTime,
    ) -> Option<Vec<ShardSummary>> {
        let (tenant, run) = (shared.config.tenant, shared.config.run);
        let roots = match self.roots {
            Some(roots) => roots,
            None => {
                let record = coordinator.get_run(tenant, run).ok()?;
                *self.roots.insert(record.root_shards().len())
            }
        };
        if roots > LOOK_SHARDS_MAX {
            return None;
        }
        let mut shards = Vec::new();
        coordinator.list_shards_into(now, tenant, run, ShardFilter::all(), &mut shards).ok()?;
        Some(shards)
    }

    /// Returns the shards to request a split of, best first.
    fn candidates<B>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        now: LogicalTime,
        shards: &[ShardSummary],
    ) -> Vec<ShardId> {
        let density = self.density.get_or_insert_with(|| density(shared));
        // The last shard, too: keys at the end of a run may take longer than most of it did.
        let per_key = [self.spent, self.last_spent].into_iter().filter(|(_, keys)| *keys > 0);
        let per_key = per_key.map(|(ticks, keys)| ticks as f64 / keys as f64);
        let measured = shared.sharing.moves().ticks;
        let move_ticks = measured.or_else(|| self.is_watched.then_some(WATCHED_MOVE));
        let situation = Situation {
            now,
            begun: self.begun,
            roots: self.roots.unwrap_or_default(),
            shards,
            ticks_per_key: per_key.reduce(f64::max),
            move_ticks,
            near: &|shard| shared.slots.iter().find_map(|slot| slot.progress_of(shard)),
        };
        let mut candidates = self.policy.candidates(situation, density);
        let is_ours = |shard| shared.slots.iter().any(|slot| slot.progress_of(shard).is_some());
        let too_far = too_far_ahead(shared, now, shards);
        candidates.retain(|shard| is_ours(*shard) || !too_far.contains(shard));
        candidates
    }

    /// Requests a split of `shard` from its lease holder. Returns whether the request was made.
    fn ask_owner<B>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        coordinator: &mut impl CoordinationFacade,
        now: LogicalTime,
        shard: ShardId,
    ) -> bool {
        // A runner of this process receives the message with its next step, without a write to the
        // store.
        if shared.slots.iter().any(|slot| LeaseSlot::ask_split(slot, shard)) {
            return true;
        }
        let key = ShardKey::new(shared.config.run, shard);
        let (action, until) = (ShardAction::Split(None), now.saturating_add(REQUEST_TICKS));
        self.requests += 1;
        let (tenant, worker) = (shared.config.tenant, shared.config.worker);
        let op_id = op_ids::of_request(worker, key, self.requests, now);
        let requested = coordinator.request_action(now, tenant, key, &action, until, op_id);
        if requested.is_ok() {
            shared.sharing.moves().asked(now);
        }
        // A pending request of another worker is not ours: any idle worker may claim what it splits
        // off.
        !matches!(requested, Err(RequestActionError::RequestPending)) && requested.is_ok()
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the latest deadline, in worker time, that a correct clock can have stored by now.
pub(super) fn latest_deadline<B>(shared: &WorkerShared<'_, B>, now: LogicalTime) -> LogicalTime {
    now.saturating_add(shared.config.lease_ticks.saturating_add(ticks(DEFAULT_MAX_CLOCK_SKEW)))
}

/// Returns the shards whose deadline no correct clock has stored. A request would write their
/// record, which then looks as if its lease had been renewed, and it would never be taken over from
/// a lease holder that is dead (ADR 84).
fn too_far_ahead<B>(
    shared: &WorkerShared<'_, B>,
    now: LogicalTime,
    shards: &[ShardSummary],
) -> Vec<ShardId> {
    let latest = shared.parts.clock.offset().to_wall(latest_deadline(shared, now));
    let too_far = shards.iter().filter(|shard| shard.lease_deadline > Some(latest));
    too_far.map(|shard| shard.shard).collect()
}

/// Returns a sample of the source's keys; an empty one if the source cannot be sampled.
fn density<B>(shared: &WorkerShared<'_, B>) -> Density {
    let everything = gossip_contracts::coordination::ShardSpecRef::new(b"", b"", b"");
    Density::look(shared.parts.connector, everything).unwrap_or_default()
}
