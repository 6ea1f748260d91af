//! Progress of a worker: one line that is updated on a terminal, elsewhere a line every ten
//! seconds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gossip::connector::Connector;
use gossip::coordination::{EventKind, InfraError};
use gossip::identity::{RunId, TenantId, WorkerId};
use gossip::runtime::{
    Clock as _, Event, Observer, Progress as RunProgress, ProgressKind, ProgressMeter, RunLook,
    SystemClock, TaskOutcome,
};
use gossip::sources::{KeyFormat, Source};
use gossip::store::{Backend, Coordinator};

use crate::console::Console;
use crate::output::count;
use crate::{duration, events, watch};

/// Interval of the progress line on a terminal, and elsewhere.
const PAINT_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Minimum interval between two reads of the run, as a time and as a multiple of the duration of a
/// read: reading takes at most a twentieth of the time, however many shards there are.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_SHARE: u32 = 20;

/// The rate is that of this time before now: an average since the start would hide for minutes that
/// the work has stopped.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Counts events, and prints those that a user must see.
#[derive(Debug)]
pub(crate) struct Progress {
    console: Arc<Console>,
    keys_shown_as: KeyFormat,
    started: Instant,
    /// Keys that this process has passed, unread ones included.
    keys: AtomicU64,
    unread: AtomicU64,
    shards_done: AtomicU64,
    pause_printed: AtomicBool,
    store_is_unusable: AtomicBool,
    /// When the wait for another worker was printed.
    wait_printed: Mutex<Option<Instant>>,
}

impl Progress {
    pub(crate) fn new(console: Arc<Console>, keys_shown_as: KeyFormat) -> Self {
        Self {
            console,
            keys_shown_as,
            started: Instant::now(),
            keys: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            shards_done: AtomicU64::new(0),
            pause_printed: AtomicBool::new(false),
            store_is_unusable: AtomicBool::new(false),
            wait_printed: Mutex::new(None),
        }
    }

    fn store_failed(&self, error: &InfraError, patience: Duration) {
        self.store_is_unusable.store(true, Ordering::Relaxed);
        let patience = duration::rough(ticks(patience));
        // Also if quiet: nothing else explains why nothing happens for minutes.
        self.console.problem(&format!(
            "the store is unusable: {error}; no item is started until it is usable, \
             waiting for at most {patience}"
        ));
    }

    fn store_recovered(&self, after: Duration) {
        self.store_is_unusable.store(false, Ordering::Relaxed);
        let after = duration::rough(ticks(after));
        self.console.note(&format!("the store is usable again after {after}; resuming"));
    }

    /// Formats a key for one line of a terminal.
    fn shown(&self, key: &[u8]) -> String {
        escaped(&self.keys_shown_as.text(key))
    }

    /// Returns the keys that this process has done; unread ones are not.
    pub(crate) fn keys_done(&self) -> u64 {
        get(&self.keys).saturating_sub(get(&self.unread))
    }

    /// Returns whether a wait is printed now: at its beginning, and then from time to time.
    fn is_wait_due(&self) -> bool {
        let mut printed = self.wait_printed.lock().unwrap_or_else(PoisonError::into_inner);
        let due = printed.is_none_or(|at| at.elapsed() >= LINE_EVERY);
        if due {
            *printed = Some(Instant::now());
        }
        due
    }

    /// Summarizes the work of this process.
    pub(crate) fn done_here(&self) -> String {
        let (keys, seconds) = (self.keys_done(), self.started.elapsed().as_secs_f64());
        let rate = keys as f64 / seconds.max(0.001);
        let (keys, shards) = (count(keys, "key"), count(get(&self.shards_done), "shard"));
        format!("this process: {keys} in {seconds:.0} s ({rate:.0}/s), {shards} done")
    }
}

