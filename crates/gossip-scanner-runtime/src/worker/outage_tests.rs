//! A worker whose store is unusable for some time, at every point of its work, in virtual time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gossip_contracts::connector::MemoryConnector;
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::store::{
    Answer, CommitOutcome, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{InfraError, StoreRefusal};
use gossip_handoff::{Repository, StoreRepository};
use rstest::rstest;

use super::{
    Drain, Finish, HandoffThread, Parts, Renewer, Rest, RunWorkerError, ShardRunner, WorkerConfig,
    WorkerShared, worker_of,
};
use crate::clock::Clock;
use crate::observer::{Event, Observer};
use crate::processor::{Inline, ItemResult, Processor, Work};
use crate::task::TaskConfig;
use crate::test_support::{RUN, TENANT, World, at, counted, key, numbered};
use crate::throttle::Limits;

/// Longer than an outage, unless a test says otherwise: no lease is lost then.
const LEASE: u64 = 60_000;
/// How long an outage lasts: longer than it takes to be announced.
const OUTAGE: u64 = 4_000;
const KEYS: usize = 16;
/// A key that fails for good, so that its shard is split and parked.
const BAD: usize = 5;
/// Ticks between two steps of every part.
const TICK: u64 = 10;
/// Far beyond the end of every test.
const LONGEST: u64 = 2_000_000;
const PATIENCE: u64 = 600_000;

/// How the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Reads succeed, writes are refused.
    Full,
    /// Nothing is answered.
    Unreachable,
    /// Writes are applied and not answered, reads fail.
    RepliesLost,
    /// Writes are refused for good.
    ReadOnly,
}

/// An outage of the store, the time, and counts of calls.
#[derive(Debug)]
struct Weather {
    kind: Kind,
    /// The call with which it begins.
    from_call: u64,
    /// How long it lasts, in ticks; `None` for ever.
    ticks: Option<u64>,
    now: AtomicU64,
    calls: AtomicU64,
    /// When it began; 0 before that.
    begun: AtomicU64,
    /// How many calls failed.
    failures: AtomicU64,
}

impl Weather {
    fn new(kind: Kind, from_call: u64, ticks: Option<u64>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            kind,
            from_call,
            ticks,
            now: AtomicU64::new(1),
            calls: zero(),
            begun: zero(),
            failures: zero(),
        }
    }

    fn is_bad(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        let now = self.now.load(Ordering::Relaxed);
        begun > 0 && self.ticks.is_none_or(|ticks| now < begun + ticks)
    }

    /// Counts a call of a kind that fails during the outage, or of one that does not. Returns
    /// whether it fails.
    fn strikes(&self, may_fail: bool) -> bool {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.from_call {
            self.begun.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let fails = may_fail && self.is_bad();
        self.failures.fetch_add(fails.into(), Ordering::Relaxed);
        fails
    }
}

impl Clock for Weather {
    fn now(&self) -> LogicalTime {
        at(self.now.load(Ordering::Relaxed))
    }
}

struct FaultyStore<'w>(MapStore, &'w Weather);

impl Store for FaultyStore<'_> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let may_fail = matches!(self.1.kind, Kind::Unreachable | Kind::RepliesLost);
        match self.1.strikes(may_fail) {
            true => Err(no_answer()),
            false => self.0.read(reads),
        }
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let refused = |why| InfraError::Refused { operation: "commit", why, message: "no".into() };
        let count = txns.len();
        match self.1.kind {
            _ if !self.1.strikes(true) => self.0.commit(txns),
            Kind::Full => vec![Err(refused(StoreRefusal::NoSpace)); count],
            Kind::ReadOnly => vec![Err(refused(StoreRefusal::ReadOnly)); count],
            Kind::Unreachable => vec![Err(no_answer()); count],
            Kind::RepliesLost => {
                self.0.commit(txns);
                (0..count).map(|_| Ok(CommitOutcome::Unknown)).collect()
            }
        }
    }

    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }
}

fn no_answer() -> InfraError {
    InfraError::Transient { operation: "read", message: "no answer".into() }
}

type Handle<'w> = StoreCoordinator<FaultyStore<'w>>;

