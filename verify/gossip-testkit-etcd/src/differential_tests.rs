//! The model and the real server answer the same requests in the same way.
//!
//! Both begin empty, so revisions are equal without translation. Names of leases differ; requests
//! and answers carry places in a list of leases instead, translated at the edge.

use std::fmt;

use gossip_coordination_etcd::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseHeader, SortOrder, TargetUnion,
    TxnRequest, TxnResponse,
};
use gossip_coordination_etcd::{EtcdError, EtcdKv, GrpcClient, GrpcConfig, LeaseTtl};
use gossip_testkit::Rng;
use gossip_testkit::test_support::EtcdServer;

use crate::sim_etcd_kv::{SimEtcdKv, SimLimits};

/// How many requests are compared: enough for [`Seen::assert_variety`].
const REQUESTS: usize = 12_000;

/// Few keys, so that requests meet.
const KEYS: u64 = 24;

/// Leases that stand at the same time.
const LEASES: usize = 4;

/// Longer than any run of the test, in seconds.
const LONG_LEASE: i64 = 10_000;

#[tokio::test]
async fn the_model_answers_as_the_real_server_does() {
    let server = EtcdServer::single();
    let mut pair = Pair::new(&server);
    let mut random = Random(Rng::seeded(20_261_115));
    let mut seen = Seen::default();
    for number in 0..REQUESTS {
        pair.step(&mut random, &mut seen).await.unwrap_or_else(|difference| {
            panic!("request {number}: {difference}");
        });
    }
    seen.assert_variety();
    assert_eq!(pair.model.contents().len(), pair.everything().await);
}

/// How often each thing happened, so that a generator that stopped making it is found out.
#[derive(Debug, Default)]
struct Seen {
    succeeded: usize,
    failed: usize,
    nested_succeeded: usize,
    nested_failed: usize,
    refused: std::collections::BTreeMap<String, usize>,
    more: usize,
}

impl Seen {
    fn txn(&mut self, answer: &TxnResponse, is_nested: bool) {
        let counter = match (is_nested, answer.succeeded) {
            (false, true) => &mut self.succeeded,
            (false, false) => &mut self.failed,
            (true, true) => &mut self.nested_succeeded,
            (true, false) => &mut self.nested_failed,
        };
        *counter += 1;
        for response in &answer.responses {
            if let Some(Response::Txn(inner)) = &response.response {
                self.txn(inner, true);
            }
        }
    }

    fn assert_variety(&self) {
        let least = REQUESTS / 100;
        for count in [self.succeeded, self.failed, self.nested_succeeded, self.nested_failed] {
            assert!(count > least, "{self:?}");
        }
        assert!(self.more > 50, "{self:?}");
        // Twice written, too many steps, too many bytes, empty key, lease, compacted, future.
        assert!(self.refused.len() >= 7, "{self:?}");
    }
}

/// The model and a real server, with the leases that both have granted.
struct Pair {
    model: SimEtcdKv,
    real: GrpcClient,
    /// Names at the model and at the server; the first is one that neither knows.
    leases: Vec<(i64, i64)>,
    /// All that ever were; old revisions still tell them.
    names: Vec<(i64, i64)>,
}

const UNKNOWN_LEASE: (i64, i64) = (999_999, 999_999);

type Checked = Result<(), String>;

impl Pair {
    fn new(server: &EtcdServer) -> Self {
        let real = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
        Self { model: SimEtcdKv::new(), real, leases: vec![UNKNOWN_LEASE], names: Vec::new() }
    }

