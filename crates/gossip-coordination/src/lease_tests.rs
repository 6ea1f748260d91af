//! Leases and operation logs: what they refuse to be, and what they remember.

use proptest::prelude::*;

use crate::test_fixtures::{TENANT, at, fence, key, op, worker};
use crate::{GrantToken, Lease, LeaseHolder, OP_LOG_CAP, OpKind, OpLog, OpLogEntry, OpResult};

const TOKEN: GrantToken = GrantToken::from_raw(3);

fn lease(raw_fence: u64, deadline: u64) -> Lease {
    Lease::new(TENANT, key(4), worker(5), fence(raw_fence), at(deadline), TOKEN)
}

fn entry(number: u64, ticks: u64) -> OpLogEntry {
    OpLogEntry::new(op(number), OpKind::Checkpoint, number + 1, at(ticks))
}

fn full_log() -> OpLog {
    let mut log = OpLog::new();
    (0..OP_LOG_CAP as u64).for_each(|number| log.push(entry(number, number + 1)));
    log
}

#[test]
fn a_lease_says_what_it_was_granted_for() {
    let lease = lease(1, 9);
    assert_eq!((lease.tenant(), lease.key(), lease.owner()), (TENANT, key(4), worker(5)));
    assert_eq!((lease.run(), lease.shard()), (key(4).run(), key(4).shard()));
    assert_eq!((lease.fence(), lease.deadline(), lease.token()), (fence(1), at(9), TOKEN));
}

#[test]
#[should_panic(expected = "a lease has at least the initial fence")]
fn a_lease_without_a_fence_is_a_bug() {
    let _ = lease(0, 9);
}

#[test]
#[should_panic(expected = "a lease has a deadline")]
fn a_lease_that_ends_at_zero_is_a_bug() {
    let _ = lease(1, 0);
}

#[test]
fn a_deadline_moves_forward_or_stays() {
    let mut lease = lease(1, 9);
    lease.set_deadline(at(9));
    lease.set_deadline(at(12));
    assert_eq!((lease.deadline(), lease.fence()), (at(12), fence(1)));
}

#[test]
#[should_panic(expected = "a renewal never shortens a lease")]
fn a_deadline_never_moves_back() {
    lease(1, 9).set_deadline(at(8));
}

#[test]
fn a_holder_binds_owner_deadline_and_grant() {
    let holder = LeaseHolder::new(worker(5), at(9), TOKEN);
    assert_eq!((holder.owner(), holder.deadline(), holder.token()), (worker(5), at(9), TOKEN));
}

#[test]
#[should_panic(expected = "a lease has a deadline")]
fn a_holder_without_a_deadline_is_a_bug() {
    let _ = LeaseHolder::new(worker(5), at(0), TOKEN);
}

#[test]
fn kinds_and_results_come_back_by_their_numbers() {
    for (number, kind) in (0_u8..).zip(OpKind::ALL) {
        assert_eq!((kind as u8, OpKind::from_u8(number)), (number, Some(kind)));
    }
    assert_eq!(OpKind::from_u8(10), None);
    assert_eq!(OpResult::from_u8(0), Some(OpResult::Completed));
    assert_eq!(OpResult::from_u8(1), None);
}

#[test]
fn an_entry_is_remembered_as_executed() {
    let entry = OpLogEntry::new(op(1), OpKind::Park, 7, at(2));
    assert_eq!((entry.op_id(), entry.kind()), (op(1), OpKind::Park));
    assert_eq!((entry.payload_hash(), entry.executed_at()), (7, at(2)));
    assert_eq!(entry.result(), OpResult::Completed);
}

#[test]
#[should_panic(expected = "a payload hash is never zero")]
fn an_entry_without_a_hash_is_a_bug() {
    let _ = OpLogEntry::new(op(1), OpKind::Park, 0, at(1));
}

#[test]
#[should_panic(expected = "an operation has a time")]
fn an_entry_without_a_time_is_a_bug() {
    let _ = OpLogEntry::new(op(1), OpKind::Park, 1, at(0));
}

#[test]
fn a_full_log_forgets_its_oldest_operation_only() {
    let mut log = full_log();
    assert_eq!(log.len(), 16);
    log.push(entry(99, 99));
    assert_eq!(log.len(), OP_LOG_CAP);
    assert_eq!(log.find(op(0)), None);
    assert_eq!(log.find(op(1)), Some(&entry(1, 2)));
    assert_eq!(log.find(op(99)), Some(&entry(99, 99)));
    assert_eq!(log.last_time(), at(99));
    assert_eq!(log.iter().next(), Some(&entry(1, 2)));
}

#[test]
fn a_cleared_log_remembers_nothing() {
    let mut log = full_log();
    log.clear();
    assert!(log.is_empty());
    assert_eq!((log.find(op(3)), log.last_time()), (None, at(0)));
    log.push(entry(3, 1));
    assert_eq!(log.len(), 1);
}

#[test]
#[should_panic(expected = "an operation is logged once")]
fn an_operation_is_never_remembered_twice() {
    full_log().push(entry(3, 99));
}

#[test]
#[should_panic(expected = "times in the log never decrease")]
fn time_never_falls_in_a_log() {
    full_log().push(entry(99, 15));
}

proptest! {
    /// Ids that share the tag byte are still distinguished.
    #[test]
    fn a_log_finds_exactly_the_last_operations_pushed(
        numbers in proptest::collection::vec(0_u64..64, 1..64),
    ) {
        let mut log = OpLog::new();
        let mut pushed: Vec<u64> = Vec::new();
        for (number, ticks) in numbers.into_iter().zip(1..) {
            // Four ids share each low byte.
            let id = (number % 16) | ((number / 16) << 32);
            if log.find(op(id)).is_none() {
                log.push(entry(id, ticks));
                pushed.retain(|other| *other != id);
                pushed.push(id);
            }
        }
        let kept = &pushed[pushed.len().saturating_sub(OP_LOG_CAP)..];
        for number in 0..64 {
            let id = (number % 16) | ((number / 16) << 32);
            prop_assert_eq!(log.find(op(id)).is_some(), kept.contains(&id));
        }
        prop_assert_eq!(log.len(), kept.len());
    }
}
