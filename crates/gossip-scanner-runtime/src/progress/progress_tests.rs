use gossip_contracts::connector::{Connector, MemoryConnector};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{FenceEpoch, OpId, RunId, ShardId, ShardKey, WorkerId};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, HandoffId, Lease, ParkReason, RunManagement, RunStatus,
    ShardClaiming, ShardStatus, ShardSummary,
};
use proptest::prelude::*;

use super::{Eta, Progress, ProgressKind, ProgressMeter, RunLook, Tally};
use crate::density::Density;
use crate::task::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskStep};
use crate::test_support::{Coordinator, LASTS, ROOT, RUN, TENANT, World, at, noting, numbered};
use crate::throttle::Throttle;

/// What happens to a run between two looks.
#[derive(Clone, Copy, Debug)]
enum Act {
    Claim,
    Work { steps: usize },
    Split,
    Park,
    Unpark,
    Release,
    Move,
    Crash,
    Pause,
    Resume,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => Just(Act::Claim),
        6 => (1..40_usize).prop_map(|steps| Act::Work { steps }),
        3 => Just(Act::Split),
        1 => Just(Act::Park),
        2 => Just(Act::Unpark),
        1 => Just(Act::Release),
        2 => Just(Act::Move),
        1 => Just(Act::Crash),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
    ];
    prop::collection::vec(act, 1..60)
}

/// One owner that does whatever comes.
struct Play {
    world: World,
    handle: Coordinator,
    task: Option<ShardTask>,
    connector: MemoryConnector,
    ops: u64,
}

impl Play {
    fn new() -> Self {
        let world = World::new();
        let handle = world.handle();
        Self { world, handle, task: None, connector: numbered(200), ops: 1000 }
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::from_raw(self.ops)
    }

    fn lease(&self) -> Option<Lease> {
        self.task.as_ref().map(|task| task.lease().clone())
    }

    fn act(&mut self, act: Act) {
        self.world.now += 1;
        let (now, op) = (at(self.world.now), self.op());
        match act {
            Act::Claim if self.task.is_none() => {
                let config = TaskConfig { checkpoint_items: 3, ..TaskConfig::default() };
                self.task = self.world.claim(&mut self.handle, config, 1);
            }
            Act::Claim => {}
            Act::Work { steps } => self.work(steps),
            Act::Split => {
                if let Some(task) = &mut self.task {
                    task.request(&gossip_coordination::ShardAction::Split(None));
                }
            }
            Act::Park => {
                if let Some(lease) = self.lease() {
                    let reason = ParkReason::Other;
                    let _parked = self.handle.park_shard(now, TENANT, &lease, reason, op);
                    self.task = None;
                }
            }
            Act::Unpark => self.unpark(op),
            Act::Release => {
                if let Some(lease) = self.lease() {
                    let clean = ReleaseMode::Clean;
                    let _released = self.handle.release(now, TENANT, &lease, clean, op);
                    self.task = None;
                }
            }
            Act::Move => self.hand_over(op),
            Act::Crash => {
                self.task = None;
                self.world.now += LASTS;
            }
            Act::Pause => drop(self.handle.pause_run(now, TENANT, RUN, op)),
            Act::Resume => drop(self.handle.resume_run(now, TENANT, RUN, op)),
        }
    }

    fn work(&mut self, steps: usize) {
        let Some(task) = &mut self.task else { return };
        let done = std::mem::take(&mut self.world.done);
        let mut processor = noting(&done);
        let throttle = Throttle::default();
        let mut over = false;
        for _ in 0..steps {
            let mut context = TaskContext {
                coordinator: &mut self.handle,
                connector: &self.connector,
                processor: &mut processor,
                throttle: &throttle,
                observer: &(),
                store: StoreAccess::Usable,
            };
            over = matches!(task.step(at(self.world.now), &mut context), TaskStep::Over(_));
            if over {
                break;
            }
        }
        drop(processor);
        self.world.done = done;
        if over {
            self.task = None;
        }
    }

    fn unpark(&mut self, op: OpId) {
        let parked = self.world.rows().into_iter().find(|row| row.status == ShardStatus::Parked);
        if let Some(row) = parked {
            let (now, key) = (at(self.world.now), ShardKey::new(RUN, row.shard));
            self.handle.unpark_shard(now, TENANT, key, op).unwrap();
        }
    }

