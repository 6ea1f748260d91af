//! Which shard is split first.

use gossip_contracts::coordination::ShardSpecRef;

use crate::density::Density;
use crate::split_policy::{NearShard, Situation, SplitPolicy};
use crate::task::TaskConfig;
use crate::test_support::{World, at, numbered};

/// Both have as many keys left, and were never listed before.
#[test]
fn of_the_shards_of_this_process_the_slower_one_is_split_first() {
    let mut world = World::lasting(60_000, &[(b"a", b"k050"), (b"k050", b"z")]);
    let mut handle = world.handle();
    let tasks = [1, 2].map(|worker| {
        world.claim(&mut handle, TaskConfig::default(), worker).expect("two shards are free")
    });
    let everything = ShardSpecRef::new(b"", b"", b"");
    let density = Density::look(&numbered(100), everything).expect("a list in memory is sampled");
    let shards = world.rows();
    for slow in tasks.each_ref().map(|task| task.shard().shard()) {
        let near = |shard| {
            let keys = if shard == slow { 1 } else { 200 };
            Some(NearShard { moved: true, since: at(1_000), keys })
        };
        let situation = Situation {
            now: at(2_000),
            begun: at(1),
            roots: 2,
            shards: &shards,
            ticks_per_key: Some(5.0),
            move_ticks: None,
            near: &near,
        };
        let found = SplitPolicy::default().candidates(situation, &density);
        assert_eq!((found.len(), found.first()), (2, Some(&slow)));
    }
}
