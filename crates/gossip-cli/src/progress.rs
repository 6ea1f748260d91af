//! What a worker does, for people: a line that is drawn over, or one every ten seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossip::connector::Connector;
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{
    Clock as _, Event, Observer, Progress as RunProgress, ProgressKind, ProgressMeter, RunLook,
    SystemClock, TaskOutcome,
};
use gossip::sources::Source;
use gossip::store::{Backend, Coordinator};

use crate::console::Console;
use crate::output::count;
use crate::{duration, watch};

/// How often the line is drawn on a terminal, and elsewhere.
const PAINT_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How long a painter sleeps between two looks at the time: who ends the worker waits so long.
const NAP: Duration = Duration::from_millis(50);

/// How often the run is looked at, and how many times longer it is left alone than a look took: no
/// more than a twentieth of the time goes into looking, however many shards there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SHARE: u32 = 20;

const _: () = assert!(NAP.as_millis() < PAINT_EVERY.as_millis());

/// Counts what happens, and tells what a person must know.
#[derive(Debug)]
pub(crate) struct Progress {
    console: Arc<Console>,
    begun: Instant,
    pub(crate) keys: AtomicU64,
    pub(crate) unread: AtomicU64,
    shards_done: AtomicU64,
    told_paused: AtomicBool,
}

impl Progress {
    pub(crate) fn new(console: Arc<Console>) -> Self {
        Self {
            console,
            begun: Instant::now(),
            keys: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            shards_done: AtomicU64::new(0),
            told_paused: AtomicBool::new(false),
        }
    }

    /// What this process has done since it began.
    pub(crate) fn done_here(&self) -> String {
        let (keys, seconds) = (get(&self.keys), self.begun.elapsed().as_secs_f64());
        let rate = keys as f64 / seconds.max(0.001);
        let (keys, shards) = (count(keys, "key"), count(get(&self.shards_done), "shard"));
        format!("here: {keys} in {seconds:.0} s ({rate:.0}/s), {shards} finished")
    }
}

impl Observer for Progress {
    fn observe(&self, event: Event<'_>) {
        let console = &self.console;
        match event {
            Event::Claimed { .. } => {
                self.told_paused.store(false, Ordering::Relaxed);
            }
            Event::Covered { items, .. } => drop(self.keys.fetch_add(items, Ordering::Relaxed)),
            Event::Unread { key, error } => {
                self.unread.fetch_add(1, Ordering::Relaxed);
                console.note(&format!("unread: {}: {error}", shown(key)));
            }
            Event::Failed { key, message, again } => {
                let then = if again { "is tried again" } else { "is set aside" };
                let message = shown(message.as_bytes());
                console.note(&format!("failed: {}: {message}; it {then}", shown(key)));
            }
            Event::ListingFailed { shard, error } => {
                console.note(&format!("shard {:016x}: {error}", shard.shard().as_raw()));
            }
            Event::Refused { shard, error } => {
                console.note(&format!("shard {:016x}: {error}", shard.shard().as_raw()));
            }
            Event::Kept { shard } => console.note(&format!(
                "shard {:016x}: nobody took it, or its move was withdrawn; it goes on here",
                shard.shard().as_raw()
            )),
            Event::Ended { shard, outcome } => {
                if *outcome == TaskOutcome::Completed {
                    self.shards_done.fetch_add(1, Ordering::Relaxed);
                }
                console.detail(&format!("shard {:016x}: {outcome:?}", shard.shard().as_raw()));
            }
            Event::Split { shard, residual } => console.detail(&format!(
                "shard {:016x}: gave {:016x} away",
                shard.shard().as_raw(),
                residual.as_raw()
            )),
            Event::Paused if !self.told_paused.swap(true, Ordering::Relaxed) => {
                console.note("the run is paused; waiting until it is resumed");
            }
            Event::StoreFailed { error } => {
                console.note(&format!("the store failed: {error}; it is tried again"));
            }
            _ => {}
        }
    }
}

/// Draws progress while a worker works.
pub(crate) struct Painter<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) backend: &'a Backend,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    pub(crate) source: &'a Source,
    pub(crate) connector: &'a dyn Connector,
    /// Whether there is nothing more to draw.
    pub(crate) over: &'a AtomicBool,
}

