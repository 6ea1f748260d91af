//! Keys that kill the process of all threads, in virtual time: the threads of one worker are
//! stepped in an order drawn from a seed, and when one of them dies all of them do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{ParkReason, ShardStatus};
use gossip_testkit::Rng;
use rstest::rstest;

use super::{Drain, Finish, Parts, Renewer, Rest, ShardRunner, WorkerConfig, WorkerShared};
use crate::clock::Clock;
use crate::processor::{Broken, ItemResult, Processor, Report, Work};
use crate::task::TaskConfig;
use crate::test_support::{RUN, TENANT, World, at, counted, key, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 300;
const KEYS: usize = 400;
/// As the run of [`World`] says.
const RETRIES: u32 = 3;
/// Steps within which a process ends, by far.
const MAX_STEPS: usize = 200_000;

struct Time(AtomicU64);

impl Clock for Time {
    fn now(&self) -> LogicalTime {
        at(self.0.load(Ordering::SeqCst))
    }
}

/// Takes a while for each item, in steps; a poisoned one kills when its while is over.
struct Deadly<'k> {
    killers: &'k [usize],
    killed: &'k AtomicBool,
    rng: Rng,
    under_way: VecDeque<(usize, u64, bool)>,
}

impl Processor for Deadly<'_> {
    fn capacity(&self) -> usize {
        4
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let deadly = self.killers.iter().any(|number| work.key() == key(*number));
        self.under_way.push_back((work.ticket, self.rng.below(4), deadly));
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let Some((ticket, left, deadly)) = self.under_way.front_mut() else { return Ok(()) };
        if *left > 0 {
            *left -= 1;
        } else if *deadly {
            self.killed.store(true, Ordering::SeqCst);
        } else {
            reports.push(Report { ticket: *ticket, result: ItemResult::Done });
            self.under_way.pop_front();
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.under_way.clear();
    }
}

fn config(threads: usize, seed: u64) -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WorkerId::from_raw(1),
        lease_ticks: LEASE,
        threads,
        task: TaskConfig {
            checkpoint_items: 20,
            shard_retries: Some(RETRIES),
            ..TaskConfig::default()
        },
        limits: Limits::default(),
        max_parked: KEYS,
        auto_split: false,
        store_patience: 60_000,
        seed,
    }
}

/// One life of the process: how it ended, or `None` if it was killed.
fn live(
    world: &World,
    threads: usize,
    killers: &[usize],
    rng: &mut Rng,
    time: &Time,
) -> Option<Finish> {
    let (killed, drain, connector) = (AtomicBool::new(false), Drain::new(), numbered(KEYS));
    let seed = rng.next_u64();
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &connector,
        processor: &|number| {
            let rng = Rng::seeded(seed.wrapping_add(number as u64));
            Box::new(Deadly { killers, killed: &killed, rng, under_way: VecDeque::new() })
        },
        records: None,
        clock: time,
        host: &(),
        drain: &drain,
        observer: &(),
    };
    let shared = WorkerShared::new(&config(threads, seed), parts);
    let mut runners: Vec<_> =
        (0..threads).map(|number| ShardRunner::new(&shared, number)).collect();
    let mut renewer = Renewer::new(&shared);
    let mut renew_at = time.now();
    for _ in 0..MAX_STEPS {
        if time.now() >= renew_at {
            renew_at = time.now().saturating_add(renewer.round(time.now()));
        }
        let chosen = rng.index(threads);
        if let Rest::No | Rest::Over = runners[chosen].step(time.now()) {
            // Something was done: most things take no time worth mentioning.
            time.0.fetch_add(rng.below(2), Ordering::SeqCst);
        } else {
            time.0.fetch_add(rng.below(8), Ordering::SeqCst);
        }
        if killed.load(Ordering::SeqCst) {
            return None;
        }
        if shared.has_ended() {
            return shared.end.lock().unwrap().clone().map(|end| end.expect("no error"));
        }
    }
    panic!("the process does not end");
}

/// Starts the process again and again: its crashes.
fn survive(world: &mut World, threads: usize, killers: &[usize], seed: u64) -> usize {
    let (mut rng, mut crashes) = (Rng::seeded(seed), 0);
    let time = Time(AtomicU64::new(1));
    let bound = killers.len() * (KEYS.ilog2() as usize + 8);
    loop {
        match live(world, threads, killers, &mut rng, &time) {
            Some(finish) => {
                let parked = killers.len() as u64;
                assert_eq!(finish, Finish::Incomplete { parked, damaged: 0 });
                world.now = time.now().as_raw();
                return crashes;
            }
            None => {
                crashes += 1;
                assert!(crashes <= bound, "{crashes} crashes for {} killers", killers.len());
                // A supervisor starts it again, sooner or later.
                time.0.fetch_add(rng.below(2 * LEASE), Ordering::SeqCst);
            }
        }
    }
}

#[rstest]
#[case::spread(&[57, 133, 222, 391])]
#[case::neighbours(&[100, 101, 102])]
#[case::first_of_their_shards(&[0, 50, 100, 150, 200, 250, 300, 350])]
#[case::one(&[399])]
fn keys_that_kill_a_process_of_many_threads_are_parked_alone(
    #[case] killers: &[usize],
    #[values(1, 2, 4)] threads: usize,
    #[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64,
) {
    let cuts: Vec<Vec<u8>> = (1..8).map(|part| key(part * 50)).collect();
    let mut roots: Vec<(&[u8], &[u8])> = vec![(b"a", &cuts[0])];
    roots.extend(cuts.windows(2).map(|pair| (pair[0].as_slice(), pair[1].as_slice())));
    roots.push((&cuts[6], b"z"));
    let mut world = World::lasting(LEASE, &roots);
    survive(&mut world, threads, killers, seed);
    let rows = world.rows();
    let parked = rows.iter().filter(|row| row.status == ShardStatus::Parked);
    assert!(parked.clone().all(|row| row.park_reason == Some(ParkReason::TooManyErrors)));
    assert_eq!(parked.count(), killers.len());
    let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
    assert_eq!(covered, (KEYS - killers.len()) as u64, "everything else is done");
}
