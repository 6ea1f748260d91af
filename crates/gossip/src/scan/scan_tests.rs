use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::{Connector, ConnectorError, MemoryConnector};
use gossip_contracts::coordination::ShardSpecRef;
use gossip_contracts::identity::{RunId, WorkerId};
use gossip_coordination::{EventKind, ParkReason, RunManagement as _, ShardFilter, WorkerState};
use gossip_frontier::{ShardHint, decode_hint};
use gossip_scanner_runtime::connectors::parse_row_key;
use gossip_scanner_runtime::{
    Clock as _, InitialShardsError, LogEntry, OpenRunError, StartError, SystemClock, TaskOutcome,
    job_of,
};
use gossip_testkit::test_support::TestDirectory;

use super::*;
use crate::store::StoreUrl;

/// How often each key was processed.
type Seen = Mutex<BTreeMap<Vec<u8>, u32>>;

fn memory() -> Backend {
    Backend::open(&StoreUrl::memory()).unwrap()
}

fn note(seen: &Seen, item: &Item<'_>) -> usize {
    let mut seen = seen.lock().unwrap();
    *seen.entry(item.key().to_vec()).or_default() += 1;
    seen.len()
}

#[test]
fn a_scan_processes_every_key_once_and_resumes() {
    let (backend, seen, drain) = (memory(), Seen::default(), Drain::new());
    let scan = || Scan::of("range:0..500").backend(&backend).name("count").threads(2);
    let process = |item: &mut Item<'_>| {
        if note(&seen, item) == 200 {
            drain.ask();
        }
        Ok(())
    };
    let first = scan().drain(&drain).each(process).unwrap();
    assert_eq!(first.status, Status::Drained);
    // Others read the job of the run: they cannot do what the closure does.
    let (tenant, now) = (tenant_id("default").unwrap(), SystemClock::new().now());
    let job = job_of(&mut backend.coordinator(), now, tenant, first.run).unwrap();
    assert!(job.command.is_empty());
    let joined =
        Joined::new(&backend, tenant, first.run, &SourceRegistry::new(), RunCommand::AnyStored);
    assert!(matches!(joined, Err(ScanError::NoCommand)));
    for _ in 0..2 {
        let later = scan().each(process).unwrap();
        assert_eq!((later.run, later.status), (first.run, Status::Complete));
        assert_eq!(later.totals.keys, 500);
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (500, 500));
}

/// The events of the run and its shards, from its creation to the last shard.
#[test]
fn kernel_events_of_a_scan_with_a_failing_item_arrive_in_order() {
    let (backend, kinds) = (memory(), Mutex::new(Vec::new()));
    let one = NonZeroUsize::MIN;
    let of_run = || Scan::of("range:0..3").backend(&backend).threads(1).shards(one);
    let scan = of_run().auto_split(false).on_event(|event| {
        if let Event::Kernel(event) = event {
            kinds.lock().unwrap().push(event.kind.clone());
        }
    });
    let outcome = scan.each(|item| match item.number() {
        Some(1) => Err(ItemError::permanent("this one")),
        _ => Ok(()),
    });
    assert_eq!(outcome.unwrap().status, Status::Incomplete);
    let kinds = kinds.into_inner().unwrap();
    let is_frequent = |kind: &&EventKind| {
        matches!(kind, EventKind::ShardCheckpointed { .. } | EventKind::ShardLeaseRenewed { .. })
    };
    let lifecycle: Vec<_> = kinds.iter().filter(|kind| !is_frequent(kind)).collect();
    let [created, active, first, cut, parked, second, done] = lifecycle[..] else {
        panic!("{lifecycle:?}")
    };
    assert_eq!(*created, EventKind::RunCreated);
    assert_eq!(*active, EventKind::RunActivated { shard_count: 1 });
    let EventKind::ShardAcquired { shard: whole, .. } = *first else { panic!("{first:?}") };
    let EventKind::ShardResidualCreated { parent, residual } = *cut else { panic!("{cut:?}") };
    assert_eq!(parent, whole);
    let reason = ParkReason::Poisoned;
    assert_eq!(*parked, EventKind::ShardParked { shard: whole, reason });
    assert!(matches!(second, EventKind::ShardAcquired { shard, .. } if *shard == residual));
    assert_eq!(*done, EventKind::ShardCompleted { shard: residual });
    // The store has the same, for every process.
    let (prepared, tenant) = (of_run().prepare().unwrap(), tenant_id(DEFAULT_TENANT).unwrap());
    let session = prepared.open(&backend, tenant, &()).unwrap();
    let stored = session.events().unwrap().map(|entry| match entry {
        LogEntry::Event(event) => event.kind,
        gap @ LogEntry::Gap { .. } => panic!("{gap:?}"),
    });
    assert_eq!(stored.collect::<Vec<_>>(), lifecycle.into_iter().cloned().collect::<Vec<_>>());
}

