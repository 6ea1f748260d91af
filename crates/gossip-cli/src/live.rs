//! `watch`: runs as their store shows them, until they end. It only reads.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gossip::coordination::{GetRunError, RunManagement as _, RunStatus};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{Clock as _, Job, SystemClock};
use gossip::store::Backend;

use crate::args::{Global, WatchArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::overview::{Overview, Snapshot};
use crate::progress::{escaped, line};
use crate::screen::text::{self, counted};
use crate::screen::view::{Title, View};
use crate::{runs, store, watch};

/// Interval of the lines where no frame is drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Waits between two attempts to read a store that cannot be read: the first and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Runs that are watched at the same time: more do not fit on a screen.
const RUNS_MAX: usize = 20;

/// Digits of an id where there is no room for all.
const SHORT_DIGITS: usize = 8;

/// How often it is looked for new runs.
const RUNS_EVERY: Duration = Duration::from_secs(2);

/// The runs that are shown, shared with the painter.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Vec<Entry>>);

/// A run on a board.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) title: Option<Title>,
    pub(crate) latest: Option<Arc<Snapshot>>,
    /// Why it cannot be read at present.
    pub(crate) trouble: Option<String>,
    /// When the run was created, as far as the clock of this process reaches back.
    pub(crate) since: Instant,
}

impl Board {
    pub(crate) fn set(&self, entries: Vec<Entry>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    fn views(&self, now: Instant) -> Vec<View> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        entries.iter().map(|entry| entry.view(now)).collect()
    }

    /// Draws frames of the board while `work` runs.
    pub(crate) fn show<T>(&self, console: &Console, work: impl FnOnce() -> T) -> T {
        if console.is_quiet() || !console.screen().can_draw() {
            return work();
        }
        thread::scope(|scope| {
            // Also if `work` panics: the scope waits for the painter.
            let _end = EndOnDrop(console);
            let thread = thread::Builder::new().name("painter".to_owned());
            let paint = || console.screen().paint(|now| self.views(now));
            // Without a thread there is no frame, and the work is done all the same.
            let _painter = thread.spawn_scoped(scope, paint);
            work()
        })
    }
}

/// Ends the painter.
struct EndOnDrop<'a>(&'a Console);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.screen().end();
    }
}

impl Entry {
    fn view(&self, now: Instant) -> View {
        let latest = self.latest.as_deref();
        let progress = latest.map(|latest| latest.progress);
        let paused = progress.is_some_and(|progress| progress.paused);
        View {
            title: self.title.clone(),
            progress,
            elapsed: now.saturating_duration_since(self.since),
            rate: latest.and_then(|latest| latest.rate).unwrap_or(0.0),
            failed: progress.map_or(0, |progress| progress.shards_parked),
            halted: self.trouble.clone().or_else(|| paused.then(|| "paused".to_owned())),
            ranges: latest.map(|latest| latest.ranges.clone()).unwrap_or_default(),
            workers: latest.map(|latest| latest.workers(now)).unwrap_or_default(),
            ..View::default()
        }
    }
}

/// Shows one run until it ends, or all unfinished runs until none is left.
///
/// Returns the exit code of the run's outcome.
pub(crate) fn run(global: &Global, args: &WatchArgs, console: &Console) -> Result<Code, Failure> {
    let mut store = Reader::open(global)?;
    let board = Board::default();
    match &args.run {
        Some(run) => {
            let run = run.find(&mut store.backend.coordinator(), store.tenant)?;
            let mut watched = Watched::new(&store, run)?;
            // The user has just typed the run; the line is better used for its map.
            watched.title = None;
            let snapshot =
                board.show(console, || one(&mut store, &mut watched, &board, console))?;
            conclude(&store, run, &snapshot, console)
        }
        None => board.show(console, || all(&mut store, &board, console)),
    }
}

/// Reads one run until it ends. Returns the last snapshot.
fn one(
    store: &mut Reader<'_>,
    watched: &mut Watched,
    board: &Board,
    console: &Console,
) -> Result<Snapshot, Failure> {
    let mut lines = Lines::new(console);
    loop {
        let wait = watched.read(store, console);
        // Also if the read failed: the frame then says so.
        board.set(vec![watched.entry.clone()]);
        if watched.is_gone {
            return Err(runs::not_found(watched.run, &GetRunError::RunNotFound));
        }
        if let Some(latest) = watched.entry.latest.as_deref().filter(|_| watched.is_readable()) {
            if is_over(latest) {
                return Ok(latest.clone());
            }
            lines.print(std::slice::from_ref(watched));
        }
        thread::sleep(wait);
    }
}