    async fn everything(&self) -> usize {
        let all = RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() };
        self.real.range(all).await.unwrap().kvs.len()
    }

    async fn step(&mut self, random: &mut Random, seen: &mut Seen) -> Checked {
        match random.below(100) {
            0..60 => self.txn(generate_txn(random, self, 2), seen).await,
            60..84 => self.range(random, seen).await,
            84..86 => {
                self.txn(oversized_txn(random), seen).await?;
                // Gone at once, so that the rest stays quick.
                self.txn(delete_other_keys(), seen).await
            }
            86..93 => self.lease(random).await,
            93..95 => self.compact(random, seen).await,
            _ => self.txn(group_txn(random, self), seen).await,
        }
    }

    async fn txn(&mut self, request: TxnRequest, seen: &mut Seen) -> Checked {
        let modelled = self.model.txn(request.clone()).await;
        let mut real = request.clone();
        self.translate_request(&mut real);
        let mut answered = self.real.txn(real).await;
        if let Ok(answer) = &mut answered {
            self.translate_answer(answer);
            seen.txn(answer, false);
        }
        note(seen, &answered);
        compare("txn", &modelled, &answered, || describe_txn(&request))
    }

    async fn range(&mut self, random: &mut Random, seen: &mut Seen) -> Checked {
        let request = generate_range(random, self.model.revision());
        let modelled = self.model.range(request.clone()).await;
        let mut answered = self.real.range(request.clone()).await;
        if let Ok(answer) = &mut answered {
            self.translate_range(answer);
            seen.more += usize::from(answer.more);
        }
        note(seen, &answered);
        compare("range", &modelled, &answered, || format!("{request:?}"))
    }

    async fn lease(&mut self, random: &mut Random) -> Checked {
        let place = random.index(self.leases.len());
        let (model, real) = self.leases[place];
        match random.below(4) {
            0 if self.leases.len() <= LEASES => {
                let short = random.below(4) == 0;
                let ttl = if short { random.between(-1, 3) } else { LONG_LEASE };
                let granted = self.model.lease_grant(ttl).await.unwrap();
                let answered = self.real.lease_grant(ttl).await.unwrap();
                compare("grant", &granted.ttl_seconds, &answered.ttl_seconds, String::new)?;
                if short {
                    // It would expire at different times in the model and the server.
                    self.model.lease_revoke(granted.id).await.unwrap();
                    self.real.lease_revoke(answered.id).await.unwrap();
                } else {
                    self.leases.push((granted.id, answered.id));
                    self.names.push((granted.id, answered.id));
                }
                Ok(())
            }
            1 => {
                if place > 0 {
                    self.leases.remove(place);
                }
                let modelled = self.model.lease_revoke(model).await;
                compare("revoke", &modelled, &self.real.lease_revoke(real).await, String::new)
            }
            2 => {
                let modelled = self.model.lease_keep_alive(model).await;
                let answered = self.real.lease_keep_alive(real).await;
                compare("keep alive", &modelled, &answered, String::new)
            }
            _ => {
                let granted = |ttl: Option<LeaseTtl>| ttl.map(|it| it.granted_seconds);
                let modelled = self.model.lease_time_to_live(model).await.map(granted);
                let answered = self.real.lease_time_to_live(real).await.map(granted);
                compare("time to live", &modelled, &answered, String::new)
            }
        }
    }

    async fn compact(&mut self, random: &mut Random, seen: &mut Seen) -> Checked {
        let revision = self.model.revision() + random.between(-60, 3);
        let modelled = self.model.compact(revision).await;
        let answered = self.real.compact(revision).await;
        note(seen, &answered);
        compare("compact", &modelled, &answered, || format!("at {revision}"))
    }

    /// Puts the server's names of leases into a request.
    fn translate_request(&self, request: &mut TxnRequest) {
        for compare in &mut request.compare {
            if let Some(TargetUnion::Lease(lease)) = &mut compare.target_union {
                *lease = self.real_lease(*lease);
            }
        }
        for step in request.success.iter_mut().chain(&mut request.failure) {
            match &mut step.request {
                Some(Request::Put(put)) => put.lease = self.real_lease(put.lease),
                Some(Request::Txn(inner)) => self.translate_request(inner),
                None | Some(Request::Range(_) | Request::DeleteRange(_)) => {}
            }
        }
    }

    fn real_lease(&self, lease: i64) -> i64 {
        self.names.iter().find(|(model, _)| *model == lease).map_or(lease, |(_, real)| *real)
    }

    /// Puts the model's names of leases into an answer, and leaves out what a model has not.
    fn translate_answer(&self, answer: &mut TxnResponse) {
        strip(&mut answer.header);
        for response in &mut answer.responses {
            match &mut response.response {
                Some(Response::Range(it)) => self.translate_range(it),
                Some(Response::Put(it)) => {
                    strip(&mut it.header);
                    it.prev_kv.iter_mut().for_each(|kv| self.translate_kv(kv));
                }
                Some(Response::DeleteRange(it)) => {
                    strip(&mut it.header);
                    it.prev_kvs.iter_mut().for_each(|kv| self.translate_kv(kv));
                }
                Some(Response::Txn(it)) => self.translate_answer(it),
                None => {}
            }
        }
    }

    fn translate_range(&self, answer: &mut RangeResponse) {
        strip(&mut answer.header);
        answer.kvs.iter_mut().for_each(|kv| self.translate_kv(kv));
    }

    fn translate_kv(&self, kv: &mut KeyValue) {
        let found = self.names.iter().find(|(_, real)| *real == kv.lease);
        kv.lease = found.map_or(kv.lease, |(model, _)| *model);
    }
}

fn strip(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    }
}