/// Counts shards that arrive from other workers, and shards handed to them.
#[derive(Default)]
struct Moves {
    arrived: AtomicUsize,
    moved: AtomicUsize,
}

impl Moves {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Arrived { .. } => self.arrived.fetch_add(1, Ordering::SeqCst),
            Event::Ended { outcome: TaskOutcome::Moved, .. } => {
                self.moved.fetch_add(1, Ordering::SeqCst)
            }
            _ => 0,
        };
    }
}

/// Two processes of one program: the one that drains hands its shard to the other.
#[test]
fn a_drained_scan_hands_its_shard_to_an_idle_one_and_nothing_is_done_twice() {
    const KEYS: usize = 400;
    let (backend, seen, moves) = (memory(), Seen::default(), Moves::default());
    let (first, second) = (Drain::new(), Drain::new());
    let scan = |threads: usize, drain: &Drain| {
        let scan = Scan::of("range:0..400").backend(&backend).threads(threads).drain(drain);
        let ended = scan.on_event(|event| moves.observe(event)).each(|item| {
            thread::sleep(Duration::from_millis(10));
            note(&seen, item);
            Ok(())
        });
        ended.unwrap().status
    };
    let ends = thread::scope(|scope| {
        let one = scope.spawn(|| scan(1, &first));
        wait_until(|| seen.lock().unwrap().len() >= 5);
        let busy = workers(&backend, |_| true);
        // More threads than there will be shards: it is always idle.
        let two = scope.spawn(|| scan(64, &second));
        wait_until(|| !workers(&backend, |state| state == WorkerState::Idle).is_subset(&busy));
        first.ask();
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert_eq!(ends, [Status::Drained, Status::Complete]);
    let counts = [&moves.moved, &moves.arrived].map(|count| count.load(Ordering::SeqCst));
    assert!(counts[0] >= 1 && counts[0] == counts[1], "{counts:?}");
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().sum::<u32>()), (KEYS, KEYS as u32));
}

/// The live workers in a state.
fn workers(backend: &Backend, is_it: impl Fn(WorkerState) -> bool) -> BTreeSet<WorkerId> {
    let (mut workers, now) = (Vec::new(), SystemClock::new().now());
    let tenant = tenant_id("default").unwrap();
    backend.coordinator().list_workers_into(now, tenant, &mut workers).unwrap();
    workers.iter().filter(|entry| is_it(entry.state)).map(|entry| entry.worker).collect()
}

fn wait_until(is_so: impl Fn() -> bool) {
    const LOOKS: usize = 5_000;
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("the condition was never met");
}

/// Rows inserted at the top move all others: the keys mean other rows now.
#[test]
fn a_scan_of_a_changed_file_is_refused() {
    let (backend, directory, drain) = (memory(), TestDirectory::new("scan-changed"), Drain::new());
    let rows: String = (0..100).map(|row| format!("{row}\n")).collect();
    let path = directory.path().join("rows.jsonl");
    std::fs::write(&path, &rows).unwrap();
    let scan = || Scan::of(&path).backend(&backend).name("load").threads(1);
    let first = scan().drain(&drain).each(|_| {
        drain.ask();
        Ok(())
    });
    let first = first.unwrap();
    assert_eq!(first.status, Status::Drained);
    let scan = || scan().each(|_| Ok(()));
    let is_refused = || match scan() {
        Err(ScanError::Start(StartError::SourceChanged { opened })) => opened.run == first.run,
        _ => false,
    };
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, format!("\"new\"\n{rows}")).unwrap();
    assert!(is_refused());
    // With its former content it resumes; a file that has grown since is not done.
    std::fs::write(&path, &rows).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    for _ in 0..2 {
        let again = scan().unwrap();
        assert_eq!((again.run, again.status), (first.run, Status::Complete));
    }
    std::fs::write(&path, format!("{rows}100\n")).unwrap();
    assert!(is_refused());
}

