//! The speed of the coordinator in memory, beside the least that its work can cost.
//!
//! Machines are shared and differ, so only ratios count, and both sides of a ratio are measured in
//! one run: in turns, a round of one and a round of the other, and the median of the ratios.
//! Every operation is accepted; a refused one stops the benchmark.
//!
//! `cargo bench -p gossip-coordination --bench coordination`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no users")]

mod limit_loop;
mod support;

use std::hint::black_box;
use std::time::Instant;

use gossip_contracts::coordination::{CursorUpdate, MAX_INITIAL_SHARDS};
use gossip_contracts::identity::{OpId, RunId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InMemoryCoordinator, Lease, ShardClaiming,
};
use gossip_testkit::Rng;

use self::limit_loop::{BLOCK, HASH_KEY, LimitLoop, Snapshot};
use self::support::{CURSOR_LEN, LEASE, TENANT, WORKER, acquire, at, cursor_key, key_of};

/// Shards in the large table.
const MANY: usize = 1_000_000;
/// Shards that are hot.
const HOT: usize = 1_000;
/// Rounds of each side.
const ROUNDS: usize = 1_001;
/// Operations in a round: few, so that a round mostly ends before the scheduler switches.
const OPS: usize = 500;
/// Operations ahead of a round on hot shards, enough to bring all of them into the caches.
const WARM_UP: usize = 3_000;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("median ns per operation, ours / limit, and the median of the ratios");
    let block = bare_block();
    println!("one bare keyed BLAKE3 block: {block:.0} ns");
    let mut scratch = Box::new(AcquireScratch::new());
    if wanted("acquire") || wanted("checkpoint") || wanted("renew") {
        let mut bench = Bench::new();
        if wanted("acquire") {
            bench.acquires(block, &mut scratch);
        }
        bench.take_all(&mut scratch);
        if wanted("checkpoint") {
            bench.checkpoints(block);
        }
        if wanted("renew") {
            bench.renewals();
        }
    }
    if wanted("claim") {
        claims(&mut scratch);
    }
}

/// Whether `section` is asked for: all are, unless some are named.
fn wanted(section: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|name| !name.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == section)
}

/// Nanoseconds of hashing one block under a key.
fn bare_block() -> f64 {
    let mut input = [7; BLOCK];
    let mut round = || {
        nanos(OPS, || {
            for index in 0..OPS {
                input[0] = index as u8;
                // Otherwise the compiler drops a hash that nothing reads.
                black_box(blake3::keyed_hash(black_box(&HASH_KEY), black_box(&input)));
            }
        })
    };
    median((0..ROUNDS).map(|_| round()).collect())
}

/// Both sides with the same shards.
struct Bench {
    ours: InMemoryCoordinator,
    limit: LimitLoop,
    random: Rng,
    /// Grows with every operation.
    sequence: u64,
    /// Of every shard, once all are taken.
    leases: Vec<Lease>,
    hot: Vec<usize>,
}

/// What one operation of a round needs, gathered beforehand, so that both sides read it in order.
struct Op {
    lease: Lease,
    op_id: OpId,
    cursor: [u8; CURSOR_LEN],
}

impl Bench {
    fn new() -> Self {
        let mut random = Rng::seeded(1);
        let hot = (0..HOT).map(|_| random.index(MANY)).collect();
        let ours = support::idle(MANY);
        let limit = LimitLoop::new(TENANT, MANY, false);
        Self { ours, limit, random, sequence: 1, leases: Vec::new(), hot }
    }

