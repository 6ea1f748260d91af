//! Registrars, an administrator and a collector of one run, interleaved at every step to the store,
//! which loses replies and requests, fails, and delays requests long after it reported an unknown
//! outcome.
//!
//! The oracle checks the count after every step: stored plus reserved shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId};
use gossip_testkit::Rng;

use super::core::Core;
use super::{
    Answer, CommitOutcome, Fault, Flight, Key, KeyKind, KeyRange, MapStore, Read, Reply, Step,
    Store, StoreConfig, StoreCoordinator, StoreLimits, Txn, decode_count, decode_run_head, gc,
    purge, run_flight,
};
use crate::protocol::{DeleteRun, RegisterShards, RunTransition, RunTransitionKind};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([9; 32]);
const RUN: RunId = RunId::from_raw(2);
const SHARDS: u32 = 12;
/// So small that a chunk holds five shards.
const SMALL: StoreLimits = StoreLimits { txn_ops: 20, txn_bytes: 1 << 20, page: 4 };
/// So short that a collector meets incomplete registrations.
const STALE_AFTER: u64 = 4;
/// How often an actor tries again when the store failed it.
const ROUNDS: usize = 3;
/// Number of interleavings.
const SEEDS: u64 = 2_000;

type Clock = Arc<AtomicU64>;

fn now(clock: &Clock) -> LogicalTime {
    LogicalTime::from_raw(clock.load(Ordering::Relaxed))
}

fn bounds() -> Vec<[u8; 4]> {
    (0..=SHARDS).map(|bound| (bound + 1).to_be_bytes()).collect()
}

fn roots(bounds: &[[u8; 4]]) -> Vec<InitialShardInput<'_>> {
    let pairs = bounds.windows(2).zip(0..);
    pairs
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect()
}

fn register(core: &mut Core, clock: Clock, op: u64) -> Flight<'_, bool> {
    Flight::new(move |io| async move {
        let bounds = bounds();
        let shards = &roots(&bounds)[..];
        let op_id = OpId::from_raw(op);
        for _ in 0..ROUNDS {
            let asked = RegisterShards { tenant: TENANT, run: RUN, shards, op_id };
            match run_flight::fly(core, &io, now(&clock), &asked, false).await {
                Err(RegisterShardsError::BackendError(error)) => assert!(error.is_retryable()),
                result => return result.is_ok(),
            }
        }
        false
    })
}

/// Cancels and deletes, perhaps before the run is registered.
fn end(core: &mut Core, clock: Clock) -> Flight<'_, bool> {
    Flight::new(move |io| async move {
        let (tenant, run, kind) = (TENANT, RUN, RunTransitionKind::Cancel);
        for _ in 0..ROUNDS {
            let op_id = OpId::from_raw(8);
            let cancel = RunTransition { tenant, run, kind, op_id };
            let _ = run_flight::fly(core, &io, now(&clock), &cancel, false).await;
            let delete = DeleteRun { tenant, run, op_id: OpId::from_raw(9) };
            let deleted = run_flight::fly(core, &io, now(&clock), &delete, false).await;
            if deleted.is_ok() && purge::purge(core, &io, tenant, run).await.is_ok() {
                return true;
            }
        }
        false
    })
}

fn collect(core: &mut Core, clock: Clock) -> Flight<'_, bool> {
    Flight::new(move |io| async move {
        let mut gone = Vec::new();
        for _ in 0..4 * ROUNDS {
            let stale = (TENANT, STALE_AFTER);
            let _ = gc::collect(core, &io, now(&clock), stale, 1, &mut gone).await;
        }
        assert!(gone.len() <= 1, "one run is collected once");
        !gone.is_empty()
    })
}

/// The count, and what it counts: shards that are stored, and shards that are reserved.
fn check_counts(store: &mut MapStore, seed: u64) {
    let reads = vec![
        Read::Get(Key::RunHead { tenant: TENANT, run: RUN }),
        Read::Count(KeyRange::hot_shards_of(TENANT, RUN)),
        Read::Get(Key::TenantCounter { tenant: TENANT }),
    ];
    let answers = store.read(reads).unwrap();
    let [Answer::Value(head), Answer::Count(stored), Answer::Value(counter)] = &answers[..] else {
        panic!("{answers:?}")
    };
    let reserved = head.as_ref().map_or(0, |head| {
        let roots = decode_run_head(TENANT, RUN, &head.bytes).unwrap().roots();
        u64::from(roots.total - roots.registered)
    });
    let count = counter.as_ref().map_or(0, |value| decode_count(TENANT, &value.bytes).unwrap());
    assert_eq!(count, stored + reserved, "seed {seed}: counts are exact at every moment");
}

/// An actor with its flight.
struct Actor<'f> {
    store: MapStore,
    flight: Flight<'f, bool>,
    result: Option<bool>,
}

