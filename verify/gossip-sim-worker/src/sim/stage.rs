//! What all processes of a world share, and the door of each to it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::store::{RecordCache, StoreConfig, StoreCoordinator};
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::{
    Broken, Clock, Drain, Event, ItemResult, Observer, Processor, Report, Work,
};
use gossip_sim::{FaultKind, FaultyDisk, FaultyStore, Stream, mix};

use super::oracle::{Oracle, Rule};
use super::plan::Setting;
use super::source::{Temper, WorldSource};

pub(super) const TENANT: TenantId = TenantId::from_bytes([9; 32]);
pub(super) const RUN: RunId = RunId::from_raw(1);

/// The number of the administrator, whom nothing happens to.
pub(super) const ADMIN: u32 = u32::MAX;

/// The coordinator of every process.
pub(super) type Coordinator = StoreCoordinator<FaultyStore>;

/// What all processes of a world share.
pub(super) struct Stage {
    pub(super) setting: Setting,
    pub(super) source: Arc<WorldSource>,
    pub(super) disk: FaultyDisk,
    pub(super) oracle: Arc<Mutex<Oracle>>,
    /// The true time.
    pub(super) now: AtomicU64,
    /// How often each key was tried.
    tries: Vec<AtomicU32>,
    nonces: AtomicU64,
    /// What happened, if somebody wants to read it.
    story: Option<Mutex<Vec<String>>>,
}

impl Stage {
    pub(super) fn new(setting: Setting, tells: bool) -> Self {
        let source = Arc::new(WorldSource::of(&setting));
        // What is finished and not recorded: an interval, and the items that were under way when it
        // was full and when its checkpoint was sent.
        let unsaved_max = setting.task.checkpoint_items as usize + 2 * setting.capacity;
        let oracle = Oracle::new(Arc::clone(&source), unsaved_max, setting.nature.seed);
        let (disk, oracle) = (FaultyDisk::new(setting.nature), Arc::new(Mutex::new(oracle)));
        let listener = Arc::clone(&oracle);
        disk.watch(move |txn| {
            listener.lock().unwrap_or_else(PoisonError::into_inner).applied(txn);
        });
        disk.start_spared(ADMIN);
        Self {
            tries: setting_tries(&source),
            setting,
            source,
            disk,
            oracle,
            now: AtomicU64::new(0),
            nonces: AtomicU64::new(0),
            story: tells.then(Mutex::default),
        }
    }

    /// A coordinator of the administrator's.
    pub(super) fn admin(&self) -> Coordinator {
        self.coordinator(ADMIN, &RecordCache::default())
    }

