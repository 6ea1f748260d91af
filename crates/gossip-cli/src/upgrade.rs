//! `store upgrade`, and the worker of an older format that leaves the store.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossip::coordination::store::{FORMAT_VERSION, KeyRange, announce_format, fly, upgrade_page};
use gossip::runtime::Drain;
use gossip::store::Backend;

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::Record;
use crate::store_args::UpgradeArgs;
use crate::{output, store};

/// Interval at which a worker reads the format of its store: a few times in the default `--wait` of
/// an upgrade, so that it can drain before its format is replaced.
const POLL: Duration = Duration::from_secs(5);

/// Records that are rewritten in one request: a page of every engine.
const PAGE: usize = 100;

/// Passes over the store. A record is left to the next pass if it changed while it was rewritten,
/// and writers have the new format by then.
const PASSES_MAX: usize = 8;

/// Announces the newest format, waits for older workers, and rewrites every record. It can be
/// interrupted and repeated.
pub(crate) fn upgrade(
    global: &Global,
    args: &UpgradeArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let backend = store::open_existing(global)?;
    let from = backend.format().map_err(|error| Failure::store(&error))?;
    if from < FORMAT_VERSION {
        fly(&mut backend.store(), announce_format()).map_err(|error| Failure::store(&error))?;
        console.note(&format!("format {FORMAT_VERSION} is announced; older workers leave"));
        // Older workers poll the format. Records that are rewritten before they left would stop
        // them midway.
        thread::sleep(args.wait);
    }
    let (mut rewritten, mut last) = (0, Pass::default());
    for _ in 0..PASSES_MAX {
        last = pass(&backend)?;
        rewritten += last.rewritten;
        if last.left == 0 {
            break;
        }
    }
    let record = Record::new().with("from", from).with("to", FORMAT_VERSION);
    let record = record.with("rewritten", rewritten).with("unreadable", last.unreadable);
    output::one(global.output, &record)?;
    if last.left > 0 {
        return Err(Failure::new(Code::Store, "some records changed whenever they were rewritten")
            .why(output::count(last.left, "record"))
            .next("run the command again"));
    }
    Ok(Code::Complete)
}

/// One pass over all records, in numbers of records.
#[derive(Default)]
struct Pass {
    rewritten: u64,
    left: u64,
    unreadable: u64,
}

fn pass(backend: &Backend) -> Result<Pass, Failure> {
    let mut pass = Pass::default();
    for range in [KeyRange::all_tenants(), KeyRange::operator()] {
        // Page by page, so that a commit stays small and workers are not held up.
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = fly(&mut backend.store(), upgrade_page(range, PAGE));
            let page = page.map_err(|error| Failure::store(&error))?;
            pass.rewritten += page.rewritten;
            pass.left += page.left;
            pass.unreadable += page.unreadable;
            rest = page.rest;
        }
    }
    Ok(pass)
}

/// Drains a worker whose store a newer program upgrades.
pub(crate) struct FormatWatch {
    /// The newer format; zero if there is none.
    newer: AtomicU8,
    is_over: AtomicBool,
}

impl FormatWatch {
    pub(crate) const fn new() -> Self {
        Self { newer: AtomicU8::new(0), is_over: AtomicBool::new(false) }
    }

    /// Polls the format until the work is over, and drains once it is newer. A read that fails is
    /// repeated: the worker itself reports a broken store.
    pub(crate) fn run(&self, backend: &Backend, drain: &Drain, console: &Console) {
        let mut due = Instant::now() + POLL;
        while !self.is_over.load(Ordering::SeqCst) {
            // Parked and not asleep, so that the end of the work does not wait for the interval.
            thread::park_timeout(due.saturating_duration_since(Instant::now()));
            // Woken without a reason, or because the work is over, which the loop checks.
            if Instant::now() < due {
                continue;
            }
            due = Instant::now() + POLL;
            if self.check(backend).is_some() {
                console.note("a newer gossip upgrades the store: finishing the items in flight");
                return drain.ask();
            }
        }
    }

    /// Ends [`run`](Self::run), if its thread is unparked afterwards.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Returns the failure of a worker that ended because of the format, or met a newer record
    /// before it could leave.
    pub(crate) fn failure(&self, backend: &Backend) -> Option<Failure> {
        let known = Some(self.newer.load(Ordering::SeqCst)).filter(|format| *format > 0);
        // Read again, because the upgrade may have begun after the last poll.
        known.or_else(|| self.check(backend)).map(Failure::newer_store)
    }

    fn check(&self, backend: &Backend) -> Option<u8> {
        let format = backend.format().ok().filter(|format| *format > FORMAT_VERSION)?;
        self.newer.store(format, Ordering::SeqCst);
        Some(format)
    }
}
