//! Scripts run by several handles on one store, and the lines that they exchange.

use std::cell::RefCell;
use std::rc::Rc;

use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};

use super::executor::CommandOutput;
use super::multi_handle::{Channel, HandleServer, MultiHandle, Routing};
use super::wire::{EncodedState, Reply, Request};
use super::{Executor, ScriptBackend, WorldSettings, check_scripts_on, is_for_memory_only};

/// Handles on one store: more than one, so that they differ, and few, so that each is used again.
const HANDLES: u64 = 3;

/// The stores of the scripts so far.
type Stores = Rc<RefCell<Vec<MapStore>>>;

/// A handle on the store of each script; the first handle that begins a script creates its store.
struct OverMap {
    stores: Stores,
    begun: usize,
    nonce: u64,
}

impl ScriptBackend for OverMap {
    type Coordinator = StoreCoordinator<MapStore>;

    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator> {
        let mut stores = self.stores.borrow_mut();
        if stores.len() == self.begun {
            stores.push(MapStore::new());
        }
        let mut store = stores[self.begun].another_handle();
        self.begun += 1;
        settings.allot(&mut store);
        let config = settings.limit(StoreConfig::new(self.nonce));
        settings.fit_a_store().then(|| StoreCoordinator::new(store, config))
    }

    fn observe<R>(
        coordinator: &mut Self::Coordinator,
        call: impl FnOnce(&mut Self::Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

fn multi_handle(routing: Routing) -> MultiHandle<'static> {
    let stores = Stores::default();
    let handle = |number: u64| {
        let backend = OverMap { stores: Rc::clone(&stores), begun: 0, nonce: number << 32 };
        let mut handle = HandleServer::new(backend);
        Box::new(move |line: &str| handle.answer(line)) as Channel<'_>
    };
    MultiHandle::new((1..=HANDLES).map(handle).collect(), routing)
}

/// `gossip-trials` runs the same scripts round-robin by processes on SQLite.
#[test]
fn golden_scripts_by_a_handle_for_each_worker_are_answered_as_written() {
    let mut handles = multi_handle(Routing::ByWorker);
    let report = check_scripts_on(&mut handles, false).expect("the scripts can be read");
    let failures = report.failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}

/// Otherwise the test above would show no more than a run with one handle.
#[test]
fn commands_are_distributed_over_all_handles() {
    let counts = RefCell::new(vec![0; HANDLES as usize]);
    let handle = |number: usize| {
        let counts = &counts;
        Box::new(move |line: &str| match Request::parse(line) {
            Ok(Request::Begin(_)) => "begun".to_owned(),
            _ => {
                counts.borrow_mut()[number] += 1;
                Reply::Executed(EncodedState::default(), CommandOutput::default()).to_line()
            }
        }) as Channel<'_>
    };
    let mut handles =
        MultiHandle::new((0..HANDLES as usize).map(handle).collect(), Routing::RoundRobin);
    assert_eq!(handles.begin(WorldSettings::default()), Ok(true));
    for number in 0..9 {
        handles.execute(&format!("renew lease=l{number} worker=1")).unwrap();
    }
    assert_eq!(*counts.borrow(), [3, 3, 3]);
    for _ in 0..4 {
        handles.execute("claim worker=4 as=l").unwrap();
    }
    assert_eq!(*counts.borrow(), [3, 7, 3], "the cooldown of a worker is tracked by one handle");
    handles.routing = Routing::ByWorker;
    for _ in 0..4 {
        handles.execute("renew lease=l").unwrap();
    }
    assert_eq!(*counts.borrow(), [3, 11, 3], "the handle that claimed renews");
}

#[test]
fn lines_are_read_as_they_were_written() {
    let text = "a\ttab, a \\backslash\\ and\ntwo lines\\n".to_owned();
    let output =
        CommandOutput { label: "executed".into(), text, events: vec!["one".into(), String::new()] };
    let line = Reply::Executed(EncodedState::default(), output.clone()).to_line();
    assert!(!line.contains('\n'));
    let Ok(Reply::Executed(_, read)) = Reply::parse(&line) else { panic!("{line}") };
    assert_eq!(read, output);
    let settings = WorldSettings { claim_cooldown: Some(7), ..WorldSettings::default() };
    let Ok(Request::Begin(read)) = Request::parse(&Request::Begin(settings).to_line()) else {
        panic!("settings")
    };
    assert_eq!(read, settings);
    assert_eq!(Reply::parse(&Reply::error_line("wrong\tline")).err().unwrap(), "wrong\tline");
    for invalid in ["", "begin\t1", "execute", "lease"] {
        assert!(Request::parse(invalid).is_err() && Reply::parse(invalid).is_err());
    }
}