#[test]
fn failed_item_is_listed_and_the_others_complete() {
    let backend = memory();
    let scan = Scan::of("range:0..50").backend(&backend).threads(2).tries(2);
    let tried = AtomicUsize::new(0);
    let outcome = scan.each(|item| match item.number() {
        Some(13) => {
            tried.fetch_add(1, Ordering::SeqCst);
            Err(ItemError::failed("unlucky"))
        }
        Some(31) => Err(ItemError::permanent("unlucky for good")),
        _ => Ok(()),
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.status, Status::Incomplete);
    assert_eq!((outcome.totals.keys, outcome.totals.parked), (48, 2));
    let number = |key: &[u8]| parse_row_key(key).unwrap();
    let failed = outcome.failed.iter().map(|failed| number(failed.key.as_deref().unwrap()));
    assert_eq!(failed.collect::<BTreeSet<_>>(), BTreeSet::from([13, 31]));
    let texts = outcome.failed.iter().map(|failed| failed.text.as_deref().unwrap());
    assert_eq!(texts.collect::<BTreeSet<_>>(), BTreeSet::from(["13", "31"]));
    assert_eq!(tried.load(Ordering::SeqCst), 2);
    assert!(count_hinted_rows(&backend, outcome.run) > 8, "each failed item was split off");
}

/// Checks that the hint of every shard states the rows of its range, and returns their number.
fn count_hinted_rows(backend: &Backend, run: RunId) -> usize {
    let (tenant, now) = (tenant_id("default").unwrap(), SystemClock::new().now());
    let (mut rows, all) = (Vec::new(), ShardFilter::all());
    backend.coordinator().list_shards_into(now, tenant, run, all, &mut rows).unwrap();
    for shard in &rows {
        let row = |bound: &[u8]| parse_row_key(bound).expect("a bound on a row");
        let (start_row, end_row) = (row(&shard.start), row(&shard.end));
        let spec = ShardSpecRef::new(&shard.start, &shard.end, &shard.metadata);
        let expected = ShardHint::Manifest { manifest_id: 0, start_row, end_row };
        assert_eq!(decode_hint(spec), Ok(expected));
    }
    rows.len()
}

/// Lines and rows are split where items fail, so ends of shards come from successors of keys.
#[test]
fn shards_of_a_file_keep_the_hint_of_their_rows_after_splits() {
    let directory = TestDirectory::new("scan-hints");
    let text: String = (0..40).map(|number| format!("{number}\n")).collect();
    for scheme in ["lines", "jsonl"] {
        let path = directory.path().join(scheme);
        std::fs::write(&path, &text).unwrap();
        let backend = memory();
        let source = format!("{scheme}:{}", path.display());
        let scan = Scan::of(source).backend(&backend).threads(2).tries(1);
        let outcome = scan.each(|item| match item.text()?.as_str() {
            "5" | "6" | "39" => Err(ItemError::permanent("refused")),
            _ => Ok(()),
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.totals.keys, outcome.totals.parked), (37, 3));
        count_hinted_rows(&backend, outcome.run);
    }
}

#[test]
fn unread_item_is_counted_and_makes_the_outcome_incomplete() {
    let directory = TestDirectory::new("scan-unread");
    for (name, text) in [("a", "text"), ("b", "longer text"), ("c", "text")] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let (backend, root) = (memory(), directory.path().canonicalize().unwrap());
    let outcome = Scan::of(directory.path()).backend(&backend).each(|item| {
        assert!(item.path().is_some_and(|path| path.starts_with(&root)));
        item.read(4)?;
        Ok(())
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.totals.keys, outcome.totals.unread), (2, 1));
    assert_eq!(outcome.status, Status::Incomplete);
}

#[test]
fn findings_and_texts_reach_the_outcome() {
    let backend = memory();
    let outcome = Scan::of("range:5..15").backend(&backend).each_async(async |item| {
        if item.text()?.ends_with('1') {
            item.add_findings(2);
        }
        Ok(())
    });
    assert_eq!(outcome.unwrap().totals.findings, 2);
}

#[test]
fn command_runs_for_every_item_and_changed_settings_are_refused() {
    let directory = TestDirectory::new("scan-command");
    let log = directory.path().join("log");
    let script = format!("echo \"$1\" >> {}", log.display());
    let command = ["sh", "-c", &script, "sh", "{}"];
    let backend = memory();
    let scan = || Scan::of("range:0..5").backend(&backend).threads(1);
    let outcome = scan().run_command(command).unwrap();
    assert!(outcome.is_complete());
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 5);
    let stopped = Drain::new();
    stopped.ask();
    let unfinished = scan().drain(&stopped).run_command(["true", "{}"]).unwrap();
    assert_eq!(unfinished.status, Status::Drained);
    let refused = scan().lease(Duration::from_secs(20)).run_command(["true", "{}"]);
    let Err(ScanError::Start(StartError::OtherSettings { run, differing })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(run, unfinished.run);
    assert_eq!(differing, [gossip_scanner_runtime::Setting::Lease]);
    let missing = scan().run_command(["gossip-no-such-program"]);
    assert!(matches!(missing, Err(ScanError::Program(_))), "{missing:?}");
}

fn letters(_name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
    let keys = MemoryConnector::try_new([b"a", b"b"].map(|key| (*key, *b"body")));
    Ok(Box::new(keys.unwrap()))
}

#[test]
fn registered_connector_is_scanned_by_its_scheme() {
    let (backend, seen) = (memory(), Seen::default());
    let outcome =
        Scan::of("letters:all").connector("letters", letters).backend(&backend).each(|item| {
            assert_eq!(item.read(16)?, b"body");
            note(&seen, item);
            Ok(())
        });
    assert!(outcome.unwrap().is_complete());
    let keys: Vec<_> = seen.into_inner().unwrap().into_keys().collect();
    assert_eq!(keys, [b"a", b"b"]);
}

/// A key outside the range of the run would be in no shard.
#[test]
fn key_outside_the_root_of_a_family_is_refused_and_not_skipped() {
    let backend = memory();
    let beyond = |_: &OsStr| -> Result<Box<dyn Connector>, ConnectorError> {
        let keys = [vec![b'a'], vec![0xFF; 300]].map(|key| (key, b"".to_vec()));
        Ok(Box::new(MemoryConnector::try_new(keys).unwrap()))
    };
    let refused = Scan::of("far:x").connector("far", beyond).backend(&backend).each(|_| Ok(()));
    let Err(ScanError::Start(StartError::Open(OpenRunError::Source(error)))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error, InitialShardsError::KeyOutsideRoot);
}

#[test]
fn missing_and_malformed_arguments_are_typed_errors() {
    let each = |scan: Scan<'_>| scan.each(|_| Ok(())).unwrap_err();
    let scan = || Scan::of("range:0..3");
    assert!(matches!(each(scan()), ScanError::NoStore));
    assert!(matches!(each(scan().store("state.db")), ScanError::StoreUrl(_)));
    assert!(matches!(each(scan().store("sqlite:/no/such/place")), ScanError::Store(_)));
    assert!(matches!(each(Scan::of("range:a..b").store("memory:")), ScanError::Source(_)));
    assert!(matches!(each(scan().store("memory:").tenant("")), ScanError::Tenant(_)));
    let taken = scan().store("memory:").connector("range", letters);
    assert!(matches!(each(taken), ScanError::Register(_)));
    let short = scan().store("memory:").lease(Duration::from_millis(99));
    assert!(matches!(each(short), ScanError::Start(StartError::LeaseTooShort)));
    let unopened = Scan::of("letters:x")
        .store("memory:")
        .connector("letters", |_: &OsStr| -> Result<Box<dyn Connector>, ConnectorError> {
            Err(ConnectorError::NotFound)
        });
    assert!(matches!(each(unopened), ScanError::Connect(ConnectorError::NotFound)));
}
