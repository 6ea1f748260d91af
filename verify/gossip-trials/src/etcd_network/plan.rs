//! The faults of a world, drawn from a seed before it starts.
//!
//! Faults are in three lanes: one changes the leader, one the links of workers, one stops workers.
//! Within a lane one fault follows the other, so at most one member is disturbed at a time and the
//! others are a majority; the lanes overlap.

use std::time::Duration;

use gossip_testkit::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// Packets between the leader and its peers are dropped; workers still reach it.
    LeaderCut,
    /// Packets of its peers do not reach the leader; its own reach them.
    LeaderHearsNothing,
    /// Packets of the leader do not reach its peers; theirs reach it.
    LeaderSendsNothing,
    /// The leader is cut off and connected again, several times a second.
    LeaderFlaps,
    /// `SIGSTOP`, later `SIGCONT`.
    LeaderStopped,
    /// `kill -9`, later restarted with its data.
    LeaderKilled,
    /// Packets between the worker and all members are dropped.
    WorkerCut,
    /// Requests arrive, replies do not.
    RepliesLost,
    /// Requests do not arrive, packets of members do.
    RequestsLost,
    /// The worker is cut off and connected again, several times a second.
    WorkerFlaps,
    /// Every packet to and from the members is delayed.
    WorkerSlow,
    /// `SIGSTOP`, later `SIGCONT`.
    WorkerStopped,
}

impl Fault {
    pub(super) const ALL: [Self; 12] = [
        Self::LeaderCut,
        Self::LeaderHearsNothing,
        Self::LeaderSendsNothing,
        Self::LeaderFlaps,
        Self::LeaderStopped,
        Self::LeaderKilled,
        Self::WorkerCut,
        Self::RepliesLost,
        Self::RequestsLost,
        Self::WorkerFlaps,
        Self::WorkerSlow,
        Self::WorkerStopped,
    ];

    const LEADER_PARTITIONS: [Self; 4] =
        [Self::LeaderCut, Self::LeaderHearsNothing, Self::LeaderSendsNothing, Self::LeaderFlaps];

    const WORKER_PARTITIONS: [Self; 4] =
        [Self::WorkerCut, Self::RepliesLost, Self::RequestsLost, Self::WorkerFlaps];

    pub(super) fn is_partition(self) -> bool {
        Self::LEADER_PARTITIONS.contains(&self) || Self::WORKER_PARTITIONS.contains(&self)
    }

    pub(super) const fn is_pause(self) -> bool {
        matches!(self, Self::LeaderStopped | Self::WorkerStopped)
    }

    /// Whether it disturbs a member, and not one worker.
    pub(super) fn is_of_leader(self) -> bool {
        Self::LEADER_PARTITIONS.contains(&self)
            || matches!(self, Self::LeaderStopped | Self::LeaderKilled)
    }

    /// Whether a worker with this fault reaches no member, or receives no reply.
    pub(super) const fn silences(self) -> bool {
        matches!(
            self,
            Self::WorkerCut | Self::RepliesLost | Self::RequestsLost | Self::WorkerStopped
        )
    }

    /// What happens, for a table.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::LeaderCut => "leader cut off from both peers; workers still reach it",
            Self::LeaderHearsNothing => "leader receives nothing from its peers (one way)",
            Self::LeaderSendsNothing => "peers receive nothing from the leader (one way)",
            Self::LeaderFlaps => "leader's links flap, several cuts a second",
            Self::LeaderStopped => "leader stopped (`SIGSTOP`)",
            Self::LeaderKilled => "leader killed (`kill -9`), restarted with its data",
            Self::WorkerCut => "worker cut off from all members",
            Self::RepliesLost => "worker's requests arrive, replies do not (one way)",
            Self::RequestsLost => "worker's requests do not arrive (one way)",
            Self::WorkerFlaps => "worker's links flap, several cuts a second",
            Self::WorkerSlow => "worker's links slow, 100 ms to 2 s each way",
            Self::WorkerStopped => "worker stopped (`SIGSTOP`)",
        }
    }
}

/// A fault that will be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) fault: Fault,
    /// The worker, if it is a fault of one.
    pub(super) worker: usize,
    pub(super) lasts: Duration,
    /// Time from its end to the next fault of the lane.
    pub(super) gap: Duration,
    /// How much a slow link delays, or the time between two changes of a flapping one.
    pub(super) interval: Duration,
}

/// The faults of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) lanes: [Vec<Planned>; 3],
}

/// How many faults a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) partitions: u64,
    pub(super) pauses: u64,
}

/// How faults are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) workers: usize,
    /// Workers from this one on have links that can be slow.
    pub(super) first_slow: usize,
    /// Short faults only, for a test.
    pub(super) is_short: bool,
}

/// One of so many partitions and pauses is of a leader: a change of it disturbs all workers.
const LEADERS: u64 = 4;
/// Kills, and slow links, for so many other faults of the lane.
const EVERY: usize = 4;

