//! A lone transaction says byte for byte what its message says.

use std::sync::Arc;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{Key, KeyRange, Txn};
use proptest::prelude::*;
use prost::Message;

use crate::message::{LoneTxn, TxnMessage};
use crate::proto::TxnRequest;
use crate::txn_effect::effect;
use crate::{Namespace, wire};

/// One line of a transaction.
#[derive(Clone, Debug)]
enum Line {
    Expect(Key, Option<u64>),
    /// Of the key that the next line writes, if it writes one.
    ExpectNext(Option<u64>),
    ExpectEmpty(KeyRange),
    ExpectValue(Key, Vec<u8>),
    Put(Vec<u8>),
    Bind(Vec<u8>),
    Delete,
}

/// Keys of several lengths.
fn any_key() -> impl Strategy<Value = Key> {
    (0..5_u8, any::<u64>(), any::<u64>()).prop_map(|(kind, run, number)| {
        let tenant = TenantId::from_bytes([7; 32]);
        let shard = ShardKey::new(RunId::from_raw(run), ShardId::from_raw(number));
        match kind {
            0 => Key::RunHead { tenant, run: shard.run() },
            1 => Key::ShardHot { tenant, shard },
            2 => Key::SchemaVersion,
            3 => Key::ClaimIndex { tenant, shard, at: LogicalTime::from_raw(number) },
            _ => Key::Owner { tenant, shard },
        }
    })
}

/// Some of them hold no key, because their ends are the wrong way round.
fn any_range() -> impl Strategy<Value = KeyRange> {
    (0..1_000_u64, any_key()).prop_map(|(run, key)| {
        let run = KeyRange::hot_shards_of(TenantId::from_bytes([7; 32]), RunId::from_raw(run));
        run.after(&key)
    })
}

/// Revisions of every length.
fn any_revision() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (0..64_u32).prop_map(|bits| Some(u64::MAX >> bits))]
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![0..300_usize, 16_000..17_000_usize].prop_map(|len| vec![5; len])
}

fn any_line() -> impl Strategy<Value = Line> {
    prop_oneof![
        3 => (any_key(), any_revision()).prop_map(|(key, at)| Line::Expect(key, at)),
        3 => any_revision().prop_map(Line::ExpectNext),
        1 => any_range().prop_map(Line::ExpectEmpty),
        2 => (any_key(), any_value()).prop_map(|(key, value)| Line::ExpectValue(key, value)),
        2 => any_value().prop_map(Line::Put),
        1 => any_value().prop_map(Line::Bind),
        1 => Just(Line::Delete),
    ]
}

/// The writes are of different keys, as a transaction wants it, and some of them are compared.
fn txn_of(lines: &[Line]) -> Txn {
    let numbered = |number| {
        let shard = ShardKey::new(RunId::from_raw(2), ShardId::from_raw(number));
        Key::ShardHot { tenant: TenantId::from_bytes([9; 32]), shard }
    };
    let mut txn = Txn::new();
    for (line, number) in lines.iter().zip(1..) {
        let key = numbered(number);
        match line {
            Line::Expect(key, at) => txn.expect_revision(*key, *at),
            Line::ExpectNext(at) => txn.expect_revision(numbered(number + 1), *at),
            Line::ExpectEmpty(range) => txn.expect_empty(*range),
            Line::ExpectValue(key, value) => txn.expect_value(*key, Arc::new(value.clone())),
            Line::Put(value) => txn.put(key, value.clone()),
            Line::Bind(value) => txn.bind(key, value.clone()),
            Line::Delete => txn.delete(key),
        }
    }
    txn
}

proptest! {
    #[test]
    fn a_lone_transaction_is_the_bytes_of_its_message(
        lines in prop::collection::vec(any_line(), 0..12),
        terse in any::<bool>(),
        lease_bits in 1..63_u32,
        path_len in 1..120_usize,
    ) {
        let namespace = Namespace::new(&"n".repeat(path_len)).expect("a plain path");
        let mut txn = txn_of(&lines);
        if terse {
            txn.skip_read_back();
        }
        let lease = i64::MAX >> lease_bits;
        let lone = LoneTxn { namespace: &namespace, txn: &txn, lease, measured: None };
        let request: TxnRequest = lone.into_request();
        let encoded = lone.encode();
        prop_assert_eq!(&*encoded.bytes, &*request.encode_to_vec());
        prop_assert_eq!(encoded.effect, effect(&request));
        let lists = [request.compare.len(), request.success.len(), request.failure.len()];
        prop_assert_eq!(Some(lone.op_count()), lists.into_iter().max());
        let longest = LoneTxn { lease: wire::SOME_LEASE, ..lone };
        prop_assert!(longest.encoded_len() >= encoded.bytes.len());
    }
}
