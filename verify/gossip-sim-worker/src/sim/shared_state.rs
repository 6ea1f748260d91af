//! State that all processes of a world share, and the context of each process.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};
use gossip_coordination::EventKind;
use gossip_coordination::store::{ProcessState, StoreConfig, StoreCoordinator};
use gossip_handoff::{Repository, StoreRepository};
use gossip_scanner_runtime::{
    Broken, Clock, ClockOffset, Drain, Event, ItemResult, Observed, Observer, Processor, Report,
    Work,
};
use gossip_sim::{EPOCH, FaultKind, FaultyDisk, FaultyStore, Stream, mix};

use super::oracle::{Begun, Oracle, Rule};
use super::plan::Setting;
use super::sink::{Effect, UserSink};
use super::source::{Temper, WorldSource};

pub(super) const TENANT: TenantId = TenantId::from_bytes([9; 32]);
pub(super) const RUN: RunId = RunId::from_raw(1);

/// The number of the administrator, who is not affected by faults.
pub(super) const ADMIN: u32 = u32::MAX;

/// The coordinator of every process.
pub(super) type Coordinator = StoreCoordinator<FaultyStore>;

/// A handle of a process that is observed.
pub(super) type Handle<'w> = Observed<'w, Coordinator>;

/// State that all processes of a world share.
pub(super) struct SharedState {
    pub(super) setting: Setting,
    pub(super) source: Arc<WorldSource>,
    pub(super) disk: FaultyDisk,
    pub(super) oracle: Arc<Mutex<Oracle>>,
    sink: Mutex<UserSink>,
    /// The true time.
    pub(super) now: AtomicU64,
    /// How often each key was tried.
    tries: Vec<AtomicU32>,
    nonces: AtomicU64,
    /// The events, if they are recorded.
    events: Option<Mutex<Vec<String>>>,
}

impl SharedState {
    pub(super) fn new(setting: Setting, is_traced: bool) -> Self {
        let source = Arc::new(WorldSource::of(&setting));
        // Finished and unrecorded keys: an interval, the items in flight when it was full, and
        // those in flight when its checkpoint was sent.
        let unsaved_max = setting.task.checkpoint_items as usize + 2 * setting.capacity;
        let (seed, lease) = (setting.nature.seed, setting.nature.lease);
        let oracle = Oracle::new(Arc::clone(&source), unsaved_max, lease, seed);
        let (disk, oracle) = (FaultyDisk::new(setting.nature), Arc::new(Mutex::new(oracle)));
        let listener = Arc::clone(&oracle);
        disk.watch(move |applied| {
            listener.lock().unwrap_or_else(PoisonError::into_inner).applied(applied);
        });
        disk.start_spared(ADMIN);
        Self {
            tries: setting_tries(&source),
            sink: Mutex::new(UserSink::new(source.entries.len())),
            setting,
            source,
            disk,
            oracle,
            now: AtomicU64::new(0),
            nonces: AtomicU64::new(0),
            events: is_traced.then(Mutex::default),
        }
    }

    /// Returns a coordinator of the administrator.
    pub(super) fn admin(&self) -> Coordinator {
        self.coordinator(ADMIN, &ProcessState::default())
    }

    /// A coordinator of a process whose handles share `state`.
    fn coordinator(&self, process: u32, state: &ProcessState) -> Coordinator {
        let max_clock_skew = self.setting.nature.lease / 4;
        let config = StoreConfig { max_clock_skew, ..StoreConfig::new(self.nonce()) };
        StoreCoordinator::sharing(self.disk.store(process), config, state)
    }