impl Observer for Progress {
    fn observe(&self, event: Event<'_>) {
        let console = &self.console;
        match event {
            Event::Kernel(event) => {
                if matches!(event.kind, EventKind::ShardAcquired { .. }) {
                    self.pause_printed.store(false, Ordering::Relaxed);
                }
                events::print(console, event);
            }
            Event::Covered { items, .. } => drop(self.keys.fetch_add(items, Ordering::Relaxed)),
            Event::Unread { key, error } => {
                self.unread.fetch_add(1, Ordering::Relaxed);
                console.problem(&format!("unread: {}: {error}", self.shown(key)));
            }
            Event::Failed { key, message, again } => {
                let (key, message) = (self.shown(key), escaped(message.as_bytes()));
                match again {
                    // Not a failure yet: the next try may succeed.
                    true => console.note(&format!("retrying: {key}: {message}")),
                    false => console.problem(&format!("failed: {key}: {message}")),
                }
            }
            Event::NoReply { key, lasted, is_first } => {
                let (key, seconds) = (self.shown(key), lasted.as_secs());
                let advice = match is_first {
                    true => ". If it has replied: it must flush its output after each line",
                    false => "",
                };
                console.note(&format!("no reply from the command for {seconds} s: {key}{advice}"));
            }
            Event::ListingFailed { shard, error, at } => {
                let at = at.map_or_else(String::new, |at| format!(" {}", escaped(at)));
                let shard = shard.shard().as_raw();
                console.problem(&format!("cannot list{at}: {error} (shard {shard:016x})"));
            }
            Event::Refused { shard, error } => {
                console.problem(&format!("shard {:016x}: {error}", shard.shard().as_raw()));
            }
            Event::Damaged { shard } => {
                let (run, id) = (shard.run().as_raw(), shard.shard().as_raw());
                console.problem(&format!(
                    "shard {id:016x}: its record is damaged; it is skipped. \
                     Repair: `gossip shard repair {run:016x} {id:016x}`"
                ));
            }
            Event::Kept { shard } => console.note(&format!(
                "shard {:016x}: the handoff was not accepted or was withdrawn; resuming here",
                shard.shard().as_raw()
            )),
            Event::Ended { shard, outcome } => {
                if *outcome == TaskOutcome::Completed {
                    self.shards_done.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(outcome) = outcome_text(outcome) {
                    console.detail(&format!("shard {:016x}: {outcome}", shard.shard().as_raw()));
                }
            }
            Event::Paused if !self.pause_printed.swap(true, Ordering::Relaxed) => {
                console.note("the run is paused; waiting until it is resumed");
            }
            Event::Waiting { worker, left, last_seen, ending } if self.is_wait_due() => {
                console.note(&wait_text(worker, left, last_seen, ending));
            }
            Event::StoreUnusable { error, patience } => self.store_failed(error, patience),
            Event::StoreUsable { after } => self.store_recovered(after),
            _ => {}
        }
    }
}

/// Prints progress while a worker runs.
pub(crate) struct Painter<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) backend: &'a Backend,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    pub(crate) source: &'a Source,
    pub(crate) connector: &'a dyn Connector,
    /// Whether the worker has ended.
    pub(crate) is_over: &'a AtomicBool,
}

impl Painter<'_> {
    /// Prints progress until the worker ends.
    pub(crate) fn paint(&self) {
        let console = &self.progress.console;
        if console.is_quiet() {
            return;
        }
        let every = if console.is_terminal() { PAINT_EVERY } else { LINE_EVERY };
        let (mut last, mut overview) = (Instant::now(), None);
        let mut rate = Rate::new(self.progress.started);
        while !self.is_over.load(Ordering::SeqCst) {
            // Woken when the worker ends.
            thread::park_timeout(every.saturating_sub(last.elapsed()));
            if last.elapsed() < every {
                continue;
            }
            let overview = overview.get_or_insert_with(|| Overview::of(self));
            overview.refresh(self);
            let here = self.progress.keys_done();
            let rate = rate.at(Instant::now(), here);
            let line = line(overview.progress.as_ref(), here, rate);
            match console.is_terminal() {
                true => console.paint(&line),
                false => console.note(&line),
            }
            last = Instant::now();
        }
    }
}

/// Progress of the whole run, of all workers.
struct Overview {
    coordinator: Coordinator,
    meter: ProgressMeter,
    progress: Option<RunProgress>,
    /// Time of the next read.
    next: Instant,
}

impl Overview {
    fn of(painter: &Painter<'_>) -> Self {
        let density = watch::density(painter.source, painter.connector);
        Self {
            coordinator: painter.backend.coordinator(),
            meter: ProgressMeter::new(density),
            progress: None,
            next: Instant::now(),
        }
    }

    /// Reads the run, unless the last read is recent. The cost grows with the number of shards.
    fn refresh(&mut self, painter: &Painter<'_>) {
        let started = Instant::now();
        // A read of an unreachable store takes as long as its timeout, and the end of the worker
        // would wait for it.
        if started < self.next || painter.progress.store_is_unusable.load(Ordering::Relaxed) {
            return;
        }
        let now = SystemClock::new().now();
        let look = RunLook::take(&mut self.coordinator, now, painter.tenant, painter.run);
        // The worker reports errors of the store.
        if let Ok(look) = look {
            self.progress = Some(self.meter.observe(&look));
        }
        self.next = Instant::now() + READ_EVERY.max(started.elapsed() * READ_SHARE);
    }
}

