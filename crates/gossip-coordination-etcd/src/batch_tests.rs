//! What may share a batch, what fits, and what the limits of the store layer promise.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{Compare, Key, KeyRange, Txn, Versioned};
use gossip_coordination::{InfraError, StoreRefusal};
use proptest::prelude::*;
use prost::Message;

use crate::EtcdConfig;
use crate::batch::{Batch, PreparedTxn};
use crate::budget::Budget;
use crate::keyspace::NAMESPACE_LEN_MAX;

fn tenant() -> TenantId {
    TenantId::from_bytes([7; 32])
}

fn key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::ShardHot { tenant: tenant(), shard }
}

/// Every key of [`key`].
fn all_keys() -> KeyRange {
    KeyRange::hot_shards_of(tenant(), RunId::from_raw(1))
}

fn at(revision: u64) -> Versioned {
    Versioned { revision, bytes: Vec::new() }
}

fn txn(compared: &[u64], written: &[u64]) -> Txn {
    let mut txn = Txn::new();
    compared.iter().for_each(|number| txn.expect(key(*number), Some(&at(3))));
    written.iter().for_each(|number| txn.put(key(*number), vec![0; 8]));
    txn
}

fn usual() -> EtcdConfig {
    EtcdConfig::new(["h:1"], "batch").expect("the usual settings work")
}

/// Whether `second` may travel with `first`.
fn travel_together(first: Txn, second: Txn) -> bool {
    let config = usual();
    let budget = Budget::new(&config).expect("the usual settings work");
    let prepared = |txn| PreparedTxn::new(&config.namespace, &budget, txn).expect("it is small");
    Batch::of(prepared(first), ()).add(&budget, prepared(second), ()).is_none()
}

#[test]
fn transactions_that_touch_different_keys_travel_together() {
    assert!(travel_together(txn(&[1], &[1]), txn(&[2], &[2])));
}

#[test]
fn transactions_that_only_look_at_the_same_key_travel_together() {
    assert!(travel_together(txn(&[9, 1], &[1]), txn(&[9, 2], &[2])));
}

#[test]
fn who_writes_what_another_looks_at_or_writes_travels_apart() {
    for (first, second) in [
        (txn(&[], &[1]), txn(&[], &[1])),
        (txn(&[1], &[2]), txn(&[], &[1])),
        (txn(&[], &[1]), txn(&[1], &[2])),
        // Each alone would make the other fail; together both would succeed.
        (txn(&[1], &[2]), txn(&[2], &[1])),
    ] {
        assert!(!travel_together(first.clone(), second.clone()), "{first:?} {second:?}");
    }
}

#[test]
fn who_writes_into_a_range_that_must_be_empty_travels_apart() {
    let mut empty = Txn::new();
    empty.expect_empty(all_keys());
    empty.put(Key::SchemaVersion, Vec::new());
    assert!(!travel_together(empty.clone(), txn(&[], &[1])));
    assert!(!travel_together(txn(&[], &[1]), empty.clone()));
    let mut elsewhere = Txn::new();
    elsewhere.put(Key::TenantCounter { tenant: tenant() }, Vec::new());
    assert!(travel_together(empty, elsewhere));
}

/// The number of nested transactions and the longest list of one of them share the limit.
#[test]
fn a_batch_is_full_when_the_server_says_so() {
    let config = usual();
    let budget = Budget::new(&config).expect("the usual settings work");
    for (ops, expected) in [(1, 127), (4, 124), (64, 64), (128, 1)] {
        let mut next = 0;
        let mut prepared = || {
            let keys: Vec<u64> = (next..next + ops).collect();
            next += ops;
            PreparedTxn::new(&config.namespace, &budget, txn(&keys, &keys)).expect("it is small")
        };
        let mut batch = Batch::of(prepared(), ());
        while batch.add(&budget, prepared(), ()).is_none() {}
        assert_eq!(batch.len(), expected, "of {ops} operations each");
    }
}

#[test]
fn one_transaction_is_sent_bare_and_several_nested() {
    let config = usual();
    let budget = Budget::new(&config).expect("the usual settings work");
    let prepared = |txn| PreparedTxn::new(&config.namespace, &budget, txn).expect("it is small");
    let mut batch = Batch::of(prepared(txn(&[1], &[1])), ());
    assert_eq!(batch.request(&config.namespace, 0).compare.len(), 1);
    assert!(batch.add(&budget, prepared(txn(&[2], &[2])), ()).is_none());
    let nested = batch.request(&config.namespace, 0);
    assert_eq!((nested.compare.len(), nested.success.len()), (0, 2));
}

#[test]
fn a_too_large_request_is_refused_with_both_sizes() {
    let config = usual();
    let budget = Budget::new(&config).expect("the usual settings work");
    let numbers: Vec<u64> = (0..129).collect();
    let error =
        PreparedTxn::new(&config.namespace, &budget, txn(&[], &numbers)).expect_err("129 > 128");
    let InfraError::Refused { why: StoreRefusal::TooLarge, message, .. } = error else {
        panic!("{error}");
    };
    assert!(message.contains("129 operations"), "{message}");
    assert!(message.contains("--max-txn-ops"), "{message}");
}

