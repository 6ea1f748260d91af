//! The test allocator fails allocations above its limit, and only while the limit is in force.

use gossip_testkit::{CountingAllocator, with_allocation_limit};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn limit_fails_larger_allocations_only_during_the_action() {
    let reserve = |size: usize| Vec::<u8>::new().try_reserve_exact(size).is_ok();
    let within = || [64, 65].map(reserve);
    assert_eq!(with_allocation_limit(64, within), [true, false]);
    assert_eq!(within(), [true, true]);
}