    /// A planned handoff without its records: the offer, and the acceptance by another worker.
    fn hand_over(&mut self, op: OpId) {
        let Some(lease) = self.lease() else { return };
        let (now, id) = (at(self.world.now), HandoffId::from_raw(op.as_raw()));
        let (to, deadline) = (WorkerId::from_raw(2), at(self.world.now + 10));
        let terms = OfferTerms { handoff: id, destination: to, deadline };
        let cursor = CursorUpdate::initial();
        let offered = self.handle.offer(now, TENANT, &lease, terms, cursor, op);
        let mut scratch = Box::<AcquireScratch>::default();
        if offered.is_ok() {
            let key = lease.key();
            let _accepted = self.handle.accept(now, TENANT, key, to, id, &mut scratch);
        }
        self.task = None;
    }
}

fn density(connector: &dyn Connector) -> Density {
    Density::look(connector, ShardSpecRef::new(ROOT.0, ROOT.1, b"")).unwrap()
}

/// A measure that must guess: every eighth key.
fn thin() -> Density {
    let keys = (0..200).step_by(8).map(|number| (crate::test_support::key(number), Vec::new()));
    let sample = MemoryConnector::try_new(keys).unwrap();
    let mut density = density(&sample);
    density.forget_total();
    density
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Without a meter's history: a snapshot never covers less than an earlier one.
    #[test]
    fn the_covered_set_only_grows_whatever_happens(acts in acts()) {
        let mut play = Play::new();
        let (exact, thin) = (density(&play.connector), thin());
        let (mut before, mut before_thin) = (Tally::default(), Tally::default());
        for act in acts {
            play.act(act);
            let rows = play.world.rows();
            let (now, now_thin) = (Tally::of(&rows, &exact), Tally::of(&rows, &thin));
            prop_assert!(now.keys >= before.keys, "{act:?}: {before:?} {now:?}");
            prop_assert!(now.covered >= before.covered, "{act:?}: {before:?} {now:?}");
            prop_assert!(now_thin.covered >= before_thin.covered, "{act:?}");
            prop_assert_eq!(now.keys as usize, now.covered, "the sample holds every key");
            (before, before_thin) = (now, now_thin);
        }
    }

    /// A map has no gap and no overlap, and shows as much covered as a tally counts.
    #[test]
    fn slices_tile_the_source_whatever_happens(acts in acts()) {
        let mut play = Play::new();
        let density = density(&play.connector);
        for act in acts {
            play.act(act);
            let (shards, at) = (play.world.rows(), at(play.world.now));
            let tally = Tally::of(&shards, &density);
            let look = RunLook { at, status: RunStatus::Active, paused: false, shards };
            for density in [&density, &Density::default()] {
                let slices = look.slices(density);
                let ends = slices.iter().map(|slice| slice.to);
                let starts = slices.iter().map(|slice| slice.from);
                let (ends, starts): (Vec<_>, Vec<_>) =
                    (std::iter::once(0.0).chain(ends).collect(), starts.chain([1.0]).collect());
                prop_assert_eq!(starts, ends, "{:?}", act);
                prop_assert!(slices.iter().all(|it| it.from <= it.covered && it.covered <= it.to));
            }
            let covered: f64 =
                look.slices(&density).iter().map(|slice| slice.covered - slice.from).sum();
            prop_assert!((covered * 200.0 - tally.covered as f64).abs() < 1e-6, "{act:?}");
        }
    }

    /// A listing that is torn between two instants shows no step back either.
    #[test]
    fn a_meter_never_goes_back(
        looks in prop::collection::vec((0..200_usize, any::<bool>()), 1..40),
    ) {
        let mut meter = ProgressMeter::new(density(&numbered(200)));
        let mut before = (0, 0.0);
        for (number, (reached, torn)) in looks.into_iter().enumerate() {
            let mut rows = vec![row(1, reached), row(2, 0)];
            if torn {
                rows.remove(0);
            }
            let progress = meter.observe(&look(number as u64 * 1000 + 1, false, rows));
            let now = (progress.keys, progress.fraction.unwrap());
            prop_assert!(now.0 >= before.0 && now.1 >= before.1);
            prop_assert!(progress.total >= Some(progress.keys));
            before = now;
        }
    }

    #[test]
    fn the_time_left_is_never_shorter_than_the_slowest_leased_shard_needs(
        slow in 1..20_u64,
        fast in 1..90_u64,
    ) {
        let mut meter = ProgressMeter::new(density(&numbered(200)));
        let mut progress = None;
        for second in 0..=4 {
            let fast = leased(2, b"k100", b"z", second * fast / 4);
            let rows = vec![leased(1, b"a", b"k100", second * slow), fast];
            progress = Some(meter.observe(&look(second * 1000 + 1, false, rows)));
        }
        let slowest = (100 - 4 * slow) * 1000 / slow;
        let eta = progress.and_then(|progress| progress.eta).unwrap();
        prop_assert!(eta.left + 1 >= slowest, "{eta:?} for at least {slowest}");
    }
}

