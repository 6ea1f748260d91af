//! Random sequences: a backend and the naive model must give the same answers.
//!
//! A sequence is a list of numbers. Each number is one step: its bytes select the operation and
//! its arguments, and every list of numbers is a valid sequence. A seed thus identifies a sequence,
//! and a shrinker can remove and decrease numbers freely.

use std::collections::BTreeMap;

use gossip_contracts::coordination::{CursorUpdate, SplitReplacePlan};
use gossip_contracts::identity::{FenceEpoch, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode, RunTransitionKind};
use gossip_coordination::{
    CoordinationBackend, HandoffId, IdempotentOutcome, Lease, OpSequence, ParkReason, RunConfig,
    RunManagement, ShardAction, ShardFilter, ShardStatus, ShardSummary,
};
use gossip_testkit::Rng;

use super::model::{Answer, Cut, Model, Parts, Shard, grant_words};
use super::world::{
    Held, OTHER_RUN, ROOTS, RUN, STRANGER, TENANT, World, answer, at, child, fence, handoff, op,
    residual_at, worker,
};
use super::{Ability, ConformanceTarget, FenceFloors as _, Settings};

/// Low, so that sequences reach the limits.
const LIMITS: Settings =
    Settings { max_shards_per_tenant: 7, max_total_shards: 9, claim_cooldown_interval: 0 };
/// Short, so that leases expire within a few steps.
const LASTS: u64 = 20;
/// Number of recent steps that can be repeated.
const REPEAT_WINDOW: usize = 24;

/// Number of occurrences of each answer of each operation.
pub type Tally = BTreeMap<(String, String), u64>;

/// Runs the sequences of `seeds`, each of `steps` steps, and returns the counted answers.
///
/// # Panics
///
/// At the first answer that differs, with the seed and the last steps.
pub fn check_sequences<T: ConformanceTarget>(
    target: &T,
    seeds: std::ops::Range<u64>,
    steps: usize,
) -> Tally {
    let mut met = Tally::new();
    for seed in seeds {
        let mut rng = Rng::seeded(seed);
        let numbers = std::iter::repeat_with(|| rng.next_u64()).take(steps);
        for (answered, count) in check_sequence(target, &format!("seed {seed}"), numbers) {
            *met.entry(answered).or_default() += count;
        }
    }
    met
}

/// Returns the requested limits that the target supports.
fn limits_of<T: ConformanceTarget>(target: &T) -> Settings {
    match target.lacks().contains(&Ability::TotalLimit) {
        true => Settings { max_total_shards: usize::MAX, ..LIMITS },
        false => LIMITS,
    }
}

/// Runs one sequence and returns the counted answers. A failure message contains `name`.
///
/// # Panics
///
/// At the first answer that differs, with the name and the last steps.
pub fn check_sequence<T: ConformanceTarget>(
    target: &T,
    name: &str,
    numbers: impl IntoIterator<Item = u64>,
) -> Tally {
    let mut pair = Pair {
        world: World::empty(target, LIMITS),
        model: Model::new(limits_of(target)),
        now: 100,
        next_op: 1,
        leases: Vec::new(),
        trace: Vec::new(),
        met: Tally::new(),
    };
    let mut steps: Vec<Step> = Vec::new();
    for tenant in [TENANT, STRANGER] {
        steps.push(Step::Create { tenant, run: RUN });
        steps.push(Step::Register { tenant, run: RUN, count: 2, op: 1_000_000 });
    }
    for step in &steps {
        pair.perform(name, step);
    }
    for number in numbers {
        let mut dice = Dice(number);
        pair.tick(&mut dice);
        let step = pair.choose(&mut dice, &steps);
        pair.perform(name, &step);
        steps.push(step);
    }
    pair.compare_all(name);
    pair.met
}

/// One call with all its arguments, so that it can be repeated.
#[derive(Clone, Debug)]
enum Step {
    Create { tenant: TenantId, run: RunId },
    Register { tenant: TenantId, run: RunId, count: usize, op: u64 },
    Transition { tenant: TenantId, run: RunId, kind: RunTransitionKind, op: u64 },
    Delete { tenant: TenantId, run: RunId, op: u64 },
    RaiseFloor { tenant: TenantId, run: RunId, at_least: u64 },
    Acquire { tenant: TenantId, key: ShardKey, by: u64 },
    Claim { tenant: TenantId, run: RunId, by: u64 },
    Accept { tenant: TenantId, key: ShardKey, by: u64, id: u64 },
    Unpark { tenant: TenantId, key: ShardKey, op: u64 },
    Revoke { tenant: TenantId, key: ShardKey, fence: Option<u64>, op: u64 },
    Request { tenant: TenantId, key: ShardKey, action: usize, until: u64, op: u64 },
    Leased { tenant: TenantId, lease: Lease, act: Act, op: u64 },
}