/// What a worker did.
#[derive(Debug)]
struct Ran {
    end: Result<Finish, RunWorkerError>,
    at: u64,
    done: BTreeMap<Vec<u8>, u32>,
    /// Items that were started after a call had failed and before the store was usable again.
    started_without_store: u32,
    /// Reported outages: when, with the patience left, and when they ended.
    reported: Vec<(u64, Duration)>,
    recovered: Vec<(u64, Duration)>,
    calls: u64,
}

/// A worker of two runners, stepped in virtual time.
struct Scene<'w> {
    world: &'w World,
    weather: &'w Weather,
    config: WorkerConfig,
    /// When the worker is drained.
    drain_at: u64,
    done: Mutex<BTreeMap<Vec<u8>, u32>>,
    started_without_store: AtomicU64,
    /// Whether the store failed before this step.
    is_known: AtomicU64,
    reported: Mutex<Vec<(u64, Duration)>>,
    recovered: Mutex<Vec<(u64, Duration)>>,
    nonces: AtomicU64,
}

impl<'w> Scene<'w> {
    fn new(world: &'w World, weather: &'w Weather) -> Self {
        let task = TaskConfig {
            checkpoint_items: 3,
            item_tries: 2,
            retry_first: 1,
            ..TaskConfig::default()
        };
        let config = WorkerConfig {
            tenant: TENANT,
            run: RUN,
            worker: worker_of(RUN, 1),
            lease_ticks: LEASE,
            threads: 2,
            task,
            limits: Limits::default(),
            max_parked: 1,
            auto_split: true,
            store_patience: PATIENCE,
            seed: 1,
        };
        Self {
            world,
            weather,
            config,
            drain_at: u64::MAX,
            done: Mutex::default(),
            started_without_store: AtomicU64::new(0),
            is_known: AtomicU64::new(0),
            reported: Mutex::default(),
            recovered: Mutex::default(),
            nonces: AtomicU64::new(100),
        }
    }

    fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    fn handle(&self) -> Handle<'_> {
        let store = FaultyStore(self.world.store(), self.weather);
        StoreCoordinator::new(store, StoreConfig::new(self.nonce()))
    }

    fn records(&self) -> Box<dyn Repository + '_> {
        let store = FaultyStore(self.world.store(), self.weather);
        Box::new(StoreRepository::new(store, TENANT, self.nonce()))
    }

    fn process(&self, work: Work<'_>) -> ItemResult {
        self.started_without_store
            .fetch_add(self.is_known.load(Ordering::Relaxed), Ordering::Relaxed);
        if work.key() == key(BAD) {
            return ItemResult::Failed("bad".into());
        }
        *self.done.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
        ItemResult::Done
    }

    /// Runs the worker to its end.
    fn run(self, keys: &MemoryConnector) -> Ran {
        let drain = Drain::new();
        let parts = Parts {
            coordinator: &|| self.handle(),
            connector: keys,
            processor: &|_| {
                Box::new(Inline::new(|work: Work<'_>, _: &mut Vec<u8>| self.process(work)))
                    as Box<dyn Processor>
            },
            records: Some(&|| self.records()),
            clock: self.weather,
            host: &(),
            drain: &drain,
            observer: &self,
        };
        let shared = &WorkerShared::new(&self.config, parts);
        let mut runners: Vec<_> = (0..2).map(|n| Some(ShardRunner::new(shared, n))).collect();
        let mut renewer = Renewer::new(shared);
        let mut handoff = HandoffThread::new(shared);
        let (mut now, mut round_at) = (1, 0);
        while runners.iter().any(Option::is_some) || handoff.is_some() {
            assert!(now < LONGEST, "the worker does not end");
            self.weather.now.store(now, Ordering::Relaxed);
            if now >= self.drain_at {
                drain.ask();
            }
            if now >= round_at {
                self.look();
                round_at = now + renewer.round(at(now));
            }
            for runner in &mut runners {
                self.look();
                if runner.as_mut().is_some_and(|it| matches!(it.step(at(now)), Rest::Over)) {
                    *runner = None;
                }
            }
            if runners.iter().all(Option::is_none) {
                shared.shut_down();
            }
            self.look();
            if handoff.as_mut().is_some_and(|it| matches!(it.step(at(now)), Rest::Over)) {
                handoff = None;
            }
            now += TICK;
        }
        let end = shared.ended();
        drop((runners, renewer, handoff));
        Ran {
            end,
            at: now,
            calls: self.weather.calls.load(Ordering::Relaxed),
            done: self.done.into_inner().unwrap(),
            started_without_store: self.started_without_store.into_inner() as u32,
            reported: self.reported.into_inner().unwrap(),
            recovered: self.recovered.into_inner().unwrap(),
        }
    }

    /// Notes before a step whether the store is known to fail.
    fn look(&self) {
        let has_failed = self.weather.failures.load(Ordering::Relaxed) > 0;
        let is_known = has_failed && self.weather.is_bad();
        self.is_known.store(is_known.into(), Ordering::Relaxed);
    }
}

impl Observer for Scene<'_> {
    fn observe(&self, event: Event<'_>) {
        let now = self.weather.now.load(Ordering::Relaxed);
        match event {
            Event::StoreUnusable { patience, .. } => {
                self.reported.lock().unwrap().push((now, patience));
            }
            Event::StoreUsable { after } => self.recovered.lock().unwrap().push((now, after)),
            _ => {}
        }
    }
}