impl Painter<'_> {
    /// Draws until it is over.
    pub(crate) fn paint(&self) {
        let console = &self.progress.console;
        if !console.is_heard() {
            return;
        }
        let every = if console.is_terminal() { PAINT_EVERY } else { LINE_EVERY };
        let (mut last, mut overview) = (Instant::now(), None);
        while !self.over.load(Ordering::SeqCst) {
            thread::sleep(NAP);
            if last.elapsed() < every {
                continue;
            }
            let overview = overview.get_or_insert_with(|| Overview::of(self));
            overview.look(self);
            let line = line(overview.seen.as_ref(), self.progress);
            match console.is_terminal() {
                true => console.paint(&line),
                false => console.note(&line),
            }
            last = Instant::now();
        }
    }
}

/// What is known of the whole run, whoever works on it.
struct Overview {
    coordinator: Coordinator,
    meter: ProgressMeter,
    seen: Option<RunProgress>,
    /// Not looked at again before this time.
    next: Instant,
}

impl Overview {
    fn of(painter: &Painter<'_>) -> Self {
        let density = watch::density(painter.source, painter.connector);
        Self {
            coordinator: painter.backend.coordinator(),
            meter: ProgressMeter::new(density),
            seen: None,
            next: Instant::now(),
        }
    }

    /// Looks at the run, unless it did so a moment ago. A look costs what the run holds in shards.
    fn look(&mut self, painter: &Painter<'_>) {
        let begun = Instant::now();
        if begun < self.next {
            return;
        }
        let now = SystemClock::new().now();
        let look = RunLook::take(&mut self.coordinator, now, painter.tenant, painter.run);
        // A store that fails is told of by the worker.
        if let Ok(look) = look {
            self.seen = Some(self.meter.observe(&look));
        }
        self.next = Instant::now() + LOOK_EVERY.max(begun.elapsed() * LOOK_SHARE);
    }
}

/// What is known of the run, and what this process does.
fn line(run: Option<&RunProgress>, here: &Progress) -> String {
    let seconds = here.begun.elapsed().as_secs_f64().max(0.001);
    let rate = format!("{:.0}/s here", get(&here.keys) as f64 / seconds);
    let Some(run) = run else {
        return format!("{}, {rate}", count(get(&here.keys), "key"));
    };
    let shards =
        format!("{} done, {} under way", count(run.shards_done, "shard"), run.shards_leased);
    let parked = match run.shards_parked {
        0 => String::new(),
        parked => format!(", {parked} set aside"),
    };
    format!("{}{}; {rate}; {shards}{parked}", keys_of(run), time_left(run))
}

/// How many keys are done, of how many, and how that is known.
pub(crate) fn keys_of(run: &RunProgress) -> String {
    // Rounded down: all of it is done only when it is.
    let percent = run.fraction.map(|fraction| (fraction * 100.0).floor());
    match (run.kind, run.total, percent) {
        (ProgressKind::Exact, Some(total), Some(percent)) => {
            format!("{} of {} ({percent} %)", run.keys, count(total, "key"))
        }
        (ProgressKind::Estimated, Some(total), Some(percent)) => {
            format!("{} of about {} ({percent} %, estimated)", run.keys, count(total, "key"))
        }
        (ProgressKind::Exact | ProgressKind::Estimated | ProgressKind::Unknown, _, _) => {
            format!("{} of an unknown number", count(run.keys, "key"))
        }
    }
}

fn time_left(run: &RunProgress) -> String {
    let paused = if run.paused { ", paused" } else { "" };
    match run.eta {
        Some(eta) => {
            format!(", {} left ± {}{paused}", duration::tell(eta.left), duration::tell(eta.error))
        }
        None => paused.to_owned(),
    }
}

/// The working time left by itself; nothing if it is not known.
pub(crate) fn left(run: &RunProgress) -> Option<String> {
    let eta = run.eta?;
    Some(format!("{} ± {}", duration::tell(eta.left), duration::tell(eta.error)))
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A key on one line of a terminal.
pub(crate) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).chars().flat_map(char::escape_debug).collect()
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
