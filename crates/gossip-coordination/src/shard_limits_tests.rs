//! Limits on the number of shards: exact, and silent about other tenants.

use gossip_contracts::coordination::{ShardLimitScope, SplitValidationError};

use crate::{RegisterShardsError, ShardLimitViolation, ShardQuota};

const QUOTA: ShardQuota =
    ShardQuota { tenant_count: 3, total_count: 17, max_per_tenant: 10, max_total: 20 };

#[test]
fn growth_up_to_a_limit_fits_and_one_more_does_not() {
    assert_eq!(QUOTA.check(0), Ok(()));
    assert_eq!(QUOTA.check(3), Ok(()));
    assert_eq!(QUOTA.check(4).unwrap_err().scope, ShardLimitScope::Global);
    let alone = ShardQuota { total_count: 3, ..QUOTA };
    assert_eq!(alone.check(7), Ok(()));
    assert_eq!(alone.check(8).unwrap_err().scope, ShardLimitScope::PerTenant);
}

#[test]
fn the_tenants_own_limit_speaks_first() {
    let violation = QUOTA.check(8).unwrap_err();
    let expected = ShardLimitViolation {
        current: 3,
        additional: 8,
        max: 10,
        scope: ShardLimitScope::PerTenant,
    };
    assert_eq!(violation, expected);
}

/// One tenant must not learn from a refusal how busy the others are (DESIGN Q15).
#[test]
fn the_global_limit_does_not_tell_how_many_shards_there_are() {
    for total_count in 17..=20 {
        let quota = ShardQuota { total_count, ..QUOTA };
        let violation = quota.check(4).unwrap_err();
        assert_eq!((violation.current, violation.max), (20, 20));
    }
}

#[test]
fn counts_never_overflow() {
    assert_eq!(ShardQuota { tenant_count: 1, ..ShardQuota::UNLIMITED }.check(usize::MAX), Ok(()));
    assert!(QUOTA.check(usize::MAX).is_err());
}

#[test]
fn a_violation_says_the_same_to_splits_and_registrations() {
    let violation = QUOTA.check(8).unwrap_err();
    let (current, additional, max, scope) = (3, 8, 10, ShardLimitScope::PerTenant);
    assert_eq!(
        SplitValidationError::from(violation),
        SplitValidationError::ShardLimitExceeded { current, additional, max, scope },
    );
    assert_eq!(
        RegisterShardsError::from(violation),
        RegisterShardsError::ShardLimitExceeded { current, additional, max, scope },
    );
}
