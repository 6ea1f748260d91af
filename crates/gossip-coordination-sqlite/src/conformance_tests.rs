//! SQLite passes the same checks as the in-memory coordinator: the suite, the scripts, random
//! sequences, and the comparison with memory. The files are in memory and not synced; disks and
//! several processes are tested in `sqlite/processes.rs` of `gossip-trials`.

use std::sync::Mutex;

use gossip_conformance::concurrent_repairs::check_concurrent_repairs;
use gossip_conformance::damage::{check_damaged_shards, check_repairs};
use gossip_conformance::differential::{Plan, Totals, check_plan};
use gossip_conformance::testscript::{
    ScriptBackend, WorldSettings, check_scripts, is_for_memory_only,
};
use gossip_conformance::watches::check_void_deadlines;
use gossip_conformance::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};
use gossip_coordination::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
    fresh_nonce,
};
use gossip_coordination::{CollectEvents, EventCollector, InfraError, StateTransitionEvent};

use crate::test_support::Scratch;
use crate::{OpenCheck, SqliteCoordinator, SqliteDatabase, SqliteOptions, SqliteStore};

fn config(settings: Settings) -> StoreConfig {
    settings.limit(StoreConfig::new(fresh_nonce()))
}

fn race(jobs: Vec<RaceJob<'_>>) {
    std::thread::scope(|scope| {
        for job in jobs {
            scope.spawn(job);
        }
    });
}

/// Directories of the stores that a target created; removed with it.
#[derive(Default)]
struct ScratchDirs {
    scratches: Mutex<Vec<Scratch>>,
}

impl ScratchDirs {
    /// Creates an empty database. It has no pages to check yet.
    fn fresh(&self) -> SqliteDatabase {
        let scratch = Scratch::new();
        let options = SqliteOptions { check: OpenCheck::Header, ..SqliteOptions::default() };
        let database = scratch.database_with(options.relaxed());
        self.scratches.lock().unwrap().push(scratch);
        database
    }
}

/// Handles of one database, or of one database each on the same file.
struct OverSqlite {
    dirs: ScratchDirs,
    opens_again: bool,
}

impl OverSqlite {
    fn sharing() -> Self {
        Self { dirs: ScratchDirs::default(), opens_again: false }
    }
}

impl ConformanceTarget for OverSqlite {
    type Backend = SqliteCoordinator;

    fn name(&self) -> &str {
        "SQLite"
    }

    /// [`OverForgetful`] can.
    fn lacks(&self) -> &'static [Ability] {
        &[Ability::LostReplies, Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> SqliteCoordinator {
        let mut store = self.dirs.fresh().store();
        settings.allot(&mut store);
        StoreCoordinator::new(store, config(settings))
    }

    fn with_events<R>(
        &self,
        backend: &mut SqliteCoordinator,
        call: impl FnOnce(&mut SqliteCoordinator) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &SqliteCoordinator) -> Option<SqliteCoordinator> {
        let database = backend.store().database();
        let database = if self.opens_again {
            SqliteDatabase::open(database.path(), *database.options()).unwrap()
        } else {
            database.clone()
        };
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        Some(StoreCoordinator::new(database.store(), config))
    }

    fn sibling_handle(&self, backend: &SqliteCoordinator) -> Option<SqliteCoordinator> {
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        let (store, process) = (backend.store().clone(), backend.process_state());
        Some(StoreCoordinator::sharing(store, config, &process))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs);
    }
}

#[test]
fn damage_to_one_shard_leaves_the_others_alone() {
    let target = OverSqlite::sharing();
    check_damaged_shards(|| target.fresh(Settings::default()));
    check_repairs(|| target.fresh(Settings::default()));
    check_concurrent_repairs(|| {
        let database = target.dirs.fresh();
        [database.store(), database.store()]
    });
}

#[test]
fn handles_of_one_database_conform() {
    let ran = run_all(&OverSqlite::sharing(), &mut |_| ());
    println!("{ran} cases");
}

#[test]
fn databases_on_one_file_conform() {
    let target = OverSqlite { opens_again: true, ..OverSqlite::sharing() };
    let ran = run_all(&target, &mut |_| ());
    println!("{ran} cases");
}

#[test]
fn random_sequences_are_answered_as_the_model_answers() {
    check_sequences(&OverSqlite::sharing(), 0..20, 120);
}

