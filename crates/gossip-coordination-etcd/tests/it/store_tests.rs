//! The store and its group commit, on the model and on a real server.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Key, KeyRange, Read, Txn, Versioned,
};
use gossip_coordination::{InfraError, StoreRefusal};
use gossip_coordination_etcd::proto::{CompareTarget, Request, TargetUnion, TxnRequest};
use gossip_coordination_etcd::{
    EtcdConfig, EtcdKv, EtcdStore, GrpcClient, GrpcConfig, KeySpan, proto,
};
use gossip_testkit::test_support::{EtcdServer, ServerOptions};
use gossip_testkit_etcd::sim_etcd_kv::{Fault, SimEtcdKv, SimLimits, Target};
use tokio::task::JoinSet;

use crate::lossy_kv::LossyKv;
use crate::real_servers::{self, Servers};

fn key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::ShardHot { tenant: TenantId::from_bytes([7; 32]), shard }
}

fn all_keys() -> KeyRange {
    KeyRange::hot_shards_of(TenantId::from_bytes([7; 32]), RunId::from_raw(1))
}

/// Writes `byte` under a key that is expected to be as `loaded`.
fn put(number: u64, loaded: Option<&Versioned>, byte: u8) -> Txn {
    let mut txn = Txn::new();
    txn.expect(key(number), loaded);
    txn.put(key(number), vec![byte]);
    txn
}

fn model_config() -> EtcdConfig {
    EtcdConfig::new(["model:1"], "store").expect("the usual settings work")
}

async fn commit_one<K: EtcdKv>(store: &mut EtcdStore<K>, txn: Txn) -> CommitOutcome {
    let outcome = store.commit(vec![txn]).await.pop().expect("one for each");
    outcome.expect("the store works")
}

async fn get<K: EtcdKv>(store: &mut EtcdStore<K>, number: u64) -> Option<Versioned> {
    let answers = store.read(vec![Read::Get(key(number))]).await.expect("the store works");
    match &answers[..] {
        [Answer::Value(value)] => value.clone(),
        other => panic!("{other:?}"),
    }
}

/// What every engine promises, in one story.
async fn keeps_the_contract<K: EtcdKv>(mut store: EtcdStore<K>) {
    let CommitOutcome::Applied { revision } = commit_one(&mut store, put(1, None, 5)).await else {
        panic!("nothing is there");
    };
    let found = get(&mut store, 1).await.expect("it was written");
    assert_eq!((found.revision, &*found.bytes), (revision, [5].as_slice()));

    // A conflict returns the current state of everything the transaction expected.
    let mut txn = put(1, None, 6);
    txn.expect(key(2), Some(&found));
    txn.expect_empty(all_keys());
    let CommitOutcome::Conflict(conflict) = commit_one(&mut store, txn).await else {
        panic!("the key is there");
    };
    let expected = [(key(1), Some(found.clone())), (key(2), None), (key(1), Some(found.clone()))];
    assert_eq!(conflict.found(), expected);

    // Unless the transaction skips the read-back.
    let mut txn = put(2, None, 6);
    txn.expect(key(1), None);
    txn.skip_read_back();
    let CommitOutcome::Conflict(conflict) = commit_one(&mut store, txn).await else {
        panic!("the key is there");
    };
    assert_eq!((conflict.key(), conflict.found()), (key(2), [].as_slice()));
    assert_eq!(get(&mut store, 2).await, None);

    // Revisions rise across a deletion.
    let mut txn = Txn::new();
    txn.expect(key(1), Some(&found));
    txn.delete(key(1));
    assert!(matches!(commit_one(&mut store, txn).await, CommitOutcome::Applied { .. }));
    assert!(matches!(commit_one(&mut store, put(1, None, 7)).await, CommitOutcome::Applied { .. }));
    assert!(get(&mut store, 1).await.expect("it is back").revision > found.revision + 1);
    assert!(matches!(
        commit_one(&mut store, put(1, Some(&found), 8)).await,
        CommitOutcome::Conflict(_)
    ));

    // One read answers several questions, and those that need no server too.
    let backwards = all_keys().after(&key(u64::MAX)).after(&key(u64::MAX));
    let behind = all_keys().after(&key(1));
    let reads = vec![
        Read::Count(all_keys()),
        Read::Scan { range: all_keys(), limit: 0 },
        Read::Scan { range: all_keys(), limit: 9 },
        Read::Get(key(2)),
        Read::Count(backwards),
        Read::ScanFirst { ranges: vec![backwards, behind, all_keys()], limit: 9 },
        Read::ScanFirst { ranges: vec![all_keys(), behind], limit: 9 },
        Read::ScanFirst { ranges: vec![behind, behind], limit: 9 },
    ];
    let answers = store.read(reads).await.expect("the store works");
    assert_eq!(answers[0], Answer::Count(1));
    assert_eq!(answers[1], Answer::Page(Vec::new()));
    assert!(matches!(&answers[2], Answer::Page(page) if page.len() == 1 && page[0].0 == key(1)));
    assert_eq!((&answers[3], &answers[4]), (&Answer::Value(None), &Answer::Count(0)));
    // Of several ranges the first that is not empty is read.
    assert_eq!((&answers[5], &answers[6]), (&answers[2], &answers[2]));
    assert_eq!(answers[7], Answer::Page(Vec::new()));
}

