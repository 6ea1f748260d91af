//! What a user types for a run, against runs in a store.

use std::num::NonZeroUsize;

use gossip::coordination::{RunManagement as _, RunName};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{Clock as _, SystemClock, fresh_op_id};
use gossip::store::{Backend, Coordinator};
use gossip::{Scan, tenant_id};

use super::{IdStart, RunRef, find_shard};
use crate::failure::{Code, Failure};

fn store() -> (Backend, TenantId) {
    let backend = Backend::open(&"memory:".parse().unwrap()).unwrap();
    (backend, tenant_id("default").unwrap())
}

/// Creates a run and returns it; the end of its range makes it another run.
fn create(backend: &Backend, tenant: TenantId, end: u32, name: Option<&str>) -> RunId {
    let scan = Scan::of(format!("range:0..{end}")).shards(NonZeroUsize::new(4).unwrap());
    let scan = match name {
        Some(name) => scan.run_name(RunName::try_new(name).unwrap()),
        None => scan,
    };
    let prepared = scan.prepare().unwrap();
    prepared.open(backend, tenant, &Quiet).unwrap().run()
}

struct Quiet;

impl gossip::runtime::Observer for Quiet {
    fn observe(&self, _event: gossip::runtime::Event<'_>) {}
}

fn find(coordinator: &mut Coordinator, tenant: TenantId, typed: &str) -> Result<RunId, Failure> {
    RunRef::parse(typed).unwrap().find(coordinator, tenant)
}

#[test]
fn texts_are_ids_names_or_last() {
    let id = |value, digits| Ok(RunRef::Id(IdStart { value, digits }));
    assert_eq!(RunRef::parse("00ff"), id(0xff, 4));
    assert_eq!(RunRef::parse("FFFFFFFFFFFFFFFF"), id(u64::MAX, 16));
    assert_eq!(RunRef::parse("@last"), Ok(RunRef::Last));
    assert_eq!(RunRef::parse("nightly"), Ok(RunRef::Named(RunName::try_new("nightly").unwrap())));
    for text in ["", "+1", "-1", "@first", "no run", "g/h", "list"] {
        assert!(RunRef::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn each_beginning_of_an_id_finds_its_run_or_names_the_candidates() {
    let (backend, tenant) = store();
    let runs: Vec<RunId> = (1..40).map(|end| create(&backend, tenant, end, None)).collect();
    let ids: Vec<String> = runs.iter().map(|run| format!("{:016x}", run.as_raw())).collect();
    let coordinator = &mut backend.coordinator();
    for (run, id) in runs.iter().zip(&ids) {
        for digits in 1..=id.len() {
            let start = &id[..digits];
            let sharing = ids.iter().filter(|other| other.starts_with(start)).count();
            let found = find(coordinator, tenant, start);
            if sharing == 1 {
                assert_eq!(found.unwrap(), *run);
                continue;
            }
            let failure = found.unwrap_err();
            assert_eq!(failure.code, Code::Usage);
            let why = failure.why.unwrap();
            assert_eq!(why.contains("and more"), sharing > 8, "{why}");
            assert!(why.matches(start).count() >= sharing.min(8), "{why}");
        }
    }
}

#[test]
fn last_is_the_newest_run_and_a_name_is_its_newest_run() {
    let (backend, tenant) = store();
    let coordinator = &mut backend.coordinator();
    assert_eq!(find(coordinator, tenant, "@last").unwrap_err().code, Code::Usage);
    let first = create(&backend, tenant, 10, Some("nightly"));
    assert_eq!(find(coordinator, tenant, "nightly").unwrap(), first);
    // Creation times have milliseconds; the next run must be newer.
    wait_for_next_tick(coordinator, tenant, first);
    let now = SystemClock::new().now();
    coordinator.cancel_run(now, tenant, first, fresh_op_id()).unwrap();
    let second = create(&backend, tenant, 20, Some("nightly"));
    assert_eq!(find(coordinator, tenant, "nightly").unwrap(), second);
    assert_eq!(find(coordinator, tenant, "@last").unwrap(), second);
    assert!(find(coordinator, tenant, "weekly").unwrap_err().what.contains("weekly"));
}

fn wait_for_next_tick(coordinator: &mut Coordinator, tenant: TenantId, run: RunId) {
    let created = coordinator.get_run(tenant, run).unwrap().created_at();
    while SystemClock::new().now() <= created {
        std::hint::spin_loop();
    }
}

#[test]
fn name_of_another_unfinished_run_is_refused() {
    let (backend, tenant) = store();
    let first = create(&backend, tenant, 10, Some("nightly"));
    // The same run again.
    assert_eq!(create(&backend, tenant, 10, Some("nightly")), first);
    let name = |name| RunName::try_new(name).unwrap();
    let open = |scan: Scan<'_>| {
        scan.prepare().unwrap().open(&backend, tenant, &Quiet).map(drop).unwrap_err().to_string()
    };
    let taken = open(Scan::of("range:0..11").run_name(name("nightly")));
    assert!(taken.contains("not finished"), "{taken}");
    let renamed = open(Scan::of("range:0..10").run_name(name("weekly")));
    assert!(renamed.contains("another name"), "{renamed}");
}

#[test]
fn shards_are_found_by_number_and_by_beginning() {
    let (backend, tenant) = store();
    let run = create(&backend, tenant, 100, None);
    let coordinator = &mut backend.coordinator();
    let mut shard = |text: &str| {
        find_shard(coordinator, tenant, run, IdStart::read(text).unwrap()).map(|id| id.as_raw())
    };
    assert_eq!(shard("2").unwrap(), 2);
    assert_eq!(shard("0000000000000003").unwrap(), 3);
    let ambiguous = shard("0").unwrap_err();
    assert!(ambiguous.why.unwrap().contains("0000000000000004"));
    assert!(shard("7").unwrap_err().next.unwrap().contains("gossip shard list"));
}
