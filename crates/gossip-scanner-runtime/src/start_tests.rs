//! Finding and creating runs: refused requests, and a store that fails.

use std::ffi::OsStr;
use std::time::Duration;

use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::ShardSpec;
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits,
    Txn,
};
use gossip_coordination::{InfraError, RunManagement as _, RunName};

use crate::clock::SystemClock;
use crate::connectors::{Source, SourceFamily, SourceOptions, SourceRegistry};
use crate::job::Job;
use crate::run_plan::OpenedRun;
use crate::start::{RunRequest, StartError};
use crate::test_support::TENANT;

/// A store of which one read fails, as during a change of its leader.
struct OnceAbsent {
    store: MapStore,
    reads_left: u32,
}

impl Store for OnceAbsent {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let is_failing = self.reads_left == 0;
        self.reads_left = self.reads_left.wrapping_sub(1);
        if is_failing {
            let (operation, message) = ("read", "no answer".to_owned());
            return Err(InfraError::Transient { operation, message });
        }
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.store.commit(txns)
    }

    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

/// Opens the run of a source under the name `nightly`, with a failure of one read.
fn open(store: &MapStore, source: &str, reads_before: u32) -> Result<OpenedRun, StartError> {
    let source = Source::parse(OsStr::new(source), SourceOptions::default()).unwrap();
    open_named(store, &source, Some("nightly"), reads_before)
}

fn open_named(
    store: &MapStore,
    source: &Source,
    name: Option<&str>,
    reads_before: u32,
) -> Result<OpenedRun, StartError> {
    let options = SourceOptions::default();
    let connector = source.open().unwrap();
    let job =
        Job { source: source.text(), options, stamp: None, command: Vec::new(), stream: None };
    let request = RunRequest {
        tenant: TENANT,
        source,
        connector: &*connector,
        job: &job,
        settings: b"",
        job_key: None,
        lease: Duration::from_secs(15),
        retries: 5,
        shards: 1,
        name: name.map(|name| RunName::try_new(name).unwrap()),
        restart: false,
        allow_parallel: true,
    };
    let store = OnceAbsent { store: store.another_handle(), reads_left: reads_before };
    let mut coordinator = StoreCoordinator::new(store, StoreConfig::new(u64::from(reads_before)));
    request.open(&mut coordinator, &SystemClock::new(), &())
}

#[test]
fn name_of_a_run_that_cannot_be_read_for_a_moment_is_not_given_again() {
    let store = MapStore::new();
    let named = open(&store, "range:0..10", u32::MAX).unwrap().run;
    for reads_before in 0.. {
        match open(&store, "range:0..20", reads_before) {
            Err(StartError::Store(error)) => assert!(error.is_retryable(), "{error}"),
            Err(StartError::NameInUse { run }) => {
                assert_eq!(run, named);
                assert!(reads_before >= 2, "the runs and one of them are read before");
                return;
            }
            other => panic!("after {reads_before} reads: {other:?}"),
        }
    }
}

#[test]
fn existing_run_is_not_renamed() {
    let store = MapStore::new();
    let source = Source::parse(OsStr::new("range:0..10"), SourceOptions::default()).unwrap();
    let made = open_named(&store, &source, Some("nightly"), u32::MAX).unwrap();
    let renamed = open_named(&store, &source, Some("weekly"), u32::MAX);
    let name = Some(RunName::try_new("nightly").unwrap());
    assert_eq!(renamed, Err(StartError::OtherName { run: made.run, name }));
    // Without a name the request is about the same run, whatever its name is.
    assert_eq!(open_named(&store, &source, None, u32::MAX).unwrap().run, made.run);
}

#[test]
fn unnamed_run_does_not_get_a_name_later() {
    let store = MapStore::new();
    let source = Source::parse(OsStr::new("range:0..10"), SourceOptions::default()).unwrap();
    let made = open_named(&store, &source, None, u32::MAX).unwrap();
    let named = open_named(&store, &source, Some("weekly"), u32::MAX).unwrap_err();
    assert_eq!(named, StartError::OtherName { run: made.run, name: None });
    let text = format!("run {:016x} exists under another name", made.run.as_raw());
    assert_eq!(named.to_string(), text);
}

/// A family whose root a program made without the envelope of `gossip-frontier`.
struct Unhinted;

impl SourceFamily for Unhinted {
    fn open(&self, _name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        Source::parse(OsStr::new("range:0..10"), SourceOptions::default()).unwrap().open()
    }

    fn root(&self, _name: &OsStr) -> ShardSpec {
        ShardSpec::new(b"a", b"z", b"own")
    }
}

#[test]
fn root_without_a_hint_is_refused_before_a_run_is_created() {
    let (store, mut registry) = (MapStore::new(), SourceRegistry::new());
    registry.register("unhinted", Unhinted).unwrap();
    let source = registry.parse(OsStr::new("unhinted:x"), SourceOptions::default()).unwrap();
    let refused = open_named(&store, &source, None, u32::MAX).unwrap_err();
    assert!(matches!(refused, StartError::RootHint(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.starts_with("the root of the source has no valid hint: "), "{text}");
    let mut coordinator = StoreCoordinator::new(store, StoreConfig::new(1));
    let mut runs = Vec::new();
    coordinator.list_active_runs_into(TENANT, None, 8, &mut runs).unwrap();
    assert_eq!(runs, []);
}

#[test]
fn run_with_a_damaged_record_does_not_prevent_another_one() {
    let mut store = MapStore::new();
    let damaged = open(&store, "range:0..10", u32::MAX).unwrap().run;
    let mut txn = Txn::new();
    txn.put(Key::RunHead { tenant: TENANT, run: damaged }, vec![1, 2, 3]);
    store.commit(vec![txn]).remove(0).unwrap();
    let opened = open(&store, "range:0..20", u32::MAX - 1).unwrap();
    assert_ne!(opened.run, damaged);
}
