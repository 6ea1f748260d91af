//! What claims cost: keys in the ranges they read, and round trips, whatever the size of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_testkit::Rng;

use super::core::{Core, encoded};
use super::index::{move_claim, put_claim};
use super::{
    Answer, CommitOutcome, Flight, Key, KeyRange, MapStore, Read, Reply, Step, Store, StoreConfig,
    StoreCoordinator, StoreLimits, Txn, encode_cold, encode_hot,
};
use crate::lease::{GrantToken, LeaseHolder};
use crate::outcome::CAPACITY_COUNT_MAX;
use crate::protocol::{ClaimCandidates, ReleaseMode, ShardChange, evolve};
use crate::record::{NewShard, ShardRecord, ShardView};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([9; 32]);
const RUN: RunId = RunId::from_raw(2);
const LEASE: u64 = 10_000;
/// When the claims are made.
const NOW: u64 = 50_000;

/// Keys in the ranges that one claim reads: fewer than 400 free shards by name and as many counted,
/// or about 200 expired leases twice, and some 64 live ones twice.
const KEYS_PER_CLAIM_MAX: u64 = 1_000;

/// Scan, load of the shard with the hint, commit; also for the first claim of a handle.
const TRIPS_PER_CLAIM_MAX: u64 = 3;

/// Keys in the ranges that the first claim of a handle reads while shards are free: what a probe
/// finds, then the whole run or what a hint needs up to thirty times over, and the live leases.
const KEYS_PER_FIRST_CLAIM_MAX: u64 = 7_000;

/// Claims that are measured in one state of a run.
const CLAIMS: u64 = 40;

/// A store that counts round trips and the keys that an engine without clever limits looks at.
struct Measured {
    map: MapStore,
    keys: u64,
    trips: u64,
}

impl Measured {
    fn count(&self, range: &KeyRange) -> u64 {
        let count = self.map.another_handle().read(vec![Read::Count(*range)]).unwrap().pop();
        let Some(Answer::Count(count)) = count else { panic!("a count is asked for") };
        count
    }
}

impl Store for Measured {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.trips += 1;
        for read in &reads {
            self.keys += match read {
                Read::Get(_) => 1,
                Read::Scan { range, .. } | Read::Count(range) => self.count(range),
                // Each range is looked at to see whether it is empty, and the last is then read.
                Read::ScanFirst { ranges, .. } => {
                    let counts = ranges.iter().map(|range| self.count(range));
                    2 * counts.into_iter().find(|count| *count > 0).unwrap_or(0)
                }
            };
        }
        self.map.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.trips += 1;
        self.map.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.map.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.map.limits()
    }
}

/// Until when a shard is leased, if it is.
type Deadline<'d> = &'d dyn Fn(u64) -> Option<u64>;

/// Makes a run with one root and index entries of `count` shards more.
fn run_of(count: u64, deadline: Deadline<'_>) -> MapStore {
    let mut store = MapStore::new();
    let mut admin = StoreCoordinator::new(store.another_handle(), StoreConfig::new(1 << 40));
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(count),
        spec: ShardSpecRef::new(b"a", b"b", b""),
        cursor: CursorUpdate::initial(),
    };
    let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
    admin.create_run_with_shards(now, TENANT, RUN, config, &[root], op).unwrap();
    let ids: Vec<u64> = (0..count).collect();
    for chunk in ids.chunks(1_000) {
        let mut txn = Txn::new();
        for id in chunk {
            let at = LogicalTime::from_raw(deadline(*id).unwrap_or(0));
            put_claim(&mut txn, TENANT, ShardKey::new(RUN, ShardId::from_raw(*id)), at);
        }
        assert!(matches!(store.commit(vec![txn])[0], Ok(CommitOutcome::Applied { .. })));
    }
    store
}

