//! Scripts performed by several handles on one store, and the lines that they exchange.

use std::cell::RefCell;
use std::rc::Rc;

use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{EventCollector, StateTransitionEvent};

use super::stage::Performed;
use super::troupe::{Actor, Casting, Line, Troupe};
use super::wire::{Reply, Request, Situation};
use super::{ScriptBackend, Stage, WorldSettings, check_scripts_on, is_for_memory_only};

/// Handles on one store: not one, so that they differ, and not too many, so that each comes again.
const ACTORS: u64 = 3;

/// The stores of the scripts so far.
type Stores = Rc<RefCell<Vec<MapStore>>>;

/// A handle on the store of each script; whoever begins it first makes it.
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

fn troupe(casting: Casting) -> Troupe<'static> {
    let stores = Stores::default();
    let actor = |number: u64| {
        let backend = OverMap { stores: Rc::clone(&stores), begun: 0, nonce: number << 32 };
        let mut actor = Actor::new(backend);
        Box::new(move |line: &str| actor.answer(line)) as Line<'_>
    };
    Troupe::new((1..=ACTORS).map(actor).collect(), casting)
}

/// Processes on SQLite take turns with the same scripts.
#[test]
fn golden_scripts_by_a_handle_for_each_worker_are_answered_as_written() {
    let mut troupe = troupe(Casting::ByWorker);
    let report = check_scripts_on(&mut troupe, false).expect("the scripts can be read");
    let failures = report.failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}

/// Otherwise it would prove no more than one actor does.
#[test]
fn every_actor_performs_its_part() {
    let heard = RefCell::new(vec![0; ACTORS as usize]);
    let actor = |number: usize| {
        let heard = &heard;
        Box::new(move |line: &str| match Request::parse(line) {
            Ok(Request::Begin(_)) => "begun".to_owned(),
            _ => {
                heard.borrow_mut()[number] += 1;
                Reply::Performed(Situation::default(), Performed::default()).to_line()
            }
        }) as Line<'_>
    };
    let mut troupe = Troupe::new((0..ACTORS as usize).map(actor).collect(), Casting::InTurn);
    assert_eq!(troupe.begin(WorldSettings::default()), Ok(true));
    for number in 0..9 {
        troupe.perform(&format!("renew lease=l{number} worker=1")).unwrap();
    }
    assert_eq!(*heard.borrow(), [3, 3, 3]);
    for _ in 0..4 {
        troupe.perform("claim worker=4 as=l").unwrap();
    }
    assert_eq!(*heard.borrow(), [3, 7, 3], "the cooldown of a worker is counted in one place");
    troupe.casting = Casting::ByWorker;
    for _ in 0..4 {
        troupe.perform("renew lease=l").unwrap();
    }
    assert_eq!(*heard.borrow(), [3, 11, 3], "who claimed renews");
}

#[test]
fn lines_are_read_as_they_were_written() {
    let text = "a\ttab, a \\backslash\\ and\ntwo lines\\n".to_owned();
    let performed =
        Performed { label: "executed".into(), text, events: vec!["one".into(), String::new()] };
    let line = Reply::Performed(Situation::default(), performed.clone()).to_line();
    assert!(!line.contains('\n'));
    let Ok(Reply::Performed(_, read)) = Reply::parse(&line) else { panic!("{line}") };
    assert_eq!(read, performed);
    let settings = WorldSettings { claim_cooldown: Some(7), ..WorldSettings::default() };
    let Ok(Request::Begin(read)) = Request::parse(&Request::Begin(settings).to_line()) else {
        panic!("settings")
    };
    assert_eq!(read, settings);
    assert_eq!(Reply::parse(&Reply::error_line("wrong\tline")).err().unwrap(), "wrong\tline");
    for nonsense in ["", "begin\t1", "perform", "lease"] {
        assert!(Request::parse(nonsense).is_err() && Reply::parse(nonsense).is_err());
    }
}