#[test]
fn a_pause_is_no_time() {
    let with_pause = eta_of(&[
        (0, false),
        (1000, false),
        (2000, true),
        (90_000, true),
        (91_000, false),
        (92_000, false),
    ]);
    let without = eta_of(&[(0, false), (1000, false), (2000, false)]);
    // Two seconds of work each, and ten keys in each of them; the seconds around a pause are left
    // out, because it is unknown when in them it began and ended.
    assert_eq!(with_pause.unwrap().left, without.unwrap().left);
}

/// The time left when ten keys are done in each second that is not paused.
fn eta_of(looks: &[(u64, bool)]) -> Option<Eta> {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    let (mut keys, mut progress, mut before) = (0, None::<Progress>, None);
    for &(time, paused) in looks {
        if before == Some(false) && !paused {
            keys += 10;
        }
        before = Some(paused);
        progress = Some(meter.observe(&look(time + 1, paused, vec![row(1, keys), row(2, 0)])));
    }
    let eta = progress.unwrap().eta;
    // By the remaining work, so that two runs which are not equally far can be compared.
    eta.map(|eta| Eta { left: eta.left / (200 - keys as u64), ..eta })
}

#[test]
fn kinds_are_shown() {
    let kind =
        |density| ProgressMeter::new(density).observe(&look(1, false, vec![row(1, 0), row(2, 0)]));
    let exact = kind(density(&numbered(200)));
    assert_eq!(
        (exact.kind, exact.total, exact.fraction),
        (ProgressKind::Exact, Some(200), Some(0.0))
    );
    assert_eq!(kind(thin()).kind, ProgressKind::Estimated);
    let unknown = kind(Density::default());
    assert_eq!(
        (unknown.kind, unknown.total, unknown.fraction),
        (ProgressKind::Unknown, None, None)
    );
    assert_eq!(unknown.eta, None);
}

#[test]
fn all_is_one_only_when_nothing_is_left() {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    let all_but_said = meter.observe(&look(1, false, vec![row(1, 100), row(2, 100)]));
    assert!(all_but_said.fraction.unwrap() < 1.0);
    let done = |shard| ShardSummary { status: ShardStatus::Done, leased: false, ..row(shard, 100) };
    let over = meter.observe(&look(2, false, vec![done(1), done(2)]));
    assert_eq!((over.fraction, over.eta), (Some(1.0), Some(Eta { left: 0, error: 0 })));
}

#[test]
fn a_real_run_can_be_looked_at() {
    let mut world = World::new();
    let connector = numbered(200);
    world.work_everything(&connector);
    let look = RunLook::take(&mut world.handle(), at(world.now), TENANT, RUN).unwrap();
    let progress = ProgressMeter::new(density(&connector)).observe(&look);
    assert_eq!((progress.keys, progress.fraction), (200, Some(1.0)));
    let none = RunLook::take(&mut world.handle(), at(1), TENANT, RunId::from_raw(9));
    assert!(none.is_err());
}

fn look(time: u64, paused: bool, shards: Vec<ShardSummary>) -> RunLook {
    RunLook { at: at(time), status: RunStatus::Active, paused, shards }
}

/// Half of the keys: `shard` 1 those below `k100`, 2 the others; `keys` of them are covered.
fn row(shard: u64, keys: usize) -> ShardSummary {
    let half = |number: usize| (number * 100, (number + 1) * 100);
    let (first, _) = half(shard as usize - 1);
    let (start, end): (&[u8], &[u8]) = if shard == 1 { (b"a", b"k100") } else { (b"k100", b"z") };
    let keys = keys.min(100);
    covering(shard, start, end, first, keys)
}

fn leased(shard: u64, start: &[u8], end: &[u8], keys: u64) -> ShardSummary {
    covering(shard, start, end, (shard as usize - 1) * 100, keys as usize)
}

fn covering(shard: u64, start: &[u8], end: &[u8], first: usize, keys: usize) -> ShardSummary {
    let mut accumulator = crate::Accumulator::EMPTY;
    for number in first..first + keys {
        accumulator.add(&crate::test_support::key(number));
    }
    let mut token = Vec::new();
    crate::RuntimeToken::new(accumulator, b"").encode_into(&mut token).unwrap();
    let last_key = keys.checked_sub(1).map(|last| crate::test_support::key(first + last).into());
    let mut world = World::new();
    let mut scratch = Box::<AcquireScratch>::default();
    let worker = WorkerId::from_raw(1);
    world.handle().claim_next_available(at(1), TENANT, RUN, worker, &mut scratch).unwrap();
    ShardSummary {
        shard: ShardId::from_raw(shard),
        last_key,
        token: Some(token.into()),
        start: start.into(),
        end: end.into(),
        ..world.rows().remove(0)
    }
}