/// Writes the records of a shard that so far exists only in the index: a run of many shards is
/// created quickly, and scans see no difference.
fn put_shard(store: &mut MapStore, shard: ShardId, deadline: Option<u64>) {
    let mut core = Core::new(StoreConfig::new(0), StoreLimits::GENEROUS);
    let birth = NewShard {
        shard,
        spec: ShardSpecRef::new(b"a", b"b", b""),
        cursor: CursorUpdate::initial(),
        fence: FenceEpoch::INITIAL,
        attempts: 0,
        cursor_semantics: CursorSemantics::Completed,
        lineage: None,
    };
    let mut record = ShardRecord::new(Arc::new(TENANT), RUN, &birth, &mut core.pool).unwrap();
    let deadline = deadline.map(LogicalTime::from_raw);
    if let Some(deadline) = deadline {
        let token = GrantToken::from_raw(shard.as_raw());
        let holder = LeaseHolder::new(WorkerId::from_raw(77), deadline, token);
        let fence = FenceEpoch::INITIAL.increment();
        let grant = ShardChange::Grant { holder, fence, attempts: 1, handoff: None };
        evolve(&mut record, &mut core.pool, &grant).unwrap();
    }
    let (tenant, shard) = (TENANT, ShardKey::new(RUN, shard));
    let view = ShardView::new(&record, &core.pool);
    let at = deadline.unwrap_or(LogicalTime::ZERO);
    let mut txn = Txn::new();
    txn.expect(Key::ShardHot { tenant, shard }, None);
    txn.put(Key::ShardHot { tenant, shard }, encoded(|out| encode_hot(view, Some(at), out)));
    txn.put(Key::ShardCold { tenant, shard }, encoded(|out| encode_cold(view, out)));
    // The root and shards claimed before already have records.
    store.commit(vec![txn]).pop().unwrap().unwrap();
    record.free(&mut core.pool);
}

/// What the dearest of some claims cost, the first one apart.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    keys: u64,
    trips: u64,
    granted: u64,
    first_keys: u64,
    first_trips: u64,
}

/// Claims of one handle, a tick apart.
fn claims(store: &mut MapStore, deadline: Deadline<'_>) -> Cost {
    let measured = Measured { map: store.another_handle(), keys: 0, trips: 0 };
    let mut handle = StoreCoordinator::new(measured, StoreConfig::new(5 << 40));
    let mut scratch = Box::new(AcquireScratch::new());
    let mut cost = Cost::default();
    for step in 0..=CLAIMS {
        let (now, worker) = (LogicalTime::from_raw(NOW + step), WorkerId::from_raw(1));
        let before = (handle.store().keys, handle.store().trips);
        // What `claim_next_available` does, with a stop at which the records are made.
        let mut found = ClaimCandidates::new();
        let look = handle.probe_candidates_into(now, TENANT, RUN, worker, 32, &mut found);
        look.unwrap();
        let Some(first) = found.first() else { continue };
        put_shard(store, *first, deadline(first.as_raw()));
        let key = ShardKey::new(RUN, *first);
        handle.acquire_and_restore_into(now, TENANT, key, worker, &mut scratch).unwrap();
        cost.granted += 1;
        let keys = handle.store().keys - before.0;
        let trips = handle.store().trips - before.1;
        if step == 0 {
            (cost.first_keys, cost.first_trips) = (keys, trips);
        } else {
            (cost.keys, cost.trips) = (cost.keys.max(keys), cost.trips.max(trips));
        }
    }
    cost
}

