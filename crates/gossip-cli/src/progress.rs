//! What a worker does, for people: a line that is drawn over, or one every ten seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gossip_scanner_runtime::{Ending, Event, Observer};

use crate::console::Console;

/// How often the line is drawn on a terminal, and elsewhere.
const PAINT_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Counts what happens, and tells what a person must know.
#[derive(Debug)]
pub(crate) struct Progress {
    console: Arc<Console>,
    begun: Instant,
    pub(crate) keys: AtomicU64,
    pub(crate) unread: AtomicU64,
    pub(crate) shards_done: AtomicU64,
    pub(crate) shards_parked: AtomicU64,
    pub(crate) shards_lost: AtomicU64,
    working: AtomicU64,
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
            shards_parked: AtomicU64::new(0),
            shards_lost: AtomicU64::new(0),
            working: AtomicU64::new(0),
            told_paused: AtomicBool::new(false),
        }
    }

    /// What was done since the process began.
    pub(crate) fn line(&self) -> String {
        let (keys, seconds) = (get(&self.keys), self.begun.elapsed().as_secs_f64());
        let rate = keys as f64 / seconds.max(0.001);
        let shards =
            format!("{} shards done, {} under way", get(&self.shards_done), get(&self.working));
        let parked = match get(&self.shards_parked) {
            0 => String::new(),
            parked => format!(", {parked} set aside"),
        };
        format!("{keys} keys in {seconds:.0} s ({rate:.0}/s), {shards}{parked}")
    }

    fn ended(&self, ending: &Ending) {
        self.working.fetch_sub(1, Ordering::Relaxed);
        match ending {
            Ending::Completed => drop(self.shards_done.fetch_add(1, Ordering::Relaxed)),
            Ending::Parked(_) => drop(self.shards_parked.fetch_add(1, Ordering::Relaxed)),
            Ending::Lost => drop(self.shards_lost.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl Observer for Progress {
    fn observe(&self, event: Event<'_>) {
        let console = &self.console;
        match event {
            Event::Claimed { .. } => {
                self.told_paused.store(false, Ordering::Relaxed);
                self.working.fetch_add(1, Ordering::Relaxed);
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
            Event::Ended { shard, ending } => {
                self.ended(ending);
                console.detail(&format!("shard {:016x}: {ending:?}", shard.shard().as_raw()));
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

/// Draws progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Painter {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Painter {
    pub(crate) fn start(progress: &Arc<Progress>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (progress, seen) = (Arc::clone(progress), Arc::clone(&over));
        let thread = thread::spawn(move || paint(&progress, &seen));
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A painter that panicked has nothing more to draw.
            let _ = thread.join();
        }
    }
}

fn paint(progress: &Progress, over: &AtomicBool) {
    let mut last = Instant::now();
    while !over.load(Ordering::SeqCst) {
        thread::sleep(PAINT_EVERY.min(Duration::from_millis(50)));
        let console = &progress.console;
        if console.is_terminal() && last.elapsed() >= PAINT_EVERY {
            console.paint(&progress.line());
            last = Instant::now();
        } else if !console.is_terminal() && last.elapsed() >= LINE_EVERY {
            console.note(&progress.line());
            last = Instant::now();
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A key on one line of a terminal.
pub(crate) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).chars().flat_map(char::escape_debug).collect()
}