/// Rows of a shard whose lease was granted with this fence and ends at this time.
fn held(row: ShardSummary, fence: u64, deadline: u64) -> ShardSummary {
    let fence_epoch = FenceEpoch::from_raw(fence);
    ShardSummary { fence_epoch, lease_deadline: Some(at(deadline)), ..row }
}

/// Two workers die. Another process resumes: it waits for the leases, then does ten keys a second.
#[test]
fn a_wait_for_the_leases_of_a_dead_worker_is_no_slowness() {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    let mut known = 0;
    for second in 0..25_u64 {
        let taken_over = second.checked_sub(15);
        let (fence, deadline) = taken_over.map_or((2, 15_001), |_| (3, second * 1000 + 15_001));
        let keys = taken_over.map_or(0, |working| working as usize * 5);
        let rows = [1, 2].map(|shard| held(row(shard, 10 + keys), fence, deadline));
        let progress = meter.observe(&look(second * 1000 + 1, false, rows.into()));
        let truth = (180 - 2 * keys as u64) * 100;
        if let Some(eta) = progress.eta {
            known += 1;
            assert!((truth / 2..=truth * 2).contains(&eta.left), "{second} s: {eta:?}, {truth}");
        }
    }
    assert!(known >= 8, "known in {known} of 10 seconds of work");
}

/// Some shards are waiting and are processed at once, others are held by the dead worker.
#[test]
fn shards_of_a_dead_worker_count_by_the_speed_of_the_run() {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    for second in 0..10_u64 {
        let dead = held(row(1, 0), 2, 15_001);
        let alive = held(row(2, second as usize * 10), 3, second * 1000 + 15_001);
        let progress = meter.observe(&look(second * 1000 + 1, false, vec![dead, alive]));
        let truth = (200 - second * 10) * 100;
        if second > 0 {
            let left = progress.eta.unwrap().left;
            assert!((truth / 2..=truth * 2).contains(&left), "{second} s: {left}, {truth}");
        }
    }
}

/// A live worker that finishes no key: the others' speed says nothing about its shard.
#[test]
fn time_left_is_unknown_while_a_live_shard_has_no_speed() {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    let mut eta = None;
    for second in 0..10_u64 {
        let deadline = second * 1000 + 15_001;
        let still = held(row(1, 0), 2, deadline);
        let fast = held(row(2, second as usize * 11), 2, deadline);
        eta = meter.observe(&look(second * 1000 + 1, false, vec![still, fast])).eta;
    }
    assert_eq!(eta, None);
}

#[test]
fn speed_is_that_of_the_last_minute() {
    let mut meter = ProgressMeter::new(density(&numbered(200)));
    let mut progress = None;
    // Ten keys in the first ten seconds, then none, seen every ten seconds.
    for second in (0..120_u64).step_by(10) {
        let rows = vec![held(row(1, if second == 0 { 0 } else { 10 }), 2, 15_001), row(2, 0)];
        progress = Some(meter.observe(&look(second * 1000 + 1, false, rows)));
    }
    assert_eq!(progress.unwrap().eta, None);
}

#[test]
fn percent_is_rounded_down_from_integers() {
    for done in 0..100 {
        let mut meter = ProgressMeter::new(density(&numbered(100)));
        let progress = meter.observe(&look(1, false, vec![row(1, done)]));
        assert_eq!(progress.percent, Some(done as u8));
    }
    // Complete only when the run says so.
    let mut meter = ProgressMeter::new(density(&numbered(100)));
    let all = meter.observe(&look(1, false, vec![row(1, 100)]));
    assert_eq!((all.keys, all.percent), (100, Some(99)));
}

#[test]
fn unread_keys_are_not_done() {
    let unread = |row: ShardSummary| {
        let token = row.token.unwrap();
        let token =
            crate::RuntimeToken { unread: 25, ..crate::RuntimeToken::decode(&token).unwrap() };
        let mut bytes = Vec::new();
        token.encode_into(&mut bytes).unwrap();
        ShardSummary { token: Some(bytes.into()), ..row }
    };
    let mut meter = ProgressMeter::new(density(&numbered(100)));
    let half = meter.observe(&look(1, false, vec![unread(row(1, 50))]));
    assert_eq!((half.keys, half.unread, half.percent, half.total), (25, 25, Some(25), Some(100)));
    let done = ShardSummary { status: ShardStatus::Done, leased: false, ..unread(row(1, 100)) };
    let over = meter.observe(&look(2, false, vec![done]));
    assert_eq!((over.keys, over.unread, over.percent), (75, 25, Some(75)));
    assert_eq!((over.fraction, over.total), (Some(0.75), Some(100)));
}