/// Claims in runs of several sizes; `deadline` says until when a shard of how many is leased.
fn check(state: &str, deadline: impl Fn(u64, u64) -> Option<u64>) {
    for count in [1, 3, 20, 100, 700, 5_000, 50_000] {
        let deadline = |id| deadline(id, count);
        // The root is free as well.
        let due = 1 + (0..count).filter(|id| deadline(*id).is_none_or(|at| at <= NOW)).count();
        let (due, all_free) = (due as u64, (0..count).all(|id| deadline(id).is_none()));
        let cost = claims(&mut run_of(count, &deadline), &deadline);
        println!("{state}, {count} shards: {cost:?}");
        assert!(cost.keys <= KEYS_PER_CLAIM_MAX, "{state}, {count} shards: {cost:?}");
        assert!(cost.trips <= TRIPS_PER_CLAIM_MAX, "{state}, {count} shards: {cost:?}");
        assert!(cost.first_trips <= TRIPS_PER_CLAIM_MAX, "{state}, {count} shards: {cost:?}");
        assert_eq!(cost.granted, (CLAIMS + 1).min(due), "{state}, {count} shards: {cost:?}");
        if all_free {
            assert!(cost.first_keys <= KEYS_PER_FIRST_CLAIM_MAX, "{state}, {count}: {cost:?}");
        }
    }
}

#[test]
fn a_claim_reads_as_little_of_a_large_run_as_of_a_small_one_while_all_are_free() {
    check("all free", |_, _| None);
}

#[test]
fn a_claim_reads_as_little_of_a_large_run_as_of_a_small_one_while_nearly_all_are_leased() {
    // Owners that renew: deadlines are spread over a third of a lease.
    let spread = |id: u64, count: u64| NOW + 6_000 + id * 3_000 / count;
    check("leased one by one", |id, count| (id >= 60).then(|| spread(id, count)));
    check("leased together", |id, _| (id >= 60).then_some(NOW + LEASE));
}

#[test]
fn a_claim_reads_as_little_of_a_large_run_as_of_a_small_one_when_all_have_expired() {
    check("expired one by one", |id, count| Some(NOW - 6_000 + id * 3_000 / count));
    check("expired together", |_, _| Some(NOW - 100));
}

/// Handles that come to a large run at the same time do not all try the same shards.
#[test]
fn first_scans_of_handles_start_at_different_places() {
    const SHARDS: u64 = 5_000;
    const HANDLES: u64 = 100;
    let store = run_of(SHARDS, &|_| None);
    let mut first = BTreeSet::new();
    for number in 1..=HANDLES {
        let config = StoreConfig::new(number << 40);
        let mut handle = StoreCoordinator::new(store.another_handle(), config);
        let (now, worker) = (LogicalTime::from_raw(NOW), WorkerId::from_raw(1));
        let mut found = ClaimCandidates::new();
        handle.probe_candidates_into(now, TENANT, RUN, worker, 32, &mut found).unwrap();
        assert_eq!(handle.store().read_count(), 1, "one scan");
        first.insert(found[0]);
    }
    // By chance one or two meet.
    assert!(first.len() as u64 >= HANDLES - 5, "{} of {HANDLES}", first.len());
}

/// The first claims of many handles, each without statistics of the run.
#[test]
fn first_claims_of_handles_read_little_in_three_trips() {
    const HANDLES: u64 = 200;
    for count in [100, 2_000, 50_000] {
        let mut store = run_of(count, &|_| None);
        let mut slow = 0;
        for number in 1..=HANDLES {
            let measured = Measured { map: store.another_handle(), keys: 0, trips: 0 };
            let mut handle = StoreCoordinator::new(measured, StoreConfig::new(number << 40));
            let mut scratch = Box::new(AcquireScratch::new());
            let (now, worker) = (LogicalTime::from_raw(NOW), WorkerId::from_raw(1));
            let mut found = ClaimCandidates::new();
            handle.probe_candidates_into(now, TENANT, RUN, worker, 32, &mut found).unwrap();
            put_shard(&mut store, found[0], None);
            let key = ShardKey::new(RUN, found[0]);
            let grant = handle.acquire_and_restore_into(now, TENANT, key, worker, &mut scratch);
            let lease = grant.unwrap().lease;
            slow += u64::from(handle.store().trips > TRIPS_PER_CLAIM_MAX);
            assert!(handle.store().keys <= KEYS_PER_FIRST_CLAIM_MAX, "{}", handle.store().keys);
            let op = OpId::from_raw(number);
            handle.release(now, TENANT, &lease, ReleaseMode::Clean, op).unwrap();
        }
        // One in a thousand by chance.
        assert!(slow <= 1, "{slow} of {HANDLES} with {count} shards");
    }
}