fn roots(lease: u64) -> World {
    World::lasting(lease, &[(b"a", b"k008"), (b"k008", b"z")])
}

/// Runs a worker through an outage that begins with call number `from_call`.
fn through(kind: Kind, from_call: u64, ticks: Option<u64>) -> (World, Ran) {
    let (world, weather) = (roots(LEASE), Weather::new(kind, from_call, ticks));
    let ran = Scene::new(&world, &weather).run(&numbered(KEYS));
    (world, ran)
}

/// Counts the calls of a worker without an outage.
fn calls() -> u64 {
    let (_, ran) = through(Kind::Full, u64::MAX, None);
    assert_eq!(ran.end, Ok(Finish::Incomplete { parked: 1, damaged: 0 }));
    ran.calls
}

/// Claims, checkpoints, renewals, splits, parks, completions, heartbeats, searches for handoffs and
/// the end of the run: whichever call meets the outage first, the worker waits it out and finishes,
/// and no item is started or repeated meanwhile.
#[rstest]
#[case::full(Kind::Full)]
#[case::unreachable(Kind::Unreachable)]
#[case::replies_lost(Kind::RepliesLost)]
fn whichever_call_meets_an_outage_the_worker_waits_and_finishes(#[case] kind: Kind) {
    for from_call in 0..calls() {
        let (mut world, ran) = through(kind, from_call, Some(OUTAGE));
        let seen = || format!("from call {from_call}: {ran:?}");
        assert_eq!(ran.end, Ok(Finish::Incomplete { parked: 1, damaged: 0 }), "{}", seen());
        assert_eq!(ran.started_without_store, 0, "{}", seen());
        assert_eq!(ran.done.len(), KEYS - 1, "{}", seen());
        assert!(ran.done.values().all(|times| *times == 1), "{}", seen());
        let covered: u64 = world.rows().iter().map(|row| counted(row).0).sum();
        assert_eq!(covered as usize, KEYS - 1, "{}", seen());
    }
}

/// Most outages are met by a write before they end; those are reported once, with their end.
#[rstest]
#[case::full(Kind::Full)]
#[case::unreachable(Kind::Unreachable)]
fn an_outage_and_its_end_are_reported_once(#[case] kind: Kind) {
    let (_, ran) = through(kind, 20, Some(OUTAGE));
    let ([(reported, patience)], [(recovered, after)]) = (&ran.reported[..], &ran.recovered[..])
    else {
        panic!("{ran:?}")
    };
    let waited = PATIENCE - u64::try_from(patience.as_millis()).unwrap();
    assert!((1_000..OUTAGE).contains(&waited), "announced after {waited} ticks");
    assert!(after.as_millis() >= u128::from(OUTAGE) && recovered > reported, "{ran:?}");
}