/// Operations of a lease holder.
#[derive(Clone, Debug)]
enum Act {
    Renew,
    Checkpoint([u8; 1]),
    Complete([u8; 1]),
    Park(ParkReason),
    Release(ReleaseMode),
    Offer { id: u64, to: u64, until: u64, at_key: Option<[u8; 1]> },
    Withdraw(u64),
    Shrink { bounds: [Vec<u8>; 3] },
    Replace { bounds: [Vec<u8>; 3], carried: Option<Vec<u8>> },
}

/// Requested actions, by their event names.
const ACTIONS: [(ShardAction, &str); 4] = [
    (ShardAction::Split(None), "split"),
    (ShardAction::Release, "release"),
    (ShardAction::HandOff(None), "hand-off"),
    (ShardAction::Withdraw, "withdraw"),
];

/// The bytes of a number, used up from the low end.
struct Dice(u64);

impl Dice {
    /// Returns a number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        let rolled = self.0 % sides;
        // Derive a fresh number from the rest, so that any number of rolls is possible.
        self.0 = (self.0 / sides) ^ self.0.rotate_right(17).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        rolled
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).expect("below a usize")
    }

    fn letter(&mut self) -> [u8; 1] {
        [b'a' + u8::try_from(self.roll(26)).expect("below 26")]
    }

    fn tenant(&mut self) -> TenantId {
        if self.roll(6) == 0 { STRANGER } else { TENANT }
    }

    fn run(&mut self) -> RunId {
        if self.roll(6) == 0 { OTHER_RUN } else { RUN }
    }

    fn worker(&mut self) -> u64 {
        1 + self.roll(3)
    }
}

/// A backend and its model.
struct Pair<'t, T: ConformanceTarget> {
    world: World<'t, T>,
    model: Model,
    now: u64,
    next_op: u64,
    /// Every lease ever granted, oldest first.
    leases: Vec<Lease>,
    /// Steps and answers, for the failure message.
    trace: Vec<String>,
    met: Tally,
}