    /// A coordinator of a process whose handles share `memory`.
    fn coordinator(&self, process: u32, memory: &RecordCache) -> Coordinator {
        let max_clock_skew = self.setting.nature.lease / 4;
        let config = StoreConfig { max_clock_skew, ..StoreConfig::new(self.nonce()) };
        StoreCoordinator::sharing(self.disk.store(process), config, memory)
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        if let Some(story) = &self.story {
            let line = format!("{:>7}  {}", self.now.load(Ordering::Relaxed), line());
            story.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    pub(super) fn take_story(&self) -> Vec<String> {
        let story = self.story.as_ref();
        story.map_or_else(Vec::new, |story| {
            std::mem::take(&mut *story.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    fn nonce(&self) -> u64 {
        let number = self.nonces.fetch_add(1, Ordering::Relaxed);
        mix(self.setting.nature.seed ^ mix(number + 1))
    }
}

fn setting_tries(source: &WorldSource) -> Vec<AtomicU32> {
    source.entries.iter().map(|_| AtomicU32::new(0)).collect()
}

/// What one process has of the stage: its clock, its ears, and how it is told to drain.
pub(super) struct Door<'w> {
    pub(super) stage: &'w Stage,
    pub(super) process: u32,
    /// Of all handles of the process.
    memory: RecordCache,
    pub(super) drain: Drain,
    /// The time by its own clock that the step under way was given.
    pub(super) stepping_at: AtomicU64,
    /// When the first item of each slot is finished; the largest number if none is under way.
    pub(super) ready: Vec<AtomicU64>,
}

impl<'w> Door<'w> {
    pub(super) fn new(stage: &'w Stage, process: u32) -> Self {
        let slots = stage.setting.processes.iter().max().copied().unwrap_or(1);
        Self {
            stage,
            process,
            memory: RecordCache::default(),
            drain: Drain::new(),
            stepping_at: AtomicU64::new(0),
            ready: (0..slots).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    pub(super) fn coordinator(&self) -> Coordinator {
        self.stage.coordinator(self.process, &self.memory)
    }

    pub(super) fn desk(&'w self, slot: usize) -> Box<dyn Processor + 'w> {
        let number = u64::from(self.process) << 8 | slot as u64;
        let luck = Stream::named(self.stage.setting.nature.seed, "desk", number);
        Box::new(Desk { door: self, slot, luck, under_way: Vec::new() })
    }

    pub(super) fn records(&self) -> Box<dyn Repository> {
        let store = self.stage.disk.store(self.process);
        Box::new(StoreRepository::new(store, TENANT, self.stage.nonce()))
    }
}

impl Clock for Door<'_> {
    fn now(&self) -> LogicalTime {
        self.stage.disk.clock(self.process)
    }
}

impl Observer for Door<'_> {
    fn observe(&self, event: Event<'_>) {
        let process = self.process;
        match event {
            Event::Refused { shard, error } => {
                let shard = shard.shard().as_raw();
                self.stage.oracle().require(false, Rule::Nonsense, || {
                    format!("process {process} was told of shard {shard:x}: {error}")
                });
            }
            Event::Claimed { shard, attempts } => self.stage.say(|| {
                format!("p{process} claims {:x}, attempt {attempts}", shard.shard().as_raw())
            }),
            Event::Arrived { shard } => {
                self.stage.say(|| format!("p{process} gets {:x}", shard.shard().as_raw()));
            }
            Event::Ended { shard, outcome } => self.stage.say(|| {
                format!("p{process} is done with {:x}: {outcome:?}", shard.shard().as_raw())
            }),
            Event::Split { shard, residual } => self.stage.say(|| {
                let (shard, residual) = (shard.shard().as_raw(), residual.as_raw());
                format!("p{process} splits {residual:x} off {shard:x}")
            }),
            Event::Checkpointed { shard } => {
                self.stage.say(|| format!("p{process} records {:x}", shard.shard().as_raw()));
            }
            _ => {}
        }
    }
}

/// An item that is being processed.
struct Item {
    ticket: usize,
    /// The number of its key.
    number: usize,
    shard: u64,
    fence: u64,
    ready_at: u64,
}

/// Where a slot processes its items: processing is waiting, and a result at the end of it.
struct Desk<'w> {
    door: &'w Door<'w>,
    slot: usize,
    luck: Stream,
    under_way: Vec<Item>,
}

impl Desk<'_> {
    /// The item is finished: what becomes of it, or nothing if that killed the process.
    fn finish(&self, item: &Item) -> Option<ItemResult> {
        let stage = self.door.stage;
        let tries = stage.tries[item.number].fetch_add(1, Ordering::Relaxed);
        match stage.source.entries[item.number].temper {
            Temper::Kills => {
                stage.say(|| format!("key {} kills p{}", item.number, self.door.process));
                stage.disk.kill(self.door.process);
                None
            }
            Temper::AlwaysFails => Some(ItemResult::Failed("it always does".into())),
            Temper::Hopeless => Some(ItemResult::Hopeless("it always does".into())),
            Temper::Fails(times) if tries < times => Some(ItemResult::Failed("this time".into())),
            Temper::Good | Temper::Fails(_) => {
                match stage.oracle().result(item.shard, item.fence, item.number) {
                    true => Some(ItemResult::Done),
                    // Somebody newer is at work.
                    false => Some(ItemResult::Failed("stale".into())),
                }
            }
        }
    }

    /// Nobody waits for what is under way. Some results arrive all the same.
    fn forget(&mut self) {
        let stage = self.door.stage;
        for item in self.under_way.drain(..) {
            let good = stage.source.entries[item.number].temper == Temper::Good;
            if good && self.luck.one_in(2) {
                stage.oracle().result(item.shard, item.fence, item.number);
            }
        }
        self.tell_ready();
    }

    fn tell_ready(&self) {
        let first = self.under_way.iter().map(|item| item.ready_at).min();
        self.door.ready[self.slot].store(first.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Processor for Desk<'_> {
    fn capacity(&self) -> usize {
        self.door.stage.setting.capacity
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let stage = self.door.stage;
        let number = stage.source.number(work.key()).expect("a listing shows keys of the source");
        let (shard, fence) = (work.shard.shard().as_raw(), work.fence.as_raw());
        let now = LogicalTime::from_raw(self.door.stepping_at.load(Ordering::Relaxed));
        if stage.disk.is_dead(self.door.process) {
            return Ok(());
        }
        stage.oracle().begun(shard, fence, number, now);
        let ready_at = stage.now.load(Ordering::Relaxed) + stage.source.entries[number].cost;
        self.under_way.push(Item { ticket: work.ticket, number, shard, fence, ready_at });
        self.tell_ready();
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let now = self.door.stage.now.load(Ordering::Relaxed);
        while let Some(place) = self.under_way.iter().position(|item| item.ready_at <= now) {
            if self.door.stage.disk.is_dead(self.door.process) {
                break;
            }
            let item = self.under_way.remove(place);
            if let Some(result) = self.finish(&item) {
                reports.push(Report { ticket: item.ticket, result });
            }
        }
        self.tell_ready();
        Ok(())
    }

    fn abandon(&mut self) {
        self.forget();
    }
}

/// A process that dies may have written results that it never reported.
impl Drop for Desk<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Whether the kinds of a death are on: the world asks before it names a process anew.
pub(super) fn keeps_name(stage: &Stage, luck: &mut Stream) -> bool {
    let same = luck.one_in(2) && stage.disk.allows(FaultKind::SameName);
    if same {
        stage.disk.felt(FaultKind::SameName);
    }
    same
}