/// A store that loses replies on request: the commit is applied and its outcome is `Unknown`.
struct Forgetful {
    store: SqliteStore,
    loses_next: bool,
    loses_all: bool,
}

impl Store for Forgetful {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let loses = std::mem::take(&mut self.loses_next) || self.loses_all;
        let mut outcomes = self.store.commit(txns);
        if loses {
            outcomes.iter_mut().for_each(|outcome| *outcome = Ok(CommitOutcome::Unknown));
        }
        outcomes
    }

    /// Returns at once: no concurrent caller exists.
    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

/// Handles of one database whose replies can get lost.
#[derive(Default)]
struct OverForgetful {
    dirs: ScratchDirs,
    loses_all: bool,
}

impl ConformanceTarget for OverForgetful {
    type Backend = StoreCoordinator<Forgetful>;

    fn name(&self) -> &str {
        "SQLite that loses replies"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let (mut store, loses_all) = (self.dirs.fresh().store(), self.loses_all);
        settings.allot(&mut store);
        StoreCoordinator::new(Forgetful { store, loses_next: false, loses_all }, config(settings))
    }

    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let (store, loses_all) = (backend.store().store.clone(), self.loses_all);
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        Some(StoreCoordinator::new(Forgetful { store, loses_next: false, loses_all }, config))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let (store, loses_all) = (backend.store().store.clone(), self.loses_all);
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        let store = Forgetful { store, loses_next: false, loses_all };
        Some(StoreCoordinator::sharing(store, config, &backend.process_state()))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs);
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.store_mut().loses_next = true;
        true
    }
}

#[test]
fn a_store_that_loses_replies_conforms() {
    run_all(&OverForgetful::default(), &mut |_| ());
    let target = OverForgetful { loses_all: true, ..OverForgetful::default() };
    check_sequences(&target, 700..705, 120);
}

/// Runs each script on its own file.
#[derive(Default)]
struct Scripts {
    dirs: ScratchDirs,
}

impl ScriptBackend for Scripts {
    type Coordinator = SqliteCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<SqliteCoordinator> {
        if !settings.fit_a_store() {
            return None;
        }
        let config = settings.limit(StoreConfig::new(fresh_nonce()));
        let mut store = self.dirs.fresh().store();
        settings.allot(&mut store);
        Some(StoreCoordinator::new(store, config))
    }

    fn observe<R>(
        coordinator: &mut SqliteCoordinator,
        call: impl FnOnce(&mut SqliteCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

#[test]
fn golden_scripts_are_answered_as_written() {
    run_scripts(&mut Scripts::default());
}

/// Runs every script except those that fill a slab.
fn run_scripts(backend: &mut impl ScriptBackend) {
    let report = check_scripts(backend, false).expect("the scripts can be read");
    let failures = report.failures.join("\n");
    println!("{} run, {} skipped", report.files.len(), report.skipped.len());
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}

/// Sequences in each quarter of the comparison with memory; the quarters run in parallel.
const SEQUENCES: u64 = 168;
/// Operations per sequence; more than a hundred thousand in total.
const OPERATIONS: usize = 150;

const _: () = assert!(4 * SEQUENCES * OPERATIONS as u64 >= 100_000);

/// Runs the quarter of the comparison that starts at seed `first`.
fn compare_with_memory(first: u64) {
    let seeds = first..first + SEQUENCES;
    let plan = Plan { seeds, steps: OPERATIONS, list_every: 10 };
    let played: Totals = check_plan(&OverSqlite::sharing(), &plan, |_, _| ());
    println!("{played:?}");
    assert!(played.granted > 1_000, "{played:?}");
}

#[test]
fn the_first_quarter_is_answered_as_memory_answers() {
    compare_with_memory(0);
}

#[test]
fn the_second_quarter_is_answered_as_memory_answers() {
    compare_with_memory(1_000);
}

#[test]
fn the_third_quarter_is_answered_as_memory_answers() {
    compare_with_memory(2_000);
}

#[test]
fn the_last_quarter_is_answered_as_memory_answers() {
    compare_with_memory(3_000);
}

#[test]
fn far_deadlines_become_void() {
    let scratch = Scratch::new();
    let database = scratch.database_with(SqliteOptions::default().relaxed());
    check_void_deadlines(|process| {
        StoreCoordinator::sharing(database.store(), database.store_config(), process)
    });
}