impl<T: ConformanceTarget> Pair<'_, T> {
    /// Advances time: mostly a little, sometimes past a lease, sometimes backwards.
    fn tick(&mut self, dice: &mut Dice) {
        self.now = match dice.roll(12) {
            0 => self.now + LASTS,
            1 => self.now.saturating_sub(dice.roll(2 * LASTS)).max(1),
            _ => self.now + dice.roll(3),
        };
    }

    fn choose(&mut self, dice: &mut Dice, past: &[Step]) -> Step {
        if dice.roll(8) == 0 {
            let window = past.len().min(REPEAT_WINDOW);
            return past[past.len() - 1 - dice.index(window)].clone();
        }
        let op = self.operation(dice);
        match dice.roll(20) {
            0 => self.choose_for_run(dice, op),
            1..=3 => Step::Claim { tenant: dice.tenant(), run: dice.run(), by: dice.worker() },
            4..=7 => self.choose_for_shard(dice, op),
            _ => self.choose_for_owner(dice, op),
        }
    }

    /// Returns a fresh id mostly, a recently used one sometimes.
    fn operation(&mut self, dice: &mut Dice) -> u64 {
        if dice.roll(12) == 0 {
            return self.next_op.saturating_sub(1 + dice.roll(8)).max(1);
        }
        self.next_op += 1;
        self.next_op
    }

    fn choose_for_run(&self, dice: &mut Dice, op: u64) -> Step {
        let (tenant, run) = (dice.tenant(), dice.run());
        let kinds = RunTransitionKind::ALL;
        match dice.roll(9) {
            0 | 1 => Step::Create { tenant, run },
            2 | 3 => Step::Register { tenant, run, count: 1 + dice.index(2), op },
            4 => Step::Delete { tenant, run, op },
            // Terminal transitions are rarer than pauses: few steps are possible after them.
            5 => Step::Transition { tenant, run, kind: kinds[dice.index(kinds.len())], op },
            6 => Step::Transition { tenant, run, kind: RunTransitionKind::Pause, op },
            // Some calls raise by a step, others to the given fence.
            7 => Step::RaiseFloor { tenant, run, at_least: dice.roll(6) << 20 },
            _ => Step::Transition { tenant, run, kind: RunTransitionKind::Resume, op },
        }
    }

    fn choose_for_shard(&self, dice: &mut Dice, op: u64) -> Step {
        let (tenant, run) = (dice.tenant(), dice.run());
        let ids: Vec<ShardId> = match self.model.run(tenant, run) {
            Some(run) => run.shards.keys().copied().collect(),
            None => vec![ROOTS[0].shard_id],
        };
        let id = if ids.is_empty() { ROOTS[0].shard_id } else { ids[dice.index(ids.len())] };
        let key = ShardKey::new(run, id);
        match dice.roll(10) {
            0..=3 => Step::Acquire { tenant, key, by: dice.worker() },
            4 | 5 => self.choose_accept(dice, tenant, key),
            6 | 7 => Step::Unpark { tenant, key, op },
            8 => Step::Revoke { tenant, key, fence: self.choose_fence(dice, tenant, key), op },
            _ => {
                let (action, until) = (dice.index(ACTIONS.len()), self.now + dice.roll(LASTS));
                Step::Request { tenant, key, action, until, op }
            }
        }
    }

    /// No expected fence, that of the shard, or the one before it.
    fn choose_fence(&self, dice: &mut Dice, tenant: TenantId, key: ShardKey) -> Option<u64> {
        let run = self.model.run(tenant, key.run());
        let fence = run.and_then(|run| run.shards.get(&key.shard())).map_or(2, |shard| shard.fence);
        match dice.roll(3) {
            0 => None,
            behind => Some(fence - (behind - 1)),
        }
    }

    /// Mostly accepts an open offer as its destination.
    fn choose_accept(&self, dice: &mut Dice, tenant: TenantId, key: ShardKey) -> Step {
        let shards = self.model.run(tenant, key.run()).into_iter().flat_map(|run| &run.shards);
        let offered = shards.filter_map(|(id, shard)| Some((*id, shard.offer.as_ref()?)));
        let offered: Vec<_> = offered.collect();
        if offered.is_empty() || dice.roll(4) == 0 {
            return Step::Accept { tenant, key, by: dice.worker(), id: dice.roll(3) };
        }
        let (id, offer) = offered[dice.index(offered.len())];
        Step::Accept { tenant, key: ShardKey::new(key.run(), id), by: offer.to, id: offer.id }
    }

    /// Mostly presents a live lease, and mostly as its own tenant.
    fn choose_for_owner(&self, dice: &mut Dice, op: u64) -> Step {
        let any = dice.roll(4) == 0;
        let leases: Vec<&Lease> =
            self.leases.iter().filter(|lease| any || self.is_current(lease)).collect();
        if leases.is_empty() {
            return Step::Claim { tenant: TENANT, run: RUN, by: dice.worker() };
        }
        let mut lease = leases[dice.index(leases.len())].clone();
        let tenant = if dice.roll(16) == 0 { dice.tenant() } else { lease.tenant() };
        let act = self.choose_act(dice, &lease);
        lease.set_sequence(self.choose_sequence(dice, &lease));
        Step::Leased { tenant, lease, act, op }
    }

    /// Half of the operations have no sequence; of the others, most are newer than the executed
    /// ones.
    fn choose_sequence(&self, dice: &mut Dice, lease: &Lease) -> OpSequence {
        let shard = self.model.shard(lease.tenant(), lease.key());
        let executed = shard.map_or(0, |shard| shard.sequence);
        let drawn = match dice.roll(8) {
            0..=3 => 0,
            4..=6 => executed + 1 + dice.roll(2),
            _ => executed.saturating_sub(dice.roll(3)),
        };
        OpSequence::try_from_raw(drawn).expect("a small number")
    }

    fn is_current(&self, lease: &Lease) -> bool {
        let shard = self.model.shard(lease.tenant(), lease.key());
        shard.is_some_and(|shard| shard.fence == lease.fence().as_raw() && shard.live(self.now))
    }

    fn choose_act(&self, dice: &mut Dice, lease: &Lease) -> Act {
        let shard = self.model.shard(lease.tenant(), lease.key());
        match dice.roll(20) {
            0..=2 => Act::Renew,
            3..=8 => Act::Checkpoint(likely_key(dice, shard)),
            9 => Act::Complete(likely_key(dice, shard)),
            10 => Act::Park(ParkReason::ALL[dice.index(ParkReason::ALL.len())]),
            11 | 12 if dice.roll(2) == 0 => Act::Release(ReleaseMode::Clean),
            11 | 12 => Act::Release(ReleaseMode::Failed),
            13 | 14 => Act::Offer {
                id: dice.roll(3),
                to: dice.worker(),
                until: self.now + dice.roll(5 * LASTS),
                at_key: (dice.roll(2) == 0).then(|| likely_key(dice, shard)),
            },
            15 | 16 => Act::Withdraw(dice.roll(3)),
            17 | 18 => Act::Shrink { bounds: likely_cut(dice, shard) },
            _ => {
                let carried = shard.and_then(|shard| shard.cursor.clone());
                let carried = carried.filter(|_| dice.roll(5) != 0);
                Act::Replace { bounds: likely_cut(dice, shard), carried }
            }
        }
    }

    fn perform(&mut self, name: &str, step: &Step) {
        let (actual, expected) = self.ask_both(step);
        let actual = actual.unwrap_or_else(str::to_owned);
        let expected = expected.unwrap_or_else(str::to_owned);
        self.trace.push(format!("at {}: {step:?} => {actual}", self.now));
        assert_eq!(actual, expected, "{name}, {}", self.story());
        let met = actual.chars().take_while(|c| c.is_alphanumeric()).collect();
        *self.met.entry((step.operation(), met)).or_default() += 1;
        let (tenant, run) = step.place();
        self.compare(name, tenant, run);
    }

    /// Returns the backend's answer and the model's answer in the same format.
    fn ask_both(&mut self, step: &Step) -> (Result<String, &'static str>, Answer) {
        let now = self.now;
        match step {
            Step::Claim { tenant, run, by } => self.ask_claim(*tenant, *run, *by),
            Step::Leased { tenant, lease, act, op } => self.ask_owner(*tenant, lease, act, *op),
            Step::Acquire { tenant, key, by } => {
                self.world.tenant = *tenant;
                let result = self.world.try_acquire(now, *key, *by);
                (self.granted(result), self.model.acquire(now, *tenant, *key, *by))
            }
            Step::Accept { tenant, key, by, id } => {
                self.world.tenant = *tenant;
                let result = self.world.accept(now, *key, *by, *id);
                (self.granted(result), self.model.accept(now, *tenant, *key, *by, *id))
            }
            Step::Unpark { tenant, key, op: id } => {
                let result = self.world.backend.unpark_shard(at(now), *tenant, *key, op(*id));
                (Ok(answer(&result)), self.model.unpark(*tenant, *key, *id))
            }
            Step::Revoke { tenant, key, fence, op: id } => {
                let (backend, expected) =
                    (&mut self.world.backend, fence.map(FenceEpoch::from_raw));
                let result = backend.revoke_lease(at(now), *tenant, *key, expected, op(*id));
                (Ok(answer(&result)), self.model.revoke(*tenant, *key, *fence, *id))
            }
            Step::Request { tenant, key, action, until, op: id } => {
                let (asked, label) = &ACTIONS[*action];
                let backend = &mut self.world.backend;
                let result =
                    backend.request_action(at(now), *tenant, *key, asked, at(*until), op(*id));
                let expected = self.model.request(now, *tenant, *key, (label, *until), *id);
                (Ok(answer(&result)), expected)
            }
            Step::Create { .. }
            | Step::Register { .. }
            | Step::Transition { .. }
            | Step::RaiseFloor { .. }
            | Step::Delete { .. } => self.ask_run(step),
        }
    }

    fn ask_run(&mut self, step: &Step) -> (Result<String, &'static str>, Answer) {
        let (now, backend) = (at(self.now), &mut self.world.backend);
        match step {
            Step::Create { tenant, run } => {
                let result = backend.create_run(now, *tenant, *run, config_of(*run));
                let result =
                    result.map_or_else(|error| answer::<(), _>(&Err(error)), |()| "Created".into());
                (Ok(result), self.model.create(*tenant, *run, config_of(*run)))
            }
            Step::Register { tenant, run, count, op: id } => {
                let result = backend.register_shards(now, *tenant, *run, &ROOTS[..*count], op(*id));
                let ids = self.world_roots(*tenant, *run);
                let result = match &result {
                    Ok(_) => format!("{} {ids:?}", answer(&result)),
                    Err(_) => answer(&result),
                };
                (Ok(result), self.model.register(*tenant, *run, *count, *id))
            }
            Step::Transition { tenant, run, kind, op: id } => {
                let result = match kind {
                    RunTransitionKind::Complete => {
                        backend.complete_run(now, *tenant, *run, op(*id))
                    }
                    RunTransitionKind::Fail => backend.fail_run(now, *tenant, *run, op(*id)),
                    RunTransitionKind::Cancel => backend.cancel_run(now, *tenant, *run, op(*id)),
                    RunTransitionKind::Pause => backend.pause_run(now, *tenant, *run, op(*id)),
                    RunTransitionKind::Resume => backend.resume_run(now, *tenant, *run, op(*id)),
                    other => unreachable!("no sequence has {other:?}"),
                };
                (Ok(answer(&result)), self.model.transition(*tenant, *run, *kind, *id))
            }
            Step::RaiseFloor { tenant, run, at_least } => {
                let result = backend.raise_fence_floor(now, *tenant, *run, fence(*at_least));
                let result = result.map(|floor| format!("Raised {}", floor.as_raw()));
                (words(result), self.model.raise_floor(*tenant, *run, *at_least))
            }
            Step::Delete { tenant, run, op: id } => {
                let result = backend.delete_run(now, *tenant, *run, op(*id));
                (Ok(answer(&result)), self.model.delete(*tenant, *run, *id))
            }
            other => unreachable!("{other:?} is not about a run"),
        }
    }

    fn ask_claim(
        &mut self,
        tenant: TenantId,
        run: RunId,
        by: u64,
    ) -> (Result<String, &'static str>, Answer) {
        self.world.tenant = tenant;
        self.world.run = run;
        let result = self.world.claim(self.now, by);
        let picked = result.as_ref().ok().map(|held| held.lease.shard());
        let parked: Vec<ShardId> = match self.model.run(tenant, run) {
            Some(_) => self.world.ids(self.now, ShardFilter::parked()),
            None => Vec::new(),
        };
        let expected = self.model.claim(self.now, tenant, run, by, picked, &parked);
        (self.granted(result), expected)
    }

    fn ask_owner(
        &mut self,
        tenant: TenantId,
        lease: &Lease,
        act: &Act,
        id: u64,
    ) -> (Result<String, &'static str>, Answer) {
        self.world.tenant = tenant;
        let (now, world, model) = (self.now, &mut self.world, &mut self.model);
        match act {
            Act::Renew => {
                let result = world.renew(now, lease).map(|renewed| {
                    let offer = renewed.offer.map(|o| (o.handoff.as_raw(), o.deadline.as_raw()));
                    let request = renewed.request.as_ref();
                    let request = request.map(|r| (r.action().label(), r.expires_at().as_raw()));
                    let (until, paused) = (renewed.new_deadline.as_raw(), renewed.run_paused);
                    format!(
                        "Renewed until {until} offer {offer:?} request {request:?} paused {paused}"
                    )
                });
                (words(result), model.renew(now, tenant, lease))
            }
            Act::Checkpoint(key) => {
                let result = answer(&world.checkpoint(now, lease, key, id));
                (Ok(result), model.checkpoint(now, tenant, lease, key, id))
            }
            Act::Complete(key) => {
                let result = answer(&world.complete(now, lease, key, id));
                (Ok(result), model.complete(now, tenant, lease, key, id))
            }
            Act::Park(reason) => {
                let result = world.backend.park_shard(at(now), tenant, lease, *reason, op(id));
                (Ok(answer(&result)), model.park(now, tenant, lease, *reason, id))
            }
            Act::Release(mode) => {
                let result = answer(&world.release(now, lease, *mode, id));
                (Ok(result), model.release(now, tenant, lease, *mode, id))
            }
            Act::Withdraw(moved) => {
                let result = answer(&world.withdraw(now, lease, *moved, id));
                (Ok(result), model.withdraw(now, tenant, lease, *moved, id))
            }
            Act::Offer { id: moved, to, until, at_key } => {
                let (handoff, destination) = (handoff(*moved), worker(*to));
                let terms = OfferTerms { handoff, destination, deadline: at(*until) };
                let key = at_key.as_ref().map(<[u8; 1]>::as_slice);
                let cursor = key.map_or(CursorUpdate::initial(), CursorUpdate::with_last_key);
                let result = world.backend.offer(at(now), tenant, lease, terms, cursor, op(id));
                let terms = (*moved, *to, *until);
                (Ok(answer(&result)), model.offer(now, tenant, lease, terms, key, id))
            }
            Act::Shrink { bounds } => self.ask_split(tenant, lease, bounds, Parts::Residual, id),
            Act::Replace { bounds, carried } => {
                let parts = Parts::Children { carried: carried.as_deref() };
                self.ask_split(tenant, lease, bounds, parts, id)
            }
        }
    }

    fn ask_split(
        &mut self,
        tenant: TenantId,
        lease: &Lease,
        bounds: &[Vec<u8>; 3],
        parts: Parts<'_>,
        id: u64,
    ) -> (Result<String, &'static str>, Answer) {
        let [start, cut, end] = bounds.each_ref().map(Vec::as_slice);
        let result = match parts {
            Parts::Residual => {
                let split = self.world.shrink(self.now, lease, &residual_at(start, cut, end), id);
                split.map(|split| split.map(|residual| vec![residual]))
            }
            Parts::Children { carried } => {
                let cursor = carried.map_or(CursorUpdate::initial(), CursorUpdate::with_last_key);
                let right = child(cut, end, CursorUpdate::initial());
                let plan = SplitReplacePlan::try_new([child(start, cut, cursor), right]);
                self.world.replace(self.now, lease, &plan.expect("two children"), id)
            }
        };
        let made = result.as_ref().ok().map(|made| made.as_ref().into_inner().clone());
        let made = made.unwrap_or_default();
        let cut = Cut { start, at: cut, end, parts };
        let expected = self.model.split(self.now, tenant, lease, cut, id, &made);
        let result = result.map(|outcome| match outcome {
            IdempotentOutcome::Executed(made) => format!("Executed {made:?}"),
            IdempotentOutcome::Replayed(made) => format!("Replayed {made:?}"),
        });
        (words(result), expected)
    }

    /// Formats a grant like the model; keeps its lease for later steps.
    fn granted<E: std::fmt::Debug>(
        &mut self,
        result: Result<Held, E>,
    ) -> Result<String, &'static str> {
        words(result.map(|held| {
            let mut shard = Shard::new(&held.start, &held.end);
            shard.cursor.clone_from(&held.last_key);
            (shard.parent, shard.spawned) = (held.parent, held.spawned.clone());
            let result = grant_words(held.fence(), held.deadline(), held.attempts, &shard);
            self.leases.push(held.lease);
            result
        }))
    }

    fn world_roots(&mut self, tenant: TenantId, run: RunId) -> Vec<ShardId> {
        let found = self.world.backend.get_run(tenant, run);
        found.map(|run| run.root_shards().to_vec()).unwrap_or_default()
    }

    /// Checks that listing, progress and run record equal those of the model.
    fn compare(&mut self, name: &str, tenant: TenantId, run_id: RunId) {
        (self.world.tenant, self.world.run) = (tenant, run_id);
        let shown = self.world.run_record().ok();
        let Some(run) = self.model.run(tenant, run_id) else {
            assert!(shown.is_none(), "{name}: the run does not exist; {}", self.story());
            return;
        };
        let shown = shown.map(|shown| (shown.status(), shown.is_paused()));
        assert_eq!(shown, Some((run.status, run.paused)), "{name}, {}", self.story());
        let mut expected: Vec<ShardSummary> =
            run.shards.iter().map(|(id, shard)| row_of(*id, shard, self.now)).collect();
        expected.sort_by(|a, b| (&a.start, a.shard).cmp(&(&b.start, b.shard)));
        let counts = ShardStatus::ALL.map(|status| run.count(status) as u64);
        let rows = self.world.list(self.now, ShardFilter::all());
        assert_eq!(rows, expected, "{name}, {}", self.story());
        let progress = self.world.progress(self.now);
        let shown = [progress.active, progress.done, progress.split, progress.parked];
        assert_eq!(shown, counts, "{name}, {}", self.story());
        let leased = expected.iter().filter(|row| row.leased).count();
        assert_eq!(progress.leased, leased as u64, "{name}, {}", self.story());
    }

    fn compare_all(&mut self, name: &str) {
        for tenant in [TENANT, STRANGER] {
            for run in [RUN, OTHER_RUN] {
                self.compare(name, tenant, run);
            }
        }
    }

    /// Returns the last steps, for a failure message.
    fn story(&self) -> String {
        let first = self.trace.len().saturating_sub(REPEAT_WINDOW);
        format!("after\n{}", self.trace[first..].join("\n"))
    }
}