#[tokio::test]
async fn the_store_keeps_the_contract_of_an_engine() {
    let config = model_config();
    keeps_the_contract(EtcdStore::without_tasks(SimEtcdKv::new(), &config).unwrap()).await;
    keeps_the_contract(EtcdStore::start(LossyKv::new(SimEtcdKv::new()), &config).unwrap()).await;
    for servers in [Servers::Single, Servers::Three] {
        keeps_the_contract(EtcdStore::start(servers.client(), &servers.config()).unwrap()).await;
    }
}

#[tokio::test]
async fn transactions_of_one_call_each_get_their_own_outcome() {
    let servers = Servers::Single;
    for coalesce in [true, false] {
        let config = EtcdConfig { coalesce, ..servers.config() };
        let kv = LossyKv::new(servers.client());
        let mut store = EtcdStore::start(kv.clone(), &config).unwrap();
        commit_one(&mut store, put(3, None, 0)).await;
        let before = kv.commit_count();
        let txns = (0..100).map(|number| put(number, None, 1)).collect();
        let outcomes = store.commit(txns).await;
        for (number, outcome) in outcomes.iter().enumerate() {
            let is_conflict = matches!(outcome, Ok(CommitOutcome::Conflict(_)));
            assert_eq!(is_conflict, number == 3, "{number}: {outcome:?}");
        }
        // The carriers may have begun before the last one came.
        assert!(kv.commit_count() - before <= 3, "{} requests", kv.commit_count() - before);
    }
}

/// Every increment is there: a conflict of one never became a success, nor the other way round.
async fn increments_add_up<K: EtcdKv>(store: EtcdStore<K>, tasks: u64, rounds: u64, keys: u64) {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let mut store = store.clone();
        running.spawn(async move {
            for round in 0..rounds {
                let number = (task * 7 + round) % keys;
                loop {
                    let found = get(&mut store, number).await;
                    let count = found.as_ref().map_or(0, |it| count_of(&it.bytes));
                    let mut txn = Txn::new();
                    txn.expect(key(number), found.as_ref());
                    txn.put(key(number), (count + 1).to_be_bytes().to_vec());
                    match commit_one(&mut store, txn).await {
                        CommitOutcome::Applied { .. } => break,
                        CommitOutcome::Conflict(_) => {}
                        CommitOutcome::Unknown => panic!("nothing is lost here"),
                    }
                }
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    let mut store = store;
    let mut sum = 0;
    for number in 0..keys {
        sum += get(&mut store, number).await.map_or(0, |it| count_of(&it.bytes));
    }
    assert_eq!(sum, tasks * rounds);
}

fn count_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_of_many_handles_add_up() {
    let config = model_config();
    increments_add_up(
        EtcdStore::start(LossyKv::new(SimEtcdKv::new()), &config).unwrap(),
        32,
        30,
        40,
    )
    .await;
    increments_add_up(
        EtcdStore::start(LossyKv::new(SimEtcdKv::new()), &config).unwrap(),
        16,
        20,
        2,
    )
    .await;
    let servers = Servers::Single;
    let kv = LossyKv::new(servers.client());
    let store = EtcdStore::start(kv.clone(), &servers.config()).unwrap();
    increments_add_up(store, 64, 6, 97).await;
    let commits = kv.commit_count();
    println!("{commits} requests for {} increments", 64 * 6);
    assert!(commits < 64 * 6, "nothing was coalesced");
}

#[tokio::test]
async fn a_lone_transaction_is_sent_bare() {
    let kv = LossyKv::new(SimEtcdKv::new());
    let mut store = EtcdStore::start(kv.clone(), &model_config()).unwrap();
    commit_one(&mut store, put(1, None, 1)).await;
    assert_eq!(kv.commit_count(), 1);
    assert_eq!(kv.nested_count(), 0);
}

#[tokio::test]
async fn a_lost_reply_is_unknown_for_each_transaction_of_the_batch() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &model_config()).unwrap();
    kv.inject(0, Target::Write, Fault::LoseReply);
    let outcomes = store.commit((0..5).map(|number| put(number, None, 1)).collect()).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(CommitOutcome::Unknown)), "{outcomes:?}");
    assert!(get(&mut store, 4).await.is_some(), "it happened");
}

