//! Tenants: another tenant can neither read, change nor infer anything.

use gossip_coordination::{RunManagement, ShardAction, ShardFilter, WORKER_ENTRY_TTL, WorkerState};

use super::world::{
    ROOTS, RUN, STRANGER, TENANT, World, answer, at, config, key, op, shard, worker,
};
use super::{ConformanceTarget, Settings, topic};

topic!("tenants":
    another_tenant_finds_nothing,
    another_tenant_cannot_use_a_lease,
    a_stolen_lease_is_refused_where_the_ids_are_the_same,
    two_tenants_may_use_the_same_ids,
    a_strangers_answers_do_not_depend_on_what_others_did,
    a_clock_of_another_tenant_has_no_effect,
);

/// Every query and every operation on another tenant's run and shards.
pub fn another_tenant_finds_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.offer(11, &held.lease, (1, 2, 50), 1).expect("live");
    let answers = ask_everything(&mut world);
    let unseen: Vec<_> =
        answers.iter().filter(|(_, answer)| !answer.ends_with("NotFound")).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
    world.tenant = TENANT;
    assert_eq!(world.row(13, shard(0)).acquire_count, 1, "and nothing changed");
}

/// A lease is bound to its tenant.
pub fn another_tenant_cannot_use_a_lease<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.tenant = STRANGER;
    world.assert_all_refused(11, &held.lease, "ShardNotFound");
    world.tenant = TENANT;
    world.renew(12, &held.lease).expect("the owner is unaffected");
}

/// The lookup finds the other tenant's own record, and the lease does not match it.
pub fn a_stolen_lease_is_refused_where_the_ids_are_the_same<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.tenant = STRANGER;
    world.make_run(config(None), &ROOTS, 1).expect("ids are each tenant's own");
    let own = world.acquire(10, key(0), 1);
    assert_eq!(own.fence(), held.fence(), "everything but the tenant is the same");
    world.assert_all_refused(11, &held.lease, "TenantMismatch");
    world.checkpoint(12, &own.lease, b"c", 2).expect("the own lease is good");
}

/// Tenants share neither ids, operation ids, progress nor cooldowns.
pub fn two_tenants_may_use_the_same_ids<T: ConformanceTarget>(target: &T) {
    let settings = Settings { claim_cooldown_interval: 50, ..Settings::default() };
    let mut world = World::empty(target, settings);
    for tenant in [TENANT, STRANGER] {
        world.tenant = tenant;
        assert!(world.make_run(config(None), &ROOTS, 1).expect("new").is_executed());
        let held = world.claim(10, 1).expect("no cooldown of another tenant");
        let start = held.start.clone();
        let done = world.checkpoint(11, &held.lease, &start, 1).expect("live");
        assert!(done.is_executed(), "operation ids are each tenant's own");
    }
    world.tenant = TENANT;
    let progress = world.progress(12);
    assert_eq!((progress.total, progress.leased), (2, 1));
    world.backend.cancel_run(at(13), TENANT, RUN, op(2)).expect("active");
    world.backend.delete_run(at(14), TENANT, RUN, op(3)).expect("over");
    world.tenant = STRANGER;
    assert_eq!(world.progress(15).total, 2, "the other tenant's run still exists");
}

/// The same queries have the same answers with and without another active tenant.
pub fn a_strangers_answers_do_not_depend_on_what_others_did<T: ConformanceTarget>(target: &T) {
    let mut alone = World::empty(target, Settings::default());
    let quiet = ask_everything(&mut alone);

    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.offer(11, &held.lease, (1, 2, 50), 1).expect("live");
    assert_eq!(ask_everything(&mut world), quiet, "while the other tenant's run is active");
    world.tenant = TENANT;
    world.withdraw(12, &held.lease, 1, 2).expect("live");
    world.park(12, &held.lease, 3).expect("live");
    world.backend.cancel_run(at(12), TENANT, RUN, op(4)).expect("active");
    assert_eq!(ask_everything(&mut world), quiet, "when that run has ended");
    world.backend.delete_run(at(12), TENANT, RUN, op(5)).expect("over");
    assert_eq!(ask_everything(&mut world), quiet, "when that run is deleted");
    world.tenant = STRANGER;
    world.make_run(config(None), &ROOTS, 1).expect("a tombstone is its tenant's own");
}