impl Actor<'_> {
    /// Performs a step. Delayed requests are added to `late`.
    fn advance(&mut self, rng: &mut Rng, late: &mut Vec<(MapStore, Txn)>) {
        let reply = match self.flight.step() {
            Step::Read(reads) => Reply::Read(self.store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(mut txns) => {
                let chance = rng.below(16);
                let fault = match chance {
                    0 | 1 => Fault::LoseReply,
                    2 => Fault::LoseRequest,
                    3 => Fault::Conflict,
                    4 => Fault::Fail,
                    _ => Fault::None,
                };
                if (5..8).contains(&chance) {
                    late.push((self.store.clone(), txns.remove(0)));
                    Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
                } else {
                    self.store.inject(fault);
                    Reply::Committed(self.store.commit(txns))
                }
            }
            Step::Done(result) => {
                self.result = Some(result);
                return;
            }
        };
        self.flight.answer(reply);
    }
}

/// What happened in all interleavings.
#[derive(Debug, Default)]
struct Tally {
    registered: u64,
    ended: u64,
    collected: u64,
    late: u64,
}

fn run_interleaving(seed: u64, tally: &mut Tally) {
    let store = MapStore::with_limits(SMALL);
    let mut admin = StoreCoordinator::new(store.another_handle(), StoreConfig::new(1));
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    admin.create_run(LogicalTime::from_raw(1), TENANT, RUN, config).unwrap();
    let (clock, mut rng) = (Clock::new(AtomicU64::new(1)), Rng::seeded(seed));
    let mut cores: Vec<_> = (2..6).map(|nonce| Core::new(StoreConfig::new(nonce), SMALL)).collect();
    let [one, two, ender, collector] = &mut cores[..] else { panic!("four actors") };
    let mut flights = vec![register(one, clock.clone(), 1), register(two, clock.clone(), 2)];
    // Some interleavings have no end, so that registrations get through.
    match seed % 3 {
        0 => flights.push(end(ender, clock.clone())),
        1 => flights.push(collect(collector, clock.clone())),
        _ => {}
    }
    let actor = |flight| Actor { store: store.another_handle(), flight, result: None };
    let mut actors: Vec<_> = flights.into_iter().map(actor).collect();
    let (mut late, mut reader) = (Vec::new(), store.another_handle());
    while actors.iter().any(|actor| actor.result.is_none()) {
        clock.fetch_add(rng.below(3), Ordering::Relaxed);
        let chosen = rng.index(actors.len());
        if actors[chosen].result.is_none() {
            actors[chosen].advance(&mut rng, &mut late);
        }
        if !late.is_empty() && rng.below(8) == 0 {
            let first = rng.index(late.len());
            arrive(late.swap_remove(first), tally);
        }
        check_counts(&mut reader, seed);
    }
    late.into_iter().for_each(|late| arrive(late, tally));
    check_counts(&mut reader, seed);
    tally.registered += u64::from(actors[0].result == Some(true) || actors[1].result == Some(true));
    let last = actors.get(2).and_then(|actor| actor.result) == Some(true);
    let which = if seed.is_multiple_of(3) { &mut tally.ended } else { &mut tally.collected };
    *which += u64::from(last);
    settle(seed, &mut admin);
}

fn arrive((mut store, txn): (MapStore, Txn), tally: &mut Tally) {
    let outcome = store.commit(vec![txn]).remove(0);
    tally.late += u64::from(matches!(outcome, Ok(CommitOutcome::Applied { .. })));
}

/// Checks that the run can be deleted in any state, and that nothing is left then.
fn settle(seed: u64, admin: &mut StoreCoordinator<MapStore>) {
    let later = LogicalTime::from_raw(1 << 40);
    let _ = admin.cancel_run(later, TENANT, RUN, OpId::from_raw(20));
    admin.delete_run(later, TENANT, RUN, OpId::from_raw(21)).unwrap();
    check_counts(admin.store_mut(), seed);
    let kind = |(key, _): &(Vec<u8>, Vec<u8>)| Key::parse(key).unwrap().kind();
    let mut kinds: Vec<_> = admin.store().dump().iter().map(kind).collect();
    kinds.retain(|kind| *kind != KeyKind::TenantCounter);
    assert_eq!(kinds, [KeyKind::Tombstone], "seed {seed}");
}

#[test]
fn counts_are_exact_under_races_and_delayed_requests() {
    let mut tally = Tally::default();
    (1..=SEEDS).for_each(|seed| run_interleaving(seed, &mut tally));
    println!("{tally:?}");
    let Tally { registered, ended, collected, late } = tally;
    assert!(registered > 800 && ended > 200 && collected > 100 && late > 500, "{tally:?}");
}