impl Plan {
    /// Draws the faults of one world.
    pub(super) fn draw(rng: &mut Rng, counts: Counts, scale: Scale) -> Self {
        let Counts { partitions, pauses } = counts;
        let [leader_cuts, leader_stops] = [partitions, pauses].map(|count| count.div_ceil(LEADERS));
        let mut draw = |kinds: &[Fault], count: u64| -> Vec<Planned> {
            (0..count).map(|_| planned(rng, kinds, scale)).collect()
        };
        let mut leader = draw(&Fault::LEADER_PARTITIONS, leader_cuts);
        leader.extend(draw(&[Fault::LeaderStopped], leader_stops));
        leader.extend(draw(&[Fault::LeaderKilled], (leader.len() / EVERY).max(1) as u64));
        let mut links = draw(&Fault::WORKER_PARTITIONS, partitions - leader_cuts);
        links.extend(draw(&[Fault::WorkerSlow], (links.len() / EVERY).max(1) as u64));
        let stops = draw(&[Fault::WorkerStopped], pauses - leader_stops);
        let mut lanes = [leader, links, stops];
        lanes.iter_mut().for_each(|lane| shuffle(rng, lane));
        Self { lanes }
    }

    /// Returns the time that the longest lane takes.
    pub(super) fn lasts(&self) -> Duration {
        let lasts = |lane: &Vec<Planned>| lane.iter().map(|it| it.lasts + it.gap).sum();
        self.lanes.iter().map(lasts).max().unwrap_or_default()
    }
}

fn planned(rng: &mut Rng, kinds: &[Fault], scale: Scale) -> Planned {
    let fault = kinds[index(rng, kinds.len())];
    let worker = match fault {
        Fault::WorkerSlow => scale.first_slow + index(rng, scale.workers - scale.first_slow),
        _ => index(rng, scale.workers),
    };
    let mut millis = |from: u64, to: u64| Duration::from_millis(from + rng.below(to - from));
    let (gap, interval) = match fault {
        // A new leader, and the member that comes back, take some seconds; so do renewals.
        _ if fault.is_of_leader() => (millis(3_000, 7_000), millis(60, 200)),
        Fault::WorkerSlow => (millis(300, 1_500), millis(100, 2_000)),
        _ => (millis(300, 1_500), millis(60, 200)),
    };
    let lasts = match (millis(0, 100).as_millis(), fault) {
        _ if scale.is_short => millis(500, 1_500),
        (_, Fault::LeaderFlaps | Fault::WorkerFlaps) => millis(2_000, 8_000),
        (_, Fault::WorkerSlow) => millis(5_000, 15_000),
        (0..60, _) => millis(500, 4_000),
        (60..85, _) => millis(5_000, 10_000),
        // Longer than a lease; for a leader it makes no difference.
        (_, fault) if fault.is_of_leader() => millis(8_000, 14_000),
        _ => millis(16_000, 22_000),
    };
    Planned { fault, worker, lasts, gap, interval }
}

fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).expect("below a length")
}

fn shuffle(rng: &mut Rng, lane: &mut [Planned]) {
    for last in (1..lane.len()).rev() {
        lane.swap(last, index(rng, last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { workers: 6, first_slow: 3, is_short: false };

    fn draw(seed: u64) -> Plan {
        let counts = Counts { partitions: 25, pauses: 20 };
        Plan::draw(&mut Rng::seeded(seed), counts, SCALE)
    }

    #[test]
    fn plan_has_the_ordered_numbers_of_faults() {
        let plan = draw(7);
        let count = |is_it: fn(Fault) -> bool| {
            plan.lanes.iter().flatten().filter(|it| is_it(it.fault)).count()
        };
        assert_eq!(count(Fault::is_partition), 25);
        assert_eq!(count(Fault::is_pause), 20);
        assert!(count(|it| it == Fault::LeaderKilled) > 0);
        assert!(count(|it| it == Fault::WorkerSlow) > 0);
        for Planned { fault, worker, .. } in plan.lanes.iter().flatten() {
            assert!(*worker < SCALE.workers);
            assert!(*fault != Fault::WorkerSlow || *worker >= SCALE.first_slow);
        }
        assert!(plan.lanes[0].iter().all(|it| it.fault.is_of_leader()));
        assert!(!plan.lanes[1].iter().chain(&plan.lanes[2]).any(|it| it.fault.is_of_leader()));
    }

    #[test]
    fn plan_comes_from_its_seed() {
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn many_seeds_draw_every_fault_and_pauses_beyond_a_lease() {
        let all: Vec<Planned> = (0..8).flat_map(|seed| draw(seed).lanes).flatten().collect();
        for fault in Fault::ALL {
            assert!(all.iter().any(|it| it.fault == fault), "{fault:?}");
        }
        let is_long = |it: &&Planned| it.lasts > Duration::from_secs(15);
        assert!(all.iter().filter(is_long).any(|it| it.fault == Fault::WorkerStopped));
        assert!(all.iter().filter(is_long).any(|it| it.fault == Fault::WorkerCut));
    }
}