#[test]
fn a_lease_never_makes_a_request_larger_than_it_was_measured() {
    let config = usual();
    let budget = Budget::new(&config).expect("the usual settings work");
    let mut txn = Txn::new();
    txn.bind(key(1), vec![1; 10]);
    let batch = Batch::of(PreparedTxn::new(&config.namespace, &budget, txn).expect("small"), ());
    let measured = batch.request(&config.namespace, i64::MAX).encoded_len();
    for lease in [1, 1 << 40, i64::MAX - 1] {
        assert!(batch.request(&config.namespace, lease).encoded_len() <= measured);
    }
}

fn any_config() -> impl Strategy<Value = EtcdConfig> {
    (1..NAMESPACE_LEN_MAX, 32_usize..1_500).prop_map(|(len, ops)| {
        let mut config = EtcdConfig::new(["h:1"], &"n".repeat(len)).expect("a plain path");
        config.max_txn_ops = ops;
        config
    })
}

proptest! {
    /// The law that the budget exists for.
    #[test]
    fn whatever_the_limits_admit_fits_a_request(
        config in any_config(),
        compares in 0_usize..1_500,
        writes in 1_usize..1_500,
        value_len in 0_usize..40_000,
    ) {
        let Ok(budget) = Budget::new(&config) else { return Ok(()) };
        let compares = compares.min(budget.limits.txn_ops);
        let mut txn = Txn::new();
        (0..compares as u64).for_each(|number| txn.expect(key(number), Some(&at(u64::MAX >> 1))));
        for number in 0..writes as u64 {
            let mut larger = txn.clone();
            larger.bind(key(number), vec![0; value_len]);
            if !budget.limits.admit(&larger) || txn.writes().len() > 64 {
                break;
            }
            txn = larger;
        }
        prop_assert!(budget.limits.admit(&txn));
        let prepared = PreparedTxn::new(&config.namespace, &budget, txn);
        prop_assert!(prepared.is_ok(), "{:?}", prepared.err());
    }

    #[test]
    fn a_batch_never_exceeds_the_bytes_of_a_request(
        sizes in prop::collection::vec(0_usize..400_000, 1..40),
    ) {
        let config = usual();
        let budget = Budget::new(&config).expect("the usual settings work");
        let mut batch: Option<Batch<()>> = None;
        for (number, size) in sizes.into_iter().enumerate() {
            let mut txn = Txn::new();
            txn.put(key(number as u64), vec![1; size]);
            let prepared = PreparedTxn::new(&config.namespace, &budget, txn).expect("it fits alone");
            match &mut batch {
                Some(batch) => drop(batch.add(&budget, prepared, ())),
                None => batch = Some(Batch::of(prepared, ())),
            }
        }
        let request = batch.expect("one at least").request(&config.namespace, 0);
        prop_assert!(request.encoded_len() <= budget.bytes);
    }

    /// Of any transactions that share a batch, every order gives the same outcomes: none writes
    /// what another looks at or writes.
    #[test]
    fn transactions_of_a_batch_are_independent(
        txns in prop::collection::vec(
            (
                prop::collection::btree_set(0_u64..6, 0..3),
                prop::collection::btree_set(0_u64..6, 1..3),
            ),
            2..6,
        ),
    ) {
        let config = usual();
        let budget = Budget::new(&config).expect("the usual settings work");
        let mut shared: Vec<Txn> = Vec::new();
        let mut batch: Option<Batch<()>> = None;
        for (compared, written) in txns {
            let (compared, written): (Vec<_>, Vec<_>) =
                (compared.into_iter().collect(), written.into_iter().collect());
            let txn = txn(&compared, &written);
            let prepared = PreparedTxn::new(&config.namespace, &budget, txn.clone()).expect("small");
            let left = match &mut batch {
                Some(batch) => batch.add(&budget, prepared, ()),
                None => { batch = Some(Batch::of(prepared, ())); None }
            };
            if left.is_none() {
                shared.push(txn);
            }
        }
        for (index, one) in shared.iter().enumerate() {
            for other in shared.iter().skip(index + 1) {
                prop_assert!(!touches(one, other) && !touches(other, one));
            }
        }
    }
}

/// Whether `one` writes what `other` looks at or writes.
fn touches(one: &Txn, other: &Txn) -> bool {
    let touched = |key: &Key| {
        let compared = other.compares().iter().any(|compare| match compare {
            Compare::At { key: its, .. }
            | Compare::Value { key: its, .. }
            | Compare::Absent(its) => its == key,
            Compare::Empty(range) => range.contains(key.to_bytes().as_bytes()),
        });
        compared || other.writes().iter().any(|write| write.key() == key)
    };
    one.writes().iter().any(|write| touched(write.key()))
}
