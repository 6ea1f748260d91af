//! The layout of a world, derived from a seed.

use gossip_sim::{FaultKind, FaultSet, FaultyDisk, Nature, Stream};

use gossip_scanner_runtime::TaskConfig;

use super::Plan;

/// The most slots of all processes together.
const WORKERS_MAX: u64 = 8;

/// The most slots of one process.
const SLOTS_MAX: u64 = 3;

/// Layout of a world.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) nature: Nature,
    /// Slots of each process.
    pub(super) processes: Vec<usize>,
    pub(super) keys: usize,
    /// First shards.
    pub(super) roots: usize,
    /// Items of one page of a listing.
    pub(super) page: usize,
    /// Items at once for each slot.
    pub(super) capacity: usize,
    /// Ticks of an ordinary key, at most.
    pub(super) cost: u64,
    /// Keys that always fail, and keys that kill their process.
    pub(super) failing: usize,
    pub(super) killing: usize,
    pub(super) task: TaskConfig,
    pub(super) auto_split: bool,
    /// The rate limit of each process. A shard that waits for it was claimed and has not started
    /// any key.
    pub(super) items_per_second: Option<u64>,
    /// Whether shards are handed off between workers; otherwise a drain releases them.
    pub(super) moves: bool,
    /// When faults and administrators stop.
    pub(super) rough_ticks: u64,
}

impl Setting {
    /// Returns the layout of a plan. All parameters vary, so that one layout reveals bugs that
    /// another hides.
    pub(super) fn of(plan: &Plan) -> Self {
        let mut stream = Stream::named(plan.seed, "setting", 0);
        let draw = &mut stream;
        let lease = [1_000, 2_500, 6_000][draw.below(3) as usize];
        let retries = 1 + draw.below(4) as u32;
        let task = TaskConfig {
            checkpoint_items: 1 + draw.below(16),
            checkpoint_ticks: [50, 200, 1_000][draw.below(3) as usize],
            item_tries: 2 + draw.below(3) as u32,
            retry_longest: 1_000,
            shard_retries: Some(retries),
            ..TaskConfig::default()
        };
        let mut setting = Self {
            processes: processes(draw),
            keys: draw.between(12, 160) as usize,
            roots: draw.between(1, 4) as usize,
            page: draw.between(2, 16) as usize,
            capacity: draw.between(1, 4) as usize,
            cost: [10, 60, 300][draw.below(3) as usize],
            failing: if draw.one_in(2) { 0 } else { draw.between(1, 3) as usize },
            killing: if draw.one_in(5) { draw.between(1, 2) as usize } else { 0 },
            auto_split: !draw.one_in(4),
            moves: !draw.one_in(8),
            rough_ticks: draw.between(1_000, 20_000),
            items_per_second: None,
            task,
            nature: Nature {
                seed: plan.seed,
                roughness: [0, 1, 2, 4, 10][draw.below(5) as usize],
                binds: draw.one_in(2),
                faults: swarm(draw),
                lease,
            },
        };
        // The worlds are small; the default would make two parts in all of them.
        setting.task.many_parts_from = [4, 16, 64][draw.below(3) as usize];
        setting.items_per_second = [None, None, Some(2), Some(8)][draw.below(4) as usize];
        setting
    }
}

/// Each kind is there in four worlds of five.
fn swarm(draw: &mut Stream) -> FaultSet {
    FaultyDisk::KINDS.iter().fold(FaultSet::NONE, |set: FaultSet, kind: &FaultKind| {
        if draw.one_in(5) { set } else { set.with(*kind) }
    })
}

/// From one process with one slot to eight of them.
fn processes(draw: &mut Stream) -> Vec<usize> {
    let (mut left, mut processes) = (draw.between(1, WORKERS_MAX), Vec::new());
    while left > 0 {
        let slots = draw.between(1, SLOTS_MAX.min(left));
        processes.push(slots as usize);
        left -= slots;
    }
    processes
}