    /// Writes the result of a key to the sink; returns whether it is accepted. The oracle observes
    /// the effect afterwards.
    fn write_result(&self, shard: u64, fence: u64, key: usize) -> bool {
        let taken = self.sink.lock().unwrap_or_else(PoisonError::into_inner).write(key, fence);
        let at = self.now.load(Ordering::Relaxed);
        self.oracle().observed(Effect { shard, fence, key, at, taken });
        taken
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether events are recorded.
    const fn is_traced(&self) -> bool {
        self.events.is_some()
    }

    /// Records an event.
    pub(super) fn record(&self, line: impl FnOnce() -> String) {
        if let Some(events) = &self.events {
            let line = format!("{:>7}  {}", self.now.load(Ordering::Relaxed), line());
            events.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    pub(super) fn take_story(&self) -> Vec<String> {
        let events = self.events.as_ref();
        events.map_or_else(Vec::new, |events| {
            std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner))
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

/// The context of one process: its clock, its event sink and its drain request.
pub(super) struct ProcessContext<'w> {
    pub(super) shared: &'w SharedState,
    pub(super) process: u32,
    /// Shared by all handles of the process.
    state: ProcessState,
    pub(super) drain: Drain,
    /// The true time at which the current step read the clock, and the reading.
    pub(super) stepping_true: AtomicU64,
    pub(super) stepping_at: AtomicU64,
    /// End of the first in-flight item of each slot; the largest number if there is none.
    pub(super) ready: Vec<AtomicU64>,
}

impl<'w> ProcessContext<'w> {
    pub(super) fn new(shared: &'w SharedState, process: u32) -> Self {
        let slots = shared.setting.processes.iter().max().copied().unwrap_or(1);
        let disk = shared.disk.clone();
        Self {
            shared,
            process,
            state: ProcessState::default().watching(move || disk.clock(process).as_raw()),
            drain: Drain::new(),
            stepping_true: AtomicU64::new(0),
            stepping_at: AtomicU64::new(0),
            ready: (0..slots).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    pub(super) fn coordinator(&self) -> Handle<'_> {
        Observed::new(self.shared.coordinator(self.process, &self.state), self)
    }

    pub(super) fn desk(&'w self, slot: usize) -> Box<dyn Processor + 'w> {
        let number = u64::from(self.process) << 8 | slot as u64;
        let luck = Stream::named(self.shared.setting.nature.seed, "desk", number);
        Box::new(Desk { context: self, slot, luck, under_way: Vec::new() })
    }

    pub(super) fn records(&self) -> Box<dyn Repository> {
        let store = self.shared.disk.store(self.process);
        Box::new(StoreRepository::new(store, TENANT, self.shared.nonce()))
    }
}

impl Clock for ProcessContext<'_> {
    fn now(&self) -> LogicalTime {
        self.shared.disk.clock(self.process)
    }

    fn offset(&self) -> ClockOffset {
        ClockOffset::from_ticks(self.shared.disk.clock_offset(self.process))
    }
}

impl Observer for ProcessContext<'_> {
    fn observe(&self, event: Event<'_>) {
        let process = self.process;
        match event {
            Event::Refused { shard, error } => {
                let shard = shard.shard().as_raw();
                self.shared.oracle().require(false, Rule::Nonsense, || {
                    format!("process {process} received an error for shard {shard:x}: {error}")
                });
            }
            Event::Kernel(event) => self.kernel_event(&event.kind),
            Event::Arrived { shard } => {
                self.shared.record(|| format!("p{process} gets {:x}", shard.shard().as_raw()));
            }
            Event::Ended { shard, outcome } => self.shared.record(|| {
                format!("p{process} is done with {:x}: {outcome:?}", shard.shard().as_raw())
            }),
            _ => {}
        }
    }

    /// Only the story of a traced world has them.
    fn wants_kernel_events(&self) -> bool {
        self.shared.is_traced()
    }
}

impl ProcessContext<'_> {
    fn kernel_event(&self, kind: &EventKind) {
        let process = self.process;
        match kind {
            EventKind::ShardAcquired { shard, fence_epoch, .. } => self.shared.record(|| {
                let (shard, fence) = (shard.as_raw(), fence_epoch.as_raw());
                format!("p{process} acquires {shard:x}, fence {fence}")
            }),
            EventKind::ShardResidualCreated { parent, residual } => self.shared.record(|| {
                let (parent, residual) = (parent.as_raw(), residual.as_raw());
                format!("p{process} splits {residual:x} off {parent:x}")
            }),
            EventKind::ShardSplit { parent, children } => self.shared.record(|| {
                let (parent, parts) = (parent.as_raw(), children.len());
                format!("p{process} replaces {parent:x} by {parts}")
            }),
            EventKind::ShardCheckpointed { shard, .. } => {
                self.shared.record(|| format!("p{process} records {:x}", shard.as_raw()));
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
    context: &'w ProcessContext<'w>,
    slot: usize,
    luck: Stream,
    under_way: Vec<Item>,
}

impl Desk<'_> {
    /// Returns the result of a finished item, or nothing if it killed the process.
    fn finish(&self, item: &Item) -> Option<ItemResult> {
        let shared = self.context.shared;
        let tries = shared.tries[item.number].fetch_add(1, Ordering::Relaxed);
        match shared.source.entries[item.number].temper {
            Temper::Kills => {
                shared.record(|| format!("key {} kills p{}", item.number, self.context.process));
                shared.disk.kill(self.context.process);
                None
            }
            Temper::AlwaysFails => Some(ItemResult::Failed("this key always fails".into())),
            Temper::Hopeless => Some(ItemResult::Hopeless("this key always fails".into())),
            Temper::Fails(times) if tries < times => Some(ItemResult::Failed("this time".into())),
            Temper::Good | Temper::Fails(_) => {
                match shared.write_result(item.shard, item.fence, item.number) {
                    true => Some(ItemResult::Done),
                    // The sink has a result of a newer owner.
                    false => Some(ItemResult::Failed("stale".into())),
                }
            }
        }
    }

    /// Abandons the in-flight items. Some results arrive all the same.
    fn forget(&mut self) {
        let shared = self.context.shared;
        for item in self.under_way.drain(..) {
            let good = shared.source.entries[item.number].temper == Temper::Good;
            if good && self.luck.one_in(2) {
                shared.write_result(item.shard, item.fence, item.number);
            }
        }
        self.tell_ready();
    }

    fn tell_ready(&self) {
        let first = self.under_way.iter().map(|item| item.ready_at).min();
        self.context.ready[self.slot].store(first.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Processor for Desk<'_> {
    fn capacity(&self) -> usize {
        self.context.shared.setting.capacity
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let shared = self.context.shared;
        let number = shared.source.number(work.key()).expect("the key is from the source");
        let (shard, fence) = (work.shard.shard().as_raw(), work.fence.as_raw());
        let read_at = self.context.stepping_true.load(Ordering::Relaxed);
        let reading = self.context.stepping_at.load(Ordering::Relaxed);
        let error = reading as i64 - (EPOCH + read_at) as i64;
        if shared.disk.is_dead(self.context.process) {
            return Ok(());
        }
        let now = shared.now.load(Ordering::Relaxed);
        shared.oracle().begun(Begun { shard, fence, key: number, read_at, error, now });
        let ready_at = now + shared.source.entries[number].cost;
        self.under_way.push(Item { ticket: work.ticket, number, shard, fence, ready_at });
        self.tell_ready();
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let now = self.context.shared.now.load(Ordering::Relaxed);
        while let Some(place) = self.under_way.iter().position(|item| item.ready_at <= now) {
            if self.context.shared.disk.is_dead(self.context.process) {
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

/// A process that dies may have written results that it did not report.
impl Drop for Desk<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Whether the kinds of a death are on: the world asks before it names a process anew.
pub(super) fn keeps_name(shared: &SharedState, luck: &mut Stream) -> bool {
    let same = luck.one_in(2) && shared.disk.allows(FaultKind::SameName);
    if same {
        shared.disk.felt(FaultKind::SameName);
    }
    same
}