    /// Free shards are acquired and, outside of the measurement, released by both sides, so that
    /// both find the caches alike. No shard comes twice in a round. The limit once has no index,
    /// and once keeps the one that claims need.
    fn acquires(&mut self, block: f64, scratch: &mut AcquireScratch) {
        for indexed in [false, true] {
            let what = if indexed { "acquire, the limit with a claim index" } else { "acquire" };
            // Of hot shards the last pass counts, when they are in the caches again.
            let hot = self.hot.clone();
            let pairs =
                (0..ROUNDS).map(|round| self.acquire_round(round, &hot, 3, indexed, scratch));
            report_limit(what, true, &pairs.collect::<Vec<_>>(), block);
            let pairs = (0..ROUNDS).map(|round| {
                let start = self.random.index(MANY);
                // The step has no divisor in common with the number of shards, so none comes
                // twice.
                let picked: Vec<_> = (0..OPS).map(|step| (start + step * 611_953) % MANY).collect();
                self.acquire_round(round, &picked, 1, indexed, scratch)
            });
            report_limit(what, false, &pairs.collect::<Vec<_>>(), block);
        }
    }

    fn acquire_round(
        &mut self,
        round: usize,
        picked: &[usize],
        passes: usize,
        indexed: bool,
        scratch: &mut AcquireScratch,
    ) -> (f64, f64) {
        let (mut ours, mut limit) = (0.0, 0.0);
        for _ in 0..passes {
            for side in sides(round) {
                match side {
                    Side::Ours => ours = self.acquire_ours(picked, scratch),
                    Side::Limit => limit = self.acquire_limit(picked, indexed),
                }
            }
            self.release_both(indexed);
        }
        (ours, limit)
    }

    fn acquire_ours(&mut self, picked: &[usize], scratch: &mut AcquireScratch) -> f64 {
        let now = self.sequence;
        // A buffer that was written before: a fresh one would cost page faults.
        self.leases.clear();
        // Ahead of the measured part, as on the other side.
        let keys: Vec<_> = picked.iter().map(|index| key_of(*index)).collect();
        nanos(picked.len(), || {
            for key in &keys {
                let got =
                    self.ours.acquire_and_restore_into(at(now), TENANT, *key, WORKER, scratch);
                self.leases.push(got.expect("the shard is free").lease);
            }
        })
    }

    fn acquire_limit(&mut self, picked: &[usize], indexed: bool) -> f64 {
        let mut snapshot = Snapshot { bytes: [0; 192] };
        let keys: Vec<_> = picked.iter().map(|index| key_of(*index)).collect();
        let acquire = if indexed { LimitLoop::acquire_indexed } else { LimitLoop::acquire };
        let now = self.sequence;
        nanos(picked.len(), || {
            for key in &keys {
                let fence = acquire(&mut self.limit, now, TENANT, *key, LEASE, &mut snapshot);
                assert!(fence > 0, "the shard is free");
                black_box(&mut snapshot);
            }
        })
    }

    fn release_both(&mut self, indexed: bool) {
        let now = at(self.sequence);
        for lease in &self.leases {
            self.sequence += 1;
            let op_id = OpId::from_raw(self.sequence);
            self.ours.release(now, TENANT, lease, ReleaseMode::Clean, op_id).expect("held");
            self.limit.release(TENANT, lease.key(), indexed);
        }
    }

    /// Both sides hold every shard from now on, at the same fence.
    fn take_all(&mut self, scratch: &mut AcquireScratch) {
        // The old table is dropped first, so that two large ones never exist at once.
        self.limit = LimitLoop::new(TENANT, 0, true);
        self.ours = support::idle(MANY);
        self.limit = LimitLoop::new(TENANT, MANY, true);
        let now = self.sequence;
        self.leases = (0..MANY).map(|index| acquire(&mut self.ours, now, index, scratch)).collect();
        // Every shard remembers something, as shards at work do.
        for _ in 0..OP_LOG_WARM {
            let all: Vec<usize> = (0..MANY).collect();
            for chunk in all.chunks(50_000) {
                let ops = self.ops(chunk);
                self.checkpoint_ours(&ops);
                self.checkpoint_limit(&ops);
            }
        }
    }