/// While a worker claims occasionally, the lease holders of all other shards keep renewing: the
/// earliest deadlines become the latest.
#[test]
fn a_claim_reads_little_of_a_large_run_while_others_renew() {
    const SHARDS: u64 = 30_000;
    /// Leases are renewed when a third has passed; this many ticks lie between two claims.
    const PAUSE: u64 = 100;
    let free = |id| id < 200;
    let first = NOW + LEASE * 2 / 3;
    let deadline = |id| (!free(id)).then(|| first + id * (LEASE / 3) / SHARDS);
    let mut store = run_of(SHARDS, &deadline);
    let mut all: Standings = (0..SHARDS).map(|id| (id, deadline(id).unwrap_or(0))).collect();
    let measured = Measured { map: store.another_handle(), keys: 0, trips: 0 };
    let mut handle = StoreCoordinator::new(measured, StoreConfig::new(5 << 40));
    let (mut costs, mut renewed) = (Vec::new(), 200);
    for step in 0..CLAIMS {
        let now = NOW + step * PAUSE;
        let before = (handle.store().keys, handle.store().trips);
        let mut found = ClaimCandidates::new();
        let (worker, at) = (WorkerId::from_raw(1), LogicalTime::from_raw(now));
        let look = handle.collect_claim_candidates_into(at, TENANT, RUN, worker, 32, &mut found);
        let next = look.unwrap().earliest_deadline.map(|at| at.as_raw());
        assert_eq!((found.len(), next), (32, truth(&all, now).1), "step {step}");
        costs.push((handle.store().keys - before.0, handle.store().trips - before.1));
        let due = SHARDS * PAUSE / (LEASE / 3);
        shift(&mut store, &mut all, renewed, due, |id| now + PAUSE + LEASE - 1 - (id % PAUSE));
        renewed += due;
        if renewed + due > SHARDS {
            renewed = 200;
        }
    }
    println!("{costs:?}");
    // The first scan has no statistics; later ones detect that the front moves.
    let usual = &costs[3..];
    assert!(usual.iter().all(|(keys, _)| *keys <= KEYS_PER_CLAIM_MAX), "{usual:?}");
    let again = usual.iter().filter(|(_, trips)| *trips > 1).count();
    assert!(again <= usual.len() / 4, "{usual:?}");
}

/// The index time of every shard.
type Standings = BTreeMap<u64, u64>;

/// Moves up to `count` shards from `id` on to the time that `time` gives.
fn shift(
    store: &mut MapStore,
    all: &mut Standings,
    id: u64,
    count: u64,
    time: impl Fn(u64) -> u64,
) {
    let mut txn = Txn::new();
    for (id, at) in all.range_mut(id..id + count) {
        let (shard, next) = (ShardKey::new(RUN, ShardId::from_raw(*id)), time(*id));
        let [from, to] = [*at, next].map(LogicalTime::from_raw);
        move_claim(&mut txn, TENANT, shard, Some(from), Some(to));
        *at = next;
    }
    assert!(matches!(store.commit(vec![txn])[0], Ok(CommitOutcome::Applied { .. })));
}

/// Returns the result of a full scan: claimable shards and the first live deadline.
fn truth(all: &Standings, now: u64) -> (BTreeSet<u64>, Option<u64>) {
    let due = all.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
    (due, all.values().copied().filter(|at| *at > now).min())
}