/// Reads all unfinished runs until none is left.
fn all(store: &mut Reader<'_>, board: &Board, console: &Console) -> Result<Code, Failure> {
    let mut watched: Vec<Watched> = Vec::new();
    let (mut lines, mut listed) = (Lines::new(console), None::<Instant>);
    // A run with parked shards stays active, so it is listed again after its outcome was printed.
    let (mut seen, mut ended) = (BTreeSet::new(), BTreeSet::new());
    loop {
        if listed.is_none_or(|at| at.elapsed() >= RUNS_EVERY) {
            listed = Some(Instant::now());
            // A store that cannot be read is shown with the runs that are known.
            for run in store.active_runs().unwrap_or_default() {
                let is_new = !watched.iter().any(|known| known.run == run);
                if is_new && watched.len() < RUNS_MAX {
                    // A run that was deleted meanwhile is none to show.
                    watched.extend(Watched::new(store, run));
                    seen.insert(run);
                }
            }
        }
        let mut wait = RUNS_EVERY;
        for run in &mut watched {
            wait = wait.min(run.read(store, console));
        }
        watched.retain(|run| {
            let latest = run.entry.latest.as_deref().filter(|_| run.is_readable());
            let over = run.is_gone || latest.is_some_and(is_over);
            if !over {
                // Its items are retried: its next outcome is another one.
                ended.remove(&run.run);
            } else if let Some(latest) = latest
                && ended.insert(run.run)
            {
                console.note(&format!("run {:016x}: {}", run.run.as_raw(), outcome(latest)));
            }
            !over
        });
        if watched.is_empty() {
            let text = match seen.len() {
                0 => "no unfinished run. All runs: gossip run list".to_owned(),
                seen => format!("{} ended", counted(seen as u64, "run")),
            };
            console.note(&text);
            return Ok(Code::Complete);
        }
        board.set(watched.iter().map(|run| run.entry.clone()).collect());
        lines.print(&watched);
        thread::sleep(wait);
    }
}

/// The store of the runs, which is opened again after it could not be read.
struct Reader<'g> {
    global: &'g Global,
    backend: Backend,
    tenant: TenantId,
    /// How often it was opened again.
    reopened: u64,
}

impl<'g> Reader<'g> {
    fn open(global: &'g Global) -> Result<Self, Failure> {
        let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
        Ok(Self { global, backend, tenant, reopened: 0 })
    }

    fn active_runs(&self) -> Result<Vec<RunId>, Failure> {
        let mut runs = Vec::new();
        let mut coordinator = self.backend.coordinator();
        let listed = coordinator.list_active_runs_into(self.tenant, None, RUNS_MAX, &mut runs);
        match listed {
            // The other runs are listed all the same.
            Err(error) if !error.is_of_record() => Err(Failure::store(&error)),
            Ok(()) | Err(_) => Ok(runs),
        }
    }

    /// Fails if the file of the store was removed: an open one can still be read, and would show
    /// the same for ever.
    fn check(&self) -> Result<(), Failure> {
        match store::missing_file(self.global) {
            Some(path) => Err(Failure::new(Code::Store, format!("{path}: no such file"))),
            None => Ok(()),
        }
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.backend = store::open_existing(self.global)?;
        self.reopened += 1;
        Ok(())
    }
}

/// A run that is watched.
struct Watched {
    run: RunId,
    job: Option<Job>,
    title: Option<Title>,
    entry: Entry,
    overview: Option<Overview>,
    /// How often the store had been opened again when the overview was made.
    opened: u64,
    retry: Duration,
    is_gone: bool,
}

impl Watched {
    fn new(store: &Reader<'_>, run: RunId) -> Result<Self, Failure> {
        let mut coordinator = store.backend.coordinator();
        let record = coordinator.get_run(store.tenant, run);
        let record = record.map_err(|error| runs::not_found(run, &error))?;
        let created = record.created_at().as_raw();
        let age = SystemClock::new().now().as_raw().saturating_sub(created);
        let job = runs::job_of(&mut coordinator, store.tenant, run).ok();
        let name = record.config().name().map(|name| name.to_string());
        let title = title(run, name, job.as_ref());
        let now = Instant::now();
        // The clock of this process begins when its host started, perhaps after the run was
        // created.
        let since = now.checked_sub(Duration::from_millis(age)).unwrap_or(now);
        let entry = Entry { title: Some(title.clone()), latest: None, trouble: None, since };
        Ok(Self {
            run,
            job,
            title: Some(title),
            entry,
            overview: None,
            opened: store.reopened,
            retry: RETRY_FIRST,
            is_gone: false,
        })
    }

    const fn is_readable(&self) -> bool {
        self.entry.trouble.is_none()
    }