/// A tenant whose clock is years ahead evicts no workers or cooldowns of other tenants.
pub fn a_clock_of_another_tenant_has_no_effect<T: ConformanceTarget>(target: &T) {
    let settings = Settings { claim_cooldown_interval: 50, ..Settings::default() };
    let mut world = World::empty(target, settings);
    for tenant in [TENANT, STRANGER] {
        world.tenant = tenant;
        world.make_run(config(None), &ROOTS, 1).expect("new");
    }
    world.tenant = TENANT;
    world.backend.register_worker(at(10), TENANT, worker(1), None).expect("below the limit");
    world.claim(10, 1).expect("free");

    world.tenant = STRANGER;
    let far = 1_000 * WORKER_ENTRY_TTL;
    world.backend.register_worker(at(far), STRANGER, worker(9), None).expect("below the limit");
    world.claim(far, 9).expect("free");

    world.tenant = TENANT;
    let heard = world.backend.heartbeat(at(11), TENANT, worker(1), WorkerState::Working);
    heard.expect("still registered");
    assert_eq!(answer(&world.claim(11, 1).map(|_| ())), "Throttled");
}

/// Returns the answers that another tenant receives about run 1 and shard 0.
fn ask_everything<T: ConformanceTarget>(world: &mut World<'_, T>) -> Vec<(&'static str, String)> {
    world.tenant = STRANGER;
    let mut answers = ask_about_shard(world);
    let backend = &mut world.backend;
    let (now, tenant, run) = (at(12), STRANGER, RUN);
    let mut rows = Vec::new();
    let listed = backend.list_shards_into(now, tenant, run, ShardFilter::all(), &mut rows);
    answers.extend([
        ("list", answer(&listed)),
        ("get_run", answer(&backend.get_run(tenant, run).map(|_| ()))),
        ("progress", answer(&backend.get_run_progress(now, tenant, run))),
        ("register", answer(&backend.register_shards(now, tenant, run, &ROOTS, op(1_000)))),
        ("complete_run", answer(&backend.complete_run(now, tenant, run, op(90)))),
        ("fail_run", answer(&backend.fail_run(now, tenant, run, op(90)))),
        ("cancel_run", answer(&backend.cancel_run(now, tenant, run, op(90)))),
        ("pause_run", answer(&backend.pause_run(now, tenant, run, op(90)))),
        ("resume_run", answer(&backend.resume_run(now, tenant, run, op(90)))),
        ("delete_run", answer(&backend.delete_run(now, tenant, run, op(90)))),
        ("claim", answer(&world.claim(12, 9).map(|_| ()))),
    ]);
    assert!(rows.is_empty());
    answers
}

fn ask_about_shard<T: ConformanceTarget>(world: &mut World<'_, T>) -> Vec<(&'static str, String)> {
    let (now, tenant) = (at(12), STRANGER);
    let acquire = answer(&world.try_acquire(12, key(0), 9).map(|_| ()));
    let accept = answer(&world.accept(12, key(0), 2, 1).map(|_| ()));
    let backend = &mut world.backend;
    let action = ShardAction::Release;
    let requested = backend.request_action(now, tenant, key(0), &action, at(500), op(90));
    vec![
        ("acquire", acquire),
        ("accept", accept),
        ("unpark", answer(&backend.unpark_shard(now, tenant, key(0), op(90)))),
        ("revoke", answer(&backend.revoke_lease(now, tenant, key(0), None, op(90)))),
        ("request", answer(&requested)),
    ]
}
