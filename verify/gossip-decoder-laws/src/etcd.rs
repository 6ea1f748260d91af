//! The etcd store with arbitrary answers of a server.
//!
//! The server is derived from the input: its answers are messages decoded from those bytes, with
//! the last one repeated. The store is the production one.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey};
use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Key, KeyRange, Read, Txn};
use gossip_coordination_etcd::proto::{
    KeyValue, RangeRequest, RangeResponse, Response, ResponseHeader, ResponseOp, TxnResponse,
};
use gossip_coordination_etcd::{
    Alarm, EtcdCause, EtcdConfig, EtcdError, EtcdKv, EtcdStore, LeaseGrant, LeaseTtl, MemberStatus,
    SizeLimit, TxnMessage,
};
use prost::Message;

use crate::seal::{RUN, TENANT};

/// Keys of a scan at most.
const SCAN_LIMIT: usize = 3;

/// Requests that one call of the store may make: two questions in parts of one key each, with every
/// retry, are far fewer.
const REQUESTS_MAX: usize = 200;

/// The namespace of the store.
const NAMESPACE: &str = "n";

/// The server of an input.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    /// The rest of the input: length and bytes of each answer.
    rest: Vec<u8>,
    /// Where the next answer begins; the last one is given again.
    next: usize,
    requests: usize,
}

/// An answer that is none of these decodes as a message.
const FAILURES: [(u8, fn() -> EtcdCause); 4] = [
    (0xFF, || EtcdCause::TooLarge(SizeLimit::Answer)),
    (0xFE, || EtcdCause::Busy),
    (0xFD, || EtcdCause::Compacted),
    (0xFC, || EtcdCause::LeaseNotFound),
];

impl Scripted {
    fn play(&self, script: &[u8]) {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.rest.clear();
        own.rest.extend_from_slice(script);
        (own.next, own.requests) = (0, 0);
    }

    /// The next answer: length, then as many bytes.
    fn answer<A: Message + Default>(&self, operation: &'static str) -> Result<A, EtcdError> {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        script.requests += 1;
        assert!(script.requests <= REQUESTS_MAX, "the store asks without end");
        let Script { rest, next, .. } = &mut *script;
        let Some((&len, bytes)) = rest[*next..].split_first() else {
            return Err(EtcdError::refused(operation, EtcdCause::Busy));
        };
        if let Some((_, cause)) = FAILURES.iter().find(|(number, _)| *number == len) {
            *next += usize::from(!bytes.is_empty());
            return Err(EtcdError::refused(operation, cause()));
        }
        let bytes = &bytes[..usize::from(len).min(bytes.len())];
        let behind = *next + 1 + bytes.len();
        let answer = A::decode(bytes);
        if behind < rest.len() {
            *next = behind;
        }
        let garbled = |_| EtcdError::refused(operation, EtcdCause::BadRequest("garbled"));
        answer.map_err(garbled)
    }
}

impl EtcdKv for Scripted {
    async fn range(&self, _: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.answer("range")
    }

    async fn txn(&self, _: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        self.answer("txn")
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        Ok(LeaseGrant { id: 7, ttl_seconds })
    }

    async fn lease_keep_alive(&self, _: i64) -> Result<Option<i64>, EtcdError> {
        Ok(None)
    }

    async fn lease_revoke(&self, _: i64) -> Result<(), EtcdError> {
        Ok(())
    }

    async fn lease_time_to_live(&self, _: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        Ok(None)
    }

    async fn compact(&self, _: i64) -> Result<(), EtcdError> {
        Ok(())
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        Err(EtcdError::refused("status", EtcdCause::Busy))
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        Ok(Vec::new())
    }

    async fn sleep(&self, _: u64) {}
}

/// For any server answers, the store returns a typed error or a well-formed answer, after a bounded
/// number of requests. A page has keys of its range, in order, and at most the requested number; a
/// conflict names compared keys.
///
/// The first byte selects the request.
pub(crate) fn answers(data: &[u8]) -> bool {
    thread_local! {
        /// Made once, because that takes longer than a script. Of the thread: tests play several
        /// scripts at a time, and each must be answered with its own.
        static STORE: EtcdStore<Scripted> = {
            let config = EtcdConfig::new(["host:1".to_owned()], NAMESPACE).expect("good settings");
            EtcdStore::without_tasks(Scripted::default(), &config).expect("good settings")
        };
    }
    let Some((&question, script)) = data.split_first() else { return false };
    let mut store = STORE.with(Clone::clone);
    store.kv().play(script);
    let reads = match question % 8 {
        0 => vec![Read::Get(hot(1))],
        1 => vec![Read::Scan { range: hots(), limit: SCAN_LIMIT }],
        2 => vec![Read::Count(hots())],
        3 => vec![Read::ScanFirst { ranges: vec![parked(), hots()], limit: SCAN_LIMIT }],
        4 => vec![Read::Get(hot(1)), Read::Scan { range: hots(), limit: SCAN_LIMIT }],
        5 => return check_commits(&mut store, vec![compares_and_binds()]),
        6 => return check_commits(&mut store, vec![compares_and_puts(1), terse()]),
        _ => return check_commits(&mut store, vec![compares_and_puts(1), compares_and_binds()]),
    };
    check_reads(&mut store, &reads)
}

