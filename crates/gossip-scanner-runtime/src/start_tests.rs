//! Finding and creating runs on a store that fails.

use std::ffi::OsStr;
use std::time::Duration;

use gossip_coordination::store::{
    Answer, CommitOutcome, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{InfraError, RunName};

use crate::clock::SystemClock;
use crate::connectors::{Source, SourceOptions};
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
    let options = SourceOptions::default();
    let source = Source::parse(OsStr::new(source), options).unwrap();
    let connector = source.open().unwrap();
    let job =
        Job { source: source.text(), options, stamp: None, command: Vec::new(), stream: None };
    let request = RunRequest {
        tenant: TENANT,
        source: &source,
        connector: &*connector,
        job: &job,
        settings: b"",
        job_key: None,
        lease: Duration::from_secs(15),
        retries: 5,
        shards: 1,
        name: Some(RunName::try_new("nightly").unwrap()),
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
