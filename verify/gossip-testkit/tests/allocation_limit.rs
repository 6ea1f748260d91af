//! The allocator for tests refuses what it was told to, and only for as long.

use gossip_testkit::{CountingAllocator, with_allocation_limit};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_limit_refuses_what_is_larger_and_ends_with_its_action() {
    let reserve = |size: usize| Vec::<u8>::new().try_reserve_exact(size).is_ok();
    let within = || [64, 65].map(reserve);
    assert_eq!(with_allocation_limit(64, within), [true, false]);
    assert_eq!(within(), [true, true]);
}