    fn checkpoints(&mut self, block: f64) {
        for hot in [true, false] {
            let mut pairs = Vec::new();
            for round in 0..ROUNDS {
                let (mut ours, mut limit) = (0.0, 0.0);
                let warm_up = self.batch(hot, if hot { WARM_UP } else { 1 });
                let ops = self.batch(hot, OPS);
                for side in sides(round) {
                    for ops in [&warm_up, &ops] {
                        match side {
                            Side::Ours => ours = self.checkpoint_ours(ops),
                            Side::Limit => limit = self.checkpoint_limit(ops),
                        }
                    }
                }
                pairs.push((ours, limit));
            }
            report_limit("checkpoint", hot, &pairs, block);
        }
    }

    fn checkpoint_ours(&mut self, ops: &[Op]) -> f64 {
        let now = at(self.sequence);
        nanos(ops.len(), || {
            for op in ops {
                let cursor = CursorUpdate::with_last_key(&op.cursor);
                let done = self.ours.checkpoint(now, TENANT, &op.lease, cursor, op.op_id);
                assert!(done.expect("accepted").is_executed());
            }
        })
    }

    fn checkpoint_limit(&mut self, ops: &[Op]) -> f64 {
        let now = self.sequence;
        nanos(ops.len(), || {
            for op in ops {
                let done = self.limit.checkpoint(now, TENANT, &op.lease, op.op_id, &op.cursor);
                assert!(done, "accepted");
            }
        })
    }

    /// Ours renew once with a clock that moves, which moves the shards in the deadline index, and
    /// once again at the same instant, which does not touch it.
    fn renewals(&mut self) {
        for hot in [true, false] {
            let (mut pairs, mut indexed) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                let (mut ours, mut limit) = (0.0, 0.0);
                let warm_up = self.batch(hot, if hot { WARM_UP } else { 1 });
                let ops = self.batch(hot, OPS);
                for side in sides(round) {
                    for ops in [&warm_up, &ops] {
                        match side {
                            Side::Ours => ours = self.renew_ours(ops, 1),
                            Side::Limit => limit = self.renew_limit(ops),
                        }
                    }
                }
                pairs.push((ours, limit));
                indexed.push((ours, self.renew_still(hot)));
            }
            report("renew", hot, &pairs);
            report("renew: deadline index kept / untouched", hot, &indexed);
        }
    }

    /// Renews with a clock that moves by `step` between any two calls.
    fn renew_ours(&mut self, ops: &[Op], step: u64) -> f64 {
        let mut now = self.sequence;
        let time = nanos(ops.len(), || {
            for op in ops {
                now += step;
                let renewed = self.ours.renew(at(now), TENANT, &op.lease);
                black_box(renewed.expect("accepted").new_deadline);
            }
        });
        self.sequence = now;
        time
    }

    fn renew_limit(&mut self, ops: &[Op]) -> f64 {
        let now = self.sequence;
        nanos(ops.len(), || {
            for op in ops {
                let deadline = self.limit.renew(now, TENANT, &op.lease, LEASE);
                assert!(deadline > 0, "accepted");
            }
        })
    }

    /// Renewals that find the deadline as it should be. Other shards in between push these out of
    /// the caches, unless they are the hot ones.
    fn renew_still(&mut self, hot: bool) -> f64 {
        let ops = self.batch(hot, OPS);
        self.renew_ours(&ops, 1);
        // All of them again at the last instant: from then on their deadlines stay.
        self.renew_ours(&ops, 0);
        if !hot {
            let others = self.evicting();
            self.renew_ours(&others, 0);
        }
        self.renew_ours(&ops, 0)
    }

    /// Enough shards, far apart, to fill the last cache.
    fn evicting(&mut self) -> Vec<Op> {
        let start = self.random.index(MANY);
        let picked: Vec<_> = (0..50_000).map(|step| (start + step * 19) % MANY).collect();
        self.ops(&picked)
    }

    fn batch(&mut self, hot: bool, count: usize) -> Vec<Op> {
        let picked = self.pick(hot, count);
        self.ops(&picked)
    }

    fn pick(&mut self, hot: bool, count: usize) -> Vec<usize> {
        let Self { random, hot: few, .. } = self;
        let one = |_| if hot { few[random.index(HOT)] } else { random.index(MANY) };
        (0..count).map(one).collect()
    }

    /// Fresh operations on the picked shards; each goes further than all before.
    fn ops(&mut self, picked: &[usize]) -> Vec<Op> {
        let one = |index: &usize| {
            self.sequence += 1;
            Op {
                lease: self.leases[*index].clone(),
                // Spread over the bits as hashed ids are: the log sorts out entries by one byte of
                // them.
                op_id: OpId::from_raw(self.sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                cursor: cursor_key(*index, self.sequence),
            }
        };
        picked.iter().map(one).collect()
    }
}

