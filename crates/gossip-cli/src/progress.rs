//! Reports of a worker: counts of events, and messages about those that a user must see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossip::coordination::{EventKind, InfraError, WorkerProcess};
use gossip::identity::{ShardKey, WorkerId};
use gossip::runtime::{
    CommandStatus, Event, ItemFailure, Observer, Progress as RunProgress, ProgressKind, TaskOutcome,
};
use gossip::sources::ItemNames;

use crate::console::Console;
use crate::output::{Record, count};
use crate::screen::frame::failure_text;
pub(crate) use crate::screen::text::escaped;
use crate::screen::text::{number, passed, rate};
use crate::{duration, events};

/// How often the wait for another worker is printed.
const WAIT_EVERY: Duration = Duration::from_secs(10);

/// Counts events, and prints those that a user must see.
#[derive(Debug)]
pub(crate) struct Progress {
    console: Arc<Console>,
    names: Arc<ItemNames>,
    started: Instant,
    /// Keys that this process has passed, unread ones included.
    keys: AtomicU64,
    unread: AtomicU64,
    failed: AtomicU64,
    /// The newest failed item, as a line of the frame.
    newest_failure: Mutex<Option<String>>,
    shards_done: AtomicU64,
    pause_printed: AtomicBool,
    store_is_unusable: AtomicBool,
    /// When the wait for another worker was printed.
    wait_printed: Mutex<Option<Instant>>,
}