#[rstest]
#[case::full(Kind::Full)]
#[case::unreachable(Kind::Unreachable)]
#[case::replies_lost(Kind::RepliesLost)]
fn the_worker_stops_when_its_patience_is_used_up(#[case] kind: Kind) {
    let (_, ran) = through(kind, 20, None);
    let Err(RunWorkerError::StoreUnusable { error, waited }) = &ran.end else { panic!("{ran:?}") };
    let waited = waited.as_millis() as u64;
    // A failure is noticed at the next retry.
    assert!((PATIENCE..=PATIENCE + 5_000).contains(&waited), "{waited} ticks");
    assert!(error.is_retryable() && ran.started_without_store == 0, "{ran:?}");
    assert_eq!((ran.reported.len(), ran.recovered.len()), (1, 0));
    // The store is used at intervals of up to five seconds by each of four parts.
    assert!(ran.calls < PATIENCE / 2_500 * 40, "{} calls", ran.calls);
}

/// The leases have expired, so shards are claimed again, and items since their last checkpoints are
/// processed again; no more than that.
#[rstest]
#[case::full(Kind::Full)]
#[case::unreachable(Kind::Unreachable)]
fn an_outage_beyond_the_leases_repeats_no_checkpointed_item(#[case] kind: Kind) {
    for from_call in 0..calls() {
        let (world, weather) = (roots(1_000), Weather::new(kind, from_call, Some(OUTAGE)));
        let mut scene = Scene::new(&world, &weather);
        scene.config.lease_ticks = 1_000;
        let ran = scene.run(&numbered(KEYS));
        assert_eq!(
            ran.end,
            Ok(Finish::Incomplete { parked: 1, damaged: 0 }),
            "{from_call}: {ran:?}"
        );
        assert_eq!(ran.done.len(), KEYS - 1, "{from_call}: {ran:?}");
        let repeated = ran.done.values().map(|times| times - 1).sum::<u32>();
        // Two runners, three items between two checkpoints, and one page of items after a failed
        // one.
        assert!(repeated <= 2 * 3 + 2, "{from_call}: {ran:?}");
    }
}

/// A drain does not wait for the end of an outage, and says that progress is not stored.
#[rstest]
#[case::full(Kind::Full)]
#[case::unreachable(Kind::Unreachable)]
fn a_drain_during_an_outage_ends_at_once(#[case] kind: Kind) {
    for from_call in 6..26 {
        let (world, weather) = (roots(LEASE), Weather::new(kind, from_call, None));
        let mut scene = Scene::new(&world, &weather);
        scene.drain_at = 20_000;
        let ran = scene.run(&numbered(KEYS));
        assert_eq!(ran.end, Ok(Finish::DrainedUnsaved), "{from_call}: {ran:?}");
        assert!(ran.at <= 20_000 + 10 * TICK, "{from_call}: ended at {}", ran.at);
        assert_eq!(ran.started_without_store, 0, "{from_call}: {ran:?}");
    }
}

/// A drain retries for a moment: most outages are short.
#[test]
fn a_drain_waits_out_a_short_outage_and_releases_its_shards() {
    for from_call in 10..30 {
        let (world, weather) =
            (roots(LEASE), Weather::new(Kind::Unreachable, from_call, Some(500)));
        let mut scene = Scene::new(&world, &weather);
        scene.drain_at = 60;
        let ran = scene.run(&numbered(KEYS));
        let ended = matches!(ran.end, Ok(Finish::Drained | Finish::Incomplete { .. }));
        assert!(ended, "{from_call}: {ran:?}");
        let mut world = world;
        let covered: u64 = world.rows().iter().map(|row| counted(row).0).sum();
        assert!(world.rows().iter().all(|row| !row.leased), "{from_call}: {ran:?}");
        assert_eq!(covered as usize, ran.done.len(), "{from_call}: {ran:?}");
    }
}

#[test]
fn a_refusal_that_does_not_pass_is_not_waited_for() {
    let (_, ran) = through(Kind::ReadOnly, 20, None);
    let Err(RunWorkerError::Store(error)) = &ran.end else { panic!("{ran:?}") };
    assert!(!error.is_retryable());
    assert!(ran.at < 2_000 && ran.reported.is_empty(), "{ran:?}");
}

#[test]
fn without_patience_the_first_failure_ends_the_worker() {
    let (world, weather) = (roots(LEASE), Weather::new(Kind::Full, 20, None));
    let mut scene = Scene::new(&world, &weather);
    scene.config.store_patience = 0;
    let ran = scene.run(&numbered(KEYS));
    assert!(matches!(ran.end, Err(RunWorkerError::StoreUnusable { .. })), "{ran:?}");
    assert!(ran.at < 5_000, "{ran:?}");
}