/// Checkpoints of every shard before anything is measured.
const OP_LOG_WARM: usize = 2;

/// Claims among 10⁴ shards and among 10⁶, in turns: the time must not follow the number.
fn claims(scratch: &mut AcquireScratch) {
    let mut small = support::idle(MAX_INITIAL_SHARDS);
    let mut large = support::idle(MANY);
    let mut sequence = 1;
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        let many = claim_round(&mut large, MANY / MAX_INITIAL_SHARDS, &mut sequence, scratch);
        let few = claim_round(&mut small, 1, &mut sequence, scratch);
        pairs.push((many, few));
    }
    report("claim: among 10^6 / among 10^4", false, &pairs);
}

/// Five hundred claims by workers of many names, run after run; all are given back afterwards.
fn claim_round(
    coordinator: &mut InMemoryCoordinator,
    runs: usize,
    sequence: &mut u64,
    scratch: &mut AcquireScratch,
) -> f64 {
    const CLAIMS: usize = 500;
    let now = at(*sequence);
    // Reserved, so that no growth of the list is measured.
    let mut leases = Vec::with_capacity(CLAIMS);
    let time = nanos(CLAIMS, || {
        for number in 0..CLAIMS {
            let run = RunId::from_raw((number % runs) as u64 + 1);
            let worker = WorkerId::from_raw(number as u64);
            let got = coordinator.claim_next_available(now, TENANT, run, worker, scratch);
            leases.push(got.expect("there is work").lease);
        }
    });
    for lease in &leases {
        *sequence += 1;
        let op_id = OpId::from_raw(*sequence);
        coordinator.release(now, TENANT, lease, ReleaseMode::Clean, op_id).expect("held");
    }
    time
}

#[derive(Clone, Copy)]
enum Side {
    Ours,
    Limit,
}

/// Neither side always finds the caches that the other left.
const fn sides(round: usize) -> [Side; 2] {
    match round % 2 {
        0 => [Side::Ours, Side::Limit],
        _ => [Side::Limit, Side::Ours],
    }
}

fn nanos(count: usize, action: impl FnOnce()) -> f64 {
    let start = Instant::now();
    action();
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Also says how large the limit is itself, so that it cannot be padded without being seen.
fn report_limit(what: &str, hot: bool, pairs: &[(f64, f64)], block: f64) {
    report(what, hot, pairs);
    let limit = median(pairs.iter().map(|(_, limit)| *limit).collect());
    println!("  the limit is {:.2} bare blocks", limit / block);
}

fn report(what: &str, hot: bool, pairs: &[(f64, f64)]) {
    let place = if hot { "1,000 hot" } else { "uniform" };
    let ours = median(pairs.iter().map(|pair| pair.0).collect());
    let other = median(pairs.iter().map(|pair| pair.1).collect());
    let ratio = median(pairs.iter().map(|pair| pair.0 / pair.1).collect());
    println!("{what}, {place}: {ours:.0} / {other:.0} ns = {ratio:.2}");
}