impl Progress {
    pub(crate) fn new(console: Arc<Console>, names: Arc<ItemNames>) -> Self {
        Self {
            console,
            names,
            started: Instant::now(),
            keys: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            newest_failure: Mutex::new(None),
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

    /// Counts a failed item and reports it.
    fn item_failed(&self, item: &str, failure: &ItemFailure) {
        let message = &*failure.message;
        // Relaxed, because the count is only shown; the store has the one that decides.
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut newest = self.newest_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = Some(failure_text(item, message));
        // Before anything is printed: a slow terminal must not block the painter, which takes this
        // lock.
        drop(newest);
        let event = || {
            let (status, signal) = match failure.status {
                Some(CommandStatus::Exited(status)) => (Some(status), None),
                Some(CommandStatus::Signaled(signal)) => (None, Some(signal)),
                None => (None, None),
            };
            Record::new()
                .with("type", "item_failed")
                .with("item", item)
                .with("message", message)
                .with("status", status)
                .with("signal", signal)
                .with("stderr", String::from_utf8_lossy(&failure.stderr).into_owned())
        };
        if !self.console.event_if_json(event) {
            self.console.problem(&format!("failed: {item}: {}", escaped(message.as_bytes())));
        }
    }

    pub(crate) fn newest_failure(&self) -> Option<String> {
        self.newest_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many items failed in this process.
    pub(crate) fn failed(&self) -> u64 {
        get(&self.failed)
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn names(&self) -> &ItemNames {
        &self.names
    }

    pub(crate) fn is_store_unusable(&self) -> bool {
        self.store_is_unusable.load(Ordering::Relaxed)
    }

    /// Formats an item for one line of a terminal.
    fn shown(&self, key: &[u8]) -> String {
        escaped(&self.names.name(key))
    }

    /// Returns the keys that this process has done; unread ones are not.
    pub(crate) fn keys_done(&self) -> u64 {
        // The two counters are read one after the other, so the difference could be negative for a
        // moment.
        get(&self.keys).saturating_sub(get(&self.unread))
    }

    /// Returns whether a wait is printed now: at its beginning, and then from time to time.
    fn is_wait_due(&self) -> bool {
        let mut printed = self.wait_printed.lock().unwrap_or_else(PoisonError::into_inner);
        let due = printed.is_none_or(|at| at.elapsed() >= WAIT_EVERY);
        if due {
            *printed = Some(Instant::now());
        }
        due
    }

    /// Summarizes the work of this process for the end: keys, time, rate and workers of the run.
    pub(crate) fn receipt(&self, workers: usize) -> String {
        let (keys, lasted) = (self.keys_done(), self.started.elapsed());
        // A run may end within the resolution of the clock.
        let rate = rate(keys as f64 / lasted.as_secs_f64().max(0.001));
        let workers = match workers {
            0 | 1 => String::new(),
            workers => format!("; {}", count(workers as u64, "worker")),
        };
        format!("{} here in {}, {rate}{workers}", number(keys), passed(lasted))
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
                    // A grant shows that the run was resumed, so the next pause is news again.
                    self.pause_printed.store(false, Ordering::Relaxed);
                }
                events::print(console, event);
            }
            Event::Covered { items, .. } => drop(self.keys.fetch_add(items, Ordering::Relaxed)),
            Event::Unread { key, error } => {
                self.unread.fetch_add(1, Ordering::Relaxed);
                console.problem(&format!("unread: {}: {error}", self.shown(key)));
            }
            Event::Failed { key, failure, again } => {
                let item = self.shown(key);
                match again {
                    // Not a failure yet: the next try may succeed.
                    true => {
                        let message = escaped(failure.message.as_bytes());
                        console.note(&format!("retrying: {item}: {message}"));
                    }
                    false => self.item_failed(&item, failure),
                }
            }
            Event::NoReply { key, lasted, is_first } => {
                let (item, seconds) = (self.shown(key), lasted.as_secs());
                let advice = match is_first {
                    true => ". If it has replied: it must flush its output after each line",
                    false => "",
                };
                console.note(&format!("no reply from the command for {seconds} s: {item}{advice}"));
            }
            Event::ListingFailed { shard, error, at } => {
                let at = at.map_or_else(String::new, |at| format!(" {}", escaped(at)));
                let shard = shard.shard().as_raw();
                console.problem(&format!("cannot list{at}: {error} (shard {shard:016x})"));
            }
            Event::Refused { shard, error } => {
                console.problem(&format!("shard {:016x}: {error}", shard.shard().as_raw()));
            }
            Event::Damaged { shard } => console.problem(&damaged_text(shard)),
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
            Event::Waiting { worker, process, left, last_seen, ending } if self.is_wait_due() => {
                let holder = holder_text(worker, process.as_ref());
                console.note(&wait_text(&holder, left, last_seen, ending));
            }
            Event::StoreUnusable { error, patience } => self.store_failed(error, patience),
            Event::StoreUsable { after } => self.store_recovered(after),
            _ => {}
        }
    }
}

/// Formats the progress of the run, and the keys and the rate of this process.
pub(crate) fn line(run: Option<&RunProgress>, here: u64, rate: &str) -> String {
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
        unread => format!(", {} unread", number(unread)),
    };
    let keys = match (run.kind, run.total, run.percent) {
        (ProgressKind::Exact, Some(total), Some(percent)) => {
            format!("{} of {} ({percent} %)", number(run.keys), count(total, "key"))
        }
        (ProgressKind::Estimated, Some(total), Some(percent)) => {
            let (keys, total) = (number(run.keys), count(total, "key"));
            format!("{keys} of about {total} ({percent} %, estimated)")
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

/// Names a worker by host and process id, or by its id if the registry does not have them.
pub(crate) fn holder_text(worker: WorkerId, process: Option<&WorkerProcess>) -> String {
    match process {
        Some(WorkerProcess { label: Some(label), process, .. }) => {
            format!("{}:{}", escaped(label.host.as_str().as_bytes()), process.pid)
        }
        Some(WorkerProcess { label: None, process, .. }) => format!("pid {}", process.pid),
        None => format!("worker {:016x}", worker.as_raw()),
    }
}

/// Describes the wait for a lease that its holder does not renew.
fn wait_text(holder: &str, left: Duration, last_seen: Option<Duration>, ending: bool) -> String {
    // Rounded up, so that the wait is over when it says so.
    let left = left.as_millis().div_ceil(1_000);
    let seen = match last_seen {
        _ if ending => "gone, but its commands are still being ended".to_owned(),
        Some(since) => format!("last seen {} s ago", since.as_secs()),
        None => "never seen".to_owned(),
    };
    format!("waiting {left} s for {holder}, {seen}")
}

/// Describes a shard that is skipped because its record is damaged.
fn damaged_text(shard: ShardKey) -> String {
    let (run, id) = (shard.run().as_raw(), shard.shard().as_raw());
    format!(
        "shard {id:016x}: its record is damaged; it is skipped. \
         Repair: `gossip shard repair {run:016x} {id:016x}`"
    )
}

/// Describes how the work on a shard ended, unless an event of the kernel does.
fn outcome_text(outcome: &TaskOutcome) -> Option<String> {
    Some(match outcome {
        TaskOutcome::Completed
        | TaskOutcome::Parked(_)
        | TaskOutcome::Split
        // The kernel has printed these.
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

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