/// Checks scans of one handle with statistics while the run changes, slightly and substantially.
fn check_scans(seed: u64) {
    const SHARDS: u64 = 3_000;
    let mut all: Standings = (0..=SHARDS).map(|id| (id, 0)).collect();
    let mut store = run_of(SHARDS, &|_| None);
    let mut handle = StoreCoordinator::new(store.another_handle(), StoreConfig::new(seed << 40));
    let mut core = Core::new(StoreConfig::new(seed), StoreLimits::GENEROUS);
    let (mut rng, mut now) = (Rng::seeded(seed), NOW);
    for step in 0..60 {
        now += [0, 1, 50, 5_000][rng.index(4)];
        let (id, count) = (rng.below(SHARDS), [1, 30, 400, SHARDS][rng.index(4)]);
        let (spread, base) = ([1, 40, 4_000][rng.index(3)], now + [0, 1, 9_000][rng.index(3)]);
        match rng.below(3) {
            0 => shift(&mut store, &mut all, id, count, |_| 0),
            1 => shift(&mut store, &mut all, id, count, |id| base + id % spread),
            _ => shift(&mut store, &mut all, id, count, |id| base - 6_000 + id % spread),
        }
        let (due, first) = truth(&all, now);
        let (limit, at, worker) =
            (rng.index(33), LogicalTime::from_raw(now), WorkerId::from_raw(rng.below(9)));
        let mut found = ClaimCandidates::new();
        let look = handle.collect_claim_candidates_into(at, TENANT, RUN, worker, limit, &mut found);
        let next = look.unwrap().earliest_deadline.map(|at| at.as_raw());
        assert_eq!((found.len(), next), (limit.min(due.len()), first), "seed {seed}, step {step}");
        let distinct: BTreeSet<u64> = found.iter().map(|shard| shard.as_raw()).collect();
        assert!(distinct.len() == found.len() && distinct.is_subset(&due), "seed {seed}, {step}");
        check_probe(&store, seed + step, (at, worker, limit), (&due, first));
        let hint = capacity(&mut core, &mut store, at, worker);
        let expected = (due.len().min(CAPACITY_COUNT_MAX), first);
        let returned =
            (hint.available_count as usize, hint.earliest_deadline.map(|at| at.as_raw()));
        assert_eq!(returned, expected, "seed {seed}, step {step}");
    }
}

/// Checks that a handle without statistics finds a claimable shard, or the next deadline.
fn check_probe(
    store: &MapStore,
    nonce: u64,
    (at, worker, limit): (LogicalTime, WorkerId, usize),
    (due, first): (&BTreeSet<u64>, Option<u64>),
) {
    let config = StoreConfig::new((1_000 + nonce) << 40);
    let mut handle = StoreCoordinator::new(store.another_handle(), config);
    let mut found = ClaimCandidates::new();
    let probe = handle.probe_candidates_into(at, TENANT, RUN, worker, limit, &mut found);
    let next = probe.unwrap().earliest_deadline.map(|at| at.as_raw());
    let distinct: BTreeSet<u64> = found.iter().map(|shard| shard.as_raw()).collect();
    assert!(distinct.len() == found.len() && distinct.is_subset(due), "probe {nonce}");
    assert!(found.len() <= limit && found.is_empty() == (limit == 0 || due.is_empty()), "{nonce}");
    assert!(!due.is_empty() || next == first, "probe {nonce}");
}

/// Returns the hint of a renewal.
fn capacity(core: &mut Core, store: &mut MapStore, now: LogicalTime, by: WorkerId) -> CapacityHint {
    let mut flight = Flight::new(move |io| async move {
        super::capacity::capacity(core, &io, now, (TENANT, RUN), by).await
    });
    loop {
        match flight.step() {
            Step::Read(reads) => flight.answer(Reply::Read(store.read(reads))),
            Step::Done(hint) => return hint,
            step @ (Step::Commit(_) | Step::Wait(_)) => panic!("a hint only reads: {step:?}"),
        }
    }
}

#[test]
fn narrow_scan_returns_the_result_of_a_full_scan() {
    (1..=4).for_each(check_scans);
}