#[tokio::test]
async fn a_refusal_that_passes_is_tried_again_and_one_that_stays_is_an_error() {
    let kv = SimEtcdKv::new();
    let config = EtcdConfig { retries: 2, ..model_config() };
    let mut store = EtcdStore::without_tasks(kv.clone(), &config).unwrap();
    for _ in 0..2 {
        kv.inject(0, Target::Write, Fault::Refuse);
    }
    assert!(matches!(commit_one(&mut store, put(1, None, 1)).await, CommitOutcome::Applied { .. }));
    for _ in 0..3 {
        kv.inject(0, Target::Write, Fault::Refuse);
    }
    let outcome = store.commit(vec![put(2, None, 1)]).await.pop().unwrap();
    assert!(outcome.as_ref().is_err_and(InfraError::is_retryable), "{outcome:?}");
    assert_eq!(get(&mut store, 2).await, None);
}

/// A server with lower limits than configured refuses the batch; then each transaction is sent
/// alone, and only the one that is too large is refused.
#[tokio::test]
async fn a_refused_transaction_fails_no_other_of_the_batch() {
    let kv = SimEtcdKv::with_limits(SimLimits { max_txn_ops: 40, ..SimLimits::default() });
    let mut store = EtcdStore::without_tasks(kv, &model_config()).unwrap();
    let mut large = Txn::new();
    (100..150).for_each(|number| large.put(key(number), Vec::new()));
    let outcomes = store.commit(vec![put(1, None, 1), large, put(2, None, 1)]).await;
    assert!(matches!(outcomes[0], Ok(CommitOutcome::Applied { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(InfraError::Refused { why: StoreRefusal::TooLarge, .. })));
    assert!(matches!(outcomes[2], Ok(CommitOutcome::Applied { .. })), "{outcomes:?}");
}

#[tokio::test]
async fn a_full_server_is_refused_with_what_to_do() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &model_config()).unwrap();
    kv.inject(0, Target::Write, Fault::FillSpace);
    // What filled it may have happened.
    assert_eq!(commit_one(&mut store, put(1, None, 1)).await, CommitOutcome::Unknown);
    let outcome = store.commit(vec![put(2, None, 1)]).await.pop().unwrap();
    let Err(InfraError::Refused { why: StoreRefusal::NoSpace, message, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(message.contains("compact") && message.contains("disarm"), "{message}");
    kv.disarm();
    assert!(matches!(commit_one(&mut store, put(2, None, 1)).await, CommitOutcome::Applied { .. }));
}

/// What our batches rely on, asked of the real server: nested transactions may compare the same
/// key, every compare looks at the state before the batch, and a key is written once.
#[tokio::test]
async fn a_real_server_takes_nested_transactions_as_the_batches_assume() {
    let client = Servers::Single.client();
    let KeySpan { start: prefix, .. } = Servers::Single.config().namespace.everything();
    let key = |name: &str| [prefix.as_slice(), name.as_bytes()].concat();
    let nested = |compared: &str, written: &str| {
        let compare = proto::Compare {
            target: CompareTarget::Version as i32,
            key: key(compared),
            target_union: Some(TargetUnion::Version(0)),
            ..proto::Compare::default()
        };
        let put = proto::PutRequest { key: key(written), ..proto::PutRequest::default() };
        let success = vec![Request::Put(put).into()];
        Request::Txn(TxnRequest { compare: vec![compare], success, failure: Vec::new() }).into()
    };
    let outer = |success| TxnRequest { success, ..TxnRequest::default() };
    let succeeded = |answer: &proto::TxnResponse| -> Vec<bool> {
        let nested = answer.responses.iter().map(|it| match &it.response {
            Some(proto::Response::Txn(txn)) => txn.succeeded,
            other => panic!("{other:?}"),
        });
        nested.collect()
    };
    let answer = client.txn(outer(vec![nested("head", "a"), nested("head", "b")])).await.unwrap();
    assert_eq!(succeeded(&answer), [true, true], "compares may share a key");
    // Why a batch never holds two such: one after the other, the second would fail.
    let answer = client.txn(outer(vec![nested("x", "y"), nested("y", "x")])).await.unwrap();
    assert_eq!(succeeded(&answer), [true, true], "compares look at the state before the batch");
    let twice = client.txn(outer(vec![nested("p", "q"), nested("r", "q")])).await;
    assert!(twice.expect_err("a key is written once").is_certain());
    // 127 nested transactions of one operation each, and not one more.
    let many = |count: usize| {
        outer((0..count).map(|n| nested(&format!("m{n}"), &format!("m{n}"))).collect())
    };
    assert!(client.txn(many(128)).await.is_err());
    assert!(client.txn(many(127)).await.is_ok());
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_asked_for_in_parts_of_one_instant() {
    let servers = Servers::Single;
    let mut config = servers.grpc_config();
    config.max_answer_bytes = 64 << 10;
    let client = GrpcClient::new(&config).unwrap();
    let mut store = EtcdStore::start(client, &servers.config()).unwrap();
    for number in 0..20 {
        let mut txn = Txn::new();
        txn.put(key(number), vec![number as u8; 10 << 10]);
        commit_one(&mut store, txn).await;
    }
    let behind = all_keys().after(&key(30));
    let reads = vec![
        Read::Scan { range: all_keys(), limit: 17 },
        Read::Count(all_keys()),
        Read::ScanFirst { ranges: vec![behind, all_keys()], limit: 17 },
    ];
    let answers = store.read(reads).await.unwrap();
    assert_eq!(answers[0], answers[2]);
    let Answer::Page(page) = &answers[0] else { panic!("a page") };
    let numbers: Vec<u8> = page.iter().map(|(_, value)| value.bytes[0]).collect();
    assert_eq!(numbers, (0..17).collect::<Vec<u8>>());
    assert_eq!(answers[1], Answer::Count(20));
    // More questions than a transaction takes, of one instant all the same.
    let mut reads: Vec<_> = (0..300).map(|number| Read::Get(key(number % 20))).collect();
    reads.push(Read::ScanFirst { ranges: vec![behind, all_keys()], limit: 2 });
    let mut answers = store.read(reads).await.unwrap();
    assert!(matches!(answers.pop(), Some(Answer::Page(page)) if page.len() == 2));
    assert_eq!(answers.len(), 300);
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Value(Some(_)))));
}

