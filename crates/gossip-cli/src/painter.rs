//! Progress of a worker on standard error: frames on a terminal, elsewhere a line every ten seconds
//! or JSON lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use gossip::Session;
use gossip::identity::TenantId;
use gossip::runtime::exec::running_programs;
use gossip::runtime::{Drain, Progress as RunProgress};
use gossip::store::Backend;

use crate::console::Console;
use crate::output::{Record, count};
use crate::overview::{Latest, Overview, Rate};
use crate::progress::{self, Progress};
use crate::screen::jobs::Jobs;
use crate::screen::text;
use crate::screen::view::View;
use crate::watch;

/// Interval of the lines where no frame is drawn, and of JSON lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// The run is first read so long after the start. A shorter run needs no progress.
const READ_FIRST: Duration = Duration::from_millis(200);

/// Where a line is printed every ten seconds, the run is read so long before it.
const READ_BEFORE_LINE: Duration = Duration::from_secs(1);

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Frames on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// A frame that is redrawn; lines where standard error is no terminal.
    Bar,
    /// A line every ten seconds.
    Plain,
    /// JSON lines: start, progress, item_failed, message, error, summary.
    Json,
    /// Nothing.
    None,
}

impl ProgressMode {
    /// Returns the mode that this console allows. JSON is selected on it.
    pub(crate) fn on(self, console: &Console) -> Self {
        match self {
            Self::Json => {
                console.use_json();
                Self::Json
            }
            Self::None => Self::None,
            Self::Auto | Self::Bar | Self::Plain if console.is_quiet() => Self::None,
            Self::Auto | Self::Bar if console.screen().can_draw() => Self::Bar,
            Self::Auto | Self::Bar | Self::Plain => Self::Plain,
        }
    }
}

/// Shows the progress of a worker, in threads of its own.
pub(crate) struct Painter<'a> {
    pub(crate) mode: ProgressMode,
    pub(crate) console: &'a Console,
    pub(crate) progress: &'a Progress,
    pub(crate) jobs: &'a Jobs,
    pub(crate) drain: &'a Drain,
    pub(crate) backend: &'a Backend,
    pub(crate) tenant: TenantId,
    pub(crate) session: &'a Session<'a>,
    pub(crate) shared: Shared,
}

/// What the threads of a painter share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The last read of the run.
    latest: Latest,
    is_over: AtomicBool,
}

/// The threads of a painter.
pub(crate) struct Showing<'scope>(Vec<ScopedJoinHandle<'scope, ()>>);