    /// Reads the run. Returns when to read it again.
    fn read(&mut self, store: &mut Reader<'_>, console: &Console) -> Duration {
        self.entry.title.clone_from(&self.title);
        let read = store.check().and_then(|()| {
            // Once for all runs: the first one that fails opens the store again, and the others
            // see the number.
            if !self.is_readable() && self.opened == store.reopened {
                store.reopen()?;
            }
            if self.opened != store.reopened {
                // An overview keeps handles of the store that it was made with.
                (self.overview, self.opened) = (None, store.reopened);
            }
            let overview = self.overview.get_or_insert_with(|| {
                let density = self.job.as_ref().map(watch::density_of_job).unwrap_or_default();
                Overview::new(&store.backend, store.tenant, self.run, density, None)
            });
            let (snapshot, wait) = overview.read();
            snapshot
                .map(|snapshot| (snapshot, wait))
                .map_err(|error| runs::not_found(self.run, &error))
        });
        match read {
            Ok((snapshot, wait)) => {
                if self.entry.trouble.take().is_some() {
                    console.note("the store is readable again");
                }
                (self.entry.latest, self.retry) = (Some(Arc::new(snapshot)), RETRY_FIRST);
                wait
            }
            Err(failure) => {
                let why = failure.why.unwrap_or(failure.what);
                // Only at the first failure, not at each attempt.
                if self.is_readable() {
                    console.problem(&format!("cannot read the store: {why}; retrying"));
                }
                // A deleted run is a mistake of the caller; everything else may pass.
                self.is_gone = failure.code == Code::Usage;
                self.entry.trouble = Some("store unreadable, retrying".to_owned());
                let wait = self.retry;
                self.retry = (self.retry * 2).min(RETRY_LONGEST);
                wait
            }
        }
    }
}

/// Lines where no frame is drawn.
struct Lines<'a> {
    console: &'a Console,
    is_wanted: bool,
    next: Instant,
}

impl<'a> Lines<'a> {
    fn new(console: &'a Console) -> Self {
        // The first one at once: a reader who asked wants to see something.
        Self { console, is_wanted: !console.screen().can_draw(), next: Instant::now() }
    }

    fn print(&mut self, watched: &[Watched]) {
        if !self.is_wanted || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + LINE_EVERY;
        for run in watched {
            let Some(latest) = run.entry.latest.as_deref() else { continue };
            let rate = latest.rate.map_or_else(|| "rate unknown".to_owned(), text::rate);
            let text = line(Some(&latest.progress), 0, &rate);
            self.console.note(&format!("run {:016x}: {text}", run.run.as_raw()));
        }
    }
}

/// Returns the words of a run above its map.
fn title(run: RunId, name: Option<String>, job: Option<&Job>) -> Title {
    let id = format!("{:016x}", run.as_raw());
    let short = name.clone().unwrap_or_else(|| id[..SHORT_DIGITS].to_owned());
    let mut text = name.map_or_else(String::new, |name| format!("{name}  "));
    text += &format!("run {id}");
    let Some(job) = job else { return Title { short, text } };
    text += &format!("  {}", escaped(job.source.as_bytes()));
    let words = job.command.iter().map(|word| escaped(word.as_bytes()));
    let command = words.collect::<Vec<_>>().join(" ");
    if !command.is_empty() {
        text += &format!(" -- {command}");
    }
    Title { short, text }
}

/// Returns whether a run has ended, or has nothing left that a worker could claim.
fn is_over(latest: &Snapshot) -> bool {
    let progress = &latest.progress;
    let is_settled = progress.shards_leased + progress.shards_waiting == 0;
    match latest.status {
        RunStatus::Done | RunStatus::Failed | RunStatus::Cancelled => true,
        // Such a run stays active until its items are retried, which may never happen.
        RunStatus::Active => is_settled && progress.shards_parked + progress.shards_damaged > 0,
        RunStatus::Initializing => false,
    }
}

fn outcome(latest: &Snapshot) -> String {
    let progress = &latest.progress;
    let keys = counted(progress.keys, "key");
    match (latest.status, progress.shards_parked + progress.shards_damaged, progress.unread) {
        (RunStatus::Failed | RunStatus::Cancelled, ..) => {
            format!("{}: {keys} done", runs::status_word(latest.status))
        }
        (_, 0, 0) => format!("complete: {keys}"),
        (_, failed, unread) => {
            let failed = counted(failed, "shard");
            format!("incomplete: {failed} parked or damaged, {unread} unread, {keys} done")
        }
    }
}

/// Prints how a run ended, and returns its exit code.
fn conclude(
    store: &Reader<'_>,
    run: RunId,
    latest: &Snapshot,
    console: &Console,
) -> Result<Code, Failure> {
    let totals = runs::totals(&mut store.backend.coordinator(), store.tenant, run)?;
    console.note(&format!("run {:016x}: {}", run.as_raw(), outcome(latest)));
    Ok(match latest.status {
        RunStatus::Failed | RunStatus::Cancelled => Code::RunOver,
        RunStatus::Initializing | RunStatus::Active | RunStatus::Done => {
            match totals.parked + totals.damaged + totals.unread {
                0 => Code::Complete,
                1.. => Code::Incomplete,
            }
        }
    })
}
