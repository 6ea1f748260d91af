//! etcd alone, through the same client: compare and swap of a record, and the shape with two reads
//! before it. No protocol, no codec, no checksum, no batches, and nothing to be read if it fails,
//! as of a checkpoint.

use gossip_coordination_etcd::proto::{
    Compare, CompareResult, CompareTarget, PutRequest, RangeRequest, Request, RequestOp,
    TargetUnion, TxnRequest,
};
use gossip_coordination_etcd::{EtcdKv, GrpcClient};

use crate::VALUE_LEN;
use crate::rounds::Caller;

/// One record, and the revision at which it was last seen.
pub struct Swap {
    client: GrpcClient,
    key: Vec<u8>,
    revision: i64,
}

impl Swap {
    pub async fn new(client: &GrpcClient, number: usize) -> Self {
        let key = key("swap", number);
        let request = TxnRequest { success: vec![put(&key)], ..TxnRequest::default() };
        let answer = client.txn(request).await.expect("the server takes a record");
        let revision = answer.header.expect("every answer has a header").revision;
        Self { client: client.clone(), key, revision }
    }

    async fn swap(&mut self) {
        let request = TxnRequest {
            compare: vec![unchanged(&self.key, self.revision)],
            success: vec![put(&self.key)],
            failure: Vec::new(),
        };
        let answer = self.client.txn(request).await.expect("the server takes a record");
        assert!(answer.succeeded, "no concurrent writer");
        self.revision = answer.header.expect("every answer has a header").revision;
    }
}

impl Caller for Swap {
    async fn once(&mut self) {
        self.swap().await;
    }
}

/// The same with two reads before it, the second of which is of another key: what a coordinator
/// does that remembers nothing.
pub struct ThreeTrips {
    swap: Swap,
    other: Swap,
}

impl ThreeTrips {
    pub async fn new(client: &GrpcClient, number: usize) -> Self {
        // Behind those of the plain ones.
        let [one, other] = [number * 2, number * 2 + 1].map(|number| number + (1 << 20));
        Self { swap: Swap::new(client, one).await, other: Swap::new(client, other).await }
    }
}

impl Caller for ThreeTrips {
    async fn once(&mut self) {
        for swap in [&mut self.swap, &mut self.other] {
            let request = RangeRequest { key: swap.key.clone(), ..RangeRequest::default() };
            let answer = swap.client.range(request).await.expect("the server answers");
            swap.revision = answer.kvs[0].mod_revision;
        }
        let request = TxnRequest {
            compare: vec![
                unchanged(&self.swap.key, self.swap.revision),
                unchanged(&self.other.key, self.other.revision),
            ],
            success: vec![put(&self.swap.key)],
            failure: Vec::new(),
        };
        let answer = self.swap.client.txn(request).await.expect("the server takes a record");
        assert!(answer.succeeded, "no concurrent writer");
    }
}

/// As long as a key of ours with a namespace.
fn key(kind: &str, number: usize) -> Vec<u8> {
    format!("bench/{kind}/{:064x}/{:016x}/{number:016x}", 7, 1).into_bytes()
}

fn unchanged(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

fn put(key: &[u8]) -> RequestOp {
    let put = PutRequest { key: key.to_vec(), value: vec![7; VALUE_LEN], ..PutRequest::default() };
    RequestOp { request: Some(Request::Put(put)) }
}
