//! How an idle runner comes by a part of somebody else's shard.
//!
//! It looks through the coordinator at what others hold, lets the policy choose, and asks: a runner
//! of the same process by a note on its slot, another process by a request that its owner hears
//! with its next checkpoint or renewal. Of several who ask for the same shard one is heard.

use gossip_contracts::identity::{
    CanonicalBytes as _, CanonicalHasher, Domain, LogicalTime, OpId, ShardId, ShardKey,
};
use gossip_coordination::{CoordinationFacade, RequestActionError, ShardAction, ShardFilter};

use super::WorkerShared;
use super::lease_slot::LeaseSlot;
use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::backoff::Backoff;
use crate::density::Density;
use crate::split_policy::{Situation, SplitPolicy};

/// The first and the longest time between looks that lead to nothing, in ticks: a look lists the
/// shards of the run.
const LOOK_FIRST: u64 = 50;
const LOOK_LONGEST: u64 = 2_000;

/// A run of more shards than this is shared well enough by them, and looking at it costs too much.
const LOOK_SHARDS_MAX: usize = 20_000;

/// How long a request waits for the owner, in ticks: a few checkpoints. One that the owner did not
/// follow keeps others from asking the same until then.
const REQUEST_TICKS: u64 = 4_000;

const _: () = assert!(LOOK_FIRST < LOOK_LONGEST);

/// What the runners of a worker know together of the shards of others.
#[derive(Debug)]
pub(super) struct Sharing(Mutex<Known>);

#[derive(Debug)]
struct Known {
    policy: SplitPolicy,
    /// Taken when somebody is idle for the first time.
    density: Option<Density>,
    /// When the worker began.
    begun: LogicalTime,
    /// How many shards the run was made with.
    roots: Option<usize>,
    /// Nobody looks before this time.
    next_look: LogicalTime,
    backoff: Backoff,
    /// How many requests were made.
    asked: u64,
    /// Ticks and keys of the shards that this worker has finished with.
    experience: (u64, u64),
}

impl Sharing {
    pub(super) fn new(seed: u64, begun: LogicalTime) -> Self {
        Self(Mutex::new(Known {
            policy: SplitPolicy::default(),
            density: None,
            begun,
            roots: None,
            next_look: LogicalTime::ZERO,
            backoff: Backoff::new(LOOK_FIRST, LOOK_LONGEST, seed),
            asked: 0,
            experience: (0, 0),
        }))
    }

    /// A runner has spent so many ticks on so many keys.
    pub(super) fn learn(&self, ticks: u64, keys: u64) {
        let mut known = self.lock();
        known.experience.0 += ticks;
        known.experience.1 += keys;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for a part of somebody's shard, if it is time to look and there is one worth sharing.
///
/// What fails here is tried again at the next look: nothing depends on it.
pub(super) fn ask<B: CoordinationFacade>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut B,
    now: LogicalTime,
) {
    if !shared.config.auto_split || shared.is_stopping() {
        return;
    }
    let mut known = shared.sharing.lock();
    if now < known.next_look {
        return;
    }
    let wait = known.backoff.wait();
    known.next_look = now.saturating_add(wait);
    let Some(candidates) = known.look(shared, coordinator, now) else { return };
    if candidates.into_iter().any(|shard| known.ask_owner(shared, coordinator, now, shard)) {
        known.backoff.reset();
    }
}

impl Known {
    /// Whom to ask, best first; `None` if there is nothing to be seen.
    fn look<B: CoordinationFacade>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        coordinator: &mut B,
        now: LogicalTime,
    ) -> Option<Vec<ShardId>> {
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
        let density = self.density.get_or_insert_with(|| density(shared));
        let (ticks, keys) = self.experience;
        let situation = Situation {
            now,
            begun: self.begun,
            roots,
            shards: &shards,
            ticks_per_key: (keys > 0).then(|| ticks as f64 / keys as f64),
            near: &|shard| shared.slots.iter().find_map(|slot| slot.progress_of(shard)),
        };
        Some(self.policy.candidates(situation, density))
    }

    /// Asks the owner of `shard`; whether it will hear of it.
    fn ask_owner<B: CoordinationFacade>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        coordinator: &mut B,
        now: LogicalTime,
        shard: ShardId,
    ) -> bool {
        if shared.slots.iter().any(|slot| LeaseSlot::ask_split(slot, shard)) {
            return true;
        }
        let key = ShardKey::new(shared.config.run, shard);
        let (action, until) = (ShardAction::Split(None), now.saturating_add(REQUEST_TICKS));
        self.asked += 1;
        let op_id = request_id(shared, key, self.asked, now);
        let tenant = shared.config.tenant;
        let asked = coordinator.request_action(now, tenant, key, &action, until, op_id);
        // Somebody else has asked: what is split off is for whoever comes first.
        !matches!(asked, Err(RequestActionError::RequestPending)) && asked.is_ok()
    }
}

/// Where the keys of the source are; a source that cannot be asked is not known.
fn density<B>(shared: &WorkerShared<'_, B>) -> Density {
    let everything = gossip_contracts::coordination::ShardSpecRef::new(b"", b"", b"");
    Density::look(shared.parts.connector, everything).unwrap_or_default()
}

fn request_id<B>(
    shared: &WorkerShared<'_, B>,
    shard: ShardKey,
    number: u64,
    now: LogicalTime,
) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(b"ask_split");
    shared.config.worker.write_canonical(&mut hasher);
    shard.write_canonical(&mut hasher);
    hasher.write_u64(number);
    hasher.write_u64(now.as_raw());
    OpId::from_raw(hasher.finalize_64())
}
