use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn ids_print_their_type_and_number() {
    assert_eq!(format!("{:?}", RunId::from_raw(1)), "RunId(1)");
    assert_eq!(format!("{:?}", ShardId::from_raw(2)), "ShardId(2)");
    assert_eq!(format!("{:?}", WorkerId::from_raw(3)), "WorkerId(3)");
    assert_eq!(format!("{:?}", OpId::from_raw(4)), "OpId(4)");
    assert_eq!(format!("{:?}", JobId::from_raw(u64::MAX)), "JobId(18446744073709551615)");
    assert_eq!(format!("{:?}", FenceEpoch::from_raw(5)), "FenceEpoch(5)");
    assert_eq!(format!("{:?}", LogicalTime::from_raw(6)), "LogicalTime(6)");
    assert_eq!(RunId::from_raw(7).to_string(), "7");
}

#[test]
fn only_bit_63_makes_a_shard_derived() {
    assert!(!ShardId::from_raw(0).is_derived());
    assert!(!ShardId::from_raw((1 << 63) - 1).is_derived());
    assert!(ShardId::from_raw(1 << 63).is_derived());
    assert!(ShardId::from_raw(u64::MAX).is_derived());
    assert_eq!(ShardId::DERIVED_BIT, 0x8000_0000_0000_0000);
}

#[test]
fn fence_starts_unassigned_and_counts_up() {
    assert_eq!(FenceEpoch::ZERO.as_raw(), 0);
    assert_eq!(FenceEpoch::ZERO.increment(), FenceEpoch::INITIAL);
    assert_eq!(FenceEpoch::from_raw(u64::MAX - 1).increment().as_raw(), u64::MAX);
    assert_eq!(FenceEpoch::from_raw(u64::MAX).checked_increment(), None);
}

#[test]
#[should_panic(expected = "fence epoch exhausted")]
fn fence_never_saturates() {
    let _ = FenceEpoch::from_raw(u64::MAX).increment();
}

#[test]
fn time_adds_checked_or_saturating() {
    let late = LogicalTime::from_raw(u64::MAX - 1);
    assert_eq!(late.checked_add(1), Some(LogicalTime::from_raw(u64::MAX)));
    assert_eq!(late.checked_add(2), None);
    assert_eq!(late.saturating_add(2).as_raw(), u64::MAX);
    assert_eq!(LogicalTime::ZERO.saturating_add(3).as_raw(), 3);
}

#[test]
fn shard_key_returns_run_and_shard_separately() {
    let key = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(2));
    assert_eq!((key.run().as_raw(), key.shard().as_raw()), (1, 2));
    assert_ne!(key, ShardKey::new(RunId::from_raw(2), ShardId::from_raw(1)));
}

#[test]
fn redacted_hides_its_value_and_compares_like_it() {
    let low = Redacted::new(1_u32);
    let high = Redacted::from(2_u32);
    assert_eq!(format!("{low:?} {low} {low:#?}"), "<redacted> <redacted> <redacted>");
    assert!(low < high);
    assert_eq!(BTreeSet::from([high, low, high]).len(), 2);
    assert_eq!((*low.as_inner(), high.into_inner()), (1, 2));
}

proptest! {
    #[test]
    fn ids_preserve_number_and_order(a: u64, b: u64) {
        prop_assert_eq!(ShardId::from_raw(a).as_raw(), a);
        prop_assert_eq!(RunId::from_raw(a).cmp(&RunId::from_raw(b)), a.cmp(&b));
        prop_assert_eq!(FenceEpoch::from_raw(a).cmp(&FenceEpoch::from_raw(b)), a.cmp(&b));
        prop_assert_eq!(LogicalTime::from_raw(a).cmp(&LogicalTime::from_raw(b)), a.cmp(&b));
    }
}