impl Step {
    /// Returns the name of the operation.
    fn operation(&self) -> String {
        match self {
            Self::Leased { act, .. } => super::world::word(act),
            Self::Transition { kind, .. } => format!("{kind:?}Run"),
            other => super::world::word(other),
        }
    }

    /// Returns the run of the step.
    fn place(&self) -> (TenantId, RunId) {
        match self {
            Self::Create { tenant, run }
            | Self::Register { tenant, run, .. }
            | Self::Transition { tenant, run, .. }
            | Self::Delete { tenant, run, .. }
            | Self::RaiseFloor { tenant, run, .. }
            | Self::Claim { tenant, run, .. } => (*tenant, *run),
            Self::Acquire { tenant, key, .. }
            | Self::Accept { tenant, key, .. }
            | Self::Unpark { tenant, key, .. }
            | Self::Revoke { tenant, key, .. }
            | Self::Request { tenant, key, .. } => (*tenant, key.run()),
            Self::Leased { tenant, lease, .. } => (*tenant, lease.run()),
        }
    }
}

/// Returns mostly a key that the shard accepts, not far ahead of its cursor.
fn likely_key(dice: &mut Dice, shard: Option<&Shard>) -> [u8; 1] {
    let Some(shard) = shard.filter(|_| dice.roll(6) != 0) else { return dice.letter() };
    let reached = shard.cursor.as_ref().unwrap_or(&shard.start);
    let step = u8::try_from(dice.roll(3)).expect("below 3");
    [reached.first().copied().unwrap_or(b'a').saturating_add(step)]
}