fn check_reads(store: &mut EtcdStore<Scripted>, reads: &[Read]) -> bool {
    let Ok(answers) = now(store.read(reads.to_vec())) else { return false };
    assert_eq!(answers.len(), reads.len(), "one answer for each question");
    for (read, answer) in reads.iter().zip(&answers) {
        match (read, answer) {
            (Read::Get(_), Answer::Value(_)) | (Read::Count(_), Answer::Count(_)) => {}
            (Read::Scan { range, limit }, Answer::Page(page)) => {
                check_page(page, &[*range], *limit);
            }
            (Read::ScanFirst { ranges, limit }, Answer::Page(page)) => {
                check_page(page, ranges, *limit);
            }
            (read, answer) => panic!("{read:?} is answered with {answer:?}"),
        }
    }
    true
}

fn check_page(page: &gossip_coordination::store::Page, ranges: &[KeyRange], limit: usize) {
    assert!(page.len() <= limit, "more keys than were asked for");
    let bytes: Vec<_> = page.iter().map(|(key, _)| key.to_bytes()).collect();
    let rises = bytes.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes());
    assert!(rises, "keys that do not rise");
    let holds = |range: &KeyRange| {
        let (start, end) = (range.start().as_bytes(), range.end().as_bytes());
        bytes.iter().all(|key| start <= key.as_bytes() && key.as_bytes() < end)
    };
    assert!(ranges.iter().any(holds), "unrequested keys");
}

fn check_commits(store: &mut EtcdStore<Scripted>, txns: Vec<Txn>) -> bool {
    let asked = txns.clone();
    let outcomes: Vec<Result<CommitOutcome, InfraError>> = now(store.commit(txns));
    assert_eq!(outcomes.len(), asked.len(), "one outcome for each transaction");
    for (txn, outcome) in asked.iter().zip(&outcomes) {
        match outcome {
            Ok(CommitOutcome::Applied { revision }) => assert!(*revision > 0, "no revision"),
            Ok(CommitOutcome::Conflict(conflict)) => {
                assert!(conflict.found().len() <= txn.compares().len(), "too many conflicts");
                assert_eq!(
                    conflict.found().is_empty(),
                    txn.is_without_read_back(),
                    "each request has an outcome"
                );
            }
            Ok(CommitOutcome::Unknown) | Err(_) => {}
        }
    }
    outcomes.iter().all(Result::is_ok)
}

/// Nothing here ever waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store without tasks never waits"),
    }
}

fn hot(shard: u64) -> Key {
    Key::ShardHot { tenant: TENANT, shard: ShardKey::new(RUN, ShardId::from_raw(shard)) }
}

fn hots() -> KeyRange {
    KeyRange::hot_shards_of(TENANT, RUN)
}

fn parked() -> KeyRange {
    KeyRange::runs_of(TENANT)
}

fn compares_and_puts(shard: u64) -> Txn {
    let mut txn = Txn::new();
    txn.expect_revision(hot(shard), Some(5));
    txn.put(hot(shard), vec![1]);
    txn
}

/// Requests no values of existing keys.
fn terse() -> Txn {
    let mut txn = compares_and_puts(2);
    txn.skip_read_back();
    txn
}

fn compares_and_binds() -> Txn {
    let (tenant, shard) = (TENANT, ShardKey::new(RUN, ShardId::from_raw(3)));
    let mut txn = Txn::new();
    txn.expect_revision(hot(3), None);
    txn.expect_empty(parked());
    txn.bind(Key::Owner { tenant, shard }, vec![2]);
    txn.delete(Key::ClaimIndex { tenant, shard, at: LogicalTime::from_raw(4) });
    txn
}

/// Good answers to every question, cut short, alone and after failures.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let one = range_response(&[1]);
    let three = range_response(&[1, 2, 3]);
    let nested = TxnResponse {
        responses: vec![op(Response::Range(one.clone())), op(Response::Range(three.clone()))],
        ..txn_response(true)
    };
    let failed =
        TxnResponse { responses: vec![op(Response::Range(one.clone()))], ..txn_response(false) };
    let both = TxnResponse {
        responses: vec![op(Response::Txn(txn_response(true))), op(Response::Txn(failed.clone()))],
        ..txn_response(true)
    };
    let messages = [
        one.encode_to_vec(),
        three.encode_to_vec(),
        nested.encode_to_vec(),
        failed.encode_to_vec(),
        both.encode_to_vec(),
        txn_response(true).encode_to_vec(),
    ];
    let mut seeds = Vec::new();
    for question in 0..8 {
        for message in &messages {
            for before in [&[][..], &[0xFF], &[0xFE, 0xFD], &[0xFC]] {
                // Longer messages are cut off; the first keys are whole then.
                let message = &message[..message.len().min(0xFB)];
                let len = u8::try_from(message.len()).expect("it was cut");
                let mut seed = vec![question];
                seed.extend_from_slice(before);
                seed.push(len);
                seed.extend_from_slice(message);
                seeds.push(seed);
            }
        }
    }
    seeds
}

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 9, raft_term: 3 })
}

fn txn_response(succeeded: bool) -> TxnResponse {
    TxnResponse { header: header(), succeeded, ..TxnResponse::default() }
}

fn op(response: Response) -> ResponseOp {
    ResponseOp { response: Some(response) }
}

fn range_response(shards: &[u64]) -> RangeResponse {
    let kv = |shard: &u64| KeyValue {
        key: [format!("/{NAMESPACE}//").as_bytes(), hot(*shard).to_bytes().as_bytes()].concat(),
        create_revision: 4,
        mod_revision: 5,
        version: 1,
        value: vec![9],
        lease: 0,
    };
    let kvs: Vec<KeyValue> = shards.iter().map(kv).collect();
    let count = i64::try_from(kvs.len()).expect("few");
    RangeResponse { header: header(), kvs, more: false, count }
}
