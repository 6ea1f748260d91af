//! Limits on the number of shards: exact, per tenant before global, and silent about others.

use gossip_contracts::coordination::{ShardLimitScope, SplitValidationError};
use gossip_contracts::identity::RunId;
use gossip_coordination::{CreateRunError, RegisterShardsError, RunManagement, SplitError};

use super::claims::another_handles;
use super::world::{
    OTHER_RUN, ROOTS, RUN, STRANGER, World, at, config, key, op, replace_at, residual_at, root,
};
use super::{Ability, ConformanceTarget, RaceJob, Settings, refused, topic};

topic!("limits":
    a_tenant_may_fill_its_limit_and_not_one_more,
    all_tenants_together_may_fill_the_limit_and_not_one_more,
    the_limit_of_one_tenant_leaves_the_others_theirs,
    the_tenants_own_limit_speaks_first,
    a_global_refusal_reveals_nothing_about_others,
    splits_are_counted_to_the_shard,
    a_refused_registration_leaves_the_run_as_it_was,
    a_replay_is_not_counted,
    deleting_a_run_gives_its_shards_back,
    ended_shards_still_count,
    racing_registrations_never_exceed_the_limit,
);

/// The limit is exact, and the refusal reports the numbers.
pub fn a_tenant_may_fill_its_limit_and_not_one_more<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 3, 100);
    world.make_run(config(None), &ROOTS, 1).expect("two of three");
    world.run = OTHER_RUN;
    let refusal = world.make_run(config(None), &ROOTS, 2).expect_err("four of three");
    assert_eq!(limit_of(refusal), (2, 2, 3, ShardLimitScope::PerTenant));
    let one = world.register(3, &ROOTS[..1], 3).expect("three of three");
    assert!(one.is_executed());
    world.run = RunId::from_raw(3);
    let refusal = world.make_run(config(None), &ROOTS[..1], 4).expect_err("full");
    assert_eq!(limit_of(refusal), (3, 1, 3, ShardLimitScope::PerTenant));
}

/// The limit applies to the sum over tenants.
pub fn all_tenants_together_may_fill_the_limit_and_not_one_more<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 100, 3);
    world.make_run(config(None), &ROOTS, 1).expect("two of three");
    world.tenant = STRANGER;
    if target.lacks().contains(&Ability::TotalLimit) {
        world.make_run(config(None), &ROOTS, 1).expect("only its own tenants limit a store");
        return;
    }
    let refusal = world.make_run(config(None), &ROOTS, 1).expect_err("four of three");
    assert_eq!(limit_of(refusal).3, ShardLimitScope::Global);
    world.register(3, &ROOTS[..1], 1).expect("three of three");
}

/// A tenant at its limit does not block another.
pub fn the_limit_of_one_tenant_leaves_the_others_theirs<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 2, 100);
    world.make_run(config(None), &ROOTS, 1).expect("two of two");
    world.tenant = STRANGER;
    world.make_run(config(None), &ROOTS, 1).expect("two of two of another");
    world.run = OTHER_RUN;
    let refusal = world.make_run(config(None), &ROOTS[..1], 2).expect_err("full");
    assert_eq!(limit_of(refusal), (2, 1, 2, ShardLimitScope::PerTenant));
}

/// Both limits would be exceeded.
pub fn the_tenants_own_limit_speaks_first<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 1, 1);
    let refusal = world.make_run(config(None), &ROOTS, 1).expect_err("two of one");
    assert_eq!(limit_of(refusal), (0, 2, 1, ShardLimitScope::PerTenant));
}

/// Current is reported as the maximum, however many shards others have.
pub fn a_global_refusal_reveals_nothing_about_others<T: ConformanceTarget>(target: &T) {
    if target.lacks().contains(&Ability::TotalLimit) {
        return;
    }
    for others in [1, 2] {
        let mut world = limited(target, 100, 2);
        world.tenant = STRANGER;
        world.make_run(config(None), &ROOTS[..others], 1).expect("it fits");
        world.tenant = super::world::TENANT;
        let refusal = world.make_run(config(None), &ROOTS, 1).expect_err("full");
        assert_eq!(limit_of(refusal), (2, 2, 2, ShardLimitScope::Global));
    }
}

/// A residual adds one shard, a replacement adds all children: the parent still counts.
pub fn splits_are_counted_to_the_shard<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 5, 100);
    world.make_run(config(None), &ROOTS, 1).expect("two of five");
    let held = world.acquire(10, key(0), 1);
    let cut = residual_at(b"a", b"f", b"m");
    world.shrink(11, &held.lease, &cut, 1).expect("three of five");
    let three = replace_at(&[b"a", b"b", b"c", b"f"]);
    let refusal = world.replace(12, &held.lease, &three, 2);
    refused!(refusal, SplitError::SplitInvalid(
        SplitValidationError::ShardLimitExceeded { current: 3, additional: 3, max: 5, scope }
    ) if scope == ShardLimitScope::PerTenant);
    world.replace(13, &held.lease, &replace_at(&[b"a", b"b", b"f"]), 3).expect("five of five");
    let right = world.acquire(14, key(1), 1);
    let refusal = world.shrink(15, &right.lease, &residual_at(b"m", b"p", b"z"), 4);
    refused!(refusal, SplitError::SplitInvalid(SplitValidationError::ShardLimitExceeded { .. }));
    let row = world.row(16, key(1).shard());
    assert_eq!((&*row.end, row.spawned_count), (b"z".as_slice(), 0), "nothing has changed");
}