/// Looks at one key so many times, and at so many ranges the last of which has it.
async fn look<K: EtcdKv>(store: &mut EtcdStore<K>, gets: usize, ranges: usize) {
    let mut ranges = vec![all_keys().after(&key(30)); ranges - 1];
    ranges.push(all_keys());
    let mut reads = vec![Read::Get(key(1)); gets];
    reads.push(Read::ScanFirst { ranges, limit: 2 });
    let mut answers = store.read(reads).await.expect("it fits, or is asked for in parts");
    assert!(matches!(answers.pop(), Some(Answer::Page(page)) if page.len() == 1));
    assert_eq!(answers.len(), gets);
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Value(Some(_)))));
}

/// A server counts nested steps: a read of five ranges is one step with four more nested in it.
async fn looks_at_ranges_have_their_share_of_a_request<K: EtcdKv>(mut store: EtcdStore<K>) {
    commit_one(&mut store, put(1, None, 1)).await;
    for (gets, ranges) in [(0, 1), (122, 5), (123, 5), (124, 5), (127, 5), (128, 5), (127, 1)] {
        look(&mut store, gets, ranges).await;
    }
    // More in one another than a decoder follows, and than a server takes.
    for ranges in [33, 34, 64, 128, 129, 200] {
        look(&mut store, 1, ranges).await;
    }
}

#[tokio::test]
async fn looks_at_ranges_have_their_share_of_a_request_on_the_model() {
    let store = EtcdStore::without_tasks(SimEtcdKv::new(), &model_config()).unwrap();
    looks_at_ranges_have_their_share_of_a_request(store).await;
}

#[tokio::test]
async fn looks_at_ranges_have_their_share_of_a_request_on_a_real_server() {
    let servers = Servers::Single;
    let store = EtcdStore::start(servers.client(), &servers.config()).unwrap();
    looks_at_ranges_have_their_share_of_a_request(store).await;
}

#[tokio::test]
async fn a_full_real_server_is_refused_with_what_to_do() {
    let flags = ["--quota-backend-bytes=2000000"];
    let server = EtcdServer::with_options(&ServerOptions::with_flags(&flags));
    let endpoint = server.endpoint();
    let config = real_servers::config([endpoint.trim_start_matches("http://")]);
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let mut store = EtcdStore::start(client, &config).unwrap();
    // The server looks at its size from time to time only, so much more than the quota may pass.
    for number in 0..600 {
        let mut txn = Txn::new();
        txn.put(key(number), vec![1; 100 << 10]);
        match store.commit(vec![txn]).await.pop().unwrap() {
            Ok(_) => {}
            Err(InfraError::Refused { why: StoreRefusal::NoSpace, message, .. }) => {
                assert!(message.contains("etcdctl compact"), "{message}");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the quota was never reached");
}

/// The store of a process whose runtime is gone says so, and nothing hangs.
#[test]
fn a_store_whose_runtime_has_ended_says_so() {
    let kv = LossyKv::new(SimEtcdKv::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut store = runtime.block_on(async { EtcdStore::start(kv, &model_config()).unwrap() });
    drop(runtime);
    let txns = (0..2).map(|number| put(number, None, 1)).collect();
    let outcomes = gossip_coordination::block_on(store.commit(txns));
    assert!(outcomes.iter().all(|outcome| outcome.is_err()), "{outcomes:?}");
}
