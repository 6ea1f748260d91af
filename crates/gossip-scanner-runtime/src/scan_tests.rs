use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gossip_coordination::{RunManagement as _, ShardFilter, WorkerEntry, WorkerState};

use crate::clock::{Clock as _, SystemClock};
use crate::connectors::test_support::TempDir;
use crate::connectors::{Source, SourceOptions};
use crate::job::Job;
use crate::observer::{Event, Observer};
use crate::processor::{Verdict, Work};
use crate::scan::{DEFAULT_TENANT, ScanError, ScanOptions, ScanParts, Scanned, scan};
use crate::task::Ending;
use crate::test_support::{TENANT, World, at};
use crate::worker::{Drain, Finish};

#[test]
fn a_scan_touches_every_key_once_goes_on_and_is_not_repeated() {
    let (world, seen) = (World::new(), Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
    let source = Source::parse(OsStr::new("range:0..500"), SourceOptions::NONE).unwrap();
    let drain = Drain::new();
    let process = |work: Work<'_>, _: &mut Vec<u8>| {
        let mut seen = seen.lock().unwrap();
        *seen.entry(work.key().to_vec()).or_default() += 1;
        if seen.len() == 200 {
            drain.ask();
        }
        Verdict::Done
    };
    let options = ScanOptions { threads: 2, ..ScanOptions::new("count", 7) };
    let handles = || world.handle();
    let first = scan(&source, &options, ScanParts::new(&handles, &drain), &process).unwrap();
    assert_eq!(first.finish, Finish::Drained);
    // What others read of the run: they cannot do what the closure does.
    let (mut roots, filter) = (Vec::new(), ShardFilter::all().roots());
    world.handle().list_shards_into(at(1), DEFAULT_TENANT, first.run, filter, &mut roots).unwrap();
    assert!(Job::decode(&roots[0].metadata).unwrap().command.is_empty());
    let again =
        |drain: &Drain| scan(&source, &options, ScanParts::new(&handles, drain), &process).unwrap();
    for _ in 0..2 {
        let later = again(&Drain::new());
        assert_eq!((later.run, later.finish), (first.run, Finish::Complete));
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (500, 500));
}

/// Counts what comes from other workers, and what goes to them.
#[derive(Default)]
struct Moves {
    arrived: AtomicUsize,
    moved: AtomicUsize,
}

impl Observer for Moves {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Arrived { .. } => self.arrived.fetch_add(1, Ordering::SeqCst),
            Event::Ended { ending: Ending::Moved, .. } => self.moved.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
    }
}

/// Two processes of one program: the one that is told to stop gives what it has to the other.
#[test]
fn a_drained_scan_hands_its_shard_to_an_idle_one_and_nothing_is_done_twice() {
    const KEYS: usize = 400;
    let (world, seen) = (World::new(), Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
    let source = Source::parse(OsStr::new("range:0..400"), SourceOptions::NONE).unwrap();
    let (first, second, moves) = (Drain::new(), Drain::new(), Moves::default());
    let (handles, records) = (|| world.handle(), || world.records());
    let process = |work: Work<'_>, _: &mut Vec<u8>| {
        thread::sleep(Duration::from_millis(10));
        *seen.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
        Verdict::Done
    };
    let scan = |worker: u64, threads: usize, drain: &Drain| {
        let usual = ScanOptions::new("slow", worker);
        let options = ScanOptions { threads, tenant: TENANT, ..usual };
        let parts = ScanParts {
            records: Some(&records),
            observer: &moves,
            ..ScanParts::new(&handles, drain)
        };
        scan(&source, &options, parts, &process).unwrap().finish
    };
    let ends = thread::scope(|scope| {
        let one = scope.spawn(|| scan(1, 1, &first));
        wait_until(|| seen.lock().unwrap().len() >= 5);
        // More threads than there will be shards: it is always idle.
        let two = scope.spawn(|| scan(2, 64, &second));
        wait_until(|| is_idle(&world, 2));
        first.ask();
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert_eq!(ends, [Finish::Drained, Finish::Complete]);
    let counts = [&moves.moved, &moves.arrived].map(|count| count.load(Ordering::SeqCst));
    assert!(counts[0] >= 1 && counts[0] == counts[1], "{counts:?}");
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (KEYS, KEYS as u32));
}

/// Whether the worker of this number has said that it is idle.
fn is_idle(world: &World, number: u32) -> bool {
    let (mut workers, now) = (Vec::new(), SystemClock::new().now());
    world.handle().list_workers_into(now, TENANT, &mut workers).unwrap();
    // The lower half of a name is the number.
    let is_it = |entry: &&WorkerEntry| entry.worker.as_raw() as u32 == number;
    workers.iter().find(is_it).is_some_and(|entry| entry.state == WorkerState::Idle)
}

fn wait_until(is_so: impl Fn() -> bool) {
    const LOOKS: usize = 5_000;
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("it never comes about");
}

/// Rows put in at the top move all others: what was done is not what the keys say now.
#[test]
fn a_scan_does_not_go_on_over_a_file_that_has_changed() {
    let (world, directory, drain) = (World::new(), TempDir::new(), Drain::new());
    let rows: String = (0..100).map(|row| format!("{row}\n")).collect();
    let path = directory.write("rows.jsonl", &rows);
    let source = Source::parse(path.as_os_str(), SourceOptions::NONE).unwrap();
    let options = ScanOptions { threads: 1, ..ScanOptions::new("load", 7) };
    let handles = || world.handle();
    let stop = |_: Work<'_>, _: &mut Vec<u8>| {
        drain.ask();
        Verdict::Done
    };
    let first = scan(&source, &options, ScanParts::new(&handles, &drain), &stop).unwrap();
    assert_eq!(first.finish, Finish::Drained);
    let scan = || {
        let (process, drain) = (|_: Work<'_>, _: &mut Vec<u8>| Verdict::Done, Drain::new());
        scan(&source, &options, ScanParts::new(&handles, &drain), &process)
    };
    let changed = Err(ScanError::SourceChanged { run: first.run });
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    directory.write("rows.jsonl", format!("\"new\"\n{rows}"));
    assert_eq!(scan(), changed);
    // As it was, it goes on; and when it is over, a file that has grown since is not done.
    directory.write("rows.jsonl", &rows);
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(scan(), Ok(Scanned { run: first.run, finish: Finish::Complete }));
    assert_eq!(scan(), Ok(Scanned { run: first.run, finish: Finish::Complete }));
    directory.write("rows.jsonl", format!("{rows}100\n"));
    assert_eq!(scan(), changed);
}