/// The call can be retried with fewer shards.
pub fn a_refused_registration_leaves_the_run_as_it_was<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 1, 100);
    world.make_run(config(None), &ROOTS, 1).expect_err("two of one");
    assert_eq!(world.run_record().expect("made").root_shards().len(), 0);
    world.register(2, &ROOTS[..1], 1).expect("the same operation id is free");
}

/// A store at its limit still replays.
pub fn a_replay_is_not_counted<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 3, 3);
    world.make_run(config(None), &ROOTS, 1).expect("two of three");
    let held = world.acquire(10, key(0), 1);
    let cut = residual_at(b"a", b"f", b"m");
    world.shrink(11, &held.lease, &cut, 1).expect("three of three");
    assert!(world.shrink(12, &held.lease, &cut, 1).expect("known").is_replay());
    assert!(world.register(13, &ROOTS, 1).expect("known").is_replay());
}

/// Both the tenant's limit and the total are freed.
pub fn deleting_a_run_gives_its_shards_back<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 3, 3);
    world.make_run(config(None), &ROOTS, 1).expect("two of three");
    let held = world.acquire(10, key(0), 1);
    world.shrink(11, &held.lease, &residual_at(b"a", b"f", b"m"), 1).expect("three of three");
    world.backend.cancel_run(at(12), world.tenant, RUN, op(2)).expect("active");
    world.run = OTHER_RUN;
    world.make_run(config(None), &ROOTS, 1).expect_err("a terminal run still counts");
    world.backend.delete_run(at(13), world.tenant, RUN, op(3)).expect("over");
    world.backend.delete_run(at(14), world.tenant, RUN, op(3)).expect("known");
    let roots = [root(0, b"a", b"f"), root(1, b"f", b"m"), root(2, b"m", b"z")];
    world.register(15, &roots, 4).expect("three of three");
    world.run = RunId::from_raw(3);
    let refusal = world.make_run(config(None), &ROOTS[..1], 5).expect_err("full again");
    assert_eq!(limit_of(refusal).3, ShardLimitScope::PerTenant, "freed once, not twice");
}

/// Records of finished shards count, too.
pub fn ended_shards_still_count<T: ConformanceTarget>(target: &T) {
    let mut world = limited(target, 2, 100);
    world.make_run(config(None), &ROOTS, 1).expect("two of two");
    world.finish(10, key(0), 1);
    let held = world.acquire(11, key(1), 1);
    let refusal = world.shrink(12, &held.lease, &residual_at(b"m", b"p", b"z"), 1);
    refused!(refusal, SplitError::SplitInvalid(SplitValidationError::ShardLimitExceeded { .. }));
}

/// Several handles fill the same limit concurrently: it is reached and not exceeded.
pub fn racing_registrations_never_exceed_the_limit<T: ConformanceTarget>(target: &T) {
    const RACERS: usize = 4;
    const LIMIT: usize = 5;
    let mut world = limited(target, LIMIT, 100);
    let Some(handles) = another_handles(target, &world, RACERS) else { return };
    let tenant = world.tenant;
    let jobs = handles.into_iter().zip(1..).map(|(mut handle, number)| {
        Box::new(move || {
            let (run, config) = (RunId::from_raw(number), config(None));
            // Some of these must be refused; which ones depends on the race.
            let _ = handle.create_run_with_shards(at(1), tenant, run, config, &ROOTS, op(1));
        }) as RaceJob<'_>
    });
    target.race(jobs.collect());
    let mut total = 0;
    for number in 1..=RACERS as u64 {
        world.run = RunId::from_raw(number);
        total += world.progress(2).total;
    }
    assert_eq!(total, 4, "two runs of two shards fit below five");
    world.run = RunId::from_raw(99);
    world.make_run(config(None), &ROOTS[..1], 1).expect("one place is left");
    world.run = RunId::from_raw(100);
    world.make_run(config(None), &ROOTS[..1], 1).expect_err("and no more");
}

fn limited<T: ConformanceTarget>(target: &T, per_tenant: usize, total: usize) -> World<'_, T> {
    let settings = Settings {
        max_shards_per_tenant: per_tenant,
        max_total_shards: total,
        ..Settings::default()
    };
    World::empty(target, settings)
}

fn limit_of(refusal: CreateRunError) -> (usize, usize, usize, ShardLimitScope) {
    match refusal {
        CreateRunError::RegisterShardsFailed(RegisterShardsError::ShardLimitExceeded {
            current,
            additional,
            max,
            scope,
        }) => (current, additional, max, scope),
        other => panic!("expected a limit, got {other:?}"),
    }
}