/// The rate of this process over the last [`RATE_WINDOW`].
struct Rate {
    /// Times and counts, oldest first; never empty.
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    fn new(started: Instant) -> Self {
        Self { samples: VecDeque::from([(started, 0)]) }
    }

    /// Adds a count and returns the keys per second.
    fn at(&mut self, now: Instant, keys: u64) -> f64 {
        self.samples.push_back((now, keys));
        // One sample from before the window stays, so that the window is always spanned.
        let is_outside = |(time, _): &(Instant, u64)| *time + RATE_WINDOW <= now;
        while self.samples.get(1).is_some_and(is_outside) {
            self.samples.pop_front();
        }
        let (since, before) = self.samples.front().copied().unwrap_or((now, keys));
        let seconds = now.duration_since(since).as_secs_f64().max(0.001);
        keys.saturating_sub(before) as f64 / seconds
    }
}

/// Formats the progress of the run, and the keys and the rate of this process.
fn line(run: Option<&RunProgress>, here: u64, rate: f64) -> String {
    let rate = format!("{rate:.0}/s here");
    let Some(run) = run else {
        return format!("{}, {rate}", count(here, "key"));
    };
    let shards =
        format!("{} done, {} in progress", count(run.shards_done, "shard"), run.shards_leased);
    let parked = match run.shards_parked {
        0 => String::new(),
        parked => format!(", {parked} parked"),
    };
    let damaged = match run.shards_damaged {
        0 => String::new(),
        damaged => format!(", {damaged} damaged"),
    };
    format!("{}{}; {rate}; {shards}{parked}{damaged}", keys_of(run), time_left(run))
}

/// Formats the number of done keys and the total, with its accuracy, and the unread keys.
pub(crate) fn keys_of(run: &RunProgress) -> String {
    let unread = match run.unread {
        0 => String::new(),
        unread => format!(", {unread} unread"),
    };
    let keys = match (run.kind, run.total, run.percent) {
        (ProgressKind::Exact, Some(total), Some(percent)) => {
            format!("{} of {} ({percent} %)", run.keys, count(total, "key"))
        }
        (ProgressKind::Estimated, Some(total), Some(percent)) => {
            format!("{} of about {} ({percent} %, estimated)", run.keys, count(total, "key"))
        }
        (ProgressKind::Exact | ProgressKind::Estimated | ProgressKind::Unknown, _, _) => {
            format!("{} (total unknown)", count(run.keys, "key"))
        }
    };
    keys + &unread
}

fn time_left(run: &RunProgress) -> String {
    let left = match run.eta {
        Some(eta) => {
            format!(", {} left ± {}", duration::rough(eta.left), duration::rough(eta.error))
        }
        // Without a total there is nothing to estimate, and the text says so already.
        None if run.paused || run.total.is_none() => String::new(),
        None => ", ETA unknown".to_owned(),
    };
    if run.paused { left + ", paused" } else { left }
}

/// Formats the estimated working time left, if it is known.
pub(crate) fn left(run: &RunProgress) -> Option<String> {
    let eta = run.eta?;
    Some(format!("{} ± {}", duration::rough(eta.left), duration::rough(eta.error)))
}

/// Describes the wait for a lease that its holder does not renew.
fn wait_text(
    worker: WorkerId,
    left: Duration,
    last_seen: Option<Duration>,
    ending: bool,
) -> String {
    // Rounded up, so that the wait is over when it says so.
    let left = left.as_millis().div_ceil(1_000);
    let seen = match last_seen {
        _ if ending => "gone, but its commands are still being ended".to_owned(),
        Some(since) => format!("last seen {} s ago", since.as_secs()),
        None => "never seen".to_owned(),
    };
    format!("waiting {left} s for worker {:016x}, {seen}", worker.as_raw())
}

/// Describes how the work on a shard ended, unless an event of the kernel does.
fn outcome_text(outcome: &TaskOutcome) -> Option<String> {
    Some(match outcome {
        TaskOutcome::Completed
        | TaskOutcome::Parked(_)
        | TaskOutcome::Split
        | TaskOutcome::Released => return None,
        TaskOutcome::Moved => "handed over to another worker".to_owned(),
        TaskOutcome::Damaged => "stopped, its record is damaged".to_owned(),
        TaskOutcome::Lost => "lost the lease, or the shard is finished".to_owned(),
        TaskOutcome::StoreFailed(error) => format!("stopped, store error: {error}"),
        TaskOutcome::Broken(broken) => format!("released because of: {broken}"),
        // The runtime's enum may grow.
        _ => "ended".to_owned(),
    })
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Formats bytes for one line of a terminal. A backslash is doubled and a byte that is not UTF-8 is
/// `\xNN`, so that different names are shown differently.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(char::escape_debug));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