/// Returns mostly a split of the shard's own range.
fn likely_cut(dice: &mut Dice, shard: Option<&Shard>) -> [Vec<u8>; 3] {
    let cut = dice.letter().to_vec();
    match shard.filter(|_| dice.roll(10) != 0) {
        Some(shard) => {
            let reached = likely_key(dice, Some(shard));
            let near = if dice.roll(2) == 0 { vec![reached[0].saturating_add(1)] } else { cut };
            [shard.start.clone(), near, shard.end.clone()]
        }
        None => [b"a".to_vec(), cut, b"z~".to_vec()],
    }
}

fn config_of(run: RunId) -> RunConfig {
    let retries = (run == RUN).then_some(2);
    let semantics = gossip_contracts::coordination::CursorSemantics::Completed;
    RunConfig::try_new(semantics, LASTS, retries).expect("a valid lease duration")
}

fn words<E: std::fmt::Debug>(result: Result<String, E>) -> Result<String, &'static str> {
    Ok(result.unwrap_or_else(|error| super::world::word(&error)))
}

fn row_of(id: ShardId, shard: &Shard, now: u64) -> ShardSummary {
    let leased = shard.live(now);
    ShardSummary {
        shard: id,
        damage: None,
        status: shard.status,
        park_reason: shard.reason,
        park_context: None,
        leased,
        fence_epoch: FenceEpoch::from_raw(shard.fence),
        last_handoff: shard.moved_by.map(HandoffId::from_raw),
        lease_deadline: shard.lease.filter(|_| leased).map(|(_, deadline)| at(deadline)),
        owner: shard.lease.filter(|_| leased).map(|(owner, _)| worker(owner)),
        acquire_count: shard.grants,
        attempts: shard.attempts,
        last_key: shard.cursor.clone().map(Into::into),
        // No step of a sequence writes a token, and all roots have the same metadata.
        token: None,
        metadata: (*b"meta").into(),
        start: shard.start.clone().into(),
        end: shard.end.clone().into(),
        parent: shard.parent,
        spawned_count: u32::try_from(shard.spawned.len()).expect("a few"),
    }
}