fn note<T>(seen: &mut Seen, answer: &Result<T, EtcdError>) {
    if let Err(error) = answer {
        *seen.refused.entry(error.cause.to_string()).or_default() += 1;
    }
}

fn compare<T: PartialEq + fmt::Debug>(
    what: &str,
    modelled: &T,
    answered: &T,
    request: impl FnOnce() -> String,
) -> Checked {
    if modelled == answered {
        return Ok(());
    }
    Err(format!(
        "{what} differs\nmodel:  {modelled:?}\nserver: {answered:?}\nrequest: {}",
        request()
    ))
}

/// A transaction with its keys, which `Debug` does not show.
fn describe_txn(request: &TxnRequest) -> String {
    let steps = |steps: &[RequestOp]| steps.iter().map(describe_step).collect::<Vec<_>>();
    let compares: Vec<String> = request
        .compare
        .iter()
        .map(|it| format!("{}..{} {it:?}", text(&it.key), text(&it.range_end)))
        .collect();
    let (then, otherwise) = (steps(&request.success), steps(&request.failure));
    format!("if {compares:?} then {then:?} else {otherwise:?}")
}

fn describe_step(step: &RequestOp) -> String {
    match &step.request {
        None => "nothing".to_owned(),
        Some(Request::Range(it)) => format!("range {}..{}", text(&it.key), text(&it.range_end)),
        Some(Request::Put(it)) => format!("put {} lease {}", text(&it.key), it.lease),
        Some(Request::DeleteRange(it)) => {
            format!("delete {}..{}", text(&it.key), text(&it.range_end))
        }
        Some(Request::Txn(it)) => format!("({})", describe_txn(it)),
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Draws the parts of requests.
struct Random(Rng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn index(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below(to.abs_diff(from) + 1) as i64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.0.chance(percent)
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{:02}", self.below(KEYS)).into_bytes()
    }

    /// A key and the end of a range: a single key, a range, to the end, or nothing at all.
    fn span(&mut self, single: u64) -> (Vec<u8>, Vec<u8>) {
        if self.chance(single) {
            return (self.key(), Vec::new());
        }
        match self.below(10) {
            0 => (self.key(), vec![0]),
            1 => (vec![0], vec![0]),
            2 => (b"none".to_vec(), b"nonf".to_vec()),
            _ => (self.key(), self.key()),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        format!("{}", self.below(4)).into_bytes()[..self.index(2)].to_vec()
    }

    fn target(&mut self) -> CompareTarget {
        match self.below(5) {
            0 => CompareTarget::Version,
            1 => CompareTarget::Create,
            2 => CompareTarget::Mod,
            3 => CompareTarget::Value,
            _ => CompareTarget::Lease,
        }
    }
}

fn generate_compare(random: &mut Random, pair: &Pair) -> Compare {
    let (key, range_end) = random.span(70);
    let target = random.target();
    let revision = pair.model.revision();
    let mut contents = pair.model.contents().into_iter();
    let current = contents.find(|found| found.key == key).unwrap_or_default();
    // Half of them are right, else nothing would ever be done.
    let right = random.chance(50);
    let near = |now: i64, random: &mut Random, width: i64| {
        if right { now } else { now + random.between(-width, width) }
    };
    let union = match target {
        CompareTarget::Version => TargetUnion::Version(near(current.version, random, 2)),
        CompareTarget::Create => {
            TargetUnion::CreateRevision(near(current.create_revision, random, revision))
        }
        CompareTarget::Mod => {
            TargetUnion::ModRevision(near(current.mod_revision, random, revision))
        }
        CompareTarget::Value if right => TargetUnion::Value(current.value),
        CompareTarget::Value => TargetUnion::Value(random.value()),
        CompareTarget::Lease if right => TargetUnion::Lease(current.lease),
        CompareTarget::Lease => TargetUnion::Lease(pair.leases[random.index(pair.leases.len())].0),
    };
    // Names of leases have no common order.
    let results = if target == CompareTarget::Lease { 2 } else { 4 };
    let result = match random.below(results) {
        0 => CompareResult::Equal,
        1 => CompareResult::NotEqual,
        2 => CompareResult::Greater,
        _ => CompareResult::Less,
    };
    // Sometimes what it compares with is left out, or of another kind.
    let target_union = match random.below(40) {
        0 => None,
        1 => Some(TargetUnion::Version(1)),
        _ => Some(union),
    };
    Compare { result: result as i32, target: target as i32, key, target_union, range_end }
}

fn generate_txn(random: &mut Random, pair: &Pair, depth: u64) -> TxnRequest {
    let compares = random.below(3);
    TxnRequest {
        compare: (0..compares).map(|_| generate_compare(random, pair)).collect(),
        success: generate_steps(random, pair, depth),
        failure: if random.chance(60) { generate_steps(random, pair, depth) } else { Vec::new() },
    }
}

fn generate_steps(random: &mut Random, pair: &Pair, depth: u64) -> Vec<RequestOp> {
    let count = random.below(4);
    (0..count).map(|_| generate_step(random, pair, depth)).collect()
}

fn generate_step(random: &mut Random, pair: &Pair, depth: u64) -> RequestOp {
    let revision = pair.model.revision();
    match random.below(100) {
        0 => RequestOp::default(),
        1..45 => {
            let lease = if random.chance(20) { random.index(pair.leases.len()) } else { 0 };
            let lease = if lease > 0 || random.chance(2) { pair.leases[lease].0 } else { 0 };
            let key = if random.chance(99) { random.key() } else { Vec::new() };
            let (value, prev_kv) = (random.value(), random.chance(30));
            Request::Put(PutRequest { key, value, lease, prev_kv }).into()
        }
        45..60 => {
            let (key, range_end) = random.span(80);
            let prev_kv = random.chance(30);
            Request::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv }).into()
        }
        60..75 => Request::Range(generate_range(random, revision)).into(),
        _ if depth > 0 => Request::Txn(generate_txn(random, pair, depth - 1)).into(),
        _ => Request::Put(PutRequest { key: random.key(), ..PutRequest::default() }).into(),
    }
}

/// Independent transactions in one, as we commit: each on keys of its own.
fn group_txn(random: &mut Random, pair: &Pair) -> TxnRequest {
    let members = (0..KEYS).filter(|_| random.chance(60)).collect::<Vec<_>>();
    let nested = members.into_iter().map(|number| {
        let mut compare = generate_compare(random, pair);
        compare.key = format!("k{number:02}").into_bytes();
        compare.range_end.clear();
        let key = compare.key.clone();
        let found = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let value = random.value();
        let inner = TxnRequest {
            compare: vec![compare],
            success: vec![Request::Put(PutRequest { key, value, ..PutRequest::default() }).into()],
            failure: vec![Request::Range(found).into()],
        };
        Request::Txn(inner).into()
    });
    TxnRequest { success: nested.collect(), ..TxnRequest::default() }
}

/// About as large as is allowed, in steps or in bytes.
fn oversized_txn(random: &mut Random) -> TxnRequest {
    let put = |key: String, value: Vec<u8>| {
        let put = PutRequest { key: key.into_bytes(), value, ..PutRequest::default() };
        RequestOp::from(Request::Put(put))
    };
    if random.chance(3) {
        // The server measures a few bytes more or less than we do; stay away from the very edge.
        let limit = SimLimits::default().max_request_bytes;
        let length = if random.chance(50) { limit - 200 } else { limit + 200 };
        let success = vec![put("large".to_owned(), vec![b'x'; length])];
        return TxnRequest { success, ..TxnRequest::default() };
    }
    let outer = random.index(130);
    let inner = (128 - outer.min(128)) + random.index(3);
    let mut success: Vec<RequestOp> =
        (0..outer).map(|it| put(format!("o{it}"), Vec::new())).collect();
    let nested = TxnRequest {
        success: (1..inner).map(|it| put(format!("i{it}"), Vec::new())).collect(),
        ..TxnRequest::default()
    };
    success.push(Request::Txn(nested).into());
    TxnRequest { success, ..TxnRequest::default() }
}

/// Deletes every key after those of the other requests, and those before them.
fn delete_other_keys() -> TxnRequest {
    let delete = |key: &[u8], range_end: &[u8]| {
        let (key, range_end) = (key.to_vec(), range_end.to_vec());
        Request::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }).into()
    };
    TxnRequest { success: vec![delete(b"i", b"j"), delete(b"l", &[0])], ..TxnRequest::default() }
}

fn generate_range(random: &mut Random, revision: i64) -> RangeRequest {
    let (key, range_end) = random.span(30);
    let revision = match random.below(10) {
        0 => revision + random.between(-80, 1),
        _ => 0,
    };
    let sort_order = match random.below(4) {
        0 => SortOrder::Ascend,
        1 => SortOrder::Descend,
        _ => SortOrder::None,
    };
    RangeRequest {
        key,
        range_end,
        limit: random.between(-4, 6).max(0),
        revision: revision.max(0),
        sort_order: sort_order as i32,
        // Other targets have ties, whose order the server leaves open.
        sort_target: 0,
        serializable: random.chance(10),
        keys_only: random.chance(20),
        count_only: random.chance(15),
    }
}
