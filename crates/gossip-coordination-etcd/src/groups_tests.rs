//! Groups of transactions that share a compare: what they save, and that servers take them.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::block_on;
use gossip_coordination::store::{CommitOutcome, Key, Txn, Versioned};
use gossip_testkit::test_support::EtcdServer;
use prost::Message;

use crate::batch::{Batch, PreparedTxn};
use crate::budget::Budget;
use crate::groups::{Group, groups};
use crate::proto::{Request, TxnRequest};
use crate::sender::SendRequest;
use crate::sim_etcd_kv::SimEtcdKv;
use crate::{EtcdConfig, EtcdKv, GrpcClient, GrpcConfig};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

/// Shards of a run.
const SHARDS: u64 = 8;

fn head(run: u64) -> Key {
    Key::RunHead { tenant: TENANT, run: RunId::from_raw(run) }
}

fn hot(run: u64, number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(run), ShardId::from_raw(number));
    Key::ShardHot { tenant: TENANT, shard }
}

fn at(revision: u64) -> Versioned {
    Versioned { revision, bytes: Vec::new() }
}

/// As a checkpoint: compares a shard and the head of its run, and writes the shard.
fn checkpoint(run: u64, number: u64, hot_at: u64, head_at: u64) -> Txn {
    let mut txn = Txn::new();
    txn.expect(hot(run, number), Some(&at(hot_at)));
    txn.expect(head(run), Some(&at(head_at)));
    txn.put(hot(run, number), vec![9; 8]);
    txn
}

/// As one who expects no conflict.
fn without_read_back(mut txn: Txn) -> Txn {
    txn.skip_read_back();
    txn
}

fn config() -> EtcdConfig {
    EtcdConfig::new(["h:1"], "groups").expect("the usual settings work")
}

/// The request of a batch of all of `txns`, which fit.
fn request(txns: impl IntoIterator<Item = Txn>) -> TxnRequest {
    let config = config();
    let budget = Budget::new(&config).expect("the usual settings work");
    let prepared = |txn| PreparedTxn::new(&config.namespace, &budget, txn).expect("it is small");
    let mut all_prepared = txns.into_iter().map(prepared);
    let mut batch = Batch::of(all_prepared.next().expect("one at least"), ());
    for prepared in all_prepared {
        assert!(batch.add(&budget, prepared, ()).is_none(), "it fits");
    }
    batch.request(&config.namespace, 0)
}

fn nested(request: &TxnRequest) -> Vec<&TxnRequest> {
    let nested = request.success.iter().map(|step| match &step.request {
        Some(Request::Txn(txn)) => txn,
        other => panic!("{other:?}"),
    });
    nested.collect()
}

#[test]
fn the_head_of_a_run_is_compared_once_for_all_who_expect_the_same() {
    let of_two_runs = [(1, 1, 5), (2, 1, 6), (1, 2, 5), (2, 2, 6), (1, 3, 4), (1, 4, 5)];
    let request = request(of_two_runs.map(|(run, shard, at)| checkpoint(run, shard, 3, at)));
    let groups = nested(&request);
    // Both runs, and the one whose memory is old.
    let sizes: Vec<usize> = groups.iter().map(|group| nested_count(group)).collect();
    assert_eq!(sizes, [3, 2, 0]);
    for group in &groups[..2] {
        assert_eq!((group.compare.len(), group.failure.len()), (1, 1));
        assert!(nested(group).iter().all(|it| (it.compare.len(), it.failure.len()) == (1, 1)));
    }
    assert_eq!(groups[2].compare.len(), 2);
}

#[test]
fn a_group_reads_what_it_shares_only_for_those_who_ask() {
    let read_counts = |skips_from: u64| {
        let txns = (0..4).map(|number| match checkpoint(1, number, 3, 5) {
            txn if number >= skips_from => without_read_back(txn),
            txn => txn,
        });
        let request = request(txns);
        let group = nested(&request)[0].clone();
        let of_members = nested(&group).iter().map(|it| it.failure.len()).collect::<Vec<_>>();
        (group.failure.len(), of_members)
    };
    assert_eq!(read_counts(0), (0, vec![0; 4]));
    assert_eq!(read_counts(1), (1, vec![1, 0, 0, 0]));
    assert_eq!(read_counts(4), (1, vec![1; 4]));
}

fn nested_count(request: &TxnRequest) -> usize {
    request.success.iter().filter(|step| matches!(step.request, Some(Request::Txn(_)))).count()
}

#[test]
fn a_shared_compare_is_sent_once() {
    let txns = || (0..SHARDS).map(|number| checkpoint(1, number, 3, 5));
    let alone: usize = txns().map(|txn| request([txn]).encoded_len()).sum();
    let together = request(txns()).encoded_len();
    println!("{alone} bytes alone, {together} together");
    assert!(together < alone, "{together} bytes");
}

#[test]
fn one_group_that_is_too_deep_is_made_two() {
    let txns: Vec<Txn> = (0..10).map(|number| checkpoint(1, number, 3, 5)).collect();
    let sizes = |limit| {
        let groups = groups(txns.iter(), 2, limit);
        groups.iter().map(|it| if let Group::Sharing(all) = it { all.len() } else { 1 }).collect()
    };
    let expected: [(usize, Vec<usize>); 3] = [(13, vec![10]), (12, vec![5, 5]), (8, vec![1; 10])];
    for (limit, expected) in expected {
        let sizes: Vec<usize> = sizes(limit);
        assert_eq!(sizes, expected, "where the server takes {limit}");
    }
}

/// As many as fit, of any length, and the server takes them.
#[test]
fn a_full_batch_of_groups_is_taken() {
    let config = config();
    let budget = Budget::new(&config).expect("the usual settings work");
    for writes in [1, 2, 3, 4, 60, 62, 124, 125, 126] {
        for runs in [1, 2, 60] {
            let prepared = |number: u64| {
                let mut txn = checkpoint(number % runs, number, 3, 5);
                (1..writes).for_each(|write| txn.put(hot(1_000 + number, write), vec![1]));
                PreparedTxn::new(&config.namespace, &budget, txn).expect("it is small")
            };
            let mut batch = Batch::of(prepared(0), ());
            let mut number = 1;
            while batch.add(&budget, prepared(number), ()).is_none() {
                number += 1;
            }
            let taken = block_on(SimEtcdKv::new().txn(batch.request(&config.namespace, 0)));
            assert!(taken.is_ok(), "{number} of {writes} writes in {runs} runs: {taken:?}");
        }
    }
}

/// As many as one request takes, at a real server's limit.
#[tokio::test]
async fn a_real_server_takes_a_full_batch() {
    let server = EtcdServer::single();
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let config = config();
    let budget = Budget::new(&config).expect("the usual settings work");
    for writes in 1..4_u64 {
        let mut number = 0;
        let mut prepared = || {
            number += 1;
            let mut txn = Txn::new();
            txn.expect(head(1), None);
            txn.expect(hot(writes, number), None);
            (0..writes).for_each(|write| txn.put(hot(100 * writes + write, number), vec![1]));
            PreparedTxn::new(&config.namespace, &budget, txn).expect("it is small")
        };
        let mut batch = Batch::of(prepared(), ());
        while batch.add(&budget, prepared(), ()).is_none() {}
        let answer = client.txn(batch.request(&config.namespace, 0)).await.expect("it fits");
        let outcomes = batch.outcomes(&config.namespace, answer);
        assert!(outcomes.len() > 120, "{} fit", outcomes.len());
        assert!(outcomes.iter().all(|it| matches!(it, Ok(CommitOutcome::Applied { .. }))));
    }
}