impl Painter<'_> {
    /// Starts to show progress.
    pub(crate) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Showing<'scope> {
        let mut threads = Vec::new();
        // Without a thread there is no progress, and the work is done all the same.
        let mut spawn = |name: &str, task: Box<dyn FnOnce() + Send + 'scope>| {
            let thread = thread::Builder::new().name(name.to_owned());
            threads.extend(thread.spawn_scoped(scope, task));
        };
        match self.mode {
            ProgressMode::None => {}
            ProgressMode::Bar => {
                spawn("overview", Box::new(|| self.read(READ_FIRST, Duration::ZERO)));
                spawn("painter", Box::new(|| self.paint()));
            }
            ProgressMode::Json => {
                spawn("overview", Box::new(|| self.read(READ_FIRST, Duration::ZERO)));
                spawn("painter", Box::new(|| self.print(EVENT_EVERY)));
            }
            ProgressMode::Plain | ProgressMode::Auto => {
                // Just before each line.
                let first = LINE_EVERY.saturating_sub(READ_BEFORE_LINE);
                spawn("overview", Box::new(move || self.read(first, LINE_EVERY)));
                spawn("painter", Box::new(|| self.print(LINE_EVERY)));
            }
        }
        Showing(threads)
    }

    /// Erases the frame and ends the threads.
    pub(crate) fn end(&self, showing: Showing<'_>) {
        // Before the threads are woken, or they would park again.
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.console.screen().end();
        for thread in showing.0 {
            // The thread sees the end only when it runs.
            thread.thread().unpark();
            // A panic there was printed and cost the progress. Without this the scope would panic,
            // and the outcome of the work would be lost.
            drop(thread.join());
        }
    }

    /// Returns the number of all keys of the run, if it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.shared.latest.get()?.progress.total
    }

    /// Returns how many workers were seen at work on the run, this one included.
    pub(crate) fn workers_seen(&self) -> usize {
        self.shared.latest.get().map_or(1, |latest| latest.workers_seen)
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::SeqCst)
    }

    /// Waits until `until`, or until the worker has ended. Returns whether it has.
    fn wait_until(&self, until: Instant) -> bool {
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }

    /// Reads the run until the worker has ended: first after `first`, then at most every `every`.
    fn read(&self, first: Duration, every: Duration) {
        let mut overview = None;
        let mut next = self.progress.started() + first;
        while !self.wait_until(next) {
            let begun = Instant::now();
            let overview = overview.get_or_insert_with(|| {
                let session = self.session;
                let density = watch::density(session.source(), session.connector());
                let own = Some(session.worker());
                Overview::new(self.backend, self.tenant, session.run(), density, own)
            });
            // A read of an unreachable store takes as long as its timeout, and the end of the
            // worker would wait for it.
            if self.progress.is_store_unusable() {
                next = Instant::now() + EVENT_EVERY;
                continue;
            }
            let (snapshot, wait) = overview.read();
            // The worker reports errors of the store.
            if let Ok(snapshot) = snapshot {
                self.shared.latest.set(snapshot);
            }
            // The later of both: a slow store is read less often than lines are printed.
            next = (begun + every).max(Instant::now() + wait);
        }
    }

    /// Draws frames until the worker has ended.
    fn paint(&self) {
        let mut rate = Rate::default();
        // The rate counts from the start, so that the first frame has one.
        rate.at(self.progress.started(), 0);
        self.console.screen().paint(|now| vec![self.view(now, &mut rate)]);
    }

    fn view(&self, now: Instant, rate: &mut Rate) -> View {
        let progress = self.progress;
        let here = progress.keys_done();
        let rate_here = rate.at(now, here).unwrap_or(0.0);
        let latest = self.shared.latest.get();
        let workers = latest.as_ref().map(|latest| latest.workers(now)).unwrap_or_default();
        let run = latest.as_ref().map(|latest| latest.progress);
        // Cursors lag behind, so the count of this process is better if it is alone.
        let rate_of_run = latest.as_ref().and_then(|latest| latest.rate);
        let rate = rate_of_run.filter(|_| workers.len() > 1).unwrap_or(rate_here);
        View {
            title: None,
            progress: run,
            keys_here: here,
            elapsed: now.saturating_duration_since(progress.started()),
            rate,
            // The run includes other workers, and this process knows its own before the store
            // does.
            failed: run.map_or(0, |run| run.shards_parked).max(progress.failed()),
            halted: self.halted(run.as_ref()),
            ranges: latest.map(|latest| latest.ranges.clone()).unwrap_or_default(),
            workers,
            lanes: self.jobs.lanes(now, progress.names()),
            jobs: self.jobs.count(),
            failure: progress.newest_failure(),
        }
    }

    /// Describes why no item is started, if that is so.
    fn halted(&self, run: Option<&RunProgress>) -> Option<String> {
        if self.progress.is_store_unusable() {
            return Some("store unusable".to_owned());
        }
        if self.drain.is_asked() {
            return Some(match running_programs() as u64 {
                0 => "stopping".to_owned(),
                running => format!("finishing {}", count(running, "running command")),
            });
        }
        run.is_some_and(|run| run.paused).then(|| "paused".to_owned())
    }

    /// Prints lines until the worker has ended.
    fn print(&self, every: Duration) {
        let mut lines = Lines::new(self.progress.started(), every);
        while !self.wait_until(lines.next) {
            let (now, here) = (Instant::now(), self.progress.keys_done());
            let run = self.shared.latest.get().map(|latest| latest.progress);
            let Some(rate) = lines.rate_if_due(now, here) else { continue };
            if self.console.is_json() {
                self.console.event(&self.event(run.as_ref(), rate));
            } else {
                self.console.note(&line(run.as_ref(), here, rate));
            }
        }
    }

    fn event(&self, run: Option<&RunProgress>, rate: f64) -> Record {
        let elapsed = self.progress.started().elapsed().as_millis() as u64;
        let event = Record::new()
            .with("type", "progress")
            .with("elapsed_ms", elapsed)
            .with("keys_here", self.progress.keys_done())
            .with("failed_here", self.progress.failed())
            .with("rate_here", (rate * 1000.0).round() / 1000.0);
        match run {
            Some(run) => {
                watch::with_numbers(event.with("keys", run.keys).with("unread", run.unread), run)
                    .with("shards_done", run.shards_done)
                    .with("shards_leased", run.shards_leased)
                    .with("shards_waiting", run.shards_waiting)
                    .with("shards_parked", run.shards_parked)
                    .with("paused", run.paused)
            }
            None => event,
        }
    }
}

/// Formats a line of plain progress.
fn line(run: Option<&RunProgress>, here: u64, rate: f64) -> String {
    progress::line(run, here, &format!("{} here", text::rate(rate)))
}

/// When lines are printed, and the rate between them.
struct Lines {
    every: Duration,
    /// When the next line is due.
    next: Instant,
    rate: Rate,
}

impl Lines {
    fn new(started: Instant, every: Duration) -> Self {
        let mut rate = Rate::default();
        rate.at(started, 0);
        Self { every, next: started + every, rate }
    }

    /// Returns the rate of the line that is due at `now`, with `here` finished items; `None` if
    /// none is due.
    fn rate_if_due(&mut self, now: Instant, here: u64) -> Option<f64> {
        if now < self.next {
            return None;
        }
        // From now and not from the last due time: a stopped process must not catch up on lines.
        self.next = now + self.every;
        Some(self.rate.at(now, here).unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_every_ten_seconds() {
        let started = Instant::now();
        let at = |millis: u64| started + Duration::from_millis(millis);
        let mut lines = Lines::new(started, LINE_EVERY);
        let mut printed = Vec::new();
        // Looked at every quarter of a second for a minute; ten items finish in a second.
        for millis in (0..=60_000).step_by(250) {
            let here = millis / 100;
            if let Some(rate) = lines.rate_if_due(at(millis), here) {
                printed.push((millis, line(None, here, rate)));
            }
        }
        let times: Vec<u64> = printed.iter().map(|(millis, _)| *millis).collect();
        assert_eq!(times, [10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
        assert_eq!(printed[0].1, "100 keys, 10/s here");
        assert_eq!(printed[5].1, "600 keys, 10/s here");
        // A late look moves the following lines, and none is printed twice.
        assert!(lines.rate_if_due(at(83_000), 830).is_some());
        assert!(lines.rate_if_due(at(83_001), 830).is_none());
        assert!(lines.rate_if_due(at(92_999), 929).is_none());
        assert!(lines.rate_if_due(at(93_000), 930).is_some());
    }
}
